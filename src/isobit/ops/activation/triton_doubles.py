# SPDX-License-Identifier: Apache-2.0
"""exp, log and sigmoid of src/isobit/functions for doubles, in Triton, and what they are made of:
the same operations in the same order, so that they have the same bits.

Numbers that are no floats stand in `_all`, since Triton makes a float of a number that is written
beside a tensor.
"""

import triton
import triton.language as tl

_SIGN, _FRACTION = tl.constexpr(2**63), tl.constexpr(2**52 - 1)
_QUARTER = tl.constexpr(0x3FD0000000000000)
_INTEGER = tl.constexpr(0x4330000000000000)  # the bits of 2^52
_BIASED = tl.constexpr(1.5 * 2.0**52 + 1023)
_INFINITY, _NAN = tl.constexpr(float("inf")), tl.constexpr(float("nan"))
_ONE, _ROOT_HALF = tl.constexpr(0x3FF0000000000000), tl.constexpr(0x3FE6A09E667F3BCD)
_ROUNDER = tl.constexpr(1.5 * 2.0**52)


def _hex(text):
    return tl.constexpr(float.fromhex(text))


_LN2, _LN2_REST = _hex("0x1.62e42fefa39efp-1"), _hex("0x1.abc9e3b39803fp-56")
_LOG2_E = _hex("0x1.71547652b82fep0")
# Coefficients of exp and log.
_E0, _E1, _E2 = _hex("0x1p-1"), _hex("0x1.5555555555559p-3"), _hex("0x1.5555555555559p-5")
_E3, _E4 = _hex("0x1.111111110f5a4p-7"), _hex("0x1.6c16c16c147c4p-10")
_E5, _E6 = _hex("0x1.a01a01b07b46cp-13"), _hex("0x1.a01a01b053799p-16")
_E7, _E8 = _hex("0x1.71ddf67fa9f6ap-19"), _hex("0x1.27e4c5abebe33p-22")
_E9, _E10 = _hex("0x1.af627278abc9bp-26"), _hex("0x1.1f9611019bc4cp-29")
_L0, _L1 = _hex("0x1.5555555555593p-1"), _hex("0x1.999999997fa54p-2")
_L2, _L3 = _hex("0x1.24924942212dap-2"), _hex("0x1.c71c51e1c298bp-3")
_L4, _L5 = _hex("0x1.746647373df84p-3"), _hex("0x1.39a0de9aa93dp-3")
_L6 = _hex("0x1.2f0e4d9fbade8p-3")


@triton.jit
def _all(number: tl.constexpr):
    return tl.full([], number, tl.float64)


@triton.jit
def _next(value, x, coefficient: tl.constexpr):
    """A step of Horner's rule."""
    return tl.fma(value, x, _all(coefficient))


@triton.jit
def _bits(x):
    return x.to(tl.uint64, bitcast=True)


@triton.jit
def _real(bits):
    return bits.to(tl.uint64).to(tl.float64, bitcast=True)


@triton.jit
def negative(x):
    return _real(_bits(x) ^ _SIGN)


@triton.jit
def _power_of_biased(biased):
    return _real(_bits(biased) << 52)


@triton.jit
def _power(n):
    return _power_of_biased(n + _all(_BIASED))


@triton.jit
def power_beside_one(n):
    return _power(tl.where(n < -1000.0, -1000.0, n))


@triton.jit
def number(value, exponent):
    """Rounded to its range once."""
    n = tl.where(exponent > 2000.0, 2000.0, exponent)
    n = tl.where(n < -2000.0, -2000.0, n)
    biased = tl.fma(n, tl.zeros_like(n) + 0.5, tl.zeros_like(n) + _all(_BIASED))
    half = biased - _all(_BIASED)
    return value * _power_of_biased(biased) * _power(n - half)


