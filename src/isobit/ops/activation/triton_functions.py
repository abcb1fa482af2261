# SPDX-License-Identifier: Apache-2.0
"""The functions of src/isobit/functions in Triton, of floats: the same operations in the same
order, so that they have the same bits.

What may leave the range of floats before a factor brings it back is a pair: a number, and the whole
exponent of a power of two.
"""

import triton
import triton.language as tl


def _hex(text):
    return tl.constexpr(float.fromhex(text))


_INFINITY, _NAN = tl.constexpr(float("inf")), tl.constexpr(float("nan"))
_SIGN, _FRACTION = tl.constexpr(0x80000000), tl.constexpr(0x7FFFFF)
_ONE, _QUARTER, _ROOT_HALF = (tl.constexpr(n) for n in (0x3F800000, 0x3E800000, 0x3F3504F3))
_INTEGER = tl.constexpr(0x4B000000)  # the bits of 2^23
_LEAST_NORMAL = tl.constexpr(2.0**-126)
_ROUNDER, _BIASED = tl.constexpr(1.5 * 2.0**23), tl.constexpr(1.5 * 2.0**23 + 127)
_LN2, _LN2_REST = _hex("0x1.62e43p-1"), _hex("-0x1.05c61p-29")
_LOG2_E = _hex("0x1.715476p0")
_DENSITY = _hex("0x1.988454p-2")  # 1 / sqrt(2 pi)
_CENTER = tl.constexpr(1.171875)
_SLOPE, _SLOPE_REST = _hex("0x1.988454p0"), _hex("-0x1.857936p-25")
_CUBIC, _CUBIC_REST = _hex("0x1.2444f2p-4"), _hex("0x1.49b16ap-29")
_THREE_CUBIC = _hex("0x1.b6676cp-3")
_LEAST_FACTOR = tl.constexpr(-280.0)  # any number times its power of two is 0

# Coefficients: of exp, log and the normal distribution's tail.
_E0, _E1, _E2 = _hex("0x1p-1"), _hex("0x1.5554aap-3"), _hex("0x1.5554d4p-5")
_E3, _E4 = _hex("0x1.122cc6p-7"), _hex("0x1.6d6524p-10")
_L0, _L1 = _hex("0x1.555554p-1"), _hex("0x1.999c26p-2")
_L2, _L3 = _hex("0x1.23d3dcp-2"), _hex("0x1.f13c26p-3")
_G_FIRST, _G_SECOND = _hex("0x1.be919ap-1"), _hex("-0x1.847c6p-1")
_G0, _G1, _G2 = _hex("0x1.fa3692p-2"), _hex("-0x1.d6c5ap-3"), _hex("0x1.0a8498p-4")
_G3, _G4, _G5 = _hex("-0x1.8a68d2p-9"), _hex("-0x1.591648p-8"), _hex("0x1.3f0cecp-10")
_G6, _G7, _G8 = _hex("0x1.008c36p-11"), _hex("-0x1.4b02dp-13"), _hex("-0x1.ef9028p-15")


@triton.jit
def _bits(x):
    return x.to(tl.uint32, bitcast=True)


@triton.jit
def _real(bits):
    return bits.to(tl.uint32).to(tl.float32, bitcast=True)


@triton.jit
def _magnitude(x):
    return _real(_bits(x) & 0x7FFFFFFF)


@triton.jit
def _negative(x):
    return _real(_bits(x) ^ _SIGN)


@triton.jit
def _minus_product(a, b, c):
    return tl.fma(_negative(a), b, c)


@triton.jit
def _at_most(x, limit):
    return tl.where(x > limit, limit, x)


@triton.jit
def _at_least(x, limit):
    return tl.where(x < limit, limit, x)


@triton.jit
def _power_of_biased(biased):
    return _real(_bits(biased) << 23)


@triton.jit
def _power(n):
    return _power_of_biased(n + _BIASED)


@triton.jit
def _power_beside_one(n):
    return _power(_at_least(n, -100.0))


@triton.jit
def _number(value, exponent):
    """Rounded to its range once."""
    n = _at_least(_at_most(exponent, 250.0), -250.0)
    biased = tl.fma(n, 0.5, _BIASED)
    half = biased - _BIASED
    return value * _power_of_biased(biased) * _power(n - half)


