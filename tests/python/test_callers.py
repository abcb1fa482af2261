# SPDX-License-Identifier: Apache-2.0
"""What Python does for `isobit parity` and `isobit doctor`. The lab calls a script that lets this
process answer, so that the lab judges what is computed here."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from isobit import numpy as isobit_numpy
from isobit.lab import callers

torch = pytest.importorskip("torch")

ROOT = Path(__file__).resolve().parents[2]
LAB = ROOT / "build" / "release" / "isobit"
NAMES = ("NumPy", "PyTorch eager", "PyTorch compiled")

SHAPES = {
    "matmul": "--m 3 --n 5 --k 7",
    "rope": "--batch 2 --seq 3 --heads 2 --kv-heads 1 --head-dim 8",
    "rope_tables": "--length 5 --pairs 3",
    "scan": "--outer 2 --length 9 --inner 3",
    "attention": "--heads 2 --kv-heads 1 --seq-q 3 --seq-k 5 --head-dim 8 --value-dim 6",
    "conv1d": "--batch 2 --channels 4 --filters 6 --length 20 --kernel 3",
    "conv2d": "--channels 4 --filters 6 --height 7 --width 9 --kernel-h 3 --kernel-w 2",
    "embedding": "--rows 40 --tokens 3 --cols 20",
    "layernorm_linear": "--rows 5 --cols 20 --features 7",
    "pool2d": "--channels 4 --height 7 --width 9",
    "interpolate": "--channels 4 --height 7 --width 9 --out-height 5 --out-width 13",
    "rmsnorm_linear": "--rows 5 --cols 20 --features 7",
}
# The lab takes several times as long with its executors, which have tests of their own.
WITHOUT_EXECUTORS = dict.fromkeys(("ISOBIT_PTX_LIBRARY", "ISOBIT_SASS_LIBRARY"), "none")
SCRIPT = """#!/bin/sh
cd "$(dirname "$0")" && echo "$3" > asked && mv asked request
while [ ! -e answer ]; do sleep 0.01; done
cat answer
"""


@pytest.fixture(autouse=True)
def _as_in_a_new_process():
    torch.compiler.reset()
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)
    isobit_numpy.set_num_threads(0)


@pytest.fixture
def parity(tmp_path):
    """The lab's exit status, and its lines by configuration, for one case."""

    def run(call):
        script = tmp_path / "python"
        script.write_text(SCRIPT)
        script.chmod(0o700)
        shape = "--cols 20" if "--rows" in call else "--rows 3 --cols 20"
        shape = SHAPES.get(call.split()[0], shape)
        command = [LAB, "parity", *f"{call} {shape} --json".split()]
        environment = os.environ | WITHOUT_EXECUTORS | {"ISOBIT_PYTHON": str(script)}
        said = tmp_path / "said"  # a file: a pipe that nobody reads yet would stop the lab
        with (
            said.open("w") as output,
            subprocess.Popen(command, env=environment, stdout=output) as lab,
        ):
            while not (tmp_path / "request").exists():
                assert lab.poll() is None, "the lab did not ask"
                time.sleep(0.01)
            folder = Path((tmp_path / "request").read_text().strip())
            lines = [json.dumps(line) for line in callers.compute(folder)]
            (tmp_path / "ready").write_text("\n".join(lines) + "\n")
            (tmp_path / "ready").rename(tmp_path / "answer")
            lab.wait()
        return lab.returncode, {
            line["configuration"]: line for line in map(json.loads, said.read_text().splitlines())
        }

    return run


