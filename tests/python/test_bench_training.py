# SPDX-License-Identifier: Apache-2.0
"""The benchmarks of single functions and of whole training steps beside PyTorch's."""

import json
import sys
from types import SimpleNamespace

import pytest
import torch
from pages import ROOT

sys.path += [str(ROOT / "bench"), str(ROOT / "tools")]
import beside_repdl
import loss_curves
import runs_apart
import tables
import timing
import torch_operators

pytestmark = pytest.mark.usefixtures("one_thread")


def lines_of(module, monkeypatch, tmp_path, *flags):
    out = tmp_path / "lines.jsonl"
    monkeypatch.setattr(sys, "argv", [module.__name__, *flags, "--out", str(out)])
    module.main()
    head, *lines = map(json.loads, out.read_text().splitlines())
    assert head.keys() >= {"device", "versions", "commit", "command"}
    assert head["command"] == " ".join([f"bench/{module.__name__}.py", *sys.argv[1:]])
    return lines


@pytest.mark.parametrize("group", torch_operators.GROUPS)
def test_every_case_compares_functions_of_the_same_results(group):
    cases = list(torch_operators.GROUPS[group]())
    names = [case.name for case in cases]
    assert len(names) == len(set(names)) > 2
    for case in cases:
        if "50257" not in case.name:  # which takes long
            tensors = case.tensors()
            mine, theirs = case.mine(*tensors), case.theirs(*tensors)
            torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=2e-4)


def test_a_group_of_functions_is_timed(monkeypatch, tmp_path):
    def small():
        return torch.arange(8) % 5, torch.ones(5, 4)

    few = [case._replace(tensors=small) for case in torch_operators.tables()]
    monkeypatch.setitem(torch_operators.GROUPS, "tables", lambda: few)
    flags = ["tables", "--threads", "1", "--seconds", "0", "--rounds", "2"]
    lines = lines_of(torch_operators, monkeypatch, tmp_path, *flags)
    assert [line["passes"] for line in lines] == ["fwd", "fwd+bwd"] * 3
    for line in lines:
        ratio = line["seconds"]["torch"] / line["seconds"]["isobit"]
        assert line["speed_beside"] == {"torch": pytest.approx(ratio)}
    head, _, first, *_ = tables.beside([tmp_path / "lines.jsonl"])["functions"]
    assert head == "|  | pass | 1 thread: µs | torch / ours |"
    assert first.startswith("| embedding 8192 of 50257x768 | fwd | ")


def test_steps_of_a_model_are_timed(monkeypatch, tmp_path):
    pytest.importorskip("transformers", reason="transformers is not installed")
    import torch_training

    sizes = {"n_layer": 1, "n_embd": 32, "n_head": 2, "vocab_size": 64, "n_positions": 32}
    tiny = torch_training.Case(lambda: torch_training.gpt2(**sizes), (2, 16))
    monkeypatch.setitem(torch_training.CASES, "gpt-tiny", tiny)
    flags = ["gpt-tiny", "--threads", "1", "--seconds", "0", "--rounds", "2", "--no-memory"]
    flags += ["--by", "torch", "--by", "isobit", "--by", "isobit, fused loss"]
    lines = lines_of(torch_training, monkeypatch, tmp_path, *flags)
    assert [line["by"] for line in lines] == ["torch", "isobit", "isobit, fused loss"]
    assert [line["loss"] for line in lines] == pytest.approx([lines[0]["loss"]] * 3, rel=1e-5)


def test_the_memory_of_a_step_holds_the_logits_unless_the_loss_is_fused(monkeypatch):
    """256 MiB, of which malloc holds a part at most: less could lie in what a process has."""
    pytest.importorskip("transformers", reason="transformers is not installed")
    import torch_training

    tokens, words = 1024, 65536
    sizes = {"n_layer": 1, "n_embd": 32, "n_head": 2, "vocab_size": words, "n_positions": tokens}
    case = torch_training.Case(lambda: torch_training.gpt2(**sizes), (1, tokens))
    monkeypatch.setitem(torch_training.CASES, "gpt-wide", case)
    logits = 4 * tokens * words
    assert torch_training.memory_of("gpt-wide", "isobit", steps=1) > logits
    assert torch_training.memory_of("gpt-wide", torch_training.FUSED, steps=1) < logits


