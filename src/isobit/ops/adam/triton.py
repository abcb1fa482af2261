# SPDX-License-Identifier: Apache-2.0
"""A step of Adam in Triton, with the bits of all other variants, but not of doubles. No GPU has run
it yet: Triton's interpreter has.

    states = {"exp_avg": m, "exp_avg_sq": v, "new_exp_avg": m, "new_exp_avg_sq": v}
    VARIANTS["vec16"].run(param=p, grad=g, new_param=p, **states, step=1, decoupled="yes")
"""

import math
from typing import Any, NamedTuple

import triton
import triton.language as tl

from isobit.ops.activation.triton_functions import _at_least, _at_most, _minus_product
from isobit.ops.triton_steps import complement_of_power, rounded, variants

_MOST = tl.constexpr(3.4028234663852886e38)


class Numbers(NamedTuple):
    """Of a call; None for what it has no part in."""

    beta1: Any
    rest1: Any
    beta2: Any
    rest2: Any
    eps: Any
    sign: Any
    coupled: Any
    decay: Any
    step_size: Any
    root: Any
    largest: Any  # not None: the root is that of the largest square so far


@triton.jit
def _larger(a, b):
    """NaN where either is."""
    number = _at_most(_at_least(a, _MOST * -1.0), _MOST)
    return tl.fma(number, 0.0, tl.where(b < a, a, b))


@triton.jit
def _rule(c, param, grad, average, square, largest):
    g = grad * c.sign
    if c.coupled is not None:
        g = tl.fma(param, c.coupled, g)
    if c.decay is not None:
        param = param * c.decay
    average = tl.fma(g, c.rest1, average * c.beta1)
    square = tl.fma(g * c.rest2, g, square * c.beta2)
    used = square
    if c.largest is not None:
        largest = _larger(largest, square)
        used = largest
    scale = tl.div_rn(tl.sqrt_rn(used), tl.zeros_like(used) + c.root) + c.eps
    param = _minus_product(tl.div_rn(average, scale), c.step_size, param)
    return param, average, square, largest


def _numbers(options, arrays):
    has = "max_exp_avg_sq" in arrays
    if has != ("new_max_exp_avg_sq" in arrays):
        missing = "new_max_exp_avg_sq" if has else "max_exp_avg_sq"
        raise ValueError(f"adam: {missing} is missing")
    lr, eps = options.at_least_zero("lr", 1e-3), options.at_least_zero("eps", 1e-8)
    beta1, beta2 = options.below_one("beta1", 0.9), options.below_one("beta2", 0.999)
    weight_decay, decoupled = options.at_least_zero("weight_decay", 0), options.yes("decoupled")
    step = int(options.number("step", 1))
    if step < 1:
        raise ValueError(f"adam: step is {step}; must be at least 1")
    size = options.finite("lr / (1 - beta1^step)", lr / complement_of_power(beta1, step))
    decay = options.finite("1 - lr weight_decay", 1 - lr * weight_decay)
    return Numbers(
        rounded(beta1),
        rounded(1 - beta1),
        rounded(beta2),
        rounded(1 - beta2),
        rounded(eps),
        options.sign(),
        rounded(weight_decay) if weight_decay and not decoupled else None,
        rounded(decay) if weight_decay and decoupled else None,
        rounded(size),
        rounded(math.sqrt(complement_of_power(beta2, step))),
        1 if has else None,
    )


_OPTIONS = "lr beta1 beta2 eps weight_decay step decoupled maximize"

VARIANTS = variants(
    "adam",
    _rule,
    tuple((name, f"new_{name}") for name in ("exp_avg", "exp_avg_sq", "max_exp_avg_sq")),
    _numbers,
    _OPTIONS.split(),
)
