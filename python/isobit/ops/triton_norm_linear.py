# SPDX-License-Identifier: Apache-2.0
"""A norm and the linear layer that it feeds in Triton, one after the other: each by kernels of its
own, with the bits of all other variants."""

from functools import partial

from isobit.ops.matmul import triton as product
from isobit.ops.triton_variants import Case, Variant, by_name

_FORWARD = {"x", "norm_weight", "norm_bias", "weight", "bias", "residual"}
_FORWARD |= {"z", "pre", "y", "mean", "rstd"}
_BACKWARD = {"grad_z", "x", "norm_weight", "norm_bias", "weight", "pre", "grad_x"}
_BACKWARD |= {"grad_norm_weight", "grad_norm_bias", "grad_weight", "grad_bias"}
_ROWS = {"x", "y", "z", "pre", "residual", "grad_z", "grad_x"}
_OPTIONS = {"eps", "activation", "arithmetic"}
_OF_NORM = {"norm_bias": "bias", "mean": "mean", "grad_norm_bias": "grad_bias"}  # not of every norm


def _launches(variants, kind, **arrays):
    """Of the first variant of a pass that takes the call."""
    given = {name: each for name, each in arrays.items() if each is not None}
    case = Case.of(**given)
    able = [each for each in variants.values() if kind in each.kinds and not each.declines(case)]
    return able[0].launches(**given)


def _forward(
    norm,
    x,
    weight,
    z,
    norm_weight=None,
    norm_bias=None,
    bias=None,
    residual=None,
    pre=None,
    y=None,
    mean=None,
    rstd=None,
    eps=1e-5,
    **options,
):
    y = x.new_empty(x.shape, dtype=weight.dtype) if y is None else y
    weights = {"weight": norm_weight, "bias": norm_bias, "mean": mean, "rstd": rstd}
    yield from _launches(norm, "fwd", x=x, y=y, eps=eps, **weights)
    arrays = {"a": y, "b": weight.mT, "bias": bias, "residual": residual, "y": z, "pre": pre}
    yield from _launches(product.VARIANTS, "fwd", **arrays, **options)


def _backward(
    norm,
    grad_z,
    x,
    weight,
    norm_weight=None,
    norm_bias=None,
    pre=None,
    grad_x=None,
    grad_norm_weight=None,
    grad_norm_bias=None,
    grad_weight=None,
    grad_bias=None,
    eps=1e-5,
    **options,
):
    y, grad_y = (x.new_empty(x.shape, dtype=weight.dtype) for _ in range(2))
    if grad_weight is not None:
        weights = {"weight": norm_weight, "bias": norm_bias}
        yield from _launches(norm, "fwd", x=x, y=y, eps=eps, **weights)
    of_norm = {"grad_x": grad_x, "grad_weight": grad_norm_weight, "grad_bias": grad_norm_bias}
    through = any(each is not None for each in of_norm.values())
    arrays = {"grad_y": grad_z, "a": y, "b": weight.mT, "pre": pre, "grad_bias": grad_bias}
    arrays["grad_a"] = grad_y if through else None
    arrays["grad_b"] = None if grad_weight is None else grad_weight.mT
    yield from _launches(product.VARIANTS, "bwd", **arrays, **options)
    if through:
        given = {"x": x, "grad_y": grad_y, "weight": norm_weight, "eps": eps}
        yield from _launches(norm, "bwd", **given, **of_norm)


def _rows(name, array):
    """What has rows, as a matrix of them."""
    if name not in _ROWS or array is None or array.ndim == 2:
        return array
    return array.view(-1, array.shape[-1])


def _make(norm, _plan, **given):
    arrays = {name: _rows(name, each) for name, each in given.items()}
    return (_backward if "grad_z" in arrays else _forward)(norm, **arrays)


def _declines(case):
    if case.options.get("arithmetic", "canonical") != "canonical":
        return "it has the arithmetic canonical alone"
    dtype, weights = case.dtypes["x"], case.dtypes.get("norm_weight", case.dtypes["x"])
    if dtype == "f64":
        return "it computes in float, not in f64"
    return "" if weights in (dtype, "f32") else f"weights of {weights} beside {dtype}"


def variants(norm):
    """Over the variants of a norm."""
    of_norm = frozenset().union(*(variant.takes for variant in norm.values()))
    lacks = {name for name, its in _OF_NORM.items() if its not in of_norm}
    return by_name(
        Variant(
            name="unfused",
            kinds=("fwd", "bwd"),
            takes=frozenset((_FORWARD | _BACKWARD | _OPTIONS) - lacks),
            make=partial(_make, norm),
            knobs={},
            choose=lambda case: {},
            declines=_declines,
        )
    )
