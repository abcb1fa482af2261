# SPDX-License-Identifier: Apache-2.0
"""Attention of nested tensors: sequences have the bits that they have in packed ones, and alone."""

import pytest
import torch
from torch_calls import bits, draw

from isobit.torch import (
    RotaryEmbedding,
    SelfAttention,
    scaled_dot_product_attention,
    varlen_attention,
)

# PyTorch says so whenever one is made or compiled.
pytestmark = [
    pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors is in prototype"),
    pytest.mark.filterwarnings("ignore:is_fx_tracing will return true"),
]

ENDS = torch.tensor([0, 3, 3, 10])
OF_KEYS = torch.tensor([0, 4, 5, 12])
OPTIONS = {"enable_gqa": True, "causal": "bottom_right", "softcap": 3.0}


def nested(rows, ends=ENDS, **more):
    return torch.nested.nested_tensor_from_jagged(rows, ends, **more)


def packed(requires_grad=True):
    shapes = ((10, 4, 8), (12, 2, 8), (12, 2, 6))
    return [draw(*shape, requires_grad=requires_grad) for shape in shapes]


def heads_first(q, k, v):
    k = nested(k, OF_KEYS)
    return nested(q).transpose(1, 2), k.transpose(1, 2), nested(v, k.offsets()).transpose(1, 2)


@pytest.mark.parametrize("compiled", [False, True])
def test_sequences_have_the_bits_of_packed_ones(compiled):
    tensors, options = packed(), OPTIONS | {"dropout_p": 0.3, "seed": 5}

    def call(*given):
        return scaled_dot_product_attention(*given, return_lse=True, **options)

    run = torch.compile(call, backend="aot_eager", fullgraph=True) if compiled else call
    given = heads_first(*tensors)
    y, lse = run(*given)
    assert y.is_nested and y.shape[:3] == given[0].shape[:3] and y.shape[3] == 6
    assert lse.shape == given[0].shape[:3]
    wanted = varlen_attention(*tensors, ENDS, OF_KEYS, return_lse=True, **options)
    assert bits(y.transpose(1, 2).values(), lse.values()) == bits(*wanted)
    into = [draw(*each.shape) for each in wanted]
    found = torch.autograd.grad((y.transpose(1, 2).values(), lse.values()), tensors, into)
    assert bits(*found) == bits(*torch.autograd.grad(wanted, tensors, into))
    assert (y + y).shape == y.shape  # of one structure, as PyTorch asks


def test_it_is_near_to_pytorchs_and_may_lack_heads():
    rows, ends = [draw(10, 4, 8, seed=seed) for seed in range(3)], torch.tensor([0, 3, 5, 10])
    given = [nested(each, ends).transpose(1, 2) for each in rows]
    theirs = torch.nn.functional.scaled_dot_product_attention
    for ours, expected in zip(
        scaled_dot_product_attention(*given).unbind(),
        [theirs(*each) for each in zip(*(each.unbind() for each in given), strict=True)],
        strict=True,
    ):
        torch.testing.assert_close(ours, expected)
    x = nested(draw(10, 8), longest := ENDS, max_seqlen=7, min_seqlen=0)
    y, lse = scaled_dot_product_attention(x, x, x, return_lse=True)
    assert y.shape == x.shape and lse.shape == x.shape[:2] and y._maybe_max_seqlen == 7
    rows = x.values()[:, None]
    assert bits(y.values()) == bits(varlen_attention(rows, rows, rows, longest)[:, 0])


ROTARY = {"kv_heads": 2, "causal": True, "rotary": RotaryEmbedding(8)}
WINDOW = {"window": 2, "softcap": 2.0, "scale": 0.3, "checkpoint": True}


