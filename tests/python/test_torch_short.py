# SPDX-License-Identifier: Apache-2.0
"""What may take the short way to an operator, and that it leads to the same results."""

import os
import subprocess
import sys

import pytest
import torch
from torch.autograd import forward_ad
from torch.utils._python_dispatch import TorchDispatchMode
from torch_calls import bits, draw

import isobit.torch as isobit
from isobit.torch import derived, fast

X = draw(3, 5)


class Own(torch.Tensor):
    pass


# What stands beside X, and how a call of both stands.
BESIDE = {
    "nothing": (None, fast.PLAIN),
    "another shape and type": (torch.arange(4), fast.PLAIN),
    "a number": (torch.tensor(1.0), fast.PLAIN),
    "flags": (X > 0, fast.PLAIN),
    "no elements": (X[:0], fast.PLAIN),
    "columns apart": (X.t(), fast.PLAIN),
    "a parameter": (torch.nn.Parameter(X.clone()), fast.RECORDED),
    "a parameter at rest": (torch.nn.Parameter(X.clone(), requires_grad=False), fast.PLAIN),
    "what requires a gradient": (draw(2, requires_grad=True), fast.RECORDED),
    "on another device": (X.to("meta"), fast.OTHER),
    "a subclass": (X.as_subclass(Own), fast.OTHER),
    "a sparse tensor": (X.to_sparse(), fast.OTHER),
    "a nested tensor": (torch.nested.nested_tensor([X, X], layout=torch.jagged), fast.OTHER),
    "one of rows of its own": (torch.nested.nested_tensor([X, X]), fast.OTHER),
    "a list": ([1.0], fast.OTHER),
}
BOTH = pytest.mark.parametrize("standing", [fast.standing, fast._standing], ids=["C", "Python"])


@BOTH
@pytest.mark.parametrize("what", BESIDE)
def test_tensors_say_how_a_call_stands(standing, what):
    other, expected = BESIDE[what]
    assert standing((X, 1.0, other), (0, 2)) == expected
    assert standing((other, 1.0, X), (0, 2)) == expected
    with torch.no_grad():
        least = min(expected, fast.PLAIN)
        assert standing((X, 1.0, other), (0, 2)) == least


@BOTH
def test_what_is_no_tensor_does_not_matter(standing):
    assert standing((X, [1.0], None), (0, 2)) == fast.PLAIN
    assert standing((None, 2), (0,)) == fast.PLAIN


class Watching(TorchDispatchMode):
    def __torch_dispatch__(self, function, types, arguments=(), more=None):
        return function(*arguments, **(more or {}))


@BOTH
@pytest.mark.parametrize(
    "mode",
    [
        Watching,
        torch.overrides.TorchFunctionMode,
        torch.profiler.profile,
        forward_ad.dual_level,
        lambda: torch.autocast("cpu"),
    ],
    ids=["dispatch", "function", "profiler", "forward", "autocast"],
)
def test_nothing_is_plain_where_somebody_watches(standing, mode):
    with mode():
        assert standing((X,), (0,)) == fast.OTHER
    assert standing((X,), (0,)) == fast.PLAIN


@BOTH
def test_nothing_is_plain_within_transforms(standing):
    seen = []

    def call(x):
        seen.append(standing((x,), (0,)))
        return x.sum()

    torch.vmap(call)(X)
    torch.func.grad(call)(draw(5))
    torch.jit.trace(call, X, check_trace=False)
    assert seen == [fast.OTHER] * 3


def test_nonsense_is_not_plain():
    standing = fast._module.standing
    assert [standing(), standing(1, 2), standing((X,), (7,))] == [fast.OTHER] * 3


