# SPDX-License-Identifier: Apache-2.0
"""The reproducible trainings end with the same weights however they run, and the table of
tools/reproduce.py shows where they do not."""

import importlib.util
import json
import sys
from pathlib import Path

import pytest
import reproduce
import torch

import isobit.torch

ROOT = Path(__file__).resolve().parents[2]
STEPS = 3
# Of the weights after so many steps, on every machine.
HASHES = {"gpt": "183c8e854de11065", "cnn": "94622f16849f1b05", "mlp": "792cf34bcc3a99d7"}


@pytest.fixture
def example(monkeypatch):
    """The example as a module; threads and instruction sets as they were."""
    file = ROOT / "examples" / "reproducible.py"
    spec = importlib.util.spec_from_file_location("reproducible", file)
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, module)
    spec.loader.exec_module(module)
    threads = torch.get_num_threads()
    yield module
    torch.set_num_threads(threads)
    isobit.torch.settings.isa = "auto"


def hashes(example, capsys, *options):
    assert example.main(["--steps", str(STEPS), "--json", *options]) == 0
    lines = map(json.loads, capsys.readouterr().out.splitlines())
    return {line["run"]: line["hash"][:16] for line in lines}


@pytest.mark.parametrize("options", [("--threads", "1"), ("--threads", "2", "--isa", "scalar")])
def test_weights_are_the_same_on_every_machine(example, capsys, options):
    assert hashes(example, capsys, *options) == HASHES


def test_compiled_code_ends_with_the_same_weights(example, capsys):
    torch._dynamo.reset()
    found = hashes(example, capsys, "mlp", "--compile", "--threads", "2")
    assert found == {"mlp": HASHES["mlp"]}
    torch._dynamo.reset()


def test_a_run_learns_and_nothing_of_pytorchs_remains_in_any(example, capsys):
    assert example.main(["mlp", "--steps", "40", "--threads", "1"]) == 0
    shown = capsys.readouterr().out
    words = shown.split()
    first, last = (float(words[words.index(word) + 1]) for word in ("loss", "to"))
    assert last < first / 4
    for name in example.RUNS:
        *_, remaining = example.train(name, 1, False)
        assert remaining == []


@pytest.mark.parametrize(
    "arguments, complaint",
    [
        (("tree",), "there is no run tree; known: gpt, cnn, mlp"),
        (("--threads", "0"), "--threads must be at least 1"),
        (("--isa", "abacus"), "'abacus' is no instruction set of this processor"),
    ],
)
def test_options_that_make_no_sense_end_with_2(example, capsys, arguments, complaint):
    with pytest.raises(SystemExit, match="2"):
        example.main(arguments)
    assert complaint in capsys.readouterr().err


def test_the_table_has_a_row_for_each_configuration(capsys):
    arguments = ["--steps", "2", "--runs", "mlp", "--threads", "1", "--eager"]
    assert reproduce.main(arguments) == 0
    head, *rows = capsys.readouterr().out.splitlines()
    assert head.split() == ["configuration", "mlp"]
    assert rows.pop() == "all configurations end with the same bits" and rows.pop() == ""
    assert rows[0].startswith("scalar 1 thread eager ") and len(rows) >= 2
    assert len({row.split()[-1] for row in rows}) == 1


def test_a_hash_that_differs_is_marked_and_a_failure(capsys, monkeypatch):
    def results(isa, threads, *_):
        odd = isa == "avx2" and threads == 2
        return {"gpt": ("b" * 64 if odd else "a" * 64, ["aten.mm"]), "mlp": ("c" * 64, [])}

    monkeypatch.setattr(reproduce, "results", results)
    assert reproduce.main(["--isa", "scalar,avx2", "--runs", "gpt,mlp"]) == 1
    shown = capsys.readouterr().out
    assert shown.count("b" * reproduce.SHOWN + "*") == shown.count("*") - 1 == 2
    assert "gpt: the bits differ (*). PyTorch computes of it\n  aten.mm" in shown


def test_the_instruction_set_that_was_chosen_is_used(monkeypatch):
    """What was packed for another one is refused."""
    settings = isobit.torch.settings
    with pytest.raises(ValueError, match="'none' is no instruction set") as refused:
        settings.isa = "none"
    if "avx2" not in str(refused.value):
        pytest.skip("this processor has no avx2")
    layer = isobit.torch.PackedLinear(8, 8)
    x = torch.ones(3, 8)
    try:
        with torch.inference_mode():
            settings.isa = "avx2"
            before = layer(x)
            settings.isa = "scalar"
            with pytest.raises(ValueError, match="was packed for avx2; this call is for scalar"):
                layer(x)
            layer.pack()
            assert torch.equal(layer(x), before)
    finally:
        settings.isa = "auto"
    with pytest.raises(TypeError, match="settings: isa must be a string; it is int"):
        settings.isa = 3
    assert settings.isa == "auto"
