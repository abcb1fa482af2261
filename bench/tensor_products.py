# SPDX-License-Identifier: Apache-2.0
"""Products of bf16 by arithmetic `tensor` beside torch.mm, in turns on one thread: processor time,
which a busy machine changes less than it changes the clock's.

    .venv/bin/python bench/tensor_products.py > bench/results/MACHINE/tensor-products.jsonl
"""

import json
import statistics
import sys
import time
from pathlib import Path

import torch

import isobit.torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tools"))
import bench

SHAPES = ((512, 512, 512), (1024, 1024, 1024), (2048, 2048, 2048), (16, 4096, 4096))
TURNS = {512: 60, 1024: 25, 2048: 9, 16: 25}


def seconds(call):
    begin = time.thread_time()
    call()
    return time.thread_time() - begin


def main():
    torch.set_num_threads(1)
    print(json.dumps(bench.header([]) | {"command": "bench/tensor_products.py"}))
    for m, n, k in SHAPES:
        for layout in ("nn", "nt"):
            a = torch.randn(m, k).bfloat16()
            b = torch.randn(n, k).bfloat16().t() if layout == "nt" else torch.randn(k, n).bfloat16()
            calls = {
                "torch": lambda a=a, b=b: torch.mm(a, b),
                "isobit": lambda a=a, b=b: isobit.torch.matmul(a, b, arithmetic="tensor"),
            }
            times = {name: [] for name in calls}
            for turn in range(TURNS[m] + 1):
                for name, call in calls.items():
                    spent = seconds(call)
                    if turn > 0:
                        times[name].append(spent)
            median = {name: statistics.median(each) * 1e6 for name, each in times.items()}
            line = {"m": m, "n": n, "k": k, "layout": layout, "threads": 1}
            line |= {f"{name}_us": round(each, 1) for name, each in median.items()}
            line["ratio"] = round(median["torch"] / median["isobit"], 3)
            print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