@pytest.mark.parametrize(
    "call",
    [
        "layernorm --pass fwd",
        "layernorm --pass fwd --dtype bf16 --weight-dtype f32 --zero-centered yes",
        "layernorm --pass fwd --dtype f16 --y-dtype bf16 --offset 3 --row-stride 29",
        "layernorm --pass fwd --with residual+sum --dtype bf16 --dropout 0.3 --dropout-seed 7",
        "layernorm --pass fwd --dropout 0.3 --dtype f64 --threads 1",
        "rmsnorm --pass fwd --dtype f16 --y-dtype f32 --zero-centered yes --eps 0.1",
        "rmsnorm --pass fwd --with residual+sum",
        "rmsnorm --pass fwd --with sum --dropout 0.5 --y-dtype bf16",
        "layernorm --pass bwd --dtype bf16 --weight-dtype f32 --zero-centered yes",
        "layernorm --pass bwd --dtype f16 --y-dtype f32 --offset 1 --row-stride 31 --threads 1",
        "rmsnorm --pass bwd",
        "rmsnorm --pass fwd --with residual+sum --rows 0",
        "layernorm --pass bwd --dtype f64 --rows 0",
        "elementwise --kind add --dtype i32",
        "elementwise --kind add --dtype bf16 --offset 1 --row-stride 21",
        "elementwise --kind increment --dtype f16",
        "transpose",
        "transpose --dtype i64 --layout reversed --offset 1",
        "transpose --dtype bool --layout spread",
        "transpose --dtype u8 --batch 0",
        "transpose --dtype f64 --y-dtype bf16 --layout spread --row-stride 70",
        "transpose --dtype bf16 --y-dtype f32 --row-stride 31",
        "matmul --pass fwd --layout nt",
        "matmul --pass fwd --batch 2 --layout tn --row-stride 9 --offset 1",
    ],
)
def test_every_caller_gives_the_bits_of_the_lab(parity, call):
    status, lines = parity(call)
    assert status == 0
    expected = lines["C"]["outputs"]
    given = {name: bits for name, bits in expected.items() if name not in ("mean", "rstd")}
    assert [lines[name].get("outputs") for name in NAMES] == [given] * 3


@pytest.mark.parametrize(
    "call",
    [
        "rope --pass fwd --style interleaved",
        "rope --pass bwd --offset-positions 7",
        "rope_tables --base 500",
        "scan --kind sum --exclusive yes",
        "pointwise_loss --pass fwd --function huber --beta 0.5",
        "pointwise_loss --pass bwd --function bce_with_logits --with weight+pos_weight",
        "dropout --p 0.3 --dtype f16",
        "random --distribution uniform --low -1 --random-offset 3",
        "random --distribution truncated_normal --std 2 --dtype bf16",
        "scan --kind max --reverse yes",
        "scan --kind logsumexp",
        "matmul --pass fwd --activation gelu --with bias",
        "matmul --pass fwd --arithmetic tensor --dtype bf16",
        "matmul --pass bwd --arithmetic tensor --dtype bf16",
        "layernorm_linear --pass fwd --arithmetic tensor --dtype bf16",
        "layernorm_linear --pass fwd --activation gelu",
        "layernorm_linear --pass bwd",
        "rmsnorm_linear --pass fwd --zero-centered yes",
        "conv1d --pass fwd --stride 2 --padding 1 --with bias",
        "conv2d --pass fwd --groups 2",
        "conv2d --pass bwd",
        "pool2d --pass fwd --reduction max --window-h 3 --window-w 2 --padding-h 1 --with index",
        "pool2d --pass fwd --reduction average --window-h 2 --window-w 2 --divisor 3",
        "pool2d --pass fwd --reduction average --bins-h 3",
        "pool2d --pass bwd --reduction max --window-h 3 --window-w 2 --stride-w 1",
        "pool2d --pass bwd --reduction average --window-h 3 --window-w 3 --stride-h 2",
        "interpolate --pass fwd --mode nearest_exact",
        "interpolate --pass fwd --mode cubic --align-corners yes",
        "interpolate --pass fwd --mode linear --scale-h 0.8 --scale-w 1.5",
        "interpolate --pass bwd --mode linear",
        "embedding --pass fwd",
        "embedding --pass bwd --padding-idx 1 --scale-grad-by-freq yes",
        "attention --pass fwd --causal bottom_right",
        "attention --pass fwd --with mask --softcap 2",
        "attention --pass fwd --with mask+slopes+key_begin+key_end",
        "attention --pass fwd --with query_starts+key_starts --batch 1 --dropout 0.3",
        "attention --pass fwd --with key_end+blocks --batch 3 --places 2 --dropout 0.3",
        "attention --pass fwd --with query_starts+key_end+blocks --batch 3 --starts 4 --places 2",
    ],
)
def test_what_a_caller_computes_of_an_operator_has_the_bits_of_the_lab(parity, call):
    """Not every function gives every output, nor NumPy's gradients."""
    status, lines = parity(call)
    assert status == 0
    expected = lines["C"]["outputs"]
    assert "outputs" in lines["PyTorch eager"]
    for name in NAMES:
        assert "outputs" in lines[name] or lines[name]["unavailable"]
        outputs = lines[name].get("outputs", {})
        assert outputs == {each: expected[each] for each in outputs}


