# SPDX-License-Identifier: Apache-2.0
"""Corners of isobit.numpy: what is written where the caller cannot see it, numbers beyond 64 bits,
arrays in another machine's byte order, and messages of NumPy's own."""

import math
from functools import partial

import ml_dtypes
import numpy as np
import pytest

import isobit.numpy as isobit_numpy
from isobit import c_abi
from isobit.numpy import random

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)


def drawn(*shape, dtype=np.float32):
    return np.random.default_rng(7).standard_normal(shape).astype(dtype)


Q = drawn(1, 4, 2, 8)
K = drawn(1, 4, 1, 8)
TABLES = drawn(2, 4, 4)
X = drawn(4, 3, 5)
WEIGHT = drawn(6, 3, 3)
IMAGE = drawn(1, 2, 5, 6)
LOGITS = drawn(3, 5)
DRAWN, DRAWN_WEIGHT = drawn(3, 8), drawn(5, 8)
TARGET = np.array([0, 4, 2])


def swapped(array):
    """The same numbers, in the other byte order."""
    return array.astype(array.dtype.newbyteorder())


def unaligned(array):
    view = np.ndarray(array.shape, array.dtype, bytearray(array.nbytes + 1), 1)
    view[...] = array
    return view


def refused(array):
    array.flags.writeable = False
    return array


OUT_MUST = "apply_rotary: out must be a writable array in this machine's byte order"


@pytest.mark.parametrize("made", [refused, swapped], ids=["read-only", "swapped"])
def test_rotary_refuses_an_out_that_it_cannot_write_to(made):
    out = made(np.zeros_like(Q))
    with pytest.raises(ValueError, match=OUT_MUST):
        isobit_numpy.apply_rotary(Q, out=out)
    assert not out.any()


@pytest.mark.parametrize("count", [0, 1, 3])
def test_rotary_of_q_and_k_refuses_another_number_of_outs(count):
    with pytest.raises(ValueError, match=f"apply_rotary: out has {count} arrays; must have 2"):
        isobit_numpy.apply_rotary(Q, K, out=(np.empty_like(Q), np.empty_like(K), Q)[:count])


@pytest.mark.parametrize("made", [swapped, unaligned])
@pytest.mark.parametrize("name", ["running_mean", "running_var"])
def test_batch_norm_refuses_statistics_that_it_could_only_change_in_a_copy(made, name):
    given = {"running_mean": drawn(3), "running_var": np.ones(3, np.float32)}
    given[name] = made(given[name])
    isobit_numpy.batch_norm(X, **given)  # reads them
    with pytest.raises(ValueError, match=f"^batch_norm: {name} is changed in training; it must"):
        isobit_numpy.batch_norm(X, **given, training=True)


def test_bfloat16_of_the_other_byte_order_is_the_same_numbers():
    x = drawn(3, 4, dtype=BFLOAT16)
    other = swapped(x)
    assert not other.dtype.isnative
    expected = isobit_numpy.add(x, x)
    assert isobit_numpy.add(other, other).tobytes() == expected.tobytes()
    assert isobit_numpy.add(other[:, ::2], other[:, ::2]).tobytes() == expected[:, ::2].tobytes()


@pytest.mark.parametrize("of_bias", [BFLOAT16, np.dtype(np.float32)])
def test_linear_cross_entropy_takes_bfloat16(of_bias):
    x, weight, bias = drawn(3, 8, dtype=BFLOAT16), drawn(5, 8, dtype=BFLOAT16), drawn(5)
    logits = isobit_numpy.linear(x, weight, bias.astype(of_bias))
    found = isobit_numpy.linear_cross_entropy(x, weight, TARGET, linear_bias=bias.astype(of_bias))
    assert found == isobit_numpy.cross_entropy(logits, TARGET)


