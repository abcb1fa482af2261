# SPDX-License-Identifier: Apache-2.0
"""random in Triton, with the bits of all other variants: numbers that are uniform, normal, or 0
and 1. No GPU has run it yet: Triton's interpreter has.

    VARIANTS["fours"].run(y=y, distribution="uniform", low=-1, high=1, random_seed=7)
"""

from typing import NamedTuple

import numpy as np
import torch
import triton
import triton.language as tl

from isobit.ops.random.triton_normal import number_exceeded
from isobit.ops.triton_random import words
from isobit.ops.triton_variants import (
    Launch,
    Variant,
    bits_of,
    by_name,
    parts,
    rounded_to_odd,
    scalar,
    store,
)

_ALL_ONES = tl.constexpr(0xFFFFFFFF)
_STREAM = tl.constexpr(0x80000000)  # apart from dropout's masks
_LAST_GROUP = tl.constexpr(2**62 - 1)  # of a sequence, which then begins anew
_DISTRIBUTIONS = ("uniform", "normal", "bernoulli")
_INTEGERS = {2: torch.int16, 4: torch.int32, 8: torch.int64}  # by an element's size


class Numbers(NamedTuple):
    """Of a call, as bits of doubles: the number that a draw of 0 becomes, what a draw of 1 adds,
    the largest result, and below which draws become 1."""

    least: int
    span: int
    most: int
    ones: int


@triton.jit
def _number_of(numbers, word, more, WIDE: tl.constexpr, DISTRIBUTION: tl.constexpr):
    """Of a word, and of doubles another: in double."""
    zero = tl.zeros_like(word).to(tl.float64)
    least, span = zero + scalar(numbers.least, zero), zero + scalar(numbers.span, zero)
    if DISTRIBUTION == "normal":
        upper = word >> 31 != 0
        word = tl.where(upper, word ^ _ALL_ONES, word)
        rest = zero + 2.0**-33
        if WIDE:
            rest = (tl.where(upper, more ^ _ALL_ONES, more).to(tl.float64) + 0.5) * 2.0**-64
        found = number_exceeded(word.to(tl.float64) * 2.0**-32 + rest)
        value = tl.fma(span, tl.where(upper, found, found * -1.0), least)
    elif DISTRIBUTION == "uniform":
        draw = word.to(tl.float64) * 2.0**-32
        if WIDE:
            draw = draw + (more >> 11).to(tl.float64) * 2.0**-53
        value = tl.fma(draw, span, least)
        most = zero + scalar(numbers.most, zero)
        value = tl.where(most < value, most, value)
    else:
        tl.static_assert(DISTRIBUTION == "bernoulli")
        draw = word.to(tl.float64) * 2.0**-32
        value = tl.where(draw < scalar(numbers.ones, zero), zero + 1.0, zero)
    return value


@triton.jit
def _fours(y, count, first, skip, seed, numbers, DISTRIBUTION: tl.constexpr, GROUPS: tl.constexpr):
    """A lane makes the words of a group of four numbers; the first group lacks some."""
    begin = tl.program_id(0).to(tl.int64) * GROUPS
    group = (tl.cast(first, tl.int64) + begin + tl.arange(0, GROUPS)) & _LAST_GROUP
    wide: tl.constexpr = y.dtype.element_ty == tl.float64
    word = words(seed, group, 0, _STREAM)
    more = word
    if wide and DISTRIBUTION != "bernoulli":
        more = words(seed, group, 1, _STREAM)
    value = _number_of(numbers, word, more, wide, DISTRIBUTION)
    if y.dtype.element_ty.primitive_bitwidth == 16:
        value = rounded_to_odd(value)
    elif y.dtype.element_ty == tl.float32:
        value = value.to(tl.float32)
    at = 4 * begin + tl.arange(0, 4 * GROUPS) - skip
    store(y, at, value, (at >= 0) & (at < count))


