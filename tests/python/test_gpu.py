# SPDX-License-Identifier: Apache-2.0
"""The phases that need a GPU write what each step said, whatever becomes of it."""

import importlib.util
import json
import sys
from pathlib import Path
from types import SimpleNamespace

import gpu
import pytest
import tables

from isobit._library import library_path
from isobit.lab import report

ROOT = Path(__file__).resolve().parents[2]


def script(text):
    return [sys.executable, "-c", text]


@pytest.mark.parametrize(
    ("command", "limit", "missing", "status", "said"),
    [
        (script("print('done')"), 60, None, 0, "done"),
        (script("raise SystemExit(3)"), 60, None, 3, ""),
        (script("import time; print('one', flush=True); time.sleep(60)"), 5, None, None, "one"),
        (["/no/such/program"], 60, None, None, ""),
        (script("print('never')"), 60, "there is no such tool", None, "there is no such tool"),
    ],
)
def test_step_is_written_down(tmp_path, command, limit, missing, status, said):
    phase = gpu.Phase("test", tmp_path, dry=True)
    phase.step("a step", command, limit, missing)
    step = json.loads((tmp_path / "test.json").read_text())["steps"][0]
    assert step["said"] == said
    assert step["status"] == status or (status is None and isinstance(step["status"], str))
    assert phase.failed() == ([] if status == 0 or missing else ["a step"])


def test_phase_ends_before_its_time_does(tmp_path, monkeypatch):
    monkeypatch.setattr(gpu, "PHASE_SECONDS", 0)
    phase = gpu.Phase("test", tmp_path, dry=True)
    phase.step("a step", script("print('never')"), 1)
    assert phase.steps[0]["said"] == "no time was left"


def test_what_travels_has_the_name_that_its_users_load():
    assert library_path().name == gpu.SONAME


@pytest.fixture
def bench():
    pytest.importorskip("torch")
    spec = importlib.util.spec_from_file_location("bench_gpu", ROOT / "bench" / "gpu.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_bits_of_triton_are_compared_with_ours(bench):
    def doubled(s):
        s["y"].copy_(2 * s["x"])
        s["mean"].fill_(1)
        s["rstd"].fill_(1)

    def another_mean(s):
        doubled(s)
        s["mean"][2] = 7

    def declining(s):
        raise NotImplementedError("it declines\nand says why")

    fakes = {"right": doubled, "wrong": another_mean, "silent": lambda s: None}
    fakes["declining"] = declining
    peers = {"isobit": {"fwd": doubled}, "torch": {"fwd": doubled}}
    peers |= {f"triton.{name}": {"fwd": fake} for name, fake in fakes.items()}
    lines = list(bench.triton_bits(peers, bench.make_set(3, 4, bench.torch.float32, "cpu", 0)))
    told = {line["who"]: line.get("same_bits", line.get("absent")) for line in lines}
    assert told == {
        "triton.right": True,
        "triton.wrong": False,
        "triton.silent": False,
        "triton.declining": "it declines",
    }


def test_a_peer_that_is_not_there_is_named(bench, monkeypatch):
    for module in ("liger_kernel.ops.layer_norm", "quack.rmsnorm"):
        monkeypatch.setitem(sys.modules, module, None)
    isobit = SimpleNamespace(forward=None, forward_of_sum=None, backward=None)
    found, absent = bench.implementations(isobit, dry=False)
    assert {"isobit", "torch", "torch.compile"} <= set(found)
    assert "liger" in absent["liger"] and "quack" in absent["quack"]


def test_quack_gets_weights_of_f32_made_once(bench, monkeypatch):
    calls = []
    quack = SimpleNamespace(
        layernorm_fwd=lambda x, weight, bias, eps, **wanted: calls.append((weight, bias)),
        layernorm_bwd=lambda x, weight, dout, rstd, mean: calls.append((weight,)),
    )
    monkeypatch.setitem(sys.modules, "quack.rmsnorm", quack)
    forward, backward = bench.in_quack()["quack"].values()
    s = bench.make_set(3, 4, bench.torch.bfloat16, "cpu", 0)
    forward(s)
    backward(s)
    (weight, bias), (again,) = calls
    assert again is weight
    assert {weight.dtype, bias.dtype} == {bench.torch.float32}
    assert bench.torch.equal(bias, s["bias"].float())
    del quack.layernorm_bwd
    assert list(bench.in_quack()["quack"]) == ["fwd"]


def test_what_a_gpu_measures_is_drawn_and_tabled(bench, tmp_path):
    isobit = bench.Isobit(library_path())
    peers, absent = bench.implementations(isobit, dry=True)
    lines = [bench.header(isobit, absent, "cpu")]
    for rows in (3, 5):
        lines += bench.measure(
            isobit, peers, (rows, 64), bench.torch.float32, "cpu", dry=True, rounds=3
        )
    results = tmp_path / "bench.jsonl"
    results.write_text("".join(json.dumps(line) + "\n" for line in lines))
    page = report.write(tmp_path).read_text()
    assert "3 × 64" in page and "5 × 64" in page and page.count("<picture>") == 6
    table = tables.speed([results])["bwd, f32"]
    assert table[0] == "| shape | GB/s | of a copy | torch / ours |" and len(table) == 4
    assert tables.origin([results])["how"]


def test_a_variant_of_triton_is_called_in_its_pass_alone(bench):
    pytest.importorskip("triton")
    implementations = bench.in_triton()
    assert set(implementations) == {
        *("triton.row_per_program", "triton.streamed", "triton.one_pass", "triton.two_pass")
    }
    assert list(implementations["triton.streamed"]) == ["fwd"]
    assert list(implementations["triton.two_pass"]) == ["bwd"]
