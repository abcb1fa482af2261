# SPDX-License-Identifier: Apache-2.0
"""paged_attention of isobit.torch: keys in blocks of a pool give the bits of keys in a row; tables
that lead out of the pool, and arguments of other shapes, are refused."""

from types import SimpleNamespace

import pytest
import torch
from torch_calls import bits, draw

from isobit.torch import paged_attention, scaled_dot_product_attention

USED = (37, 0, 5, 16)
TABLE = torch.tensor([[7, 0, 3], [-5, 99, -1], [2, -1, 99], [5, 99, 99]], dtype=torch.int32)
OPTIONS = [{}, {"causal": "bottom_right"}, {"window": 6, "softcap": 3.0, "scale": 0.2}]


def drawn(dtype=torch.float32):
    shapes = {"query": (4, 4, 3, 8), "key_cache": (8, 16, 2, 8), "value_cache": (8, 16, 2, 6)}
    given = {name: draw(*shape, dtype=dtype) for name, shape in shapes.items()}
    return given | {"block_table": TABLE, "seqused_k": torch.tensor(USED)}


def in_a_row(cache, sequence):
    return cache[TABLE[sequence].clamp(0, 7)].flatten(0, 1)[: USED[sequence]].transpose(0, 1)[None]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("options", OPTIONS)
def test_keys_in_blocks_have_the_bits_of_keys_in_a_row(options, dtype):
    given, shared = drawn(dtype), options | {"enable_gqa": True, "return_lse": True}
    found = paged_attention(**given, **shared)
    for i in range(len(USED)):
        rows = (in_a_row(given[name], i) for name in ("key_cache", "value_cache"))
        alone = scaled_dot_product_attention(given["query"][i : i + 1], *rows, **shared)
        assert [bits(each[i : i + 1]) for each in found] == [bits(each) for each in alone]


def test_packed_queries_have_the_bits_of_a_batch():
    given, shared = drawn(), {"causal": "bottom_right", "enable_gqa": True, "return_lse": True}
    y, lse = paged_attention(**given, **shared)
    starts = torch.arange(0, 13, 3, dtype=torch.int32)
    packed = given | {"query": given["query"].transpose(1, 2).flatten(0, 1)}
    found, found_lse = paged_attention(**packed, cu_seqlens_q=starts, **shared)
    assert found.shape == (12, 4, 6) and found_lse.shape == (4, 12)
    assert bits(found) == bits(y.transpose(1, 2).flatten(0, 1))
    assert bits(found_lse) == bits(lse.transpose(0, 1).flatten(1))


def test_what_is_dropped_is_that_of_the_sequence_with_its_number_in_a_batch():
    given, shared = drawn(), {"dropout_p": 0.4, "enable_gqa": True, "return_lse": True}
    found = paged_attention(**given, **shared, seed=7)
    assert bits(found[0]) != bits(paged_attention(**given, **shared, seed=8)[0])
    for i in range(len(USED)):
        query = given["query"][i : i + 1].expand(i + 1, -1, -1, -1)
        rows = (
            in_a_row(given[name], i).expand(i + 1, -1, -1, -1)
            for name in ("key_cache", "value_cache")
        )
        batch = scaled_dot_product_attention(query, *rows, **shared, seed=7)
        assert [bits(each[i]) for each in found] == [bits(each[i]) for each in batch]
    starts = torch.arange(0, 13, 3, dtype=torch.int32)
    packed = given | {"query": given["query"].transpose(1, 2).flatten(0, 1)}
    y, _ = paged_attention(**packed, cu_seqlens_q=starts, **shared, seed=7)
    assert bits(y) == bits(found[0].transpose(1, 2).flatten(0, 1))


def test_a_seed_that_is_not_given_is_drawn_from_pytorchs_generator():
    given = drawn() | {"dropout_p": 0.5, "enable_gqa": True}
    torch.manual_seed(3)
    first, second = paged_attention(**given), paged_attention(**given)
    torch.manual_seed(3)
    assert bits(paged_attention(**given)) == bits(first) != bits(second)


def test_compiled_code_has_the_bits_of_eager_code():
    given = drawn()
    torch._dynamo.reset()
    compiled = torch.compile(paged_attention, fullgraph=True, backend="aot_eager")
    assert bits(compiled(**given, enable_gqa=True)) == bits(
        paged_attention(**given, enable_gqa=True)
    )


BAD = [
    ({"seqused_k": torch.tensor([37, 0, 5, 49])}, ValueError, "49"),
    ({"block_table": TABLE.clamp(max=8).roll(1, 0)}, ValueError, "blocks"),
    ({"block_table": TABLE.float()}, ValueError, "block_table has dtype torch.float32"),
    ({"block_table": [[0]]}, TypeError, "block_table must be a Tensor; it is list"),
    ({"seqused_k": TABLE}, ValueError, "seqused_k has 2 dimensions; must have 1: batch"),
    ({"query": torch.zeros(4, 3, 8)}, ValueError, "query has 3 dimensions; must have 4"),
    ({"enable_gqa": False}, ValueError, "4 and 2 heads; must have equally many, or enable_gqa"),
    ({"value_cache": torch.zeros(8, 4, 2, 6)}, ValueError, "equally many blocks, keys of a block"),
    ({"causal": "left"}, ValueError, "causal is 'left'"),
    ({"dropout_p": 1.0}, ValueError, "dropout"),
    ({"dropout_p": 0.5, "seed": 1 << 64}, ValueError, "seed is 18446744073709551616"),
]


@pytest.mark.parametrize("bad", [SimpleNamespace(given=g, error=e, says=s) for g, e, s in BAD])
def test_what_does_not_fit_is_refused(bad):
    with pytest.raises(bad.error, match="attention") as caught:
        paged_attention(**(drawn() | {"enable_gqa": True} | bad.given))
    assert bad.says in str(caught.value)


def test_there_are_no_gradients():
    given = drawn()
    given["query"].requires_grad_()
    y = paged_attention(**given, enable_gqa=True)
    with pytest.raises(NotImplementedError, match="keys in blocks none"):
        y.sum().backward()
