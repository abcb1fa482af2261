# SPDX-License-Identifier: Apache-2.0
"""varlen_attention of isobit.torch: each packed sequence has the bits that it has alone, forward
and backward; derivatives of all orders; and offsets that would lead out of the tensors."""

from itertools import accumulate, pairwise
from types import SimpleNamespace

import pytest
import torch
from torch_calls import bits, draw

from isobit.torch import attending, scaled_dot_product_attention, varlen_attending, varlen_attention

QUERIES = (3, 0, 5, 5, 140, 1)  # with a run of equal lengths
KEYS = (4, 2, 5, 5, 300, 0)
ENDS = (torch.tensor([0, 2, 4, 5]), torch.tensor([0, 3, 6, 6]))


def offsets(lengths, dtype=torch.int64):
    return torch.tensor([0, *accumulate(lengths)], dtype=dtype)


def packed(dtype=torch.float32, requires_grad=True):
    """With rows that belong to no sequence behind the last."""
    rows = ((sum(QUERIES) + 2, 4, 8), (sum(KEYS) + 1, 2, 8), (sum(KEYS) + 1, 2, 6))
    drawn = [draw(*shape, dtype=dtype, requires_grad=requires_grad) for shape in rows]
    return drawn, (offsets(QUERIES), offsets(KEYS, torch.int32))


def small(*, dtype=torch.float64, requires_grad=True):
    shapes = ((6, 2, 3), (7, 1, 3), (7, 1, 2))
    return [draw(*shape, dtype=dtype, requires_grad=requires_grad) for shape in shapes]


def heads_first(rows):
    return rows.transpose(0, 1)[None]


def attended(q, k, v, **options):
    return varlen_attention(q, k, v, *ENDS, enable_gqa=True, **options)


OPTIONS = [
    {},
    {"is_causal": True},
    {"causal": "bottom_right", "window": 3, "scale": 0.3},
    {"softcap": 2.0},
]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("options", OPTIONS)
def test_sequences_have_the_bits_that_they_have_alone(options, dtype):
    tensors, ends = packed(dtype)
    shared = {"enable_gqa": True, "return_lse": True} | options
    results = varlen_attention(*tensors, *ends, **shared)
    into = [draw(*each.shape, dtype=each.dtype, seed=4) for each in results]
    found = torch.autograd.grad(results, tensors, into)
    assert results[0].shape == (sum(QUERIES) + 2, 4, 6) and results[1].shape == (
        4,
        sum(QUERIES) + 2,
    )
    first_q = first_k = 0
    for queries, keys in zip(QUERIES, KEYS, strict=True):
        of_q, of_k = slice(first_q, first_q + queries), slice(first_k, first_k + keys)
        own = [each[rows] for each, rows in zip(tensors, (of_q, of_k, of_k), strict=True)]
        alone = scaled_dot_product_attention(*map(heads_first, own), **shared)
        assert bits(heads_first(results[0][of_q]), results[1][:, of_q][None]) == bits(*alone)
        given = heads_first(into[0][of_q]), into[1][:, of_q][None]
        expected = torch.autograd.grad(alone, own, given)
        assert bits(found[0][of_q], found[1][of_k], found[2][of_k]) == bits(*expected)
        first_q, first_k = of_q.stop, of_k.stop
    assert not results[0][first_q:].any() and (results[1][:, first_q:] == -torch.inf).all()
    rest = zip(found, (first_q, first_k, first_k), strict=True)
    assert not any(each[end:].any() for each, end in rest)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_what_is_dropped_of_a_sequence_is_what_its_place_in_a_batch_drops(dtype):
    shared = {"is_causal": True, "dropout_p": 0.4, "seed": 2**63 + 5}
    tensors = small(dtype=dtype)
    y, lse = attended(*tensors, return_lse=True, **shared)
    into = draw(*y.shape, dtype=dtype, seed=4)
    found = torch.autograd.grad(y, tensors, into)
    places = zip(*(pairwise(each.tolist()) for each in ENDS), strict=True)
    for i, ends in enumerate(places):
        of_q, of_k = (slice(*each) for each in ends)
        own = zip(tensors, (of_q, of_k, of_k), strict=True)
        batch = [heads_first(each.detach()[rows]).repeat(i + 1, 1, 1, 1) for each, rows in own]
        batch = [each.requires_grad_() for each in batch]
        alone = scaled_dot_product_attention(*batch, return_lse=True, enable_gqa=True, **shared)
        assert bits(heads_first(y[of_q]), lse[:, of_q][None]) == bits(*(e[i:] for e in alone))
        expected = torch.autograd.grad(alone[0][i:], batch, heads_first(into[of_q]))
        rows = (each[i].transpose(0, 1) for each in expected)
        assert bits(found[0][of_q], found[1][of_k], found[2][of_k]) == bits(*rows)
    assert bits(y) != bits(attended(*tensors, **shared | {"seed": 6}))
    assert bits(y) != bits(attended(*tensors, **shared | {"dropout_p": 0.0}))


