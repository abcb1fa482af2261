# SPDX-License-Identifier: Apache-2.0
"""isobit.numpy refuses a bad call in one line that names function and argument and lists what they
take; and does so before it computes anything."""

import inspect
import math
import re
import sys
from functools import partial

import ml_dtypes
import numpy as np
import pytest
from numpy_norms import BFLOAT16, LAYER, RMS, drawn, of_norms

import isobit.numpy as isobit_numpy
from isobit import c_abi, dlpack


class Sparse:
    """What scipy.sparse has in common with others: no `__dlpack__`, and this."""

    def toarray(self):
        raise AssertionError("nobody asked for it")


X = drawn(2, 3)
FLOAT_IS_NEEDED = "must be float32, float16, bfloat16 or float64"
BESIDE_FLOAT32 = "must be float32, float16 or bfloat16, since input has dtype float32"
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
        "layer_norm: eps is nan; must be a finite number": partial(LAYER.plain, X, 3, eps=math.nan),
        "rms_norm: eps is inf; must be a finite number": partial(RMS.plain, X, 3, eps=10**400),
        "dropout_add_rms_norm: p is 1; must be at least 0 and less than 1": partial(
            RMS.dropout_add, X, None, 3, p=1
        ),
        f"dropout_add_layer_norm: seed is {2**64}; allowed: -2^63 to 2^64 - 1": partial(
            LAYER.dropout_add, X, X, 3, seed=2**64
        ),
        f"dropout_add_layer_norm: seed is {-(2**63) - 1}; allowed: -2^63 to 2^64 - 1": partial(
            LAYER.dropout_add, X, X, 3, seed=-(2**63) - 1
        ),
        "set_num_threads: count is 1025; allowed: 0 to 1024": partial(
            isobit_numpy.set_num_threads, 1025
        ),
    },
    TypeError: {
        "layer_norm: input is of type list; convert it with np.asarray": partial(
            LAYER.plain, [1.0], 1
        ),
        "rms_norm: weight is of type float; convert it with np.asarray": partial(
            RMS.plain, X, 3, 1.0
        ),
        "add_layer_norm: residual is None; must be an array": partial(LAYER.add, X, None, 3),
        "add: x is a masked array; fill it first": partial(isobit_numpy.add, np.ma.array(X), X),
        "rms_norm: weight is sparse, of type Sparse; convert it with weight.toarray()": partial(
            RMS.plain, X, 3, Sparse()
        ),
        "rms_norm: normalized_shape is 3.0; must consist of integers": partial(RMS.plain, X, 3.0),
        "layer_norm: normalized_shape is '3'; must consist of integers": partial(
            LAYER.plain, X, "3"
        ),
        "layer_norm: eps is '0'; must be a finite number": partial(LAYER.plain, X, 3, eps="0"),
        "layer_norm: eps is array([[0., 0., 0.], [0., 0., 0.]], dtype=float32); must be": partial(
            LAYER.plain, X, 3, eps=0 * abs(X)
        ),
        "dropout_add_layer_norm: p is None; must be at least 0 and less than 1": partial(
            LAYER.dropout_add, X, X, 3, p=None, training=False
        ),
        "dropout_add_rms_norm: seed is 1.5; must be an integer from -2^63 to 2^64 - 1": partial(
            RMS.dropout_add, X, X, 3, seed=1.5
        ),
        "layer_norm: zero_centered is 'no'; must be True or False": partial(
            LAYER.plain, X, 3, zero_centered="no"
        ),
        "dropout_add_rms_norm: training is None; must be True or False": partial(
            RMS.dropout_add, X, X, 3, training=None
        ),
        "set_num_threads: count is '2'; must be an integer from 0 to 1024": partial(
            isobit_numpy.set_num_threads, "2"
        ),
        "set_num_threads: count is None; must be an integer from 0 to 1024": partial(
            isobit_numpy.set_num_threads, None
        ),
    },
}
BAD_DTYPES = {
    f"layer_norm: input has dtype int64; {FLOAT_IS_NEEDED}": partial(
        LAYER.plain, X.astype("i8"), 3
    ),
    f"layer_norm: input has dtype int32; {FLOAT_IS_NEEDED}": partial(
        LAYER.plain, X.astype(">i4"), 3
    ),
    f"rms_norm: input has dtype complex64; {FLOAT_IS_NEEDED}": partial(
        RMS.plain, X.astype("c8"), 3
    ),
    f"rms_norm: input has dtype float8_e5m2; {FLOAT_IS_NEEDED}": partial(
        RMS.plain, X.astype(ml_dtypes.float8_e5m2), 3
    ),
    f"rms_norm: input has dtype |V2; {FLOAT_IS_NEEDED}": partial(RMS.plain, X.astype("V2"), 3),
    f"rms_norm: input has dtype object; {FLOAT_IS_NEEDED}": partial(RMS.plain, X.astype("O"), 3),
    "increment: x has dtype int64; must be float32, float16, bfloat16, float64 or int32": partial(
        isobit_numpy.increment, X.astype(np.int64)
    ),
    "add: residual has dtype float64; must be float32, since x has dtype float32": partial(
        isobit_numpy.add, X, X.astype("f8")
    ),
    "rms_norm: weight has dtype float64; must be float32, since input has dtype f": partial(
        RMS.plain, X, 3, X[0].astype("f8")
    ),
    "layer_norm: bias has dtype float16; must be float32, since weight has dtype f": partial(
        LAYER.plain, X.astype("f2"), 3, X[0], X[0].astype("f2")
    ),
    f"layer_norm_backward: grad_y has dtype float64; {BESIDE_FLOAT32}": partial(
        LAYER.backward, X.astype("f8"), X, 3
    ),
    f"layer_norm: out_dtype is int8; {BESIDE_FLOAT32}": partial(LAYER.plain, X, 3, out_dtype="i1"),
    f"layer_norm: out_dtype is float64; {BESIDE_FLOAT32}": partial(
        LAYER.plain, X, 3, out_dtype=float
    ),
    f"layer_norm: out_dtype is 'bogus'; {BESIDE_FLOAT32}": partial(
        LAYER.plain, X, 3, out_dtype="bogus"
    ),
    f"layer_norm: out_dtype is '(2'; {BESIDE_FLOAT32}": partial(LAYER.plain, X, 3, out_dtype="(2"),
    "add_rms_norm: out_dtype is float32; must be float64, since x has dtype float": partial(
        RMS.add, X.astype("f8"), X.astype("f8"), 3, out_dtype="f4"
    ),
}


