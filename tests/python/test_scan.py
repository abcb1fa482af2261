# SPDX-License-Identifier: Apache-2.0
"""Scans in NumPy: along any dimension of any view, with the results that NumPy and PyTorch have."""

import numpy as np
import pytest

import isobit.numpy

FUNCTIONS = {
    "cumsum": np.cumsum,
    "cumprod": np.cumprod,
    "cummax": np.maximum.accumulate,
    "cummin": np.minimum.accumulate,
    "logcumsumexp": np.logaddexp.accumulate,
}
VIEWS = {
    "dense": lambda x: x,
    "steps": lambda x: x[::2, :, 1::3],
    "backwards": lambda x: x[:, ::-1],
    "permuted": lambda x: x.transpose(2, 0, 1),
    "one dimension": lambda x: x[0, :, 1],
    "a number": lambda x: np.asarray(x[0, 0, 0]),
    "none": lambda x: x[:, :0],
}


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_any_dimension_of_any_view_is_scanned(name, view):
    x = VIEWS[view](np.random.default_rng(1).standard_normal((5, 40, 7)))
    for dim in range(max(x.ndim, 1)):
        found = getattr(isobit.numpy, name)(x, dim)
        values = found[0] if name in ("cummax", "cummin") else found
        expected = FUNCTIONS[name](x.reshape(1) if x.ndim == 0 else x, axis=dim).reshape(x.shape)
        np.testing.assert_allclose(values, expected, rtol=1e-12, atol=1e-12)
        assert np.shape(values) == x.shape


def test_int32_is_summed_in_int64_unless_another_dtype_is_asked_for():
    x = np.full(3, 2**31 - 1, np.int32)
    assert isobit.numpy.cumsum(x, 0).tolist() == [2**31 - 1, 2**32 - 2, 3 * 2**31 - 3]
    assert isobit.numpy.cumsum(x, 0, dtype="int32").dtype == np.int32
    assert isobit.numpy.cumsum(x, 0, dtype="int32").tolist() == [2**31 - 1, -2, 2**31 - 3]


def test_floats_are_summed_in_a_wider_type_on_request():
    x = np.full(4, 0.1, np.float32)
    y = isobit.numpy.cumsum(x, 0, dtype=np.float64)
    assert y.dtype == np.float64 and np.array_equal(y, np.cumsum(x.astype(np.float64)))


def test_exclusive_scans_begin_with_init():
    x, init = np.arange(1.0, 7).reshape(2, 3), np.array([10.0, 20.0])
    assert isobit.numpy.cumsum(x, 1, exclusive=True, init=init).tolist() == [
        [10, 11, 13],
        [20, 24, 29],
    ]
    values, indices = isobit.numpy.cummax(x, 1, init=np.array([2.0, 0.0]))
    assert values.tolist() == [[2, 2, 3], [4, 5, 6]] and indices.tolist() == [[-1, 1, 2], [0, 1, 2]]


def test_the_indices_are_those_of_pytorch():
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    x = np.random.default_rng(2).integers(-3, 3, (200,)).astype(np.float32)
    x[150] = np.nan
    for name in ("cummax", "cummin"):
        values, indices = getattr(isobit.numpy, name)(x, 0)
        expected = getattr(torch, name)(torch.from_numpy(x), 0)
        np.testing.assert_array_equal(values, expected.values.numpy())
        np.testing.assert_array_equal(indices, expected.indices.numpy())


@pytest.mark.parametrize(
    ("arguments", "error", "says"),
    [
        ({"dim": 2}, ValueError, "cumsum: dim is 2; allowed: -2 to 1"),
        ({"dim": 0, "dtype": "float16"}, TypeError, "cumsum: dtype is float16"),
        ({"dim": 0, "init": np.zeros(2)}, ValueError, "cumsum: init has shape"),
    ],
)
def test_errors_say_what_is_wrong(arguments, error, says):
    with pytest.raises(error, match=says):
        isobit.numpy.cumsum(np.zeros((2, 3)), **arguments)
