# SPDX-License-Identifier: Apache-2.0
"""Trains the GPT of train_gpt.py on the ranks that torchrun starts: the curve of one rank, the same
bits in every run, and after a kill in the middle too."""

import argparse
import hashlib
import json
import os
import shutil
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as checkpoints
import train_gpt
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel

# By how much a loss may differ from that of one rank. It cannot be the same bits: products over a
# part of the batch are summed up in another order, and so are gradients over the ranks.
TOLERANCE = 1e-3


def sharded(model):
    for block in model.blocks:
        fully_shard(block)
    return fully_shard(model)


WAYS = {"ddp": DistributedDataParallel, "fsdp": sharded}


class Training:
    """A model on its way, which torch.distributed.checkpoint can store and bring back."""

    def __init__(self, letters, options):
        torch.manual_seed(options.seed)  # all ranks begin with the same weights
        model = train_gpt.GPT(letters, options, train_gpt.NORMS["isobit"])
        self.name = name_of(options)
        self.model = WAYS[options.way](model)
        self.optimiser = torch.optim.AdamW(self.model.parameters(), lr=options.rate)
        self.losses = []
        self.seconds = []

    def step(self, tokens, following):
        """With this rank's share of a batch."""
        begin = time.perf_counter()
        loss = train_gpt.optimise(self.model, self.optimiser, tokens, following)
        mean = loss / dist.get_world_size()
        dist.all_reduce(mean)
        self.losses.append(mean.item())
        self.seconds.append(time.perf_counter() - begin)

    def digest(self):
        """Of all weights; every rank must ask."""
        whole = (
            each.full_tensor() if isinstance(each, DTensor) else each
            for each in self.model.parameters()
        )
        return train_gpt.digest(whole)

    def state_dict(self):
        model, optimiser = get_state_dict(self.model, self.optimiser)
        return {"model": model, "optimiser": optimiser, "losses": json.dumps(self.losses)}

    def load_state_dict(self, state):
        set_state_dict(
            self.model,
            self.optimiser,
            model_state_dict=state["model"],
            optim_state_dict=state["optimiser"],
        )
        self.losses = json.loads(state["losses"])


def name_of(options):
    ranks = dist.get_world_size()
    return f"{options.way}, {ranks} rank{'s' if ranks > 1 else ''}"


def described(text, options):
    """What the bits of a training depend on, beside the machine."""
    kept = {key: value for key, value in vars(options).items() if key not in ("out", "resume")}
    return kept | {"text": hashlib.sha256(text.encode()).hexdigest()}


def store(training, folder):
    """A checkpoint has its name once all of it is there; those before it go then."""
    final = folder / f"step-{len(training.losses):06}"
    partial = final.with_suffix(".partial")
    checkpoints.save({"training": training}, checkpoint_id=partial)
    if dist.get_rank() == 0:
        before = stored(folder)
        partial.rename(final)
        for each in before:
            shutil.rmtree(each)
    dist.barrier()


def stored(folder):
    return sorted(each for each in folder.glob("step-*") if not each.suffix)


def begin(training, folder, description, resume):
    """From the last checkpoint, or anew."""
    about = folder / "training.json"
    if resume:
        if not stored(folder):
            raise SystemExit(f"--resume: there is no checkpoint in {folder}")
        if json.loads(about.read_text()) != description:
            raise SystemExit(f"--resume: other options, or another text, than those of {about}")
        checkpoints.load({"training": training}, checkpoint_id=stored(folder)[-1])
    elif dist.get_rank() == 0:
        shutil.rmtree(folder, ignore_errors=True)  # of a run before this one
        folder.mkdir(parents=True)
        about.write_text(json.dumps(description, indent=1) + "\n")
    dist.barrier()


def train(options):
    text = train_gpt.training_text()
    tokens, letters = train_gpt.encoded(text)
    training = Training(letters, options)
    description = described(text, options)
    folder = options.out / training.name.replace(", ", "-").replace(" ", "-")
    begin(training, folder, description, options.resume)
    done = len(training.losses)
    rank, ranks = dist.get_rank(), dist.get_world_size()
    for i, batch in enumerate(train_gpt.batches(tokens, options)):
        if i < done:  # batches are drawn one after the other
            continue
        training.step(*(each.chunk(ranks)[rank] for each in batch))
        if options.save_every and (i + 1) % options.save_every == 0:
            store(training, folder)
        if rank == 0:
            train_gpt.show_progress(i + 1, options.steps, [training])
    return training, description


def report(training, digest, description, options):
    """Draws all trainings of the folder; True if this one is like the last, and like one rank."""
    file = options.out / "losses.json"
    known = json.loads(file.read_text()) if file.exists() else {}
    before = known.get(training.name)
    now = {"training": description, "losses": training.losses, "weights": digest}
    known[training.name] = now
    file.write_text(json.dumps(known, indent=1) + "\n")
    train_gpt.plot(options.out, {name: each["losses"] for name, each in sorted(known.items())})

    print(f"\n{training.name}: {training.losses[0]:.4f} to {training.losses[-1]:.4f}, {digest[:8]}")
    same = True
    if before and before["training"] == description:
        same = before == now
        print("the last training alike:", "the same bits" if same else "OTHER BITS")
    alone = known.get(f"{options.way}, 1 rank")
    if alone and alone is not now and alone["training"] == description:
        pairs = zip(training.losses, alone["losses"], strict=True)
        distance = max(abs(one - other) for one, other in pairs)
        print(f"losses differ from those of one rank by {distance:.1e} at most")
        same = same and distance <= TOLERANCE
    return same


def options_of(arguments):
    parser = argparse.ArgumentParser(
        description=__doc__, usage="torchrun --nproc-per-node N examples/train_gpt_distributed.py"
    )
    parser.add_argument("--way", choices=WAYS, default="fsdp")
    train_gpt.add_sizes(parser)
    parser.add_argument("--threads", type=int, default=1, help="of each rank")
    parser.add_argument(
        "--out", type=Path, required=True, help="a folder for loss.png, losses.json, checkpoints"
    )
    parser.add_argument(
        "--save-every", type=int, default=50, help="steps between checkpoints; 0 for none"
    )
    parser.add_argument(
        "--resume", action="store_true", help="go on from the last checkpoint in the folder"
    )
    options = parser.parse_args(arguments)
    train_gpt.check_sizes(parser, options)
    if "WORLD_SIZE" not in os.environ:
        parser.error("torchrun starts this; `torchrun --nproc-per-node 1` for one rank")
    if options.batch % int(os.environ["WORLD_SIZE"]):
        parser.error(f"--batch must be a multiple of the {os.environ['WORLD_SIZE']} ranks")
    return options


def run(options):
    """Whether all went as it must."""
    training, description = train(options)
    digest = training.digest()
    return dist.get_rank() != 0 or report(training, digest, description, options)


def main(arguments=None):
    options = options_of(arguments)
    torch.set_num_threads(options.threads)
    dist.init_process_group("gloo")
    good = run(options)
    # PyTorch 2.13 may wait for ever for a group that goes right after a collective with tensors.
    dist.barrier()
    dist.destroy_process_group()
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
