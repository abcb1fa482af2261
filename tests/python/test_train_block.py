# SPDX-License-Identifier: Apache-2.0
"""The example trains blocks to the same bits with fused norms, and fails where bits differ."""

import re
import runpy
from pathlib import Path

import isobit.torch

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "train_block.py"
TINY = ["--width", "16", "--heads", "2", "--layers", "1", "--batch", "2", "--context", "9"]


def test_fused_norms_train_to_the_same_bits_and_keep_less(capsys):
    assert runpy.run_path(str(EXAMPLE))["main"]([*TINY, "--steps", "3"]) == 0
    shown = capsys.readouterr().out
    assert "the same bits" in shown and "0.norm2: DeferredLayerNorm, fused with" in shown
    apart, fused = (
        int(each.replace(",", "")) for each in re.findall(r"([\d,]+) bytes kept", shown)
    )
    assert fused <= apart - 2 * 9 * 16 * 4  # the rows of the norm that feeds a linear layer


def test_other_bits_are_a_failure(capsys, monkeypatch):
    main = runpy.run_path(str(EXAMPLE))["main"]
    patch = isobit.torch.patch

    def other(model, **patched):
        if "fuse" in patched:
            model[0].norm1.weight.data[0] += 1e-6
        return patch(model, **patched)

    monkeypatch.setattr(isobit.torch, "patch", other)
    assert main([*TINY, "--steps", "2"]) == 1
    assert "other bits" in capsys.readouterr().out
