# SPDX-License-Identifier: Apache-2.0
"""isobit.numpy gives the bits of every other way, whatever arrays come and wherever they lie."""

import math
import re
import subprocess
import sys
import tracemalloc
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

import ml_dtypes
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import isobit.numpy as isobit_numpy

ROOT = Path(__file__).resolve().parents[2]
LAB = ROOT / "build" / "release" / "isobit"
BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
FLOATS = tuple(map(np.dtype, ("f4", "f2", BFLOAT16, "f8")))


class Norm(NamedTuple):
    op: str
    plain: Callable
    add: Callable
    dropout_add: Callable
    backward: Callable
    weights: tuple


LAYER = Norm(
    "layernorm",
    isobit_numpy.layer_norm,
    isobit_numpy.add_layer_norm,
    isobit_numpy.dropout_add_layer_norm,
    isobit_numpy.layer_norm_backward,
    ("weight", "bias"),
)
RMS = Norm(
    "rmsnorm",
    isobit_numpy.rms_norm,
    isobit_numpy.add_rms_norm,
    isobit_numpy.dropout_add_rms_norm,
    isobit_numpy.rms_norm_backward,
    ("weight",),
)

of_dtypes = pytest.mark.parametrize("dtype", FLOATS, ids=str)
of_norms = pytest.mark.parametrize("norm", (LAYER, RMS), ids=lambda norm: norm.op)


def drawn(*shape, dtype=np.float32, seed=1):
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype(dtype)


def weights_of(norm, *shape, dtype=np.float32):
    return {
        name: drawn(*shape, dtype=dtype, seed=seed) for seed, name in enumerate(norm.weights, 7)
    }


def same_bits(one, other):
    return (one.dtype, one.shape, one.tobytes()) == (other.dtype, other.shape, other.tobytes())


def lab(folder, *flags, **arrays):
    """What `isobit run` makes of the arrays."""
    inputs = []
    for name, array in arrays.items():
        np.save(folder / name, array.view(np.uint16) if array.dtype == BFLOAT16 else array)
        inputs += ["--in", f"{name}={folder / name}.npy"]
    types = ["--dtype", "bf16"] if arrays["x"].dtype == BFLOAT16 else []
    command = [LAB, "run", *flags, *types, *inputs, "--out", folder / "out"]
    subprocess.run(command, check=True, capture_output=True)
    outputs = {path.stem: np.load(path) for path in (folder / "out").iterdir()}
    return {
        name: array.view(BFLOAT16) if array.dtype == np.uint16 else array
        for name, array in outputs.items()
    }


def python(script):
    return subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)


@of_norms
@of_dtypes
@pytest.mark.parametrize("of_weights", ["like x", "float32"])
def test_bits_are_those_of_the_lab(tmp_path, norm, dtype, of_weights):
    x, residual, grad_y = (drawn(5, 770, dtype=dtype, seed=seed) for seed in range(3))
    weights = weights_of(norm, 770, dtype=dtype if of_weights == "like x" else np.float32)

    flags = ("--zero-centred=yes", "--dropout=0.25", "--dropout-seed=7", "--with=residual+sum")
    known = lab(tmp_path, norm.op, *flags, x=x, residual=residual, **weights)
    options = {"p": 0.25, "seed": 7, "eps": 1e-5, "zero_centered": True}
    y, total = norm.dropout_add(x, residual, 770, **weights, **options)
    assert same_bits(y, known["y"]) and same_bits(total, known["sum"])

    weight = weights["weight"]
    known = lab(tmp_path, norm.op, "--pass=bwd", x=x, grad_y=grad_y, weight=weight)
    grads = norm.backward(grad_y, x, 770, weight, 1e-5)
    for name, grad in zip(("x", *norm.weights), grads, strict=True):
        assert same_bits(grad, known[f"grad_{name}"])


