# SPDX-License-Identifier: Apache-2.0
"""Sets the accuracy of isobit.torch beside PyTorch's own, on every family of inputs.

The inputs are those of `isobit verify` with seed 0 and the yardstick is docs/numerics.md's, both
written anew here, since the lab writes no inputs and PyTorch's results are not in its hands.
"""

import argparse
import json
import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import tables
import torch
import torch.nn.functional as F

import bench
import isobit.torch
from isobit.lab.report import grouped

ROWS = 8
QUICK_COLS = (3, 64, 769, 4096)
FULL_COLS = (*QUICK_COLS, 65536)
C_LIMIT = 8  # the gate of the numerics contract
DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16}

# XXH3-64 of the name, which sets an argument's numbers apart from the others'.
KEYS = {
    "x": 0xEAF06C6480B2CD11,
    "weight": 0x21027DA43643E999,
    "bias": 0xB4BE24692766627D,
    "grad_y": 0xA039BC9455839A8D,
}
STEP = np.uint64(0x9E3779B97F4A7C15)


def mix(z):
    z = (z ^ z >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ z >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
    return z ^ z >> np.uint64(31)


class Place:
    """Where a family is drawn: the lab's SplitMix64, a stream for each row."""

    def __init__(self, argument, rows, cols):
        self.row, self.col = np.arange(rows)[:, None], np.arange(cols)[None, :]
        self.state = mix(np.uint64(KEYS[argument]) + STEP * self.row.astype(np.uint64))

    def words(self, count):
        """The first words of each row's stream, `count` for each element."""
        rows, cols = len(self.row), self.col.size
        steps = np.arange(1, cols * count + 1, dtype=np.uint64)
        return mix(self.state + STEP * steps).reshape(rows, cols, count)

    def symmetric(self):
        words = self.words(1)[..., 0] >> np.uint64(11)
        return (words.astype(np.float64) + 0.5) * 2.0**-52 - 1

    def normal(self):
        words = self.words(4)
        total = ((words >> np.uint64(32)) + (words & np.uint64(0xFFFFFFFF))).sum(axis=2)
        return (total.astype(np.float64) * 2.0**-32 - 4) * 1.224744871391589

    def everywhere(self, values):
        return np.broadcast_to(values, (self.row.size, self.col.size)).astype(float, order="C")


def constant(at):
    return at.everywhere(np.array([math.pi, 1e4 / 3, 1e30])[at.row % 3])


def outlier(at):
    return np.where(at.col == at.row % 61, np.where(at.row % 2 == 0, 1e6, 1e20), at.normal())


def lognormal(at):
    return np.vectorize(math.exp)(3 * at.normal())  # the C library's; NumPy's own may differ


FLOAT_MAX = torch.finfo(torch.float32).max


class Family(NamedTuple):
    values: Callable
    largest: float = 5  # what a type that cannot hold it is given is scaled by a power of two
    eps: float = 1e-5


FAMILIES = {
    "randn": Family(Place.normal),
    "uniform": Family(lambda at: 1 + at.symmetric() / 2),
    "offset100": Family(lambda at: 100 + at.normal() / 100, 101),
    "mean1e4": Family(lambda at: 10_000 + at.normal(), 10_010),
    "mean1e6": Family(lambda at: 1_000_000 + at.normal(), 1_000_010),
    "constant": Family(constant),
    "outlier": Family(outlier),
    "ramp": Family(lambda at: at.everywhere((at.col + 1) / 1000), 1000),
    "alternating": Family(lambda at: np.where(at.col % 2 == 0, 1e5, -1e5) + at.normal(), 100_010),
    "lognormal": Family(lognormal, 3e6),
    "huge1e18": Family(lambda at: 1e18 * at.normal(), 5e18),
    "huge1e20": Family(lambda at: 1e20 * at.normal(), 5e20),
    "fltmax": Family(lambda at: FLOAT_MAX * at.symmetric(), FLOAT_MAX),
    "tiny1e-20": Family(lambda at: 1e-20 * at.normal(), eps=0.0),
    "denormal": Family(lambda at: 1e-40 * at.normal(), eps=0.0),
    "const_grad": Family(Place.normal),
}


def stored(values, dtype):
    return torch.from_numpy(values.astype(np.float32)).to(dtype)


def draw(name, rows, cols, dtype):
    """The arguments of a case by name, as `isobit verify --input NAME` has them."""
    family, at = FAMILIES[name], {key: Place(key, rows, cols) for key in ("x", "grad_y")}
    one = {key: Place(key, 1, cols) for key in ("weight", "bias")}
    scale = 1.0
    while family.largest * scale > torch.finfo(dtype).max:
        scale /= 2
    gradient = at["grad_y"]
    drawn = {
        "x": family.values(at["x"]) * scale,
        "weight": 1 + one["weight"].normal()[0] / 2,
        "bias": one["bias"].normal()[0],
        "grad_y": gradient.everywhere(1 / 3) if name == "const_grad" else gradient.normal(),
    }
    return {key: stored(values, dtype) for key, values in drawn.items()}


class Norm(NamedTuple):
    centered: bool
    functions: dict  # by who offers them

    def outputs(self, who, given, eps):
        """y and the gradients, by name."""
        names = ("x", "weight", "bias") if self.centered else ("x", "weight")
        leaves = [given[name].clone().requires_grad_() for name in names]
        x, *weights = leaves
        y = self.functions[who](x, x.shape[1:], *weights, eps=eps)
        gradients = torch.autograd.grad(y, leaves, given["grad_y"])
        named = zip(names, gradients, strict=True)
        return {"y": y.detach()} | {f"grad_{name}": value for name, value in named}


NORMS = {
    "layernorm": Norm(True, {"torch": F.layer_norm, "isobit": isobit.torch.layer_norm}),
    "rmsnorm": Norm(False, {"torch": F.rms_norm, "isobit": isobit.torch.rms_norm}),
}


def wide(tensor):
    return tensor.double().numpy().astype(np.longdouble)


def mean(values):
    return values.mean(axis=1, keepdims=True)


def normalised(norm, x, eps):
    """x̂ and rstd. Measured from the first element, so that a constant row is exact; what the
    rounded mean misses is taken off separately."""
    if norm.centered:
        first = x[:, :1]
        near = first + mean(x - first)
        x = (x - near) - mean(x - near)
    square = mean(x * x)
    with np.errstate(divide="ignore"):
        rstd = np.where((square == 0) & (eps == 0), 0, 1 / np.sqrt(square + eps))
    return x * rstd, rstd


def reference(norm, given, eps):
    """{output: (true values, scale of their rounding errors)}."""
    x, weight, bias, grad_y = (wide(given[key]) for key in ("x", "weight", "bias", "grad_y"))
    x_hat, rstd = normalised(norm, x, np.longdouble(np.float32(eps)))
    if not norm.centered:
        bias = np.zeros_like(bias)
    g = grad_y * weight
    mean_g, size_g = (mean(g), mean(abs(g))) if norm.centered else (0, 0)
    grad_x = rstd * (g - mean_g - x_hat * mean(g * x_hat))
    outputs = {
        "y": (x_hat * weight + bias, abs(weight) * (1 + abs(x_hat)) + abs(bias)),
        "grad_x": (grad_x, rstd * (abs(g) + size_g + abs(x_hat) * mean(abs(g * x_hat)))),
        "grad_weight": (
            (grad_y * x_hat).sum(axis=0),
            (abs(grad_y) * (1 + abs(x_hat))).sum(axis=0),
        ),
    }
    if norm.centered:
        outputs["grad_bias"] = grad_y.sum(axis=0), abs(grad_y).sum(axis=0)
    return outputs


def c_of(actual, exact, scale):
    """The yardstick of docs/numerics.md; NaN where a number is due."""
    limits = torch.finfo(actual.dtype)
    counted = abs(exact) <= limits.max
    y, exact, scale = wide(actual)[counted], exact[counted], scale[counted]
    if np.isnan(y).any():
        return math.nan
    beyond = np.longdouble(2) ** 128  # of f32 and bf16 alike
    error = abs(np.where(np.isinf(y), np.copysign(beyond, y), y) - exact)
    size = abs(exact)
    _, exponent = np.frexp(np.maximum(size, limits.smallest_normal))
    half_ulp = np.ldexp(np.longdouble(limits.eps / 2), exponent - 1)
    rounded_apart = (limits.bits == 16) | (size < limits.smallest_normal)
    excess = np.maximum(error - np.where(rounded_apart, half_ulp, 0), 0)
    with np.errstate(divide="ignore", invalid="ignore"):
        c = np.where(excess == 0, 0, excess / (np.longdouble(2) ** -24 * scale))
    return float(c.max(initial=0))


def rank(c):
    """NaN is worse than any number."""
    return math.inf if math.isnan(c) else c


def limit(theirs):
    """What our C may be where theirs is known: never much worse, and within the contract."""
    return min(C_LIMIT, max(4, 2 * rank(theirs)))


def measure(op, dtype, name, cols):
    """The line of one case: our C of each output, and theirs."""
    norm, eps = NORMS[op], FAMILIES[name].eps
    given = draw(name, ROWS, cols, DTYPES[dtype])
    truth = reference(norm, given, eps)
    found = {who: norm.outputs(who, given, eps) for who in norm.functions}

    def c(who, output):
        return c_of(found[who][output], *truth[output])

    outputs = {output: {"C": c("isobit", output), "torch": c("torch", output)} for output in truth}
    return {
        **{"op": op, "dtype": dtype, "weight_dtype": dtype, "input": name},
        **{"rows": ROWS, "cols": cols, "eps": eps, "outputs": outputs},
        "passed": all(rank(each["C"]) <= limit(each["torch"]) for each in outputs.values()),
    }


COLUMNS = [
    (output, whose)
    for output in ("y", "grad_x", "grad_weight", "grad_bias")
    for whose in ("torch", "C")
]


def table(lines):
    """The worst of all widths."""

    def cell(same, output, whose):
        found = [line["outputs"][output][whose] for line in same if output in line["outputs"]]
        worst = max(found, key=rank, default=None)
        return "" if worst is None else "NaN" if math.isnan(worst) else f"{worst:.2g}"

    families = grouped(lines, lambda line: f"{line['op']}, {line['dtype']}, `{line['input']}`")
    rows = [[name, *(cell(same, *each) for each in COLUMNS)] for name, same in families.items()]
    names = {"torch": "torch", "C": "isobit"}
    return tables.table(["", *(f"`{output}`: {names[whose]}" for output, whose in COLUMNS)], rows)


def header():
    changed = bench.output("git", "status", "--porcelain", "src", "python")
    return bench.header([]) | {
        "versions": {"torch": torch.__version__, "isobit": isobit.__version__},
        "uncommitted_changes": bool(changed),
        "command": " ".join(["python", "tools/torch_accuracy.py", *sys.argv[1:]]),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help=f"at most {QUICK_COLS[-1]} cols")
    parser.add_argument("--cols", help="other widths, separated by commas")
    parser.add_argument("--out", type=Path, help="also write JSON Lines to this file")
    args = parser.parse_args()
    widths = QUICK_COLS if args.quick else FULL_COLS
    if args.cols:
        widths = [int(cols) for cols in args.cols.split(",")]
    lines = [
        measure(op, dtype, name, cols)
        for op in NORMS
        for dtype in DTYPES
        for name in FAMILIES
        for cols in widths
    ]
    if args.out:
        args.out.parent.mkdir(parents=True, exist_ok=True)
        args.out.write_text("".join(json.dumps(line) + "\n" for line in [header(), *lines]))
    print(*table(lines), sep="\n")
    failed = [line for line in lines if not line["passed"]]
    for line in failed:
        print("failed:", json.dumps(line), file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