BEYOND = 2**64 + 1
INT64 = "-2^63 to 2^63 - 1"
BAD_CALLS = {
    ValueError: {
        f"apply_rotary: offset is {BEYOND}; allowed: {INT64}": partial(
            isobit_numpy.apply_rotary, Q, offset=BEYOND
        ),
        f"apply_rotary: rotary_dim is {BEYOND}; allowed: {INT64}": partial(
            isobit_numpy.apply_rotary, Q, rotary_dim=BEYOND
        ),
        f"rotary_tables: offset is {BEYOND}; allowed: {INT64}": partial(
            isobit_numpy.rotary_tables, 3, 4, offset=BEYOND
        ),
        f"conv1d: stride is {BEYOND}; allowed: {INT64}": partial(
            isobit_numpy.conv1d, X, WEIGHT, stride=BEYOND
        ),
        f"conv1d: groups is {BEYOND}; allowed: {INT64}": partial(
            isobit_numpy.conv1d, X, WEIGHT, groups=BEYOND
        ),
        f"max_pool2d: kernel_size is {BEYOND}; allowed: {INT64}": partial(
            isobit_numpy.max_pool2d, IMAGE, BEYOND
        ),
        f"avg_pool2d: divisor_override is {BEYOND}; allowed: {INT64}": partial(
            isobit_numpy.avg_pool2d, IMAGE, 2, divisor_override=BEYOND
        ),
        f"avg_pool2d: divisor_override is {2**63}; allowed: {INT64}": partial(
            isobit_numpy.avg_pool2d, IMAGE, 2, divisor_override=2**63
        ),
        "nll_loss: target[1] is 5; there are classes from 0 to 4, and ignore_index is -100": (
            partial(isobit_numpy.nll_loss, LOGITS, np.array([0, 5, 2]))
        ),
        "apply_rotary: cos has shape (2, 4, 4); must have two dimensions, a row for each": (
            partial(isobit_numpy.apply_rotary, Q, cos=TABLES, sin=TABLES)
        ),
        "apply_rotary: sin has shape (4,); must have two dimensions, a row for each position": (
            partial(isobit_numpy.apply_rotary, Q, cos=TABLES[0], sin=TABLES[0, 0])
        ),
        "cross_entropy: weight has shape (1, 5); must be (5,), the classes": partial(
            isobit_numpy.cross_entropy, LOGITS, TARGET, LOGITS[:1]
        ),
        "linear_cross_entropy: weight has shape (3,); must be (5,), the classes": partial(
            isobit_numpy.linear_cross_entropy, DRAWN, DRAWN_WEIGHT, TARGET, weight=DRAWN[:, 0]
        ),
        "linear_cross_entropy: linear_bias has shape (1, 5); must be (5,), the classes": partial(
            isobit_numpy.linear_cross_entropy, DRAWN, DRAWN_WEIGHT, TARGET, linear_bias=LOGITS[:1]
        ),
        "nll_loss: target is -1; there are classes from 0 to 4, and ignore_index is -100": partial(
            isobit_numpy.nll_loss, LOGITS[0], np.array(-1)
        ),
    },
    TypeError: {
        "apply_rotary: out is 5; must be a tuple of 2 arrays": partial(
            isobit_numpy.apply_rotary, Q, K, out=5
        ),
        "apply_rotary: base is None; must be a number": partial(
            isobit_numpy.apply_rotary, Q, base=None
        ),
        "apply_rotary: offset is 1.5; must be an integer": partial(
            isobit_numpy.apply_rotary, Q, offset=1.5
        ),
        "apply_rotary: rotary_dim is 'a'; must be an integer": partial(
            isobit_numpy.apply_rotary, Q, rotary_dim="a"
        ),
        "rotary_tables: base is '1'; must be a number": partial(
            isobit_numpy.rotary_tables, 3, 4, base="1"
        ),
        "rotary_tables: offset is 1.5; must be an integer": partial(
            isobit_numpy.rotary_tables, 3, 4, offset=1.5
        ),
        "rotary_tables: dtype is None; must be float32 or float64": partial(
            isobit_numpy.rotary_tables, 3, 4, dtype=None
        ),
        "rotary_tables: dtype is frob; must be float32 or float64": partial(
            isobit_numpy.rotary_tables, 3, 4, dtype="frob"
        ),
        "random.uniform: size is None; must be an integer or several": partial(
            random.uniform, None, seed=1
        ),
        "random.normal: size is 2.5; must be an integer or several": partial(
            random.normal, 2.5, seed=1
        ),
        "random.uniform: dtype is None; must be float32, float16, bfloat16 or float64": partial(
            random.uniform, 2, seed=1, dtype=None
        ),
        "softmax: scale is '2'; must be a number": partial(isobit_numpy.softmax, X, scale="2"),
        "softmax: scale is [1]; must be a number": partial(isobit_numpy.softmax, X, scale=[1]),
        "log_softmax: scale is None; must be a number": partial(
            isobit_numpy.log_softmax, X, scale=None
        ),
        "linear_cross_entropy: linear_weight is None; must be an array": partial(
            isobit_numpy.linear_cross_entropy, LOGITS, None, TARGET
        ),
        "linear_cross_entropy: linear_weight has dtype float16; must be float32, since input has "
        "dtype float32": partial(
            isobit_numpy.linear_cross_entropy, LOGITS, LOGITS.astype(np.float16), TARGET
        ),
        "interpolate: size is np.float32(3.5); must be an integer": partial(
            isobit_numpy.interpolate, IMAGE, np.float32(3.5)
        ),
        "interpolate: size is None; must be an integer": partial(
            isobit_numpy.interpolate, IMAGE, (2, None)
        ),
        "interpolate: size is 1j; must be an integer": partial(isobit_numpy.interpolate, IMAGE, 1j),
        "interpolate: scale_factor is 1j; must be a number": partial(
            isobit_numpy.interpolate, IMAGE, scale_factor=1j
        ),
    },
    NotImplementedError: {
        "vector_norm: ord is [2]; allowed: 1, 2 and inf": partial(isobit_numpy.vector_norm, X, [2]),
    },
    MemoryError: {
        "random.uniform: cannot allocate a result of shape (4611686018427387904,)": partial(
            random.uniform, 2**62, seed=1
        ),
        "random.uniform: cannot allocate a result of shape (1048576, 1048576, 1048576)": partial(
            random.uniform, (2**20,) * 3, seed=1
        ),
        "rotary_tables: cannot allocate a result of shape (134217728, 1073741824)": partial(
            isobit_numpy.rotary_tables, 2**27, 2**31
        ),
    },
}