@triton.jit
def _split(x):
    """A number of magnitude 1/4 to 1/2 and its exponent; 0, infinity and NaN as they are."""
    size = _magnitude(x)
    subnormal = size < _LEAST_NORMAL
    normal = tl.where(subnormal, x * 16777216.0, x)
    offset = tl.where(subnormal, 8388757.0, 8388733.0)  # 2^23 + 125, and 24 more
    exponent = _real((_bits(_magnitude(normal)) >> 23) + _INTEGER) - offset
    value = _real((_bits(normal) & (_SIGN | _FRACTION)) + _QUARTER)
    ordinary = (size > 0.0) & (size < _INFINITY)
    return tl.where(ordinary, value, x), tl.where(ordinary, exponent, 0.0)


@triton.jit
def _times(value, exponent, factor):
    """In range wherever the product is."""
    part, whole = _split(factor)
    return _number(value * part, exponent + whole)


@triton.jit
def _exponential(x, low):
    """e^(x + low) = 2^exponent (1 + head + rest)."""
    n = tl.fma(x, _LOG2_E, _ROUNDER) - _ROUNDER
    coarse = tl.fma(_negative(n), _LN2, x)
    r = coarse + tl.fma(_negative(n), _LN2_REST, low)
    series = tl.fma(tl.fma(tl.fma(tl.fma(r, _E4, _E3), r, _E2), r, _E1), r, _E0)
    return r, r * r * series, n


@triton.jit
def _scaled_exp(x):
    x = _at_least(_at_most(x, 200.0), -200.0)
    head, rest, exponent = _exponential(x, 0.0)
    return 1.0 + (head + rest), exponent


@triton.jit
def _log(x):
    subnormal = x < _LEAST_NORMAL
    normal = tl.where(subnormal, x * 16777216.0, x)
    offset = tl.where(subnormal, 8388759.0, 8388735.0)  # 2^23 + 127, and 24 more
    shifted = _bits(normal) + (_ONE - _ROOT_HALF)
    exponent = _real((shifted >> 23) + _INTEGER) - offset
    f = _real((shifted & _FRACTION) + _ROOT_HALF) - 1.0
    s = tl.div_rn(f, f + 2.0)
    z = s * s
    series = tl.fma(tl.fma(tl.fma(z, _L3, _L2), z, _L1), z, _L0)
    square = f * 0.5 * f
    rest = tl.fma(exponent, _LN2_REST, s * tl.fma(z, series, square))
    result = tl.fma(exponent, _LN2, f - (square - rest))
    other = tl.where(x < 0.0, _NAN, x - _INFINITY)  # -inf, NaN
    return tl.where(x > 0.0, tl.where(x < _INFINITY, result, x), other)


@triton.jit
def _decay(head, rest):
    """Of z = e^-v: z 2^-n - 1, n, 2^n as far as it matters beside 1, and 1 + z in two parts."""
    low, high, exponent = _exponential(_negative(head), _negative(rest))
    power = _power_beside_one(exponent)
    less_one = low + high
    z = (1.0 + less_one) * power
    one_and_z = 1.0 + z
    missed = 1.0 - one_and_z + z
    return less_one, exponent, power, one_and_z, missed


@triton.jit
def _inverse(x, missed):
    """1 / (x + missed)."""
    inverse = tl.div_rn(tl.full(x.shape, 1.0, tl.float32), x)
    return _minus_product(inverse * inverse, missed, inverse)


@triton.jit
def _inverse_square(x, missed):
    square = x * x
    rest = tl.fma(x + x, missed, tl.fma(x, x, _negative(square)))
    return _inverse(square, rest)


@triton.jit
def _times_one_and(less_one, x):
    return tl.fma(x, less_one, x)


@triton.jit
def _half_near_zero(x, value, exponent):
    tiny = _magnitude(x) < 2.0**-60
    return tl.where(tiny, x * 2.0**63, value), tl.where(tiny, -64.0, exponent)


@triton.jit
def _gated(x, bounded, head, rest):
    """x sigmoid(v) for v of the sign of x, from the two parts of |v|."""
    less_one, exponent, power, one_and_z, missed = _decay(head, rest)
    small = _times_one_and(less_one, _inverse(one_and_z, missed) * bounded)
    below = x < 0.0
    value = tl.where(below, _negative(small), _minus_product(small, power, x))
    return _half_near_zero(x, value, tl.where(below, exponent, 0.0))


