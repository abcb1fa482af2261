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
    arguments = [
        "--steps",
        "2",
        "--runs",
        "mlp",
        "--threads",
        "1",
        "--eager",
        "--isa",
        ",".join(reproduce.isas()[:2]),
        "--elsewhere",
        "none",
    ]
    assert reproduce.main(arguments) == 0
    head, *rows = capsys.readouterr().out.splitlines()
    assert head.split() == ["configuration", "mlp"]
    assert rows.pop() == "all configurations end with the same bits" and rows.pop() == ""
    assert rows[0].startswith("scalar 1 thread eager ") and len(rows) == 2
    assert len({row.split()[-1] for row in rows}) == 1


def test_a_hash_that_differs_is_marked_and_a_failure(capsys, monkeypatch):
    def results(isa, threads, *_):
        odd = isa == "avx2" and threads == 2
        return {"gpt": ("b" * 64 if odd else "a" * 64, ["aten.mm"]), "mlp": ("c" * 64, [])}

    monkeypatch.setattr(reproduce, "results", results)
    arguments = ["--isa", "scalar,avx2", "--runs", "gpt,mlp", "--elsewhere", "none"]
    assert reproduce.main(arguments) == 1
    shown = capsys.readouterr().out
    assert shown.count("b" * reproduce.SHOWN + "*") == shown.count("*") - 1 == 2
    assert "gpt: the bits differ (*). PyTorch computes of it\n  aten.mm" in shown


def without_trainings(monkeypatch):
    monkeypatch.setattr(
        reproduce, "results", lambda *_: {"mlp": ("c" * 64, ["aten.mm at net.py:3"])}
    )


def test_a_few_steps_run_on_the_emulated_gpu(capsys, monkeypatch):
    without_trainings(monkeypatch)
    arguments = ["--isa", "scalar", "--threads", "1", "--eager", "--runs", "mlp"]
    arguments += ["--elsewhere", "emu", "--recorded-steps", "1"]
    assert reproduce.main(arguments) == 0
    shown = capsys.readouterr().out.splitlines()
    begin = shown.index("all results of all calls in 1 steps") + 2
    here, emulated = (line.rsplit(maxsplit=1) for line in shown[begin : begin + 2])
    assert [here[0], emulated[0]] == ["repeated here", "GPU, emulated"]
    assert here[1] == emulated[1] and len(here[1]) == reproduce.SHOWN
    assert shown[begin + 2 :] == ["", "all configurations end with the same bits"]


def test_results_that_differ_elsewhere_are_a_failure(capsys, monkeypatch):
    without_trainings(monkeypatch)
    monkeypatch.setattr(
        reproduce, "record", lambda runs, steps, folder: {"mlp": folder / "mlp.bin"}
    )
    printed = {"calls": 3, "unavailable": 2, "different": 0, "complaints": ["call 7: y is odd"]}

    def output(command, **_):
        emulated = "emu" in command
        return [printed | {"hash": ("d" if emulated else "e") * 16, "different": int(emulated)}]

    monkeypatch.setattr(reproduce, "output", output)
    monkeypatch.setitem(reproduce.WAYS, "emu", (*reproduce.WAYS["emu"][:1], str, list, ["emu"]))
    arguments = ["--isa", "scalar", "--threads", "1", "--eager", "--runs", "mlp"]
    assert reproduce.main([*arguments, "--elsewhere", "emu"]) == 1
    shown = capsys.readouterr().out
    assert "d" * reproduce.SHOWN + "*" in shown
    assert "GPU, emulated: call 7: y is odd" in shown
    assert "GPU, emulated: mlp: 2 of 5 calls are unavailable" in shown
    assert "mlp: the bits differ (*). PyTorch computes of it\n  aten.mm at net.py:3" in shown


def test_what_is_missing_for_arm_is_told_in_a_line(capsys, monkeypatch):
    without_trainings(monkeypatch)
    monkeypatch.setattr(reproduce.platform, "machine", lambda: "x86_64")
    monkeypatch.setattr(reproduce.shutil, "which", lambda tool: None)
    arguments = ["--isa", "scalar", "--threads", "1", "--eager", "--runs", "mlp"]
    arguments += ["--elsewhere", "qemu", "--recorded-steps", "1"]
    assert reproduce.main(arguments) == 0
    said = "neon, under QEMU: left out, aarch64-linux-gnu-g++ is not installed; `tools/bootstrap"
    assert [line for line in capsys.readouterr().out.splitlines() if line.startswith(said)]


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
