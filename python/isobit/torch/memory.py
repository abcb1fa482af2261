# SPDX-License-Identifier: Apache-2.0
"""The pool that large results of CPU tensors come from."""

from numbers import Integral
from typing import NamedTuple

import torch


class PoolUse(NamedTuple):
    lent: int
    waiting: int


def empty_cache() -> None:
    """Returns the memory that waits for the next large result to the system."""
    torch.ops.isobit._empty_pool()


def set_cache_limit(limit: int) -> None:
    """At most so many bytes wait for the next large results. 0 turns the pool off: results then
    come from PyTorch's allocator, as small ones always do. By default an eighth of the memory."""
    if not isinstance(limit, Integral):
        kind = type(limit).__name__
        raise TypeError(f"set_cache_limit: limit must be an integer; it is {kind}")
    if limit < 0:
        raise ValueError(f"set_cache_limit: limit is {limit}; must be at least 0")
    torch.ops.isobit._set_pool_limit(min(int(limit), (1 << 63) - 1))


def cache_limit() -> int:
    return torch.ops.isobit._pool_limit()


def cache_use() -> PoolUse:
    """Bytes of the pool in living tensors, and waiting."""
    return PoolUse(*torch.ops.isobit._pool_use())
