# SPDX-License-Identifier: Apache-2.0
"""nvcc's kernels on the executor of PTX, through the lab: bits, schedules, counters, refusals."""

import json
import os
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
RELEASE = ROOT / "build" / "release"
LAB = RELEASE / "isobit"
OF_ROWS = ("activation", "elementwise", "layernorm", "rmsnorm", "transpose")  # --rows, --cols
SMALL = ["--rows", "3", "--cols", "700"]
WITHOUT_PYTHON = {"ISOBIT_PYTHON": "true"}  # doctor would ask it what it has, which takes seconds

pytestmark = pytest.mark.skipif(
    not (RELEASE / "libisobit_ptx.so").exists(),
    reason="libisobit_ptx.so is not built: tools/kernels.py needs nvcc",
)


def isobit(*words, **settings):
    text = ",".join(f"{name}={value}" for name, value in settings.items())
    env = os.environ | WITHOUT_PYTHON | {"ISOBIT_EXECUTOR": text}
    return subprocess.run([LAB, *words], capture_output=True, text=True, env=env)


@pytest.mark.parametrize("op", [*OF_ROWS, "rope", "rope_tables", "scan"])
def test_bits_are_the_processors(op):
    done = isobit("parity", op, "--device", "cpu,ptx", *(SMALL if op in OF_ROWS else []))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "on ptx" in done.stdout


SEQUENCES = "--batch 1 --starts 5 --with query_starts+key_starts+slopes --causal bottom_right"


@pytest.mark.parametrize(
    "words",
    [
        f"{SEQUENCES} --seq-q 9 --seq-k 300 --dropout 0.25",
        # Few queries, whose keys are of several runs.
        f"{SEQUENCES} --pass fwd --heads 2 --kv-heads 1 --seq-q 6 --seq-k 6000 --head-dim 4",
        "--pass fwd --batch 3 --places 2 --with key_begin+key_end+blocks --seq-q 3 --seq-k 90",
    ],
)
def test_packed_sequences_and_keys_in_blocks_have_the_processors_bits(words):
    done = isobit("parity", "attention", *words.split(), "--device", "cpu,ptx", "--threads", "1")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "flash on ptx" in done.stdout and "decode on ptx" in done.stdout


TENSOR = ["--arithmetic", "tensor", "--dtype", "f16,bf16", "--k", "200", "--device", "emu,ptx"]


@pytest.mark.parametrize(
    ("early", "order"),
    [
        (0, "in_order"),
        (1, "random"),
        pytest.param(0, "random", marks=pytest.mark.full),
        pytest.param(1, "in_order", marks=pytest.mark.full),
    ],
)
def test_tensor_cores_have_the_emulators_bits(order, early):
    """Which are those of sm_90 by a model; the processor has none."""
    done = isobit("parity", "matmul", *TENSOR, order=order, early=early)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("mma on ptx side=64 ") == done.stdout.count("mma on emu side=64 ") == 4


@pytest.mark.parametrize(
    ("early", "order", "dtype", "direction"),
    [
        (0, "random", "bf16", "fwd"),
        (1, "in_order", "f16", "fwd"),
        pytest.param(1, "starving", "bf16", "bwd", marks=pytest.mark.full),
        pytest.param(0, "reversed", "f16", "bwd", marks=pytest.mark.full),
    ],
)
def test_warpgroups_have_the_bits_of_warps(order, early, dtype, direction):
    """By the model, on the emulator and the executor, where places go round several times."""
    words = ["--pass", direction, "--arithmetic", "tensor", "--dtype", dtype]
    words += ["--variant", "mma,wgmma", "--device", "emu,ptx"]
    words += ["--batch", "1", "--m", "136", "--n", "72", "--k", "328"]
    settings = {"order": order, "seed": 2, "early": early, "resident": 3}
    done = isobit("parity", "matmul", *words, **settings)
    assert done.returncode == 0, done.stdout + done.stderr
    taken = re.findall(r"^wgmma on ptx.* [0-9a-f]{16}", done.stdout, re.MULTILINE)
    declined = re.findall(r"^wgmma on ptx.*: unavailable: it takes", done.stdout, re.MULTILINE)
    assert (len(taken), len(declined)) == (5, 3)


