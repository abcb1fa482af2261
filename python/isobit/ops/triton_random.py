# SPDX-License-Identifier: Apache-2.0
"""Philox's words in Triton, as norms/philox.h has them: Triton's own generator is the same, and
here are its words in the order of the elements that they belong to."""

import triton
import triton.language as tl


@triton.jit
def words(seed, group, third, fourth):
    """Four words for each of some counters of 128 bits, one after the other: `group` is the lower
    half, `third` and `fourth` are scalars of the upper one."""
    low, high = group.to(tl.uint32), (group >> 32).to(tl.uint32)
    zero = tl.zeros_like(low)
    c0, c1, c2, c3 = tl.philox(
        seed, low, high, zero + tl.cast(third, tl.uint32), zero + tl.cast(fourth, tl.uint32)
    )
    return tl.interleave(tl.interleave(c0, c2), tl.interleave(c1, c3))
