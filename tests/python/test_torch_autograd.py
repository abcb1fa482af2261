# SPDX-License-Identifier: Apache-2.0
"""Gradients of every order, and the bits of the first."""

import gc
import itertools
import weakref

import pytest
import torch
import torch.nn.functional as F
from torch.autograd import gradcheck, gradgradcheck
from torch.utils.checkpoint import checkpoint
from torch_calls import FUNCTIONS, bits, draw, many

import isobit.torch

EPS = 1e-3


def drops(x, residual, shape, weight=None, bias=None, eps=EPS):
    return isobit.torch.dropout_add_layer_norm(x, residual, shape, weight, bias, 0.3, eps, seed=7)


def drops_rms(x, residual, shape, weight=None, eps=EPS):
    return isobit.torch.dropout_add_rms_norm(x, residual, shape, weight, 0.3, eps, seed=7)


OURS = {name: (ours, inputs, bias) for name, (ours, _, inputs, bias) in FUNCTIONS.items()} | {
    "dropout_add_layer_norm": (drops, 2, True),
    "dropout_add_rms_norm": (drops_rms, 2, False),
}


def case(name, shape=(3, 4), dims=1, dtype=torch.float64):
    """(call, its tensors)."""
    ours, inputs, has_bias = OURS[name]
    normalized = shape[len(shape) - dims :]
    shapes = [shape] * inputs + [normalized] * (1 + has_bias)
    tensors = [
        draw(*each, dtype=dtype, seed=i, requires_grad=True) for i, each in enumerate(shapes)
    ]

    def call(*tensors):
        return ours(*tensors[:inputs], normalized, *tensors[inputs:], eps=EPS)

    return call, tensors


def first_order(call, tensors, **options):
    outputs = many(call(*tensors))
    to = [draw(*y.shape, dtype=y.dtype, seed=20 + i) for i, y in enumerate(outputs)]
    return torch.autograd.grad(outputs, tensors, to, **options)


@pytest.mark.parametrize("name", OURS)
@pytest.mark.parametrize("shape, dims", [((3, 4), 1), ((2, 2, 3), 2), ((4,), 1)])
def test_first_and_second_derivatives_are_numerical_ones(name, shape, dims):
    call, tensors = case(name, shape, dims)
    assert gradcheck(call, tensors, check_forward_ad=True, check_batched_grad=True)
    assert gradgradcheck(call, tensors, check_fwd_over_rev=True, check_rev_over_rev=True)


@pytest.mark.parametrize("name", ["layer_norm", "rms_norm", "dropout_add_layer_norm"])
def test_third_derivatives_are_numerical_ones(name):
    call, tensors = case(name, (2, 3))
    to = [draw(2, 3, dtype=torch.float64, seed=i) for i in range(2)]

    def second(x, *others):
        outputs = many(call(x, *others))
        (first,) = torch.autograd.grad(outputs, x, to[: len(outputs)], create_graph=True)
        (result,) = torch.autograd.grad(first.square().sum(), x, create_graph=True)
        return result

    assert gradcheck(second, tensors)


@pytest.mark.parametrize("name", OURS)
def test_a_graph_of_the_gradients_changes_no_bit_of_them(name):
    call, tensors = case(name, (9, 65), dtype=torch.float32)
    assert bits(*first_order(call, tensors)) == bits(*first_order(call, tensors, create_graph=True))


@pytest.mark.parametrize("name", OURS)
def test_every_set_of_wanted_gradients(name):
    call, tensors = case(name, (9, 65), dtype=torch.float32)
    whole = first_order(call, tensors)
    for mask in itertools.product([False, True], repeat=len(tensors)):
        given = [t.detach().requires_grad_(wanted) for t, wanted in zip(tensors, mask, strict=True)]
        outputs = many(call(*given))
        if not any(mask):
            assert not any(y.requires_grad for y in outputs)
            continue
        wanted = [t for t in given if t.requires_grad]
        to = [draw(*y.shape, dtype=y.dtype, seed=20 + i) for i, y in enumerate(outputs)]
        found = torch.autograd.grad(outputs, wanted, to)
        assert bits(*found) == bits(*(g for g, w in zip(whole, mask, strict=True) if w))


