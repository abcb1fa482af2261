# SPDX-License-Identifier: Apache-2.0
"""The functions: torch.nn.functional's, and fused forms that it lacks."""

from collections.abc import Iterable
from functools import wraps
from numbers import Integral

import torch
import torch.nn.functional as F
from torch.overrides import handle_torch_function, has_torch_function

from isobit.torch import catalog, fast, nested
from isobit.torch.autograd import call
from isobit.torch.derived import short
from isobit.torch.elementwise import ADD, INCREMENT
from isobit.torch.norms import (
    ADD_LAYER_NORM,
    ADD_RMS_NORM,
    LAYER_NORM,
    RMS_NORM,
    Given,
    Options,
)
from isobit.torch.records import require_one_device
from isobit.torch.settings import settings
from isobit.torch.transposition import TRANSPOSE

_RECORDS = {each.name: each for each in catalog.RECORDS}


def check_tensors(op, **tensors):
    """Whether one is nested. All but the first may be None."""
    any_nested = False
    for place, (name, value) in enumerate(tensors.items()):
        if not (isinstance(value, torch.Tensor) or (place > 0 and value is None)):
            raise TypeError(f"{op}: {name} must be a Tensor; it is {type(value).__name__}")
        if value is not None and value.is_nested:
            any_nested = True
            if value.layout != torch.jagged:
                raise NotImplementedError(f"{op}: {name} is nested; must have layout=torch.jagged")
    require_one_device(op, tensors)
    return any_nested


_NUMBER = "a number", lambda value: value is not None and not isinstance(value, str)
_FLAG = "True or False", lambda value: isinstance(value, bool)
_INTEGER = "an integer", lambda value: isinstance(value, Integral)
_INTEGERS = "integers", lambda value: all(isinstance(each, Integral) for each in value)
_DTYPE = "a torch.dtype", lambda value: value is None or isinstance(value, torch.dtype)
# What options must be, and whether a value is that.
_KINDS = {
    **dict.fromkeys(("beta", "eps", "p", "scale", "softcap", "dropout", "momentum"), _NUMBER),
    **dict.fromkeys(("label_smoothing", "z_loss"), _NUMBER),
    **dict.fromkeys(
        (
            "activation",
            "arithmetic",
            "causal",
            "dim",
            "dim0",
            "dim1",
            "divisor",
            "function",
            "groups",
            "ignore_index",
            "kind",
            "padding_idx",
            "window",
        ),
        _INTEGER,
    ),
    **dict.fromkeys(
        ("bins", "dilation", "extra_padding", "kernel", "padding", "size", "stride"), _INTEGERS
    ),
    **dict.fromkeys(("ceil_mode", "count_include_pad", "exclusive", "log", "reverse"), _FLAG),
    **dict.fromkeys(("scale_grad_by_freq", "totals", "training"), _FLAG),
    **dict.fromkeys(("with_index", "zero_centered"), _FLAG),
    **dict.fromkeys(("out_dtype", "dtype"), _DTYPE),
}


def _tell(op, tensors, **options):
    """What PyTorch's dispatcher refused: of that it tells in many lines, with its conversions and
    backends. Nothing is looked at before a call has failed."""
    for name, value in options.items():
        needed, is_so = _KINDS[name]
        if not is_so(value):
            kind = type(value).__name__
            raise TypeError(f"{op}: {name} must be {needed}; it is {kind}") from None
    for name, value in tensors.items():
        if value is not None and value.layout not in (torch.strided, torch.jagged):
            words = f"{op}: {name} has layout {value.layout}; must be strided"
            raise NotImplementedError(words) from None
        if value is not None and value.is_quantized:
            words = f"{op}: {name} is quantized, as {value.dtype}; dequantize it"
            raise NotImplementedError(words) from None


def _leaves_isobit(given):
    """Whether those alone who see a call are modes that leave Isobit's functions as they are."""
    for each in given:
        kind = type(each)
        if kind not in fast.TENSORS and hasattr(kind, "__torch_function__"):
            return False
    for place in range(torch._C._len_torch_function_stack()):
        if not hasattr(torch._C._get_function_stack_at(place), "leaves_isobit"):
            return False
    return True


def _goes_elsewhere(tensors):
    """Whether a mode, or a tensor's own __torch_function__, takes the call. Nested tensors' own
    knows PyTorch's functions alone."""
    return has_torch_function(tensors) and not any(
        isinstance(each, torch.Tensor) and each.is_nested for each in tensors
    )


def _as_tuple(op, normalized_shape):
    if isinstance(normalized_shape, Integral):
        return (normalized_shape,)
    if isinstance(normalized_shape, Iterable):
        return tuple(normalized_shape)
    kind = type(normalized_shape).__name__
    raise TypeError(f"{op}: normalized_shape must be one int or several; it is {kind}")