@pytest.mark.parametrize(
    "call",
    [
        "matmul --alpha 2",
        "matmul --with residual",
        "layernorm_linear --with x_residual+sum",
        "layernorm_linear --dropout 0.5",
        "conv1d --extra-padding 1",
        "conv1d --with residual",
        "pool2d --reduction max",
        "pool2d --reduction average --window-h 2",
        "interpolate --mode linear --scale-h 0.4 --scale-w 1.5",
        "scan --with reset",
        "attention --with bias+mask",
    ],
)
def test_what_functions_do_not_have_is_said(parity, call):
    status, lines = parity(f"{call} --pass fwd")
    assert status == 0
    assert all(lines[name]["unavailable"] for name in NAMES)


@pytest.mark.parametrize(
    "call",
    [
        "layernorm --with grad_sum+grad_residual --dropout 0.3 --dropout-seed 5",
        "rmsnorm --with grad_residual --dropout 0.5 --dtype f16 --y-dtype f32",
        "rmsnorm --with grad_sum --zero-centered yes --dropout 0.1",
        "layernorm --with grad_sum --dtype bf16",
    ],
)
def test_gradients_of_sums_and_dropout_come_by_autograd(parity, call):
    status, lines = parity(f"{call} --pass bwd")
    assert status == 0
    assert lines["NumPy"]["unavailable"] == "isobit.numpy has no gradients of sums or dropout"
    expected = lines["C"]["outputs"]
    assert [lines[name].get("outputs") for name in NAMES[1:]] == [expected] * 2


ON_CUDA = ("PyTorch eager on cuda", "PyTorch compiled on cuda")


@pytest.mark.parametrize(
    "call",
    [
        "layernorm --pass fwd --with residual+sum --dtype bf16 --dropout 0.3 --dropout-seed 7",
        "layernorm --pass bwd --dtype f16 --offset 3 --row-stride 29",
        "rmsnorm --pass fwd --rows 0",
        "elementwise --kind add --dtype i32 --offset 1 --row-stride 21",
    ],
)
def test_tensors_of_a_gpu_give_the_bits_of_the_lab(parity, monkeypatch, call):
    """Where there is none, the processor's memory is taken for its own."""
    if not torch.cuda.is_available():
        monkeypatch.setattr(callers, "_gpu", lambda torch: "cpu")
    status, lines = parity(call)
    assert status == 0
    expected = lines["PyTorch eager"]["outputs"]
    assert [lines[name].get("outputs") for name in ON_CUDA] == [expected] * 2


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_its_callers_are_unavailable(parity):
    _, lines = parity("elementwise")
    for name in ON_CUDA:
        assert lines[name]["unavailable"] == "PyTorch finds no GPU"


@pytest.mark.parametrize("offset", [0, 3])
def test_copies_lie_as_the_tensors_do(offset):
    tensor = torch.arange(60).reshape(3, 20)[:, :7]
    copy = callers._copied(tensor, offset, "cpu")
    assert torch.equal(copy, tensor)
    assert (copy.stride(), copy.storage_offset()) == (tensor.stride(), offset)


@pytest.mark.parametrize(
    ("layout", "row_stride", "strides"),
    [
        (None, 0, [15, 5, 1]),
        ("dense", 9, [27, 9, 1]),
        ("reversed", 0, [1, 2, 6]),
        ("reversed", 9, [1, 9, 27]),
        ("spread", 0, [57, 18, 3]),
        ("spread", 9, [57, 18, 3]),
    ],
)
def test_arrays_lie_as_the_labs_do(layout, row_stride, strides):
    assert callers._strides((2, 3, 5), layout, row_stride) == strides
    assert callers._strides((5,), layout, row_stride) == [3 if layout == "spread" else 1]