@pytest.mark.parametrize(
    ("options", "compiled"), [(ROTARY, False), (ROTARY, True), (WINDOW, False)]
)
def test_a_layer_gives_sequences_the_bits_that_they_have_alone(options, compiled):
    torch.manual_seed(0)
    layer, rows = SelfAttention(32, 4, **options), draw(10, 32, requires_grad=True)
    run = torch.compile(layer, backend="aot_eager") if compiled else layer
    y = run(nested(rows))
    assert y.is_nested and y.shape[0] == 3 and y.shape[2] == 32
    alone = torch.cat([layer(rows[:3]), layer(rows[3:])])
    assert bits(y.values()) == bits(alone)
    into = draw(10, 32, seed=1)
    found = torch.autograd.grad(y.values(), rows, into)
    assert bits(*found) == bits(*torch.autograd.grad(alone, rows, into))


@pytest.mark.parametrize("checkpoint", [False, True])
def test_a_layer_drops_of_sequences_what_their_place_in_a_batch_drops(checkpoint):
    layer = SelfAttention(32, 4, causal=True, dropout=0.5, checkpoint=checkpoint)
    rows = draw(6, 32, requires_grad=True)
    y = layer(nested(rows, torch.tensor([0, 3, 6])), seed=4).values()
    batch = layer(rows.unflatten(0, (2, 3)), seed=4).flatten(0, 1)
    assert bits(y) == bits(batch)
    into = draw(6, 32, seed=1)
    found, expected = (torch.autograd.grad(each, rows, into) for each in (y, batch))
    assert bits(*found) == bits(*expected)
    layer.eval()
    assert bits(layer(nested(rows, torch.tensor([0, 3, 6]))).values()[:3]) == bits(layer(rows[:3]))


def test_a_layer_takes_positions_of_the_callers():
    layer = SelfAttention(32, 4, causal=True, rotary=RotaryEmbedding(8))
    x, places = nested(draw(10, 32)), torch.arange(10) * 2
    y = layer(x, position_ids=nested(places, x.offsets()))
    assert bits(y.values()[3:]) == bits(layer(x.values()[3:], position_ids=places[3:]))


def refused(error, words, call, *given, **more):
    with pytest.raises(error, match=words):
        call(*given, **more)


def test_what_is_not_computed_is_said():
    attend = scaled_dot_product_attention
    rows = draw(10, 2, 8)
    q = nested(rows).transpose(1, 2)
    holes = torch.nested.nested_tensor_from_jagged(rows, ENDS[[0, 1, 3]], torch.tensor([1, 4]))
    strided = torch.nested.nested_tensor([draw(2, 3, 8), draw(2, 4, 8)], layout=torch.strided)
    other = nested(rows, ENDS.clone()).transpose(1, 2)
    words = "scaled_dot_product_attention: attn_mask is given; nested tensors go without"
    refused(NotImplementedError, words, attend, q, q, q, draw(3))
    refused(NotImplementedError, "alibi_slopes is given", attend, q, q, q, alibi_slopes=draw(2))
    refused(
        TypeError, "key must be a nested Tensor, as others are; it is a plain", attend, q, rows, q
    )
    refused(ValueError, "key and value of the same sequences", attend, q, q, other)
    refused(ValueError, "several lengths of dimension 1; must be of 2", attend, *[nested(rows)] * 3)
    refused(NotImplementedError, r"must have layout=torch\.jagged", attend, *[strided] * 3)
    refused(NotImplementedError, "rows that belong to no", attend, *[holes.transpose(1, 2)] * 3)
    few = nested(rows[:, :1], q.offsets()).transpose(1, 2)
    refused(ValueError, "query and key have 2 and 1 heads; must have", attend, q, few, few)
    x = nested(draw(10, 32))
    layer = SelfAttention(32, 4, causal=True)
    words = "SelfAttention: attn_mask and x, which is nested"
    refused(NotImplementedError, words, layer, x, attn_mask=draw(3))
    places = torch.arange(10)
    words = r"position_ids has shape \(10,\); x, which is nested, has \(3, j"
    turning = SelfAttention(32, 4, causal=True, rotary=RotaryEmbedding(8))
    refused(ValueError, words, turning, x, position_ids=places)
    refused(NotImplementedError, "x is nested; must have layout=torch.jagged", layer, strided)
