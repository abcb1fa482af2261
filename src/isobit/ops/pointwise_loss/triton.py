# SPDX-License-Identifier: Apache-2.0
"""Losses of elements in Triton, forward and backward, with the bits of all other variants; the
cross entropy of logits not of doubles. No GPU has run these kernels yet: Triton's interpreter has.

    VARIANTS["vec16"].run(x=x, target=target, loss=loss, function="huber", beta=0.5)
    VARIANTS["vec16"].run(x=x, target=target, grad_loss=g, grad_x=grad_x, function="mse")
"""

import math
from functools import partial
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl

from isobit.ops.activation.triton_functions import _negative, function_of
from isobit.ops.triton_variants import (
    Launch,
    Variant,
    bits_of,
    by_name,
    fitting,
    parts,
    quotient,
    scalar,
    store,
    widened,
)

_FUNCTIONS = ("mse", "l1", "smooth_l1", "huber", "bce_with_logits")


class Arrays(NamedTuple):
    """Of a call; None for what there is not. `result` is loss, or beside grad_loss grad_x."""

    x: Any
    target: Any
    weight: Any
    pos_weight: Any
    grad_loss: Any
    result: Any


class Element(NamedTuple):
    """Weights are 1 where there is none."""

    x: tl.tensor
    target: tl.tensor
    weight: tl.tensor
    pos_weight: tl.tensor


@triton.jit
def _weights(pointer, at, inside, like):
    value = tl.zeros_like(like) + 1.0
    if pointer is not None:
        value = widened(pointer, at, inside)
    return value


@triton.jit
def _sign(x):
    """1, -1, or x itself where it is 0 or NaN."""
    return tl.where(x > 0.0, 1.0, tl.where(x < 0.0, -1.0, x))


@triton.jit
def _log_of_one_and(e):
    total = e + 1.0
    return function_of(total, "log") + tl.div_rn(e - (total - 1.0), total)


@triton.jit
def _share(element):
    one = tl.zeros_like(element.x) + 1.0
    return tl.fma(element.pos_weight - 1.0, element.target, one)


@triton.jit
def _straight(element):
    below = _negative(element.pos_weight * element.target)
    return tl.where(element.x < 0.0, below, 1.0 - element.target)


@triton.jit
def _cross_entropy(element):
    decay = function_of(_negative(tl.abs(element.x)), "exp")
    bent = _share(element) * _log_of_one_and(decay)
    return tl.fma(_straight(element), element.x, bent)


@triton.jit
def _slope_of_cross_entropy(element):
    small = function_of(_negative(tl.abs(element.x)), "sigmoid")
    part = _share(element)
    signed_part = tl.where(element.x < 0.0, part, _negative(part))
    return tl.fma(signed_part, small, _straight(element))


@triton.jit
def _loss(element, beta, FUNCTION: tl.constexpr):
    """As formula.h has it."""
    difference = element.x - element.target
    distance, weight = tl.abs(difference), element.weight
    half = distance * 0.5
    less = tl.fma(0.0 - beta, tl.zeros_like(beta) + 0.5, distance)
    if FUNCTION == "mse":
        result = weight * difference * difference
    elif FUNCTION == "l1":
        result = weight * distance
    elif FUNCTION == "smooth_l1":
        result = weight * tl.where(distance < beta, quotient(half, beta) * distance, less)
    elif FUNCTION == "huber":
        result = tl.where(distance < beta, weight * half * distance, weight * beta * less)
    else:
        tl.static_assert(FUNCTION == "bce_with_logits")
        result = weight * _cross_entropy(element)
    return result


@triton.jit
def _gradient(element, grad_loss, beta, FUNCTION: tl.constexpr):
    difference = element.x - element.target
    near = tl.abs(difference) < beta
    if FUNCTION == "mse":
        slope = difference
    elif FUNCTION == "l1":
        slope = _sign(difference)
    elif FUNCTION == "smooth_l1":
        slope = tl.where(near, quotient(difference, beta), _sign(difference))
    elif FUNCTION == "huber":
        slope = tl.where(near, difference, beta * _sign(difference))
    else:
        tl.static_assert(FUNCTION == "bce_with_logits")
        slope = _slope_of_cross_entropy(element)
    result = element.weight * grad_loss * slope
    if FUNCTION == "mse":
        result = result + result
    return result


