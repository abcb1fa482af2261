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

import math
import operator
import secrets

import numpy as np

from isobit import c_abi, dlpack

_DTYPES = {name: dlpack.BFLOAT16 if name == "bfloat16" else np.dtype(name) for name in c_abi.DTYPES}
_CODES = {_DTYPES[name]: code for name, code in c_abi.DTYPES.items()}

_context = c_abi.Context()


def set_num_threads(count):
    """How many threads a call may use; 0, as at first, is one for each processor."""
    global _context
    count = operator.index(count)
    if not 0 <= count <= c_abi.MAX_THREADS:
        raise ValueError(f"set_num_threads: {count} threads; 0 to {c_abi.MAX_THREADS} are allowed")
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
    return call.forward_of_dropout(
        out_dtype, residual, p if training else 0, seed, weight=weight, bias=bias
    )


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
    return call.forward_of_dropout(out_dtype, residual, p if training else 0, seed, weight=weight)


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
    call = _Call("add", "x", x)
    return call.elementwise("elementwise_add", residual=call.like_x("residual", residual))


def increment(x):
    """x + 1; integers wrap around."""
    return _Call("increment", "x", x).elementwise("elementwise_increment")


class _Call:
    """One call: its name in messages, and x, which its other arrays must be like."""

    row_dims = 1

    def __init__(self, function, name, x):
        self.function, self.name = function, name
        self.x = _array(function, name, x)
        self.result = _to_numpy if isinstance(x, np.ndarray) else dlpack.exporter(x)

    def like_x(self, name, given):
        return self.input(name, given, self.x.shape, f"{self.name} has")

    def input(self, name, given, shape, of):
        array = _array(self.function, name, given)
        if array.shape != shape:
            raise ValueError(f"{self.function}: {name} has shape {array.shape}; {of} {shape}")
        return self.tensor(array)

    def tensor(self, array):
        return _tensor(array, self.row_dims)

    def elementwise(self, entry, **inputs):
        y = np.empty(self.x.shape, self.x.dtype)
        c_abi.call(entry, _context, x=self.tensor(self.x), y=self.tensor(y), **inputs)
        return self.result(y)


class _Norm(_Call):
    def __init__(self, function, name, x, normalized_shape, eps, zero_centered):
        super().__init__(function, name, x)
        self.row = _row(function, normalized_shape, name, self.x.shape)
        self.row_dims = len(self.row)
        if eps is None:
            eps = np.finfo(np.float64 if self.x.dtype == np.float64 else np.float32).eps
        self.options = {"eps": eps, "zero_centred": bool(zero_centered)}

    def forward(self, out_dtype, **weights):
        return self.result(self.y(out_dtype, weights))

    def forward_of_sum(self, out_dtype, residual, p=0, seed=0, **weights):
        total = np.empty(self.x.shape, self.x.dtype)
        dropout = {"dropout": p, "dropout_seed": seed}
        y = self.y(out_dtype, weights, residual=residual, sum=self.tensor(total), **dropout)
        return self.result(y), self.result(total)

    def forward_of_dropout(self, out_dtype, residual, p, seed, **weights):
        if residual is None and p == 0:  # the library would refuse to write a copy of x
            return self.forward(out_dtype, **weights), self.result(self.x.copy())
        residual = None if residual is None else self.like_x("residual", residual)
        return self.forward_of_sum(out_dtype, residual, p, _seed(self.function, seed), **weights)

    def y(self, out_dtype, weights, **given):
        dtype = self.x.dtype if out_dtype is None else _dtype(self.function, out_dtype)
        y = np.empty(self.x.shape, dtype)
        columns = {name: self.per_column(name, weight) for name, weight in weights.items()}
        self.run("forward", y=self.tensor(y), **columns, **given)
        return y

    def backward(self, grad_y, weight):
        grad_y = self.like_x("grad_y", grad_y)
        weight = self.per_column("weight", weight)
        dtype = self.x.dtype if weight is None else weight.array.dtype
        grads = {"grad_x": np.empty(self.x.shape, self.x.dtype)}
        grads |= {name: np.empty(self.row, dtype) for name in self.weight_grads}
        outputs = {name: self.tensor(grad) for name, grad in grads.items()}
        self.run("backward", grad_y=grad_y, weight=weight, **outputs)
        return tuple(map(self.result, grads.values()))

    def per_column(self, name, given):
        return given if given is None else self.input(name, given, self.row, "normalized_shape is")

    def run(self, direction, **given):
        x = self.tensor(self.x)
        c_abi.call(f"{self.op}_{direction}", _context, x=x, **given, **self.options)