def test_given_statistics_make_python_unavailable(parity):
    _, lines = parity("rmsnorm --pass bwd --statistics given")
    assert lines["C"]["outputs"]
    for name in NAMES:
        assert lines[name]["unavailable"] == "mean and rstd are given, but it computes them itself"


def test_what_python_computes_wrongly_ends_in_status_1(parity, monkeypatch):
    def wrong(call):
        return {"y": np.zeros((3, 20), np.float32)}

    monkeypatch.setitem(callers.CALLERS, "PyTorch eager", wrong)
    status, lines = parity("elementwise")
    assert status == 1
    assert lines["PyTorch eager"]["outputs"] != lines["NumPy"]["outputs"] == lines["C"]["outputs"]


def raising(error):
    def caller(call):
        raise error

    return caller


def test_a_caller_that_fails_reports_the_error_and_hides_no_other(parity, monkeypatch):
    failure = RuntimeError("the compiler\nfailed\n\nand says it in many pages")
    monkeypatch.setitem(callers.CALLERS, "NumPy", raising(failure))
    monkeypatch.setitem(sys.modules, "torch", None)
    status, lines = parity("elementwise")
    assert status == 0
    assert lines["NumPy"]["unavailable"] == "RuntimeError: the compiler failed"
    for name in NAMES[1:]:
        assert "torch" in lines[name]["unavailable"]
        assert lines[name]["unavailable"].endswith("; run `isobit doctor` for details")


def test_a_caller_without_one_of_its_outputs_is_no_result(parity, monkeypatch):
    monkeypatch.setitem(callers.CALLERS, "NumPy", lambda call: {})
    _, lines = parity("elementwise")
    assert lines["NumPy"]["unavailable"] == "KeyError: 'y'"


def test_a_sum_that_zero_cannot_give_is_unavailable(tmp_path):
    case = {
        **{"op": "rmsnorm", "pass": "bwd", "cols": 2, "offset": 0, "row_stride": 2, "threads": 0},
        **{"dtype": "f32", "y_dtype": "f32", "eps": 1e-5, "zero_centered": "no"},
        **{"dropout": 0.5, "dropout_seed": 0, "outputs": ["grad_x", "grad_weight"]},
        "inputs": {"x": "f32", "grad_y": "f32", "weight": "f32"},
    }
    (tmp_path / "case.json").write_text(json.dumps(case))
    for name in ("x", "grad_y"):
        np.save(tmp_path / f"{name}.npy", np.array([[-0.0, 1]], np.float32))
    np.save(tmp_path / "weight.npy", np.ones(2, np.float32))
    for line in list(callers.compute(tmp_path))[1:3]:
        assert "does not keep the NaNs and -0 of x" in line["unavailable"]


def test_an_operator_without_kinds_is_a_function_of_its_name(tmp_path):
    case = {"op": "negate", "pass": "fwd", "inputs": {"x": "f32"}, "outputs": ["y"], "threads": 0}
    (tmp_path / "case.json").write_text(json.dumps(case))
    library = SimpleNamespace(negate=lambda x: -x)
    assert callers.Call(tmp_path).forward(library, str)(x=1) == {"y": -1}


def states(capsys):
    """What doctor says, by the piece that it says it of."""
    assert callers.main([]) == 0
    said = map(json.loads, capsys.readouterr().out.splitlines())
    return {line["what"]: line["state"] for line in said}


def state_of(piece, said):
    (found,) = ((what, state) for what, state in said.items() if what.startswith(piece))
    return found


def test_doctor_names_what_is_there(capsys):
    said = states(capsys)
    for piece in (
        f"Python {sys.version.split()[0]}",
        f"Python's numpy {np.__version__}",
        f"Python's torch {torch.__version__}",
        "isobit.numpy, with ",
        "isobit.torch, with isobit_torch_cpu.so",
    ):
        assert state_of(piece, said)[1] == "ok"


