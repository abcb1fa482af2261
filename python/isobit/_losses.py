# SPDX-License-Identifier: Apache-2.0
"""cross_entropy of isobit.numpy."""

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
    function = "cross_entropy"
    if reduction not in _REDUCTIONS:
        allowed = ", ".join(_REDUCTIONS)
        raise ValueError(f"{function}: reduction is {reduction!r}; allowed: {allowed}")
    call = Call(function, "input", input, FLOATS)
    if call.x.ndim == 0:
        raise ValueError(f"{function}: input is a number; must have an axis of classes")
    axis = _arguments.dim(function, "axis", axis, call.x.ndim)
    x = np.moveaxis(call.x, axis, -1)
    real = np.dtype(np.float64 if call.x.dtype == np.float64 else np.float32)
    targets = _arrays.checked(function, "target", target, ("int64",))
    if targets.shape != x.shape[:-1]:
        raise ValueError(
            f"{function}: target has shape {targets.shape}; input has shape {call.x.shape}"
        )
    arrays = {"x": x, "target": targets.reshape(-1)}
    if weight is not None:
        arrays["weight"] = _arrays.checked(function, "weight", weight, (real.name,))
    arrays["loss"] = np.empty(targets.size, real)
    if reduction != "none":
        arrays |= {"total": np.empty(1, real), "count": np.empty(1, real)}
    tensors = {name: call.tensor(array) for name, array in arrays.items()}
    c_abi.call(
        "cross_entropy",
        "fwd",
        context(),
        **tensors,
        ignore_index=ignore_index,
        label_smoothing=label_smoothing,
        z_loss=z_loss,
    )
    if reduction == "none":
        return call.result(arrays["loss"].reshape(targets.shape))
    total, count = arrays["total"], arrays["count"]
    if reduction == "mean":
        with np.errstate(invalid="ignore", divide="ignore"):
            total = total / count  # of nothing it is NaN
    return call.result(total.reshape(()))