@of_norms
@of_dtypes
def test_results_lie_within_eight_roundings_of_the_formula(norm, dtype):
    x = 3 * drawn(40, 300, dtype=dtype) + dtype.type(1)
    weights = weights_of(norm, 300)
    y = norm.plain(x, 300, **weights, eps=1e-5, out_dtype=None if dtype == "f8" else "float32")

    wide = x.astype(np.longdouble)
    centred = wide - wide.mean(-1, keepdims=True) if norm is LAYER else wide
    scaled = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + np.longdouble(1e-5))
    weight, bias = weights["weight"].astype(np.longdouble), weights.get("bias", np.float32(0))
    roundings = abs(weight) * (1 + abs(scaled)) + abs(bias)
    unit = np.finfo(y.dtype).eps / 2
    assert (abs(y - (scaled * weight + bias)) <= 8 * unit * roundings).all()


@of_norms
def test_gradients_are_those_of_the_formula(norm):
    x, grad_y = drawn(3, 8, dtype=np.float64), drawn(3, 8, dtype=np.float64, seed=2)
    weights = weights_of(norm, 8, dtype=np.float64)
    arrays = {"x": x, **weights}

    def loss(arrays):
        x, *weights = arrays.values()
        return (grad_y * norm.plain(x, 8, *weights, eps=1e-5)).sum()

    grads = norm.backward(grad_y, x, 8, weights["weight"], 1e-5)
    for name, grad in zip(arrays, grads, strict=True):
        way = drawn(*grad.shape, dtype=np.float64, seed=3)
        step = {name: 1e-5 * way}
        ahead, behind = (
            loss({n: array + sign * step.get(n, 0) for n, array in arrays.items()})
            for sign in (1, -1)
        )
        assert (grad * way).sum() == pytest.approx((ahead - behind) / 2e-5, rel=1e-7)


@of_norms
def test_sum_of_x_and_residual_is_normalised_and_given(norm):
    x, residual = drawn(4, 30), drawn(4, 30, seed=2)
    y, total = norm.add(x, residual, 30)
    assert same_bits(total, x + residual) and same_bits(y, norm.plain(total, 30))


@of_norms
def test_dropout_depends_on_seed_and_place_alone(norm):
    x, residual = drawn(6, 500), drawn(6, 500, seed=2)
    y, total = norm.dropout_add(x, residual, 500, p=0.5, seed=2**64 - 1)
    _, bare = norm.dropout_add(x, None, 500, p=0.5, seed=2**64 - 1)
    assert same_bits(total, bare + residual) and same_bits(y, norm.plain(total, 500))
    assert ((bare == 0) | (bare == 2 * x)).all() and 0.4 < (bare == 0).mean() < 0.6
    _, few = norm.dropout_add(x[:2], None, 500, p=0.5, seed=2**64 - 1)
    assert same_bits(few, bare[:2])
    _, other = norm.dropout_add(x, None, 500, p=0.5, seed=1)
    assert not same_bits(other, bare)


@of_norms
def test_seeds_that_are_drawn_differ(norm):
    x = drawn(6, 500)
    first, second = (norm.dropout_add(x, None, 500)[1] for _ in range(2))
    assert not same_bits(first, second)


@of_norms
def test_without_training_nothing_is_dropped(norm):
    x, residual = drawn(4, 30), drawn(4, 30, seed=2)
    expected = norm.add(x, residual, 30)
    assert all(map(same_bits, norm.dropout_add(x, residual, 30, training=False), expected))
    y, total = norm.dropout_add(x, None, 30, training=False)
    assert same_bits(y, norm.plain(x, 30)) and same_bits(total, x)
    assert not np.shares_memory(total, x)


@of_dtypes
def test_eps_of_none_is_that_of_the_type_computed_in(dtype):
    x = drawn(4, 30, dtype=dtype) * dtype.type(2**-8)
    eps = 2.0**-52 if dtype == np.float64 else 2.0**-23
    assert same_bits(RMS.plain(x, 30), RMS.plain(x, 30, eps=eps))


@of_norms
@of_dtypes
def test_y_may_have_another_dtype(norm, dtype):
    x = drawn(4, 30, dtype=dtype)
    for out_dtype in ("float64",) if dtype == "f8" else ("float32", np.float16, BFLOAT16):
        assert norm.plain(x, 30, out_dtype=out_dtype).dtype == np.dtype(out_dtype)