def hidden_dims(op, input, normalized_shape):
    if not isinstance(normalized_shape, tuple):
        normalized_shape = _as_tuple(op, normalized_shape)
    count = len(normalized_shape)
    if count == 0 or input.shape[-count:] != normalized_shape:
        raise ValueError(
            f"{op}: normalized_shape is {normalized_shape}; input has shape {tuple(input.shape)}"
        )
    return count


def _call(norm, options, given, any_nested=False):
    if any_nested:

        def of_rows(values, residual=None):
            return _call(norm, options, given._replace(input=values, residual=residual))

        record = _RECORDS[norm.name]
        rows = [getattr(given, name) for name in record.rows]
        return nested.of_values(record, norm.name, of_rows, rows)
    if torch.compiler.is_compiling():
        if settings.compiled_fuses and not (options.dropout or options.zero_centered):
            return _formula(norm, options, given)
        return norm.forward(given, options, prefix="")
    try:
        return call(norm, options, given)
    except RuntimeError:
        op = f"dropout_{norm.name}" if options.dropout != 0 else norm.name
        tensors, out_dtype = given._asdict(), options.out_dtype
        _tell(op, tensors, eps=options.eps, p=options.dropout, out_dtype=out_dtype)
        raise


def _formula(norm, options, given):
    total = given.input if given.residual is None else given.input + given.residual
    shape = total.shape[total.dim() - options.hidden_dims :]
    if norm.centered:
        y = F.layer_norm(total, shape, given.weight, given.bias, options.eps)
    else:
        y = F.rms_norm(total, shape, given.weight, options.eps)
    y = y.to(options.out_dtype or total.dtype)
    return (y, total) if norm.adds else y


def known_eps(eps, x):
    """Where none is given, the step at 1 of the type that is computed in."""
    if eps is not None:
        return eps
    wide = isinstance(x, torch.Tensor) and x.dtype == torch.float64
    return torch.finfo(torch.float64 if wide else torch.float32).eps


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
    """torch.nn.functional.layer_norm, with the same bits wherever it is computed.

    zero_centered: weight is stored less 1. out_dtype: float32, float16 or bfloat16 in place of
    input's.
    """
    if not (zero_centered or out_dtype or torch.compiler.is_compiling()):
        y = fast.layer_norm(normalized_shape, input, weight, bias, eps)
        if y is not None:
            return y
    if _goes_elsewhere((input, weight, bias)):
        return handle_torch_function(
            layer_norm,
            (input, weight, bias),
            *(input, normalized_shape, weight, bias, eps),
            zero_centered=zero_centered,
            out_dtype=out_dtype,
        )
    any_nested = check_tensors("layer_norm", input=input, weight=weight, bias=bias)
    dims = hidden_dims("layer_norm", input, normalized_shape)
    options = Options(eps, dims, zero_centered, out_dtype)
    return _call(LAYER_NORM, options, Given(input, weight, bias), any_nested)


def rms_norm(
    input, normalized_shape, weight=None, eps=None, *, zero_centered=False, out_dtype=None
):
    """torch.nn.functional.rms_norm, with the same bits wherever it is computed.

    eps: where it is None, the machine epsilon of float64 for float64, of float32 for all others.
    For the rest see layer_norm.
    """
    known = known_eps(eps, input)
    if not (zero_centered or out_dtype or torch.compiler.is_compiling()):
        y = fast.rms_norm(normalized_shape, input, weight, known)
        if y is not None:
            return y
    if _goes_elsewhere((input, weight)):
        return handle_torch_function(
            rms_norm,
            (input, weight),
            *(input, normalized_shape, weight, eps),
            zero_centered=zero_centered,
            out_dtype=out_dtype,
        )
    any_nested = check_tensors("rms_norm", input=input, weight=weight)
    dims = hidden_dims("rms_norm", input, normalized_shape)
    options = Options(known, dims, zero_centered, out_dtype)
    return _call(RMS_NORM, options, Given(input, weight), any_nested)


def _seed(op, p, seed):
    if p == 0:
        return None
    if seed is None:  # from PyTorch's generator, so that torch.manual_seed rules it
        return torch.randint(-(1 << 63), (1 << 63) - 1, (), dtype=torch.int64, device="cpu")
    if isinstance(seed, torch.Tensor):
        return seed
    if not isinstance(seed, Integral):
        raise TypeError(f"{op}: seed must be an integer; it is {type(seed).__name__}")
    if not torch.compiler.is_compiling():  # there each seed would be compiled anew
        seed = int(seed)
        if not -(1 << 63) <= seed < 1 << 64:
            raise ValueError(f"{op}: seed is {seed}; allowed: -2^63 to 2^64 - 1")
    seed -= (1 << 64) if seed >= 1 << 63 else 0
    return torch.tensor(seed, dtype=torch.int64, device="cpu")


