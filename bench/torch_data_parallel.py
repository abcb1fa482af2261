# SPDX-License-Identifier: Apache-2.0
"""Times steps of DistributedDataParallel on several ranks of this machine, by gloo: gradients added
by PyTorch's all-reduce, and by the pair tree, whose bits do not depend on the ranks."""

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from contextlib import nullcontext

import torch
import torch.distributed as dist
import torch.multiprocessing
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch_cpu import header, listed

from isobit.torch.distributed import GradientTree, pair_tree_hook


def model_of(width, layers):
    torch.manual_seed(0)
    parts = ((nn.Linear(width, width), nn.Tanh()) for _ in range(layers))
    return DistributedDataParallel(nn.Sequential(*(each for part in parts for each in part)))


def ordinary(model, each):
    def step(x):
        for i in range(each):
            with model.no_sync() if i + 1 < each else nullcontext():
                (model(x).sum() / each).backward()

    return step


def by_tree(model, each):
    tree = GradientTree(model, each * dist.get_world_size())

    def step(x):
        for _ in tree.indices:
            with tree.micro_batch():
                model(x).sum().backward()

    return step


def hooked(model, each):
    model.register_comm_hook(None, pair_tree_hook)
    return ordinary(model, each)


def ways(each):
    """{name: (model, micro-batches of a rank) -> a step}; a hook alone knows of one micro-batch."""
    known = {"all-reduce": ordinary, "tree": by_tree}
    return known | ({"hook": hooked} if each == 1 else {})


def timed(steps, x, rounds):
    """{name: seconds of each round}, in turns, of which all ranks begin each together."""
    found = {name: [] for name in steps}
    for turn in range(rounds + 1):
        for name in list(steps)[:: 1 if turn % 2 == 0 else -1]:
            model, step = steps[name]
            model.zero_grad()
            dist.barrier()
            start = time.perf_counter()
            step(x)
            dist.barrier()
            if turn:  # the first warms up
                found[name].append(time.perf_counter() - start)
    return found


def run_rank(rank, ranks, store, args):
    torch.set_num_threads(args.threads)
    dist.init_process_group("gloo", store=dist.FileStore(store, ranks), rank=rank, world_size=ranks)
    for width in args.width:
        for each in args.micro_batches:
            models = {name: model_of(width, args.layers) for name in ways(each)}
            steps = {
                name: (models[name], way(models[name], each)) for name, way in ways(each).items()
            }
            x = torch.ones(args.rows, width)
            for name, seconds in timed(steps, x, args.rounds).items():
                line = {"way": name, "ranks": ranks, "width": width, "layers": args.layers}
                line |= {"rows": args.rows, "micro_batches": each}
                line["parameters"] = sum(p.numel() for p in models[name].parameters())
                line["median_ms"] = 1e3 * statistics.median(seconds)
                if rank == 0:
                    print(json.dumps(line), flush=True)
    dist.barrier()
    os._exit(0)  # PyTorch's own end takes seconds


def arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=listed(convert=int), default=[2])
    parser.add_argument("--width", type=listed(convert=int), default=[256, 1024])
    parser.add_argument("--micro-batches", type=listed(convert=int), default=[1, 4])
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--rows", type=int, default=16, help="of a micro-batch")
    parser.add_argument("--threads", type=int, default=1, help="of a rank")
    parser.add_argument("--rounds", type=int, default=9)
    return parser.parse_args()


def main():
    args = arguments()
    print(json.dumps(header()), flush=True)
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    for ranks in args.ranks:
        with tempfile.NamedTemporaryFile() as store:
            torch.multiprocessing.spawn(run_rank, (ranks, store.name, args), ranks)
    return 0


if __name__ == "__main__":
    sys.exit(main())
