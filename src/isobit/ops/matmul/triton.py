# SPDX-License-Identifier: Apache-2.0
"""matmul in Triton, forward and backward, with the bits of all other variants."""

from isobit.ops.matmul.triton_gradients import backward
from isobit.ops.matmul.triton_products import forward
from isobit.ops.triton_variants import Variant, by_name, fitting

_TENSORS = {"a", "b", "bias", "c", "residual", "y", "pre"}
_TENSORS |= {"grad_y", "grad_a", "grad_b", "grad_bias", "grad_c"}
_SIDES = (16, 32, 64)


def _launches(plan, arithmetic="canonical", **given):
    if arithmetic != "canonical":
        raise ValueError(f"matmul: arithmetic is {arithmetic!r}; Triton's has canonical alone")
    return (backward if "grad_y" in given else forward)(plan, **given)


def _plan(case):
    """Tiles that are no larger than y or a gradient, and twice the warps for doubles, which take
    twice the registers."""
    results = [case.shapes[name] for name in ("y", "grad_a", "grad_b") if name in case.shapes]
    rows, cols = (
        min(
            (next((s for s in _SIDES if s >= shape[dim]), _SIDES[-1]) for shape in results),
            default=_SIDES[0],
        )
        for dim in (-2, -1)
    )
    return {"rows": rows, "cols": cols, "warps": 8 if case.dtypes["a"] == "f64" else 4}


def _declines(case):
    activation = case.options.get("activation", "none")
    if case.options.get("arithmetic", "canonical") != "canonical":
        return "it has the arithmetic canonical alone"
    if case.dtypes["a"] == "f64" and activation not in ("none", "relu"):
        return f"it computes {activation} in float, not in f64"
    return ""


VARIANTS = by_name(
    Variant(
        name="register_tiled",
        kinds=("fwd", "bwd"),
        takes=frozenset(_TENSORS | {"alpha", "beta", "activation", "arithmetic"}),
        make=_launches,
        knobs={"rows": _SIDES, "cols": _SIDES, "warps": (4, 8)},
        fits=fitting("matmul"),
        choose=_plan,
        declines=_declines,
        any_strides=True,
    )
)
