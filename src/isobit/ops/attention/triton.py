# SPDX-License-Identifier: Apache-2.0
"""Attention in Triton, with the bits of all other variants."""

import math

from isobit.ops.attention.pytorch import CAUSALS
from isobit.ops.attention.triton_backward import backward
from isobit.ops.attention.triton_forward import forward
from isobit.ops.triton_variants import Variant, by_name

_INPUTS = {"q", "k", "v", "bias", "mask", "slopes", "key_begin", "key_end"}
_FORWARD = _INPUTS | {"y", "lse", "max", "sum"}
_BACKWARD = _INPUTS | {"grad_y", "grad_lse", "y", "max", "sum"}
_BACKWARD |= {"grad_q", "grad_k", "grad_v", "grad_bias"}
_OPTIONS = {"causal", "window", "scale", "softcap"}
_MOST = 256  # elements of a head, whose sums are in registers


def _hold(condition, what):
    if not condition:
        raise ValueError(f"attention: {what}")


def _check(q, k, v, causal="no", window=0, scale=0, softcap=0, **arrays):
    """Of arrays that do not fit, kernels would read what lies beyond."""
    _hold(causal in CAUSALS, f"causal is {causal!r}; allowed: {', '.join(CAUSALS)}")
    _hold(window >= 0, f"window is {window}; must not be negative")
    _hold(math.isfinite(scale), f"scale is {scale}; must be finite")
    _hold(0 <= softcap < math.inf, f"softcap is {softcap}; must be finite and not negative")
    for name, array in (("q", q), ("k", k), ("v", v)):
        _hold(array.dim() == 4, f"{name} has {array.dim()} dimensions; must have 4")
    heads, kv_heads = q.shape[1], k.shape[1]
    fit = heads % kv_heads == 0 if kv_heads else heads == 0
    _hold(fit, f"q has {heads} heads; must have a multiple of k's {kv_heads}")
    rows, keys = tuple(q.shape[:3]), tuple(k.shape[:3])
    scores, results = (*rows, keys[-1]), (*rows, v.shape[-1])
    shapes = {"k": (q.shape[0], *keys[1:], q.shape[-1]), "v": (*keys, v.shape[-1])}
    shapes |= dict.fromkeys(("bias", "mask", "grad_bias"), scores)
    shapes |= dict.fromkeys(("y", "grad_y"), results)
    shapes |= dict.fromkeys(("lse", "max", "sum", "grad_lse"), rows)
    shapes |= {"slopes": rows[:2], "key_begin": rows[:1], "key_end": rows[:1]}
    shapes |= {"grad_q": tuple(q.shape), "grad_k": shapes["k"], "grad_v": shapes["v"]}
    for name, array in {"k": k, "v": v, **arrays}.items():
        if array is not None:
            found = tuple(array.shape)
            _hold(found == shapes[name], f"{name} has shape {found}; must have {shapes[name]}")


def _checked(launches):
    def make(plan, arithmetic="canonical", **given):
        _hold(
            arithmetic == "canonical",
            f"arithmetic is {arithmetic!r}; Triton's has canonical alone",
        )
        _check(**given)
        return launches(plan, **given)

    return make


def _declines(case):
    if case.options.get("arithmetic", "canonical") != "canonical":
        return "it has the arithmetic canonical alone"
    if case.dtypes["q"] == "f64":
        return "it computes in float, not in f64"
    longest = max(case.shapes["q"][-1], case.shapes["v"][-1])
    return f"heads of {longest} elements; registers hold at most {_MOST}" if longest > _MOST else ""


def _plan(case):
    longest = max(case.shapes["q"][-1], case.shapes["v"][-1])
    return {"rows": 16, "warps": 8 if longest > 64 else 4}


def _variant(name, kind, known, make):
    return Variant(
        name=name,
        kinds=(kind,),
        takes=frozenset(known | _OPTIONS | {"arithmetic"}),
        make=_checked(make),
        knobs={"rows": (16, 32), "warps": (4, 8)},
        choose=_plan,
        declines=_declines,
        any_strides=True,
    )


VARIANTS = by_name(
    _variant("flash", "fwd", _FORWARD, forward),
    _variant("dq_dkdv", "bwd", _BACKWARD, backward),
)
