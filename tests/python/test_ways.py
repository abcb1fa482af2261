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
from isobit import ways

torch = pytest.importorskip("torch")

ROOT = Path(__file__).resolve().parents[2]
LAB = ROOT / "build" / "release" / "isobit"
NAMES = ("NumPy", "PyTorch eager", "PyTorch compiled")

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
    """The lab's exit status, and its lines by way, for one case."""

    def run(call):
        script = tmp_path / "python"
        script.write_text(SCRIPT)
        script.chmod(0o700)
        shape = "--cols 20" if "--rows" in call else "--rows 3 --cols 20"
        command = [LAB, "parity", *f"{call} {shape} --json".split()]
        environment = {**os.environ, "ISOBIT_PYTHON": str(script)}
        with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as lab:
            while not (tmp_path / "request").exists():
                assert lab.poll() is None, "the lab did not ask"
                time.sleep(0.01)
            folder = Path((tmp_path / "request").read_text().strip())
            lines = [json.dumps(line) for line in ways.compute(folder)]
            (tmp_path / "ready").write_text("\n".join(lines) + "\n")
            (tmp_path / "ready").rename(tmp_path / "answer")
            said, _ = lab.communicate()
        return lab.returncode, {line["way"]: line for line in map(json.loads, said.splitlines())}

    return run


@pytest.mark.parametrize(
    "call",
    [
        "layernorm --pass fwd",
        "layernorm --pass fwd --dtype bf16 --weight-dtype f32 --zero-centred yes",
        "layernorm --pass fwd --dtype f16 --y-dtype bf16 --offset 3 --row-stride 29",
        "layernorm --pass fwd --with residual+sum --dtype bf16 --dropout 0.3 --dropout-seed 7",
        "layernorm --pass fwd --dropout 0.3 --dtype f64 --threads 1",
        "rmsnorm --pass fwd --dtype f16 --y-dtype f32 --zero-centred yes --eps 0.1",
        "rmsnorm --pass fwd --with residual+sum",
        "rmsnorm --pass fwd --with sum --dropout 0.5 --y-dtype bf16",
        "layernorm --pass bwd --dtype bf16 --weight-dtype f32 --zero-centred yes",
        "layernorm --pass bwd --dtype f16 --y-dtype f32 --offset 1 --row-stride 31 --threads 1",
        "rmsnorm --pass bwd",
        "rmsnorm --pass fwd --with residual+sum --rows 0",
        "layernorm --pass bwd --dtype f64 --rows 0",
        "elementwise --kind add --dtype i32",
        "elementwise --kind add --dtype bf16 --offset 1 --row-stride 21",
        "elementwise --kind increment --dtype f16",
    ],
)
def test_every_way_gives_the_bits_of_the_lab(parity, call):
    status, lines = parity(call)
    assert status == 0
    expected = lines["C"]["outputs"]
    given = {name: bits for name, bits in expected.items() if name not in ("mean", "rstd")}
    assert [lines[name].get("outputs") for name in NAMES] == [given] * 3


@pytest.mark.parametrize(
    "call",
    [
        "layernorm --with grad_sum+grad_residual --dropout 0.3 --dropout-seed 5",
        "rmsnorm --with grad_residual --dropout 0.5 --dtype f16 --y-dtype f32",
        "rmsnorm --with grad_sum --zero-centred yes --dropout 0.1",
        "layernorm --with grad_sum --dtype bf16",
    ],
)
def test_gradients_of_sums_and_dropout_come_by_autograd(parity, call):
    status, lines = parity(f"{call} --pass bwd")
    assert status == 0
    assert lines["NumPy"]["declined"] == "isobit.numpy has no gradients of sums and dropout"
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
        monkeypatch.setattr(ways, "_gpu", lambda torch: "cpu")
    status, lines = parity(call)
    assert status == 0
    expected = lines["PyTorch eager"]["outputs"]
    assert [lines[name].get("outputs") for name in ON_CUDA] == [expected] * 2


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_its_ways_are_declined(parity):
    _, lines = parity("elementwise")
    for name in ON_CUDA:
        assert lines[name]["declined"] == "PyTorch finds no GPU"


@pytest.mark.parametrize("offset", [0, 3])
def test_copies_lie_as_the_tensors_do(offset):
    tensor = torch.arange(60).reshape(3, 20)[:, :7]
    copy = ways._copied(tensor, offset, "cpu")
    assert torch.equal(copy, tensor)
    assert (copy.stride(), copy.storage_offset()) == (tensor.stride(), offset)


def test_given_statistics_are_declined(parity):
    _, lines = parity("rmsnorm --pass bwd --statistics given")
    assert lines["C"]["outputs"]
    for name in NAMES:
        assert lines[name]["declined"] == "it finds mean and rstd by itself, which are given here"


def test_what_python_computes_wrongly_ends_in_status_1(parity, monkeypatch):
    def wrong(call):
        return {"y": np.zeros((3, 20), np.float32)}

    monkeypatch.setitem(ways.WAYS, "PyTorch eager", wrong)
    status, lines = parity("elementwise")
    assert status == 1
    assert lines["PyTorch eager"]["outputs"] != lines["NumPy"]["outputs"] == lines["C"]["outputs"]


def raising(error):
    def way(call):
        raise error

    return way


