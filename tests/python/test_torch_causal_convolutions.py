# SPDX-License-Identifier: Apache-2.0
"""Causal convolutions in PyTorch: what comes piece by piece has the bits of the whole."""

import random

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.autograd import gradcheck, gradgradcheck
from torch_calls import bits, draw

import isobit.torch
from isobit.torch import CausalConv1d, causal_conv1d, causal_conv1d_update

DTYPES = (torch.float32, torch.float16, torch.bfloat16, torch.float64)
BATCH, CHANNELS, LENGTH = 2, 5, 37


def signal(width=4, dtype=torch.float32):
    """x, weight and bias."""
    shapes = ((BATCH, CHANNELS, LENGTH), (CHANNELS, width), (CHANNELS,))
    return [draw(*shape, dtype=dtype) for shape in shapes]


def split(x, seed):
    """Pieces of random lengths, some of them empty."""
    drawn = random.Random(seed)
    ends = sorted(drawn.randint(0, x.shape[-1]) for _ in range(8))
    pieces = zip([0, *ends], [*ends, x.shape[-1]], strict=True)
    return [x[..., begin:end] for begin, end in pieces]


def by_definition(x, weight, bias, activation=None, before=None):
    """In float64, one tap after the other."""
    width = weight.shape[-1]
    before = x.new_zeros(*x.shape[:2], width - 1) if before is None else before
    x = torch.cat((before, x), -1).double()
    length = x.shape[-1] - width + 1
    y = sum(x[..., j : j + length] * weight.double()[:, j, None] for j in range(width))
    y = y + bias.double()[:, None]
    return y if activation is None else y * torch.sigmoid(y)