def test_only_one_of_two_results_may_be_used():
    call, (x, r, w, b) = case("add_layer_norm", (9, 65), dtype=torch.float32)
    g = draw(9, 65, seed=9)
    y, total = call(x, r, w, b)
    grad_y = torch.autograd.grad(y, (x, r), g, retain_graph=True)
    both = torch.autograd.grad((y, total), (x, r), (g, torch.zeros_like(g)), retain_graph=True)
    assert bits(*grad_y) == bits(*both)
    grad_sum = torch.autograd.grad(total, (x, r), g)
    assert bits(*grad_sum) == bits(g, g)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("weight_dtype", [torch.float32, None])
def test_gradients_have_the_dtypes_of_their_tensors(dtype, weight_dtype):
    x = draw(9, 65, dtype=dtype, requires_grad=True)
    w, b = (draw(65, dtype=weight_dtype or dtype, seed=i, requires_grad=True) for i in (1, 2))
    y = isobit.torch.layer_norm(x, 65, w, b)
    found = torch.autograd.grad(y, (x, w, b), torch.ones_like(y))
    assert [g.dtype for g in found] == [x.dtype, w.dtype, b.dtype]
    reference = F.layer_norm(x.double(), (65,), w.double(), b.double())
    expected = torch.autograd.grad(reference, (x, w, b), torch.ones_like(reference))
    for ours, exact in zip(found, expected, strict=True):
        step = torch.finfo(ours.dtype).eps
        assert torch.allclose(ours.double(), exact.double(), rtol=2 * step, atol=20 * step)


def test_a_bias_without_weight_gets_its_gradient_in_its_own_dtype():
    x, g = draw(900, 5, dtype=torch.bfloat16), draw(900, 5, dtype=torch.bfloat16, seed=1)
    b = torch.zeros(5, requires_grad=True)
    (found,) = torch.autograd.grad(
        isobit.torch.layer_norm(x, 5, None, b, out_dtype=torch.bfloat16), b, g
    )
    assert torch.allclose(found, g.float().sum(0), rtol=1e-5, atol=1e-4)


def test_gradients_of_wider_outputs():
    x = draw(9, 65, dtype=torch.bfloat16, requires_grad=True)
    g = draw(9, 65, seed=1)
    y = isobit.torch.layer_norm(x, 65, out_dtype=torch.float32)
    (found,) = torch.autograd.grad(y, x, g)
    wide = x.detach().float().requires_grad_()
    (expected,) = torch.autograd.grad(isobit.torch.layer_norm(wide, 65), wide, g)
    assert bits(found) == bits(expected.to(torch.bfloat16))


STRIDED = {
    "expanded from one number": lambda g: g[:1, :1].expand_as(g),
    "expanded from one row": lambda g: g[:1].expand_as(g),
    "transposed": lambda g: g.T.contiguous().T,
    "every other column": lambda g: g.repeat_interleave(2, 1)[:, ::2],
}


@pytest.mark.parametrize("stride", STRIDED)
@pytest.mark.parametrize("name", ["layer_norm", "add_rms_norm"])
def test_gradients_may_come_in_any_strides(name, stride):
    call, tensors = case(name, (9, 65), dtype=torch.float32)
    g = STRIDED[stride](draw(9, 65, seed=3))
    outputs = many(call(*tensors))
    found = torch.autograd.grad(outputs, tensors, [g] * len(outputs), retain_graph=True)
    adjacent = torch.autograd.grad(outputs, tensors, [g.contiguous()] * len(outputs))
    assert bits(*found) == bits(*adjacent)


def test_inputs_in_any_strides_get_their_gradients():
    x = draw(65, 9, requires_grad=True)
    g = draw(9, 65, seed=3)
    (found,) = torch.autograd.grad(isobit.torch.layer_norm(x.T, 65), x, g)
    adjacent = x.detach().T.contiguous().requires_grad_()
    (expected,) = torch.autograd.grad(isobit.torch.layer_norm(adjacent, 65), adjacent, g)
    assert bits(found) == bits(expected.T)


def test_gradients_may_be_asked_for_twice():
    call, tensors = case("layer_norm", (9, 65), dtype=torch.float32)
    y = call(*tensors)
    g = torch.ones_like(y)
    once = torch.autograd.grad(y, tensors, g, retain_graph=True)
    assert bits(*once) == bits(*torch.autograd.grad(y, tensors, g))
    with pytest.raises(RuntimeError, match="second time"):
        torch.autograd.grad(y, tensors, g)