@triton.jit
def split(x):
    """A number of magnitude 1/4 to 1/2 and its exponent; 0, infinity and NaN as they are."""
    size = tl.abs(x)
    subnormal = size < _all(2.0**-1022)
    normal = tl.where(subnormal, x * 2.0**53, x)
    offset = tl.where(subnormal, _all(2.0**52 + 1074), _all(2.0**52 + 1021))
    exponent = _real((_bits(tl.abs(normal)) >> 52) + _INTEGER) - offset
    value = _real((_bits(normal) & (_SIGN | _FRACTION)) + _QUARTER)
    ordinary = (size > 0.0) & (size < _INFINITY)
    return tl.where(ordinary, value, x), tl.where(ordinary, exponent, 0.0)


@triton.jit
def _exponential(x, low):
    """e^(x + low) = 2^exponent (1 + head + rest)."""
    n = tl.fma(x, _all(_LOG2_E), _all(_ROUNDER)) - _all(_ROUNDER)
    coarse = tl.fma(negative(n), _all(_LN2), x)
    shift = tl.fma(negative(n), _all(_LN2_REST), low)
    r = coarse + shift
    value = _next(_next(tl.zeros_like(r) + _all(_E10), r, _E9), r, _E8)
    value = _next(_next(_next(value, r, _E7), r, _E6), r, _E5)
    value = _next(_next(_next(value, r, _E4), r, _E3), r, _E2)
    value = _next(_next(value, r, _E1), r, _E0)
    return r, tl.fma(r * r, value, coarse - r + shift), n


@triton.jit
def scaled_exp(x):
    x = tl.where(x > 1470.0, 1470.0, x)
    x = tl.where(x < -1470.0, -1470.0, x)
    head, rest, exponent = _exponential(x, tl.zeros_like(x))
    return 1.0 + (head + rest), exponent


@triton.jit
def exp(x):
    value, exponent = scaled_exp(tl.where(x > 710.0, 710.0, x))
    return number(value, exponent)


@triton.jit
def log(x):
    subnormal = x < _all(2.0**-1022)
    normal = tl.where(subnormal, x * 2.0**53, x)
    offset = tl.where(subnormal, _all(2.0**52 + 1076), _all(2.0**52 + 1023))
    shifted = _bits(normal) + (_ONE - _ROOT_HALF)
    exponent = _real((shifted >> 52) + _INTEGER) - offset
    f = _real((shifted & _FRACTION) + _ROOT_HALF) - 1.0
    s = f / (f + 2.0)
    z = s * s
    value = _next(_next(tl.zeros_like(z) + _all(_L6), z, _L5), z, _L4)
    value = _next(_next(_next(_next(value, z, _L3), z, _L2), z, _L1), z, _L0)
    square = f * 0.5 * f
    rest = tl.fma(exponent, _all(_LN2_REST), s * tl.fma(z, value, square))
    result = tl.fma(exponent, _all(_LN2), f - (square - rest))
    other = tl.where(x < 0.0, _NAN, x - _INFINITY)  # -inf, NaN
    return tl.where(x > 0.0, tl.where(x < _INFINITY, result, x), other)


@triton.jit
def _ordered_sum(a, b):
    """a + b and what it lost, where a is the larger."""
    total = a + b
    return total, a - total + b


@triton.jit
def _quotient(a, a_rest, b, b_rest):
    """Of two sums, nearly as if each were one number: with one division."""
    inverse = 1.0 / b
    head = a * inverse
    left = tl.fma(negative(head), b, a)
    return head, tl.fma(negative(head), b_rest, left + a_rest) * inverse


@triton.jit
def sigmoid(x):
    """A number and the exponent of a power of two."""
    size = tl.abs(x)
    size = tl.where(size > 1470.0, 1470.0, size)
    head, rest, exponent = _exponential(negative(size), tl.zeros_like(size) * -1.0)
    power = power_beside_one(exponent)
    z, z_rest = _ordered_sum(tl.zeros_like(head) + 1.0, head)
    z, z_rest = _ordered_sum(z, z_rest + rest)
    one_and_z, missed = _ordered_sum(tl.zeros_like(head) + 1.0, z * power)
    missed = tl.fma(z_rest, power, missed)
    small, small_rest = _quotient(z, z_rest, one_and_z, missed)
    small = small + small_rest
    below = x < 0.0
    other = tl.fma(negative(small), power, tl.zeros_like(small) + 1.0)
    return tl.where(below, small, other), tl.where(below, exponent, 0.0)
