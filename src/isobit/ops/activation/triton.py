# SPDX-License-Identifier: Apache-2.0
"""The activations and gates in Triton, with the bits of all other variants: forward, but not of
doubles."""

import triton
import triton.language as tl

from isobit.ops.activation.triton_functions import function_of, gated
from isobit.ops.triton_variants import Launch, Variant, by_name, parts, store, widened


@triton.jit
def _activated(x, gate, at, inside, FUNCTION: tl.constexpr):
    value = widened(x, at, inside)
    if gate is None:
        y = function_of(value, FUNCTION)
    else:
        y = gated(value, widened(gate, at, inside), FUNCTION)
    return y


@triton.jit
def _one_block(x, gate, y, count, FUNCTION: tl.constexpr, BLOCK: tl.constexpr):
    first = tl.program_id(0).to(tl.int64) * BLOCK
    at = first + tl.arange(0, BLOCK)
    if first + BLOCK <= count:  # a mask that is not constant would keep vectors away
        inside = tl.full([BLOCK], True, tl.int1)
        store(y, at, _activated(x, gate, at, inside, FUNCTION), inside)
    else:
        store(y, at, _activated(x, gate, at, at < count, FUNCTION), at < count)


def _launches(lane_bytes):
    """A lane has as many elements as fill so many bytes, or one."""

    def launches(plan, x, y, function, gate=None):
        warps = plan["warps"]
        block = 32 * warps * max(lane_bytes // x.itemsize, 1)
        arguments = {"x": x, "gate": gate, "y": y, "count": x.numel()}
        arguments |= {"FUNCTION": function, "BLOCK": block}
        yield Launch(_one_block, (parts(x.numel(), block),), arguments, warps)

    return launches


def _variant(name, lane_bytes):
    return Variant(
        name=name,
        kinds=("fwd",),
        takes=frozenset({"x", "gate", "y", "function"}),
        make=_launches(lane_bytes),
        knobs={"warps": (1, 2, 4, 8)},
        choose=lambda case: {"warps": 4},
        declines=lambda case: (
            "it computes in float, not in f64" if case.dtypes["x"] == "f64" else ""
        ),
    )


VARIANTS = by_name(_variant("vec16", 16), _variant("naive", 0))
