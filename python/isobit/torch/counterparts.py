# SPDX-License-Identifier: Apache-2.0
"""The table of PyTorch's functions and modules that Isobit computes too: interception, patch and
convert read it. A function or a module more is a line here."""

from functools import wraps
from inspect import Parameter, signature

import torch
from torch import nn
from torch.nn import functional as F

from isobit.torch import (
    activation_functions,
    activation_modules,
    attention_functions,
    broadcasting,
    channel_norm_functions,
    convolutions,
    dropout_functions,
    embedding_functions,
    functional,
    interpolation_functions,
    interpolation_modules,
    loss_functions,
    pointwise_loss_functions,
    pointwise_loss_modules,
    pooling_functions,
    pooling_modules,
    product_functions,
    reduction_functions,
    scans,
    softmax_functions,
    softmax_modules,
)
from isobit.torch.probing import DEVICES, DTYPES
from isobit.torch.records import is_autocast


def _computes(input, *weights):
    return (
        input.dtype in DTYPES
        and input.device.type in DEVICES
        and input.layout == torch.strided
        and not input.is_nested
        and all(each is None or each.dtype in (input.dtype, torch.float32) for each in weights)
    )


def _multiplies(input, *others):
    """Of several types, which autocast makes one, or PyTorch refuses in words of its own."""
    if not (isinstance(input, torch.Tensor) and _computes(input)):
        return False
    given = [each for each in others if each is not None]
    cast = is_autocast(input.device)
    return all(
        isinstance(each, torch.Tensor)
        and _computes(each)
        and each.device == input.device
        and (cast or each.dtype == input.dtype)
        for each in given
    )


def _suits(args, kwargs):
    """Whether Isobit computes a call of these numbers, beside which indices and masks may be."""
    tensors = [each for each in (*args, *kwargs.values()) if isinstance(each, torch.Tensor)]
    real = [each for each in tensors if each.is_floating_point() or each.is_complex()]
    return bool(real) and _multiplies(*real)


# What PyTorch's own functions call arguments, too, for users of NumPy.
_OF_NUMPY = {"axis": "dim", "keepdims": "keepdim"}


def exchanged(theirs, ours, suits=_suits, aliases=None):
    """A call of ours where it suits and ours has all arguments that are given; of theirs
    elsewhere. aliases: other names of arguments that theirs knows."""
    parameters = signature(ours).parameters
    names = tuple(parameters)
    most = sum(each.kind is Parameter.POSITIONAL_OR_KEYWORD for each in parameters.values())

    def call(*args, **kwargs):
        given = kwargs
        if aliases:
            given = {aliases.get(name, name): each for name, each in kwargs.items()}
        known = len(args) <= most and len(given) == len(kwargs)
        if known and all(name in names for name in given) and suits(args, given):
            return ours(*args, **given)
        return theirs(*args, **kwargs)

    return call


def _each(function, *theirs, **more):
    return {each: exchanged(each, function, **more) for each in theirs}


def _named(module, *names, of=(torch, torch.Tensor), **more):
    """Functions that have the same name here and there."""
    found = {}
    for name in names:
        found |= _each(getattr(module, name), *(getattr(each, name) for each in of), **more)
    return found


# The last argument is that of torch.layer_norm alone.
def _layer_norm(input, normalized_shape, weight=None, bias=None, eps=1e-5, cudnn_enable=True):
    if _computes(input, weight, bias):
        return functional.layer_norm(input, normalized_shape, weight, bias, eps)
    return torch.layer_norm(input, normalized_shape, weight, bias, eps, cudnn_enable)


def _rms_norm(input, normalized_shape, weight=None, eps=None):
    if _computes(input, weight):
        return functional.rms_norm(input, normalized_shape, weight, eps)
    return torch.rms_norm(input, normalized_shape, weight, eps)


NORMS = {
    torch.layer_norm: _layer_norm,
    torch.rms_norm: _rms_norm,
    F.layer_norm: _layer_norm,
    F.rms_norm: _rms_norm,
}


# What else PyTorch's functions may be given, such as a place for the result, stays theirs.
def _product(theirs, ours):
    def call(*args, **kwargs):
        if len(args) == 2 and not kwargs and _multiplies(*args):
            return ours(*args)
        return theirs(*args, **kwargs)

    return call


def _linear(input, weight, bias=None):
    suits = _multiplies(input, weight, bias)
    if suits and (bias is None or bias.shape == weight.shape[:-1]):
        return product_functions.linear(input, weight, bias)
    return F.linear(input, weight, bias)