@triton.jit
def _results(arrays, beta, at, inside, FUNCTION: tl.constexpr):
    x, target = widened(arrays.x, at, inside), widened(arrays.target, at, inside)
    weight = _weights(arrays.weight, at, inside, x)
    element = Element(x, target, weight, _weights(arrays.pos_weight, at, inside, x))
    beta = tl.zeros_like(x) + scalar(beta, x)
    if arrays.grad_loss is None:
        value = _loss(element, beta, FUNCTION)
    else:
        value = _gradient(element, widened(arrays.grad_loss, at, inside), beta, FUNCTION)
    store(arrays.result, at, value, inside)


@triton.jit
def _elements(arrays, beta, count, FUNCTION: tl.constexpr, BLOCK: tl.constexpr):
    first = tl.program_id(0).to(tl.int64) * BLOCK
    at = first + tl.arange(0, BLOCK)
    if first + BLOCK <= count:  # a mask that is not constant would keep vectors away
        _results(arrays, beta, at, tl.full([BLOCK], True, tl.int1), FUNCTION)
    else:
        _results(arrays, beta, at, at < count, FUNCTION)


def _check(arrays, function, beta):
    """Beside shapes."""
    if function not in _FUNCTIONS:
        allowed = ", ".join(_FUNCTIONS)
        raise ValueError(f"pointwise_loss: function is {function!r}; allowed: {allowed}")
    x = arrays["x"]
    real = torch.float64 if x.dtype == torch.float64 else torch.float32
    for name, array in arrays.items():
        expected = real if name in ("loss", "grad_loss") else x.dtype
        if array.dtype != expected:
            raise ValueError(f"pointwise_loss: {name} is {array.dtype}; must be {expected}")
    if "pos_weight" in arrays and function != "bce_with_logits":
        raise ValueError("pointwise_loss: pos_weight is given; it belongs to bce_with_logits")
    if function in ("smooth_l1", "huber"):
        if not math.isfinite(beta) or abs(beta) > torch.finfo(real).max:
            raise ValueError(f"pointwise_loss: beta is {beta}; must be finite, as {real} has it")
        if beta < 0 or (beta == 0 and function == "huber"):
            least = "must be above 0 in huber" if function == "huber" else "must not be negative"
            raise ValueError(f"pointwise_loss: beta is {beta}; {least}")


def _make(lane_bytes, plan, function="mse", beta=1.0, **arrays):
    beta = float(beta)
    _check(arrays, function, beta)
    x, warps = arrays["x"], plan["warps"]
    block = 32 * warps * max(lane_bytes // x.itemsize, 1)
    result = arrays["grad_x"] if "grad_loss" in arrays else arrays["loss"]
    given = (arrays.get(name) for name in Arrays._fields[:-1])
    arguments = {"arrays": Arrays(*given, result), "beta": bits_of(beta, x.dtype)}
    arguments |= {"count": x.numel(), "FUNCTION": function, "BLOCK": block}
    yield Launch(_elements, (parts(x.numel(), block),), arguments, warps)


def _declines(case):
    function = case.options.get("function", "mse")
    if function == "bce_with_logits" and "f64" in case.dtypes.values():
        return "it computes bce_with_logits in float, not in f64"
    return ""


def _variant(name, lane_bytes):
    """A lane has as many elements as fill so many bytes, or one."""
    return Variant(
        name=name,
        kinds=("fwd", "bwd"),
        takes=frozenset({*Arrays._fields[:-1], "loss", "grad_x", "function", "beta"}),
        make=partial(_make, lane_bytes),
        knobs={"warps": (1, 2, 4, 8)},
        choose=lambda case: {"warps": 4},
        declines=_declines,
        fits=fitting("pointwise_loss"),
    )


VARIANTS = by_name(_variant("vec16", 16), _variant("naive", 0))