def test_a_seed_that_is_not_given_is_drawn_by_pytorchs_generator():
    tensors = small(dtype=torch.float32)
    found = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        found.append(bits(attended(*tensors, dropout_p=0.5)))
    assert found[0] == found[1] != found[2]


def test_rows_behind_the_last_sequence_are_not_read():
    (q, k, v), ends = packed(requires_grad=False)
    expected = varlen_attention(q, k, v, *ends, enable_gqa=True)
    for each, lengths in ((q, QUERIES), (k, KEYS), (v, KEYS)):
        each[sum(lengths) :] = torch.nan
    assert bits(varlen_attention(q, k, v, *ends, enable_gqa=True)) == bits(expected)


def test_views_of_one_packed_tensor_are_read_where_they_lie():
    whole, ends = draw(9, 3, 2, 8, requires_grad=True), offsets((4, 5))
    y = varlen_attention(*whole.unbind(1), ends)
    assert bits(y) == bits(varlen_attention(*(each.contiguous() for each in whole.unbind(1)), ends))
    assert torch.autograd.grad(y.sum(), whole)[0].shape == whole.shape


def calls_of_three_lengths(monkeypatch):
    q, calls = draw(12, 2, 8, requires_grad=True), []

    def overload(prefix):
        return lambda *given: calls.append(given) or attending.ATTENTION.overload(prefix)(*given)

    monkeypatch.setattr(varlen_attending, "ATTENTION", SimpleNamespace(overload=overload))
    y = varlen_attention(q, q, q, offsets((3, 3, 3, 1, 2)))
    assert all(each[0].untyped_storage().data_ptr() == q.data_ptr() for each in calls)  # no copies
    return y, [each[0].shape[::2] for each in calls]


def test_sequences_are_one_call_and_there_is_one_node(monkeypatch):
    y, shapes = calls_of_three_lengths(monkeypatch)
    assert shapes == [(1, 12)]
    nodes = [each for each, _ in y.grad_fn.next_functions if each is not None]
    assert len(nodes) == 3 and all("AccumulateGrad" in each.name() for each in nodes)


DROPPED = {"dropout_p": 0.3, "seed": 3}


@pytest.mark.parametrize("options", [*OPTIONS[2:], {"return_lse": True} | DROPPED])
def test_derivatives_are_right(options):
    def function(*tensors):
        results = attended(*tensors, **options)
        if isinstance(results, torch.Tensor):
            return results
        return results[0], results[1].masked_fill(results[1] == -torch.inf, 0)

    more = {"fast_mode": True}
    assert torch.autograd.gradcheck(function, small(), check_forward_ad=True, **more)
    assert torch.autograd.gradgradcheck(function, small(), check_fwd_over_rev=True, **more)


def test_one_gradient_alone_has_the_same_bits():
    tensors = small(dtype=torch.float32)
    expected = torch.autograd.grad(attended(*tensors, **DROPPED).sum(), tensors)
    for i, each in enumerate(expected):
        tensors = [each.detach() for each in tensors]
        tensors[i].requires_grad_()
        y = attended(*tensors, **DROPPED)
        assert bits(*torch.autograd.grad(y.sum(), tensors[i])) == bits(each)


def test_no_sequences_and_only_empty_ones():
    q, k, v = small(dtype=torch.float32)
    for ends in (torch.zeros(1, dtype=torch.int32), torch.zeros(3, dtype=torch.int64)):
        y, lse = varlen_attention(q, k, v, ends, enable_gqa=True, return_lse=True)
        assert not y.any() and (lse == -torch.inf).all()
        assert not any(each.any() for each in torch.autograd.grad(y.sum(), (q, k, v)))


def test_compiled_code_has_the_same_bits_and_no_break():
    compiled = torch.compile(attended, backend="aot_eager", fullgraph=True)
    tensors = small(dtype=torch.float32)
    for options in ({}, DROPPED):
        found, expected = compiled(*tensors, **options), attended(*tensors, **options)
        assert bits(found) == bits(expected)
        gradients = [torch.autograd.grad(y.sum(), tensors) for y in (found, expected)]
        assert bits(*gradients[0]) == bits(*gradients[1])
    falling = torch.tensor([0, 3, 2, 4])
    of_others = torch.compile(varlen_attention, backend="aot_eager", fullgraph=True)
    with pytest.raises(ValueError, match=r"varlen_attention: cu_seqlens_q\[2\] is 2; must be 3 or"):
        of_others(*tensors, falling, ENDS[1], enable_gqa=True)


def test_forward_mode_in_compiled_code_has_a_break():
    tensors = tuple(small(dtype=torch.float32, requires_grad=False))

    def tangent(*tensors):
        return torch.func.jvp(attended, tensors, tensors)[1]

    expected = tangent(*tensors)
    torch.testing.assert_close(torch.compile(tangent, backend="aot_eager")(*tensors), expected)


