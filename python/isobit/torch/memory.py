# SPDX-License-Identifier: Apache-2.0
"""The pool that large results of CPU tensors come from."""

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
    if limit < 0:
        raise ValueError(f"set_cache_limit: limit is {limit}; 0 or more bytes are needed")
    torch.ops.isobit._set_pool_limit(limit)


def cache_limit() -> int:
    return torch.ops.isobit._pool_limit()


def cache_use() -> PoolUse:
    """Bytes of the pool in living tensors, and waiting."""
    return PoolUse(*torch.ops.isobit._pool_use())
