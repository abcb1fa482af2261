# SPDX-License-Identifier: Apache-2.0
"""Times a training step of the convolutional network of RepDL's example on the CPU: forward, cross
entropy, backward and Adam, by RepDL, by Isobit and by PyTorch, in turns in one process.

RepDL (github.com/microsoft/RepDL) is no part of this repository: --repdl names a clone of it, whose
kernels for the CPU are compiled there. Its kernels for GPUs are left out, so nvcc is not needed.
"""

import argparse
import hashlib
import importlib.util
import json
import sys
import types
from pathlib import Path

import torch
import torch.nn.functional as F
from timing import TimedCall, time_interleaved
from torch import nn

import isobit.torch

ROOT = Path(__file__).resolve().parents[1]
sys.path += [str(ROOT / "examples"), str(ROOT / "tools")]
import reproducible  # noqa: E402

import bench  # noqa: E402

BATCH = 100
GET_IT = (
    "RepDL is compared only where --repdl names a clone of it:\n"
    "  git clone https://github.com/microsoft/RepDL /tmp/repdl"
)


def network():
    """That of examples/mnist_trainig.py there: LeNet for images of 28 x 28."""
    return nn.Sequential(
        *(nn.Conv2d(1, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(400, 120), nn.ReLU()),
        *(nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 10)),
    )


def digits():
    """(where they are from, images of 8 x 8 from 0 to 1, labels): those of scikit-learn or, without
    it, those that our example draws."""
    if importlib.util.find_spec("sklearn"):
        from sklearn.datasets import load_digits

        images, labels = load_digits(return_X_y=True)
        images = torch.tensor(images[:BATCH], dtype=torch.float32).reshape(BATCH, 1, 8, 8) / 16
        return "scikit-learn", images, torch.tensor(labels[:BATCH])
    drawn = reproducible.digits(reproducible.Draws(1), BATCH)
    return ("drawn", *next(drawn))


def enlarged(images):
    """Three times as large, with a margin: 28 x 28."""
    return F.pad(images.repeat_interleave(3, -1).repeat_interleave(3, -2), (2, 2, 2, 2))


def load_repdl(clone):
    """The module repdl of a clone, whose package for GPUs is an empty one."""
    from torch.utils import cpp_extension

    sources = sorted((clone / "backend" / "cpu").glob("*.cpp"))
    if not sources:
        sys.exit(f"{clone} is no clone of RepDL\n{GET_IT}")
    built = clone / "build"
    built.mkdir(exist_ok=True)
    backend = types.ModuleType("repdl.backend")
    backend.cpu = cpp_extension.load(
        "repdl_cpu",
        list(map(str, sources)),
        extra_cflags=["-fopenmp", "-O3"],
        build_directory=built,
    )
    backend.cuda = types.ModuleType("repdl.backend.cuda")
    sys.modules["repdl.backend"] = backend
    sys.path.insert(0, str(clone))
    import repdl

    return repdl


def steps_of(repdl, images, labels):
    """{by: (a call that makes one step and returns its loss, the model)}; all begin alike."""
    models = {}

    def add(by, model, optimizer, loss_of):
        def step():
            loss = loss_of(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            return loss

        models[by] = (step, model)

    if repdl is not None:
        model = repdl.from_torch_module(begun())
        optimizer = repdl.optim.Adam(model.parameters(), lr=0.01)
        add("repdl", model, optimizer, repdl.nn.functional.cross_entropy)
    model = begun()
    report = isobit.torch.convert(model, torch.optim.Adam(model.parameters(), lr=0.01))
    add("isobit", model, report.optimizer, isobit.torch.cross_entropy)
    model = begun()
    add("torch", model, torch.optim.Adam(model.parameters(), lr=0.01), F.cross_entropy)
    return models


def begun():
    return isobit.torch.init.reset_parameters_(network(), 0)


def hash_of(model):
    contents = b"".join(each.detach().numpy().tobytes() for each in model.parameters())
    return hashlib.sha256(contents).hexdigest()


def lines_of(repdl, threads, options):
    source, images, labels = digits()
    torch.set_num_threads(threads)
    models = steps_of(repdl, enlarged(images), labels)
    losses = {by: [step().item() for _ in range(options.steps)] for by, (step, _) in models.items()}
    hashes = {by: hash_of(model) for by, (_, model) in models.items()}
    calls = {by: TimedCall(step) for by, (step, _) in models.items()}
    found = time_interleaved(calls, options.seconds, options.rounds)
    for by, times in found.items():
        yield {
            **{"model": "RepDL's CNN", "images": source, "batch": BATCH, "threads": threads},
            **{"by": by, "median": times.median, "p20": times.p20, "p80": times.p80},
            **{"losses": [losses[by][0], losses[by][-1]], "steps": options.steps},
            **{"weights": hashes[by][:16]},
        }


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repdl", type=Path, help="a clone of github.com/microsoft/RepDL")
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--steps", type=int, default=20, help="before what is timed, for a hash")
    parser.add_argument("--seconds", type=float, default=20, help="for each way, at least")
    parser.add_argument("--rounds", type=int, default=5, help="at least")
    parser.add_argument("--out", type=Path, help="a file for lines of JSON, after a header")
    options = parser.parse_args(arguments)
    if options.steps < 1:
        parser.error("--steps must be at least 1")
    if options.repdl is None:
        print(GET_IT, file=sys.stderr)
    repdl = None if options.repdl is None else load_repdl(options.repdl)
    lines = []
    for threads in options.threads.split(","):
        for line in lines_of(repdl, int(threads), options):
            print(json.dumps(line), flush=True)
            lines.append(line)
    if options.out:
        command = " ".join(
            ["bench/beside_repdl.py", *(sys.argv[1:] if arguments is None else arguments)]
        )
        head = bench.header([]) | {"command": command}
        options.out.write_text("".join(json.dumps(line) + "\n" for line in (head, *lines)))


if __name__ == "__main__":
    main()