@triton.jit
def _gated_derivative(x, weight, head, rest):
    """The derivative of x sigmoid(v), where `weight` is the magnitude of x v'."""
    less_one, exponent, power, one_and_z, missed = _decay(head, rest)
    slope = one_and_z - weight
    small = _times_one_and(less_one, slope * _inverse_square(one_and_z, missed))
    below = x < 0.0
    value = tl.where(below, small, _minus_product(small, power, 1.0))
    return value, tl.where(below, exponent, 0.0)


@triton.jit
def _sigmoid(x):
    bounded = _at_most(_magnitude(x), 200.0)
    less_one, exponent, power, one_and_z, missed = _decay(bounded, tl.zeros_like(bounded))
    small = _times_one_and(less_one, _inverse(one_and_z, missed))
    below = x < 0.0
    value = tl.where(below, small, _minus_product(small, power, 1.0))
    return value, tl.where(below, exponent, 0.0)


@triton.jit
def _sigmoid_derivative(x):
    bounded = _at_most(_magnitude(x), 200.0)
    less_one, exponent, _, one_and_z, missed = _decay(bounded, tl.zeros_like(bounded))
    return _times_one_and(less_one, _inverse_square(one_and_z, missed)), exponent


@triton.jit
def _silu(x):
    bounded = _at_most(_magnitude(x), 200.0)
    return _gated(x, bounded, bounded, tl.zeros_like(bounded))


@triton.jit
def _silu_derivative(x):
    bounded = _at_most(_magnitude(x), 200.0)
    return _gated_derivative(x, bounded, bounded, tl.zeros_like(bounded))


@triton.jit
def _gelu_tanh_parts(x):
    """|x|, as far as it matters, its square, and v in two parts."""
    a = _at_most(_magnitude(x), 13.75)
    square = a * a
    square_rest = tl.fma(a, a, _negative(square))
    cubic = square * _CUBIC
    cubic_rest = tl.fma(square, _CUBIC, _negative(cubic))
    cubic_rest = tl.fma(square_rest, _CUBIC, tl.fma(square, _CUBIC_REST, cubic_rest))
    total = cubic + _SLOPE
    from_cubic = total - _SLOPE
    missed = (cubic - from_cubic) + (_SLOPE - (total - from_cubic))
    rest = missed + (cubic_rest + _SLOPE_REST)
    head = total * a
    return a, square, head, tl.fma(rest, a, tl.fma(total, a, _negative(head)))


@triton.jit
def _gelu_tanh(x):
    a, _, head, rest = _gelu_tanh_parts(x)
    return _gated(x, a, head, rest)


@triton.jit
def _gelu_tanh_derivative(x):
    a, square, head, rest = _gelu_tanh_parts(x)
    slope = tl.fma(square, _THREE_CUBIC, tl.full(a.shape, _SLOPE, tl.float32))
    return _gated_derivative(x, a * slope, head, rest)


@triton.jit
def _tanh(x):
    a = _at_most(_magnitude(x), 10.0)
    head, rest, exponent = _exponential(a + a, 0.0)
    power = _power(exponent)
    numerator = tl.fma(power, head + rest, power - 1.0)
    result = tl.div_rn(numerator, numerator + 2.0)
    return _real(_bits(result) ^ (_bits(x) & _SIGN))


@triton.jit
def _tanh_derivative(x):
    value, exponent = _sigmoid_derivative(x + x)
    return value * 4.0, exponent


@triton.jit
def _half_erfcx(a):
    d = a + 4.0
    d_rest = a - (d - 4.0)
    t = tl.div_rn(tl.full(d.shape, 1.0, tl.float32), d)
    v = tl.fma(_negative(t), 8.0, _CENTER)
    series = tl.fma(tl.fma(tl.fma(tl.fma(v, _G8, _G7), v, _G6), v, _G5), v, _G4)
    series = tl.fma(tl.fma(tl.fma(tl.fma(series, v, _G3), v, _G2), v, _G1), v, _G0)
    h = tl.fma(v, tl.fma(v, series, _G_SECOND), _G_FIRST)
    head = h * t
    rest = tl.fma(h, t, _negative(head))
    distance = _minus_product(t, d_rest, _minus_product(t, d, 1.0)) * d
    slope = tl.fma(a, head, -_DENSITY)
    return head + _minus_product(slope, distance, rest)