def test_a_way_that_fails_tells_the_error_and_hides_no_other(parity, monkeypatch):
    failure = RuntimeError("the compiler\nfailed\n\nand says it in many pages")
    monkeypatch.setitem(ways.WAYS, "NumPy", raising(failure))
    monkeypatch.setitem(sys.modules, "torch", None)
    status, lines = parity("elementwise")
    assert status == 0
    assert lines["NumPy"]["declined"] == "RuntimeError: the compiler failed"
    for name in NAMES[1:]:
        assert "torch" in lines[name]["declined"]
        assert lines[name]["declined"].endswith("; `isobit doctor` says more")


def test_a_way_without_one_of_its_outputs_is_no_result(parity, monkeypatch):
    monkeypatch.setitem(ways.WAYS, "NumPy", lambda call: {})
    _, lines = parity("elementwise")
    assert lines["NumPy"]["declined"] == "KeyError: 'y'"


def test_a_sum_that_zero_cannot_give_is_declined(tmp_path):
    case = {
        **{"op": "rmsnorm", "pass": "bwd", "cols": 2, "offset": 0, "row_stride": 2, "threads": 0},
        **{"dtype": "f32", "y_dtype": "f32", "eps": 1e-5, "zero_centred": "no"},
        **{"dropout": 0.5, "dropout_seed": 0, "outputs": ["grad_x", "grad_weight"]},
        "inputs": {"x": "f32", "grad_y": "f32", "weight": "f32"},
    }
    (tmp_path / "case.json").write_text(json.dumps(case))
    for name in ("x", "grad_y"):
        np.save(tmp_path / f"{name}.npy", np.array([[-0.0, 1]], np.float32))
    np.save(tmp_path / "weight.npy", np.ones(2, np.float32))
    for line in list(ways.compute(tmp_path))[1:3]:
        assert "lacks the NaNs and -0 of x" in line["declined"]


def test_an_operator_without_kinds_is_a_function_of_its_name(tmp_path):
    case = {"op": "negate", "pass": "fwd", "inputs": {"x": "f32"}, "outputs": ["y"], "threads": 0}
    (tmp_path / "case.json").write_text(json.dumps(case))
    library = SimpleNamespace(negate=lambda x: -x)
    assert ways.Call(tmp_path).forward(library, str)(x=1) == {"y": -1}


def states(capsys):
    """What doctor says, by the piece that it says it of."""
    assert ways.main([]) == 0
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
        assert what.endswith("`make build` makes .venv with it")
    assert said["isobit.numpy: libisobit.so is torn"] == "missing"
    assert state_of("isobit.torch: ", said)[1] == "missing"


@pytest.mark.parametrize("gpu", [False, True])
def test_doctor_says_which_operators_have_triton_versions(capsys, monkeypatch, gpu):
    triton = pytest.importorskip("triton")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: gpu)
    how = "on a GPU" if gpu else "interpreted, as PyTorch finds no GPU"
    what = f"Python's triton {triton.__version__}, for `--device triton`: elementwise, layernorm"
    assert states(capsys)[f"{what}; {how}"] == "ok"


def test_triton_without_pytorch_is_of_no_use(monkeypatch):
    pytest.importorskip("triton")
    monkeypatch.setitem(sys.modules, "torch", None)
    usable, what = ways._triton()
    assert not usable and "of no use here" in what


def test_doctor_repeats_why_an_adapter_does_not_load(capsys, monkeypatch):
    monkeypatch.setattr("isobit.torch.fast.missing", "it was not built")
    said = states(capsys)
    assert said["isobit.torch's short way for small calls: it was not built"] == "missing"
    assert state_of("isobit_torch_cuda.so", said)[1] == "ok" if torch.version.cuda else "missing"


@pytest.mark.parametrize(
    ("cuda", "failure", "expected"),
    [
        (None, None, (False, "this PyTorch was built without CUDA")),
        ("13.0", OSError("no such file"), (False, "no such file")),
        ("13.0", None, (True, "")),
    ],
)
def test_doctor_tells_whether_the_adapter_for_gpus_loads(cuda, failure, expected):
    load = raising(failure) if failure else lambda path: None
    fake = SimpleNamespace(
        version=SimpleNamespace(cuda=cuda), ops=SimpleNamespace(load_library=load)
    )
    usable, what = ways._cuda_adapter(fake)
    assert usable == expected[0]
    assert what.startswith("isobit_torch_cuda.so") and expected[1] in what


def test_a_wrong_call_is_told(capsys):
    assert ways.main(["a", "b"]) == 2
    assert "usage" in capsys.readouterr().err


def test_python_is_started_by_the_lab_and_by_its_doctor():
    lab = subprocess.run(
        [LAB, "parity", "rmsnorm", "--pass", "bwd", "--rows", "3", "--json"], capture_output=True
    )
    assert lab.returncode == 0
    lines = {line["way"]: line for line in map(json.loads, lab.stdout.splitlines())}
    assert [lines[name].get("outputs") for name in NAMES] == [lines["C"]["outputs"]] * 3
    doctor = subprocess.run([LAB, "doctor", "--json"], capture_output=True, text=True)
    assert doctor.returncode == 0
    said = {line["what"]: line["state"] for line in map(json.loads, doctor.stdout.splitlines())}
    assert said["rmsnorm bwd"] == state_of("isobit.torch, with", said)[1] == "ok"
