# SPDX-License-Identifier: Apache-2.0
"""Isobit for NumPy's arrays and, through DLPack, for any library's arrays in CPU memory.

    y = isobit.numpy.layer_norm(x, x.shape[-1], weight, bias)

Arrays are ndarrays of float32, float16, float64, bfloat16 (of ml_dtypes) and, where nothing is
normalised, int32; or whatever has `__dlpack__`, such as a tensor of PyTorch. Each is read where it
lies if its rows are evenly spaced and their elements adjacent; else it is copied once. DLPack tells
no buffer's size, so the bytes that may be touched are those that shape and strides name.
Results are new and in C order, and of the library of what is normalised, `input` or `x`.

Names and arguments are those of isobit.torch. An `eps` of None is the machine epsilon of the type
that is computed in: float64's for float64, float32's for all others. `out_dtype` is the type of y,
unless given that of x. A `zero_centered` weight is stored less 1. What a dropout drops depends on
`seed` and an element's place alone; None draws a seed. The backward of a sum takes `sum` for input.
"""

import numpy as np

from isobit import _arguments, _arrays, c_abi, dlpack
from isobit._activations import exp, geglu, gelu, log, sigmoid, silu, swiglu, tanh
from isobit._attention import scaled_dot_product_attention
from isobit._convolutions import causal_conv1d, causal_conv1d_update, conv1d, conv2d
from isobit._library import remedy
from isobit._norm_linear import layer_norm_linear, rms_norm_linear
from isobit._pooling import adaptive_avg_pool2d, avg_pool2d, max_pool2d
from isobit._products import PackedMatrix, linear, matmul
from isobit._rotary import apply_rotary, rotary_tables
from isobit._scans import cummax, cummin, cumprod, cumsum, logcumsumexp
from isobit._softmax import log_softmax, softmax

__all__ = [
    "PackedMatrix",
    "adaptive_avg_pool2d",
    "add",
    "add_layer_norm",
    "add_rms_norm",
    "apply_rotary",
    "avg_pool2d",
    "causal_conv1d",
    "causal_conv1d_update",
    "conv1d",
    "conv2d",
    "cummax",
    "cummin",
    "cumprod",
    "cumsum",
    "dropout_add_layer_norm",
    "dropout_add_rms_norm",
    "exp",
    "geglu",
    "gelu",
    "get_num_threads",
    "increment",
    "layer_norm",
    "layer_norm_backward",
    "layer_norm_linear",
    "linear",
    "log",
    "log_softmax",
    "logcumsumexp",
    "matmul",
    "max_pool2d",
    "rms_norm",
    "rms_norm_backward",
    "rms_norm_linear",
    "rotary_tables",
    "scaled_dot_product_attention",
    "set_num_threads",
    "sigmoid",
    "silu",
    "softmax",
    "swiglu",
    "tanh",
    "transpose",
]

_NARROW = ("float32", "float16", "bfloat16")  # computed in float32, and so each other's results

_context = c_abi.Context()


def set_num_threads(count):
    """How many threads a call may use; 0, as at first, is one for each processor."""
    global _context
    highest = c_abi.MAX_THREADS
    count = _arguments.integer("set_num_threads", "count", count, 0, highest, f"0 to {highest}")
    _context = c_abi.Context(threads=count)


def get_num_threads():
    return _context.threads


def layer_norm(
    input,
    normalized_shape,
    weight=None,
    bias=None,
    eps=1e-5,
    *,
    zero_centered=False,
    out_dtype=None,
):
    """(input - mean) / sqrt(variance + eps) * weight + bias over the last dimensions."""
    call = _LayerNorm("layer_norm", "input", input, normalized_shape, eps, zero_centered)
    return call.forward(out_dtype, weight=weight, bias=bias)


def rms_norm(
    input, normalized_shape, weight=None, eps=None, *, zero_centered=False, out_dtype=None
):
    """input / sqrt(mean(input^2) + eps) * weight over the last dimensions."""
    call = _RMSNorm("rms_norm", "input", input, normalized_shape, eps, zero_centered)
    return call.forward(out_dtype, weight=weight)


def add_layer_norm(
    x,
    residual,
    normalized_shape,
    weight=None,
    bias=None,
    eps=1e-5,
    *,
    zero_centered=False,
    out_dtype=None,
):
    """(y, sum) with sum = x + residual and y = layer_norm(sum)."""
    call = _LayerNorm("add_layer_norm", "x", x, normalized_shape, eps, zero_centered)
    return call.forward_of_sum(
        out_dtype, call.like_x("residual", residual), weight=weight, bias=bias
    )


def add_rms_norm(
    x, residual, normalized_shape, weight=None, eps=None, *, zero_centered=False, out_dtype=None
):
    """(y, sum) with sum = x + residual and y = rms_norm(sum)."""
    call = _RMSNorm("add_rms_norm", "x", x, normalized_shape, eps, zero_centered)
    return call.forward_of_sum(out_dtype, call.like_x("residual", residual), weight=weight)