def test_weights_gradients_have_the_dtype_of_the_weight_and_else_of_x():
    x = drawn(4, 30, dtype=BFLOAT16)
    for weight, dtype in ((None, BFLOAT16), (drawn(30), np.float32)):
        _, *grads = LAYER.backward(x, x, 30, weight)
        assert [grad.dtype for grad in grads] == [dtype, dtype]


@pytest.mark.parametrize("dtype", [*FLOATS, np.dtype("i4")], ids=str)
def test_elementwise_operators_are_exact(dtype):
    x = np.array([[1, -3], [2, 100]], dtype)
    assert same_bits(isobit_numpy.add(x, x.T), (x + x.T).astype(dtype))
    assert same_bits(isobit_numpy.increment(x), (x + np.ones_like(x)).astype(dtype))


def test_integers_wrap_around():
    assert isobit_numpy.increment(np.array(2**31 - 1, np.int32)) == np.int32(-(2**31))


@of_norms
def test_rows_may_have_several_dimensions(norm):
    x = drawn(2, 3, 4, 5)
    weights = weights_of(norm, 4, 5)
    flat = {name: weight.ravel() for name, weight in weights.items()}
    expected = norm.plain(x.reshape(6, 20), 20, **flat)
    for shape in ((4, 5), [4, 5], np.array([4, 5])):
        y = norm.plain(x, shape, **weights)
        assert y.shape == x.shape and y.tobytes() == expected.tobytes()
    _, *grads = norm.backward(x, x, (4, 5), weights["weight"])
    assert all(grad.shape == (4, 5) for grad in grads)


@of_norms
def test_more_dimensions_than_the_c_abi_has_are_flattened(norm):
    x = drawn(2, 1, 1, 1, 3, 1, 1, 1, 2, 5)
    assert norm.plain(x, np.int64(5)).tobytes() == norm.plain(x.reshape(12, 5), 5).tobytes()


@of_norms
@pytest.mark.parametrize("shape", [(0,), (0, 4), (4, 0), (2, 0, 3)])
def test_empty_arrays_give_empty_arrays(norm, shape):
    x = np.empty(shape, np.float32)
    assert norm.plain(x, shape[-1]).shape == norm.add(x, x, shape[-1])[1].shape == shape
    grad_x, *grads = norm.backward(x, x, shape[-1])
    assert grad_x.shape == shape
    assert all(same_bits(grad, np.zeros(shape[-1:], np.float32)) for grad in grads)


@of_norms
def test_number_of_threads_changes_no_bit(norm, request):
    request.addfinalizer(lambda: isobit_numpy.set_num_threads(0))
    x, grad_y = drawn(500, 300), drawn(500, 300, seed=2)
    results = []
    for threads in (0, 1, 2, 3):
        isobit_numpy.set_num_threads(threads)
        assert isobit_numpy.get_num_threads() == threads
        results.append((norm.plain(x, 300), *norm.backward(grad_y, x, 300)))
    assert all(all(map(same_bits, other, results[0])) for other in results)


VIEWS = {
    "itself": lambda x: x,
    "every second row": lambda x: x[::2],
    "some columns": lambda x: x[:, 20:90],
    "one column": lambda x: x.reshape(-1, 2)[:, ::2],
    "one row": lambda x: x[3],
    "one row for many": lambda x: np.broadcast_to(x[0], x.shape),
    "windows": lambda x: np.lib.stride_tricks.sliding_window_view(x[0], 50),
    "read-only": lambda x: np.frombuffer(x.tobytes(), x.dtype).reshape(x.shape),
    "a file's": lambda x: x.view(np.memmap),
}
COPIES = {
    "rows backwards": lambda x: x[::-1],
    "columns backwards": lambda x: x[:, ::-1],
    "every second column": lambda x: x[:, ::2],
    "transposed": lambda x: x.T,
    "one element for many": lambda x: np.broadcast_to(x[:, :1], x.shape),
    "uneven": lambda x: x.reshape(-1, 10, 200)[:, 1:],
    "misaligned": lambda x: np.frombuffer(b"." + x.tobytes(), x.dtype, offset=1).reshape(x.shape),
    "big-endian": lambda x: x.astype(">f4").T,
}


