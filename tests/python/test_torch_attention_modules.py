# SPDX-License-Identifier: Apache-2.0
"""MultiheadAttention is torch.nn's in all that it takes and gives, with bits of its own."""

import copy
import itertools
import pickle

import pytest
import torch
from torch_calls import bits, draw

from isobit.torch import (
    MultiheadAttention,
    RotaryEmbedding,
    SelfAttention,
    attention_modules,
    scaled_dot_product_attention,
)

BOOLS = (False, True)


pytestmark = pytest.mark.usefixtures("one_thread")


def pair(*args, training=False, dtype=torch.float32, **more):
    """Ours, and PyTorch's in double precision with the same parameters."""
    torch.manual_seed(0)
    theirs = torch.nn.MultiheadAttention(*args, **more, dtype=torch.float64)
    for each in theirs.parameters():
        torch.nn.init.normal_(each, std=0.4)
    ours = MultiheadAttention(*args, **more, dtype=dtype)
    ours.load_state_dict({name: each.to(dtype) for name, each in theirs.state_dict().items()})
    theirs.load_state_dict(ours.state_dict())
    return ours.train(training), theirs.train(training)


def double(each):
    is_real = isinstance(each, torch.Tensor) and each.is_floating_point()
    return each.detach().double().requires_grad_(each.requires_grad) if is_real else each


def compare(ours, theirs, tensors, tolerance=2e-5, **options):
    """Values, weights and gradients of both."""
    doubles = {each: double(each) for each in tensors}  # what is one tensor stays one
    exact = [doubles[each] for each in tensors]
    y, weights = ours(*tensors, **options)
    expected = theirs(*exact, **{name: double(each) for name, each in options.items()})
    close = {"atol": tolerance, "rtol": tolerance, "check_dtype": False}
    torch.testing.assert_close((y, weights), expected, **close)
    assert y.dtype == tensors[0].dtype and (weights is None or weights.dtype == y.dtype)
    wanted = [*doubles, *ours.parameters()]
    sources = [*doubles.values(), *theirs.parameters()]

    def total(y, weights):
        ramp = torch.arange(y.numel(), dtype=y.dtype).reshape(y.shape).cos()
        return (y * ramp).sum() + (0 if weights is None else weights.square().sum())

    found = torch.autograd.grad(total(y, weights), wanted)
    torch.testing.assert_close(found, torch.autograd.grad(total(*expected), sources), **close)


def masks(kind, queries, keys, batch=None):
    """attn_mask and key_padding_mask, each of which leaves a key to every query."""
    padding = torch.zeros(keys, dtype=torch.bool)
    padding[-1] = True
    attn = torch.ones(queries, keys, dtype=torch.bool).triu(1)
    if kind == "real":
        padding, attn = padding * -0.5, attn * draw(queries, keys).exp()
    if batch is not None:
        padding = torch.stack([padding, torch.zeros_like(padding)])
    return attn, padding


SHAPES = {
    "usual": {},
    "without bias": {"bias": False},
    "appended": {"add_bias_kv": True, "add_zero_attn": True},
    "other sizes": {"kdim": 6, "vdim": 10},
    "other sizes, appended": {"kdim": 6, "vdim": 10, "add_bias_kv": True, "bias": False},
}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("form", ["batch first", "batch second", "no batch"])
def test_it_is_torchs_in_every_option(shape, form):
    options = SHAPES[shape] | {"batch_first": form == "batch first"}
    ours, theirs = pair(8, 2, **options)
    size = {"batch first": (2, 5), "batch second": (5, 2), "no batch": (5,)}[form]
    of_keys = {"batch first": (2, 4), "batch second": (4, 2), "no batch": (4,)}[form]
    tensors = (
        draw(*size, 8, requires_grad=True),
        draw(*of_keys, ours.kdim, requires_grad=True),
        draw(*of_keys, ours.vdim, seed=1, requires_grad=True),
    )
    for kind, has_attn, has_padding in [
        ("bool", False, False),
        *itertools.product(("bool", "real"), BOOLS, BOOLS),
    ]:
        attn, padding = masks(kind, 5, 4, None if form == "no batch" else 2)
        if kind == "real" and not (has_attn or has_padding):
            continue
        for need_weights, average in ((False, True), (True, has_padding)):
            compare(
                *(ours, theirs, tensors),
                attn_mask=attn if has_attn else None,
                key_padding_mask=padding if has_padding else None,
                need_weights=need_weights,
                average_attn_weights=average,
            )