def dropout_add_layer_norm(
    x,
    residual,
    normalized_shape,
    weight=None,
    bias=None,
    p=0.5,
    eps=1e-5,
    *,
    training=True,
    seed=None,
    zero_centered=False,
    out_dtype=None,
):
    """(y, sum) with sum = dropout(x) + residual, which may be None, and y = layer_norm(sum)."""
    call = _LayerNorm("dropout_add_layer_norm", "x", x, normalized_shape, eps, zero_centered)
    return call.forward_of_dropout(out_dtype, residual, p, training, seed, weight=weight, bias=bias)


def dropout_add_rms_norm(
    x,
    residual,
    normalized_shape,
    weight=None,
    p=0.5,
    eps=None,
    *,
    training=True,
    seed=None,
    zero_centered=False,
    out_dtype=None,
):
    """(y, sum) with sum = dropout(x) + residual, which may be None, and y = rms_norm(sum)."""
    call = _RMSNorm("dropout_add_rms_norm", "x", x, normalized_shape, eps, zero_centered)
    return call.forward_of_dropout(out_dtype, residual, p, training, seed, weight=weight)


def layer_norm_backward(
    grad_y, input, normalized_shape, weight=None, eps=1e-5, *, zero_centered=False
):
    """(grad_input, grad_weight, grad_bias); without a weight the latter are of input's dtype."""
    call = _LayerNorm("layer_norm_backward", "input", input, normalized_shape, eps, zero_centered)
    return call.backward(grad_y, weight)


def rms_norm_backward(
    grad_y, input, normalized_shape, weight=None, eps=None, *, zero_centered=False
):
    """(grad_input, grad_weight); without a weight the latter is of input's dtype."""
    call = _RMSNorm("rms_norm_backward", "input", input, normalized_shape, eps, zero_centered)
    return call.backward(grad_y, weight)


def add(x, residual):
    """x + residual; integers wrap around."""
    call = _Elementwise("add", "x", x)
    return call.run("add", residual=call.like_x("residual", residual))


def increment(x):
    """x + 1; integers wrap around."""
    return _Elementwise("increment", "x", x).run("increment")


def transpose(x, dim0, dim1, *, dtype=None):
    """x with two of its dimensions exchanged, as a new array in C order. x may have any strides.

    dtype: another floating dtype for a floating x, to which each element is rounded once.
    """
    return _Transpose("transpose", "x", x).run(dim0, dim1, dtype)


class _Call:
    """One call: its name in messages, and x, which its other arrays must be like."""

    allowed, row_dims = tuple(_arrays.DTYPES), 1

    def __init__(self, function, name, x, allowed=None):
        self.function, self.name = function, name
        self.x = _arrays.checked(function, name, x, allowed or self.allowed)
        self.dtype = _arrays.NAMES[self.x.dtype]
        self.like = (name, self.dtype)  # why another array must be of some dtype
        self.result = _arrays.to_numpy if isinstance(x, np.ndarray) else dlpack.exporter(x)

    def like_x(self, name, given):
        return self.of_shape_of_x(name, given, (self.dtype,))

    def of_shape_of_x(self, name, given, dtypes):
        return self.input(name, given, dtypes, self.like, self.x.shape, f"{self.name} has")

    def input(self, name, given, dtypes, like, shape, of):
        array = _arrays.checked(self.function, name, given, dtypes, like)
        if array.shape != shape:
            raise ValueError(f"{self.function}: {name} has shape {array.shape}; {of} {shape}")
        return self.tensor(array)

    def tensor(self, array):
        return _arrays.rows_of(array, self.row_dims)

    def empty(self, shape, dtype):
        """An output, of a kind that can be returned."""
        if dtype == "bfloat16" and self.result is _arrays.to_numpy:
            try:
                import ml_dtypes  # noqa: F401
            except ImportError as error:
                raise ImportError(
                    f"{self.function}: results of bfloat16 need ml_dtypes; {remedy('ml_dtypes')}"
                ) from error
        try:
            return np.empty(shape, _arrays.DTYPES[dtype])
        except (MemoryError, ValueError):
            raise MemoryError(
                f"{self.function}: cannot allocate a result of shape {shape} and dtype {dtype}"
            ) from None

    def named(self, function_argument, dtype, allowed):
        """The name of a dtype, which may be another library's, such as torch.float32."""
        try:
            said = name = np.dtype(dtype).name
        except Exception:  # whatever NumPy makes of what is no dtype
            name, said = str(dtype).rpartition(".")[2], _arguments.shown(dtype)
        if name not in allowed:
            needed = _arrays.needed(allowed, self.like)
            raise TypeError(f"{self.function}: {function_argument} is {said}; {needed}")
        return name


class _Elementwise(_Call):
    allowed = (*_NARROW, "float64", "int32")

    def run(self, kind, **inputs):
        y = self.empty(self.x.shape, self.dtype)
        tensors = {"x": self.tensor(self.x), "y": self.tensor(y)}
        c_abi.call("elementwise", "fwd", _context, **tensors, kind=kind, **inputs)
        return self.result(y)


