# SPDX-License-Identifier: Apache-2.0
"""Arrays of other libraries come through DLPack and go back as arrays of theirs, without leaks."""

import gc
import subprocess
import sys
import tracemalloc
import weakref
from types import SimpleNamespace

import ml_dtypes
import numpy as np
import pytest

from isobit.numpy import (
    add,
    dropout_add_layer_norm,
    increment,
    layer_norm,
    layer_norm_backward,
    rms_norm,
)

torch = pytest.importorskip("torch")

of_dtypes = pytest.mark.parametrize(
    "dtype", [torch.float32, torch.float16, torch.bfloat16, torch.float64], ids=str
)


def drawn(*shape, dtype=torch.float32, seed=1):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def as_numpy(tensor):
    """The same elements as NumPy has them."""
    if tensor.dtype != torch.bfloat16:
        return tensor.numpy()
    return tensor.view(torch.uint16).numpy().view(ml_dtypes.bfloat16)


class Array:
    """A library's array: it has the array API's namespace, and the old DLPack or the new."""

    def __init__(self, source, versioned=True):
        self.source, self.versioned = source, versioned

    def __dlpack_device__(self):
        return self.source.__dlpack_device__()

    def __dlpack__(self, **options):
        if not self.versioned and options:
            raise TypeError("this library is older than versions")
        return self.source.__dlpack__(**options)

    def __array_namespace__(self):
        def from_dlpack(array):
            options = {"max_version": (1, 0)} if self.versioned else {}
            return Array(torch.from_dlpack(array.__dlpack__(**options)), self.versioned)

        return SimpleNamespace(from_dlpack=from_dlpack)


@of_dtypes
def test_tensors_give_tensors_with_the_bits_of_arrays(dtype):
    x, residual, weight, bias = (drawn(4, 60, dtype=dtype, seed=seed) for seed in range(4))
    options = {"p": 0.3, "seed": 5}
    results = dropout_add_layer_norm(x, residual, 60, weight[0], bias[0], **options)
    results += layer_norm_backward(residual, x, (60,), weight[0])
    x, residual, weight, bias = map(as_numpy, (x, residual, weight, bias))
    expected = dropout_add_layer_norm(x, residual, 60, weight[0], bias[0], **options)
    expected += layer_norm_backward(residual, x, 60, weight[0])
    for ours, array in zip(results, expected, strict=True):
        assert ours.dtype == dtype and as_numpy(ours).tobytes() == array.tobytes()
        assert as_numpy(ours).shape == array.shape


@of_dtypes
def test_tensors_may_lie_anyhow(dtype):
    x = drawn(6, 5, 8, dtype=dtype)
    for view in (x[::2], x[:, :, ::2], x.transpose(0, 2), x[:, 1:], x[0, 0].expand(4, 8), x[:0]):
        y = layer_norm(view, view.shape[-1])
        assert torch.equal(y, layer_norm(view.contiguous(), view.shape[-1:]))
        assert y.is_contiguous() and y.shape == view.shape


@pytest.mark.parametrize("versioned", [False, True])
@of_dtypes
def test_both_protocols_are_spoken_with_any_library(dtype, versioned):
    x = drawn(3, 50, dtype=dtype)
    y = rms_norm(Array(x, versioned), 50)
    assert type(y) is Array and y.source.dtype == dtype
    assert torch.equal(y.source, rms_norm(x, 50))


def test_libraries_mix_and_the_first_decides():
    x, weight = drawn(3, 50, dtype=torch.bfloat16), drawn(50)
    y = layer_norm(x, 50, weight.numpy())
    assert torch.equal(y, layer_norm(x, 50, weight))
    assert type(layer_norm(as_numpy(x), 50, weight)) is np.ndarray


def test_subclasses_belong_to_their_parents_library():
    parameter = torch.nn.Parameter(drawn(3), requires_grad=False)
    own = drawn(3).as_subclass(type("Own", (torch.Tensor,), {}))
    assert torch.equal(increment(parameter), parameter + 1)
    assert torch.equal(increment(own), own.as_subclass(torch.Tensor) + 1)


def test_y_may_have_another_libraries_dtype():
    x = drawn(3, 50)
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        assert rms_norm(x, 50, out_dtype=dtype).dtype == dtype
    assert rms_norm(x, 50, out_dtype="bfloat16").dtype == torch.bfloat16
    assert rms_norm(x.numpy(), 50, out_dtype=torch.bfloat16).dtype == ml_dtypes.bfloat16


