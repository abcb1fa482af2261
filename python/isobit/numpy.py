# SPDX-License-Identifier: Apache-2.0
"""Isobit for NumPy's arrays and, through DLPack, for any library's arrays in CPU memory.

    y = isobit.numpy.layer_norm(x, x.shape[-1], weight, bias)

Arrays are ndarrays of float32, float16, float64, bfloat16 (of ml_dtypes) and, where nothing is
normalised, int32; or whatever has `__dlpack__`, such as a tensor of PyTorch. Each is read where it
lies if its rows are evenly spaced and their elements adjacent; else it is copied once. DLPack tells
no buffer's size, so the bytes that may be touched are those that shape and strides name.
Results are new and in C order, and of the library of what is normalised, `input` or `x`.

Names and arguments are those of isobit.torch. An RMS norm's `eps` of None is the machine epsilon of
the type that is computed in: float64's for float64, float32's for all others. `out_dtype` is the
type of y, unless given that of x. A `zero_centered` weight is stored less 1. What a dropout drops
depends on `seed` and an element's place alone; None draws a seed. The backward of a sum takes `sum`
for input.
"""

import numpy as np

from isobit import _arguments, _arrays, c_abi
from isobit import _random as random  # noqa: F401, whose names are its own
from isobit._activations import exp, geglu, gelu, log, sigmoid, silu, swiglu, tanh
from isobit._attention import scaled_dot_product_attention
from isobit._calls import FLOATS, Call, context, get_num_threads, set_num_threads
from isobit._channel_norms import batch_norm, group_norm
from isobit._convolutions import causal_conv1d, causal_conv1d_update, conv1d, conv2d
from isobit._dropout import dropout
from isobit._embedding import embedding
from isobit._interpolation import interpolate
from isobit._losses import cross_entropy, linear_cross_entropy
from isobit._norm_linear import layer_norm_linear, rms_norm_linear
from isobit._norms import LayerNorm, RMSNorm
from isobit._optimizers import adam, lion, sgd, vector_norm
from isobit._pointwise_losses import (
    binary_cross_entropy_with_logits,
    huber_loss,
    l1_loss,
    mse_loss,
    nll_loss,
    smooth_l1_loss,
)
from isobit._pooling import adaptive_avg_pool2d, avg_pool2d, max_pool2d
from isobit._products import PackedMatrix, linear, matmul
from isobit._reductions import amax, amin, mean, norm, std, sum, var
from isobit._rotary import apply_rotary, rotary_tables
from isobit._scans import cummax, cummin, cumprod, cumsum, logcumsumexp
from isobit._softmax import log_softmax, softmax

__all__ = [
    "PackedMatrix",
    "adam",
    "adaptive_avg_pool2d",
    "add",
    "add_layer_norm",
    "add_rms_norm",
    "amax",
    "amin",
    "apply_rotary",
    "avg_pool2d",
    "batch_norm",
    "binary_cross_entropy_with_logits",
    "causal_conv1d",
    "causal_conv1d_update",
    "conv1d",
    "conv2d",
    "cross_entropy",
    "cummax",
    "cummin",
    "cumprod",
    "cumsum",
    "dropout",
    "dropout_add_layer_norm",
    "dropout_add_rms_norm",
    "embedding",
    "exp",
    "geglu",
    "gelu",
    "get_num_threads",
    "group_norm",
    "huber_loss",
    "increment",
    "interpolate",
    "l1_loss",
    "layer_norm",
    "layer_norm_backward",
    "layer_norm_linear",
    "linear",
    "linear_cross_entropy",
    "lion",
    "log",
    "log_softmax",
    "logcumsumexp",
    "matmul",
    "max_pool2d",
    "mean",
    "mse_loss",
    "nll_loss",
    "norm",
    "rms_norm",
    "rms_norm_backward",
    "rms_norm_linear",
    "rotary_tables",
    "scaled_dot_product_attention",
    "set_num_threads",
    "sgd",
    "sigmoid",
    "silu",
    "smooth_l1_loss",
    "softmax",
    "std",
    "sum",
    "swiglu",
    "tanh",
    "transpose",
    "var",
    "vector_norm",
]


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
    call = LayerNorm("layer_norm", "input", input, normalized_shape, eps, zero_centered)
    return call.forward(out_dtype, weight=weight, bias=bias)


def rms_norm(
    input, normalized_shape, weight=None, eps=None, *, zero_centered=False, out_dtype=None
):
    """input / sqrt(mean(input^2) + eps) * weight over the last dimensions."""
    call = RMSNorm("rms_norm", "input", input, normalized_shape, eps, zero_centered)
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
    call = LayerNorm("add_layer_norm", "x", x, normalized_shape, eps, zero_centered)
    return call.forward_of_sum(
        out_dtype, call.like_x("residual", residual), weight=weight, bias=bias
    )


def add_rms_norm(
    x, residual, normalized_shape, weight=None, eps=None, *, zero_centered=False, out_dtype=None
):
    """(y, sum) with sum = x + residual and y = rms_norm(sum)."""
    call = RMSNorm("add_rms_norm", "x", x, normalized_shape, eps, zero_centered)
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
    call = LayerNorm("dropout_add_layer_norm", "x", x, normalized_shape, eps, zero_centered)
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
    call = RMSNorm("dropout_add_rms_norm", "x", x, normalized_shape, eps, zero_centered)
    return call.forward_of_dropout(out_dtype, residual, p, training, seed, weight=weight)


def layer_norm_backward(
    grad_y, input, normalized_shape, weight=None, eps=1e-5, *, zero_centered=False
):
    """(grad_input, grad_weight, grad_bias); without a weight the latter are of input's dtype."""
    call = LayerNorm("layer_norm_backward", "input", input, normalized_shape, eps, zero_centered)
    return call.backward(grad_y, weight)


def rms_norm_backward(
    grad_y, input, normalized_shape, weight=None, eps=None, *, zero_centered=False
):
    """(grad_input, grad_weight); without a weight the latter is of input's dtype."""
    call = RMSNorm("rms_norm_backward", "input", input, normalized_shape, eps, zero_centered)
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


class _Elementwise(Call):
    allowed = (*FLOATS, "int32")

    def run(self, kind, **inputs):
        y = self.empty(self.x.shape, self.dtype)
        tensors = {"x": self.tensor(self.x), "y": self.tensor(y)}
        c_abi.call("elementwise", "fwd", context(), **tensors, kind=kind, **inputs)
        return self.result(y)


class _Transpose(Call):
    def run(self, dim0, dim1, dtype):
        rank = self.x.ndim
        dims = [
            _arguments.dim(self.function, name, dim, rank)
            for name, dim in (("dim0", dim0), ("dim1", dim1))
        ]
        allowed = FLOATS if self.dtype in FLOATS else (self.dtype,)
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
        c_abi.call("transpose", "fwd", context(), x=self.strided(x), y=self.strided(to))
        return self.result(y)

    def strided(self, array):
        if array.ndim > c_abi.MAX_RANK:
            raise ValueError(
                f"{self.function}: x has {array.ndim} dimensions; allowed: at most {c_abi.MAX_RANK}"
            )
        return _arrays.strided(array)
