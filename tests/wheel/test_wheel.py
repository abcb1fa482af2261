# SPDX-License-Identifier: Apache-2.0
"""What tools/wheel made, installed where there is nothing else of the checkout."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from environments import COMPILERS, Environment

ROOT = Path(__file__).resolve().parents[2]
TESTS = ROOT / "tests" / "python"
NOWHERE = "/dev/null/home"  # a folder that not even root can make
NORM = """
import numpy as np
from isobit.numpy import layer_norm
print(layer_norm(np.arange(6, dtype=np.float32).reshape(2, 3), 3).tobytes().hex())
"""
NORM_BITS = "23c49cbf0000000023c49c3f" * 2  # -0x1.398846p+0, 0, 0x1.398846p+0
TRAINING = """
import torch, isobit.torch
norm = isobit.torch.LayerNorm(3)
x = torch.arange(6.0).reshape(2, 3).requires_grad_()
y = norm(x)
y.pow(3).sum().backward()
assert norm.weight.grad.isfinite().all() and not torch.cuda.is_initialized()
print(y.detach().numpy().tobytes().hex())
"""


@pytest.fixture(scope="session")
def wheel():
    (file,) = (ROOT / "dist").glob("isobit-*.whl")
    return file


@pytest.fixture(scope="session")
def without_torch(tmp_path_factory, wheel):
    environment = Environment(tmp_path_factory.mktemp("numpy") / "env", "numpy")
    environment.pip_install(wheel)
    return environment


@pytest.fixture(scope="session")
def with_torch(tmp_path_factory, wheel):
    tools = ("pytest", "hypothesis", "ml_dtypes")
    environment = Environment(tmp_path_factory.mktemp("torch") / "env", "numpy", "torch", *tools)
    environment.pip_install(wheel)
    return environment


def test_audit_finds_nothing():
    command = [sys.executable, ROOT / "tools" / "wheel_audit.py"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_import_loads_nothing(without_torch):
    done = without_torch.python(
        "import isobit, isobit.numpy; assert 'libisobit' not in open('/proc/self/maps').read();"
        f"assert isobit.__version__ == {(ROOT / 'VERSION').read_text().strip()!r};"
        "print(isobit.__file__)"
    )
    assert done.returncode == 0, done.stderr
    assert str(without_torch.folder) in done.stdout


@pytest.mark.parametrize("variables", [{}, {"HOME": NOWHERE}, {"PATH": "/nowhere"}], ids=str)
def test_numpy_and_the_lab_work_without_torch(without_torch, variables):
    done = without_torch.python(NORM, **variables)
    assert done.stdout.strip() == NORM_BITS, done.stderr
    for command in (
        "list",
        "info",
        "verify elementwise --rows 3 --cols 100",
        "parity layernorm --rows 5 --cols 300",
        "verify rmsnorm --device emu --rows 3 --cols 100",
    ):
        done = without_torch.run("isobit", *command.split(), **variables)
        assert done.returncode == 0, command + "\n" + done.stdout + done.stderr


@pytest.mark.parametrize("variables", [{}, {"HOME": NOWHERE}], ids=str)
def test_doctor_explains_every_missing_piece(without_torch, variables):
    done = without_torch.run("isobit", "doctor", "--json", **variables)
    assert done.returncode == 0, done.stderr
    said = [json.loads(line) for line in done.stdout.splitlines()]
    assert {line["state"] for line in said} == {"ok", "missing"}
    missing = " ".join(line["what"] for line in said if line["state"] == "missing")
    for piece in ("torch", "triton", "matplotlib", "ml_dtypes", "peer onednn"):
        assert piece in missing
    assert "pip install torch" in missing
    assert "make build" not in missing  # there is nothing to make


def test_tune_says_where_it_cannot_write(without_torch):
    flags = ["--rows", "64", "--cols", "64", "--pass", "fwd"]
    done = without_torch.run("isobit", "tune", "layernorm", *flags, HOME=NOWHERE)
    assert done.returncode != 0
    assert NOWHERE in done.stderr


def test_without_torch_isobit_torch_says_what_brings_it(without_torch):
    done = without_torch.python("import isobit.torch")
    assert "ImportError: isobit.torch needs PyTorch" in done.stderr
    assert "pip install" in done.stderr


def test_without_numpy_isobit_says_what_brings_it(tmp_path, wheel):
    environment = Environment(tmp_path / "env")
    environment.pip_install("--no-deps", wheel)
    assert "No module named 'numpy'" in environment.python("import isobit.numpy").stderr
    assert environment.run("isobit", "verify", "elementwise", "--cols", "9").returncode == 0


@pytest.mark.parametrize("variables", [{}, {"HOME": NOWHERE, "PATH": "/nowhere"}], ids=str)
def test_torch_works_without_compiler_or_home(with_torch, variables):
    done = with_torch.python(TRAINING, **variables)
    assert done.stdout.strip() == NORM_BITS, done.stderr


def test_torch_tests_pass_on_what_is_installed(with_torch):
    names = ("functional", "modules", "autograd", "fast", "adapters", "memory")
    files = [TESTS / f"test_torch_{name}.py" for name in names]
    options = ["-q", "-p", "no:cacheprovider", "--rootdir", with_torch.folder]
    done = with_torch.run("python", "-m", "pytest", *options, *files, TESTS / "test_numpy.py")
    assert done.returncode == 0, done.stdout[-4000:]


def test_built_without_torch_isobit_torch_says_what_makes_it(tmp_path, wheel):
    environment = Environment(tmp_path / "env", "numpy", "torch")
    environment.pip_install(wheel)
    for adapter in environment.site.glob("isobit/native/*torch*.so"):
        adapter.unlink()
    done = environment.python("import isobit.torch")
    assert "ImportError: isobit.torch: isobit_torch_cpu.so was not found next to" in done.stderr
    assert "`pip install --no-build-isolation .`" in done.stderr
    assert environment.python(NORM).stdout.strip() == NORM_BITS


def other_pythons():
    names = (f"python3.{minor}" for minor in range(10, 16))
    paths = {shutil.which(name) for name in names} - {None}
    paths |= set(map(str, Path.home().glob(".pyenv/versions/3.1[0-9].*/bin/python3")))
    return sorted(paths)


@pytest.mark.parametrize("python", other_pythons())
def test_one_wheel_for_every_python(tmp_path, wheel, python):
    try:
        environment = Environment(tmp_path / "env", python=python)
    except subprocess.CalledProcessError:
        pytest.skip(f"{python} makes no environments")
    environment.pip_install("--no-deps", wheel)
    call = (
        "from isobit import c_abi; import ctypes; a = (ctypes.c_float * 2)(1, 2);"
        "t = c_abi.Tensor(ctypes.addressof(a), 8, 1, 1, (2,), (1,));"
        "c_abi.call('elementwise', 'fwd', x=t, y=t, kind='increment'); print(a[0], a[1])"
    )
    done = environment.python(call)
    assert done.stdout.strip() == "2.0 3.0", done.stderr
    assert environment.run("isobit", "list").returncode == 0


def test_editable_installation_is_the_checkout(tmp_path, monkeypatch):
    environment = Environment(tmp_path / "env", "numpy", "scikit-build-core")
    # pip 23 keeps --config-settings from what is editable
    monkeypatch.setenv("SKBUILD_CMAKE_DEFINE", "ISOBIT_CUDA_ARCHITECTURES=none")
    environment.pip_install("--no-build-isolation", "--no-deps", "-e", ROOT)
    done = environment.python("import isobit; print(isobit.__file__)")
    assert done.stdout.strip() == str(ROOT / "python" / "isobit" / "__init__.py"), done.stderr
    assert environment.python(NORM).stdout.strip() == NORM_BITS
    assert environment.run("isobit", "list").returncode == 0


def test_sdist_builds_and_works(tmp_path):
    (sdist,) = (ROOT / "dist").glob("isobit-*.tar.gz")
    shutil.unpack_archive(sdist, tmp_path, filter="data")
    (source,) = tmp_path.glob("isobit-*")
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "wheel", "--quiet"]
    command += ["--no-index", "--no-deps", "--no-build-isolation", "--wheel-dir", tmp_path]
    command += ["--config-settings", "cmake.define.ISOBIT_CUDA_ARCHITECTURES=none", source]
    env = COMPILERS | dict(os.environ) | {"CCACHE_BASEDIR": str(source)}
    subprocess.run(command, check=True, env=env)
    (wheel,) = tmp_path.glob("*.whl")
    environment = Environment(tmp_path / "env", "numpy", "torch")
    environment.pip_install(wheel)
    assert environment.python(TRAINING).stdout.strip() == NORM_BITS
