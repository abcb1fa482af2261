# SPDX-License-Identifier: Apache-2.0
"""cross_entropy and linear_cross_entropy of isobit.numpy."""

import numpy as np

from isobit import _arguments, _arrays, c_abi
from isobit._calls import FLOATS, Call, context

_REDUCTIONS = ("none", "mean", "sum")


def cross_entropy(
    input,
    target,
    weight=None,
    *,
    ignore_index=-100,
    reduction="mean",
    label_smoothing=0.0,
    z_loss=0.0,
    axis=-1,
):
    """The cross entropy of logits, whose classes lie along an axis, and the indices of classes that
    should have been named, with the bits of isobit.torch: of each row ("none"), or of all their sum
    or weighted mean, in float32, or float64 beside such logits. An axis that is not the last is
    copied."""
    call = _call("cross_entropy", "input", input, reduction)
    axis = _arguments.dim(call.function, "axis", axis, call.x.ndim)
    x = np.moveaxis(call.x, axis, -1)
    options = _options(call, ignore_index, label_smoothing, z_loss)
    return _reduced(call, {"x": x}, target, {"weight": weight}, reduction, options)


def linear_cross_entropy(
    input,
    linear_weight,
    target,
    *,
    linear_bias=None,
    weight=None,
    ignore_index=-100,
    reduction="mean",
    label_smoothing=0.0,
    z_loss=0.0,
):
    """cross_entropy of the logits input @ linear_weight.T + linear_bias, each rounded to the dtype
    of input, with the bits of these operators one after the other, but without an array of all
    logits. linear_weight: (classes, elements)."""
    call = _call("linear_cross_entropy", "input", input, reduction)
    layer = {"linear_weight": linear_weight, "linear_bias": linear_bias}
    for name, each in layer.items():
        if each is not None or name == "linear_weight":
            wider = ("float32",) if name == "linear_bias" and call.dtype != "float64" else ()
            allowed = tuple(dict.fromkeys((call.dtype, *wider)))
            layer[name] = _arrays.checked(call.function, name, each, allowed, call.like)
    if layer["linear_weight"].ndim != 2 or layer["linear_weight"].shape[1] != call.x.shape[-1]:
        raise ValueError(
            f"{call.function}: linear_weight has shape {layer['linear_weight'].shape}; input has "
            f"shape {call.x.shape}"
        )
    arrays = {"x": call.x, "weight": layer["linear_weight"]}
    if linear_bias is not None:
        arrays["bias"] = _of_classes(call, "linear_bias", layer["linear_bias"], arrays)
    options = _options(call, ignore_index, label_smoothing, z_loss)
    return _reduced(call, arrays, target, {"class_weight": weight}, reduction, options)


def _options(call, ignore_index, label_smoothing, z_loss):
    options = _arguments.reals(call.function, label_smoothing=label_smoothing, z_loss=z_loss)
    return options | {"ignore_index": _arguments.whole(call.function, "ignore_index", ignore_index)}


def _call(function, name, input, reduction):
    if reduction not in _REDUCTIONS:
        allowed = ", ".join(_REDUCTIONS)
        raise ValueError(f"{function}: reduction is {reduction!r}; allowed: {allowed}")
    call = Call(function, name, input, FLOATS)
    if call.x.ndim == 0:
        raise ValueError(f"{function}: {name} is a number; must have an axis")
    return call


def _of_classes(call, name, array, arrays):
    """The array, which must have an element for each class."""
    classes = arrays["weight"].shape[0] if "weight" in arrays else arrays["x"].shape[-1]
    if array.shape != (classes,):
        raise ValueError(
            f"{call.function}: {name} has shape {array.shape}; must be ({classes},), the classes"
        )
    return array


def _reduced(call, arrays, target, weights, reduction, options):
    """weights: of classes, or None, by their name in C."""
    function, x = call.function, arrays["x"]
    real = np.dtype(np.float64 if x.dtype == np.float64 else np.float32)
    targets = _arrays.checked(function, "target", target, ("int64",))
    if targets.shape != x.shape[:-1]:
        raise ValueError(
            f"{function}: target has shape {targets.shape}; input has shape {call.x.shape}"
        )
    arrays = arrays | {"target": targets.reshape(-1)}
    for name, each in weights.items():
        if each is not None:
            weight = _arrays.checked(function, "weight", each, (real.name,))
            arrays[name] = _of_classes(call, "weight", weight, arrays)
    arrays["loss"] = np.empty(targets.size, real)
    if reduction != "none":
        arrays |= {"total": np.empty(1, real), "count": np.empty(1, real)}
    tensors = {name: call.tensor(array) for name, array in arrays.items()}
    c_abi.call(function, "fwd", context(), **tensors, **options)
    if reduction == "none":
        return call.result(arrays["loss"].reshape(targets.shape))
    total, count = arrays["total"], arrays["count"]
    if reduction == "mean":
        with np.errstate(all="ignore"):
            total = total / count  # of nothing it is NaN
    return call.result(total.reshape(()))
