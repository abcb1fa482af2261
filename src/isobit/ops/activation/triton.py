# SPDX-License-Identifier: Apache-2.0
"""The activations and gates in Triton, with the bits of all other variants, but not of doubles."""

import triton
import triton.language as tl

from isobit.ops.activation.triton_functions import (
    function_of,
    gate_gradient,
    gated,
    gradient,
)
from isobit.ops.triton_variants import Launch, Variant, by_name, fitting, parts, store, widened


@triton.jit
def _results(x, gate, y, at, inside, FUNCTION: tl.constexpr):
    value = widened(x, at, inside)
    if gate is None:
        store(y, at, function_of(value, FUNCTION), inside)
    else:
        store(y, at, gated(value, widened(gate, at, inside), FUNCTION), inside)


@triton.jit
def _gradients(grad_y, x, gate, grad_x, grad_gate, at, inside, FUNCTION: tl.constexpr):
    grad, value = widened(grad_y, at, inside), widened(x, at, inside)
    if gate is None:
        store(grad_x, at, gradient(grad, value, FUNCTION), inside)
    else:
        of_gate = widened(gate, at, inside)
        store(grad_x, at, gated(grad, of_gate, FUNCTION), inside)
        if grad_gate is not None:
            store(grad_gate, at, gate_gradient(grad, value, of_gate, FUNCTION), inside)


# In both kernels, a mask that is not constant would keep vectors away.


@triton.jit
def _forward(x, gate, y, count, FUNCTION: tl.constexpr, BLOCK: tl.constexpr):
    first = tl.program_id(0).to(tl.int64) * BLOCK
    at = first + tl.arange(0, BLOCK)
    if first + BLOCK <= count:
        _results(x, gate, y, at, tl.full([BLOCK], True, tl.int1), FUNCTION)
    else:
        _results(x, gate, y, at, at < count, FUNCTION)


@triton.jit
def _backward(
    grad_y, x, gate, grad_x, grad_gate, count, FUNCTION: tl.constexpr, BLOCK: tl.constexpr
):
    first = tl.program_id(0).to(tl.int64) * BLOCK
    at = first + tl.arange(0, BLOCK)
    if first + BLOCK <= count:
        whole = tl.full([BLOCK], True, tl.int1)
        _gradients(grad_y, x, gate, grad_x, grad_gate, at, whole, FUNCTION)
    else:
        _gradients(grad_y, x, gate, grad_x, grad_gate, at, at < count, FUNCTION)


def _launches(lane_bytes):
    """A lane has as many elements as fill so many bytes, or one."""

    def launches(plan, x, function, gate=None, **others):
        kernel = _forward
        if "grad_y" in others:
            kernel = _backward
            others.setdefault("grad_gate", None)
        warps, count = plan["warps"], x.numel()
        block = 32 * warps * max(lane_bytes // x.itemsize, 1)
        arguments = {"x": x, "gate": gate, **others}
        arguments |= {"count": count, "FUNCTION": function, "BLOCK": block}
        yield Launch(kernel, (parts(count, block),), arguments, warps)

    return launches


_ARRAYS = frozenset({"x", "gate", "y", "grad_y", "grad_x", "grad_gate"})


def _variant(name, lane_bytes):
    return Variant(
        name=name,
        kinds=("fwd", "bwd"),
        takes=_ARRAYS | {"function"},
        make=_launches(lane_bytes),
        knobs={"warps": (1, 2, 4, 8)},
        fits=fitting("activation"),
        choose=lambda case: {"warps": 4},
        declines=lambda case: (
            "it computes in float, not in f64" if case.dtypes["x"] == "f64" else ""
        ),
    )


VARIANTS = by_name(_variant("vec16", 16), _variant("naive", 0))
