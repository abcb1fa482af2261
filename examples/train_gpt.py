# SPDX-License-Identifier: Apache-2.0
"""Trains a small GPT on Isobit's own documents, with PyTorch's norms and with Isobit's side by
side: the same curve, at which speed, and twice to the same bits."""

import argparse
import hashlib
import json
import resource
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn

import isobit.torch

ROOT = Path(__file__).resolve().parents[1]
NORMS = {"torch": nn.LayerNorm, "isobit": isobit.torch.LayerNorm}


class Block(nn.Module):
    def __init__(self, width, heads, norm):
        super().__init__()
        self.heads = heads
        self.attention_norm, self.mlp_norm = norm(width), norm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def attend(self, x):
        # (batch, context, 3 width) to three of (batch, heads, context, width of a head)
        q, k, v = self.qkv(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(y.transpose(1, 2).flatten(2))

    def forward(self, x):
        x = x + self.attend(self.attention_norm(x))
        return x + self.mlp(self.mlp_norm(x))


class GPT(nn.Module):
    def __init__(self, letters, options, norm):
        super().__init__()
        width = options.width
        self.letters = nn.Embedding(letters, width)
        self.places = nn.Embedding(options.context, width)
        self.blocks = nn.Sequential(
            *(Block(width, options.heads, norm) for _ in range(options.layers))
        )
        self.norm = norm(width)
        self.head = nn.Linear(width, letters, bias=False)

    def forward(self, tokens):
        x = self.letters(tokens) + self.places.weight[: tokens.shape[1]]
        return self.head(self.norm(self.blocks(x)))


def training_text():
    """Isobit's documents, or this file where they are not at hand."""
    pages = [*ROOT.glob("docs/*.md"), *ROOT.glob("src/isobit/ops/*/README.md")]
    return "\n".join(page.read_text() for page in sorted(pages) or [Path(__file__)])


def encoded(text):
    """(tokens, number of letters)"""
    letters = sorted(set(text))
    place = {letter: i for i, letter in enumerate(letters)}
    return torch.tensor([place[letter] for letter in text]), len(letters)


def batches(tokens, options):
    """The same for every norm: (tokens, those that follow them)."""
    generator = torch.Generator().manual_seed(options.seed)
    for _ in range(options.steps):
        starts = torch.randint(len(tokens) - options.context, (options.batch,), generator=generator)
        windows = torch.stack([tokens[i : i + options.context + 1] for i in starts])
        yield windows[:, :-1], windows[:, 1:]


def optimise(model, optimiser, tokens, following):
    """One step, and its loss."""
    loss = F.cross_entropy(model(tokens).flatten(0, 1), following.flatten())
    optimiser.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimiser.step()
    return loss.detach()


@dataclass
class Training:
    """A model on its way."""

    name: str
    model: GPT
    optimiser: torch.optim.Optimizer
    losses: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)

    @classmethod
    def start(cls, name, letters, options):
        torch.manual_seed(options.seed)  # all models begin with the same weights
        model = GPT(letters, options, NORMS[name])
        return cls(name, model, torch.optim.AdamW(model.parameters(), lr=options.rate))

    def step(self, tokens, following):
        begin = time.perf_counter()
        loss = optimise(self.model, self.optimiser, tokens, following)
        self.losses.append(loss.item())
        self.seconds.append(time.perf_counter() - begin)

    def speed(self, options):
        """Tokens a second, in the median step."""
        return options.batch * options.context / sorted(self.seconds)[len(self.seconds) // 2]


def train(names, options):
    """Side by side, step by step, so that whatever else the machine does slows all of them."""
    tokens, letters = encoded(training_text())
    trainings = [Training.start(name, letters, options) for name in names]
    for i, batch in enumerate(batches(tokens, options)):
        for training in trainings[:: 1 if i % 2 else -1]:
            training.step(*batch)
        show_progress(i + 1, options.steps, trainings)
    return trainings


def show_progress(step, steps, trainings):
    if sys.stderr.isatty():
        filled = 30 * step // steps
        losses = "  ".join(f"{each.name} {each.losses[-1]:.4f}" for each in trainings)
        end = "\n" if step == steps else ""
        print(
            f"\r[{'#' * filled:30}] {step}/{steps}  {losses}", end=end, file=sys.stderr, flush=True
        )


def digest(tensors):
    """A hash of every bit."""
    return hashlib.sha256(b"".join(each.detach().numpy().tobytes() for each in tensors)).hexdigest()


def norm_digests(norm, options, threads):
    """Of a norm's result and gradients, computed by 1, 2, ... threads."""
    generator = torch.Generator().manual_seed(options.seed)
    x, along = torch.randn(2, 4096, options.width, generator=generator)
    for count in range(1, threads + 1):
        torch.set_num_threads(count)
        module, input = norm(options.width), x.clone().requires_grad_()
        module(input).backward(along)
        yield digest([module(input), input.grad, module.weight.grad, module.bias.grad])


def compare_threads(options):
    """Whether the norm of Isobit has one digest for all numbers of threads."""
    threads, before = max(4, options.threads), torch.get_num_threads()
    found = {name: list(norm_digests(norm, options, threads)) for name, norm in NORMS.items()}
    torch.set_num_threads(before)
    print(f"\nbits of one norm and its gradients with 1 to {threads} threads:")
    for name, digests in found.items():
        print(f"  {name:8}", *(each[:8] for each in digests))
    return len(set(found["isobit"])) == 1


def compare_runs(first, options):
    """Whether Isobit's training, done again, has the same losses and weights to the last bit."""
    (again,) = train(["isobit"], options)
    same = first.losses == again.losses and digest(first.model.parameters()) == digest(
        again.model.parameters()
    )
    print(f"\nisobit trained again: {'the same bits' if same else 'OTHER BITS'}")
    return same


def summarise(trainings, options):
    print(f"\n{'norm':8}{'first loss':>12}{'last loss':>12}{'tokens/s':>12}")
    for each in trainings:
        first, last = each.losses[0], each.losses[-1]
        print(f"{each.name:8}{first:12.4f}{last:12.4f}{each.speed(options):12,.0f}")
    if len(trainings) == 2:
        pairs = zip(*(each.losses for each in trainings), strict=True)
        print(f"their losses differ by {max(abs(a - b) for a, b in pairs):.1e} at most")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"peak memory of the process: {peak:,.0f} MiB")


