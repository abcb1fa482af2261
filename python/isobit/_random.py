# SPDX-License-Identifier: Apache-2.0
"""isobit.numpy.random: arrays whose elements depend on a seed and on their places alone.

    x = isobit.numpy.random.normal((3, 4), seed=7)

Element i in C order is number offset + i of the sequence that the seed names, so that a large array
can be made in pieces. Seeds and offsets are integers of 64 bits. The bits are those of
isobit.torch.init with Generator(seed, offset), on every machine.
"""

import math
from collections.abc import Iterable

import numpy as np

from isobit import _arguments, _arrays, c_abi
from isobit._calls import FLOATS, context
from isobit._library import remedy

__all__ = ["bernoulli", "normal", "truncated_normal", "uniform"]


def uniform(size, low=0.0, high=1.0, *, seed, offset=0, dtype="float32"):
    """Numbers from low to high, without high itself where that is not low."""
    return _filled("uniform", size, seed, offset, dtype, low=low, high=high)


def normal(size, mean=0.0, std=1.0, *, seed, offset=0, dtype="float32"):
    """Numbers of the normal distribution, to 6.3 standard deviations, in float64 to 9.1."""
    return _filled("normal", size, seed, offset, dtype, mean=mean, std=std)


def truncated_normal(
    size, mean=0.0, std=1.0, low=-2.0, high=2.0, *, seed, offset=0, dtype="float32"
):
    """The same between low and high: as if numbers outside had been drawn again."""
    numbers = {"mean": mean, "std": std, "low": low, "high": high}
    return _filled("truncated_normal", size, seed, offset, dtype, **numbers)


def bernoulli(size, p=0.5, *, seed, offset=0, dtype="float32"):
    """1 with probability p, otherwise 0."""
    return _filled("bernoulli", size, seed, offset, dtype, p=p)


def _filled(distribution, size, seed, offset, dtype, **numbers):
    function = f"random.{distribution}"
    given = (size,) if hasattr(size, "__index__") and not np.ndim(size) else size
    if not isinstance(given, Iterable):
        said = _arguments.shown(size)
        raise TypeError(f"{function}: size is {said}; must be an integer or several")
    shape = tuple(_arguments.integer(function, "size", n, 0, 2**62, "0 to 2^62") for n in given)
    name = _arrays.dtype_name(dtype)
    if name not in FLOATS:
        raise TypeError(f"{function}: dtype is {name}; {_arrays.needed(FLOATS, None)}")
    if name == "bfloat16":
        try:
            import ml_dtypes  # noqa: F401
        except ImportError as error:
            words = f"{function}: results of bfloat16 need ml_dtypes; {remedy('ml_dtypes')}"
            raise ImportError(words) from error
    y = _arrays.empty(function, shape, name)
    whole = {"seed": seed, "offset": offset}
    for label, value in whole.items():
        value = _arguments.integer(function, label, value, -(2**63), 2**64 - 1, "-2^63 to 2^64 - 1")
        whole[label] = value % 2**64
    numbers = _arguments.reals(function, **numbers)
    if distribution == "uniform" and numbers["low"] == numbers["high"]:
        distribution, numbers = "normal", {"mean": numbers["low"] + 0.0, "std": 0.0}
    row = y.reshape(1, math.prod(shape))
    whole = {f"random_{label}": value for label, value in whole.items()}
    c_abi.call(
        *("random", "fwd", context()),
        **{"y": _arrays.rows_of(row, 1), "distribution": distribution},
        **numbers,
        **whole,
    )
    return _arrays.to_numpy(y)
