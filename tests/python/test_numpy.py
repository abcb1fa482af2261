# SPDX-License-Identifier: Apache-2.0
"""isobit.numpy gives the bits of every other way, whatever arrays come and wherever they lie."""

import subprocess
import sys
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy_norms import (
    BFLOAT16,
    FLOATS,
    LAYER,
    RMS,
    drawn,
    of_dtypes,
    of_norms,
    same_bits,
    weights_of,
)

import isobit.numpy as isobit_numpy

ROOT = Path(__file__).resolve().parents[2]
LAB = ROOT / "build" / "release" / "isobit"


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
def test_zero_centered_is_whatever_python_takes_for_true(norm):
    x, weights = drawn(5, 70), weights_of(norm, 70)
    no, yes = (norm.plain(x, 70, **weights, zero_centered=value) for value in (False, True))
    assert not same_bits(no, yes)
    assert same_bits(norm.plain(x, 70, **weights, zero_centered=0), no)
    for value in (1, 2, -1, 256):
        assert same_bits(norm.plain(x, 70, **weights, zero_centered=value), yes)


@of_norms
@of_dtypes
@pytest.mark.parametrize("of_weights", ["like x", "float32"])
def test_bits_are_those_of_the_lab(tmp_path, norm, dtype, of_weights):
    x, residual, grad_y = (drawn(5, 770, dtype=dtype, seed=seed) for seed in range(3))
    weights = weights_of(norm, 770, dtype=dtype if of_weights == "like x" else np.float32)

    flags = ("--zero-centered=yes", "--dropout=0.25", "--dropout-seed=7", "--with=residual+sum")
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
    centered = wide - wide.mean(-1, keepdims=True) if norm is LAYER else wide
    scaled = centered / np.sqrt((centered**2).mean(-1, keepdims=True) + np.longdouble(1e-5))
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
@pytest.mark.parametrize("seed", [-1, -7, -(2**63), 0, 2**63, 2**64 - 1])
def test_seeds_are_those_of_pytorch(norm, seed):
    x = drawn(6, 500)
    _, total = norm.dropout_add(x, None, 500, seed=seed)
    _, same = norm.dropout_add(x, None, 500, seed=np.int64(seed) if seed < 0 else np.uint64(seed))
    _, wrapped = norm.dropout_add(x, None, 500, seed=seed % 2**64)
    assert same_bits(total, same) and same_bits(total, wrapped)
    torch = pytest.importorskip("torch")
    from isobit import torch as isobit_torch

    function = getattr(isobit_torch, norm.dropout_add.__name__)
    _, expected = function(torch.from_numpy(x), None, 500, seed=seed)
    assert same_bits(total, expected.numpy())


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
    assert same_bits(RMS.plain(x, 30, eps=None), RMS.plain(x, 30, eps=eps))


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


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(x=views(), data=st.data())
def test_any_view_is_transposed(x, data):
    dim0, dim1 = (data.draw(st.integers(-x.ndim, x.ndim - 1)) for _ in range(2))
    y = isobit_numpy.transpose(x, dim0, dim1)
    assert same_bits(y, np.ascontiguousarray(np.swapaxes(x, dim0, dim1)).reshape(y.shape))
    assert y.flags.c_contiguous and not np.shares_memory(x, y)


def test_a_transpose_moves_every_dtype_and_casts_floats():
    for dtype in ("int32", "int64", "bool", "uint8"):
        x = drawn(3, 5).astype(dtype)
        assert same_bits(isobit_numpy.transpose(x, 0, 1), x.T.copy())
    x = drawn(3, 5, dtype=np.float64)
    assert same_bits(isobit_numpy.transpose(x, 0, 1, dtype=np.float32), x.T.astype("f4", order="C"))
    with pytest.raises(TypeError, match="transpose: dtype is int32; must be float32, float16"):
        isobit_numpy.transpose(x, 0, 1, dtype="int32")


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