INDEX = torch.tensor([3, 0, 3])
WEIGHT, BIAS = draw(4, 5, seed=1), draw(4, seed=2)
CALLS = {
    "mm": (lambda x, w, b: isobit.mm(x, w.t()), X),
    "bmm": (lambda x, w, b: isobit.bmm(x, x.mT), draw(2, 3, 5)),
    "matmul": (lambda x, w, b: isobit.matmul(x, w.t(), bias=b), X),
    "matmul of a batch": (lambda x, w, b: isobit.matmul(x, w.t()), draw(2, 3, 5)),
    "matmul with an activation": (
        lambda x, w, b: isobit.matmul(x, w.t(), bias=b, activation="gelu"),
        X,
    ),
    "linear": (isobit.linear, X),
    "linear of one row": (isobit.linear, X[0]),
    "linear of a batch": (isobit.linear, draw(2, 3, 5)),
    "linear of none": (isobit.linear, draw(2, 0, 5)),
    "softmax": (lambda x, w, b: isobit.softmax(x, -1), X),
    "softmax of columns": (lambda x, w, b: isobit.softmax(x, 0), X),
    "log_softmax": (lambda x, w, b: isobit.log_softmax(x, 1), X),
    "embedding": (lambda x, w, b: isobit.embedding(INDEX, w) * x, X),
    "embedding with padding": (lambda x, w, b: isobit.embedding(INDEX, w, 0) * x, X),
    "cross_entropy": (lambda x, w, b: isobit.cross_entropy(isobit.linear(x, w, b), INDEX), X),
    "cross_entropy of each": (
        lambda x, w, b: isobit.cross_entropy(x, INDEX, reduction="none", label_smoothing=0.1),
        X,
    ),
    "batch_norm": (lambda x, w, b: isobit.batch_norm(x, None, None, training=True), X),
    "max_pool2d": (lambda x, w, b: isobit.max_pool2d(x, 3, 2, padding=1), draw(2, 3, 6, 5)),
    "avg_pool2d": (lambda x, w, b: isobit.avg_pool2d(x, 2, ceil_mode=True), draw(2, 3, 6, 5)),
    "gelu": (lambda x, w, b: isobit.gelu(x), X),
}


def results_of(name, recorded):
    function, x = CALLS[name]
    given = [each.clone().requires_grad_(recorded) for each in (x, WEIGHT, BIAS)]
    y = function(*given)
    assert y.requires_grad == recorded
    if not recorded:
        return y.shape, y.stride(), bits(y)
    y.sum().backward()
    grads = [each.grad for each in given if each.grad is not None]
    return y.shape, y.stride(), bits(y.detach(), *grads)


@pytest.mark.parametrize("recorded", [False, True], ids=["plain", "recorded"])
@pytest.mark.parametrize("name", CALLS)
def test_all_ways_give_the_same(name, recorded, monkeypatch):
    expected = results_of(name, recorded)
    for another in (derived._call, lambda record, arguments: None):
        monkeypatch.setattr(derived, "_shortly", another)
        assert results_of(name, recorded) == expected


WITHOUT_THE_MODULE = """
from importlib.machinery import ExtensionFileLoader

def refuse(loader, module, load=ExtensionFileLoader.exec_module):
    if loader.name == "_isobit_fast":
        raise ImportError("it is another Python's")
    return load(loader, module)

ExtensionFileLoader.exec_module = refuse
import test_torch_short
from isobit.torch import derived, fast

assert fast._module is None and "another" in fast.missing
assert fast.standing is fast._standing and derived._shortly is derived._call
for name in test_torch_short.CALLS:
    print(name, test_torch_short.results_of(name, True), sep=": ")
"""


def test_python_gives_the_same_without_the_module():
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", WITHOUT_THE_MODULE]
    said = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    assert said.stdout.splitlines() == [f"{name}: {results_of(name, True)}" for name in CALLS]


@pytest.mark.parametrize("wanted", ["x", "w", "b", "xw", "xb", "wb", "xwb"])
def test_only_gradients_that_are_wanted_are_made(wanted, monkeypatch):
    def gradients():
        named = {"x": X, "w": WEIGHT, "b": BIAS}
        given = [each.clone().requires_grad_(name in wanted) for name, each in named.items()]
        isobit.linear(*given).sum().backward()
        assert [each.grad is not None for each in given] == [name in wanted for name in named]
        return bits(*(each.grad for each in given if each.grad is not None))

    shortly = gradients()
    monkeypatch.setattr(derived, "_shortly", lambda record, arguments: None)
    assert gradients() == shortly


def test_gradients_are_differentiated_again_by_all_ways(monkeypatch):
    def second():
        x = X.clone().requires_grad_()
        (first,) = torch.autograd.grad(isobit.softmax(x, -1).pow(2).sum(), x, create_graph=True)
        return bits(*torch.autograd.grad(first.pow(2).sum(), x))

    shortly = second()
    monkeypatch.setattr(derived, "_shortly", lambda record, arguments: None)
    assert second() == shortly


class Refused(Exception):
    pass


def test_what_a_hook_raises_is_not_taken_for_a_refusal():
    """PyTorch's checkpoints end what they compute again so."""

    def refuse(_tensor):
        raise Refused

    x = X.clone().requires_grad_()
    with (
        torch.autograd.graph.saved_tensors_hooks(refuse, lambda kept: kept),
        pytest.raises(Refused),
    ):
        isobit.softmax(x, -1)


def test_python_answers_where_the_module_is_another(monkeypatch):
    monkeypatch.setattr(fast, "missing", "")
    monkeypatch.setattr(fast, "_module", object())
    assert fast.connect_records(None, None, None, None, derived._call) is derived._call
    assert "connect_records" in fast.missing
