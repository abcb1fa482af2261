# SPDX-License-Identifier: Apache-2.0
"""What is published beside PyTorch is measured by the lab's yardstick, on its inputs, in turns."""

import json
import math
import mmap
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
import torch_accuracy

ROOT = Path(__file__).resolve().parents[2]
LAB = ROOT / "build" / "release" / "isobit"
BENCH = ROOT / "bench" / "torch_cpu.py"
sys.path.append(str(BENCH.parent))
import timing  # noqa: E402
import torch_cases  # noqa: E402
import torch_cpu  # noqa: E402
import torch_fused  # noqa: E402

ROWS, COLS = torch_accuracy.ROWS, 70
OUTPUTS = {"fwd": ("y",), "bwd": ("grad_x", "grad_weight", "grad_bias")}


@pytest.fixture(autouse=True)
def _pool():
    """Implementations turn it off and on."""
    yield
    torch_cases.isobit.torch.set_cache_limit(torch_cases.POOL_LIMIT)


def lab(*words):
    command = [LAB, *words, "--threads", "1", "--json"]
    said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return [json.loads(line) for line in said.splitlines()]


@pytest.fixture(scope="module")
def verified():
    """{(op, pass, dtype, input): the lab's line}."""
    words = ["verify", "layernorm,rmsnorm", "--rows", str(ROWS), "--cols", str(COLS)]
    words += ["--dtype", "f32,bf16", "--eps", "1e-05,0", "--variant", "simd"]
    words += ["--input", ",".join(torch_accuracy.FAMILIES)]
    return {
        (line["op"], line["pass"], line["dtype"], line["input"]): line
        for line in lab(*words)
        if line["eps"] == torch_accuracy.FAMILIES[line["input"]].eps
    }


def saved(folder, given):
    """Flags that name files of the arrays, bf16 as the lab reads it."""
    for name, tensor in given.items():
        plain = tensor.view(torch.uint16) if tensor.dtype == torch.bfloat16 else tensor
        np.save(folder / f"{name}.npy", plain.numpy())
        yield from ("--in", f"{name}={folder / name}.npy")


@pytest.mark.parametrize("name", torch_accuracy.FAMILIES)
def test_drawn_inputs_are_the_labs(tmp_path, verified, name):
    for direction, inputs in {
        "fwd": ("x", "weight", "bias"),
        "bwd": ("x", "weight", "grad_y"),
    }.items():
        for dtype, kind in torch_accuracy.DTYPES.items():
            drawn = torch_accuracy.draw(name, ROWS, COLS, kind)
            given = saved(tmp_path, {key: drawn[key] for key in inputs})
            eps = str(torch_accuracy.FAMILIES[name].eps)
            words = ["run", "layernorm", "--pass", direction, "--dtype", dtype, "--eps", eps]
            [line] = lab(*words, *given)
            theirs = verified["layernorm", direction, dtype, name]["outputs"]
            for output in OUTPUTS[direction]:
                assert line["outputs"][output]["bits"] == theirs[output]["bits"], (dtype, output)


@pytest.mark.parametrize("op", torch_accuracy.NORMS)
@pytest.mark.parametrize("dtype", torch_accuracy.DTYPES)
def test_c_is_what_the_lab_says(verified, op, dtype):
    for name in torch_accuracy.FAMILIES:
        mine = torch_accuracy.measure(op, dtype, name, COLS)
        for direction, outputs in OUTPUTS.items():
            theirs = verified[op, direction, dtype, name]["outputs"]
            for output in theirs.keys() & outputs:
                c = theirs[output]["C"]
                assert mine["outputs"][output]["C"] == pytest.approx(c, rel=1e-3, abs=1e-3), name