@of_norms
@pytest.mark.parametrize("layout", [*VIEWS, *COPIES])
def test_layout_changes_no_bit(norm, layout):
    x = (VIEWS | COPIES)[layout](drawn(100, 200))
    plain = np.ascontiguousarray(x, np.float32)
    cols = x.shape[-1]
    assert same_bits(norm.plain(x, cols), norm.plain(plain, cols))
    assert all(map(same_bits, norm.backward(x, x, cols), norm.backward(plain, plain, cols)))
    assert same_bits(isobit_numpy.add(x, x), plain + plain)


@pytest.mark.parametrize("layout", [*VIEWS, *COPIES])
def test_rows_are_read_where_they_lie_and_all_else_is_copied_once(layout):
    x = (VIEWS | COPIES)[layout](drawn(1000, 200))
    RMS.plain(x, x.shape[-1])
    size = x.size * 4
    tracemalloc.start()
    RMS.plain(x, x.shape[-1])
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert 0 <= peak - size * (1 + (layout in COPIES)) < size / 10 + 5000


def test_misaligned_bfloat16_is_copied():
    x = drawn(3, 4, dtype=BFLOAT16)
    askew = np.frombuffer(b"." + x.tobytes(), BFLOAT16, offset=1).reshape(3, 4)
    assert same_bits(LAYER.plain(askew, 4), LAYER.plain(x, 4))


def test_weights_may_lie_anywhere():
    x, buffer = drawn(3, 8), drawn(20)
    for weight in (buffer[1:9], buffer[8:0:-1], buffer[:16:2], np.broadcast_to(buffer[:1], 8)):
        assert same_bits(LAYER.plain(x, 8, weight), LAYER.plain(x, 8, weight.copy()))


@st.composite
def views(draw):
    """An array of any rank whose dimensions are cut, turned, permuted and repeated."""
    rank = draw(st.integers(1, 5))
    shape = draw(st.lists(st.integers(0, 5), min_size=rank, max_size=rank))
    x = drawn(*shape, dtype=draw(st.sampled_from(FLOATS)))
    steps = draw(st.lists(st.sampled_from((1, 1, 2, -1, -2)), min_size=rank, max_size=rank))
    x = x[tuple(slice(None, None, step) for step in steps)]
    x = x.transpose(draw(st.permutations(range(rank))))
    if draw(st.booleans()):
        x = np.broadcast_to(x, (draw(st.integers(1, 3)), *x.shape))
    return x


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(x=views(), data=st.data())
def test_any_view_gives_the_bits_of_its_copy(x, data):
    row = x.shape[data.draw(st.integers(0, x.ndim - 1)) :]
    plain, before = x.copy(), x.tobytes()
    for norm in (LAYER, RMS):
        y, total = norm.add(x, x, row)
        assert same_bits(total, plain + plain) and same_bits(y, norm.plain(plain + plain, row))
        assert all(map(same_bits, norm.backward(x, x, row), norm.backward(plain, plain, row)))
    assert x.tobytes() == before