@pytest.mark.parametrize("activation", [None, "silu", "swish"])
@pytest.mark.parametrize("width", [1, 2, 4, 9])
def test_values_are_those_of_the_definition(width, activation):
    x, weight, bias = signal(width)
    expected = by_definition(x, weight, bias, activation)
    found = causal_conv1d(x, weight, bias, activation=activation)
    assert torch.allclose(found.double(), expected, rtol=1e-5, atol=1e-5)
    before = draw(BATCH, CHANNELS, width - 1, seed=5)
    found = causal_conv1d(x, weight, bias, initial_state=before, activation=activation)
    expected = by_definition(x, weight, bias, activation, before)
    assert torch.allclose(found.double(), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_bits_are_those_of_conv1d_and_silu(dtype):
    x, weight, bias = signal(dtype=dtype)
    plain = isobit.torch.conv1d(F.pad(x, (3, 0)), weight[:, None], bias, groups=CHANNELS)
    assert bits(causal_conv1d(x, weight, bias)) == bits(plain)
    assert plain.dtype == dtype
    for name in ("silu", "swish"):
        found = causal_conv1d(x, weight, bias, activation=name)
        assert bits(found) == bits(isobit.torch.silu(plain))


@pytest.mark.parametrize("width", [1, 4])
@pytest.mark.parametrize("dtype", DTYPES)
def test_pieces_have_the_bits_of_the_whole(dtype, width):
    x, weight, bias = signal(width, dtype)
    whole, last = causal_conv1d(x, weight, bias, return_final_state=True, activation="silu")
    assert last.shape == (BATCH, CHANNELS, width - 1)
    assert bits(last) == bits(x[..., LENGTH - width + 1 :])
    for seed in range(5):
        state, found = None, []
        kept = x.new_zeros(BATCH, CHANNELS, width + 2)
        kept[..., :3] = 7  # is never looked at
        updated = []
        for piece in split(x, seed):
            more = {"return_final_state": True, "activation": "silu"}
            y, state = causal_conv1d(piece, weight, bias, initial_state=state, **more)
            found.append(y)
            updated.append(causal_conv1d_update(piece, kept, weight, bias, "silu"))
        assert bits(torch.cat(found, -1)) == bits(torch.cat(updated, -1)) == bits(whole)
        assert bits(state) == bits(last)
        assert bits(kept) == bits(x[..., LENGTH - width - 2 :])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("state_len", [3, 4, 8])
def test_one_token_at_a_time_has_the_bits_of_the_whole(dtype, state_len):
    x, weight, bias = signal(dtype=dtype)
    whole, begun = causal_conv1d(x, weight, bias), 20
    y, last = causal_conv1d(x[..., :begun], weight, bias, return_final_state=True)
    state = F.pad(last, (state_len - 3, 0))
    place = state.data_ptr()
    tokens = [y]
    for t in range(begun, LENGTH):
        token = causal_conv1d_update(x[..., t], state, weight, bias)
        assert token.shape == (BATCH, CHANNELS)
        tokens.append(token[..., None])
    assert bits(torch.cat(tokens, -1)) == bits(whole) and state.data_ptr() == place


def test_what_is_not_finite_stays_where_it_is_seen():
    x, weight, bias = signal()
    weight[1, 0] = float("inf")  # meets the zeros before the first element
    x[0, 2, 10] = float("nan")
    whole = causal_conv1d(x, weight, bias)
    assert whole[:, 1, :3].isnan().all() and whole[0, 2].isnan().sum() == 4
    state = x.new_zeros(BATCH, CHANNELS, 3)
    found = [causal_conv1d_update(piece, state, weight, bias) for piece in split(x, 3)]
    assert torch.equal(torch.cat(found, -1).isnan(), whole.isnan())
    assert bits(torch.cat(found, -1).nan_to_num(0)) == bits(whole.nan_to_num(0))


def test_a_short_signal_leaves_zeros_in_its_final_state():
    x, weight, bias = signal(9)
    for length in (0, 1, 8, 9):
        y, state = causal_conv1d(x[..., :length], weight, bias, return_final_state=True)
        assert y.shape == (BATCH, CHANNELS, length)
        assert bits(state) == bits(F.pad(x[..., :length], (8, 0))[..., length:])
        rest = causal_conv1d(x[..., length:], weight, bias, initial_state=state)
        whole = causal_conv1d(x, weight, bias)
        assert bits(torch.cat((y, rest), -1)) == bits(whole)


def test_final_states_lie_in_memory_of_their_own():
    x, weight, bias = signal()
    for before in (None, draw(BATCH, CHANNELS, 3)):
        for begin in (0, LENGTH - 3):
            piece = x[..., begin:]
            more = {"initial_state": before, "return_final_state": True}
            _, state = causal_conv1d(piece, weight, bias, **more)
            assert state.untyped_storage().nbytes() == state.nbytes
            assert state.untyped_storage().data_ptr() != x.untyped_storage().data_ptr()


def test_strides_change_no_bit():
    x, weight, bias = signal()
    last = x.transpose(1, 2).contiguous().transpose(1, 2)
    expected = bits(causal_conv1d(x, weight, bias))
    assert bits(causal_conv1d(last, weight.t().contiguous().t(), bias)) == expected
    state = x.new_zeros(BATCH, 3, CHANNELS).transpose(1, 2)
    found = [causal_conv1d_update(piece, state, weight, bias) for piece in split(last, 2)]
    assert bits(torch.cat(found, -1)) == expected
    assert bits(state) == bits(x[..., -3:])


@pytest.mark.parametrize("activation", [None, "silu"])
def test_derivatives_of_every_kind(activation):
    x, weight, bias, before = (
        draw(*shape, dtype=torch.float64).requires_grad_()
        for shape in ((1, 2, 4), (2, 3), (2,), (1, 2, 2))
    )

    def call(x, weight, bias, before):
        more = {"return_final_state": True, "activation": activation}
        return causal_conv1d(x, weight, bias, initial_state=before, **more)

    def updated(x, weight, bias, before):
        state = before.clone()
        parts = (x[..., :2], x[..., 2], x[..., 3])
        results = [causal_conv1d_update(p, state, weight, bias, activation) for p in parts]
        return (*results, state)

    given = (x, weight, bias, before)
    for function in (call, updated):
        assert gradcheck(function, given, check_forward_ad=True)
        assert gradgradcheck(function, given)
    empty = causal_conv1d(x[..., :0], weight, bias)
    assert all(not grad.any() for grad in torch.autograd.grad(empty.sum(), (x, weight, bias)))


def test_gradients_have_the_bits_of_conv1ds():
    x, weight, bias = (each.requires_grad_() for each in signal(dtype=torch.bfloat16))
    ours = causal_conv1d(x, weight, bias)
    more = {"padding": 3, "groups": CHANNELS}
    padded = isobit.torch.conv1d(x, weight[:, None], bias, **more)[..., :LENGTH]
    along = draw(*ours.shape, dtype=torch.bfloat16)
    grads = [torch.autograd.grad(y, (x, weight, bias), along) for y in (ours, padded)]
    assert bits(grads[0][0]) == bits(grads[1][0])
    for one, other in zip(*grads, strict=True):
        torch.testing.assert_close(one, other)


def test_compiled_code_and_batches_have_the_bits_of_eager_code():
    x, weight, bias = signal()
    torch._dynamo.reset()

    def both(x, weight, bias, state):
        y, last = causal_conv1d(x, weight, bias, return_final_state=True, activation="silu")
        return y, last, causal_conv1d_update(x[..., 0], state, weight, bias)

    states = [draw(BATCH, CHANNELS, 4) for _ in range(3)]
    expected = bits(*both(x, weight, bias, states[0]), states[0])
    compiled = torch.compile(both, fullgraph=True, backend="aot_eager")
    assert bits(*compiled(x, weight, bias, states[1]), states[1]) == expected
    batched = torch.vmap(both, in_dims=(0, None, None, 0))
    lone = [each.unsqueeze(1) for each in (x, states[2])]
    found = batched(lone[0], weight, bias, lone[1])
    assert bits(*(each.squeeze(1) for each in found), states[2]) == expected
    torch._dynamo.reset()


def test_autocast_gives_pieces_the_bits_of_the_whole():
    x, weight, bias = signal()
    with torch.autocast("cpu", torch.bfloat16):
        whole = causal_conv1d(x, weight, bias, activation="silu")
        assert whole.dtype == F.conv1d(x, weight[:, None], groups=CHANNELS).dtype
        for dtype in (torch.float32, torch.bfloat16):
            state = torch.zeros(BATCH, CHANNELS, 3, dtype=dtype)
            pieces = [
                causal_conv1d_update(piece, state, weight, bias, "silu") for piece in split(x, 1)
            ]
            assert bits(torch.cat(pieces, -1)) == bits(whole) and state.dtype == dtype


OPTIONS = [{}, {"dilation": 3}, {"groups": 2}, {"groups": 6, "dilation": 2, "bias": False}]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("options", OPTIONS)
def test_a_layer_gives_pieces_the_bits_of_the_whole(options, dtype):
    torch.manual_seed(0)
    layer = CausalConv1d(6, 12, 3, dtype=dtype, **options)
    reach = 2 * options.get("dilation", 1)
    assert layer.state_len == reach
    x = draw(2, 6, 30, dtype=dtype)
    with torch.no_grad():
        whole = layer(x)
        plain = isobit.torch.conv1d(
            F.pad(x, (reach, 0)), layer.weight, layer.bias, 1, 0, *layer.dilation, layer.groups
        )
        assert bits(whole) == bits(plain) and whole.shape == (2, 12, 30)
        for pieces in (split(x, 1), split(x, 2), x.split(1, -1)):
            state = layer.new_state(2)
            place = state.data_ptr()
            assert bits(torch.cat([layer(piece, state) for piece in pieces], -1)) == bits(whole)
            assert state.data_ptr() == place and bits(state) == bits(x[..., 30 - reach :])
        state = layer.new_state()
        alone = [layer(piece, state) for piece in split(x[0], 3)]
        assert bits(torch.cat(alone, -1)) == bits(whole[0]) == bits(layer(x[0]))


def test_a_layer_is_a_conv1d_to_whoever_keeps_its_state():
    layer, other = CausalConv1d(4, 6, 3, dilation=2), nn.Conv1d(4, 6, 3, dilation=2, padding=4)
    other.load_state_dict(layer.state_dict())
    assert isinstance(layer, nn.Conv1d)
    x = draw(2, 4, 20)
    assert torch.allclose(layer(x), other(x)[..., :20], atol=1e-5)
    assert isobit.torch.patch(layer, convolutions=True).skipped == {"": "is Isobit's already"}


def test_a_compiled_layer_keeps_its_state_too():
    layer, x = CausalConv1d(4, 6, 3), draw(2, 4, 20)
    torch._dynamo.reset()
    compiled, state = torch.compile(layer, fullgraph=True, backend="aot_eager"), layer.new_state(2)
    with torch.no_grad():
        found = [compiled(piece, state) for piece in (x[..., :10], x[..., 10:])]
        assert bits(torch.cat(found, -1)) == bits(layer(x)) and bits(state) == bits(x[..., -2:])
    torch._dynamo.reset()


def layer_call(change):
    layer = CausalConv1d(4, 6, 3)
    given = {"input": draw(2, 4, 9), "state": layer.new_state(2)} | change
    return layer(**given)


MISTAKES = [
    ({"x": draw(2, 4)}, ValueError, "x has 2 dimensions; must have 3"),
    ({"x": None}, TypeError, "x must be a Tensor; it is NoneType"),
    ({"weight": draw(4, 1, 3)}, ValueError, r"weight has shape \(4, 1, 3\); must be \(4, width of"),
    ({"weight": None}, TypeError, "weight must be a Tensor; it is NoneType"),
    ({"weight": draw(5, 3)}, ValueError, ".*, since x has 4 channels"),
    ({"weight": draw(4, 0)}, ValueError, r"weight has shape \(4, 0\); .* of at least 1\)"),
    ({"bias": draw(3)}, ValueError, r"bias has shape \(3,\); must be \(4,\)"),
    ({"activation": "relu"}, ValueError, "activation is 'relu'; allowed: None, 'silu', 'swish'"),
]
OF_STATES = [
    (draw(2, 4, 1), ValueError, r"has shape \(2, 4, 1\); must be \(2, 4, {}2\)"),
    (draw(2, 3, 2), ValueError, r"has shape \(2, 3, 2\); must be"),
    (draw(4, 2), ValueError, r"has shape \(4, 2\); must be"),
    (draw(2, 4, 2).double(), ValueError, "is of torch.float64; must be of torch.float32"),
    ("zeros", TypeError, "must be a Tensor; it is str"),
    (draw(2, 4, 2).to("meta"), ValueError, "is on meta; .* is on cpu"),
]


@pytest.mark.parametrize(("change", "error", "says"), MISTAKES)
def test_a_mistake_is_told_in_words(change, error, says):
    given = {"x": draw(2, 4, 9), "weight": draw(4, 3), "bias": None} | change
    with pytest.raises(error, match=f"^causal_conv1d: {says}"):
        causal_conv1d(**given)
    if "x" not in change:
        with pytest.raises(error, match=f"^causal_conv1d_update: {says}"):
            causal_conv1d_update(**given | {"x": draw(2, 4)}, conv_state=draw(2, 4, 2))


@pytest.mark.parametrize(("state", "error", "says"), OF_STATES)
def test_a_state_that_does_not_fit_is_refused_and_kept(state, error, says):
    x, weight = draw(2, 4, 9), draw(4, 3)
    before = state.clone() if isinstance(state, torch.Tensor) else None
    with pytest.raises(error, match="^causal_conv1d: initial_state " + says.format("")):
        causal_conv1d(x, weight, initial_state=state)
    with pytest.raises(
        error, match="^causal_conv1d_update: conv_state " + says.format("at least ")
    ):
        causal_conv1d_update(x, state, weight)
    with pytest.raises(error, match="^CausalConv1d: state " + says.format("")):
        layer_call({"state": state})
    assert before is None or before.is_meta or torch.equal(state, before)


def test_what_else_is_wrong_is_told_in_words():
    with pytest.raises(TypeError, match="causal_conv1d_update: conv_state must be a Tensor"):
        causal_conv1d_update(draw(2, 4), None, draw(4, 3))
    with pytest.raises(ValueError, match="causal_conv1d_update: x has 1 dimensions; must have 2"):
        causal_conv1d_update(draw(4), draw(2, 4, 2), draw(4, 3))
    state = draw(2, 4, 2)
    before = state.clone()
    with pytest.raises(ValueError, match="weight has dtype f64; x has f32"):
        causal_conv1d_update(draw(2, 4), state, draw(4, 3).double())
    assert torch.equal(state, before), "nothing was computed"
    with pytest.raises(ValueError, match="CausalConv1d: input has 3 channels; must have 4"):
        layer_call({"input": draw(2, 3, 9)})
    with pytest.raises(ValueError, match="CausalConv1d: input has 1 dimensions"):
        layer_call({"input": draw(9)})
    nested = torch.nested.nested_tensor([draw(4, 3), draw(4, 2)], layout=torch.jagged)
    with pytest.raises(NotImplementedError, match="causal_conv1d: a tensor is nested"):
        causal_conv1d(nested, draw(4, 3))