@pytest.mark.parametrize("name", ["varlen_attention", "varlen_attention_backward"])
def test_opcheck(name):
    tensors = small(dtype=torch.float32)
    arguments = (*tensors, *ENDS)
    if name == "varlen_attention_backward":  # whose derivatives are no part of compiled code
        q, k, v = (each.detach() for each in tensors)
        y, _lse, largest, total = torch.ops.isobit.varlen_attention(q, k, v, *ENDS)
        arguments = (torch.ones_like(y), None, q, k, v, *ENDS, y, largest, total)
    dropped = {"dropout": 0.3, "seed": torch.tensor(3)}
    torch.library.opcheck(getattr(torch.ops.isobit, name).default, arguments, dropped)


def test_vmap_is_a_loop():
    batch = [torch.stack((each, 2 * each)) for each in small(requires_grad=False)]
    expected = torch.stack([attended(*each) for each in zip(*batch, strict=True)])
    assert bits(torch.vmap(attended)(*batch)) == bits(expected)
    ends = torch.stack((ENDS[0], torch.tensor([0, 1, 1, 6])))
    q, k, v = (each[0] for each in batch)
    found = torch.vmap(lambda cu: varlen_attention(q, k, v, cu, ENDS[1], enable_gqa=True))(ends)
    assert bits(found[0]) == bits(attended(q, k, v))
    assert bits(found[1]) == bits(varlen_attention(q, k, v, ends[1], ENDS[1], enable_gqa=True))


def test_autocast_is_that_of_attention():
    with torch.autocast("cpu", torch.bfloat16):
        y = attended(*small(dtype=torch.float32))
    assert y.dtype == torch.bfloat16


@pytest.mark.parametrize(
    ("ends", "error", "words"),
    [
        (torch.tensor([1, 4]), ValueError, r"cu_seqlens_q\[0\] is 1; must be 0"),
        (torch.tensor([0, 4, 3]), ValueError, r"cu_seqlens_q\[2\] is 3; must be 4 or more"),
        (torch.tensor([0, 7]), ValueError, "cu_seqlens_q ends with 7; query has 6 rows"),
        (torch.tensor([0.0, 4.0]), ValueError, "cu_seqlens_q has dtype torch.float32; must be int"),
        (torch.tensor(0), ValueError, r"cu_seqlens_q has shape \(\); must be \(sequences \+ 1,\)"),
        (torch.tensor([[0, 4]]), ValueError, r"cu_seqlens_q has shape \(1, 2\); must be"),
        (torch.zeros(0, dtype=torch.int32), ValueError, r"cu_seqlens_q has shape \(0,\)"),
        ([0, 4], TypeError, "cu_seqlens_q must be a Tensor; it is list"),
        (torch.tensor([0, 4], device="meta"), ValueError, "cu_seqlens_q is on meta; must be on"),
    ],
)
def test_offsets_that_are_wrong_are_refused(ends, error, words):
    q = draw(6, 2, 3)
    with pytest.raises(error, match=f"^varlen_attention: {words}"):
        varlen_attention(q, q, q, ends)


@pytest.mark.parametrize(
    ("given", "more", "error", "words"),
    [
        ((6, 6, 6), {"dropout_p": 1.5}, ValueError, r"dropout is 1\.5; must be"),
        ((6, 6, 6), {"dropout_p": 0.5, "seed": 0.5}, TypeError, "seed must be an integer"),
        ((6, 6, 6), {"causal": "left"}, ValueError, "causal is 'left'; allowed: None, 'no'"),
        ((6, 6, 6), {"window": -1}, ValueError, "window"),
        ((6, 5, 6), {}, ValueError, r"key and value have shapes \(5, 2, 3\) and \(6, 2, 3\); must"),
        ((6, 2, 2), {}, ValueError, "cu_seqlens_k ends with 4; key has 2 rows"),
    ],
)
def test_what_does_not_fit_is_refused(given, more, error, words):
    q, k, v = (draw(rows, 2, 3) for rows in given)
    with pytest.raises(error, match=words):
        varlen_attention(q, k, v, torch.tensor([0, 1, 4]), **more)


def test_shapes_and_types_are_refused_by_name():
    q, ends = draw(6, 2, 3), torch.tensor([0, 6])
    for (a, b, c), words in (
        ((q[0], q, q), "query has 2 dimensions; must have 3"),
        ((q, q.double(), q), "key has dtype torch.float64; query has torch.float32"),
        ((q, draw(6, 2, 4), q), "key has rows of 4 elements; query has 3"),
        ((q, q[:, :1], q[:, :1]), "query and key have 2 and 1 heads; must have equally many, or"),
    ):
        with pytest.raises(ValueError, match=f"varlen_attention: {words}"):
            varlen_attention(a, b, c, ends)
    three = draw(6, 3, 3)
    with pytest.raises(ValueError, match="query has 3 heads; must be a multiple of key's 2"):
        varlen_attention(three, q, q, ends, enable_gqa=True)
    with pytest.raises(ValueError, match="cu_seqlens_k has 3 elements; cu_seqlens_q has 2"):
        varlen_attention(q, q, q, ends, torch.tensor([0, 1, 2]))