@triton.jit
def _tail(a, factor):
    """e^(-a^2 / 2) times a factor."""
    square = a * a
    rest = tl.fma(a, a, _negative(square))
    low, high, exponent = _exponential(_negative(square * 0.5), _negative(rest * 0.5))
    return _times_one_and(low + high, factor), exponent


@triton.jit
def _gelu(x):
    a = _at_most(_magnitude(x), 19.75)
    small, exponent = _tail(a, _half_erfcx(a) * a)
    below = x < 0.0
    other = _minus_product(small, _power_beside_one(exponent), x)
    value = tl.where(below, _negative(small), other)
    return _half_near_zero(x, value, tl.where(below, exponent, 0.0))


@triton.jit
def _gelu_derivative(x):
    a = _at_most(_magnitude(x), 19.75)
    small, exponent = _tail(a, tl.fma(_negative(a), _DENSITY, _half_erfcx(a)))
    below = x < 0.0
    other = _minus_product(small, _power_beside_one(exponent), 1.0)
    return tl.where(below, small, other), tl.where(below, exponent, 0.0)


@triton.jit
def _scaled(x, FUNCTION: tl.constexpr):
    if FUNCTION == "exp":
        value, exponent = _scaled_exp(x)
    elif FUNCTION == "gelu":
        value, exponent = _gelu(x)
    elif FUNCTION == "gelu_tanh":
        value, exponent = _gelu_tanh(x)
    elif FUNCTION == "silu":
        value, exponent = _silu(x)
    else:
        tl.static_assert(FUNCTION == "sigmoid")
        value, exponent = _sigmoid(x)
    return value, exponent


@triton.jit
def _derivative(x, FUNCTION: tl.constexpr):
    if FUNCTION == "exp":
        value, exponent = _scaled_exp(x)
    elif FUNCTION == "gelu":
        value, exponent = _gelu_derivative(x)
    elif FUNCTION == "gelu_tanh":
        value, exponent = _gelu_tanh_derivative(x)
    elif FUNCTION == "silu":
        value, exponent = _silu_derivative(x)
    elif FUNCTION == "tanh":
        value, exponent = _tanh_derivative(x)
    else:
        tl.static_assert(FUNCTION == "sigmoid")
        value, exponent = _sigmoid_derivative(x)
    return value, exponent


@triton.jit
def _in_domain_of_log(x):
    return tl.where(x < 0.0, _NAN, x)


@triton.jit
def function_of(x, FUNCTION: tl.constexpr):
    """f(x) of floats."""
    if FUNCTION == "log":
        y = _log(x)
    elif FUNCTION == "tanh":
        y = _tanh(x)
    else:
        if FUNCTION == "exp":
            x = _at_most(x, 89.0)
        value, exponent = _scaled(x, FUNCTION)
        y = _number(value, exponent)
    return y


@triton.jit
def gated(x, gate, FUNCTION: tl.constexpr):
    """x f(gate) of floats, in range wherever the product is."""
    if FUNCTION == "log":
        y = _log(gate) * x
    elif FUNCTION == "tanh":
        y = _tanh(gate) * x
    else:
        value, exponent = _scaled(gate, FUNCTION)
        y = _times(value, exponent, x)
    return y


@triton.jit
def gradient(grad, x, FUNCTION: tl.constexpr):
    """grad f'(x) of floats."""
    if FUNCTION == "log":
        result = tl.div_rn(grad, _in_domain_of_log(x))
    else:
        value, exponent = _derivative(x, FUNCTION)
        result = _times(value, exponent, grad)
    return result


@triton.jit
def gate_gradient(grad, x, gate, FUNCTION: tl.constexpr):
    """grad x f'(gate) of floats, with one rounding to its range."""
    of_grad, exponent_of_grad = _split(grad)
    of_x, exponent_of_x = _split(x)
    factor, whole = of_grad * of_x, exponent_of_grad + exponent_of_x
    if FUNCTION == "log":
        value, exponent = _split(_in_domain_of_log(gate))
        result = _number(tl.div_rn(factor, value), whole - exponent)
    else:
        value, exponent = _derivative(gate, FUNCTION)
        value = tl.where(exponent < _LEAST_FACTOR, 0.0, value)  # see formula.h
        result = _number(value * factor, exponent + whole)
    return result
