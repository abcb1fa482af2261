# SPDX-License-Identifier: Apache-2.0
"""SelfAttention is what it is made of; a token has the same bits in a prompt and behind a cache."""

import copy
import pickle

import pytest
import torch
import torch.nn.functional as F
from torch_calls import bits, draw

from isobit.torch import KeyValueCache, RotaryEmbedding, SelfAttention, apply_rotary, rotary_tables

OPTIONS = {
    "plain": {},
    "causal": {"causal": True, "bias": False},
    "shared heads": {"kv_heads": 2, "head_dim": 10, "causal": True, "out_bias": False},
    "window": {"kv_heads": 1, "causal": True, "window": 3, "softcap": 2.0, "scale": 0.7},
    "rotary": {"kv_heads": 2, "causal": True, "rotary": RotaryEmbedding(8)},
    "part of a head": {"rotary": RotaryEmbedding(4, style="interleaved"), "causal": True},
}


pytestmark = pytest.mark.usefixtures("one_thread")


def layer(dtype=torch.float32, **options):
    torch.manual_seed(0)
    return SelfAttention(32, 4, **options, dtype=dtype)


def expected(ours, x, mask=None):
    """By PyTorch's functions, in double precision."""
    q, k, v = (
        F.linear(x, each.weight.double(), None if each.bias is None else each.bias.double())
        .unflatten(-1, (-1, ours.head_dim))
        .transpose(1, 2)
        for each in (ours.q_proj, ours.k_proj, ours.v_proj)
    )
    if ours.rotary is not None:
        cos, sin = rotary_tables(x.shape[1], ours.rotary.dim, dtype=torch.float64)
        given = {"cos": cos, "sin": sin, "style": ours.rotary.style, "layout": "bhsd"}
        q, k = apply_rotary(q, k, **given)
    k, v = (each.repeat_interleave(4 // ours.kv_heads, 1) for each in (k, v))
    scores = q @ k.mT * (ours.head_dim**-0.5 if ours.scale is None else ours.scale)
    if ours.softcap:
        scores = (scores / ours.softcap).tanh() * ours.softcap
    place = torch.arange(x.shape[1])
    apart = place[:, None] - place
    allowed = torch.ones_like(apart, dtype=torch.bool) if mask is None else mask
    if ours.causal:
        allowed = allowed & (apart >= 0)
    if ours.window:
        allowed = allowed & (apart.abs() < ours.window)
    y = scores.masked_fill(~allowed, -torch.inf).softmax(-1) @ v
    bias = None if ours.o_proj.bias is None else ours.o_proj.bias.double()
    return F.linear(y.transpose(1, 2).flatten(-2), ours.o_proj.weight.double(), bias)


@pytest.mark.parametrize("name", OPTIONS)
def test_it_is_its_parts(name):
    ours, x = layer(**OPTIONS[name]), draw(2, 9, 32, requires_grad=True)
    exact = x.detach().double().requires_grad_()
    mask = (draw(2, 1, 9, 9) > -1) | torch.eye(9, dtype=torch.bool)
    for attn_mask in (None, mask):
        y, reference = ours(x, attn_mask=attn_mask), expected(ours, exact, attn_mask)
        close = {"atol": 1e-5, "rtol": 1e-5, "check_dtype": False}
        torch.testing.assert_close(y, reference, **close)
        parameters = list(ours.parameters())
        found = torch.autograd.grad(y.square().sum(), [x, *parameters])
        of_reference = torch.autograd.grad(reference.square().sum(), [exact, *parameters])
        torch.testing.assert_close(found, of_reference, **close | {"atol": 1e-4})
    assert bits(ours(x[0])) == bits(ours(x)[0])


@pytest.mark.parametrize("name", [each for each in OPTIONS if each != "plain"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_token_has_its_bits_in_a_prompt_and_behind_a_cache(name, dtype):
    ours, x = layer(dtype, **OPTIONS[name]), draw(2, 150, 32, dtype=dtype)
    with torch.no_grad():
        prompt, cache = ours(x), KeyValueCache()
        parts = [ours(x[:, :7], cache=cache)]
        parts += [ours(x[:, i : i + 1], cache=cache) for i in range(7, 40)]
        parts.append(ours(x[:, 40:], cache=cache))
        assert cache.length == 150
        assert bits(torch.cat(parts, 1)) == bits(prompt)
        cache.truncate(20)
        assert bits(ours(x[:, 20:23], cache=cache)) == bits(prompt[:, 20:23])


def test_a_padded_sequence_has_the_bits_that_it_has_alone():
    ours, x = layer(**OPTIONS["rotary"]), draw(2, 9, 32)
    mask = torch.ones(2, 1, 1, 9, dtype=torch.bool)
    mask[1, ..., 6:] = False
    x[1, 6:] = torch.nan
    y = ours(x, attn_mask=mask)
    assert bits(y[1, :6], y[0]) == bits(ours(x[1, :6]), ours(x[0]))
    places = torch.arange(9) + 3
    moved = ours(x[:1], position_ids=places)
    assert bits(moved) != bits(y[:1])
    torch.testing.assert_close(moved, y[:1])


def test_checkpoint_keeps_nothing_but_x_and_changes_no_bit():
    kept = {}
    x = draw(2, 30, 32)
    results = {}
    for checkpoint in (False, True):
        ours = layer(**OPTIONS["rotary"], dropout=0.3, checkpoint=checkpoint)
        own = {each.untyped_storage().data_ptr() for each in ours.parameters()}
        sizes = {}

        def pack(tensor, own=own, sizes=sizes):
            pointer = tensor.untyped_storage().data_ptr()
            if pointer not in own:
                sizes[pointer] = tensor.untyped_storage().nbytes()
            return tensor

        source = x.clone().requires_grad_()
        torch.manual_seed(4)
        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            y = ours(source)
            kept[checkpoint] = sum(sizes.values())
            y.square().sum().backward()
        grads = (each.grad for each in ours.parameters())
        results[checkpoint] = bits(y, source.grad, *grads)
    assert results[True] == results[False]
    assert kept[True] <= x.nbytes + 100 < kept[False] / 4


def test_dropout_is_the_seeds_and_of_training_alone():
    ours, x = layer(dropout=0.4), draw(2, 9, 32)
    torch.manual_seed(1)
    first = ours(x)
    torch.manual_seed(1)
    assert bits(ours(x)) == bits(first) != bits(ours(x))
    assert bits(ours(x, seed=3)) == bits(ours(x, seed=3))
    assert bits(ours.eval()(x)) == bits(layer()(x))


def test_a_call_that_fails_leaves_the_cache_as_it_was():
    ours, x, cache = layer(**OPTIONS["rotary"]), draw(2, 9, 32), KeyValueCache()
    with torch.no_grad():
        ours(x[:, :5], cache=cache)
        for wrong in ({"attn_mask": torch.ones(3, 3, dtype=torch.bool)}, {"attn_mask": 1}):
            with pytest.raises((ValueError, TypeError), match="attn_mask"):
                ours(x[:, 5:], cache=cache, **wrong)
            assert cache.length == 5
        assert bits(ours(x[:, 5:], cache=cache)) == bits(ours(x)[:, 5:])


def test_a_cache_from_inference_mode_goes_on_outside_of_it():
    ours, x, cache = layer(**OPTIONS["rotary"]), draw(2, 9, 32), KeyValueCache(capacity=9)
    with torch.inference_mode():
        ours(x[:, :5], cache=cache)
    with torch.no_grad():
        parts = [ours(x[:, i : i + 1], cache=cache) for i in range(5, 9)]
        assert bits(torch.cat(parts, 1)) == bits(ours(x)[:, 5:])


def test_copies_and_the_words_that_show_it():
    ours, x = layer(**OPTIONS["rotary"], checkpoint=True), draw(2, 9, 32)
    y = ours(x)
    for each in (copy.deepcopy(ours), pickle.loads(pickle.dumps(ours))):
        assert bits(each(x)) == bits(y)
    words = "dim=32, heads=4, kv_heads=2, head_dim=8, causal=True, checkpoint=True"
    assert ours.extra_repr() == words


def test_wrong_calls_say_so():
    ours, x, cache = layer(causal=True), draw(2, 9, 32), KeyValueCache()
    with torch.no_grad():
        ours(x, cache=cache)
    once_more = layer(causal=True, checkpoint=True)
    bhsd, places = RotaryEmbedding(8, layout="bhsd"), torch.arange(9)
    for words, error, call in (
        ("dim is 33; must be a multiple", ValueError, lambda: SelfAttention(33, 4)),
        ("heads is 4; must be a multiple", ValueError, lambda: SelfAttention(32, 4, 3)),
        ("kv_heads is 0; allowed: 1 to", ValueError, lambda: SelfAttention(32, 4, 0)),
        ("heads is 4.0; must be an int", TypeError, lambda: SelfAttention(32, 4.0)),
        ("head_dim is 0; allowed: 1 to", ValueError, lambda: layer(head_dim=0)),
        ("window is -1; allowed: 0 to", ValueError, lambda: layer(window=-1)),
        ("dropout is 1; must be at least 0", ValueError, lambda: layer(dropout=1.0)),
        ("dropout is '0'; must be at least 0", TypeError, lambda: layer(dropout="0")),
        ("scale is inf; must be None or", ValueError, lambda: layer(scale=float("inf"))),
        ("softcap is -1; must be a finite", ValueError, lambda: layer(softcap=-1)),
        ("causal must be True or False; it is 'top", TypeError, lambda: layer(causal="top_left")),
        ("capacity is -1; allowed: 0 to", ValueError, lambda: KeyValueCache(-1)),
        ("position_ids is given; needs rotary", ValueError, lambda: ours(x, position_ids=places)),
        ("length is 2.5; must be an int", TypeError, lambda: cache.truncate(2.5)),
        ("rotary must be None or a Rotary", TypeError, lambda: layer(rotary=True)),
        ("rotary has layout 'bhsd'", ValueError, lambda: layer(rotary=bhsd)),
        ("x must be a Tensor; it is int", TypeError, lambda: ours(1)),
        ("x has 1 dimensions", ValueError, lambda: ours(x[0, 0])),
        ("needs causal=True", ValueError, lambda: layer()(x, cache=cache)),
        ("cache must be None or a KeyValueCache", TypeError, lambda: ours(x, cache=[])),
        ("keeps no gradients", RuntimeError, lambda: ours(x, cache=cache)),
        ("checkpoint and cache", ValueError, lambda: once_more(x, cache=KeyValueCache())),
        ("length is 10; allowed: 0 to 9", ValueError, lambda: cache.truncate(10)),
    ):
        with pytest.raises(error, match=words):
            call()
    with torch.no_grad(), pytest.raises(ValueError, match=r"has \(batch, heads, elements\) of"):
        ours(x[:1], cache=cache)