def test_warpgroups_are_those_of_one_generation():
    words = ["--pass", "fwd", "--device", "ptx", "--arithmetic", "tensor", "--dtype", "bf16"]
    for sm in (80, 100):
        for call in (["matmul", "--variant", "wgmma"], ["attention", "--variant", "flash_wgmma"]):
            done = isobit("verify", *call, *words, sm=sm)
            assert done.returncode != 0
            assert "only GPUs of sm_90 have its instructions" in done.stdout + done.stderr


@pytest.mark.parametrize(
    "words",
    [
        ["--causal", "bottom_right", "--head-dim", "80"],
        pytest.param(["--window", "30", "--with", "bias+mask"], marks=pytest.mark.full),
    ],
)
def test_attention_by_tensor_cores_has_the_emulators_bits(words):
    words = ["--pass", "fwd", "--arithmetic", "tensor", "--dtype", "f16,bf16", *words]
    done = isobit("parity", "attention", *words, "--device", "emu,ptx", order="random", early=1)
    assert done.returncode == 0, done.stdout + done.stderr
    for device in ("ptx", "emu"):
        assert done.stdout.count(f"flash_mma on {device} queries=128 ") == 2


@pytest.mark.parametrize(
    "words",
    [
        ["--causal", "bottom_right", "--head-dim", "80", "--value-dim", "24"],
        ["--window", "30", "--softcap", "3", "--with", "bias+mask+grad_lse+grad_bias"],
    ],
)
def test_gradients_of_attention_by_tensor_cores_have_the_emulators_bits(words):
    """nvcc once made kernels of them that did not end, and others that wrote nothing."""
    words = ["--pass", "bwd", "--arithmetic", "tensor", "--dtype", "f16,bf16", *words]
    words += ["--batch", "1", "--heads", "2", "--kv-heads", "1", "--seq-q", "20", "--seq-k", "70"]
    done = isobit("parity", "attention", *words, "--device", "emu,ptx", order="random", early=1)
    assert done.returncode == 0, done.stdout + done.stderr
    for device in ("ptx", "emu"):
        assert done.stdout.count(f"flash_mma on {device} rows=32 ") == 2


@pytest.mark.parametrize(
    ("early", "order", "dtype", "words"),
    [
        (0, "random", "bf16", ["--causal", "bottom_right", "--head-dim", "72"]),
        (1, "in_order", "f16", ["--window", "50", "--with", "bias+mask", "--value-dim", "72"]),
        pytest.param(1, "starving", "bf16", ["--softcap", "3"], marks=pytest.mark.full),
        pytest.param(0, "reversed", "f16", ["--dropout", "0.3"], marks=pytest.mark.full),
    ],
)
def test_attention_by_warpgroups_has_the_bits_of_warps(order, early, dtype, words):
    """By the model, on the emulator and the executor, where a block has several tiles."""
    words = ["--pass", "fwd", "--arithmetic", "tensor", "--dtype", dtype, *words]
    words += ["--variant", "flash_mma,flash_wgmma", "--device", "emu,ptx"]
    words += ["--seq-q", "140", "--seq-k", "300"]
    for dim in ("--head-dim", "--value-dim"):
        words += [] if dim in words else [dim, "24"]
    settings = {"order": order, "seed": 2, "early": early, "resident": 3}
    done = isobit("parity", "attention", *words, **settings)
    assert done.returncode == 0, done.stdout + done.stderr
    taken = re.findall(r"^flash_wgmma on ptx.* [0-9a-f]{16}", done.stdout, re.MULTILINE)
    declined = re.findall(
        r"^flash_wgmma on ptx.*: unavailable: it takes", done.stdout, re.MULTILINE
    )
    # Alone and in other batches too, but for dropout, which counts the batch.
    assert (len(taken), len(declined)) == (1 if "--dropout" in words else 4, 4)


def test_tensor_cores_of_another_generation_are_right_and_have_other_bits():
    words = ["--variant", "mma", "--device", "ptx", "--grid", "test"]
    done = isobit("verify", "matmul", *words, sm=80)
    assert done.returncode == 0, done.stdout + done.stderr
    words = ["--pass", "fwd", "--variant", "flash_mma", "--device", "ptx", "--grid", "quick"]
    done = isobit("verify", "attention", *words, sm=80)
    assert done.returncode == 0, done.stdout + done.stderr
    one = ["--pass", "fwd", "--arithmetic", "tensor", "--dtype", "bf16", "--k", "200"]
    assert isobit("parity", "matmul", *one, "--device", "emu,ptx", sm=80).returncode == 1


