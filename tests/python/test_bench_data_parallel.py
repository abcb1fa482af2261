# SPDX-License-Identifier: Apache-2.0
"""What times steps of DistributedDataParallel has a line for each way, by micro-batches."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed")

BENCH = Path(__file__).resolve().parents[2] / "bench" / "torch_data_parallel.py"


def test_every_way_is_timed():
    small = ["--ranks", "2", "--width", "16", "--micro-batches", "1,2", "--rounds", "2"]
    run = subprocess.run(
        [sys.executable, BENCH, *small], capture_output=True, text=True, timeout=300
    )
    assert run.returncode == 0, run.stderr
    head, *lines = map(json.loads, run.stdout.splitlines())
    assert head["versions"].keys() == {"torch", "isobit"}
    found = [(line["way"], line["micro_batches"]) for line in lines]
    assert found == [
        *(("all-reduce", 1), ("tree", 1), ("hook", 1)),
        *(("all-reduce", 2), ("tree", 2)),
    ]
    assert all(line["median_ms"] > 0 and line["ranks"] == 2 for line in lines)
    assert "FutureWarning" not in run.stderr