X = drawn(2, 3)
ALLOWED = "allowed are float32, float16, bfloat16, float64, int32"
BAD_CALLS = {
    ValueError: {
        "layer_norm: normalized_shape is (4,); input has shape (2, 3)": partial(LAYER.plain, X, 4),
        "rms_norm: normalized_shape is (2, 2, 3); input has shape (2, 3)": partial(
            RMS.plain, X, (2, 2, 3)
        ),
        "add_rms_norm: normalized_shape is (); x has shape (2, 3)": partial(RMS.add, X, X, ()),
        "rms_norm: normalized_shape is (1,); input has shape ()": partial(
            RMS.plain, np.array(1.0), 1
        ),
        "layer_norm: weight has shape (2,); normalized_shape is (3,)": partial(
            LAYER.plain, X, 3, X[:, 0]
        ),
        "add_layer_norm: residual has shape (3,); x has (2, 3)": partial(LAYER.add, X, X[0], 3),
        "rms_norm_backward: grad_y has shape (3,); input has (2, 3)": partial(
            RMS.backward, X[0], X, 3
        ),
        "add: residual has shape (3, 2); x has (2, 3)": partial(isobit_numpy.add, X, X.T),
        "layernorm: x has dtype i32; allowed are f32, f16, bf16, f64": partial(
            LAYER.plain, X.astype("i4"), 3
        ),
        "rmsnorm: weight has dtype f64; allowed are f32": partial(
            RMS.plain, X, 3, X[0].astype("f8")
        ),
        "layernorm: y has dtype f64; allowed are f32, f16, bf16": partial(
            LAYER.plain, X, 3, out_dtype=float
        ),
        "layernorm: eps is nan; a finite number is needed": partial(
            LAYER.plain, X, 3, eps=math.nan
        ),
        "rmsnorm: dropout is 1; 0 to less than 1 is needed": partial(
            RMS.dropout_add, X, None, 3, p=1
        ),
        "dropout_add_layer_norm: seed is -1; 0 to 2^64 - 1 are allowed": partial(
            LAYER.dropout_add, X, X, 3, seed=-1
        ),
        "set_num_threads: 1025 threads; 0 to 1024 are allowed": partial(
            isobit_numpy.set_num_threads, 1025
        ),
    },
    TypeError: {
        "layer_norm: input is of type list; np.asarray makes it an array": partial(
            LAYER.plain, [1.0], 1
        ),
        "rms_norm: weight is of type float; np.asarray makes it an array": partial(
            RMS.plain, X, 3, 1.0
        ),
        "add_layer_norm: residual is of type NoneType; np.asarray makes it an array": partial(
            LAYER.add, X, None, 3
        ),
        "add: x is masked; fill it, since a mask would be ignored": partial(
            isobit_numpy.add, np.ma.array(X), X
        ),
        f"increment: x has dtype int64; {ALLOWED}": partial(
            isobit_numpy.increment, X.astype(np.int64)
        ),
        f"rms_norm: input has dtype |V2; {ALLOWED}": partial(RMS.plain, X.astype("V2"), 3),
        f"layer_norm: out_dtype is int8; {ALLOWED}": partial(LAYER.plain, X, 3, out_dtype="i1"),
        "rms_norm: normalized_shape is 3.0; integers are needed": partial(RMS.plain, X, 3.0),
        "layer_norm: normalized_shape is '3'; integers are needed": partial(LAYER.plain, X, "3"),
        "layernorm_forward: eps must be real number, not str": partial(LAYER.plain, X, 3, eps="0"),
    },
}


@pytest.mark.parametrize(
    ("error", "message", "call"),
    [(error, *bad) for error, calls in BAD_CALLS.items() for bad in calls.items()],
)
def test_bad_call_is_refused_with_its_reason(error, message, call):
    with pytest.raises(error, match=re.escape(message)):
        call()


def test_result_that_fits_no_memory_is_refused():
    with pytest.raises(MemoryError):
        isobit_numpy.increment(np.broadcast_to(np.float32(1), (2**46, 4)))


def test_import_loads_neither_the_library_nor_what_is_optional():
    said = python(
        """
import sys
import isobit.numpy, numpy
maps = open("/proc/self/maps")
assert "libisobit" not in maps.read() and not {"torch", "ml_dtypes"} & sys.modules.keys()
isobit.numpy.rms_norm(numpy.ones(4), 4)
maps.seek(0)
assert "libisobit" in maps.read() and not {"torch", "ml_dtypes"} & sys.modules.keys()
"""
    )
    assert said.returncode == 0, said.stderr


def test_forked_child_gives_the_same_bits():
    said = python(
        """
import os
import isobit.numpy, numpy
x = numpy.sin(numpy.arange(300000.0)).reshape(1000, 300)
y = isobit.numpy.layer_norm(x, 300)
child = os.fork()
if child == 0:
    os._exit(not numpy.array_equal(isobit.numpy.layer_norm(x, 300), y))
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
"""
    )
    assert said.returncode == 0, said.stderr