def test_c_counts_units_and_shows_nan_and_infinity():
    exact, scale = np.array([[1.0, 2.0**128, 2.0]]), np.ones((1, 3))
    unit = 2.0**-24

    def c(*values, dtype=torch.float32):
        return torch_accuracy.c_of(torch.tensor([values]).to(dtype), exact, scale)

    assert c(1 + 2 * unit, float("inf"), 2.0) == 2
    assert c(1.0, 0.0, 2.0) == 0  # what the type cannot hold is not counted
    assert c(1.0, 0.0, float("inf")) == (2.0**128 - 2) / unit
    assert np.isnan(c(1.0, float("nan"), float("nan")))
    assert c(1 + 2.0**-8, 0.0, 2.0, dtype=torch.bfloat16) == 0
    assert c(1 + 2.0**-7, 0.0, 2.0, dtype=torch.bfloat16) == 2.0**-8 / unit


def test_ours_may_never_be_much_worse():
    assert torch_accuracy.limit(0.1) == 4
    assert torch_accuracy.limit(3.0) == 6
    assert torch_accuracy.limit(100.0) == torch_accuracy.limit(math.nan) == torch_accuracy.C_LIMIT


def test_table_of_accuracy_has_every_family(tmp_path, monkeypatch, capsys):
    out = tmp_path / "accuracy.jsonl"
    monkeypatch.setattr(sys, "argv", ["torch_accuracy.py", "--cols", "3,70", "--out", str(out)])
    assert torch_accuracy.main() == 0
    head, *lines = map(json.loads, out.read_text().splitlines())
    assert head["versions"]["torch"] == torch.__version__ and head["command"]
    assert len(lines) == 2 * 2 * 2 * len(torch_accuracy.FAMILIES)  # norms, types, widths
    assert all(line["passed"] for line in lines)
    table = capsys.readouterr().out.splitlines()
    assert len(table) == 2 + 2 * 2 * len(torch_accuracy.FAMILIES)
    [huge] = (row for row in table if row.startswith("| layernorm, f32, `huge1e20` |"))
    cells = huge.strip("| ").split(" | ")[1:]
    assert cells[0::2][:3] == ["NaN"] * 3  # torch's y, grad_x and grad_weight
    assert all(float(cell) <= torch_accuracy.C_LIMIT for cell in cells[1::2])


def test_turns_go_there_and_back_after_an_untimed_call():
    seen = []
    timed_calls = {
        name: timing.TimedCall(lambda name=name: (seen.append(name), time.sleep(2e-3)))
        for name in ("a", "b")
    }
    times = timing.time_interleaved(timed_calls, seconds=0, rounds=3)
    calibrated, rounds = seen[:4], seen[4:]
    assert calibrated == ["a", "a", "b", "b"]  # a turn is long enough, so it has one timed call
    assert rounds == ["a", "a", "b", "b", "b", "b", "a", "a", "a", "a", "b", "b"]
    assert all(2e-3 <= each.p20 <= each.median <= each.p80 for each in times.values())


def test_short_calls_share_a_turn_and_fresh_pages_are_counted():
    pages, before = 64, []

    def fresh():
        with mmap.mmap(-1, pages * mmap.PAGESIZE) as memory:
            for page in range(pages):
                memory[page * mmap.PAGESIZE] = 1

    calls = []
    timed_calls = {
        "fresh": timing.TimedCall(fresh, lambda: before.append("fresh")),
        "short": timing.TimedCall(lambda: calls.append(0)),
    }
    times = timing.time_interleaved(timed_calls, seconds=0, rounds=5, turn=2e-2)
    assert times["fresh"].faults >= pages > 1 > times["short"].faults
    assert len(calls) > 1000 and len(before) >= 6


def test_benchmark_ends_where_ours_is_wrong():
    case = torch_cases.Case("layernorm", False, True, "f32", 8, 64)
    arrays = torch_cases.Arrays(case)
    right = arrays.call(torch_cases.OURS["layernorm", False])
    errors = torch_cases.checked(case, arrays, {"isobit": right})
    assert errors["isobit"] <= torch_cases.TOLERANCE["f32"]

    def wrong():
        grad_x, *rest = right()
        return grad_x * float("nan"), *rest

    assert np.isnan(torch_cases.checked(case, arrays, {"torch": wrong})["torch"])
    with pytest.raises(SystemExit, match="isobit errs by nan"):
        torch_cases.checked(case, arrays, {"isobit": wrong})


