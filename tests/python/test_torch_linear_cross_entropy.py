# SPDX-License-Identifier: Apache-2.0
"""linear_cross_entropy is linear and cross_entropy one after the other, bit for bit, in both passes
and in NumPy too; its derivatives are right to the second order."""

import itertools

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

import torch.nn.functional as F  # noqa: E402

import isobit.numpy  # noqa: E402
import isobit.torch  # noqa: E402
from isobit.torch.linear_cross_entropies import LINEAR_CROSS_ENTROPY  # noqa: E402

ROWS, COLS, CLASSES = 1100, 13, 37  # more than two pieces


def drawn(*shape, dtype=torch.float32, seed=1):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype)


def layer(dtype=torch.float32, rows=ROWS):
    x, weight = drawn(rows, COLS, dtype=dtype), drawn(CLASSES, COLS, dtype=dtype, seed=2)
    bias = drawn(CLASSES, dtype=dtype, seed=3)
    target = torch.arange(rows) * 7 % CLASSES
    target[::5] = -100
    return x, weight, bias, target


def apart(x, linear_weight, target, *, linear_bias=None, **options):
    logits = isobit.torch.linear(x, linear_weight, linear_bias)
    return isobit.torch.cross_entropy(logits, target, **options)


def with_gradients(function, given, target, **options):
    given = [each if each is None else each.detach().requires_grad_() for each in given]
    x, weight, bias = given
    loss = function(x, weight, target, linear_bias=bias, **options)
    into = drawn(*loss.shape, dtype=loss.dtype, seed=7)
    there = [each for each in given if each is not None]
    return (loss, *torch.autograd.grad(loss, there, into))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_bits_are_those_of_both_operators(dtype, reduction):
    *given, target = layer(dtype)
    weights = drawn(CLASSES, seed=4).abs()
    for bias, weight in itertools.product((None, given[2]), (None, weights)):
        options = {"weight": weight, "reduction": reduction}
        options |= {"label_smoothing": 0.1, "z_loss": 0.01}
        one, other = (
            with_gradients(function, (*given[:2], bias), target, **options)
            for function in (isobit.torch.linear_cross_entropy, apart)
        )
        assert all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


def test_bits_by_threads_compiled_under_vmap_and_in_numpy():
    x, weight, bias, target = layer()

    def losses(x, target, reduction="none"):
        return isobit.torch.linear_cross_entropy(
            x, weight, target, linear_bias=bias, reduction=reduction
        )

    each = losses(x, target)
    assert torch.equal(torch.compile(losses, fullgraph=True)(x, target), each)
    assert torch.equal(torch.vmap(losses)(x, target), each)
    assert torch.equal(losses(x.view(11, 100, COLS), target.view(11, 100)).view(-1), each)
    assert torch.equal(losses(x[77], target[77]), each[77])
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(3)
        assert torch.equal(losses(x, target), each)
    finally:
        torch.set_num_threads(before)
    given = (x.numpy(), weight.numpy(), target.numpy())
    for reduction in ("none", "mean", "sum"):
        found = isobit.numpy.linear_cross_entropy(
            *given, linear_bias=bias.numpy(), reduction=reduction
        )
        assert np.array_equal(found, losses(x, target, reduction).numpy())


def test_gradients_have_their_bits_by_threads_and_compiled():
    *given, target = layer()

    def gradients(*given):
        return with_gradients(isobit.torch.linear_cross_entropy, given, target)

    found = gradients(*given)
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(3)
        assert all(map(torch.equal, gradients(*given), found))
    finally:
        torch.set_num_threads(before)

    def loss(x, weight, bias):
        return isobit.torch.linear_cross_entropy(x, weight, target, linear_bias=bias)

    given = [each.requires_grad_() for each in given]
    eager = torch.autograd.grad(loss(*given), given)
    compiled = torch.autograd.grad(torch.compile(loss)(*given), given)
    assert all(map(torch.equal, compiled, eager))


@pytest.mark.parametrize("reduction", ["none", "mean"])
def test_derivatives_of_both_orders(reduction):
    x, weight, bias, target = layer(torch.float64, rows=4)
    given = tuple(each.requires_grad_() for each in (x, weight[:5, :3], bias[:5]))
    target = target % 5
    target[1] = -100

    def losses(x, weight, bias):
        return isobit.torch.linear_cross_entropy(
            *(x[:, :3], weight, target),
            linear_bias=bias,
            reduction=reduction,
            label_smoothing=0.2,
            z_loss=0.1,
        )

    assert torch.autograd.gradcheck(losses, given, check_forward_ad=True)
    assert torch.autograd.gradgradcheck(losses, given)


