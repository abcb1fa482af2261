# SPDX-License-Identifier: Apache-2.0
"""A step of Lion in Triton, with the bits of all other variants, but not of doubles. No GPU has run
it yet: Triton's interpreter has.

    VARIANTS["vec16"].run(param=p, grad=g, exp_avg=m, new_param=p, new_exp_avg=m, lr=1e-4)
"""

from typing import Any, NamedTuple

import triton
import triton.language as tl

from isobit.ops.triton_steps import rounded, variants


class Numbers(NamedTuple):
    """Of a call; decay is None where there is none."""

    lr: Any
    beta1: Any
    rest1: Any
    beta2: Any
    rest2: Any
    sign: Any
    decay: Any


@triton.jit
def _rule(c, param, grad, average, _b, _c):
    g = grad * c.sign
    if c.decay is not None:
        param = param * c.decay
    way = tl.fma(g, c.rest1, average * c.beta1)
    # 0 and NaN stay themselves.
    back = (tl.zeros_like(way) + c.lr) * -1.0  # -0 where lr is 0
    by = tl.where(way > 0.0, c.lr, tl.where(way < 0.0, back, way))
    return param - by, tl.fma(g, c.rest2, average * c.beta2), _b, _c


def _numbers(options, arrays):
    lr = options.at_least_zero("lr", 1e-4)
    beta1, beta2 = options.below_one("beta1", 0.9), options.below_one("beta2", 0.99)
    weight_decay = options.at_least_zero("weight_decay", 0)
    decay = options.finite("1 - lr weight_decay", 1 - lr * weight_decay)
    return Numbers(
        rounded(lr),
        rounded(beta1),
        rounded(1 - beta1),
        rounded(beta2),
        rounded(1 - beta2),
        options.sign(),
        rounded(decay) if weight_decay else None,
    )


VARIANTS = variants(
    "lion",
    _rule,
    (("exp_avg", "new_exp_avg"),),
    _numbers,
    ("lr", "beta1", "beta2", "weight_decay", "maximize"),
)