def test_a_mask_of_each_head_and_one_of_another_kind_beside_it():
    ours, theirs = pair(8, 2, batch_first=True)
    x = draw(2, 5, 8, requires_grad=True)
    each = draw(4, 5, 5) > 0.3
    each[:, :, 0] = False
    compare(ours, theirs, (x, draw(2, 5, 8, seed=1, requires_grad=True), x), attn_mask=each)
    padding = torch.zeros(2, 5).masked_fill(draw(2, 5) > 1, -torch.inf)
    with pytest.warns(UserWarning, match="mismatched"):  # theirs; and the same values
        compare(ours, theirs, (x,) * 3, attn_mask=each, key_padding_mask=padding)


@pytest.mark.parametrize("need_weights", BOOLS)
def test_the_causal_hint_gives_the_bits_of_the_mask(need_weights):
    ours, _ = pair(8, 2)
    x, mask = draw(6, 3, 8), torch.ones(6, 6, dtype=torch.bool).triu(1)
    options = {"attn_mask": mask, "need_weights": need_weights}
    with_hint, without = (ours(x, x, x, is_causal=hint, **options) for hint in BOOLS)
    assert bits(with_hint[0]) == bits(without[0])
    real = torch.zeros(6, 6).masked_fill(mask, -torch.inf)
    assert bits(ours(x, x, x, attn_mask=real)[0]) == bits(with_hint[0])
    with pytest.raises(RuntimeError, match="is_causal is given without attn_mask"):
        ours(x, x, x, is_causal=True)


@pytest.mark.parametrize("options", [{}, {"add_bias_kv": True}, {"add_zero_attn": True}])
def test_an_appended_key_is_seen_whatever_the_hint_says(options):
    ours, theirs = pair(8, 2, **options)
    x = draw(6, 3, 8, requires_grad=True)
    mask = torch.ones(6, 6, dtype=torch.bool).triu(1)
    y, _ = ours(x, x, x, attn_mask=mask, is_causal=True, need_weights=False)
    expected, _ = theirs(*[double(x)] * 3, attn_mask=mask, need_weights=False)
    torch.testing.assert_close(y.double(), expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16])
def test_other_types(dtype):
    ours, theirs = pair(8, 2, dtype=dtype)
    x = draw(5, 2, 8, dtype=dtype, requires_grad=True)
    compare(ours, theirs, (x,) * 3, {8: 1e-12, 2: 0.15}[dtype.itemsize])


def test_a_query_has_its_bits_whatever_stands_beside_it():
    ours, _ = pair(64, 4, batch_first=True)
    x, keys = draw(3, 40, 64), draw(3, 70, 64)
    y, weights = ours(x, keys, keys)
    one = ours(x[1, 7:8], keys[1], keys[1])
    assert bits(*one) == bits(y[1, 7:8], weights[1, 7:8])
    padded = torch.cat([keys, torch.full((3, 9, 64), torch.nan)], 1)
    padding = (torch.arange(79) >= 70).expand(3, 79)
    y_padded, wider = ours(x, padded, padded, key_padding_mask=padding)
    assert bits(y_padded, wider[..., :70]) == bits(y, weights)
    assert not wider[..., 70:].any()


def test_threads_and_what_is_the_same_tensor_change_no_bit():
    ours, _ = pair(64, 4)
    x = draw(50, 3, 64, requires_grad=True)
    threads, results = torch.get_num_threads(), []
    for count, tensors in ((1, (x, x, x)), (2, (x, x, x)), (2, (x, x.clone(), x.clone()))):
        torch.set_num_threads(count)
        y, weights = ours(*tensors)
        y.square().sum().backward()
        results.append(bits(y, weights, ours.in_proj_weight.grad, ours.out_proj.weight.grad))
        ours.zero_grad()
    torch.set_num_threads(threads)
    y = ours(x, same := x.clone(), same)[0]
    assert results[0] == results[1] == results[2] and bits(y)[0] == results[0][0]


