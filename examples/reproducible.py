# SPDX-License-Identifier: Apache-2.0
"""Trains a small GPT, a convolutional network and an MLP, and prints a hash of the weights of each:
the same with any number of threads, eager and compiled, on every instruction set."""

import argparse
import hashlib
import json
import sys
from contextlib import nullcontext
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn

import isobit.torch


class Draws:
    """Numbers of the data. Those of Numerical Recipes' generator of 32 bits."""

    def __init__(self, seed):
        self.state = seed

    def below(self, most):
        self.state = (1664525 * self.state + 1013904223) % 2**32
        return self.state * most >> 32

    def tensor(self, *shape):
        """From -1 to 1, in steps of 2^-16."""
        count = torch.Size(shape).numel()
        values = [self.below(2**17) - 2**16 for _ in range(count)]
        return torch.tensor(values, dtype=torch.float32).reshape(shape) / 2**16


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.attention_norm, self.mlp_norm = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def forward(self, x):
        y = self.qkv(self.attention_norm(x)).unflatten(-1, (3, self.heads, -1))
        q, k, v = y.permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).flatten(2))
        return x + self.mlp(self.mlp_norm(x))


class GPT(nn.Module):
    """Of bytes. Positions are looked up for each token, so that nothing is broadcast: in backward
    that would be a sum of PyTorch's."""

    def __init__(self, width=32, heads=4, layers=2, context=32):
        super().__init__()
        self.letters, self.places = nn.Embedding(256, width), nn.Embedding(context, width)
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(layers)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 256)

    def forward(self, tokens, places, following):
        x = self.blocks(self.letters(tokens) + self.places(places))
        return F.cross_entropy(self.head(self.norm(x)).flatten(0, 1), following.flatten())


class CNN(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(
            *(nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.GELU(), nn.MaxPool2d(2)),
            *(nn.Conv2d(8, 16, 3, padding=1), nn.GroupNorm(4, 16), nn.SiLU(), nn.AvgPool2d(2, 1)),
            *(nn.Flatten(), nn.Linear(144, 10)),
        )

    def forward(self, images, digits):
        return F.cross_entropy(self.layers(images), digits)


class MLP(nn.Module):
    """Tells in which quarter of the plane a point lies."""

    def __init__(self, width=64):
        super().__init__()
        self.layers = nn.Sequential(
            *(nn.Linear(2, width), nn.Tanh(), nn.LayerNorm(width)),
            *(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 4)),
        )

    def forward(self, points, quarters):
        return F.cross_entropy(self.layers(points), quarters)


WORDS = {
    "who": ("the ear", "a bell", "the sun", "one bird", "the old clock", "a small ship"),
    "does": ("hears", "follows", "knows", "waits for", "draws"),
    "whom": ("the sea", "a letter", "the morning", "two stones", "its shadow"),
}


def text(draws, length):
    """Sentences of a few words, as bytes."""
    letters = b""
    while len(letters) < length:
        parts = (words[draws.below(len(words))] for words in WORDS.values())
        letters += " ".join(parts).encode() + b".\n"
    return torch.tensor(list(letters[:length]))


def sentences(draws, batch=8, context=32):
    letters = text(draws, 4000)
    places = torch.arange(context).repeat(batch, 1)
    while True:
        starts = [draws.below(len(letters) - context) for _ in range(batch)]
        rows = torch.stack([letters[i : i + context + 1] for i in starts])
        yield rows[:, :-1].contiguous(), places, rows[:, 1:].contiguous()


# Of 5 x 3 points, row by row.
DIGITS = (
    *("111101101101111", "010110010010111", "111001111100111", "111001111001111"),
    *("101101111001001", "111100111001111", "111100111101111", "111001010010010"),
    *("111101111101111", "111101111001111"),
)


