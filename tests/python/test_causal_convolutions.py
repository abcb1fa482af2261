# SPDX-License-Identifier: Apache-2.0
"""Causal convolutions of NumPy's arrays: the bits of isobit.numpy.conv1d and silu, of the whole and
piece by piece."""

import numpy as np
import pytest

import isobit.numpy
from isobit.numpy import causal_conv1d, causal_conv1d_update

DTYPES = ("float32", "float16", "float64", "bfloat16")
CUTS = (0, 1, 1, 5, 6, 21, 30)


def draw(*shape, dtype="float32", seed=0):
    if dtype == "bfloat16":
        dtype = pytest.importorskip("ml_dtypes").bfloat16
    return np.random.default_rng(seed + sum(shape)).standard_normal(shape).astype(dtype)


def signal(width=4, dtype="float32"):
    """x, weight and bias."""
    return [draw(*shape, dtype=dtype) for shape in ((2, 5, 30), (5, width), (5,))]


def pieces(x):
    return np.split(x, CUTS[:-1], axis=-1)


def by_conv1d(x, weight, bias=None):
    return isobit.numpy.conv1d(x, weight[:, None], bias, padding="causal", groups=len(weight))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("width", [1, 4])
def test_pieces_have_the_bits_of_the_whole_which_are_conv1ds(dtype, width):
    x, weight, bias = signal(width, dtype)
    plain = by_conv1d(x, weight, bias)
    whole, last = causal_conv1d(x, weight, bias, return_final_state=True)
    assert whole.tobytes() == plain.tobytes() and whole.dtype == x.dtype
    assert last.tobytes() == x[..., 31 - width :].tobytes()
    active = isobit.numpy.silu(plain)
    for name in ("silu", "swish"):
        assert causal_conv1d(x, weight, bias, activation=name).tobytes() == active.tobytes()
    state, kept, found, updated = None, np.zeros((2, 5, width + 1), x.dtype), [], []
    for piece in pieces(x):
        more = {"initial_state": state, "return_final_state": True, "activation": "silu"}
        y, state = causal_conv1d(piece, weight, bias, **more)
        found.append(y)
        updated.append(causal_conv1d_update(piece, kept, weight, bias, "silu"))
    for each in (found, updated):
        assert np.concatenate(each, axis=-1).tobytes() == active.tobytes()
    assert state.tobytes() == last.tobytes()
    assert kept.tobytes() == x[..., 29 - width :].tobytes()


@pytest.mark.parametrize("dtype", DTYPES)
def test_one_token_at_a_time_has_the_bits_of_the_whole(dtype):
    x, weight, bias = signal(dtype=dtype)
    state = np.zeros((2, 5, 3), x.dtype)
    tokens = [causal_conv1d_update(x[..., t], state, weight, bias) for t in range(30)]
    assert tokens[0].shape == (2, 5)
    assert np.stack(tokens, axis=-1).tobytes() == by_conv1d(x, weight, bias).tobytes()


def test_values_are_those_of_the_definition():
    x, weight, bias = signal()
    before = draw(2, 5, 3, seed=4)
    joined = np.concatenate((before, x), axis=-1).astype(float)
    sums = sum(joined[..., j : j + 30] * weight[:, j, None] for j in range(4)) + bias[:, None]
    found = causal_conv1d(x, weight, bias, initial_state=before, activation="silu")
    np.testing.assert_allclose(found, sums / (1 + np.exp(-sums)), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("dtype", DTYPES)
def test_bits_are_those_of_pytorch(dtype):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    import isobit.torch

    x, weight, bias = (torch.randn(*shape).to(getattr(torch, dtype)) for shape in OF_TORCH)
    more = {"return_final_state": True, "activation": "silu"}
    ours = isobit.torch.causal_conv1d(x, weight, bias, **more)
    found = causal_conv1d(x, weight, bias, **more)  # by DLPack, and so tensors
    assert all(map(torch.equal, found, ours))
    states = [each.clone() for each in (ours[1], ours[1])]
    one = isobit.torch.causal_conv1d_update(x[..., 0], states[0], weight, bias)
    other = causal_conv1d_update(x[..., 0], states[1], weight, bias)
    assert torch.equal(one, other) and torch.equal(*states)
    assert torch.equal(states[1][..., -1], x[..., 0]), "changed where it lies"


OF_TORCH = (2, 5, 30), (5, 4), (5,)


def test_strides_change_no_bit():
    x, weight, bias = signal()
    expected = by_conv1d(x, weight, bias).tobytes()
    state = np.zeros((2, 3, 5), x.dtype).swapaxes(1, 2)
    last = np.ascontiguousarray(x.swapaxes(1, 2)).swapaxes(1, 2)
    found = [causal_conv1d_update(piece, state, weight, bias) for piece in pieces(last)]
    assert np.concatenate(found, axis=-1).tobytes() == expected
    assert np.array_equal(state, x[..., -3:])


def readonly(array):
    array.flags.writeable = False
    return array


MISTAKES = [
    ({"x": draw(4)}, ValueError, "x has 1 dimensions; must have "),
    ({"x": [1.0]}, TypeError, "x is of type list"),
    (
        {"weight": draw(4, 1, 3)},
        ValueError,
        r"weight has shape \(4, 1, 3\); must be \(4, width of at least 1\)",
    ),
    ({"weight": draw(4, 0)}, ValueError, r"weight has shape \(4, 0\); must be"),
    ({"weight": draw(4, 3, dtype="float64")}, TypeError, "weight has dtype float64; must be"),
    ({"bias": draw(3)}, ValueError, r"bias has shape \(3,\); must be \(4,\)"),
    ({"activation": "relu"}, ValueError, "activation is 'relu'; allowed: None, 'silu', 'swish'"),
    ({"state": draw(2, 4, 1)}, ValueError, r"state has shape \(2, 4, 1\); must be \(2, 4, .*2\)"),
    ({"state": draw(4, 2)}, ValueError, r"state has shape \(4, 2\); must be"),
    ({"state": draw(2, 4, 2, dtype="float64")}, TypeError, "state has dtype float64; must be"),
]


@pytest.mark.parametrize(("change", "error", "says"), MISTAKES)
def test_a_mistake_is_told_in_words(change, error, says):
    given = {"x": draw(2, 4, 9), "weight": draw(4, 3), "state": draw(2, 4, 2)} | change
    state = given.pop("state")
    before = state.copy()
    with pytest.raises(error, match=f"^causal_conv1d: .*{says}"):
        causal_conv1d(**given, initial_state=state)
    with pytest.raises(error, match=f"^causal_conv1d_update: .*{says}"):
        causal_conv1d_update(**given, conv_state=state)
    assert np.array_equal(state, before)


@pytest.mark.parametrize(
    "state", [readonly(draw(2, 4, 2)), draw(2, 4, 2).astype(np.dtype("f4").newbyteorder())]
)
def test_a_state_that_cannot_be_changed_in_place_is_refused(state):
    with pytest.raises(ValueError, match="causal_conv1d_update: conv_state may not be written to"):
        causal_conv1d_update(draw(2, 4), state, draw(4, 3))
    y = causal_conv1d(draw(2, 4, 1), draw(4, 3), initial_state=state)
    assert y.shape == (2, 4, 1)
