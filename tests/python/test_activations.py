# SPDX-License-Identifier: Apache-2.0
"""The activations in PyTorch and NumPy: equal bits, derivatives of every order, transforms."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import isobit.numpy
import isobit.torch
from isobit.torch.activations import CODES, FUNCTIONS

ALONE = {
    "exp": (isobit.torch.exp, torch.exp),
    "log": (isobit.torch.log, torch.log),
    "sigmoid": (isobit.torch.sigmoid, torch.sigmoid),
    "tanh": (isobit.torch.tanh, torch.tanh),
    "gelu": (isobit.torch.gelu, F.gelu),
    "gelu_tanh": (
        lambda x: isobit.torch.gelu(x, approximate="tanh"),
        lambda x: F.gelu(x, approximate="tanh"),
    ),
    "silu": (isobit.torch.silu, F.silu),
}


def drawn(*shape, dtype=torch.float64):
    generator = torch.Generator().manual_seed(1)
    return torch.rand(shape, generator=generator, dtype=torch.float64).add(0.2).to(dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_values_are_those_of_pytorch(name, dtype):
    ours, theirs = ALONE[name]
    x = drawn(5, 70, dtype=dtype) * 3
    torch.testing.assert_close(ours(x), theirs(x))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_derivatives_of_both_orders(name):
    x = (drawn(3, 4) * (1 if name == "log" else 4) - (0 if name == "log" else 2)).requires_grad_()
    ours, _ = ALONE[name]
    assert torch.autograd.gradcheck(ours, (x,), check_forward_ad=True)
    assert torch.autograd.gradgradcheck(ours, (x,))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_derivatives_of_gates_of_both_orders(name):
    x, gate = drawn(2, 3).requires_grad_(), drawn(2, 3).mul(2).requires_grad_()

    def gated(x, gate):
        return torch.ops.isobit.gated_activation(x, gate, CODES[name])

    assert torch.autograd.gradcheck(gated, (x, gate), check_forward_ad=True)
    assert torch.autograd.gradgradcheck(gated, (x, gate))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", ["sigmoid", "tanh", "gelu", "gelu_tanh", "silu"])
def test_second_derivatives_keep_their_digits_and_end_at_0(name, dtype):
    """Of numbers whose powers leave the range, too, and where 1 - tanh(x)^2 has no digits left."""

    def second(function, x):
        x = x.requires_grad_()
        (slope,) = torch.autograd.grad(function(x).sum(), x, create_graph=True)
        return torch.autograd.grad(slope.sum(), x)[0]

    ours, theirs = ALONE[name]
    few = 1e4 * torch.finfo(dtype).eps if dtype == torch.float32 else 1e-6
    most = 5.0 if name == "gelu_tanh" else 9.0  # beyond it PyTorch's in float64 have none
    near = torch.tensor([1e-5, -1e-5, 0.3, -3.0, most, -most], dtype=dtype)
    expected = second(theirs, near.double())
    torch.testing.assert_close(second(ours, near).double(), expected, rtol=few, atol=0)
    far = [sign * size for size in (1e10, 1e30, torch.inf) for sign in (1, -1)]
    assert second(ours, torch.tensor(far, dtype=dtype)).abs().max() == 0


def test_third_derivatives_of_silu():
    x = drawn(4).requires_grad_()
    results = []
    for function in (isobit.torch.silu, F.silu):
        value = function(x).sum()
        for _ in range(3):
            (value,) = torch.autograd.grad(value.sum(), x, create_graph=True)
        results.append(value)
    torch.testing.assert_close(*results)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_opcheck(name):
    x = drawn(3, 8, dtype=torch.float32).requires_grad_()
    torch.library.opcheck(torch.ops.isobit.activation.default, (x, CODES[name]))
    gate = drawn(3, 8, dtype=torch.float32).requires_grad_()
    torch.library.opcheck(torch.ops.isobit.gated_activation.default, (x, gate, CODES[name]))


def test_vmap_gives_the_bits_of_each_sample():
    x, gate = drawn(3, 5, 7, dtype=torch.float32), drawn(3, 5, 7, dtype=torch.float32)
    assert torch.equal(torch.vmap(isobit.torch.gelu)(x), isobit.torch.gelu(x))
    assert torch.equal(torch.vmap(isobit.torch.swiglu)(gate, x), isobit.torch.swiglu(gate, x))


def test_compiled_without_a_graph_break():
    @torch.compile(fullgraph=True, backend="aot_eager")
    def both(gate, up):
        return isobit.torch.swiglu(gate, up) + isobit.torch.gelu(up, approximate="tanh")

    x, gate = drawn(4, 9, dtype=torch.float32), drawn(4, 9, dtype=torch.float32)
    expected = isobit.torch.swiglu(gate, x) + isobit.torch.gelu(x, approximate="tanh")
    assert torch.equal(both(gate, x), expected)


def test_silu_in_place():
    x = drawn(6, dtype=torch.float32)
    y = isobit.torch.silu(x)
    assert isobit.torch.silu(x, inplace=True) is x
    assert torch.equal(x, y)


def test_modules_are_functions():
    x, gate = drawn(3, 4, dtype=torch.float32), drawn(3, 4, dtype=torch.float32)
    t = isobit.torch
    for module, function in (
        (t.GELU("tanh"), lambda x: t.gelu(x, approximate="tanh")),
        (t.SiLU(), t.silu),
        (t.Sigmoid(), t.sigmoid),
        (t.Tanh(), t.tanh),
    ):
        assert torch.equal(module(x), function(x))
    assert torch.equal(t.SwiGLU()(gate, x), t.swiglu(gate, x))
    assert torch.equal(t.GeGLU("tanh")(gate, x), t.geglu(gate, x, approximate="tanh"))


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
def test_numpy_gives_the_bits_of_pytorch(dtype):
    x = np.linspace(0.1, 9, 501).astype(dtype)
    gate = x[::-1].copy()
    for name in ("exp", "log", "sigmoid", "tanh", "gelu", "silu"):
        ours = getattr(isobit.torch, name)(torch.from_numpy(x)).numpy()
        assert np.array_equal(getattr(isobit.numpy, name)(x), ours)
    ours = isobit.torch.geglu(torch.from_numpy(gate), torch.from_numpy(x)).numpy()
    assert np.array_equal(isobit.numpy.geglu(gate, x), ours)


def test_an_unknown_approximation_is_refused():
    x = np.ones(3, np.float32)
    for function, given in ((isobit.numpy.gelu, x), (isobit.torch.gelu, torch.from_numpy(x))):
        with pytest.raises(ValueError, match="allowed: 'none', 'tanh'"):
            function(given, approximate="erf")