def _of_right(right, left):
    return product_functions.matmul(left, right)


PRODUCTS = {
    F.linear: _linear,
    **{
        theirs: _product(theirs, getattr(product_functions, name))
        for name in ("matmul", "mm", "bmm")
        for theirs in (getattr(torch, name), getattr(torch.Tensor, name))
    },
    torch.Tensor.__matmul__: _product(torch.Tensor.__matmul__, product_functions.matmul),
    torch.Tensor.__rmatmul__: _product(torch.Tensor.__rmatmul__, _of_right),
}


def _convolution(theirs, ours):
    def call(input, weight, bias=None, *args, **kwargs):
        function = ours if _multiplies(input, weight, bias) else theirs
        return function(input, weight, bias, *args, **kwargs)

    return call


CONVOLUTIONS = {
    getattr(torch, name): _convolution(getattr(torch, name), getattr(convolutions, name))
    for name in ("conv1d", "conv2d", "conv_transpose1d", "conv_transpose2d")
}


def _vectors(*theirs):
    """Products of which one factor at least is a vector."""
    return {each: _product(each, product_functions.matmul) for each in theirs}


def _addmm(theirs):
    def call(input, mat1, mat2, **kwargs):
        suits = not kwargs and _multiplies(mat1, mat2, input) and mat1.ndim == mat2.ndim == 2
        if suits and input.shape == mat2.shape[1:]:
            return product_functions.matmul(mat1, mat2, bias=input)
        return theirs(input, mat1, mat2, **kwargs)

    return {theirs: call}


def _in_place(*names):
    """The result takes the place of the input."""

    def of(theirs, ours):
        def call(*args, **kwargs):
            if len(args) == 1 and not kwargs and _suits(args, kwargs):
                return activation_functions.in_place(ours, args[0])
            return theirs(*args, **kwargs)

        return call

    return {
        theirs: of(theirs, getattr(activation_functions, name))
        for name in names
        for theirs in (getattr(torch, name + "_"), getattr(torch.Tensor, name + "_"))
    }


def _softmax(theirs, ours):
    """torch's has no place for how deep a warning's line is in the stack, F's does."""
    deep = theirs in (F.softmax, F.log_softmax)

    def call(input, *args, **kwargs):
        given = dict(zip(("dim", *(["_stacklevel"] if deep else []), "dtype"), args, strict=False))
        given |= kwargs
        dtype = given.get("dtype")
        known = all(name in ("dim", "_stacklevel", "dtype") for name in given)
        if not known or not isinstance(input, torch.Tensor) or input.is_complex():
            return theirs(input, *args, **kwargs)
        if not input.is_floating_point() and dtype in DTYPES:
            input = input.to(dtype)
        if not _computes(input) or (dtype is not None and dtype not in DTYPES):
            return theirs(input, *args, **kwargs)
        return ours(input, given.get("dim"), dtype=dtype)

    return call


def _softmaxes(name):
    ours = getattr(softmax_functions, name)
    places = (getattr(each, name) for each in (torch, torch.Tensor, F, torch.special))
    return {theirs: _softmax(theirs, ours) for theirs in places}


def _has_indices(args, kwargs, place=1):
    """Of cross_entropy: classes, and not their probabilities."""
    target = kwargs.get("target", args[place] if len(args) > place else None)
    is_index = isinstance(target, torch.Tensor) and not target.is_floating_point()
    return is_index and _suits(args, kwargs)


def _has_indices_and_no_options(args, kwargs):
    """Of linear_cross_entropy, whose options choose PyTorch's pieces."""
    return kwargs.get("options") is None and _has_indices(args, kwargs, place=2)


def _normalises(args, kwargs):
    """Of norms of channels, whose weights and statistics may be of float32."""
    tensors = [each for each in (*args, *kwargs.values()) if isinstance(each, torch.Tensor)]
    return bool(tensors) and _computes(*tensors) and len({each.device for each in tensors}) == 1


def _keeps_its_table(args, kwargs):
    """Of embedding, which neither norms its rows nor has gradients of some rows alone."""
    names = ("input", "weight", "padding_idx", "max_norm", "norm_type", "by_frequency", "sparse")
    given = dict(zip(names, args, strict=False)) | kwargs
    reason = embedding_functions.unsupported(given.get("max_norm"), given.get("sparse"))
    return reason is None and given["weight"].dim() == 2 and _suits(args, kwargs)


