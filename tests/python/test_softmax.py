# SPDX-License-Identifier: Apache-2.0
"""softmax and log_softmax in PyTorch and NumPy: PyTorch's own samples, masks, derivatives of every
order, transforms, and rows on which others lose their digits."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import isobit.numpy
import isobit.torch

REALS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
BOTH = {
    "softmax": (isobit.torch.softmax, torch.softmax),
    "log_softmax": (isobit.torch.log_softmax, torch.log_softmax),
}

NOTHING = {"softmax": 0.0, "log_softmax": -torch.inf}  # where there is no element


def drawn(*shape, dtype=torch.float64):
    generator = torch.Generator().manual_seed(1)
    return torch.randn(shape, generator=generator, dtype=torch.float64).mul(2).to(dtype)


@pytest.mark.parametrize("dtype", REALS)
@pytest.mark.parametrize("name", BOTH)
def test_values_and_gradients_of_pytorchs_samples(internal, name, dtype):
    ours, theirs = BOTH[name]
    samples = list(internal.operators[name].sample_inputs("cpu", dtype, requires_grad=True))
    assert samples
    for sample in samples:
        x = sample.input
        y, reference = (f(x, *sample.args, **sample.kwargs) for f in (ours, theirs))
        assert y.stride() == reference.stride()
        torch.testing.assert_close(y, reference)
        into = torch.randn_like(y)
        found, expected = (torch.autograd.grad(each, x, into) for each in (y, reference))
        torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("name", BOTH)
@pytest.mark.parametrize("masked", [False, True])
def test_derivatives_of_both_orders(name, masked):
    ours, _ = BOTH[name]
    x = drawn(3, 5).requires_grad_()
    mask = torch.tensor([[True, True, False, True, True], [True] * 5, [False] * 5])

    def of_rows(x):
        y = ours(x, -1, mask=mask if masked else None, scale=0.7)
        return y.masked_fill(~mask, 0) if masked else y  # -inf has no difference quotients

    assert torch.autograd.gradcheck(of_rows, (x,), check_forward_ad=True)
    assert torch.autograd.gradgradcheck(of_rows, (x,))


@pytest.mark.parametrize("name", BOTH)
def test_forward_mode_over_backward(name):
    ours, theirs = BOTH[name]
    x, factors = drawn(6), drawn(6)
    found, expected = (
        torch.func.hessian(lambda x, f=f: (f(x, 0) * factors).sum().sin())(x)
        for f in (ours, theirs)
    )
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("dtype", REALS)
@pytest.mark.parametrize("name", BOTH)
def test_masked_elements_are_not_there(name, dtype):
    ours, theirs = BOTH[name]
    x = drawn(2, 3, 7, dtype=dtype)
    mask = torch.tensor([True, False, True, True, False, True, True])
    beside = x.clone()
    beside[..., ~mask] = torch.tensor([torch.nan, torch.inf], dtype=dtype)
    beside.requires_grad_()
    y = ours(beside, -1, mask=mask)
    rest = x[..., mask].double().requires_grad_()
    expected = theirs(rest, -1)
    torch.testing.assert_close(y[..., mask], expected.to(dtype))
    assert torch.equal(y[..., ~mask], torch.full_like(y[..., ~mask], NOTHING[name]))
    into = drawn(2, 3, 7, dtype=dtype)
    (found,) = torch.autograd.grad(y, beside, into)
    (truth,) = torch.autograd.grad(expected, rest, into[..., mask].double())
    digits = {torch.float16: 8, torch.bfloat16: 5}.get(dtype, 20)  # y was rounded to its type
    near = {"rtol": 2.0**-digits, "atol": 2.0**-digits / 64}
    torch.testing.assert_close(found[..., mask], truth.to(dtype), **near)
    assert not found[..., ~mask].any()


@pytest.mark.parametrize("name", BOTH)
def test_a_row_without_elements_is_nothing_and_one_of_infinities_nan(name):
    ours, _ = BOTH[name]
    nothing = ours(torch.full((4,), torch.nan), 0, mask=torch.zeros(4, dtype=torch.bool))
    assert torch.equal(nothing, torch.full((4,), NOTHING[name]))
    assert ours(torch.full((4,), -torch.inf), 0).isnan().all()
    assert ours(torch.tensor([1.0, torch.inf]), 0).isnan().all()


@pytest.mark.parametrize("name", BOTH)
def test_rows_far_from_zero_keep_their_digits(name):
    ours, theirs = BOTH[name]
    for x in (
        torch.linspace(-100, 0, 300) + 1e6,
        torch.linspace(0, 1, 300) * 3e38,
        torch.linspace(-80, 80, 1000),
    ):
        truth = theirs(x.double(), 0)
        error = (ours(x, 0).double() - truth).abs() / truth.abs().clamp(min=2.0**-126)
        assert error.max() < 4 * 2.0**-23


@pytest.mark.parametrize("name", BOTH)
def test_a_row_has_its_bits_alone_by_threads_in_numpy_compiled_and_under_vmap(name):
    ours, _ = BOTH[name]
    x = drawn(300, 130, dtype=torch.float32)
    y = ours(x, -1)
    assert all(torch.equal(ours(x[i], 0), y[i]) for i in (0, 7, 299))
    assert torch.equal(torch.vmap(lambda row: ours(row, 0))(x), y)
    assert torch.equal(torch.compile(lambda x: ours(x, -1), fullgraph=True)(x), y)
    assert np.array_equal(getattr(isobit.numpy, name)(x.numpy()), y.numpy())
    assert torch.equal(ours(x.t(), 0), y.t())
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(3)
        assert torch.equal(ours(x, -1), y)
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("name", BOTH)
def test_16_bits_may_have_results_of_32(name):
    ours, theirs = BOTH[name]
    x = drawn(5, 40, dtype=torch.bfloat16).requires_grad_()
    y = ours(x, -1, dtype=torch.float32)
    assert torch.equal(y, ours(x.detach().float(), -1))
    (found,) = torch.autograd.grad(y, x, drawn(5, 40, dtype=torch.float32))
    reference = theirs(x, -1, dtype=torch.float32)
    (expected,) = torch.autograd.grad(reference, x, drawn(5, 40, dtype=torch.float32))
    assert found.dtype == torch.bfloat16
    torch.testing.assert_close(found, expected)
    assert ours(x, -1, dtype=torch.float64).dtype == torch.float64


def test_modules_take_the_places_of_pytorchs():
    x = drawn(2, 3, 4, dtype=torch.float32)
    for ours, theirs in (
        (isobit.torch.Softmax, torch.nn.Softmax),
        (isobit.torch.LogSoftmax, torch.nn.LogSoftmax),
    ):
        assert issubclass(ours, theirs)
        torch.testing.assert_close(ours(dim=1)(x), theirs(dim=1)(x))
        with pytest.warns(UserWarning, match="Implicit dimension"):
            assert torch.equal(ours()(x), ours(dim=0)(x))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x: isobit.torch.softmax(x, 3), "softmax: dim is 3; allowed: -2 to 1"),
        (lambda x: isobit.torch.softmax(x.int(), 1), "softmax: input has dtype torch.int32"),
        (lambda x: isobit.torch.softmax(x, 1, scale=0.0), "scale is 0; must be another number"),
        (lambda x: isobit.torch.softmax(x, 1, scale=torch.inf), "scale is inf"),
        (
            lambda x: isobit.torch.log_softmax(x, 1, mask=torch.ones(3, dtype=torch.bool)),
            r"log_softmax: mask has shape \(3,\), which does not expand to that of input, \(2, 4\)",
        ),
        (
            lambda x: isobit.torch.softmax(x, 1, mask=torch.ones(4)),
            "softmax: mask has dtype torch.float32; must be bool or uint8",
        ),
        (lambda x: isobit.torch.softmax([1.0], 0), "softmax: input must be a Tensor; it is list"),
        (lambda x: isobit.numpy.softmax(x.numpy(), 2), "softmax: axis is 2; allowed: -2 to 1"),
        (
            lambda x: isobit.numpy.softmax(x.numpy(), mask=np.ones(3, bool)),
            r"softmax: mask has shape \(3,\), which does not expand to that of x, \(2, 4\)",
        ),
        (lambda x: isobit.numpy.log_softmax(x.int().numpy()), "log_softmax: x has dtype int32"),
    ],
)
def test_bad_calls_are_refused_by_the_names_of_operator_and_argument(call, message):
    with pytest.raises((ValueError, TypeError), match=message):
        call(torch.ones(2, 4))


def test_numbers_and_empty_arrays():
    assert isobit.torch.softmax(torch.tensor(3.0), 0) == 1
    assert isobit.torch.log_softmax(torch.tensor(3.0), -1) == 0
    assert isobit.numpy.softmax(np.array(3, np.float32)) == 1
    for shape in ((0, 3), (3, 0)):
        assert isobit.torch.softmax(torch.empty(shape), 1).shape == shape
        x = torch.empty(shape, requires_grad=True)
        assert torch.autograd.grad(F.softmax(x, 1).sum(), x)[0].shape == shape
        assert torch.autograd.grad(isobit.torch.softmax(x, 1).sum(), x)[0].shape == shape
        assert isobit.numpy.softmax(np.empty(shape, np.float32)).shape == shape