def test_an_input_changed_in_place_before_backward_is_refused():
    x = draw(9, 65, requires_grad=True)
    kept = x * 1
    y = isobit.torch.layer_norm(kept, 65)
    kept.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_outputs_may_be_changed_in_place():
    x = draw(9, 65, requires_grad=True)
    y = isobit.torch.layer_norm(x, 65)
    y.mul_(2)
    y.sum().backward()
    assert x.grad is not None


def test_the_sum_is_kept_for_backward_and_may_not_be_changed():
    x = draw(9, 65, requires_grad=True)
    y, total = isobit.torch.add_layer_norm(x, x.detach(), 65)
    with pytest.raises(RuntimeError, match="inplace"):
        total.mul_(2)
        y.sum().backward()


@pytest.mark.parametrize("use_reentrant", [False, True])
@pytest.mark.parametrize("name", OURS)
def test_checkpointing_gives_the_same_bits(name, use_reentrant):
    call, tensors = case(name, (9, 65), dtype=torch.float32)
    plain = first_order(call, tensors)
    leaves = [t.detach().requires_grad_() for t in tensors]
    outputs = many(checkpoint(call, *leaves, use_reentrant=use_reentrant))
    to = [draw(*y.shape, dtype=y.dtype, seed=20 + i) for i, y in enumerate(outputs)]
    torch.autograd.backward(outputs, to)
    assert bits(*(leaf.grad for leaf in leaves)) == bits(*plain)


def test_checkpointing_draws_the_same_dropout_again():
    x, r = draw(9, 65, requires_grad=True), draw(9, 65, seed=1)

    def call(x):
        return isobit.torch.dropout_add_layer_norm(x, r, 65, p=0.5)

    torch.manual_seed(1)
    plain = torch.autograd.grad(call(x)[0].square().sum(), x)
    torch.manual_seed(1)
    again = checkpoint(call, x, use_reentrant=False)[0].square().sum()
    assert bits(*torch.autograd.grad(again, x)) == bits(*plain)


@pytest.mark.parametrize("name", OURS)
def test_nothing_outlives_a_step(name):
    call, tensors = case(name, (9, 65), dtype=torch.float32)
    outputs = many(call(*tensors))
    kept = [weakref.ref(y) for y in outputs]
    loss = sum(y.sum() for y in outputs)
    torch.autograd.grad(loss, tensors, create_graph=True)
    del outputs, loss
    gc.collect()
    assert all(ref() is None for ref in kept)


def test_operators_called_by_name_have_derivatives():
    ops = torch.ops.isobit
    x, w, b = (draw(*s, dtype=torch.float64, requires_grad=True) for s in ((3, 4), (4,), (4,)))
    assert gradcheck(ops.layer_norm, (x, w, b, EPS))
    assert gradgradcheck(ops.layer_norm, (x, w, b, EPS))
    g = draw(3, 4, dtype=torch.float64, seed=1, requires_grad=True)
    assert gradcheck(ops.layer_norm_backward, (g, x, w, EPS))
    assert gradcheck(ops.add, (x, g)) and gradcheck(ops.increment, (x,))


def test_second_derivatives_of_rows_far_from_zero_keep_their_digits():
    """In single precision x - mean loses all of them."""
    x = (1000 + draw(3, 64) / 10).requires_grad_()
    exact = x.detach().double().requires_grad_()

    def second(function, x):
        y = function(x, (64,))
        (first,) = torch.autograd.grad(y.sin().sum(), x, create_graph=True)
        return torch.autograd.grad(first.square().sum(), x)[0]

    ours, reference = second(isobit.torch.layer_norm, x), second(F.layer_norm, exact)
    assert (ours - reference).abs().max() < 1e-4 * reference.abs().max()


@pytest.mark.parametrize("name", ["add_layer_norm", "add_rms_norm"])
def test_residuals_get_their_gradient_from_operators_called_by_name(name):
    """PyTorch leaves defaults at the end of the arguments out of what it says of them."""
    x, r, w = draw(3, 4, requires_grad=True), draw(3, 4, seed=1, requires_grad=True), draw(4)
    operator = getattr(torch.ops.isobit, name)
    weights = (w, None) if name == "add_layer_norm" else (w,)
    y, total = operator(x, *weights, EPS, residual=r)
    found = torch.autograd.grad(y.sum() + total.sum(), (x, r))
    assert bits(found[0]) == bits(found[1])