@pytest.mark.parametrize(
    ("error", "message", "call"),
    [(error, *each) for error, calls in BAD_CALLS.items() for each in calls.items()],
)
def test_bad_value_is_refused_by_the_names_of_function_and_argument(error, message, call):
    with pytest.raises(error) as caught:
        call()
    assert str(caught.value).startswith(message)


def test_zero_dimensional_arrays_are_numbers():
    one, two = np.array(1), np.array(2)
    expected = isobit_numpy.conv1d(X, WEIGHT, stride=2, padding=1)
    assert np.array_equal(isobit_numpy.conv1d(X, WEIGHT, stride=two, padding=one), expected)
    expected = isobit_numpy.interpolate(IMAGE, 2)
    assert np.array_equal(isobit_numpy.interpolate(IMAGE, two), expected)
    assert np.array_equal(isobit_numpy.vector_norm(X, two), isobit_numpy.vector_norm(X, 2))


def test_dtypes_may_be_another_librarys():
    torch = pytest.importorskip("torch")
    assert random.uniform(2, seed=1, dtype=torch.float16).dtype == np.float16
    assert isobit_numpy.rotary_tables(3, 4, dtype=torch.float64)[0].dtype == np.float64
    with pytest.raises(TypeError, match=r"dtype is torch\.int8; must be float32"):
        random.uniform(2, seed=1, dtype=torch.int8)


def test_option_beyond_64_bits_is_not_cut_to_them():
    with pytest.raises(OverflowError, match="option divisor is"):
        c_abi.call("pool2d", "fwd", divisor=2**64 + 1)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("weight", [0.0, 10.0, 1e300])
def test_nll_loss_out_of_range_warns_of_nothing(weight):
    logs = np.float32([[-3e38, -math.inf], [-math.inf, -3e38]])
    weights = np.array([weight, weight])
    isobit_numpy.nll_loss(logs, np.array([0, 0]), weights, reduction="none")
