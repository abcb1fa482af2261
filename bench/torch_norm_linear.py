# SPDX-License-Identifier: Apache-2.0
"""Times LayerNorm and the linear layer that it feeds on the CPU, as one function and as two, beside
PyTorch's eager and compiled; and the memory that each takes beyond its arguments."""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path

import torch
import torch.nn.functional as F
from timing import TimedCall, time_interleaved
from torch_cases import DTYPES, EPS
from torch_cpu import ROOT, header, listed, mib, peak_of_calls, tables

import isobit.torch

SHAPES = [  # rows, columns, features
    *((1024, 768, 3072), (4096, 768, 768), (2048, 4096, 4096)),
    *((4096, 768, 128), (4096, 768, 64), (16384, 256, 32)),
]
PEAK_STEPS = 5


def one(x, *weights):
    return isobit.torch.layer_norm_linear(x, x.shape[-1:], *weights, EPS)


def two(x, norm_weight, norm_bias, weight, bias):
    y = isobit.torch.layer_norm(x, x.shape[-1:], norm_weight, norm_bias, EPS)
    return isobit.torch.linear(y, weight, bias)


def product(x, _norm_weight, _norm_bias, weight, bias):
    """The linear layer alone."""
    return isobit.torch.linear(x, weight, bias)


def torchs(x, norm_weight, norm_bias, weight, bias):
    return F.linear(F.layer_norm(x, x.shape[-1:], norm_weight, norm_bias, EPS), weight, bias)


IMPLEMENTATIONS = {
    "isobit": lambda: one,
    "isobit apart": lambda: two,
    "isobit linear alone": lambda: product,
    "torch": lambda: torchs,
    "torch.compile": lambda: torch.compile(torchs, dynamic=False),
}


def prepared(function, case):
    """A call of the function, forward or with all gradients."""
    generator = torch.Generator().manual_seed(0)

    def draw(*extents):
        return torch.randn(*extents, generator=generator).to(DTYPES[case["dtype"]])

    rows, cols, features = case["rows"], case["cols"], case["features"]
    tensors = [draw(rows, cols), draw(cols), draw(cols), draw(features, cols), draw(features)]
    if case["pass"] == "fwd":
        return partial(function, *tensors)
    gradient, wanted = draw(rows, features), [each.requires_grad_() for each in tensors]

    def both():
        result = function(*tensors)
        return torch.autograd.grad(result, wanted, gradient, allow_unused=True)

    return both


def timed(case, options):
    with torch.set_grad_enabled(case["pass"] == "fwd+bwd"):
        calls = {name: TimedCall(prepared(make(), case)) for name, make in IMPLEMENTATIONS.items()}
        times = time_interleaved(calls, options.seconds, options.rounds)
    mine, *peers = ({"name": name, "median_us": 1e6 * t.median} for name, t in times.items())
    for peer in peers:
        peer["ratio"] = peer["median_us"] / mine["median_us"]
    return case | mine | {"peers": peers}


def peak(case):
    """Bytes beyond arguments, of one implementation in a process of its own."""
    torch.set_num_threads(case["threads"])
    with torch.set_grad_enabled(case["pass"] == "fwd+bwd"):
        return peak_of_calls(prepared(IMPLEMENTATIONS[case["of"]](), case), PEAK_STEPS)


def peaks(case):
    found = {}
    for name in IMPLEMENTATIONS:
        asked = json.dumps(case | {"of": name})
        command = [sys.executable, __file__, "--peak", asked]
        env = os.environ | {"MALLOC_TRIM_THRESHOLD_": "0", "MALLOC_MMAP_THRESHOLD_": "131072"}
        found[name] = int(subprocess.run(command, env=env, check=True, capture_output=True).stdout)
    return case | {"peaks": found}


def described(case):
    shape = f"{case['rows']} × {case['cols']} → {case['features']}"
    return f"{case['pass']}, {case['dtype']}, {shape}, {case['threads']}"


def report(lines):
    """Both tables."""
    names = list(IMPLEMENTATIONS)
    raced = [line for line in lines if "median_us" in line]
    rows = [
        [
            described(line),
            f"{line['median_us']:.0f}",
            *(f"{peer['ratio']:.2f}" for peer in line["peers"]),
        ]
        for line in raced
    ]
    if rows:
        yield from tables.table(["pass, type, shape, threads", "µs", *names[1:]], rows)
    rows = [
        [described(line), *(mib(size) for size in line["peaks"].values())]
        for line in lines
        if "peaks" in line
    ]
    if rows:
        yield from ("", "MiB beyond the arguments at the peak", "")
        yield from tables.table(["pass, type, shape, threads", *names], rows)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "torch_norm_linear.jsonl")
    parser.add_argument("--threads", type=listed(convert=int), default=sorted({1, os.cpu_count()}))
    parser.add_argument("--dtypes", type=listed(DTYPES), default=["f32"])
    parser.add_argument(
        "--shapes",
        type=listed(convert=lambda text: tuple(map(int, text.split("x")))),
        default=SHAPES,
        help="ROWSxCOLSxFEATURES,...",
    )
    parser.add_argument("--seconds", type=float, default=0.3, help="a call of each case")
    parser.add_argument("--only", type=listed(("time", "memory")), default=["time", "memory"])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--peak", type=json.loads, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.peak:
        print(peak(options.peak))
        return 0
    lines = []
    options.out.parent.mkdir(parents=True, exist_ok=True)
    with options.out.open("w") as out, tempfile.TemporaryDirectory() as cache:
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = cache
        print(json.dumps(header()), file=out)
        for threads in options.threads:
            torch.set_num_threads(threads)
            for passes in ("fwd", "fwd+bwd"):
                for dtype in options.dtypes:
                    for rows, cols, features in options.shapes:
                        torch._dynamo.reset()
                        case = {"op": "layernorm_linear", "pass": passes, "dtype": dtype}
                        case |= {"rows": rows, "cols": cols, "features": features}
                        case |= {"threads": threads}
                        if "time" in options.only:
                            lines.append(timed(case, options))
                            print(json.dumps(lines[-1]), file=out, flush=True)
                        if "memory" in options.only and threads == max(options.threads):
                            lines.append(peaks(case))
                            print(json.dumps(lines[-1]), file=out, flush=True)
    print(*report(lines), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