def write(folder, trainings, options):
    folder.mkdir(parents=True, exist_ok=True)
    figures = {
        each.name: {"losses": each.losses, "tokens_per_second": each.speed(options)}
        for each in trainings
    }
    (folder / "training.json").write_text(json.dumps(figures, indent=1) + "\n")
    plot(folder, {each.name: each.losses for each in trainings})


def plot(folder, curves):
    """loss.png, with the losses of each name."""
    try:
        from isobit.lab import plots
    except ImportError as missing:
        print(f"no plot: {missing}")
        return
    with plots.plt.rc_context(plots.style("light")):
        figure, axes = plots.plt.subplots(figsize=(7, 4))
        colours = plots.colours("light", curves)
        for i, (name, losses) in enumerate(curves.items()):  # the later, the thinner: all are seen
            axes.plot(losses, linewidth=0.8 * (len(curves) - i), color=colours[name], label=name)
        axes.set(title="Loss of a small GPT", xlabel="step", ylabel="nats a letter")
        axes.legend()
        figure.savefig(folder / "loss.png")
        plots.plt.close(figure)


def add_sizes(parser):
    """Of the model and its training."""
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--context", type=int, default=64)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--rate", type=float, default=2e-3, help="of learning")
    parser.add_argument("--seed", type=int, default=0)


def check_sizes(parser, options):
    if options.width % options.heads:
        parser.error(f"--width must be a multiple of --heads, {options.heads}")


def options_of(arguments):
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--norm", choices=[*NORMS, "both"], default="both")
    add_sizes(parser)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--out", type=Path, help="a folder for loss.png and training.json")
    parser.add_argument(
        "--repeat", action="store_true", help="train with isobit again; other bits are a failure"
    )
    options = parser.parse_args(arguments)
    if options.repeat and options.norm == "torch":
        parser.error("--repeat is about isobit")
    check_sizes(parser, options)
    return options


def main(arguments=None):
    options = options_of(arguments)
    torch.set_num_threads(options.threads)
    names = list(NORMS) if options.norm == "both" else [options.norm]
    trainings = train(names, options)
    summarise(trainings, options)
    if options.out:
        write(options.out, trainings, options)
    same = compare_runs(trainings[-1], options) if options.repeat else True
    same = compare_threads(options) and same
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