def test_pytorch_takes_no_fast_path(monkeypatch):
    ours, _ = pair(8, 2, batch_first=True)
    x = draw(2, 5, 8)
    with torch.inference_mode():
        inside = ours.eval()(x, x, x)
    assert bits(*inside) == bits(*ours(x, x, x))
    made = {"batch_first": True, "dim_feedforward": 16}
    layer = torch.nn.TransformerEncoderLayer(8, 2, **made).eval()
    layer.self_attn = ours
    calls, attend = [], attention_modules.scaled_dot_product_attention

    def counted(*given, **more):
        calls.append(1)
        return attend(*given, **more)

    monkeypatch.setattr(attention_modules, "scaled_dot_product_attention", counted)
    with torch.inference_mode():
        layer(x)
    assert len(calls) == 1


def test_a_query_without_keys_gives_zeros():
    ours, _ = pair(8, 2, bias=False)
    x = draw(4, 1, 8, requires_grad=True)
    y, weights = ours(x, x, x, key_padding_mask=torch.ones(1, 4, dtype=torch.bool))
    assert not y.any() and not weights.any()
    (y.sum() + weights.sum()).backward()
    assert not x.grad.any()


def test_weights_are_dropped_as_the_result_has_them():
    ours, _ = pair(8, 2, dropout=0.5, training=True, dtype=torch.float64)
    ours.out_proj.weight.data = torch.eye(8, dtype=torch.float64)
    x = draw(1, 6, 8, dtype=torch.float64).transpose(0, 1)
    torch.manual_seed(3)
    y, weights = ours(x, x, x, average_attn_weights=False)
    v = (x[:, 0] @ ours.in_proj_weight[16:].t() + ours.in_proj_bias[16:]).unflatten(-1, (2, 4))
    expected = torch.einsum("hqk,khd->qhd", weights[0], v).flatten(1) + ours.out_proj.bias
    torch.testing.assert_close(y[:, 0], expected)
    zeros = (weights == 0).double().mean()
    assert 0.2 < zeros < 0.8
    torch.manual_seed(3)
    assert bits(*ours(x, x, x, average_attn_weights=False)) == bits(y, weights)
    again = ours(x, x, x)[0]
    assert bits(again) != bits(y) and ours.eval()(x, x, x)[1].all()


@pytest.mark.parametrize("far", [-1e4, -1e9, -1e20])
def test_weights_of_keys_that_are_all_far_away_add_up_to_1(far):
    ours, _ = pair(8, 2)
    x = draw(6, 2, 8)
    _, weights = ours(x, x, x, key_padding_mask=torch.full((2, 6), far))
    torch.testing.assert_close(weights.sum(-1), torch.ones(2, 6))
    if far < -1e8:  # beside which scores have no digits
        torch.testing.assert_close(weights, torch.full((2, 6, 6), 1 / 6))


def test_what_attention_takes_for_no_key_has_a_weight_of_0():
    ours, _ = pair(8, 2)
    x, lowest = draw(6, 2, 8), torch.finfo(torch.float32).min
    y, weights = ours(x, x, x, attn_mask=torch.full((6, 6), lowest))
    assert not weights.any() and bits(y) == bits(ours.out_proj.bias.expand(y.shape))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("cast", BOOLS)
