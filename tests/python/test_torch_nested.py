# SPDX-License-Identifier: Apache-2.0
"""Nested tensors: the rows have the bits that they have in a plain tensor."""

import pytest
import torch
from torch import nn
from torch_calls import Norm, bits, draw, many

import isobit.torch

# PyTorch says so whenever one is made or compiled.
pytestmark = [
    pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors is in prototype"),
    pytest.mark.filterwarnings("ignore:is_fx_tracing will return true"),
]

LENGTHS = (2, 0, 3)


def nested(rows, offsets=None):
    """With these rows, and with the structure of another where its offsets are given."""
    if offsets is None:
        offsets = torch.tensor((0, *LENGTHS)).cumsum(0)
    return torch.nested.nested_tensor_from_jagged(rows, offsets)


def drawn(norm):
    """Plain arguments, and the same with nested inputs of one structure."""
    plain = norm.draw(sum(LENGTHS), 8, requires_grad=True)
    inputs, weights = plain[: norm.inputs], plain[norm.inputs :]
    first = nested(inputs[0])
    return plain, [first, *(nested(each, first.offsets()) for each in inputs[1:]), *weights]


def gradients(outputs, tensors):
    values = [each.values() if each.is_nested else each for each in many(outputs)]
    return torch.autograd.grad(values, tensors, [y.detach() + 1 for y in values])


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("name", Norm.NAMES)
def test_rows_have_the_bits_of_plain_ones(name, compiled):
    norm = Norm(name)
    plain, given = drawn(norm)
    call = torch.compile(norm, backend="aot_eager", fullgraph=True) if compiled else norm
    expected, found = norm(*plain), call(*given)
    for want, y in zip(many(expected), many(found), strict=True):
        assert y.is_nested and y.shape == given[0].shape
        assert bits(y.values()) == bits(want)
        assert (y + given[0]).shape == y.shape  # of one structure, as PyTorch asks
    assert bits(*gradients(found, plain)) == bits(*gradients(expected, plain))


def test_rows_of_several_dimensions_and_other_ragged_ones():
    rows = draw(sum(LENGTHS), 4, 8)
    heads = nested(rows).transpose(1, 2)
    y = isobit.torch.layer_norm(heads, 8)
    assert y.shape == heads.shape
    assert bits(y.transpose(1, 2).values()) == bits(isobit.torch.layer_norm(rows, 8))


def test_lengths_are_handed_on():
    """A kernel for attention would wait for the GPU to count them again."""
    x = nested(draw(sum(LENGTHS), 8))
    longest = torch.nested.nested_tensor_from_jagged(
        x.values(), x.offsets(), min_seqlen=0, max_seqlen=3
    )
    assert isobit.torch.rms_norm(longest, 8)._maybe_max_seqlen == 3
    assert isobit.torch.rms_norm(x, 8)._maybe_max_seqlen is None


def test_modules_and_patched_models_take_them():
    x = nested(draw(sum(LENGTHS), 8))
    model = nn.Sequential(nn.LayerNorm(8), nn.RMSNorm(8, eps=1e-5))
    theirs = model(x).values()
    isobit.torch.patch(model)
    assert torch.allclose(model(x).values(), theirs, atol=1e-6)
    assert bits(model(x).values()) == bits(model(x.values()))


def test_elementwise_functions():
    x = nested(draw(sum(LENGTHS), 8))
    assert bits(isobit.torch.add(x, x).values()) == bits(2 * x.values())
    assert bits(isobit.torch.increment(x).values()) == bits(x.values() + 1)


@pytest.mark.parametrize("compiled", [False, True])
def test_products_of_rows(compiled):
    rows, weight, bias = (
        draw(*shape, requires_grad=True) for shape in ((sum(LENGTHS), 8), (6, 8), (6,))
    )
    leaves = (rows, weight, bias)

    def call(x):
        return isobit.torch.linear(x, weight, bias, activation="silu")

    expected = call(rows)
    run = torch.compile(call, backend="aot_eager", fullgraph=True) if compiled else call
    y = run(nested(rows))
    assert y.is_nested and y.shape[0] == len(LENGTHS) and y.shape[2] == 6
    assert bits(y.values()) == bits(expected)
    assert bits(*gradients(y, leaves)) == bits(*gradients(expected, leaves))
    plain = isobit.torch.matmul(nested(rows), weight.t())
    assert bits(plain.values()) == bits(isobit.torch.linear(rows, weight))
    of_vector = isobit.torch.linear(nested(rows), weight[0])
    assert bits(of_vector.values()) == bits(isobit.torch.linear(rows, weight[0]))


def test_products_that_are_not_of_rows_are_refused():
    x, weight = nested(draw(4, 4), torch.tensor([0, 1, 4])), draw(4, 4)
    strided = torch.nested.nested_tensor([draw(2, 4), draw(3, 4)], layout=torch.strided)
    with pytest.raises(NotImplementedError, match="matmul: other is nested; input alone may be"):
        isobit.torch.matmul(x, x)  # its values could be multiplied
    with pytest.raises(NotImplementedError, match="linear: bias is nested; input alone may be"):
        isobit.torch.linear(x, weight, x)
    with pytest.raises(ValueError, match=r"input is nested, other has 3 dimensions; must have 1"):
        isobit.torch.matmul(x, weight[None])
    with pytest.raises(ValueError, match="linear: rows of input have several lengths; must have"):
        isobit.torch.linear(x.transpose(1, 2), weight)
    with pytest.raises(NotImplementedError, match=r"linear: input is nested; must have layout=t"):
        isobit.torch.linear(strided, weight)


def test_what_does_not_fit_is_said():
    x, other = (nested(draw(sum(LENGTHS), 8)) for _ in range(2))
    parts = nested(draw(6, 8), torch.tensor([0, 2, 6]))
    holes = torch.nested.nested_tensor_from_jagged(
        parts.values(), parts.offsets(), lengths=torch.tensor([1, 4])
    )
    strided = torch.nested.nested_tensor([draw(2, 8), draw(3, 8)], layout=torch.strided)
    for residual in (other, x.values()):
        with pytest.raises(ValueError, match=r"residual has shape .*; input has shape \(3, j"):
            isobit.torch.add_rms_norm(x, residual, 8)
    with pytest.raises(ValueError, match=r"residual has shape \(3, j.*; input has shape \(5, 8"):
        isobit.torch.add(x.values(), x)
    with pytest.raises(ValueError, match=r"normalized_shape is \(3, 8\)"):
        isobit.torch.layer_norm(x, (3, 8))
    with pytest.raises(NotImplementedError, match="rows that belong to no part of it"):
        isobit.torch.rms_norm(holes, 8)
    with pytest.raises(NotImplementedError, match=r"must have layout=torch\.jagged"):
        isobit.torch.layer_norm(strided, 8)
