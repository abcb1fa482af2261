# SPDX-License-Identifier: Apache-2.0
"""Frequencies of rotary embeddings, and their scalings as transformers has them, the same on every
machine: powers and logarithms are decimal ones, rounded once; all else is float64."""

import math
from decimal import Context, Decimal
from functools import lru_cache

from isobit import _arguments

_DIGITS = Context(prec=60)
_PI = Decimal("3.14159265358979323846264338327950288419716939937510582097494")


def _power(base, exponent):
    return _DIGITS.power(Decimal(base), exponent)


def _log(value):
    return float(_DIGITS.ln(Decimal(value)))


def inverse_frequencies(dim, base=10000.0, scaling=None, length=None):
    """(frequencies, factor): base^(-2i / dim) of each pair, each rounded to float64, then scaled;
    and what cosines and sines are multiplied by.

    scaling: transformers' rope_parameters, a dict with "rope_type": "default", "linear", "dynamic"
    (for sequences of `length`), "yarn" or "llama3", and the numbers of that type.
    """
    dim = _arguments.integer("inverse_frequencies", "dim", dim, 0, 2**20, "0 to 2^20")
    if dim % 2:
        raise ValueError(f"inverse_frequencies: dim is {dim}; must be even")
    base = float(base)
    if not 1 <= base <= 2.0**100:
        raise ValueError(f"inverse_frequencies: base is {base:g}; allowed: 1 to 2^100")
    kind = (scaling or {}).get("rope_type", (scaling or {}).get("type", "default"))
    if kind not in _SCALINGS:
        raise ValueError(
            f"inverse_frequencies: rope_type is {kind!r}; known: {', '.join(_SCALINGS)}"
        )
    missing = [name for name in _NEEDS[kind] if (scaling or {}).get(name) is None]
    if missing:
        raise ValueError(f"inverse_frequencies: {kind} scaling lacks {', '.join(missing)}")
    return _SCALINGS[kind](dim, base, scaling, length)


@lru_cache(maxsize=64)
def unscaled(dim, base):
    pairs = dim // 2
    return tuple(
        float(_power(base, _DIGITS.divide(Decimal(-i), Decimal(pairs)))) for i in range(pairs)
    )


def _default(dim, base, _scaling, _length):
    return unscaled(dim, base), 1.0


def _linear(dim, base, scaling, _length):
    return tuple(each / scaling["factor"] for each in unscaled(dim, base)), 1.0


def _dynamic(dim, base, scaling, length):
    most, factor = scaling["max_position_embeddings"], scaling["factor"]
    length = max(length or most, most)
    stretch = (factor * length / most) - (factor - 1)
    exponent = _DIGITS.divide(Decimal(dim), Decimal(dim - 2))
    return unscaled(dim, base * float(_power(stretch, exponent))), 1.0


def _llama3(dim, base, scaling, _length):
    factor, before = scaling["factor"], scaling["original_max_position_embeddings"]
    low, high = scaling["low_freq_factor"], scaling["high_freq_factor"]

    def scaled(frequency):
        turns = before * frequency / (2 * math.pi)  # in what the model was trained on
        if turns > high:
            return frequency
        if turns < low:
            return frequency / factor
        smooth = (turns - low) / (high - low)
        return (1 - smooth) * frequency / factor + smooth * frequency

    return tuple(map(scaled, unscaled(dim, base))), 1.0


def _yarn(dim, base, scaling, _length):
    factor, before = scaling["factor"], scaling["original_max_position_embeddings"]
    fast, slow = scaling.get("beta_fast") or 32, scaling.get("beta_slow") or 1

    def place(turns):  # of the frequency that turns so often
        ratio = _DIGITS.divide(Decimal(before), Decimal(turns) * 2 * _PI)
        return dim * _log(ratio) / (2 * _log(base))

    low, high = place(fast), place(slow)
    if scaling.get("truncate", True):
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, dim - 1)
    if low == high:
        high += 0.001

    def scaled(i, frequency):
        interpolated = min(max((i - low) / (high - low), 0), 1)
        return frequency / factor * interpolated + frequency * (1 - interpolated)

    frequencies = tuple(scaled(i, each) for i, each in enumerate(unscaled(dim, base)))
    return frequencies, _yarn_factor(factor, scaling)


def _yarn_factor(factor, scaling):
    given, scale, all_dims = (
        scaling.get(name) for name in ("attention_factor", "mscale", "mscale_all_dim")
    )

    def magnitude(multiplied):
        return 1.0 if factor <= 1 else 0.1 * multiplied * _log(factor) + 1.0

    if given is not None:
        return float(given)
    return magnitude(scale) / magnitude(all_dims) if scale and all_dims else magnitude(1)


_SCALINGS = {
    "default": _default,
    "linear": _linear,
    "dynamic": _dynamic,
    "yarn": _yarn,
    "llama3": _llama3,
}
_NEEDS = {
    "default": (),
    "linear": ("factor",),
    "dynamic": ("factor", "max_position_embeddings"),
    "yarn": ("factor", "original_max_position_embeddings"),
    "llama3": (
        *("factor", "original_max_position_embeddings"),
        *("low_freq_factor", "high_freq_factor"),
    ),
}