def test_weights_beside_16_bits_know_the_mask_that_the_result_knows(dtype, cast):
    ours, _ = pair(8, 2, dtype=torch.float32 if cast else dtype)
    x = draw(6, 2, 8, dtype=torch.float32 if cast else dtype)
    masks = [draw(6, 6) * 30]
    if dtype == torch.float16:  # whose largest number is not so large that lse lacks digits
        masks.append(torch.tensor([-1e30, -1e31, -3e38, -1e5, -1e6, -1e7]).expand(6, 6))
    with torch.autocast("cpu", dtype, enabled=cast):
        for mask in masks:
            y, weights = ours(x, x, x, attn_mask=mask)
            totals = weights.double().sum(-1)
            torch.testing.assert_close(totals, torch.ones_like(totals), atol=0.02, rtol=0)
            assert y.dtype == dtype


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_autocast_takes_no_finite_mask_for_a_missing_key(dtype):
    q, mask = draw(1, 1, 3, 4), torch.full((3, 3), -1e38)
    with torch.autocast("cpu", dtype):
        y, lse = scaled_dot_product_attention(q, q, q, mask, return_lse=True)
    assert y.all() and lse.isfinite().all()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_weights_of_float32_under_autocast_are_those_of_unrounded_scores(dtype):
    q, k = draw(1, 2, 5, 64) * 3, draw(1, 2, 7, 64, seed=1)
    with torch.autocast("cpu", dtype):
        found = attention_modules.weights(q, k)
    exact = (q.to(dtype).double() @ k.to(dtype).double().mT / 8).softmax(-1)
    torch.testing.assert_close(found.double(), exact, atol=1e-6, rtol=1e-5)


def test_states_copies_and_compiled_code():
    ours, theirs = pair(8, 2, kdim=6)
    assert {*ours.state_dict()} == {*theirs.state_dict()}
    x, keys = draw(4, 2, 8), draw(4, 2, 6)
    values, expected = draw(4, 2, 8, seed=1), None
    expected = ours(x, keys, values)
    for each in (copy.deepcopy(ours), pickle.loads(pickle.dumps(ours))):
        assert bits(*each(x, keys, values)) == bits(*expected)
    compiled = torch.compile(ours, fullgraph=True, backend="aot_eager")
    assert bits(*compiled(x, keys, values)) == bits(*expected)
    layer = SelfAttention(8, 2, causal=True, rotary=RotaryEmbedding(4))
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    assert bits(compiled(x)) == bits(layer(x))
    with torch.autocast("cpu", torch.bfloat16):
        y, weights = ours(x, keys, values)
    assert y.dtype == torch.bfloat16 and weights.dtype == torch.float32


def test_initial_parameters_are_torchs():
    for options in ({}, {"kdim": 6}, {"add_bias_kv": True}):
        made = []
        for kind in (MultiheadAttention, torch.nn.MultiheadAttention):
            torch.manual_seed(5)
            made.append(kind(8, 2, **options))
        assert bits(*made[0].parameters()) == bits(*made[1].parameters())


def test_wrong_calls_say_so():
    ours, _ = pair(8, 2, batch_first=True)
    x, flags = draw(2, 5, 8), torch.zeros(2, 4, dtype=torch.bool)
    nested = torch.nested.nested_tensor([x[0], x[1, :3]], layout=torch.jagged)
    for words, error, call in (
        ("query must be a Tensor; it is int", TypeError, lambda: ours(1, x, x)),
        ("query is nested; pad it", NotImplementedError, lambda: ours(nested, nested, nested)),
        ("query has 1 dimensions; must have 2 or 3", ValueError, lambda: ours(x[0, 0], x, x)),
        ("key has 2 dimensions; must have 3", ValueError, lambda: ours(x, x[0], x[0])),
        ("value has rows of 4 elements; must be 8", ValueError, lambda: ours(x, x, x[..., :4])),
        ("must have equally many rows", ValueError, lambda: ours(x, x, x[:, :4])),
        ("must be of one batch", ValueError, lambda: ours(x, x[:1], x[:1])),
        ("key_padding_mask has shape", ValueError, lambda: ours(x, x, x, flags)),
        ("must be bool or floating", ValueError, lambda: ours(x, x, x, flags.int())),
        ("attn_mask has shape", ValueError, lambda: ours(x, x, x, attn_mask=flags)),
        ("attn_mask must be a Tensor", TypeError, lambda: ours(x, x, x, attn_mask=3)),
    ):
        with pytest.raises(error, match=words):
            call()
