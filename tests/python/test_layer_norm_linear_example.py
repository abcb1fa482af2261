# SPDX-License-Identifier: Apache-2.0
"""The example compares every gradient with autograd's, and fails where one is wrong."""

import runpy
from pathlib import Path

import torch

import isobit.torch

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "layer_norm_linear.py"


def test_each_gradient_is_near_that_of_autograd(capsys):
    assert runpy.run_path(str(EXAMPLE))["main"]([]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 6 * (1 + torch.cuda.is_available())
    assert all(line.endswith("pass") for line in lines)


def test_a_missing_term_is_a_failure(capsys, monkeypatch):
    right = isobit.torch.layer_norm_linear

    def without_the_means_gradient(x, *others):
        return right(x, *others) + 0 * x.sum() + (x - x.detach()).mean()

    monkeypatch.setattr(isobit.torch, "layer_norm_linear", without_the_means_gradient)
    assert runpy.run_path(str(EXAMPLE))["main"]([]) == 1
    shown = capsys.readouterr().out
    assert [line for line in shown.splitlines() if line.endswith("fail")] == [
        line for line in shown.splitlines() if "gradient of input" in line
    ]