def overridable(function):
    """Tensors with a __torch_function__ of their own, and modes, see the call first."""

    @wraps(function)
    def call(*args, **more):
        given = (*args, *more.values())
        if not has_torch_function(given):
            return function(*args, **more)
        if not torch.compiler.is_compiling() and _leaves_isobit(given):
            with torch._C.DisableTorchFunction():  # or the mode would hear of every x.shape
                return function(*args, **more)
        if _goes_elsewhere(given):
            return handle_torch_function(call, given, *args, **more)
        return function(*args, **more)

    return call


def _added(norm, x, residual, normalized_shape, weight, bias, options, seed):
    op = f"dropout_{norm.name}" if options.dropout != 0 else norm.name
    any_nested = check_tensors(op, x=x, residual=residual, weight=weight, bias=bias)
    options = options._replace(hidden_dims=hidden_dims(op, x, normalized_shape))
    given = Given(x, weight, bias, residual, _seed(op, options.dropout, seed))
    return _call(norm, options, given, any_nested)


@overridable
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
    """(y, sum): sum = x + residual, y = layer_norm(sum), in one pass over memory."""
    if not (zero_centered or out_dtype or torch.compiler.is_compiling()):
        both = fast.add_layer_norm(normalized_shape, x, weight, bias, eps, residual)
        if both is not None:
            return both
    options = Options(eps, 1, zero_centered, out_dtype)
    return _added(ADD_LAYER_NORM, x, residual, normalized_shape, weight, bias, options, None)


@overridable
def add_rms_norm(
    x, residual, normalized_shape, weight=None, eps=None, *, zero_centered=False, out_dtype=None
):
    """(y, sum): sum = x + residual, y = rms_norm(sum), in one pass over memory."""
    eps = known_eps(eps, x)
    if not (zero_centered or out_dtype or torch.compiler.is_compiling()):
        both = fast.add_rms_norm(normalized_shape, x, weight, eps, residual)
        if both is not None:
            return both
    options = Options(eps, 1, zero_centered, out_dtype)
    return _added(ADD_RMS_NORM, x, residual, normalized_shape, weight, None, options, None)


@overridable
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
    """(y, sum): sum = dropout(x, p) + residual, y = layer_norm(sum), in one pass over memory.

    What is dropped depends on the seed, the row and the column alone. seed: an integer, or one
    int64 in a tensor on the CPU; where it is None, PyTorch's generator for the CPU draws one.
    residual may be None.
    """
    options = Options(eps, 1, zero_centered, out_dtype, p if training else 0.0)
    return _added(ADD_LAYER_NORM, x, residual, normalized_shape, weight, bias, options, seed)


@overridable
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
    """(y, sum): sum = dropout(x, p) + residual, y = rms_norm(sum); see dropout_add_layer_norm."""
    options = Options(known_eps(eps, x), 1, zero_centered, out_dtype, p if training else 0.0)
    return _added(ADD_RMS_NORM, x, residual, normalized_shape, weight, None, options, seed)


def _retold(error, record, function):
    """What an operator says of its arguments, as the function that was called has it."""
    name, _, words = str(error).partition(": ")
    if name != record.name or not words:
        return error
    words = words.replace("x ", "input ", 1) if words.startswith("x ") else words
    return type(error)(f"{function}: {words}")


def run_as(function, record, tensors, /, **options):
    """run, for a function that has another name than the operator, and whose input is x there."""
    try:
        return run(record, tensors, **options)
    except (TypeError, ValueError, NotImplementedError) as error:
        raise _retold(error, record, function) from None


def run(record, tensors, behind=None, last=None, **options):
    """An operator of which its record says everything. tensors: by their names in the schema, in
    front of which nothing stands; the options follow them there, and then tensors `behind`, and
    options that are the `last`."""
    behind, last = behind or {}, last or {}
    arguments = (*tensors.values(), *options.values(), *behind.values(), *last.values())
    y = short(record, *arguments)
    if y is not None:
        return y
    named = tensors | behind
    on_device = {name: each for name, each in named.items() if name not in record.host}
    if check_tensors(record.name, **on_device):

        def of_rows(*values):
            given = tensors | dict(zip(record.rows, values, strict=True))
            return run(record, given, behind, last, **options)

        rows = [tensors[name] for name in record.rows]
        return nested.of_values(record, record.name, of_rows, rows)
    try:
        return record(*arguments)
    except RuntimeError:
        _tell(record.name, named, **options, **last)
        raise


@overridable
def add(x, residual):
    """x + residual, rounded once."""
    return run(ADD, {"x": x, "residual": residual})


@overridable
def increment(x):
    """x + 1, rounded once."""
    return run(INCREMENT, {"x": x})


@overridable
def transpose(x, dim0, dim1, *, dtype=None):
    """x with two of its dimensions exchanged, as a new contiguous tensor. x may have any strides,
    and is read where it lies.

    dtype: another floating dtype for a floating x, to which each element is rounded once.
    """
    return run(TRANSPOSE, {"x": x}, dim0=dim0, dim1=dim1, dtype=dtype)