def _resamples(args, kwargs):
    """Of interpolate, but for what is PyTorch's alone."""
    names = ("input", "size", "scale_factor", "mode", "align_corners", "recompute", "antialias")
    given = {"mode": "nearest"} | dict(zip(names, args, strict=False)) | kwargs
    if not _suits(args, kwargs) or not isinstance(given.get("input"), torch.Tensor):
        return False
    dims = given["input"].dim()
    asked = (given["mode"], given.get("antialias"))
    return dims in (3, 4) and interpolation_functions.unsupported(dims, *asked) is None


def _with_indices(ours):
    """PyTorch's function of that name returns them whatever it is told."""

    @wraps(ours)
    def call(*args, **kwargs):
        return ours(*args[:6], **kwargs | {"return_indices": True})

    return call


def _reduces(args, kwargs):
    """Of sums and their like: of one tensor, over dimensions that have no names, in a type that
    Isobit computes."""
    dtype = kwargs.get("dtype")
    dim = kwargs.get("dim", args[1] if len(args) > 1 else None)
    places = dim if isinstance(dim, (tuple, list)) else (dim,)
    counted = all(each is None or isinstance(each, int) for each in places)
    return counted and (dtype is None or dtype in DTYPES) and _suits(args, kwargs)


def _length(theirs, names, order):
    """A norm of PyTorch's, of which `names` are the arguments behind the input. order(call, input):
    the one of vector_norm that it is, or None."""

    def call(input, *args, **kwargs):
        given = dict(zip(names, args, strict=False)) | kwargs
        if isinstance(input, torch.Tensor) and len(args) <= len(names):
            found = order(given, input)
            more = {name: given[name] for name in ("dim", "keepdim", "dtype") if name in given}
            known = {*given} <= {*names, *more} and given.get("out") is None
            dim = more.get("dim")
            if found is not None and known and _reduces((input, dim), {"dtype": more.get("dtype")}):
                return reduction_functions.norm(input, found, **more)
        return theirs(input, *args, **kwargs)

    return {theirs: call}


def _as_order(given):
    """One of those that Isobit has."""
    if isinstance(given, (int, float)) and float(given) in reduction_functions.ORDERS:
        return float(given)
    return None


def _p_of_norm(given, _input):
    p = given.get("p", "fro")
    return 2.0 if p in ("fro", None) else _as_order(p)


def _order_of_vector(given, _input):
    return _as_order(given.get("ord", 2))


def _order_of_linalg(given, input):
    dim, order = given.get("dim"), given.get("ord")
    of_vectors = isinstance(dim, int) or (dim is None and input.dim() == 1)
    if order is None:
        return 2.0
    return _as_order(order) if of_vectors else None


_LENGTHS = {
    **_length(torch.norm, ("p", "dim", "keepdim", "out", "dtype"), _p_of_norm),
    **_length(torch.Tensor.norm, ("p", "dim", "keepdim", "dtype"), _p_of_norm),
    **_length(torch.linalg.vector_norm, ("ord", "dim", "keepdim"), _order_of_vector),
    **_length(torch.linalg.norm, ("ord", "dim", "keepdim"), _order_of_linalg),
}


def _broadcasts(*names):
    """Operations of two tensors, of which one may be repeated: then Isobit adds its gradient."""

    def of(theirs):
        def call(*args, **kwargs):
            if len(args) == 2 and all(isinstance(each, torch.Tensor) for each in args):
                one, other = args
                # The type of a tensor without dimensions says less of that of the result.
                is_alike = one.dtype == other.dtype or (one.dim() > 0 and other.dim() > 0)
                if is_alike and one.shape != other.shape and _computes(one) and _computes(other):
                    args = broadcasting.together(one, other)
            return theirs(*args, **kwargs)

        return {theirs: call}

    found = {}
    for name in names:
        for place in (torch, torch.Tensor):
            if hasattr(place, name):
                found |= of(getattr(place, name))
    return found


# What the signs of Python are to a mode, too.
_OF_TWO = ("add", "sub", "subtract", "mul", "multiply", "div", "divide", "true_divide")
_INTO_ONE = ("add_", "sub_", "mul_", "div_")


def _expand(theirs):
    def call(input, *shape, **kwargs):
        result = theirs(input, *shape, **kwargs)
        if not (isinstance(input, torch.Tensor) and _computes(input)):
            return result
        made = broadcasting.expanded(input, result.shape)
        return result if made is input else made

    return {theirs: call}


_ONE_NAME = ("avg_pool2d", "adaptive_avg_pool2d")
_TWO_NAMES = ("max_pool1d", "max_pool2d", "avg_pool1d", "adaptive_avg_pool1d")