def test_losses_of_both_libraries_lie_on_one_curve(monkeypatch, tmp_path):
    lines = lines_of(loss_curves, monkeypatch, tmp_path, "mlp", "cnn", "--steps", "6")
    for name, (theirs, ours, apart) in (("mlp", lines[:3]), ("cnn", lines[3:])):
        assert theirs["by"] == "torch" and ours["by"] == "isobit"
        assert len(theirs["losses"]) == len(ours["losses"]) == apart["steps"] == 6
        assert {line["run"] for line in (theirs, ours, apart)} == {name}
        assert ours["losses"] == pytest.approx(theirs["losses"], abs=1e-4)
        assert ours["losses"] != theirs["losses"], "of two libraries, whose roundings differ"
        at, most = apart["at_step"], apart["largest_difference"]
        assert abs(ours["losses"][at] - theirs["losses"][at]) == pytest.approx(most, abs=1e-7)


def test_weights_of_isobit_have_the_same_bits_in_every_process(monkeypatch, tmp_path):
    processes = runs_apart.processes()
    assert len(set(processes)) == len(processes) - 1, "one does the same again"
    chosen = (processes[0], processes[-1])
    monkeypatch.setattr(runs_apart, "processes", lambda: chosen)
    lines = lines_of(runs_apart, monkeypatch, tmp_path, "mlp", "--steps", "3")
    assert [line["by"] for line in lines] == ["torch", "isobit"]
    assert [(line["isa"], line["threads"]) for line in lines] == [chosen[1]] * 2
    assert all(len(line["shares"]) == line["steps"] == 3 for line in lines)
    assert all(0 <= share <= 1 for line in lines for share in line["shares"])
    assert set(lines[1]["shares"]) == {0} and lines[1]["largest_difference_of_losses"] == 0


@pytest.mark.parametrize("benchmark", [loss_curves, runs_apart])
def test_a_run_that_is_unknown_is_refused(benchmark, capsys):
    with pytest.raises(SystemExit, match="2"):
        benchmark.main(["tree"])
    assert "there is no run tree; known: gpt, cnn, mlp" in capsys.readouterr().err


def test_a_step_beside_repdl_is_timed_where_there_is_a_clone(monkeypatch, tmp_path, capsys):
    """PyTorch takes its place here: to compile the real one takes minutes."""
    functions = SimpleNamespace(cross_entropy=torch.nn.functional.cross_entropy)
    stand_in = SimpleNamespace(
        **{"from_torch_module": lambda model: model, "optim": torch.optim},
        nn=SimpleNamespace(functional=functions),
    )
    monkeypatch.setattr(beside_repdl, "load_repdl", lambda clone: stand_in)
    quick = ["--threads", "1", "--steps", "3", "--seconds", "0", "--rounds", "2"]
    lines = lines_of(beside_repdl, monkeypatch, tmp_path, "--repdl", "clone", *quick)
    assert [line["by"] for line in lines] == ["repdl", "isobit", "torch"]
    assert lines[0]["weights"] == lines[2]["weights"] != lines[1]["weights"]
    for line in lines[1:]:
        assert line["losses"] == pytest.approx(lines[0]["losses"], rel=1e-3)
    without = lines_of(beside_repdl, monkeypatch, tmp_path, *quick)
    assert [line["by"] for line in without] == ["isobit", "torch"]
    assert without[0]["weights"] == lines[1]["weights"]
    assert "git clone https://github.com/microsoft/RepDL" in capsys.readouterr().err


def test_a_folder_that_is_no_clone_of_repdl_is_refused(tmp_path):
    with pytest.raises(SystemExit, match="is no clone of RepDL"):
        beside_repdl.load_repdl(tmp_path)


def test_the_peak_of_memory_is_counted_from_a_place_on():
    timing.count_the_peak_from_here()
    before, size = timing.status("VmRSS"), 512 << 20  # beyond what malloc holds
    assert timing.status("VmHWM") - before < size // 2
    torch.ones(size // 4)
    assert timing.status("VmHWM") - before > size // 2
