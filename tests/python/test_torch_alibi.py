# SPDX-License-Identifier: Apache-2.0
"""alibi_slopes of scaled_dot_product_attention: FlashAttention's bias, in single precision beside
16 bits too, and the same bits for a query whatever stands beside it."""

import pytest
import torch
from torch_calls import bits, draw

from isobit.torch import scaled_dot_product_attention

SLOPES = torch.tensor([0.5, 0.25, 0.125, 3.0])


def drawn(queries=5, keys=7, dtype=torch.float32, requires_grad=True):
    shapes = ((2, 4, queries, 8), (2, 2, keys, 8), (2, 2, keys, 6))
    return [draw(*shape, dtype=dtype, requires_grad=requires_grad) for shape in shapes]


def attended(q, k, v, slopes=SLOPES, **options):
    return scaled_dot_product_attention(q, k, v, enable_gqa=True, alibi_slopes=slopes, **options)


def bias(slopes, queries, keys, dtype=torch.float32):
    """Number by number, as FlashAttention's page has it."""
    found = torch.empty(*slopes.shape, queries, keys, dtype=dtype)
    for i in range(queries):
        for j in range(keys):
            found[..., i, j] = -slopes.to(dtype) * abs(i + keys - queries - j)
    return found


@pytest.mark.parametrize("queries", [1, 5, 9])
@pytest.mark.parametrize(
    "options", [{}, {"causal": "bottom_right"}, {"window": 3, "softcap": 2.0}, {"return_lse": True}]
)
@pytest.mark.parametrize("of_batch", [False, True])
def test_it_is_the_bias_of_the_definition(queries, options, of_batch):
    tensors = drawn(queries)
    slopes = torch.stack((SLOPES, SLOPES * 2)) if of_batch else SLOPES
    y = attended(*tensors, slopes, **options)
    given = [*tensors, bias(slopes, queries, 7)]
    expected = scaled_dot_product_attention(*given, enable_gqa=True, **options)
    many, wanted = (each if isinstance(each, tuple) else (each,) for each in (y, expected))
    assert bits(*many) == bits(*wanted)
    gradients = [torch.autograd.grad(each[0].sum(), tensors) for each in (many, wanted)]
    assert bits(*gradients[0]) == bits(*gradients[1])


def test_a_query_decoded_alone_has_the_bits_that_it_has_in_a_prompt():
    q, k, v = drawn(7, 7, requires_grad=False)
    whole = attended(q, k, v, causal="bottom_right")
    for end in (1, 4, 7):
        row = slice(end - 1, end)
        alone = attended(q[:, :, row], k[:, :, :end], v[:, :, :end], causal="bottom_right")
        assert bits(alone) == bits(whole[:, :, row])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_beside_16_bits_it_is_not_rounded_to_them(dtype):
    q, k, v = drawn(3, 600, dtype)
    slopes = torch.full((4,), 0.0173)
    wide = attended(*(each.float() for each in (q, k, v)), slopes)
    y, lse = attended(q, k, v, slopes, return_lse=True)
    assert y.dtype == dtype and bits(y) == bits(wide.to(dtype)) and lse.dtype == torch.float32
    rounded = bias(slopes, 3, 600).to(dtype)
    assert bits(y) != bits(scaled_dot_product_attention(q, k, v, rounded, enable_gqa=True))
    plain = scaled_dot_product_attention(q, k, v, enable_gqa=True)
    assert bits(attended(q, k, v, 0 * slopes)) == bits(plain)
    found = torch.autograd.grad(y.float().sum(), (q, k, v))
    expected = torch.autograd.grad(wide.sum(), (q, k, v))
    assert all(each.dtype == dtype for each in found)
    step = torch.finfo(dtype).eps
    torch.testing.assert_close(found, expected, atol=step, rtol=2 * step)


def test_autocast_narrows_and_adds_in_single_precision():
    q, k, v = drawn(3, 600)
    slopes = torch.full((4,), 0.0173)
    expected = attended(*(each.bfloat16() for each in (q, k, v)), slopes)
    with torch.autocast("cpu", torch.bfloat16):
        y = attended(q, k, v, slopes)
    assert y.dtype == torch.bfloat16 and bits(y) == bits(expected)


def most_allocated(slopes):
    q, k, v = (each[:1].expand(64, -1, -1, -1) for each in drawn(64, 64, requires_grad=False))
    with torch.profiler.profile(profile_memory=True) as profile:
        attended(q[..., :1], k[..., :1], v[..., :1], slopes)
    return max(each.self_cpu_memory_usage for each in profile.key_averages())


def test_it_takes_no_memory_but_where_slopes_are_learned():
    scores = 4 * 64 * 64 * 4  # of heads, queries and keys
    results = 4 * 64 * 4 * 64 * 4  # y, lse, max and sum of a batch
    assert most_allocated(SLOPES) == most_allocated(None) == results
    with torch.profiler.profile(profile_memory=True) as profile:
        attended(*(each[:1].expand(64, -1, -1, -1) for each in drawn(32, 32)), learned())
    most = max(each.self_cpu_memory_usage for each in profile.key_averages() if "mul" in each.key)
    assert most == scores // 4  # and not of the batch


