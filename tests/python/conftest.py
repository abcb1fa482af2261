# SPDX-License-Identifier: Apache-2.0
"""What the tests of several files are given."""

import importlib
import sys
import unittest
from types import SimpleNamespace

import pytest


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