def _rounded(value, dtype):
    """To the type, once."""
    if dtype == torch.float64:
        return value
    single = np.float32(value)
    if dtype.itemsize == 2 and float(single) != value:  # to odd: see core/odd.h
        bits = single.view(np.uint32) - np.uint32(abs(float(single)) > abs(value))
        single = (bits | np.uint32(1)).view(np.float32)
    return float(torch.tensor(float(single), dtype=torch.float32).to(dtype))


def _previous(value, dtype):
    """The largest number of the type below one of its own."""
    if value == 0:
        value, step = -0.0, 1
    else:
        step = 1 if value < 0 else -1
    bits = torch.tensor(value, dtype=dtype).view(_INTEGERS[dtype.itemsize])
    return float((bits + step).view(dtype))


def _check_range(name, value, dtype):
    largest = torch.finfo(dtype).max
    if not -largest <= value <= largest:
        raise ValueError(f"random: {name} is {value}; must be a number of y's type, {dtype}")


def _check_uniform(low, high, dtype):
    _check_range("low", low, dtype)
    _check_range("high", high, dtype)
    if not low < high:
        raise ValueError(f"random: low is {low} and high {high}; low must be less")
    if low < -(2.0**1022) or high > 2.0**1022:
        raise ValueError(
            f"random: low is {low} and high {high}; their magnitudes must be at most 2^1022"
        )


def _numbers(dtype, distribution, low, high, mean, std, p):
    """What the distribution needs of them, and the kernel has the names of."""
    if distribution == "bernoulli":
        if not 0 <= p <= 1:
            raise ValueError(f"random: p is {p}; allowed: 0 to 1")
        found = {"ones": int(p * 2**32) * 2.0**-32}
    elif distribution == "normal":
        _check_range("mean", mean, dtype)
        _check_range("std", std, dtype)
        if std < 0:
            raise ValueError(f"random: std is {std}; must not be negative")
        found = {"least": mean, "span": std}
    else:
        _check_uniform(low, high, dtype)
        low, high = _rounded(low, dtype), _rounded(high, dtype)
        most = max(_previous(high, dtype), low)  # one number where both are rounded to one
        found = {"least": low, "span": high - low, "most": most}
    given = (found.get(name, 0.0) for name in Numbers._fields)
    return Numbers(*(bits_of(number, torch.float64) for number in given))


def _make(
    plan,
    y,
    distribution="uniform",
    low=0.0,
    high=1.0,
    mean=0.0,
    std=1.0,
    p=0.5,
    random_seed=0,
    random_offset=0,
):
    seed, offset = int(random_seed), int(random_offset)
    for name, value in (("random_seed", seed), ("random_offset", offset)):
        if not 0 <= value < 2**64:
            raise ValueError(f"random: {name} is {value}; allowed: 0 to 2^64 - 1")
    skip, count, warps = offset % 4, y.numel(), plan["warps"]
    groups = parts(count + skip, 4) if count else 0
    a_program = min(32 * warps, triton.next_power_of_2(max(groups, 1)))
    numbers = {"low": low, "high": high, "mean": mean, "std": std, "p": p}
    numbers = {name: float(number) for name, number in numbers.items()}
    arguments = {"y": y, "count": count, "first": offset // 4, "skip": skip, "seed": seed}
    arguments["numbers"] = _numbers(y.dtype, distribution, **numbers)
    arguments |= {"DISTRIBUTION": distribution, "GROUPS": a_program}
    yield Launch(_fours, (parts(groups, a_program),), arguments, warps)


def _declines(case):
    distribution = case.options.get("distribution", "uniform")
    return "" if distribution in _DISTRIBUTIONS else f"it makes no numbers of {distribution}"


_OPTIONS = {"distribution", "low", "high", "mean", "std", "p", "random_seed", "random_offset"}

VARIANTS = by_name(
    Variant(
        name="fours",
        kinds=("fwd",),
        takes=frozenset({"y"} | _OPTIONS),
        make=_make,
        knobs={"warps": (1, 2, 4, 8)},
        choose=lambda case: {"warps": 4},
        declines=_declines,
    ),
)