@pytest.mark.parametrize(
    ("error", "message", "call"),
    [(error, *bad) for error, calls in BAD_CALLS.items() for bad in calls.items()],
)
def test_bad_call_is_refused_with_its_reason(error, message, call):
    with pytest.raises(error, match="^" + re.escape(message)) as refused:
        call()
    assert "\n" not in str(refused.value)


IMAGE = drawn(1, 2, 2, 2)
CLASSES = np.zeros(2, np.int64)
STEP = {"param": X, "grad": X, "exp_avg": X}
ADAM = STEP | {"exp_avg_sq": X, "step": 1}
ATTENTION = {"query": IMAGE, "key": IMAGE, "value": IMAGE}
# Each function with arrays, and its numbers.
NUMBERS = {
    partial(isobit_numpy.layer_norm, X, 3): "eps",
    partial(isobit_numpy.add_layer_norm, X, X, 3): "eps",
    partial(isobit_numpy.layer_norm_backward, X, X, 3): "eps",
    partial(isobit_numpy.layer_norm_linear, X, 3, None, None, X): "eps",
    partial(isobit_numpy.group_norm, IMAGE, 1): "eps",
    partial(isobit_numpy.batch_norm, IMAGE, None, None, training=True): "momentum eps",
    partial(isobit_numpy.cross_entropy, X, CLASSES): "label_smoothing z_loss ignore_index",
    partial(
        isobit_numpy.linear_cross_entropy, X, X, CLASSES
    ): "label_smoothing z_loss ignore_index",
    partial(isobit_numpy.nll_loss, X, CLASSES): "ignore_index",
    partial(isobit_numpy.smooth_l1_loss, X, X): "beta",
    partial(isobit_numpy.huber_loss, X, X): "delta",
    partial(isobit_numpy.sgd, X, X): "lr momentum dampening weight_decay",
    partial(isobit_numpy.adam, **ADAM): "lr betas eps weight_decay step",
    partial(isobit_numpy.lion, **STEP): "lr betas weight_decay",
    partial(isobit_numpy.var, X): "correction",
    partial(isobit_numpy.norm, X): "ord",
    partial(isobit_numpy.dropout, X): "p",
    partial(isobit_numpy.scaled_dot_product_attention, **ATTENTION): "window softcap dropout_p",
    partial(isobit_numpy.random.normal, 3, seed=1): "mean std",
}