class _LayerNorm(_Norm):
    op, weight_grads = "layernorm", ("grad_weight", "grad_bias")


class _RMSNorm(_Norm):
    op, weight_grads = "rmsnorm", ("grad_weight",)


def _array(function, name, given):
    """What is given as an ndarray, copied only if its bytes are in another machine's order."""
    if isinstance(given, np.ma.MaskedArray):
        raise TypeError(f"{function}: {name} is masked; fill it, since a mask would be ignored")
    if isinstance(given, np.ndarray):
        array = np.asarray(given)
    elif not hasattr(given, "__dlpack__"):
        kind = type(given).__name__
        raise TypeError(f"{function}: {name} is of type {kind}; np.asarray makes it an array")
    elif dlpack.in_host_memory(given):
        array = dlpack.imported(given)
    else:
        raise ValueError(f"{function}: {name} is not in CPU memory, which isobit.numpy is for")
    if array.dtype in _CODES:
        return array
    if array.dtype.name == "bfloat16":
        return array.view(dlpack.BFLOAT16)
    native = array.dtype.newbyteorder("=")
    if native not in _CODES:
        names = ", ".join(_DTYPES)
        raise TypeError(f"{function}: {name} has dtype {array.dtype}; allowed are {names}")
    return array.astype(native, order="C")


def _tensor(array, row_dims):
    """The array as rows of its last dimensions, copied if these are not evenly spaced."""
    leading, row = array.shape[:-row_dims], array.shape[-row_dims:]
    matrix = array.reshape(math.prod(leading), math.prod(row))
    rows, cols = matrix.shape
    size = matrix.itemsize
    pitch, step = matrix.strides
    if pitch < 0 or (step != size and cols > 1) or not matrix.flags.aligned:
        matrix = matrix.copy()
        pitch, _ = matrix.strides
    reach = (rows - 1) * pitch + cols * size if matrix.size else 0
    tensor = c_abi.Tensor(
        matrix.ctypes.data, reach, _CODES[matrix.dtype], 2, (rows, cols), (pitch // size, 1)
    )
    tensor.array = matrix  # lives as long as the tensor
    return tensor


def _to_numpy(array):
    if array.dtype != dlpack.BFLOAT16:
        return array
    from ml_dtypes import bfloat16

    return array.view(bfloat16)


def _row(function, normalized_shape, name, shape):
    several = hasattr(normalized_shape, "__iter__")
    try:
        row = tuple(map(operator.index, normalized_shape if several else (normalized_shape,)))
    except TypeError:
        raise TypeError(
            f"{function}: normalized_shape is {normalized_shape!r}; integers are needed"
        ) from None
    if not row or row != shape[-len(row) :]:
        raise ValueError(f"{function}: normalized_shape is {row}; {name} has shape {shape}")
    return row


def _dtype(function, given):
    try:
        name = np.dtype(given).name
    except TypeError:  # another library's, such as torch.float32
        name = str(given).rpartition(".")[2]
    if name not in _DTYPES:
        raise TypeError(f"{function}: out_dtype is {name}; allowed are {', '.join(_DTYPES)}")
    return _DTYPES[name]


def _seed(function, seed):
    if seed is None:
        return secrets.randbits(64)
    seed = operator.index(seed)
    if not 0 <= seed < 2**64:
        raise ValueError(f"{function}: seed is {seed}; 0 to 2^64 - 1 are allowed")
    return seed