def test_integers_and_scalars_pass():
    assert torch.equal(
        increment(torch.tensor(2**31 - 1, dtype=torch.int32)), torch.tensor(-(2**31))
    )
    x = torch.tensor(1.5, dtype=torch.bfloat16)
    assert torch.equal(add(x, x), torch.tensor(3, dtype=torch.bfloat16))


def test_what_shares_a_size_with_bfloat16_is_not_taken_for_it():
    with pytest.raises(TypeError, match="increment: x has dtype uint16; must be float32, "):
        increment(torch.zeros(3, dtype=torch.uint16))


def test_dtype_that_numpy_lacks_is_named():
    x = torch.zeros(3).to(torch.float8_e4m3fn)
    with pytest.raises(
        TypeError, match=r"^add: x has dtype torch\.float8_e4m3fn; must be float32, "
    ):
        add(x, x)
    since = "must be float32, since x has dtype float32$"
    with pytest.raises(TypeError, match=f"^add: residual has dtype torch.float8_e4m3fn; {since}"):
        add(drawn(3), x)


def test_tensor_that_requires_grad_says_what_to_do():
    with pytest.raises(BufferError, match=r"^add: residual cannot be read: .*detach"):
        add(drawn(3), drawn(3).requires_grad_())


def test_sparse_tensor_is_refused_by_its_name():
    with pytest.raises(BufferError, match=r"^increment: x cannot be read: .*layout"):
        increment(drawn(3).to_sparse())


def test_other_devices_are_refused_by_name():
    gpu = Array(SimpleNamespace(__dlpack_device__=lambda: (2, 0)))
    with pytest.raises(ValueError, match=r"layer_norm: input is not in CPU memory"):
        layer_norm(gpu, 3)


def test_array_of_no_library_is_refused():
    class Homeless:
        __dlpack__, __dlpack_device__ = Array.__dlpack__, Array.__dlpack_device__
        source, versioned = drawn(3), True

    with pytest.raises(TypeError, match="no library with from_dlpack is known for Homeless"):
        increment(Homeless())


def traced():
    return tracemalloc.get_traced_memory()[0]


@pytest.fixture
def tracing():
    tracemalloc.start()
    yield
    tracemalloc.stop()


@pytest.mark.parametrize("versioned", [False, True])
@of_dtypes
def test_result_lives_exactly_as_long_as_its_consumer(tracing, dtype, versioned):
    x = drawn(100, 1000, dtype=dtype)
    size = x.nbytes
    expected = x + 1
    before = traced()
    y = increment(Array(x, versioned)).source
    del x
    part = y[50:]
    del y
    assert size <= traced() - before < 1.1 * size
    junk = [np.full(size, 255, np.uint8) for _ in range(20)]
    assert torch.equal(part, expected[50:])
    del part, junk
    assert abs(traced() - before) < 0.1 * size


@pytest.mark.parametrize("versioned", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_a_thousand_calls_leave_nothing(tracing, dtype, versioned):
    x = Array(drawn(4, 500, dtype=dtype), versioned)
    layer_norm_backward(x, x, 500)
    before = traced()
    for _ in range(1000):
        layer_norm_backward(x, x, 500)
    gc.collect()  # what Python keeps of freed tuples, for the most part
    assert traced() - before < 50_000


def test_producers_memory_is_given_back():
    source = np.ones((3, 4), np.float32)
    gone = weakref.ref(source)
    y = layer_norm(Array(source), 4)
    del source
    assert gone() is None and y.source.shape == (3, 4)


def test_result_that_its_library_refuses_is_freed(tracing):
    def refuses(array):
        array.__dlpack__(max_version=(1, 0))
        raise BufferError("not today")

    x = Array(drawn(100, 1000, dtype=torch.bfloat16))
    x.__array_namespace__ = lambda: SimpleNamespace(from_dlpack=refuses)

    def call():
        with pytest.raises(BufferError, match="not today"):
            increment(x)

    call()  # what Python keeps after the first call: modules, compiled patterns
    before = traced()
    for _ in range(10):
        call()
    gc.collect()
    size = x.source.nbytes
    assert traced() - before < 0.1 * size


def test_results_may_outlive_the_interpreter():
    script = """
import torch, isobit.numpy
kept = torch.kept = isobit.numpy.increment(torch.ones(1000, 1000, dtype=torch.bfloat16))
"""
    subprocess.run([sys.executable, "-c", script], check=True)