# What convert exchanges beside the others.
FURTHER = {
    **_named(activation_functions, "exp", "log", "sigmoid", "tanh"),
    **_in_place("exp", "log", "sigmoid", "tanh"),
    **_each(activation_functions.sigmoid, torch.special.expit),
    **_named(activation_functions, "silu", "gelu", of=(F,)),
    **_softmaxes("softmax"),
    **_softmaxes("log_softmax"),
    **_each(attention_functions.scaled_dot_product_attention, F.scaled_dot_product_attention),
    **_named(
        channel_norm_functions,
        *("batch_norm", "group_norm", "instance_norm"),
        of=(F,),
        suits=_normalises,
    ),
    **_each(dropout_functions.dropout, F.dropout, torch.dropout),
    **_each(embedding_functions.embedding, F.embedding, suits=_keeps_its_table),
    **_each(loss_functions.cross_entropy, F.cross_entropy, suits=_has_indices),
    **_each(
        loss_functions.linear_cross_entropy,
        *filter(None, [getattr(F, "linear_cross_entropy", None)]),
        suits=_has_indices_and_no_options,
    ),
    **_each(interpolation_functions.interpolate, F.interpolate, suits=_resamples),
    **_named(
        pointwise_loss_functions,
        *("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss"),
        *("binary_cross_entropy_with_logits", "nll_loss"),
        of=(F,),
    ),
    **_named(pooling_functions, *_ONE_NAME, of=(F,)),
    **_named(pooling_functions, *_TWO_NAMES, of=(F, torch)),
    **_each(_with_indices(pooling_functions.max_pool1d), F.max_pool1d_with_indices),
    **_each(_with_indices(pooling_functions.max_pool2d), F.max_pool2d_with_indices),
    **_named(scans, "cumsum", "cumprod", "logcumsumexp", "cummax", "cummin", aliases=_OF_NUMPY),
    **_named(
        reduction_functions,
        *("sum", "mean", "var", "std", "amax", "amin"),
        suits=_reduces,
        aliases=_OF_NUMPY,
    ),
    **_named(
        reduction_functions, "var_mean", "std_mean", of=(torch,), suits=_reduces, aliases=_OF_NUMPY
    ),
    **_LENGTHS,
    **_broadcasts(*_OF_TWO, *_INTO_ONE),
    **_expand(torch.Tensor.expand),
    **_expand(torch.Tensor.expand_as),
    **_expand(torch.broadcast_to),
    **_expand(torch.Tensor.broadcast_to),
    **_vectors(torch.mv, torch.Tensor.mv, torch.dot, torch.Tensor.dot),
    **_addmm(torch.addmm),
    **_addmm(torch.Tensor.addmm),
}

EVERY = NORMS | PRODUCTS | CONVOLUTIONS | FURTHER

# Of torch.nn's modules those that take all that PyTorch's do, or tell by `unsuited` which do not.
# CrossEntropyLoss, which may be given probabilities, is reached through its function.
MODULES = {
    nn.Sigmoid: activation_modules.Sigmoid,
    nn.Tanh: activation_modules.Tanh,
    nn.GELU: activation_modules.GELU,
    nn.SiLU: activation_modules.SiLU,
    nn.Dropout: dropout_functions.Dropout,
    nn.Softmax: softmax_modules.Softmax,
    nn.LogSoftmax: softmax_modules.LogSoftmax,
    nn.MSELoss: pointwise_loss_modules.MSELoss,
    nn.L1Loss: pointwise_loss_modules.L1Loss,
    nn.SmoothL1Loss: pointwise_loss_modules.SmoothL1Loss,
    nn.HuberLoss: pointwise_loss_modules.HuberLoss,
    nn.BCEWithLogitsLoss: pointwise_loss_modules.BCEWithLogitsLoss,
    nn.NLLLoss: pointwise_loss_modules.NLLLoss,
    nn.MaxPool1d: pooling_modules.MaxPool1d,
    nn.MaxPool2d: pooling_modules.MaxPool2d,
    nn.AvgPool1d: pooling_modules.AvgPool1d,
    nn.AvgPool2d: pooling_modules.AvgPool2d,
    nn.AdaptiveAvgPool1d: pooling_modules.AdaptiveAvgPool1d,
    nn.AdaptiveAvgPool2d: pooling_modules.AdaptiveAvgPool2d,
    nn.Upsample: interpolation_modules.Upsample,
}
