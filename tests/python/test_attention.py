# SPDX-License-Identifier: Apache-2.0
"""scaled_dot_product_attention of isobit.torch and isobit.numpy: derivatives of all orders,
transforms, and that a query's bits are its own. PyTorch's samples: test_torch_opinfo.py."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention as theirs

import isobit.numpy as isobit_numpy
from isobit.torch import scaled_dot_product_attention as ours
from isobit.torch import varlen_attention


def drawn(*shapes, dtype=torch.float32, seed=0, requires_grad=False):
    generator = torch.Generator().manual_seed(seed)
    return [
        torch.randn(shape, generator=generator, dtype=torch.float64)
        .to(dtype)
        .requires_grad_(requires_grad)
        for shape in shapes
    ]


def same_bits(a, b):
    return a.shape == b.shape and torch.equal(a.view(torch.uint8), b.view(torch.uint8))


OPTIONS = [
    {},
    {"is_causal": True},
    {"causal": "bottom_right", "window": 3},
    {"softcap": 2.0},
    {"scale": -0.4},
    {"dropout_p": 0.4, "seed": 3},
    {"return_lse": True},
]


@pytest.mark.parametrize("options", OPTIONS)
def test_derivatives_are_right(options):
    shapes = [(1, 2, 3, 3), (1, 1, 4, 3), (1, 1, 4, 2)]
    tensors = drawn(*shapes, dtype=torch.float64, requires_grad=True)

    def function(q, k, v):
        return ours(q, k, v, enable_gqa=True, **options)

    assert torch.autograd.gradcheck(function, tensors, check_forward_ad=True)
    assert torch.autograd.gradgradcheck(function, tensors, check_fwd_over_rev=True)


def test_a_bias_that_repeats_has_the_sum_of_its_gradients():
    tensors = drawn((2, 3, 4, 5), (2, 3, 6, 5), (2, 3, 6, 5), (3, 1, 6), requires_grad=True)
    found = torch.autograd.grad(ours(*tensors).sum(), tensors)
    torch.testing.assert_close(found, torch.autograd.grad(theirs(*tensors).sum(), tensors))


def test_a_query_has_its_bits_whatever_stands_beside_it():
    q, k, v = drawn((3, 4, 50, 16), (3, 2, 70, 16), (3, 2, 70, 8))
    whole = ours(q, k, v, enable_gqa=True)
    one = ours(q[1:2, :, 7:8], k[1:2], v[1:2], enable_gqa=True)
    assert same_bits(one, whole[1:2, :, 7:8].contiguous())
    turned = [each.transpose(1, 2).contiguous().transpose(1, 2) for each in (q, k, v)]
    assert same_bits(ours(*turned, enable_gqa=True), whole)


def test_rows_that_become_heads_are_joined_again_without_a_copy():
    rows = [torch.randn(2, 5, 3 * 4).requires_grad_() for _ in range(3)]
    q, k, v = (each.view(2, 5, 3, 4).transpose(1, 2) for each in rows)
    y = ours(q, k, v)
    assert y.transpose(1, 2).is_contiguous()
    for gradient in torch.autograd.grad(y, (q, k, v), torch.randn_like(y)):
        assert gradient.transpose(1, 2).is_contiguous()


def test_compiled_code_has_the_same_bits_and_no_break():
    tensors = drawn((2, 3, 9, 8), (2, 3, 11, 8), (2, 3, 11, 8), requires_grad=True)

    def loss(q, k, v):
        return ours(q, k, v, is_causal=True, softcap=3.0) * 2

    compiled = torch.compile(loss, fullgraph=True, backend="aot_eager")
    y, expected = compiled(*tensors), loss(*tensors)
    assert same_bits(y, expected)
    into = torch.ones_like(y)
    for a, b in zip(
        torch.autograd.grad(y, tensors, into),
        torch.autograd.grad(expected, tensors, into),
        strict=True,
    ):
        assert same_bits(a, b)


def test_vmap_is_a_loop():
    tensors = drawn((2, 3, 4, 5), (2, 3, 6, 5), (2, 3, 6, 5))
    each = torch.stack([ours(*rows) for rows in zip(*tensors, strict=True)])
    assert same_bits(torch.func.vmap(ours)(*tensors), each)


def test_autocast_is_torchs():
    tensors = drawn((1, 2, 4, 8), (1, 2, 6, 8), (1, 2, 6, 8))
    with torch.autocast("cpu", torch.bfloat16):
        y, expected = ours(*tensors), theirs(*tensors)
    assert y.dtype == expected.dtype == torch.bfloat16


@pytest.mark.parametrize("name", ["attention", "attention_backward"])
def test_opcheck(name):
    q, k, v = drawn((1, 2, 4, 8), (1, 1, 6, 8), (1, 1, 6, 4), requires_grad=True)
    operator = getattr(torch.ops.isobit, name).default
    arguments = (q, k, v)
    if name == "attention_backward":
        y, _lse, largest, total = torch.ops.isobit.attention(q, k, v)
        given = [each.detach() for each in (y, largest, total)]
        arguments = (torch.ones_like(given[0]), None, q, k, v, None, None, *given)
    torch.library.opcheck(operator, arguments)


def test_dropout_is_the_generators_or_the_seeds():
    tensors = drawn((1, 2, 4, 8), (1, 2, 60, 8), (1, 2, 60, 8))
    torch.manual_seed(1)
    first = ours(*tensors, dropout_p=0.5)
    torch.manual_seed(1)
    assert same_bits(ours(*tensors, dropout_p=0.5), first)
    assert not same_bits(ours(*tensors, dropout_p=0.5), first)
    assert same_bits(
        ours(*tensors, dropout_p=0.5, seed=7), ours(*tensors, dropout_p=0.5, seed=torch.tensor(7))
    )


@pytest.mark.parametrize("queries", [1, 6])
@pytest.mark.parametrize("softcap", [0.0, 2.0])
def test_a_scale_of_zero_gives_the_mean(queries, softcap):
    q, k, v = drawn((1, 1, queries, 8), (1, 1, 6, 8), (1, 1, 6, 8))
    y = ours(q, k, v, scale=0.0, causal="bottom_right", softcap=softcap)
    allowed = torch.ones(queries, 6, dtype=torch.bool).tril(6 - queries)
    torch.testing.assert_close(y, theirs(q, k, v, attn_mask=allowed, scale=0.0))
    numpys = isobit_numpy.scaled_dot_product_attention(
        *(each.numpy() for each in (q, k, v)), scale=0.0, causal="bottom_right", softcap=softcap
    )
    assert same_bits(y, torch.from_numpy(numpys))


def test_dropout_knows_its_seed_beside_tensors_of_other_devices():
    q, k, v = (each.to("meta") for each in drawn(*[(1, 2, 5, 4)] * 3))
    assert ours(q, k, v, dropout_p=0.1, seed=3).shape == (1, 2, 5, 4)


def test_forward_over_reverse():
    shapes = [(1, 1, 3, 2), (1, 1, 4, 2), (1, 1, 4, 2)]
    q, k, v = drawn(*shapes, dtype=torch.float64)

    def plain(q, k, v):
        return torch.softmax(q @ k.mT / 2**0.5, -1) @ v

    def total(function):
        return lambda *given: function(*given).square().sum()

    for name, which in (("q", 0), ("k", 1), ("v", 2)):
        found = torch.func.hessian(total(ours), which)(q, k, v)
        torch.testing.assert_close(
            found, torch.func.hessian(total(plain), which)(q, k, v), msg=name
        )


def test_what_no_query_may_see_is_absent_from_derivatives_of_every_order():
    q, k, v = drawn(*[(1, 1, 3, 2)] * 3, dtype=torch.float64)
    mask = torch.tensor([[True, True, False]] * 3)
    spoiled = k.clone(), v.clone()
    for each in spoiled:
        each[..., 2, :] = torch.nan

    def second(k, v):
        def first(q):
            x = q.detach().requires_grad_()
            (g,) = torch.autograd.grad(ours(x, k, v, mask).square().sum(), x, create_graph=True)
            return torch.autograd.grad(g.square().sum(), x)[0]

        return first(q)

    assert torch.equal(second(*spoiled), second(k, v))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_mask_of_floats_beside_sixteen_bits_keeps_its_keys(dtype):
    q, k, v = drawn((1, 1, 2, 8), (1, 1, 3, 8), (1, 1, 3, 8), dtype=dtype)
    least = torch.finfo(torch.float32).min
    mask = torch.tensor([[0.0, least, -torch.inf], [least, least, -torch.inf]])
    y = ours(q, k, v, mask)
    assert y.dtype == dtype and y.isfinite().all()
    torch.testing.assert_close(y[0, 0, 0], v[0, 0, 0])


def test_autocast_casts_a_cache_of_another_type():
    q, k, v = drawn((1, 1, 2, 8), (1, 1, 3, 8), (1, 1, 3, 8))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = ours(q, k.bfloat16(), v.bfloat16())
    assert same_bits(y, ours(q.bfloat16(), k.bfloat16(), v.bfloat16()))


def test_wrong_calls_say_so():
    q, k, v = drawn((1, 4, 3, 8), (1, 2, 5, 8), (1, 2, 5, 8))
    mask = torch.ones(3, 5, dtype=torch.bool)
    k3, two = k[:, :1].expand(1, 3, 5, 8), ((k, 2), (k, 3), (v, 3))
    for words, error, call in (
        ("query, key and value have 4, 2 and 2 heads", ValueError, lambda: ours(q, k, v)),
        ("attn_mask and is_causal are given", RuntimeError, lambda: ours(k, k, v, mask, 0.0, True)),
        ("causal is 'left'; allowed", ValueError, lambda: ours(k, k, v, causal="left")),
        ("key has dtype torch.float64", ValueError, lambda: ours(k, k.double(), v)),
        ("window is -1; must not be", ValueError, lambda: ours(k, k, v, window=-1)),
        ("query has 1 dimensions", ValueError, lambda: ours(q[0, 0, 0], k, v)),
        ("dropout is 1", ValueError, lambda: ours(k, k, v, dropout_p=1.0)),
        ("query must be a Tensor; it is int", TypeError, lambda: ours(1, k, v)),
        ("attn_mask must be a Tensor; it is int", TypeError, lambda: ours(k, k, v, 3)),
        ("attn_mask has dtype torch.int32", ValueError, lambda: ours(k, k, v, mask.int())),
        ("attn_mask has shape", ValueError, lambda: ours(k, k, v, mask[:2])),
        ("is_causal means", ValueError, lambda: ours(k, k, v, is_causal=True, causal="no")),
        ("query has 4 heads; with", ValueError, lambda: ours(q, k3, v, enable_gqa=True)),
        ("whose batches do not", ValueError, lambda: ours(*(e.expand(n, 2, 5, 8) for e, n in two))),
    ):
        with pytest.raises(error, match=words):
            call()


def test_keys_and_values_may_have_different_numbers_of_heads():
    q, k, v = drawn((1, 4, 3, 8), (1, 2, 5, 8), (1, 1, 5, 8))
    repeated = k.repeat_interleave(2, 1), v.repeat_interleave(4, 1)
    assert same_bits(ours(q, k, v, enable_gqa=True), ours(q, *repeated))


def test_numpys_wrong_calls_say_so():
    q, k = (each.numpy() for each in drawn((1, 2, 3, 8), (1, 2, 5, 8)))
    attend = isobit_numpy.scaled_dot_product_attention
    with pytest.raises(ValueError, match="causal is 'left'; allowed: 'no', 'top_left'"):
        attend(q, k, k, causal="left")
    with pytest.raises(ValueError, match="key has 3 dimensions; must have 4"):
        attend(q, k[0], k)
    with pytest.raises(ValueError, match=r"attn_mask has shape .* does not broadcast"):
        attend(q, k, k, np.ones((2, 2), bool))


def test_numpy_has_the_bits_of_torch():
    q, k, v = drawn((2, 4, 9, 8), (2, 2, 11, 8), (2, 2, 11, 6))
    mask = torch.rand(2, 1, 9, 11, generator=torch.Generator().manual_seed(1)) > 0.3
    bias = drawn((4, 1, 11))[0]
    for attn_mask in (None, mask, bias):
        y, lse = isobit_numpy.scaled_dot_product_attention(
            q.numpy(),
            k.numpy(),
            v.numpy(),
            None if attn_mask is None else attn_mask.numpy(),
            causal="bottom_right",
            return_lse=True,
        )
        expected = ours(q, k, v, attn_mask, causal="bottom_right", return_lse=True, enable_gqa=True)
        assert np.array_equal(y.view(np.int32), expected[0].numpy().view(np.int32))
        assert np.array_equal(lse.view(np.int32), expected[1].numpy().view(np.int32))


def test_numpy_drops_what_torch_drops():
    q, k, v = drawn((2, 4, 9, 8), (2, 2, 9, 8), (2, 2, 9, 6))
    arrays, options = [each.numpy() for each in (q, k, v)], {"dropout_p": 0.4, "seed": 7}
    attend = isobit_numpy.scaled_dot_product_attention
    expected = ours(q, k, v, enable_gqa=True, **options)
    assert np.array_equal(attend(*arrays, **options), expected.numpy())
    packed = [each.transpose(0, 2, 1, 3).reshape(18, *each.shape[1::2]) for each in arrays]
    starts, rows = np.array([0, 9, 18]), [each.swapaxes(0, 1)[None] for each in packed]
    y = attend(*rows, cu_seqlens_q=starts, cu_seqlens_k=starts, **options)[0].swapaxes(0, 1)
    ends = torch.from_numpy(starts)
    whole = varlen_attention(*map(torch.from_numpy, packed), ends, enable_gqa=True, **options)
    assert np.array_equal(y, whole.numpy())
    assert np.array_equal(y[9:].swapaxes(0, 1), expected[1].numpy())
    assert not np.array_equal(attend(*arrays, dropout_p=0.4), attend(*arrays, dropout_p=0.4))


def test_numpy_has_slopes_too():
    q, k, v = drawn((2, 4, 9, 8), (2, 2, 11, 8), (2, 2, 11, 6))
    arrays = [each.numpy() for each in (q, k, v)]
    for slopes in (torch.tensor([0.5, 0.25, 0.125, 3.0]), torch.rand(2, 4)):
        expected = ours(q, k, v, enable_gqa=True, alibi_slopes=slopes).numpy()
        found = isobit_numpy.scaled_dot_product_attention(*arrays, alibi_slopes=slopes.numpy())
        assert np.array_equal(found.view(np.int32), expected.view(np.int32))
    for wrong, error, words in (
        (np.ones(3, np.float32), ValueError, r"shape \(3,\); must be \(4,\) or \(2, 4\)"),
        (np.ones(4), TypeError, "alibi_slopes has dtype float64"),
    ):
        with pytest.raises(error, match=words):
            isobit_numpy.scaled_dot_product_attention(*arrays, alibi_slopes=wrong)


BEGIN, END = torch.tensor([0, 2, 5]), torch.tensor([11, 7, 5])


def padded(dtype=torch.float32, requires_grad=False):
    """q, k and v, and those of each sequence alone; outside of sequences k and v hold NaN."""
    q, k, v = drawn((3, 4, 9, 8), (3, 2, 11, 8), (3, 2, 11, 6), dtype=dtype)
    alone = [
        [q[i : i + 1], k[i : i + 1, :, begin:end], v[i : i + 1, :, begin:end]]
        for i, (begin, end) in enumerate(zip(BEGIN, END, strict=True))
    ]
    alone = [[each.clone().requires_grad_(requires_grad) for each in one] for one in alone]
    place = torch.arange(11)
    held = (place >= BEGIN[:, None]) & (place < END[:, None])
    for each in (k, v):
        each.masked_fill_(~held[:, None, :, None], torch.nan)
    return [each.requires_grad_(requires_grad) for each in (q, k, v)], alone


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("options", [{}, {"softcap": 2.0}, {"scale": -0.3}])
def test_padded_sequences_have_the_bits_that_they_have_alone(dtype, options):
    tensors, alone = padded(dtype, requires_grad=True)
    y = ours(*tensors, key_begin=BEGIN, key_end=END.int(), enable_gqa=True, **options)
    gradients = torch.autograd.grad(y.float().sum(), tensors)
    for i, (begin, end) in enumerate(zip(BEGIN, END, strict=True)):
        expected = ours(*alone[i], enable_gqa=True, **options)
        assert same_bits(y[i : i + 1], expected)
        found = torch.autograd.grad(expected.float().sum(), alone[i])
        assert same_bits(gradients[0][i : i + 1], found[0])
        for whole, each in zip(gradients[1:], found[1:], strict=True):
            assert same_bits(whole[i : i + 1, :, begin:end].contiguous(), each)
            assert (whole[i, :, :begin] == 0).all() and (whole[i, :, end:] == 0).all()
    arrays = [each.detach().numpy() for each in tensors if dtype != torch.bfloat16]
    if arrays:
        found = isobit_numpy.scaled_dot_product_attention(
            *arrays, key_begin=BEGIN.numpy(), key_end=END.numpy(), **options
        )
        assert same_bits(torch.from_numpy(found), y.detach())


def test_derivatives_of_padded_sequences_are_right():
    (q, k, v), _ = padded(torch.float64)
    tensors = [each.nan_to_num().requires_grad_() for each in (q[:, :2], k, v)]
    for options in ({}, {"dropout_p": 0.4, "seed": 3}):

        def function(*given, options=options):
            return ours(*given, key_begin=BEGIN, key_end=END, **options)

        more = {"fast_mode": True}
        assert torch.autograd.gradcheck(function, tensors, check_forward_ad=True, **more)
        assert torch.autograd.gradgradcheck(function, tensors, **more)


def test_padded_sequences_of_a_batch_of_several_dimensions():
    (q, k, v), _ = padded()
    expected = ours(q, k, v, key_begin=BEGIN, enable_gqa=True)
    given = [each.unflatten(0, (1, 3)) for each in (q, k, v)]
    found = ours(*given, key_begin=BEGIN[None], enable_gqa=True)
    assert same_bits(found[0], expected)
    compiled = torch.compile(ours, backend="aot_eager", fullgraph=True)
    assert same_bits(compiled(q, k, v, key_begin=BEGIN, enable_gqa=True), expected)


@pytest.mark.parametrize(
    ("begin", "end", "error", "words"),
    [
        ([0, 0, 12], None, ValueError, r"key_begin\[2\] is 12; must be from 0 to 11, the number"),
        (None, [11, -1, 3], ValueError, r"key_end\[1\] is -1; must be from 0 to 11, the number"),
        ([0, 9, 0], [11, 8, 0], ValueError, r"key_begin\[1\] is 9; key_end\[1\] is 8; a sequence"),
        ([0, 0], None, ValueError, r"key_begin has shape \(2,\); must be that of the batch, \(3,"),
        ([0.0, 0, 0], None, ValueError, "key_begin has dtype torch.float32; must be int64 or int3"),
    ],
)
def test_what_is_no_range_of_keys_is_refused(begin, end, error, words):
    (q, k, v), _ = padded()
    ends = {"key_begin": begin, "key_end": end}
    ends = {name: torch.tensor(each) for name, each in ends.items() if each is not None}
    with pytest.raises(error, match=words):
        ours(q, k, v, enable_gqa=True, **ends)


def test_numpy_refuses_what_is_no_range_of_keys():
    arrays = [each.numpy() for each in padded()[0]]
    attend = isobit_numpy.scaled_dot_product_attention
    with pytest.raises(ValueError, match=r"key_begin\[0\] is 12; must be from 0 to 11"):
        attend(*arrays, key_begin=np.array([12, 0, 0]))
    with pytest.raises(ValueError, match=r"key_end has shape \(2,\); must be that of the batch"):
        attend(*arrays, key_end=np.array([1, 2]))
    with pytest.raises(TypeError, match="key_end has dtype float64"):
        attend(*arrays, key_end=np.ones(3))


STARTS = np.array([0, 4, 4, 7])  # of queries and keys; the rows behind belong to no sequence


def test_numpy_attends_packed_sequences_as_each_alone():
    q, k, v = (each.numpy() for each in drawn((1, 4, 9, 8), (1, 2, 9, 8), (1, 2, 9, 6)))
    attend = isobit_numpy.scaled_dot_product_attention
    for options in ({"causal": "bottom_right"}, {"window": 2, "softcap": 3.0}):
        y = attend(q, k, v, cu_seqlens_q=STARTS, cu_seqlens_k=STARTS, **options)
        for i, j in pairwise(STARTS):
            alone = attend(*(each[:, :, i:j] for each in (q, k, v)), **options)
            assert np.array_equal(y[:, :, i:j], alone)
        assert not y[:, :, 7:].any()


@pytest.mark.parametrize("dropped", [{}, {"dropout_p": 0.4, "seed": 7}])
def test_numpy_attends_keys_in_blocks_as_in_a_row(dropped):
    """With dropout, as the sequence with its number in a batch."""
    q, k, v = (each.numpy() for each in drawn((2, 4, 3, 8), (5, 2, 4, 8), (5, 2, 4, 6)))
    table, ends = np.array([[3, 0], [4, -1]]), np.array([7, 2])
    attend, options = (
        isobit_numpy.scaled_dot_product_attention,
        {"causal": "bottom_right"} | dropped,
    )
    y = attend(q, k, v, block_table=table, key_end=ends, **options)
    for i, blocks in enumerate(([3, 0], [4])):
        rows = (np.concatenate([each[b] for b in blocks], 1)[None, :, : ends[i]] for each in (k, v))
        batch = (np.repeat(each, i + 1, 0) for each in (q[i : i + 1], *rows))
        assert np.array_equal(y[i], attend(*batch, **options)[i])
    # The same of packed queries.
    packed = q.transpose(1, 0, 2, 3).reshape(1, 4, 6, 8)
    starts = np.array([0, 3, 6])
    options |= {"block_table": table, "key_end": ends}
    found = attend(packed, k, v, cu_seqlens_q=starts, **options)
    assert np.array_equal(found.reshape(4, 2, 3, 6).transpose(1, 0, 2, 3), y)


def test_numpy_refuses_starts_and_blocks_that_lead_out_of_the_arrays():
    q, k, v = (each.numpy() for each in drawn((1, 4, 9, 8), (1, 2, 9, 8), (1, 2, 9, 6)))
    attend = isobit_numpy.scaled_dot_product_attention
    with pytest.raises(ValueError, match=r"query_starts ends with 10; q has 9 rows"):
        attend(q, k, v, cu_seqlens_q=np.array([0, 10]), cu_seqlens_k=np.array([0, 9]))
    with pytest.raises(ValueError, match="cu_seqlens_q has 2 dimensions; must have 1"):
        attend(q, k, v, cu_seqlens_q=STARTS[None], cu_seqlens_k=STARTS)
    with pytest.raises(ValueError, match=r"blocks\[0, 0\] is 1; must be from 0 to below 1"):
        attend(q, k, v, block_table=np.array([[1]]), key_end=np.array([3]))
