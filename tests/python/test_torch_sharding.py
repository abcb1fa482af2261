# SPDX-License-Identifier: Apache-2.0
"""DTensors go through Isobit's operators with the bits of one rank, and no more collectives than
PyTorch's norms need. Whoever imports DTensor, first or last, finds the operators known to it."""

import importlib.util
import subprocess
import sys

import pytest
import torch_ranks
import torch_sharding_cases

from isobit.torch import sharding


@pytest.fixture(scope="module")
def outcomes(request):
    return torch_ranks.outcomes(request, torch_sharding_cases)


@pytest.mark.parametrize(("ranks", "name"), torch_sharding_cases.CASES.parameters())
def test_in_several_ranks(outcomes, ranks, name):
    assert not outcomes[ranks, name], outcomes[ranks, name]


LATE = """
import sys
import torch
import isobit.torch
from isobit.torch.adapters import NAMES

assert "torch.distributed.tensor" not in sys.modules
from torch.distributed.tensor import DTensor

known = DTensor._op_dispatcher.sharding_propagator.op_strategy_funcs
for name in NAMES:
    for each in (name, "_" + name):
        assert getattr(torch.ops.isobit, each).default in known, each
"""


def test_importing_isobit_does_not_import_dtensor_which_knows_it_all_the_same():
    subprocess.run([sys.executable, "-c", LATE], check=True, timeout=300)


@pytest.fixture
def late(monkeypatch, tmp_path):
    """A module that nobody has imported, in the place of DTensor, and when it was registered."""
    registered = []
    (tmp_path / "late_module.py").write_text("import probing_for_errors\nready = True\n")
    (tmp_path / "probing_for_errors.py").write_text("")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    monkeypatch.setattr(sharding, "_DTENSOR", "late_module")
    monkeypatch.setattr(
        sharding, "register", lambda: registered.append(sys.modules["late_module"].ready)
    )
    yield registered
    for name in ("late_module", "probing_for_errors"):
        sys.modules.pop(name, None)


def test_operators_are_registered_once_the_module_is_there(late):
    finders = len(sys.meta_path)
    sharding.register_when_imported()
    assert importlib.util.find_spec("late_module") and importlib.util.find_spec("json")
    assert importlib.util.find_spec("no_such_module") is None and late == []
    import late_module

    assert late == [True] and late_module.ready and len(sys.meta_path) == finders
    importlib.reload(late_module)
    assert late == [True]


def test_a_module_that_is_there_already_is_told_at_once(late):
    import late_module  # noqa: F401

    sharding.register_when_imported()
    assert late == [True]


def test_an_import_that_fails_may_be_tried_again(late, monkeypatch):
    sharding.register_when_imported()
    monkeypatch.setitem(sys.modules, "probing_for_errors", None)
    with pytest.raises(ImportError):
        import late_module
    assert late == []
    monkeypatch.delitem(sys.modules, "probing_for_errors")
    import late_module  # noqa: F401

    assert late == [True]


def test_a_pytorch_without_a_place_for_rules_is_told_of(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch.distributed.tensor.experimental", None)
    with pytest.warns(UserWarning, match=r"isobit\.torch will not take DTensors"):
        sharding.register()