class _Transpose(_Call):
    def run(self, dim0, dim1, dtype):
        rank = self.x.ndim
        dims = [
            _arguments.dim(self.function, name, dim, rank)
            for name, dim in (("dim0", dim0), ("dim1", dim1))
        ]
        floats = (*_NARROW, "float64")
        allowed = floats if self.dtype in floats else (self.dtype,)
        dtype = self.dtype if dtype is None else self.named("dtype", dtype, allowed)
        shape = list(self.x.shape)
        if dims[0] != dims[1]:
            shape[dims[0]], shape[dims[1]] = shape[dims[1]], shape[dims[0]]
        y = self.empty(tuple(shape), dtype)
        if self.x.ndim < 2:
            x, to = self.x.reshape(1, -1), y.reshape(-1, 1)
        elif dims[0] == dims[1]:  # a copy: what the call exchanges was exchanged before
            x, to = self.x, y.swapaxes(-1, -2)
        else:
            x, to = (np.moveaxis(array, dims, (-2, -1)) for array in (self.x, y))
        c_abi.call("transpose", "fwd", _context, x=self.strided(x), y=self.strided(to))
        return self.result(y)

    def strided(self, array):
        if array.ndim > c_abi.MAX_RANK:
            raise ValueError(
                f"{self.function}: x has {array.ndim} dimensions; allowed: at most {c_abi.MAX_RANK}"
            )
        return _arrays.strided(array)


class _Norm(_Call):
    allowed = (*_NARROW, "float64")

    def __init__(self, function, name, x, normalized_shape, eps, zero_centered):
        super().__init__(function, name, x)
        self.row = _arguments.row(function, normalized_shape, name, self.x.shape)
        self.row_dims = len(self.row)
        self.of_y = ("float64",) if self.dtype == "float64" else _NARROW
        self.first_weight = None  # its name and dtype; the others share it
        if eps is None:
            eps = np.finfo(np.float64 if self.dtype == "float64" else np.float32).eps
        self.options = {
            "eps": _arguments.eps(function, eps),
            "zero_centered": _flag(function, "zero_centered", zero_centered),
        }

    def forward(self, out_dtype, **weights):
        return self.result(self.y(out_dtype, weights))

    def forward_of_sum(self, out_dtype, residual, p=0, seed=0, **weights):
        total = self.empty(self.x.shape, self.dtype)
        dropout = {"dropout": p, "dropout_seed": seed}
        y = self.y(out_dtype, weights, residual=residual, sum=self.tensor(total), **dropout)
        return self.result(y), self.result(total)

    def forward_of_dropout(self, out_dtype, residual, p, training, seed, **weights):
        p = _arguments.probability(self.function, p)
        if not _flag(self.function, "training", training):
            p = 0
        seed = _arguments.seed(self.function, seed)
        if residual is not None:
            residual = self.like_x("residual", residual)
        elif p == 0:  # the library would refuse to write a copy of x
            total = self.empty(self.x.shape, self.dtype)
            total[...] = self.x
            return self.forward(out_dtype, **weights), self.result(total)
        return self.forward_of_sum(out_dtype, residual, p, seed, **weights)

    def y(self, out_dtype, weights, **given):
        dtype = self.dtype
        if out_dtype is not None:
            dtype = self.named("out_dtype", out_dtype, self.of_y)
        y = self.empty(self.x.shape, dtype)
        columns = {name: self.per_column(name, weight) for name, weight in weights.items()}
        self.run("fwd", y=self.tensor(y), **columns, **given)
        return y

    def backward(self, grad_y, weight):
        grad_y = self.of_shape_of_x("grad_y", grad_y, self.of_y)
        weight = self.per_column("weight", weight)
        dtype = self.dtype if weight is None else self.first_weight[1]
        grads = {"grad_x": self.empty(self.x.shape, self.dtype)}
        grads |= {name: self.empty(self.row, dtype) for name in self.weight_grads}
        outputs = {name: self.tensor(grad) for name, grad in grads.items()}
        self.run("bwd", grad_y=grad_y, weight=weight, **outputs)
        return tuple(map(self.result, grads.values()))

    def per_column(self, name, given):
        if given is None:
            return None
        dtypes, like = tuple(dict.fromkeys((self.dtype, "float32"))), self.like
        if self.first_weight:
            dtypes, like = self.first_weight[1:], self.first_weight
        tensor = self.input(name, given, dtypes, like, self.row, "normalized_shape is")
        self.first_weight = self.first_weight or (name, _arrays.NAMES[tensor.array.dtype])
        return tensor

    def run(self, pass_, **given):
        x = self.tensor(self.x)
        c_abi.call(self.op, pass_, _context, x=x, **given, **self.options)


class _LayerNorm(_Norm):
    op, weight_grads = "layernorm", ("grad_weight", "grad_bias")


class _RMSNorm(_Norm):
    op, weight_grads = "rmsnorm", ("grad_weight",)


def _flag(function, name, given):
    """As in C any number but 0 is a yes."""
    if not isinstance(given, (bool, np.bool_, int)):
        said = _arguments.shown(given)
        raise TypeError(f"{function}: {name} is {said}; must be True or False")
    return bool(given)