@pytest.mark.parametrize("wrong", [None, "1", [1.0, 2.0, 3.0], 1j])
@pytest.mark.parametrize(
    ("call", "name"),
    [(call, name) for call, names in NUMBERS.items() for name in names.split()],
    ids=lambda part: part if isinstance(part, str) else part.func.__name__,
)
def test_what_is_no_number_is_refused_by_the_names_of_function_and_argument(call, name, wrong):
    call(**({} if name == "step" else {name: inspect.signature(call).parameters[name].default}))
    said = re.escape(f"{call.func.__name__}: {name} is {wrong!r}; must be ")
    with pytest.raises(TypeError, match=f"^(random.)?{said}"):
        call(**{name: wrong})


@pytest.mark.parametrize(("message", "call"), BAD_DTYPES.items())
def test_bad_dtype_is_refused_by_the_names_of_function_and_argument(message, call):
    with pytest.raises(TypeError, match="^" + re.escape(message)):
        call()


def called(function, **changed):
    """A call of a function of this name whose arguments are float32 unless changed."""
    rows, row = ("x", "input", "residual", "grad_y"), ("weight", "bias")
    arguments = dict.fromkeys(rows, X) | dict.fromkeys(row, X[0])
    arguments |= {"normalized_shape": 3} | changed
    callee = getattr(isobit_numpy, function)
    taken = arguments.keys() & inspect.signature(callee).parameters.keys()
    return callee(**{name: arguments[name] for name in taken})


@pytest.mark.parametrize(
    ("function", "argument"),
    [
        ("increment", "x"),
        ("layer_norm", "input"),
        ("add_rms_norm", "residual"),
        ("dropout_add_layer_norm", "residual"),
        ("rms_norm_backward", "grad_y"),
        ("rms_norm", "weight"),
        ("layer_norm", "bias"),
    ],
)
def test_message_lists_no_dtype_that_would_then_be_refused(function, argument):
    given = X[0] if argument in ("weight", "bias") else X
    with pytest.raises(TypeError) as refused:
        called(function, **{argument: given.astype("i8")})
    (listed,) = re.findall("; must be (.*?)(?:, since|$)", str(refused.value))
    for name in re.split(", | or ", listed):
        dtype = BFLOAT16 if name == "bfloat16" else np.dtype(name)
        others = {}
        if argument == "input":  # the weights must be of a type that goes with it
            others = {other: X[0].astype(dtype) for other in ("weight", "bias")}
        called(function, **others, **{argument: given.astype(dtype)})


@of_norms
@pytest.mark.parametrize("dtype", ("float16", "bfloat16"))
def test_a_16_bit_weight_beside_float32_is_told_that_x_is_why(norm, dtype):
    weight = X[0].astype(BFLOAT16 if dtype == "bfloat16" else dtype)
    since = "must be float32, since input has dtype float32"
    with pytest.raises(TypeError, match=f"weight has dtype {dtype}; {since}$"):
        norm.plain(X, 3, weight)


def bfloat16_bits(array):
    return array.astype(BFLOAT16).view(dlpack.BFLOAT16)


@pytest.mark.parametrize(
    "call",
    [
        lambda: LAYER.plain(X, 3, out_dtype="bfloat16"),
        lambda: isobit_numpy.increment(bfloat16_bits(X)),
        lambda: RMS.plain(bfloat16_bits(X), 3),
        lambda: RMS.add(bfloat16_bits(X), bfloat16_bits(X), 3, out_dtype="float32"),
        lambda: LAYER.dropout_add(bfloat16_bits(X), None, 3, p=0, out_dtype="float32"),
        lambda: LAYER.backward(X, bfloat16_bits(X), 3),
    ],
)
def test_missing_ml_dtypes_is_noticed_before_anything_is_computed(monkeypatch, call):
    computed = []
    monkeypatch.setattr(c_abi, "call", lambda entry, *_, **__: computed.append(entry))
    call()
    assert computed
    computed.clear()
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    with pytest.raises(ImportError, match=r"^\w+: results of bfloat16 need ml_dtypes; run `"):
        call()
    assert not computed


def test_without_ml_dtypes_bfloat16_may_give_other_dtypes(monkeypatch):
    x = bfloat16_bits(X)
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    assert RMS.plain(x, 3, out_dtype="float32").dtype == np.float32


def test_result_that_fits_no_memory_is_refused():
    with pytest.raises(MemoryError, match="increment: cannot allocate a result of shape"):
        isobit_numpy.increment(np.broadcast_to(np.float32(1), (2**46, 4)))
    x = np.broadcast_to(np.float16(1), (2**32, 2**29))  # of which NumPy can tell the size
    with pytest.raises(MemoryError, match="rms_norm: cannot allocate a result of shape"):
        RMS.plain(x, 2**29, out_dtype="float32")
