# SPDX-License-Identifier: Apache-2.0
"""Losses of elements in Triton, forward and backward, with the bits of all other variants. No
GPU has run these kernels yet: Triton's interpreter has.

    VARIANTS["vec16"].run(x=x, target=target, loss=loss, function="huber", beta=0.5)
    VARIANTS["vec16"].run(x=x, target=target, grad_loss=g, grad_x=grad_x, function="mse")
"""

import math
from functools import partial
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl

from isobit.ops.activation.triton_doubles import (
    exp,
    log,
    negative,
    number,
    power_beside_one,
    scaled_exp,
    sigmoid,
    split,
)
from isobit.ops.activation.triton_functions import (
    _negative,
    _number,
    _power_beside_one,
    _scaled_exp,
    _sigmoid,
    _split,
    function_of,
)
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

_INFINITY = tl.constexpr(float("inf"))
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
def _kept(value, unless):
    """What a step gives, or infinity where it may have lost digits, as formula.h says."""
    least = 2.0**-1022 if value.dtype == tl.float64 else 2.0**-126
    lost = tl.where(unless > 0.0, _INFINITY, value)
    return tl.where(tl.abs(value) < least, lost, value)


@triton.jit
def _beside_one(weight):
    return tl.abs(weight - 1.0)


@triton.jit
def _weighted(weight, x):
    least = tl.where(tl.abs(weight) < tl.abs(x), tl.abs(weight), tl.abs(x))
    return _kept(weight * x, tl.where(weight == 1.0, 0.0, least))


@triton.jit
def _sign(x):
    """1, -1, or x itself where it is 0 or NaN."""
    return tl.where(x > 0.0, 1.0, tl.where(x < 0.0, -1.0, x))


@triton.jit
def _minus(x):
    return negative(x) if x.dtype == tl.float64 else _negative(x)


@triton.jit
def _exp(x):
    return exp(x) if x.dtype == tl.float64 else function_of(x, "exp")


@triton.jit
def _log(x):
    return log(x) if x.dtype == tl.float64 else function_of(x, "log")


@triton.jit
def _scaled(x, FUNCTION: tl.constexpr):
    """exp or sigmoid: a number and a power of two."""
    if x.dtype == tl.float64:
        value, exponent = scaled_exp(x) if FUNCTION == "exp" else sigmoid(x)
    else:
        value, exponent = _scaled_exp(x) if FUNCTION == "exp" else _sigmoid(x)
    return value, exponent


@triton.jit
def _together(value, exponent):
    return number(value, exponent) if value.dtype == tl.float64 else _number(value, exponent)


@triton.jit
def _log_of_one_and(e):
    total = e + 1.0
    return _log(total) + quotient(e - (total - 1.0), total)


@triton.jit
def _share(element):
    one = tl.zeros_like(element.x) + 1.0
    return tl.fma(element.pos_weight - 1.0, element.target, one)


@triton.jit
def _straight(element):
    below = _minus(_weighted(element.pos_weight, element.target))
    return tl.where(element.x < 0.0, below, 1.0 - element.target)


@triton.jit
def _cross_entropy(element):
    decay = _exp(_minus(tl.abs(element.x)))
    bent = _share(element) * _log_of_one_and(_kept(decay, _beside_one(element.pos_weight)))
    return _kept(tl.fma(_straight(element), element.x, bent), _beside_one(element.weight))


@triton.jit
def _slope_of_cross_entropy(element):
    value, exponent = _scaled(_minus(tl.abs(element.x)), "sigmoid")
    small = _kept(_together(value, exponent), _beside_one(element.pos_weight))
    part = _share(element)
    signed_part = tl.where(element.x < 0.0, part, _minus(part))
    slope = tl.fma(signed_part, small, _straight(element))
    return _kept(slope, tl.zeros_like(slope) + 1.0)


@triton.jit
def _plain_loss(element, beta, FUNCTION: tl.constexpr):
    """As formula.h has it."""
    difference = element.x - element.target
    distance, weight = tl.abs(difference), element.weight
    half = distance * 0.5
    less = tl.fma(0.0 - beta, tl.zeros_like(beta) + 0.5, distance)
    if FUNCTION == "mse":
        result = _weighted(weight, difference) * difference
    elif FUNCTION == "l1":
        result = weight * distance
    elif FUNCTION == "smooth_l1":
        slope = _kept(quotient(half, beta), distance)
        result = weight * tl.where(distance < beta, _kept(slope * distance, distance), less)
    elif FUNCTION == "huber":
        near, far = _weighted(weight, half) * distance, _weighted(weight, beta) * less
        result = tl.where(distance < beta, near, far)
    else:
        tl.static_assert(FUNCTION == "bce_with_logits")
        result = weight * _cross_entropy(element)
    return result


