# SPDX-License-Identifier: Apache-2.0
"""What the tests of several files are given."""

import collections
import importlib
import os
import subprocess
import sys
import unittest
from types import SimpleNamespace

import pytest
import untraced

# PyTorch's threads sleep while they wait: beside other workers and compilers they would spin, which
# takes several times the processor's time of what they compute. It is read as PyTorch is imported.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
# Inductor starts no processes beside each of ours, which import PyTorch to compile Triton for GPUs.
os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")
# What it writes around our operators is compiled for one lane, which takes less time: how fast that
# code is matters to no test, and its bits only where they are those of any code.
os.environ.setdefault("TORCHINDUCTOR_VEC_ISA_OK", "0")


ONE_IN = 3  # as C++ tests have it in `make test`
# Files begin in this order, then the others: no worker waits long for the last file of the other.
LONGEST = (
    *("test_triton", "test_torch_compile", "test_callers", "test_triton_lab"),
    *("test_triton_channel_norms", "test_train_gpt_distributed", "test_triton_elements"),
    *("test_triton_norms", "test_triton_attention", "test_reproducible_example", "test_ptx"),
    *("test_torch_sharding", "test_torch_parallel", "test_torch_data_parallel"),
    *("test_triton_softmax", "test_bench_torch", "test_new_operator", "test_triton_convolution"),
    *("test_torch_promises", "test_docs_code", "test_cpp_package", "test_bench_training"),
)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    items.sort(key=lambda item: [*LONGEST, item.path.stem].index(item.path.stem))
    thin(items)


def thin(items):
    """Of the cases of a test that is marked `repeats`, all but one in so many are `full`: those on
    the diagonals of its parameters stay, so every value of each stays somewhere."""
    known = collections.defaultdict(list)
    for item in items:
        if item.get_closest_marker("repeats"):
            diagonal = 0
            for names, *_ in (mark.args for mark in item.iter_markers("parametrize")):
                each = names.split(", ") if isinstance(names, str) else names
                value = [id(item.callspec.params[name]) for name in each]
                values = known[item.parent, item.originalname, str(names)]
                if value not in values:
                    values.append(value)
                diagonal += values.index(value)
            if diagonal % ONE_IN:
                item.add_marker("full")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call():
    untraced.while_dynamo_compiles()
    return (yield)


@pytest.fixture(scope="session")
def internal():
    """PyTorch's own lists of tests: what they import and change for themselves is put back."""
    import torch

    absent = "expecttest" not in sys.modules and importlib.util.find_spec("expecttest") is None
    if absent:  # it gives PyTorch's test cases their base and nothing else
        sys.modules["expecttest"] = SimpleNamespace(TestCase=unittest.TestCase)
    try:
        methods = importlib.import_module("torch.testing._internal.common_methods_invocations")
        modules = importlib.import_module("torch.testing._internal.common_modules")
    except ImportError as error:
        pytest.skip(f"PyTorch's lists of tests cannot be imported: {error}")
    finally:
        if absent:
            del sys.modules["expecttest"]
        setattr(torch.backends, "__allow_nonbracketed_mutation_flag", True)
    operators = {info.name: info for info in methods.op_db + methods.python_ref_db}
    return SimpleNamespace(
        operators=operators, modules={info.module_cls: info for info in modules.module_db}
    )


@pytest.fixture(scope="module")
def one_thread():
    """Of PyTorch, for small tensors: at their sizes threads take longer to meet than to compute."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def interpreted(request, tmp_path_factory):
    """The arrays of those calls of the module that tests ask for, as Triton's interpreter leaves
    them; see triton_interpreted.py."""
    import torch

    file = request.module.__file__
    asking = [
        item
        for item in request.session.items
        if str(item.path) == file and "interpreted" in item.fixturenames
    ]
    wanted = {item.callspec.params["name"] for item in asking if hasattr(item, "callspec")}
    wanted |= set(getattr(request.module, "INTERPRETED_TOO", ()))
    folder = tmp_path_factory.mktemp("triton")
    torch.save(sorted(wanted), folder / "wanted.pt")
    interpreting = os.environ | {"TRITON_INTERPRET": "1", "PYTHONWARNINGS": "ignore"}
    # To trace it takes three times as long; test_triton_lab.py executes most of the same lines.
    interpreting.pop("COVERAGE_PROCESS_CONFIG", None)
    files = [folder / "wanted.pt", folder / "results.pt"]
    subprocess.run([sys.executable, file, *files], env=interpreting, check=True)
    return torch.load(files[1])
