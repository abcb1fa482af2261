# SPDX-License-Identifier: Apache-2.0
"""Times a norm among its neighbours, gelu(layer_norm(x + residual)), which Inductor can fuse.

Isobit's norms are opaque to Inductor, unless `settings.compiled_fuses` gives it PyTorch's formulas.
"""

import argparse
import json
import os
import sys
import tempfile
from functools import partial
from pathlib import Path

import torch
import torch.nn.functional as F
from timing import TimedCall, time_interleaved
from torch_cases import DTYPES, EPS
from torch_cpu import ROOT, header, listed, shape, tables

import isobit.torch
from isobit.torch import settings

SHAPES = [(64, 768), (2048, 2048), (2048, 5120)]


def torchs(x, residual, *affine):
    return F.gelu(F.layer_norm(x + residual, x.shape[-1:], *affine, EPS))


def ours(x, residual, *affine):
    return F.gelu(isobit.torch.add_layer_norm(x, residual, x.shape[-1:], *affine, EPS)[0])


def ours_fused(x, residual, *affine):
    return ours(x, residual, *affine)  # a function of its own is compiled on its own


def implementations():
    """{name: (function, whether compiled_fuses)}."""
    compiled = partial(torch.compile, dynamic=False)
    return {
        "isobit compiled": (compiled(ours), False),
        "isobit fused": (compiled(ours_fused), True),
        "isobit eager": (ours, False),
        "torch.compile": (compiled(torchs), False),
        "torch eager": (torchs, False),
    }


def timed(dtype, backward, rows, cols, threads):
    """The line of one case."""
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    shapes = [(rows, cols)] * 3 + [(cols,)] * 2
    *inputs, grad, weight, bias = (torch.randn(each, dtype=DTYPES[dtype]) for each in shapes)
    inputs = [each.requires_grad_(backward) for each in (*inputs, weight, bias)]

    def call(function):
        result = function(*inputs)
        return torch.autograd.grad(result, inputs, grad) if backward else result

    timed_calls = {
        name: TimedCall(
            partial(call, function), partial(setattr, settings, "compiled_fuses", fuses)
        )
        for name, (function, fuses) in implementations().items()
    }
    times = time_interleaved(timed_calls, seconds=0.3, rounds=7)
    mine, *peers = (
        {"name": name, "median_us": 1e6 * t.median, "p20_us": 1e6 * t.p20, "p80_us": 1e6 * t.p80}
        for name, t in times.items()
    )
    for peer in peers:
        peer["ratio"] = peer["median_us"] / mine["median_us"]
    return {
        **{"op": "gelu of layernorm of a sum", "pass": "fwd+bwd" if backward else "fwd"},
        **{"rows": rows, "cols": cols, "dtype": dtype, "threads": threads, **mine, "peers": peers},
    }


def table(lines):
    """Times over that of `isobit compiled`."""
    names = [peer["name"] for peer in lines[0]["peers"]]
    rows = [
        [
            f"{line['pass']}, {line['dtype']}, {line['rows']} × {line['cols']}, {line['threads']}",
            f"{line['median_us']:.0f}",
            *(f"{peer['ratio']:.2f}" for peer in line["peers"]),
        ]
        for line in lines
    ]
    return tables.table(["pass, type, shape, threads", "µs", *names], rows)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "torch_fused.jsonl")
    parser.add_argument("--threads", type=listed(convert=int), default=sorted({1, os.cpu_count()}))
    parser.add_argument("--dtypes", type=listed(DTYPES), default=["f32"])
    parser.add_argument("--shapes", type=listed(convert=shape), default=SHAPES)
    args = parser.parse_args()
    lines = []
    args.out.parent.mkdir(parents=True, exist_ok=True)
    with args.out.open("w") as out, tempfile.TemporaryDirectory() as cache:
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = cache
        print(json.dumps(header()), file=out)
        for threads in args.threads:
            for backward in (False, True):
                for dtype in args.dtypes:
                    for rows, cols in args.shapes:
                        torch._dynamo.reset()
                        lines.append(timed(dtype, backward, rows, cols, threads))
                        print(json.dumps(lines[-1]), file=out, flush=True)
    print(*table(lines), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