def digits(draws, batch=16, size=8):
    """Each at one of four places in an image, with noise."""
    shapes = [[float(point) for point in digit] for digit in DIGITS]
    shapes = torch.tensor(shapes).reshape(10, 5, 3)
    while True:
        images, labels = draws.tensor(batch, 1, size, size) / 8, []
        for image in images[:, 0]:
            labels.append(draws.below(10))
            top, left = 1 + draws.below(2), 2 + draws.below(2)
            image[top : top + 5, left : left + 3] += shapes[labels[-1]]
        yield images, torch.tensor(labels)


def points(draws, batch=64):
    while True:
        found = draws.tensor(batch, 2)
        yield found, (found[:, 0] > 0).long() + 2 * (found[:, 1] > 0).long()


def adamw(parameters):
    return torch.optim.AdamW(parameters, lr=3e-3)


def sgd(parameters):
    return torch.optim.SGD(parameters, lr=0.05, momentum=0.9, nesterov=True)


# (model, its batches, its optimizer)
RUNS = {"gpt": (GPT, sentences, adamw), "cnn": (CNN, digits, sgd), "mlp": (MLP, points, adamw)}


def hash_of(model):
    """Of every bit of the weights, and of the running statistics."""
    contents = b"".join(each.numpy().tobytes() for each in model.state_dict().values())
    return hashlib.sha256(contents).hexdigest()


def train(name, steps, compiled, seed=0):
    """(hash of the weights, first loss, last loss, what remained of PyTorch's)"""
    make, batches, optimizer_of = RUNS[name]
    draws = Draws(seed + 1)
    model = isobit.torch.init.reset_parameters_(make(), seed)
    report = isobit.torch.convert(model, optimizer_of(model.parameters()))
    optimizer = report.optimizer
    batches, losses = batches(draws), []
    with report.watching():  # the first step, which is eager
        losses.append(step(model, optimizer, next(batches)))
    call = torch.compile(model) if compiled else model
    for _ in range(steps - 1):
        losses.append(step(call, optimizer, next(batches)))
    return hash_of(model), losses[0], losses[-1], [str(each) for each in report.remaining]


def step(call, optimizer, batch):
    optimizer.zero_grad()
    loss = call(*batch)
    loss.backward()
    optimizer.step()
    return loss.item()


def recorded(folder, name):
    """A block that records its calls where there is a folder."""
    if folder is None:
        return nullcontext()
    folder.mkdir(parents=True, exist_ok=True)
    return isobit.torch.record(folder / f"{name}.bin")


def options_of(arguments):
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runs", nargs="*", metavar="RUN", help=f"of {', '.join(RUNS)}; all if none")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--compile", action="store_true", help="all steps but the first, compiled")
    parser.add_argument("--isa", default=isobit.torch.settings.isa, help="of Isobit's kernels")
    parser.add_argument("--json", action="store_true", help="print one line of JSON for each run")
    parser.add_argument("--record", type=Path, help="a folder for RUN.bin, for `isobit replay`")
    options = parser.parse_args(arguments)
    for name in options.runs:
        if name not in RUNS:
            parser.error(f"there is no run {name}; known: {', '.join(RUNS)}")
    for name in ("steps", "threads"):
        if getattr(options, name) < 1:
            parser.error(f"--{name} must be at least 1")
    try:
        isobit.torch.settings.isa = options.isa
    except ValueError as error:
        parser.error(str(error))
    return options


def main(arguments=None):
    options = options_of(arguments)
    torch.set_num_threads(options.threads)
    for name in options.runs or RUNS:
        with recorded(options.record, name):
            found, first, last, remaining = train(name, options.steps, options.compile)
        if options.json:
            said = {"run": name, "hash": found, "losses": [first, last], "remaining": remaining}
            print(json.dumps(said), flush=True)
            continue
        print(f"{name}: loss {first:.4f} to {last:.4f} in {options.steps} steps, weights {found}")
        for each in remaining:
            print(f"  PyTorch's: {each}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