def test_forward_mode_over_backward():
    x, weight, _, target = layer(torch.float64, rows=3)

    def hessian(function):
        return torch.func.hessian(lambda w: function(x, w, target % 4).sin())(weight[:4])

    def theirs(x, weight, target):
        return F.cross_entropy(F.linear(x, weight), target)

    torch.testing.assert_close(hessian(isobit.torch.linear_cross_entropy), hessian(theirs))


def test_several_losses_a_row_are_those_of_pytorch():
    if not hasattr(F, "linear_cross_entropy"):
        pytest.skip("this PyTorch has none")
    x, target = drawn(6, 5), torch.arange(6 * 4 * 3).view(6, 4, 3) % 7
    weight, bias = drawn(7, 4, 3, 5, seed=2), drawn(7, 4, 3, seed=3)
    for reduction in ("none", "mean", "sum"):
        found, expected = (
            f(x, weight, target, linear_bias=bias, reduction=reduction, label_smoothing=0.1)
            for f in (isobit.torch.linear_cross_entropy, F.linear_cross_entropy)
        )
        torch.testing.assert_close(found, expected)


def test_the_module_has_the_state_and_the_results_of_pytorchs():
    x, target = drawn(6, 5), torch.arange(6) % 7
    ours = isobit.torch.LinearCrossEntropyLoss(5, 7, bias=True, label_smoothing=0.1, z_loss=0.2)
    assert {*ours.state_dict()} == {"linear.weight", "linear.bias"}
    loss = ours(x, target)
    weight, bias = ours.linear.weight, ours.linear.bias
    options = {"linear_bias": bias, "label_smoothing": 0.1, "z_loss": 0.2}
    assert torch.equal(loss, isobit.torch.linear_cross_entropy(x, weight, target, **options))
    if hasattr(torch.nn, "LinearCrossEntropyLoss"):
        theirs = torch.nn.LinearCrossEntropyLoss(5, 7, bias=True, label_smoothing=0.1)
        theirs.load_state_dict(ours.state_dict())
        ours.z_loss = 0.0
        torch.testing.assert_close(ours(x, target), theirs(x, target))


def test_autocast_makes_the_product_narrow_and_the_losses_wide():
    x, weight, bias, target = layer()
    with torch.autocast("cpu", torch.bfloat16):
        loss = isobit.torch.linear_cross_entropy(x, weight, target, linear_bias=bias)
        other = apart(x, weight, target, linear_bias=bias)
    assert loss.dtype == torch.float32
    assert torch.equal(loss, other)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda x, w, t: (x, w, t + 9), ValueError, r"target\[0\] is 9; there are classes from 0"),
        (lambda x, w, t: (x, w, t[:2]), ValueError, r"target has shape \(2,\); input has shape"),
        (lambda x, w, t: (x, w[:, :2], t), ValueError, "weight has rows of 2 elements; x has rows"),
        (lambda x, w, t: (x, w[0], t), ValueError, "linear_weight has shape"),
        (lambda x, w, t: (x, w, x[:, 0]), NotImplementedError, "target has dtype torch.float32"),
        (lambda x, w, t: (x, [1.0], t), TypeError, "linear_weight must be a Tensor"),
    ],
)
def test_bad_calls_are_refused_by_the_names_of_operator_and_argument(call, error, message):
    given = call(torch.ones(3, 4), torch.ones(5, 4), torch.tensor([0, 1, 4]))
    with pytest.raises(error, match="linear_cross_entropy: " + message):
        isobit.torch.linear_cross_entropy(*given)


def test_options_of_pytorchs_pieces_are_refused():
    given = torch.ones(3, 4), torch.ones(5, 4), torch.tensor([0, 1, 4])
    with pytest.raises(NotImplementedError, match="rows are always cut here"):
        isobit.torch.linear_cross_entropy(*given, options=object())


@pytest.mark.parametrize("totals", [False, True])
def test_shapes_and_derivatives_are_what_opcheck_asks_for(totals):
    x, weight, bias, target = layer(rows=5)
    given = (each.requires_grad_() for each in (x, weight, bias))
    options = (None, -100, 0.1, 0.1, totals)
    torch.library.opcheck(LINEAR_CROSS_ENTROPY.operator, (*given, target, *options))