@triton.jit
def _plain_gradient(element, grad_loss, beta, FUNCTION: tl.constexpr):
    difference = element.x - element.target
    near = tl.abs(difference) < beta
    if FUNCTION == "mse":
        slope = difference
    elif FUNCTION == "l1":
        slope = _sign(difference)
    elif FUNCTION == "smooth_l1":
        slope = _kept(quotient(difference, beta), tl.abs(difference))
        slope = tl.where(near, slope, _sign(difference))
    elif FUNCTION == "huber":
        slope = tl.where(near, difference, beta * _sign(difference))
    else:
        tl.static_assert(FUNCTION == "bce_with_logits")
        slope = _slope_of_cross_entropy(element)
    factor = _weighted(element.weight, grad_loss)
    if FUNCTION == "mse":
        factor = factor + factor
    return factor * slope


# The same with exponents apart, as formula.h has it where what is plain is not finite.


@triton.jit
def _finite(x):
    return tl.abs(x) < _INFINITY


@triton.jit
def _apart(x):
    """A number and a power of two."""
    if x.dtype == tl.float64:
        value, exponent = split(x)
    else:
        value, exponent = _split(x)
    return value, exponent


@triton.jit
def _quotient(x, divisor):
    """Of two numbers, with its exponent apart."""
    value, exponent = _apart(x)
    other, of_other = _apart(divisor)
    return quotient(value, other), exponent - of_other


@triton.jit
def _whole(x, half):
    """x, or twice its half where x is not finite."""
    value, exponent = _apart(x)
    of_half, exponent_of_half = _apart(half)
    fits = _finite(x)
    return tl.where(fits, value, of_half), tl.where(fits, exponent, exponent_of_half + 1.0)


@triton.jit
def _sum(a, exponent_of_a, b, exponent_of_b):
    """Of values below 1 in magnitude."""
    of_a = tl.where(tl.abs(a) > 0.0, exponent_of_a, -10000.0)
    of_b = tl.where(tl.abs(b) > 0.0, exponent_of_b, -10000.0)
    most = tl.where(of_a > of_b, of_a, of_b)
    if a.dtype == tl.float64:
        total = a * power_beside_one(of_a - most) + b * power_beside_one(of_b - most)
    else:
        total = a * _power_beside_one(of_a - most) + b * _power_beside_one(of_b - most)
    return total, most


@triton.jit
def _or_zero(value, exponent):
    """0 where no number brings it back into range."""
    least = -2100.0 if value.dtype == tl.float64 else -280.0
    return tl.where(exponent < least, 0.0, value)


@triton.jit
def _any_share(element):
    near = _share(element)
    value, exponent = _apart(near)
    more, exponent_of_more = _apart(element.pos_weight - 1.0)
    target, exponent_of_target = _apart(element.target)
    fits = _finite(near)
    exponent = tl.where(fits, exponent, exponent_of_more + exponent_of_target)
    return tl.where(fits, value, more * target), exponent


@triton.jit
def _any_straight(element):
    share, exponent_of_share = _apart(element.pos_weight)
    target, exponent_of_target = _apart(element.target)
    other, exponent_of_other = _apart(1.0 - element.target)
    below = element.x < 0.0
    exponent = tl.where(below, exponent_of_share + exponent_of_target, exponent_of_other)
    return tl.where(below, _minus(share * target), other), exponent


@triton.jit
def _any_logarithm(element):
    far = _minus(tl.abs(element.x))
    small, exponent_of_small = _scaled(far, "exp")
    value, exponent = _apart(_log_of_one_and(_exp(far)))
    is_small = far < (-40.0 if far.dtype == tl.float64 else -18.0)
    small = _or_zero(small, exponent_of_small)
    return tl.where(is_small, small, value), tl.where(is_small, exponent_of_small, exponent)


@triton.jit
def _any_cross_entropy(element):
    straight, exponent = _any_straight(element)
    x, exponent_of_x = _apart(element.x)
    share, exponent_of_share = _any_share(element)
    bent, exponent_of_bent = _any_logarithm(element)
    return _sum(
        straight * x, exponent + exponent_of_x, share * bent, exponent_of_share + exponent_of_bent
    )


