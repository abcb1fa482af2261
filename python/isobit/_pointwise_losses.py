# SPDX-License-Identifier: Apache-2.0
"""Losses of single elements, and nll_loss, of isobit.numpy, with the bits of isobit.torch."""

import math

import numpy as np

from isobit import _arguments, _arrays, _reductions, c_abi
from isobit._calls import FLOATS, Call, context

_REDUCTIONS = ("none", "mean", "sum")


def mse_loss(input, target, weight=None, *, reduction="mean"):
    """The squares of differences, each times a weight: of each element ("none"), or their sum, or
    their mean, which is the sum divided by that of the weights."""
    return _loss("mse_loss", "mse", input, target, reduction, by_weight=True, weight=weight)


def l1_loss(input, target, weight=None, *, reduction="mean"):
    """The magnitudes of differences; see mse_loss."""
    return _loss("l1_loss", "l1", input, target, reduction, by_weight=True, weight=weight)


def smooth_l1_loss(input, target, *, beta=1.0, reduction="mean"):
    """d^2 / (2 beta) of distances d below beta, else d - beta / 2; see mse_loss."""
    return _loss("smooth_l1_loss", "smooth_l1", input, target, reduction, beta)


def huber_loss(input, target, *, delta=1.0, weight=None, reduction="mean"):
    """d^2 / 2 of distances d below delta, else delta (d - delta / 2); see mse_loss, but a mean is
    always divided by the number of elements."""
    return _loss("huber_loss", "huber", input, target, reduction, delta, weight=weight)


def binary_cross_entropy_with_logits(
    input, target, weight=None, *, pos_weight=None, reduction="mean"
):
    """The cross entropy of targets from 0 to 1 and of the sigmoids of input; pos_weight is how much
    targets of 1 count. See mse_loss, but a mean is always divided by the number of elements."""
    weights = {"weight": weight, "pos_weight": pos_weight}
    name = "binary_cross_entropy_with_logits"
    return _loss(name, "bce_with_logits", input, target, reduction, **weights)


def nll_loss(input, target, weight=None, *, ignore_index=-100, reduction="mean"):
    """Of log-probabilities, whose classes lie along axis 1 (of a vector, along it), and int64
    indices of classes: -input of the class, times its weight. The mean is over the weights."""
    call = _call("nll_loss", input, reduction)
    if call.x.ndim == 0:
        raise ValueError("nll_loss: input is a number; must have an axis of classes")
    axis = min(call.x.ndim - 1, 1)
    x = np.moveaxis(call.x, axis, -1)
    targets = _arrays.checked("nll_loss", "target", target, ("int64",))
    if targets.shape != x.shape[:-1]:
        raise ValueError(
            f"nll_loss: target has shape {targets.shape}; input has shape {call.x.shape}"
        )
    ignore_index = _arguments.whole("nll_loss", "ignore_index", ignore_index)
    counted, classes = targets != ignore_index, x.shape[-1]
    wrong = counted & ((targets < 0) | (targets >= classes))
    if wrong.any():
        at = np.unravel_index(np.argmax(wrong), wrong.shape)
        place = f"[{', '.join(map(str, at))}]" if at else ""
        raise ValueError(
            f"nll_loss: target{place} is {targets[at]}; there are classes from 0 to {classes - 1}, "
            f"and ignore_index is {ignore_index}"
        )
    places = np.where(counted, targets, 0)
    real = _real(call)
    share = counted.astype(real)
    if weight is not None:
        weights = _wide(_arrays.checked("nll_loss", "weight", weight, FLOATS))
        with np.errstate(all="ignore"):
            weights = weights.astype(real)
        if weights.shape != x.shape[-1:]:
            raise ValueError(
                f"nll_loss: weight has shape {weights.shape}; there are {x.shape[-1]} classes"
            )
        share = np.where(counted, weights[places], real.type(0))
    logs = _wide(np.take_along_axis(x, places[..., None], -1)[..., 0]).astype(real)
    with np.errstate(all="ignore"):
        losses = np.where(counted, -logs * share, real.type(0))
    return _reduced(call, losses, reduction, share)


def _call(function, input, reduction):
    if reduction not in _REDUCTIONS:
        allowed = ", ".join(_REDUCTIONS)
        raise ValueError(f"{function}: reduction is {reduction!r}; allowed: {allowed}")
    return Call(function, "input", input, FLOATS)


def _real(call):
    return np.dtype(np.float64 if call.dtype == "float64" else np.float32)


def _wide(array):
    """bfloat16 as float32, exactly: NumPy knows it as integers."""
    if array.dtype != _arrays.DTYPES["bfloat16"]:
        return array
    return (array.view(np.uint16).astype(np.uint32) << 16).view(np.float32)


def _loss(function, kind, input, target, reduction, beta=1.0, by_weight=False, **weights):
    call = _call(function, input, reduction)
    arrays = {"x": call.x}
    for name, each in {"target": target, **weights}.items():
        if each is None:
            continue
        array = _arrays.checked(function, name, each, (call.dtype,), call.like)
        try:
            arrays[name] = np.broadcast_to(array, call.x.shape)
        except ValueError:
            raise ValueError(
                f"{function}: {name} has shape {array.shape}, which does not expand to that of "
                f"input, {call.x.shape}"
            ) from None
    losses = np.empty(call.x.shape, _real(call))
    tensors = {
        name: call.tensor(array if array.ndim else array.reshape(1))
        for name, array in (*arrays.items(), ("loss", losses))
    }
    if kind == "huber":
        needed = "a finite number above 0"
        beta = _arguments.number(function, "delta", beta, lambda d: 0 < d < math.inf, needed)
    else:
        beta = _arguments.number(function, "beta", beta, lambda b: b >= 0, "a number, not negative")
    c_abi.call("pointwise_loss", "fwd", context(), **tensors, function=kind, beta=beta)
    share = None
    if by_weight and "weight" in arrays:
        share = _wide(arrays["weight"]).astype(losses.dtype)
    return _reduced(call, losses, reduction, share)


def _reduced(call, losses, reduction, share=None):
    """share: of a mean, what each loss counts; None where all count alike."""
    found = losses
    if reduction == "mean" and share is None:
        found = _reductions.mean(losses)
    elif reduction != "none":
        found = _reductions.sum(losses)
        if reduction == "mean":
            with np.errstate(all="ignore"):
                found = found / _reductions.sum(share)  # of nothing it is NaN
    return call.result(_narrowed(call, np.asarray(found)))


def _narrowed(call, array):
    """In the type of input, rounded once: by the library, since NumPy has no bfloat16."""
    y = call.empty(array.shape, call.dtype)
    tensors = {"x": call.tensor(array.reshape(1, -1)), "y": call.tensor(y.reshape(-1, 1))}
    c_abi.call("transpose", "fwd", context(), **tensors)
    return y