def learned():
    return SLOPES.clone().requires_grad_()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_learned_slopes_have_the_same_bits(dtype):
    tensors = drawn(9, 150, dtype)
    found, expected = (
        attended(*tensors, slopes, causal="bottom_right", return_lse=True)
        for slopes in (learned(), SLOPES)
    )
    assert bits(*found) == bits(*expected)


def test_the_operator_itself_refuses_their_derivatives():
    operator = torch.ops.isobit.attention
    q, k, v = (each[:, :2] for each in drawn(requires_grad=False))
    slopes = torch.ones(2, 2)
    y = operator(q, k, v, slopes=slopes.clone().requires_grad_())[0]
    with pytest.raises(NotImplementedError, match="slopes has no derivative; detach it"):
        y.sum().backward()
    with pytest.raises(NotImplementedError, match="slopes has no derivative; detach it"):
        torch.func.jvp(lambda each: operator(q, k, v, slopes=each)[0], (slopes,), (slopes,))


def test_transforms_have_the_same_bits():
    q, k, v = drawn(requires_grad=False)
    slopes = torch.stack((SLOPES, SLOPES * 2))
    expected = torch.stack([attended(q, k, v, each) for each in slopes])
    found = torch.func.vmap(attended, in_dims=(None, None, None, 0))(q, k, v, slopes)
    assert bits(found) == bits(expected)
    tensors = drawn()
    (of_grad,) = torch.autograd.grad(attended(*tensors).sum(), tensors[:1])
    found = torch.func.grad(lambda each: attended(each, *tensors[1:]).sum())(tensors[0].detach())
    assert bits(found) == bits(of_grad)


def test_derivatives_are_right_those_of_slopes_too():
    tensors = drawn(3, 4, torch.float64)
    slopes = SLOPES.double().requires_grad_()
    more = {"fast_mode": True}
    assert torch.autograd.gradcheck(attended, (*tensors, slopes), check_forward_ad=True, **more)
    assert torch.autograd.gradgradcheck(attended, (*tensors, slopes), **more)


def test_compiled_code_has_the_same_bits_and_no_break():
    tensors = drawn(dtype=torch.bfloat16)
    compiled = torch.compile(attended, backend="aot_eager", fullgraph=True)
    found, expected = compiled(*tensors), attended(*tensors)
    assert bits(found) == bits(expected)
    gradients = [torch.autograd.grad(y.float().sum(), tensors) for y in (found, expected)]
    assert bits(*gradients[0]) == bits(*gradients[1])


def test_a_mask_of_bool_stays_and_dropout_too():
    tensors = drawn()
    mask = draw(5, 7) > 0
    both = bias(SLOPES, 5, 7).masked_fill(~mask, -torch.inf)
    expected = scaled_dot_product_attention(*tensors, both, enable_gqa=True)
    assert bits(attended(*tensors, attn_mask=mask)) == bits(expected)
    dropped = {"dropout_p": 0.5, "seed": 3}
    expected = scaled_dot_product_attention(
        *(*tensors, bias(SLOPES, 5, 7)), enable_gqa=True, **dropped
    )
    assert bits(attended(*tensors, **dropped)) == bits(expected)


def test_ranks_are_those_of_query():
    q, k, v = (each[0, :1] for each in drawn(requires_grad=False))
    slopes = SLOPES[:1]
    expected = attended(q[None], k[None], v[None], slopes)[0]
    assert bits(attended(q, k, v, slopes)) == bits(expected)
    assert bits(attended(q[0], k[0], v[0], slopes)) == bits(expected[0])
    five = [each.unflatten(0, (1, 2)) for each in drawn(requires_grad=False)]
    slopes = torch.stack((SLOPES, SLOPES * 2))
    expected = attended(*drawn(requires_grad=False), slopes)[None]
    assert bits(attended(*five, slopes[None])) == bits(expected)


@pytest.mark.parametrize(
    ("slopes", "more", "error", "words"),
    [
        (SLOPES[:3], {}, ValueError, r"shape \(3,\); must be \(4,\) or \(2, 4\)"),
        (SLOPES.expand(3, 4), {}, ValueError, r"shape \(3, 4\); must be \(4,\) or \(2, 4\)"),
        (SLOPES.bfloat16(), {}, ValueError, r"dtype torch\.bfloat16; must be float32"),
        (SLOPES.double(), {}, ValueError, r"dtype torch\.float64; must be float32"),
        (SLOPES.to("meta"), {}, ValueError, "alibi_slopes is on meta; query is on cpu"),
        ([0.5] * 4, {}, TypeError, "alibi_slopes must be a Tensor; it is list"),
        (SLOPES, {"attn_mask": draw(5, 7)}, ValueError, "attn_mask has dtype torch.float32; must"),
    ],
)
def test_what_does_not_fit_is_refused(slopes, more, error, words):
    with pytest.raises(error, match=f"^scaled_dot_product_attention: .*{words}"):
        attended(*drawn(requires_grad=False), slopes, **more)