@triton.jit
def _any_slope_of_cross_entropy(element):
    straight, exponent = _any_straight(element)
    small, exponent_of_small = _scaled(_minus(tl.abs(element.x)), "sigmoid")
    share, exponent_of_share = _any_share(element)
    part = share * _or_zero(small, exponent_of_small)
    part = tl.where(element.x < 0.0, part, _minus(part))
    return _sum(straight, exponent, part, exponent_of_share + exponent_of_small)


@triton.jit
def _any_distance(element):
    """x - target, and half of it."""
    return element.x - element.target, element.x * 0.5 - element.target * 0.5


@triton.jit
def _any_loss(element, beta, FUNCTION: tl.constexpr):
    difference, half_apart = _any_distance(element)
    distance = tl.abs(difference)
    near = distance < beta
    quarter = tl.zeros_like(beta) + 0.25
    if FUNCTION == "mse":
        value, exponent = _whole(difference, half_apart)
        value, exponent = value * value, exponent + exponent
    elif FUNCTION == "l1":
        value, exponent = _whole(difference, half_apart)
        value = tl.abs(value)
    elif FUNCTION == "smooth_l1" or FUNCTION == "huber":
        less = tl.fma(0.0 - beta, quarter + quarter, distance)
        less, of_less = _whole(less, tl.fma(0.0 - beta, quarter, tl.abs(half_apart)))
        way, of_way = _apart(distance)
        if FUNCTION == "smooth_l1":
            value, exponent = _quotient(distance, beta)
            value, exponent = tl.where(near, value * way, less), exponent - 1.0 + of_way
            exponent = tl.where(near, exponent, of_less)
        else:
            bend, of_bend = _apart(beta)
            value = tl.where(near, way, bend) * tl.where(near, way, less)
            exponent = tl.where(near, of_way - 1.0, of_bend) + tl.where(near, of_way, of_less)
    else:
        tl.static_assert(FUNCTION == "bce_with_logits")
        value, exponent = _any_cross_entropy(element)
    weight, of_weight = _apart(element.weight)
    return _together(weight * value, of_weight + exponent)


@triton.jit
def _any_gradient(element, grad_loss, beta, FUNCTION: tl.constexpr):
    difference, half_apart = _any_distance(element)
    near = tl.abs(difference) < beta
    if FUNCTION == "mse":
        slope, exponent = _whole(difference, half_apart)
        exponent = exponent + 1.0
    elif FUNCTION == "l1":
        slope, exponent = _apart(_sign(difference))
    elif FUNCTION == "smooth_l1":
        slope, exponent = _quotient(difference, beta)
        sign, of_sign = _apart(_sign(difference))
        slope, exponent = tl.where(near, slope, sign), tl.where(near, exponent, of_sign)
    elif FUNCTION == "huber":
        slope, exponent = _apart(tl.where(near, difference, beta * _sign(difference)))
    else:
        tl.static_assert(FUNCTION == "bce_with_logits")
        slope, exponent = _any_slope_of_cross_entropy(element)
    weight, of_weight = _apart(element.weight)
    grad, of_grad = _apart(grad_loss)
    return _together(weight * grad * slope, of_weight + of_grad + exponent)


@triton.jit
def _some_not_finite(x):
    return tl.max((_finite(x) == 0).to(tl.int32)) > 0


@triton.jit
def _loss(element, beta, FUNCTION: tl.constexpr):
    result = _plain_loss(element, beta, FUNCTION)
    if _some_not_finite(result):
        result = tl.where(_finite(result), result, _any_loss(element, beta, FUNCTION))
    return result


@triton.jit
def _gradient(element, grad_loss, beta, FUNCTION: tl.constexpr):
    result = _plain_gradient(element, grad_loss, beta, FUNCTION)
    if _some_not_finite(result):
        other = _any_gradient(element, grad_loss, beta, FUNCTION)
        result = tl.where(_finite(result), result, other)
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


def _variant(name, lane_bytes):
    """A lane has as many elements as fill so many bytes, or one."""
    return Variant(
        name=name,
        kinds=("fwd", "bwd"),
        takes=frozenset({*Arrays._fields[:-1], "loss", "grad_x", "function", "beta"}),
        make=partial(_make, lane_bytes),
        knobs={"warps": (1, 2, 4, 8)},
        choose=lambda case: {"warps": 4},
        fits=fitting("pointwise_loss"),
    )


VARIANTS = by_name(_variant("vec16", 16), _variant("naive", 0))
