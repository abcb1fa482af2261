# SPDX-License-Identifier: Apache-2.0
"""Large calls run on PyTorch's threads, as many as it was told of, and small ones on one."""

import subprocess
import sys

import pytest

CODE = """
import time, torch, isobit.torch

def shares(x, seconds=0.2):
    '''Of the processor's time that calls take, what the threads beside this one take.'''
    isobit.torch.layer_norm(x, x.shape[1])
    end, mine, all_of_us = time.monotonic() + seconds, time.thread_time(), time.process_time()
    while time.monotonic() < end:
        isobit.torch.layer_norm(x, x.shape[1])
    mine, all_of_us = time.thread_time() - mine, time.process_time() - all_of_us
    return (all_of_us - mine) / all_of_us

large, small = torch.ones(4096, 1024), torch.ones(4, 64)
for threads in (1, 2, 3):
    torch.set_num_threads(threads)
    print(shares(large), shares(small))
"""


@pytest.fixture(scope="module")
def shares():
    """{threads: (of large calls, of small ones)}, where threads that wait take no time."""
    environment = {"OMP_WAIT_POLICY": "passive", "GOMP_SPINCOUNT": "0"}
    code = f"import os; os.environ |= {environment}\nos.environ.pop('OMP_NUM_THREADS', None)\n"
    result = subprocess.run(
        [sys.executable, "-c", code + CODE], check=True, capture_output=True, text=True, timeout=300
    )
    lines = result.stdout.splitlines()
    return {i: tuple(map(float, line.split())) for i, line in enumerate(lines, 1)}


def test_large_calls_are_dealt_to_all_threads_and_none_beyond(shares):
    assert shares[1][0] < 0.05
    assert shares[2][0] == pytest.approx(1 / 2, abs=0.2)
    assert shares[3][0] == pytest.approx(2 / 3, abs=0.2)


def test_small_calls_stay_with_the_caller(shares):
    assert all(small < 0.05 for _, small in shares.values())
