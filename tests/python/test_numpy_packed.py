# SPDX-License-Identifier: Apache-2.0
"""isobit.numpy.PackedMatrix: the bits of products by the array, messages, whose memory it is."""

import copy
import gc
import pickle
import threading

import numpy as np
import pytest

import isobit.numpy as isobit_numpy
from isobit import _arrays, _calls, c_abi
from isobit.numpy import PackedMatrix, matmul


def drawn(*shape, dtype="f4", seed=1):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def same_bits(a, b):
    return a.shape == b.shape and a.dtype == b.dtype and a.tobytes() == b.tobytes()


@pytest.mark.parametrize("dtype", ["f4", "f2", "f8"])
@pytest.mark.parametrize("turned", [False, True])
def test_products_have_the_bits_of_those_by_the_array(dtype, turned):
    b = drawn(70, 530, dtype=dtype, seed=2).T if turned else drawn(530, 70, dtype=dtype, seed=2)
    packed = PackedMatrix(b)
    for shape in ((530,), (1, 530), (9, 530), (0, 530), (2, 3, 5, 530)):
        a = drawn(*shape, dtype=dtype)
        assert same_bits(matmul(a, packed), matmul(a, b))
    bias = drawn(70, dtype=dtype, seed=3)
    for activation in (None, "relu") if dtype == "f8" else (None, "gelu", "silu"):
        given = {"bias": bias, "activation": activation}
        assert same_bits(matmul(a, packed, **given), matmul(a, b, **given))


def test_results_may_have_another_dtype():
    a, b = drawn(4, 30), drawn(30, 20, seed=2)
    narrow = matmul(a, PackedMatrix(b), out_dtype="float16")
    assert same_bits(narrow, matmul(a, b, out_dtype="float16"))


def test_bfloat16_of_torch_is_packed_and_multiplied():
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    a, b = (torch.randn(*shape).bfloat16() for shape in ((3, 40), (40, 9)))
    packed = PackedMatrix(b)
    assert packed.dtype == "bfloat16"
    assert torch.equal(matmul(a, packed), matmul(a, b))


def test_extents_may_be_0():
    assert matmul(drawn(3, 0), PackedMatrix(drawn(0, 5))).tolist() == [[0] * 5] * 3
    assert matmul(drawn(3, 5), PackedMatrix(drawn(5, 0))).shape == (3, 0)


def test_views_are_read_where_they_lie():
    wide = drawn(60, 120)
    b, a = wide[::2, ::3], drawn(4, 30, seed=2)
    packed = PackedMatrix(b)
    assert same_bits(matmul(a, packed), matmul(a, b))
    assert same_bits(matmul(a, PackedMatrix(b[:, ::-1])), matmul(a, b)[:, ::-1].copy())
    assert same_bits(matmul(a[:, ::-1], PackedMatrix(b[::-1])), matmul(a[:, ::-1], b[::-1]))


def test_the_array_may_change_and_go():
    a, b = drawn(4, 30), drawn(30, 20, seed=2)
    packed, expected = PackedMatrix(b), matmul(a, b)
    b[:] = np.nan
    assert same_bits(matmul(a, packed), expected)
    del b
    gc.collect()
    assert same_bits(matmul(a, packed), expected)


def test_it_says_what_it_is():
    packed = PackedMatrix(drawn(30, 20))
    assert (packed.shape, packed.dtype) == ((30, 20), "float32")
    assert 30 * 20 * 4 <= packed.nbytes <= 30 * 64 * 4
    assert repr(packed) == "PackedMatrix of shape (30, 20) and dtype float32"


def test_memory_goes_with_the_object(monkeypatch):
    freed, free = [], c_abi.free_packed
    monkeypatch.setattr(c_abi, "free_packed", lambda at: (freed.append(at), free(at)))
    packed = PackedMatrix(drawn(30, 20))
    address = packed._address
    y = matmul(drawn(4, 30), packed)
    assert not freed
    del packed
    gc.collect()
    assert freed == [address]
    assert np.isfinite(y).all()


def test_threads_may_use_one_at_once():
    a, b = drawn(33, 600), drawn(600, 90, seed=2)
    packed, expected, found = PackedMatrix(b), matmul(a, b), []

    def multiply():
        found.extend(same_bits(matmul(a, packed), expected) for _ in range(20))

    threads = [threading.Thread(target=multiply) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [True] * 80


@pytest.mark.parametrize("count", [1, 3])
def test_the_number_of_threads_changes_no_bit(count, monkeypatch):
    a, b = drawn(33, 600), drawn(600, 90, seed=2)
    expected = matmul(a, b)
    monkeypatch.setattr(_calls, "_context", c_abi.Context(threads=count))
    assert same_bits(matmul(a, PackedMatrix(b)), expected)


@pytest.mark.parametrize(
    ("call", "error", "says"),
    [
        (lambda p: PackedMatrix(drawn(4)), ValueError, "^PackedMatrix: b has 1 dimensions; must"),
        (lambda p: PackedMatrix(drawn(2, 3, 4)), ValueError, "b has 3 dimensions; must have 2"),
        (lambda p: PackedMatrix([[1.0]]), TypeError, "^PackedMatrix: b is of type list; convert"),
        (lambda p: PackedMatrix(np.eye(3, dtype="i4")), TypeError, "b has dtype int32; must be"),
        (lambda p: PackedMatrix(p), TypeError, "^PackedMatrix: b is a PackedMatrix already"),
        (lambda p: matmul(p, drawn(20, 4)), TypeError, "^matmul: a is a PackedMatrix; only b"),
        (lambda p: matmul(drawn(3, 20), p), ValueError, "^matmul: a has 20 columns; b has 30 rows"),
        (lambda p: matmul(drawn(3, 30, dtype="f8"), p), TypeError, "a has dtype float64; must be"),
        (lambda p: matmul(drawn(), p), ValueError, "has no dimensions"),
        (lambda p: matmul(drawn(3, 30), p, bias=drawn(9)), ValueError, r"bias has shape \(9,\)"),
        (
            lambda p: matmul(drawn(3, 30), p, arithmetic="tensor"),
            NotImplementedError,
            "arithmetic tensor needs",
        ),
        (
            lambda p: isobit_numpy.linear(drawn(3, 30), p),
            TypeError,
            r"^linear: weight is a PackedMatrix, of weight.T; call matmul\(input, weight\)$",
        ),
        (lambda p: copy.copy(p), TypeError, "^PackedMatrix: it is this processor's and cannot be"),
        (lambda p: pickle.dumps(p), TypeError, "cannot be copied or pickled; pack the array again"),
    ],
)
def test_it_says_what_is_wrong(call, error, says):
    with pytest.raises(error, match=says):
        call(PackedMatrix(drawn(30, 20)))


def test_what_the_library_refuses_is_an_error_and_frees_nothing():
    packed = PackedMatrix(drawn(3, 4))
    with pytest.raises(ValueError, match="matmul: the packed matrix is null"):
        c_abi.multiply_packed(None, None, a=_arrays.strided(drawn(2, 3)))
    with pytest.raises(ValueError, match="matmul: y is missing"):
        c_abi.multiply_packed(packed._address, None, a=_arrays.strided(drawn(2, 3)))
    assert np.isfinite(matmul(drawn(2, 3), packed)).all()
