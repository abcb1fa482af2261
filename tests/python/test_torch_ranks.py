# SPDX-License-Identifier: Apache-2.0
"""What runs cases in several ranks names the case and the rank that failed, and goes on."""

import pytest
import torch_ranks

CASES = """
import os
import signal
import time

import torch.distributed as dist

import torch_ranks

CASES = torch_ranks.Cases()


@CASES(2, of=["first", "last"])
def passes(ranks, _):
    values = [None] * ranks
    dist.all_gather_object(values, dist.get_rank())
    print("nobody sees this")
    assert values == [0, 1]


@CASES(2)
def fails_in_rank_1(ranks):
    print("seen:", 6 * 7)
    assert dist.get_rank() == 0, "no reason"
    dist.barrier()


@CASES(2)
def is_killed(ranks):
    if dist.get_rank() == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    dist.barrier()


@CASES(2)
def hangs(ranks):
    while dist.get_rank() == 1:
        time.sleep(0.1)
    dist.barrier()
"""


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cases")
    (folder / "cases_of_a_test.py").write_text(CASES)
    order = ["passes-first", "fails_in_rank_1", "is_killed", "hangs", "passes-last"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(folder), prepend=":")
        return torch_ranks.launch("cases_of_a_test", [(2, name) for name in order], seconds=10)


def test_what_passes_says_nothing(outcomes):
    assert outcomes[2, "passes-first"] == outcomes[2, "passes-last"] == ""


def test_a_failure_is_told_with_all_that_its_rank_said(outcomes):
    said = outcomes[2, "fails_in_rank_1"]
    assert said.startswith("rank 1 ended first, with 1\n")
    assert "AssertionError: no reason" in said and "seen: 42" in said
    assert "nobody sees this" not in said


def test_a_killed_rank_is_told_and_takes_the_others_along(outcomes):
    assert outcomes[2, "is_killed"].startswith("rank 0 ended first, with -9\n")


def test_a_hang_ends_with_the_place_where_it_hung(outcomes):
    said = outcomes[2, "hangs"]
    assert "Timeout" in said and "in hangs" in said


def test_without_a_case_to_be_found_it_says_what_python_said():
    said = torch_ranks.launch("no_such_module", [(2, "passes")])[2, "passes"]
    assert "did not come to this case" in said and "no_such_module" in said
