# SPDX-License-Identifier: Apache-2.0
"""Steps of optimisers in Triton: what they share beside their rules, which are jitted functions.

A rule gets the numbers of the call, a parameter, its gradient and three states, and returns all but
the first two and the gradient anew. States that there are not, are zeros.
"""

import math
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
import triton
import triton.language as tl

from isobit.ops.triton_fitting import check
from isobit.ops.triton_variants import (
    Launch,
    Variant,
    _fused_double,
    by_name,
    parts,
    store,
    widened,
)


class Arrays(NamedTuple):
    """Of a call; None for what there is not."""

    param: Any
    grad: Any
    state_0: Any
    state_1: Any
    state_2: Any
    new_param: Any
    narrow: Any
    new_state_0: Any
    new_state_1: Any
    new_state_2: Any

    @classmethod
    def of(cls, given, states):
        """Of arrays by name; states: names of what is read and written."""
        found = {name: given.get(name) for name in cls._fields}
        for i, (state, new_state) in enumerate(states):
            found |= {f"state_{i}": given.get(state), f"new_state_{i}": given.get(new_state)}
        return cls(**found)


@triton.jit
def _state(pointer, at, inside, like):
    value = like * 0.0
    if pointer is not None:
        value = widened(pointer, at, inside)
    return value


@triton.jit
def _put(pointer, at, value, inside):
    if pointer is not None:
        store(pointer, at, value, inside)


@triton.jit
def _elements(rule: tl.constexpr, numbers, arrays, at, inside):
    value = widened(arrays.param, at, inside)
    a = _state(arrays.state_0, at, inside, value)
    b = _state(arrays.state_1, at, inside, value)
    c = _state(arrays.state_2, at, inside, value)
    value, a, b, c = rule(numbers, value, widened(arrays.grad, at, inside), a, b, c)
    store(arrays.new_param, at, value, inside)
    _put(arrays.narrow, at, value, inside)
    _put(arrays.new_state_0, at, a, inside)
    _put(arrays.new_state_1, at, b, inside)
    _put(arrays.new_state_2, at, c, inside)


@triton.jit
def _step(rule: tl.constexpr, numbers, arrays, count, BLOCK: tl.constexpr):
    first = tl.program_id(0).to(tl.int64) * BLOCK
    at = first + tl.arange(0, BLOCK)
    if first + BLOCK <= count:  # a mask that is not constant would keep vectors away
        _elements(rule, numbers, arrays, at, tl.full([BLOCK], True, tl.int1))
    else:
        _elements(rule, numbers, arrays, at, at < count)


def rounded(value):
    """To the type that is computed in."""
    return float(np.float32(value))


def complement_of_power(beta, step):
    """1 - beta^step, by the operations of optimizers/constants.h."""
    square, found = 1 - beta, 0.0
    while True:
        if step & 1:
            found = _fused_double(square, 1 - found, found)
        step >>= 1
        if step == 0:
            return found
        square = _fused_double(-square, square, 2 * square)


class Options:
    """Of one call, each checked as the library does."""

    def __init__(self, op, given):
        self.op, self.given = op, given

    def finite(self, name, value):
        if not math.isfinite(value):
            raise ValueError(f"{self.op}: {name} is {value}; must be finite")
        if abs(value) > torch.finfo(torch.float32).max:
            raise ValueError(f"{self.op}: {name} is {value}; must be within the range of float")
        return value

    def number(self, name, default):
        return self.finite(name, float(self.given.get(name, default)))

    def at_least_zero(self, name, default):
        value = self.number(name, default)
        if value < 0:
            raise ValueError(f"{self.op}: {name} is {value}; must be at least 0")
        return value

    def below_one(self, name, default):
        value = float(self.given.get(name, default))
        if not 0 <= value < 1:
            raise ValueError(f"{self.op}: {name} is {value}; must be at least 0 and below 1")
        return value

    def yes(self, name):
        value = self.given.get(name, "no")
        if value not in ("no", "yes"):
            raise ValueError(f"{self.op}: {name} is {value!r}; allowed: no, yes")
        return value == "yes"

    def sign(self):
        return -1.0 if self.yes("maximize") else 1.0


def _check(op, states, arrays):
    param, grad = arrays["param"], arrays["grad"]
    narrow = (torch.float16, torch.bfloat16)
    allowed = {"grad": (param.dtype, *(narrow if param.dtype == torch.float32 else ()))}
    allowed |= dict.fromkeys(("new_param", *sum(states, ())), (param.dtype,))
    allowed |= {"narrow": (grad.dtype,)}
    for name, dtypes in allowed.items():
        if name in arrays and arrays[name].dtype not in dtypes:
            raise ValueError(
                f"{op}: {name} is {arrays[name].dtype}; must be {' or '.join(map(str, dtypes))}"
            )


def _make(op, rule, states, numbers_of, lane_bytes, plan, **given):
    arrays = {name: each for name, each in given.items() if isinstance(each, torch.Tensor)}
    options = {name: each for name, each in given.items() if name not in arrays}
    _check(op, states, arrays)
    count, warps = arrays["param"].numel(), plan["warps"]
    block = 32 * warps * (lane_bytes // arrays["param"].itemsize if lane_bytes else 1)
    numbers = numbers_of(Options(op, options), arrays)
    arguments = {"rule": rule, "numbers": numbers, "arrays": Arrays.of(arrays, states)}
    arguments |= {"count": count, "BLOCK": block}
    yield Launch(_step, (parts(count, block),), arguments, warps)


def _declines(case):
    return "it computes in float, not in f64" if "f64" in case.dtypes.values() else ""


def _fits(op, conditional, shapes):
    """conditional: what some options do without, of which numbers_of knows."""
    absent = dict.fromkeys(conditional, shapes["param"]) if "param" in shapes else {}
    check(op, absent | dict(shapes))


def variants(op, rule, states, numbers_of, options, conditional=()):
    """Of an optimiser. states: names of what is read and written. numbers_of(options, arrays): the
    tuple that the rule gets."""
    takes = {"param", "grad", "new_param", "narrow", *sum(states, ()), *options}

    def variant(name, lane_bytes):
        return Variant(
            name=name,
            kinds=("fwd",),
            takes=frozenset(takes),
            make=partial(_make, op, rule, states, numbers_of, lane_bytes),
            knobs={"warps": (1, 2, 4, 8)},
            choose=lambda case: {"warps": 4},
            declines=_declines,
            fits=partial(_fits, op, conditional),
        )

    return by_name(variant("vec16", 16), variant("naive", None))
