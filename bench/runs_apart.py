# SPDX-License-Identifier: Apache-2.0
"""Trains each model of examples/reproducible.py by PyTorch and by Isobit in processes that differ
in the instruction set or in the number of threads alone, and writes which share of the weights has
other bits than in the first process, after every step."""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import torch

import isobit.torch

ROOT = Path(__file__).resolve().parents[1]
sys.path += [str(ROOT / "examples"), str(ROOT / "tools")]
import reproduce  # noqa: E402
import reproducible  # noqa: E402

import bench  # noqa: E402

BY = ("torch", "isobit")
# What ATen, MKL and oneDNN call the instruction sets that they are not to go beyond.
NARROWED = {
    "scalar": ("default", "SSE4_2", "SSE41"),
    "avx2": ("avx2", "AVX2", "AVX2"),
    "avx512": ("avx512", "AVX512", "AVX512_CORE"),
    "neon": ("default", "", ""),
}
VARIABLES = ("ATEN_CPU_CAPABILITY", "MKL_ENABLE_INSTRUCTIONS", "ONEDNN_MAX_CPU_ISA")


class Process(NamedTuple):
    isa: str
    threads: int


def processes():
    """The first is the one that others are compared with; the second does the same again."""
    *narrower, widest = reproduce.isas()
    return (
        *(Process(widest, 1), Process(widest, 1), Process(widest, 2)),
        *(Process(isa, 1) for isa in narrower[-1:]),
    )


def train(name, by, steps, seed=0):
    """(losses, weights) of every step."""
    make, batches, optimizer_of = reproducible.RUNS[name]
    model = isobit.torch.init.reset_parameters_(make(), seed)
    optimizer = optimizer_of(model.parameters())
    if by == "isobit":
        optimizer = isobit.torch.convert(model, optimizer).optimizer
    losses, weights = [], []
    for batch in islice(batches(reproducible.Draws(seed + 1)), steps):
        losses.append(reproducible.step(model, optimizer, batch))
        weights.append(torch.cat([each.detach().flatten() for each in model.parameters()]))
    return losses, torch.stack(weights)


def trained(process, name, by, steps):
    """The same, by a process of its own."""
    environment = os.environ | dict(zip(VARIABLES, NARROWED[process.isa], strict=True))
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "found.pt"
        command = [sys.executable, __file__, name, "--steps", str(steps), "--found", file]
        command += ["--by", by, "--isa", process.isa, "--threads", str(process.threads)]
        subprocess.run(command, check=True, env=environment)
        return torch.load(file)


def lines_of(name, steps):
    """A line for each process but the first, by PyTorch and by Isobit."""
    for by in BY:
        (losses, weights), *others = (trained(each, name, by, steps) for each in processes())
        for process, (other_losses, other_weights) in zip(processes()[1:], others, strict=True):
            differ = weights.view(torch.int32) != other_weights.view(torch.int32)
            shares = differ.double().mean(1).tolist()
            apart = [abs(one - other) for one, other in zip(losses, other_losses, strict=True)]
            yield {
                **{"run": name, "by": by, **process._asdict(), "steps": steps},
                **{"weights": weights.shape[1], "shares": [float(f"{x:.4g}") for x in shares]},
                "largest_difference_of_losses": float(f"{max(apart):.3g}"),
            }


def options_of(arguments):
    parser = argparse.ArgumentParser(description=__doc__)
    known = ", ".join(reproducible.RUNS)
    parser.add_argument("runs", nargs="*", metavar="RUN", help=f"of {known}; all if none")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--out", type=Path, help="a file for lines of JSON, after a header")
    for name in ("--found", "--by", "--isa"):  # of one process
        parser.add_argument(name, help=argparse.SUPPRESS)
    parser.add_argument("--threads", type=int, default=1, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    for name in options.runs:
        if name not in reproducible.RUNS:
            parser.error(f"there is no run {name}; known: {known}")
    if options.steps < 1:
        parser.error("--steps must be at least 1")
    return options


def main(arguments=None):
    options = options_of(arguments)
    if options.found:
        torch.set_num_threads(options.threads)
        isobit.torch.settings.isa = options.isa
        return torch.save(train(options.runs[0], options.by, options.steps), options.found)
    lines = []
    for name in options.runs or reproducible.RUNS:
        for line in lines_of(name, options.steps):
            lines.append(line)
            print(
                f"{name} by {line['by']}, {line['isa']}, {line['threads']} threads: "
                f"{100 * line['shares'][0]:.3g} % of the weights differ after a step, "
                f"{100 * line['shares'][-1]:.3g} % after {options.steps}, losses by up to "
                f"{line['largest_difference_of_losses']:.1e}",
                flush=True,
            )
    if options.out:
        command = " ".join(
            ["bench/runs_apart.py", *(sys.argv[1:] if arguments is None else arguments)]
        )
        head = bench.header([]) | {"command": command}
        options.out.write_text("".join(json.dumps(line) + "\n" for line in (head, *lines)))


if __name__ == "__main__":
    main()
