# SPDX-License-Identifier: Apache-2.0
"""The example trains on 1, 2 and 4 ranks along one curve, in every run to the same bits, killed or
not."""

import json
import os
import subprocess
import sys

import pytest
import torch_ranks
import training_cases

MODULE = "torch.distributed.run", "--standalone", "--nproc-per-node"


@pytest.fixture(scope="module")
def outcomes():
    """All of them: some need what others leave."""
    return torch_ranks.launch(training_cases.__name__, training_cases.CASES.parameters())


@pytest.mark.parametrize(("ranks", "name"), training_cases.CASES.parameters())
def test_in_several_ranks(outcomes, ranks, name):
    if name.startswith("is_killed"):
        assert "ended first, with -9" in outcomes[ranks, name]
    else:
        assert not outcomes[ranks, name], outcomes[ranks, name]


def test_torchrun_starts_it(tmp_path):
    command = [sys.executable, "-m", *MODULE, "2", training_cases.example.__file__]
    options = [*training_cases.TINY, "--out", str(tmp_path)]
    done = subprocess.run([*command, *options], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert "fsdp, 2 ranks: " in done.stdout
    assert list(json.loads((tmp_path / "losses.json").read_text())) == ["fsdp, 2 ranks"]
    if "no plot" not in done.stdout:
        assert (tmp_path / "loss.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("ranks", "more", "complaint"),
    [
        (None, (), "torchrun starts this"),
        ("3", (), "--batch must be a multiple of the 3 ranks"),
        ("2", ("--width", "30"), "--width must be a multiple of --heads, 4"),
    ],
)
def test_options_that_make_no_sense_end_with_2(monkeypatch, capsys, ranks, more, complaint):
    monkeypatch.setattr(os, "environ", {"WORLD_SIZE": ranks} if ranks else {})
    with pytest.raises(SystemExit, match="2"):
        training_cases.example.main([*training_cases.TINY, "--out", "nowhere", *more])
    assert complaint in capsys.readouterr().err
