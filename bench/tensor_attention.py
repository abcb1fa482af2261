# SPDX-License-Identifier: Apache-2.0
"""Attention of bf16 by arithmetic `tensor` beside torch.nn.functional.scaled_dot_product_attention,
in turns on one thread: processor time, which a busy machine changes less than it changes the
clock's.

    .venv/bin/python bench/tensor_attention.py > bench/results/MACHINE/tensor-attention.jsonl
"""

import json
import statistics
import sys
from pathlib import Path

import torch
from tensor_products import seconds
from torch.nn.functional import scaled_dot_product_attention

import isobit.torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tools"))
import bench

# Heads, queries and keys, elements, whether causal; and turns.
CASES = (
    (64, 128, 64, False, 60),
    (8, 512, 64, False, 60),
    (8, 1024, 64, False, 25),
    (8, 1024, 64, True, 25),
    (8, 4096, 128, False, 7),
)


def main():
    torch.set_num_threads(1)
    print(json.dumps(bench.header([]) | {"command": "bench/tensor_attention.py"}))
    for heads, length, elements, causal, turns in CASES:
        given = [torch.randn(1, heads, length, elements).bfloat16() for _ in range(3)]
        calls = {
            "torch": lambda given=given, causal=causal: scaled_dot_product_attention(
                *given, is_causal=causal
            ),
            "tensor": lambda given=given, causal=causal: isobit.torch.scaled_dot_product_attention(
                *given, is_causal=causal, arithmetic="tensor"
            ),
            "canonical": lambda given=given, causal=causal: (
                isobit.torch.scaled_dot_product_attention(*given, is_causal=causal)
            ),
        }
        times = {name: [] for name in calls}
        for turn in range(turns + 1):
            for name, call in calls.items():
                spent = seconds(call)
                if turn > 0:
                    times[name].append(spent)
        median = {name: statistics.median(each) * 1e6 for name, each in times.items()}
        line = {"heads": heads, "length": length, "elements": elements, "causal": causal}
        line |= {"threads": 1} | {f"{name}_us": round(each, 1) for name, each in median.items()}
        line["ratio"] = round(median["torch"] / median["tensor"], 3)
        print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