@pytest.mark.parametrize("order", ["reversed", "random", "starving"])
@pytest.mark.parametrize("early", [0, 1])
def test_no_schedule_changes_a_bit(order, early):
    settings = {"order": order, "seed": 3, "resident": 3, "early": early, "multiprocessors": 4}
    for op in ("layernorm", "transpose"):
        done = isobit("parity", op, "--device", "cpu,ptx", *SMALL, **settings)
        assert done.returncode == 0, done.stdout + done.stderr


def test_starving_is_no_deadlock_while_others_than_the_favoured_can_go_on():
    """Of a rare row all warps of a cluster come to two barriers, one behind the other."""
    settings = {"order": "starving", "seed": 5, "resident": 4, "multiprocessors": 4}
    words = ["--variant", "cluster_per_row", "--rows", "40", "--cols", "1100", "--dtype", "f32"]
    done = isobit(
        "verify", "layernorm", *words, "--input", "constant", "--device", "ptx", **settings
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_gpus_without_clusters_have_the_same_bits():
    done = isobit("parity", "layernorm", "--device", "cpu,ptx", *SMALL, sm=80)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "cluster_per_row on ptx: unavailable" in done.stdout


def test_counters_are_written(tmp_path):
    file = tmp_path / "counters.jsonl"
    words = ["--device", "ptx", "--variant", "vec16", "--rows", "64", "--cols", "4096"]
    done = isobit("verify", "elementwise", *words, counters=file)
    assert done.returncode == 0, done.stderr
    (line,) = map(json.loads, file.read_text().splitlines())
    assert "Vec16<float>" in line["kernel"]
    bytes_of_an_array = 64 * 4096 * 4
    for traffic, arrays in ((line["loads"], 2), (line["stores"], 1)):
        assert traffic["bytes"] == arrays * bytes_of_an_array
        assert traffic["sectors"] == traffic["least"] == traffic["distinct"]
        assert traffic["wide"] == traffic["requests"]
    assert line["instructions"] == sum(line["by_kind"].values())


@pytest.mark.parametrize("verb", ["bench", "tune"])
def test_what_measures_time_refuses_it(verb):
    done = isobit(verb, "elementwise", "--device", "ptx", "--quick", *SMALL)
    assert done.returncode != 0
    assert "ptx" in done.stderr


def test_doctor_calls_it_an_executor():
    said = "ptx: what nvcc made of the GPU kernels, executed by an executor"
    assert said in isobit("doctor").stdout


def test_the_gpu_library_may_be_it():
    """Under the name that a GPU has, as the GPU's tests and PyTorch's adapter ask for it."""
    library = {"ISOBIT_CUDA_LIBRARY": str(RELEASE / "libisobit_ptx.so")}
    env = os.environ | WITHOUT_PYTHON | library
    call = [LAB, "parity", "rmsnorm", "--device", "cpu,cuda", *SMALL]
    done = subprocess.run(call, capture_output=True, text=True, env=env)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "on cuda" in done.stdout
    for verb in ("bench", "tune"):
        call = [LAB, verb, "rmsnorm", "--pass", "fwd", "--device", "cuda", "--quick", *SMALL]
        done = subprocess.run(call, capture_output=True, text=True, env=env)
        assert done.returncode != 0, done.stdout
        assert "an executor runs it" in done.stderr
    for verb in ("info", "doctor"):
        done = subprocess.run([LAB, verb], capture_output=True, text=True, env=env)
        assert "an executor, no GPU" in done.stdout


@pytest.mark.parametrize("settings", [{"speed": "fast"}, {"order": "sorted"}], ids=str)
def test_without_a_device_where_a_setting_is_unknown(settings):
    ((name, value),) = settings.items()
    assert f"ptx: ISOBIT_EXECUTOR: unknown: {name}={value}" in isobit("doctor", **settings).stdout
    assert isobit("verify", "elementwise", "--device", "ptx", **settings).returncode != 0
