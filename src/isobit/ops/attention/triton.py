# SPDX-License-Identifier: Apache-2.0
"""Attention in Triton, with the bits of all other variants."""

from isobit.ops.attention.triton_backward import backward
from isobit.ops.attention.triton_forward import forward
from isobit.ops.triton_variants import Variant, by_name

_FORWARD = {"q", "k", "v", "bias", "mask", "y", "lse", "max", "sum"}
_BACKWARD = {"grad_y", "grad_lse", "q", "k", "v", "bias", "mask", "y", "max", "sum"}
_BACKWARD |= {"grad_q", "grad_k", "grad_v", "grad_bias"}
_OPTIONS = {"causal", "window", "scale", "softcap"}
_MOST = 256  # elements of a head, whose sums are in registers


def _declines(case):
    if case.dtypes["q"] == "f64":
        return "it computes in float, not in f64"
    longest = max(case.shapes["q"][-1], case.shapes["v"][-1])
    return f"heads of {longest} elements; registers hold at most {_MOST}" if longest > _MOST else ""


def _plan(case):
    longest = max(case.shapes["q"][-1], case.shapes["v"][-1])
    return {"rows": 16, "warps": 8 if longest > 64 else 4}


def _variant(name, kind, arrays, make):
    return Variant(
        name=name,
        kinds=(kind,),
        takes=frozenset(arrays | _OPTIONS),
        make=make,
        knobs={"rows": (16, 32), "warps": (4, 8)},
        choose=_plan,
        declines=_declines,
        any_strides=True,
    )


VARIANTS = by_name(
    _variant("flash", "fwd", _FORWARD, forward),
    _variant("dq_dkdv", "bwd", _BACKWARD, backward),
)
