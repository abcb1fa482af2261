# SPDX-License-Identifier: Apache-2.0
"""Trains each model of examples/reproducible.py by PyTorch and by Isobit, from the same weights on
the same batches, and writes the losses of every step, which must lie on the same curve."""

import argparse
import json
import sys
from itertools import islice
from pathlib import Path

import torch

import isobit.torch

ROOT = Path(__file__).resolve().parents[1]
sys.path += [str(ROOT / "examples"), str(ROOT / "tools")]
import reproducible  # noqa: E402

import bench  # noqa: E402

WAYS = ("torch", "isobit")


def losses(name, by, steps, seed=0):
    """One for each step."""
    make, batches, optimizer_of = reproducible.RUNS[name]
    model = isobit.torch.init.reset_parameters_(make(), seed)
    optimizer = optimizer_of(model.parameters())
    if by == "isobit":
        optimizer = isobit.torch.convert(model, optimizer).optimizer
    given = islice(batches(reproducible.Draws(seed + 1)), steps)
    return [reproducible.step(model, optimizer, batch) for batch in given]


def lines_of(name, steps):
    """The curves, and how far they lie apart."""
    curves = {by: losses(name, by, steps) for by in WAYS}
    for by, curve in curves.items():
        rounded = [float(f"{loss:.9g}") for loss in curve]  # which tells every float
        yield {"run": name, "by": by, "losses": rounded}
    apart = [abs(one - other) for one, other in zip(*curves.values(), strict=True)]
    most = max(apart)
    yield {"run": name, "steps": steps, "largest_difference": most, "at_step": apart.index(most)}


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__)
    known = ", ".join(reproducible.RUNS)
    parser.add_argument("runs", nargs="*", metavar="RUN", help=f"of {known}; all if none")
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--out", type=Path, help="a file for lines of JSON, after a header")
    options = parser.parse_args(arguments)
    for name in options.runs:
        if name not in reproducible.RUNS:
            parser.error(f"there is no run {name}; known: {known}")
    for name in ("steps", "threads"):
        if getattr(options, name) < 1:
            parser.error(f"--{name} must be at least 1")
    torch.set_num_threads(options.threads)
    lines = []
    for name in options.runs or reproducible.RUNS:
        lines += lines_of(name, options.steps)
        apart = lines[-1]
        print(
            f"{name}: {apart['steps']} steps, losses of both {apart['largest_difference']:.1e} "
            f"apart at most, at step {apart['at_step']}",
            flush=True,
        )
    if options.out:
        command = " ".join(
            ["bench/loss_curves.py", *(sys.argv[1:] if arguments is None else arguments)]
        )
        head = bench.header([]) | {"command": command}
        options.out.write_text("".join(json.dumps(line) + "\n" for line in (head, *lines)))


if __name__ == "__main__":
    main()
