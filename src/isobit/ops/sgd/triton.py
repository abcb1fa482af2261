# SPDX-License-Identifier: Apache-2.0
"""A step of SGD in Triton, with the bits of all other variants, but not of doubles. No GPU has run
it yet: Triton's interpreter has.

    VARIANTS["vec16"].run(param=p, grad=g, new_param=p, lr=0.1)
"""

from typing import Any, NamedTuple

import triton
import triton.language as tl

from isobit.ops.activation.triton_functions import _minus_product
from isobit.ops.triton_steps import rounded, variants


class Numbers(NamedTuple):
    """Of a call; None for what it has no part in."""

    lr: Any
    sign: Any
    coupled: Any
    momentum: Any
    rest: Any  # None at the first step, which makes the buffer
    ahead: Any


@triton.jit
def _rule(c, param, grad, buffer, _b, _c):
    g = grad * c.sign
    if c.coupled is not None:
        g = tl.fma(param, c.coupled, g)
    if c.momentum is not None:
        buffer = g if c.rest is None else tl.fma(g, c.rest, buffer * c.momentum)
        g = buffer if c.ahead is None else tl.fma(buffer, c.ahead, g)
    return _minus_product(g, c.lr, param), buffer, _b, _c


def _numbers(options, arrays):
    lr, momentum = options.at_least_zero("lr", 1e-3), options.at_least_zero("momentum", 0)
    rest = 1 - options.number("dampening", 0)
    decay, ahead = options.at_least_zero("weight_decay", 0), options.yes("nesterov")
    has, made = "momentum_buffer" in arrays, "new_momentum_buffer" in arrays
    for name, there in (("momentum_buffer", has), ("new_momentum_buffer", made)):
        if there and not momentum:
            raise ValueError(f"sgd: {name} is given, but there is no momentum")
    if momentum and not made:
        raise ValueError("sgd: new_momentum_buffer is missing")
    factor = rounded(momentum) if momentum else None
    return Numbers(
        rounded(lr),
        options.sign(),
        rounded(decay) if decay else None,
        factor,
        rounded(rest) if has else None,
        factor if ahead else None,
    )


VARIANTS = variants(
    "sgd",
    _rule,
    (("momentum_buffer", "new_momentum_buffer"),),
    _numbers,
    ("lr", "momentum", "dampening", "weight_decay", "nesterov", "maximize"),
    conditional=("new_momentum_buffer",),
)
