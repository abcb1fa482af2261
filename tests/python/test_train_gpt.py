# SPDX-License-Identifier: Apache-2.0
"""The example trains, shows what it promises, and fails where bits differ."""

import importlib.util
import json
import sys
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).resolve().parents[2]
TINY = (
    *("--steps", "5", "--batch", "2", "--context", "16"),
    *("--layers", "1", "--width", "16", "--threads", "1"),
)


@pytest.fixture
def example(monkeypatch):
    """The example as a module, and the number of threads as it was."""
    spec = importlib.util.spec_from_file_location("train_gpt", ROOT / "examples" / "train_gpt.py")
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, module)
    spec.loader.exec_module(module)
    threads = torch.get_num_threads()
    yield module
    torch.set_num_threads(threads)


def test_both_norms_give_one_curve_and_isobits_the_same_bits_again(example, tmp_path, capsys):
    assert example.main([*TINY, "--repeat", "--out", str(tmp_path)]) == 0
    figures = json.loads((tmp_path / "training.json").read_text())
    torchs, ours = (figures[name]["losses"] for name in ("torch", "isobit"))
    assert len(torchs) == len(ours) == 5
    assert torchs == pytest.approx(ours, abs=1e-4)
    assert all(each["tokens_per_second"] > 0 for each in figures.values())
    shown = capsys.readouterr()
    for words in ("differ by", "peak memory", "isobit trained again: the same bits"):
        assert words in shown.out
    *_, digests = shown.out.splitlines()
    name, *digests = digests.split()
    assert name == "isobit" and len(digests) == 4 and len(set(digests)) == 1
    assert shown.err == "", "a bar is for terminals"


def test_the_curves_are_plotted_together(example, tmp_path):
    pytest.importorskip("matplotlib")
    assert example.main([*TINY, "--out", str(tmp_path)]) == 0
    assert (tmp_path / "loss.png").read_bytes().startswith(b"\x89PNG")


def test_a_terminal_sees_a_bar(example, capsys, monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    assert example.main([*TINY, "--norm", "torch"]) == 0
    lines = capsys.readouterr().err.split("\r")
    assert len(lines) == 6 and "] 5/5  torch " in lines[-1] and lines[-1].endswith("\n")


def test_other_bits_in_the_second_run_are_a_failure(example, capsys):
    class Noisy(torch.nn.LayerNorm):
        def forward(self, input):
            return super().forward(input) + 1e-3 * torch.rand((), generator=noise)

    noise = torch.Generator().manual_seed(0)
    example.NORMS["isobit"] = Noisy
    assert example.main([*TINY, "--norm", "isobit", "--repeat"]) == 1
    assert "OTHER BITS" in capsys.readouterr().out


@pytest.mark.parametrize(
    "arguments, complaint",
    [
        (("--norm", "torch", "--repeat"), "--repeat is about isobit"),
        (("--width", "30"), "--width must be a multiple of --heads, 4"),
    ],
)
def test_options_that_make_no_sense_end_with_2(example, capsys, arguments, complaint):
    with pytest.raises(SystemExit, match="2"):
        example.main(arguments)
    assert complaint in capsys.readouterr().err