def test_peak_of_memory_counts_what_a_step_takes():
    case = torch_cases.Case("layernorm", False, True, "f32", 2048, 4096)
    # in a process of its own: results in several holes of a used heap count each
    [line] = torch_cpu.spawned("peak", [case], names=["isobit without pool"], threads=1)
    assert 0.9 * case.returned < line["peak"] < 1.4 * case.returned


def raced(pass_, ratio, **changes):
    line = {"op": "layernorm", "pass": pass_, "dtype": "f32", "threads": 1}
    return line | {"peers": [{"name": "torch", "ratio": ratio}]} | changes


def test_aims_are_missed_where_one_case_misses_them():
    lines = [raced("fwd", 2.6), raced("fwd", 2.4), raced("fwd+bwd", 2.1), raced("fwd+bwd", 2.3)]
    table = torch_cpu.aims(lines, torch_cpu.LARGE_TARGETS, min, torch_cpu.torch_over_ours)
    assert table[2:] == [
        "| layernorm fwd, f32, 1 thread | 2.40 | 2.50 | 2.50 | missed |",
        "| layernorm fwd+bwd, f32, 1 thread | 2.10 | 2.20 | 2.00 | reached |",
    ]


def test_benchmark_writes_lines_and_tables(tmp_path):
    out = tmp_path / "bench-torch.jsonl"
    flags = ["--quick", "--only", "forward,calls", "--shapes", "8x64", "--memory", "recycled"]
    flags += ["--threads", "1", "--peers", "torch", "--out", str(out)]
    run = subprocess.run([sys.executable, BENCH, *flags], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    head, *lines = map(json.loads, out.read_text().splitlines())
    assert head.keys() >= {"device", "versions", "commit", "uncommitted_changes", "command"}
    assert len(lines) == 2 + 2 * 2 * len(torch_cpu.CALL_SHAPES)  # norms; norms, passes, shapes
    for line in lines:
        [torchs] = line["peers"]
        assert torchs["ratio"] == pytest.approx(torchs["median_us"] / line["median_us"])
        for figures in (line, torchs):
            assert 0 < figures["p20_us"] <= figures["median_us"] <= figures["p80_us"]
            assert 0 <= figures["error"] <= torch_cases.TOLERANCE["f32"]
    for heading in (
        "layernorm, recycled memory, fwd, f32",
        "rmsnorm, cost of a call, fwd+bwd, f32",
    ):
        assert f"\n{heading}\n" in run.stdout
    assert run.stdout.count("\n| 8 × 64 |") == 2 and run.stderr.count("speed-up over") == len(lines)


def test_norm_among_its_neighbours_is_raced_as_compiled_fused_and_eager(
    tmp_path, monkeypatch, capsys
):
    fused_when_compiled = []

    def compiled(function, dynamic):
        def call(*inputs):
            fused_when_compiled.append((function.__name__, torch_fused.settings.compiled_fuses))
            return function(*inputs)

        return call

    monkeypatch.setattr(torch_fused.settings, "compiled_fuses", False)
    monkeypatch.setattr(torch, "compile", compiled)
    inputs = [torch.randn(shape) for shape in ((8, 64), (8, 64), (64,), (64,))]
    right = torch_fused.torchs(*inputs)
    for function, _ in torch_fused.implementations().values():
        torch.testing.assert_close(function(*inputs), right)
    fused_when_compiled.clear()

    out = tmp_path / "fused.jsonl"
    flags = ["--threads", "1", "--shapes", "8x64", "--out", str(out)]
    monkeypatch.setattr(sys, "argv", ["torch_fused.py", *flags])
    assert torch_fused.main() == 0
    assert set(fused_when_compiled) == {("ours", False), ("ours_fused", True), ("torchs", False)}
    head, *lines = map(json.loads, out.read_text().splitlines())
    assert head["command"] == "python bench/torch_fused.py " + " ".join(flags)
    assert [line["pass"] for line in lines] == ["fwd", "fwd+bwd"]
    for line in lines:
        assert line["name"] == "isobit compiled" and len(line["peers"]) == 4
        for peer in line["peers"]:
            assert peer["ratio"] == pytest.approx(peer["median_us"] / line["median_us"])
    assert capsys.readouterr().out.count("| fwd") == 2
