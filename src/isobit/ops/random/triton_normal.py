# SPDX-License-Identifier: Apache-2.0
"""The number that a normal one exceeds with some probability, in Triton: the operations of
formula_normal.h, in double."""

import triton
import triton.language as tl

from isobit.ops.activation.triton_doubles import log


@triton.jit
def _all(number: tl.constexpr):
    return tl.full([], number, tl.float64)


@triton.jit
def _polynomial(
    x,
    c0: tl.constexpr,
    c1: tl.constexpr,
    c2: tl.constexpr,
    c3: tl.constexpr,
    c4: tl.constexpr,
    c5: tl.constexpr,
    c6: tl.constexpr,
    c7: tl.constexpr,
):
    """By Horner's rule."""
    value = tl.fma(tl.zeros_like(x) + _all(c7), x, _all(c6))
    value = tl.fma(tl.fma(value, x, _all(c5)), x, _all(c4))
    value = tl.fma(tl.fma(value, x, _all(c3)), x, _all(c2))
    return tl.fma(tl.fma(value, x, _all(c1)), x, _all(c0))


# Wichura's rational functions, of which each has two polynomials.


@triton.jit
def _of_center(x):
    above = _polynomial(
        x,
        3.3871328727963666080e0,
        1.3314166789178437745e2,
        1.9715909503065514427e3,
        1.3731693765509461125e4,
        4.5921953931549871457e4,
        6.7265770927008700853e4,
        3.3430575583588128105e4,
        2.5090809287301226727e3,
    )
    below = _polynomial(
        x,
        1.0,
        4.2313330701600911252e1,
        6.8718700749205790830e2,
        5.3941960214247511077e3,
        2.1213794301586595867e4,
        3.9307895800092710610e4,
        2.8729085735721942674e4,
        5.2264952788528545610e3,
    )
    return above, below


@triton.jit
def _of_tail(x):
    above = _polynomial(
        x,
        1.42343711074968357734e0,
        4.63033784615654529590e0,
        5.76949722146069140550e0,
        3.64784832476320460504e0,
        1.27045825245236838258e0,
        2.41780725177450611770e-1,
        2.27238449892691845833e-2,
        7.74545014278341407640e-4,
    )
    below = _polynomial(
        x,
        1.0,
        2.05319162663775882187e0,
        1.67638483018380384940e0,
        6.89767334985100004550e-1,
        1.48103976427480074590e-1,
        1.51986665636164571966e-2,
        5.47593808499534494600e-4,
        1.05075007164441684324e-9,
    )
    return above, below


@triton.jit
def _of_end(x):
    above = _polynomial(
        x,
        6.65790464350110377720e0,
        5.46378491116411436990e0,
        1.78482653991729133580e0,
        2.96560571828504891230e-1,
        2.65321895265761230930e-2,
        1.24266094738807843860e-3,
        2.71155556874348757815e-5,
        2.01033439929228813265e-7,
    )
    below = _polynomial(
        x,
        1.0,
        5.99832206555887937690e-1,
        1.36929880922735805310e-1,
        1.48753612908506148525e-2,
        7.86869131145613259100e-4,
        1.84631831751005468180e-5,
        1.42151175831644588870e-7,
        2.04426310338993978564e-15,
    )
    return above, below


@triton.jit
def number_exceeded(p):
    """x >= 0 of a probability p, 2^-1000 <= p <= 1/2."""
    q = 0.5 - p
    above, below = _of_center(tl.fma(q * -1.0, q, _all(0.180625)))
    above = q * above
    distance = tl.sqrt(log(p) * -1.0)
    above_tail, below_tail = _of_tail(distance - _all(1.6))
    above_end, below_end = _of_end(distance - 5.0)
    outside, beyond = q > _all(0.425), distance > 5.0
    above = tl.where(outside, tl.where(beyond, above_end, above_tail), above)
    below = tl.where(outside, tl.where(beyond, below_end, below_tail), below)
    return above / below