def test_doctor_says_what_to_do_about_missing_modules(capsys, monkeypatch):
    for module in ("ml_dtypes", "torch", "triton"):
        monkeypatch.setitem(sys.modules, module, None)
    monkeypatch.setattr("isobit.numpy.increment", raising(OSError("libisobit.so is torn")))
    said = states(capsys)
    for module in ("ml_dtypes", "torch", "triton"):
        what, state = state_of(f"Python's {module}, for ", said)
        assert state == "missing"
        assert what.endswith("run `make build` to install it in .venv")
    assert said["isobit.numpy: libisobit.so is torn"] == "missing"
    assert state_of("isobit.torch: ", said)[1] == "missing"


@pytest.mark.parametrize("gpu", [False, True])
def test_doctor_says_which_operators_have_triton_versions(capsys, monkeypatch, gpu):
    triton = pytest.importorskip("triton")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: gpu)
    how = "on a GPU" if gpu else "interpreted, because PyTorch finds no GPU"
    operators = "activation, adam, attention, batch_norm, conv1d, conv2d, cross_entropy"
    operators += ", dropout, elementwise, embedding, group_norm, interpolate, layernorm"
    operators += ", layernorm_linear, linear_cross_entropy, lion, matmul, pointwise_loss, pool2d"
    operators += ", random, reduce, rmsnorm, rmsnorm_linear, rope, scan, sgd, softmax, transpose"
    operators += ", vector_norm"
    what = f"Python's triton {triton.__version__}, for `--device triton`: {operators}"
    assert states(capsys)[f"{what}; {how}"] == "ok"


def test_triton_without_pytorch_is_of_no_use(monkeypatch):
    pytest.importorskip("triton")
    monkeypatch.setitem(sys.modules, "torch", None)
    usable, what = callers._triton()
    assert not usable and "cannot be used" in what


def test_doctor_repeats_why_an_adapter_does_not_load(capsys, monkeypatch):
    monkeypatch.setattr("isobit.torch.fast.missing", "it was not built")
    said = states(capsys)
    assert said["isobit.torch's fast path for small calls: it was not built"] == "missing"
    assert state_of("isobit_torch_cuda.so", said)[1] == "ok" if torch.version.cuda else "missing"


@pytest.mark.parametrize(
    ("cuda", "failure", "expected"),
    [
        (None, None, (False, "needs a PyTorch built with CUDA")),
        ("13.0", OSError("no such file"), (False, "no such file")),
        ("13.0", None, (True, "")),
    ],
)
def test_doctor_tells_whether_the_adapter_for_gpus_loads(cuda, failure, expected):
    load = raising(failure) if failure else lambda path: None
    fake = SimpleNamespace(
        version=SimpleNamespace(cuda=cuda), ops=SimpleNamespace(load_library=load)
    )
    usable, what = callers._cuda_adapter(fake)
    assert usable == expected[0]
    assert what.startswith("isobit_torch_cuda.so") and expected[1] in what


def test_a_wrong_call_is_told(capsys):
    assert callers.main(["a", "b"]) == 2
    assert "usage" in capsys.readouterr().err


def test_python_is_started_by_the_lab_and_by_its_doctor():
    lab = subprocess.run(
        [LAB, "parity", "rmsnorm", "--pass", "bwd", "--rows", "3", "--json"],
        env=os.environ | WITHOUT_EXECUTORS,
        capture_output=True,
    )
    assert lab.returncode == 0
    lines = {line["configuration"]: line for line in map(json.loads, lab.stdout.splitlines())}
    assert [lines[name].get("outputs") for name in NAMES] == [lines["C"]["outputs"]] * 3
    doctor = subprocess.run([LAB, "doctor", "--json"], capture_output=True, text=True)
    assert doctor.returncode == 0
    said = {line["what"]: line["state"] for line in map(json.loads, doctor.stdout.splitlines())}
    assert said["rmsnorm bwd"] == state_of("isobit.torch, with", said)[1] == "ok"
