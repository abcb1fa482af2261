# SPDX-License-Identifier: Apache-2.0
"""What convert takes for exact has the same bits in every kind of ATen's kernels, and it doubts
what has not."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

KINDS = [("default", 1), ("avx2", 2), ("avx512", 2)]
NAMES = {"default": "DEFAULT", "avx2": "AVX2", "avx512": "AVX512"}


@pytest.fixture(scope="module")
def results():
    """[{"digests", "doubts", "silent"}] of the kinds that this machine has."""
    script = Path(__file__).with_name("torch_promises.py")
    found = []
    # ATen believes what it is told, and dies of an instruction that the processor lacks.
    best = torch.backends.cpu.get_cpu_capability()
    last = list(NAMES.values()).index(best) if best in NAMES.values() else 0
    for kind, threads in KINDS[: last + 1]:
        run = subprocess.run(
            [sys.executable, script, str(threads)],
            env=os.environ | {"ATEN_CPU_CAPABILITY": kind},
            capture_output=True,
            check=True,
            text=True,
        )
        result = json.loads(run.stdout)
        if result["capability"] == NAMES[kind]:
            found.append(result)
    if not found:
        pytest.skip("ATen has other kinds of kernels on this processor")
    return found


def test_what_is_taken_for_exact_has_the_same_bits_everywhere(results):
    first, *others = (each["digests"] for each in results)
    assert len(first) > 150
    for other in others:
        assert [name for name in first if first[name] != other[name]] == []


def test_what_has_the_same_bits_is_not_doubted(results):
    assert results[0]["doubts"] == {}


def test_what_may_have_other_bits_is_doubted(results):
    assert results[0]["silent"] == []
