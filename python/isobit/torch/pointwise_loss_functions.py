# SPDX-License-Identifier: Apache-2.0
"""mse_loss, l1_loss, smooth_l1_loss, huber_loss, binary_cross_entropy_with_logits and nll_loss:
torch.nn.functional's, whose elements and sums have the same bits wherever they are computed."""

import warnings
from math import inf

import torch
import torch.nn.functional as F

from isobit.torch import reduction_functions
from isobit.torch.functional import overridable, run
from isobit.torch.loss_functions import indices, of_dtype, result_dtype
from isobit.torch.pointwise_losses import CODES, LOSS
from isobit.torch.records import NARROW

_REDUCTIONS = ("none", "mean", "sum")


def _reduction(op, reduction, size_average=None, reduce=None):
    if size_average is not None or reduce is not None:
        reduction = F._Reduction.legacy_get_string(size_average, reduce)
    if reduction not in _REDUCTIONS:
        allowed = ", ".join(_REDUCTIONS)
        raise ValueError(f"{op}: reduction is {reduction!r}; allowed: {allowed}")
    return reduction


def _require_tensors(op, **tensors):
    for name, each in tensors.items():
        if not isinstance(each, torch.Tensor):
            raise TypeError(f"{op}: {name} must be a Tensor; it is {type(each).__name__}")
        if each.is_nested:
            raise NotImplementedError(f"{op}: {name} is nested; its values() are rows")


def _loss(op, kind, tensors, reduction, beta=1.0, by_weight=False):
    """tensors: by their names in the call; those that are not given are None. by_weight: a mean is
    divided by the sum of the weights."""
    given = {name: each for name, each in tensors.items() if each is not None}
    _require_tensors(op, **given)
    shape, dtype = given["input"].shape, given["input"].dtype
    spread = given.values()
    if any(each.shape != shape for each in spread):
        try:
            spread = torch.broadcast_tensors(*spread)
        except RuntimeError:
            shapes = ", ".join(f"{name} {tuple(each.shape)}" for name, each in given.items())
            raise ValueError(f"{op}: shapes do not broadcast: {shapes}") from None
    for each in given.values():
        dtype = torch.promote_types(dtype, each.dtype)
    given = {name: of_dtype(each, dtype) for name, each in zip(given, spread, strict=True)}
    arguments = {"x": given["input"]}
    arguments |= {name: given.get(name) for name in ("target", "weight", "pos_weight")}
    losses = found = run(LOSS, arguments, kind=CODES[kind], beta=float(beta))
    if reduction == "mean" and by_weight and tensors["weight"] is not None:
        weights = tensors["weight"].to(dtype).to(losses.dtype)
        found = reduction_functions.sum(losses) / reduction_functions.sum(weights)
    elif reduction != "none":
        found = getattr(reduction_functions, reduction)(losses)
    return of_dtype(found, result_dtype(dtype, found.device))


def _of_difference(op, kind, input, target, weight, reduction, beta=1.0):
    tensors = {"input": input, "target": target, "weight": weight}
    _require_tensors(op, **{name: each for name, each in tensors.items() if each is not None})
    if weight is not None and weight.shape != input.shape:
        raise ValueError(
            f"{op}: weight has shape {tuple(weight.shape)}; must have that of input, "
            f"{tuple(input.shape)}"
        )
    if target.shape != input.shape and not torch.compiler.is_compiling():
        warnings.warn(
            f"{op}: target has shape {tuple(target.shape)}, input {tuple(input.shape)}; they are "
            "broadcast, which is likely not what is wanted",
            stacklevel=4,
        )
    return _loss(op, kind, tensors, reduction, beta, by_weight=kind in ("mse", "l1"))


@overridable
def mse_loss(input, target, size_average=None, reduce=None, reduction="mean", weight=None):
    """torch.nn.functional.mse_loss. The mean of weighted losses is their sum divided by that of the
    weights."""
    reduction = _reduction("mse_loss", reduction, size_average, reduce)
    return _of_difference("mse_loss", "mse", input, target, weight, reduction)


@overridable
def l1_loss(input, target, size_average=None, reduce=None, reduction="mean", weight=None):
    """torch.nn.functional.l1_loss; see mse_loss."""
    reduction = _reduction("l1_loss", reduction, size_average, reduce)
    return _of_difference("l1_loss", "l1", input, target, weight, reduction)


@overridable
def smooth_l1_loss(input, target, size_average=None, reduce=None, reduction="mean", beta=1.0):
    """torch.nn.functional.smooth_l1_loss."""
    reduction = _reduction("smooth_l1_loss", reduction, size_average, reduce)
    return _of_difference("smooth_l1_loss", "smooth_l1", input, target, None, reduction, beta)


@overridable
def huber_loss(input, target, reduction="mean", delta=1.0, weight=None):
    """torch.nn.functional.huber_loss. The mean of weighted losses is their sum divided by their
    number."""
    reduction = _reduction("huber_loss", reduction)
    if not 0 < delta < inf:
        raise ValueError(f"huber_loss: delta is {delta}; must be above 0, and finite")
    return _of_difference("huber_loss", "huber", input, target, weight, reduction, delta)


@overridable
def binary_cross_entropy_with_logits(
    input, target, weight=None, size_average=None, reduce=None, reduction="mean", pos_weight=None
):
    """torch.nn.functional.binary_cross_entropy_with_logits."""
    op = "binary_cross_entropy_with_logits"
    reduction = _reduction(op, reduction, size_average, reduce)
    _require_tensors(op, input=input, target=target)
    if input.shape != target.shape:
        raise ValueError(
            f"{op}: target has shape {tuple(target.shape)}; input has shape {tuple(input.shape)}"
        )
    tensors = {"input": input, "target": target, "weight": weight, "pos_weight": pos_weight}
    return _loss(op, "bce_with_logits", tensors, reduction)


@overridable
def nll_loss(
    input, target, weight=None, size_average=None, ignore_index=-100, reduce=None, reduction="mean"
):
    """torch.nn.functional.nll_loss: of log-probabilities, whose classes lie along dimension 1, and
    indices of classes. An element is one product with the weight of its class."""
    op = "nll_loss"
    reduction = _reduction(op, reduction, size_average, reduce)
    _require_tensors(op, input=input, target=target)
    if input.dim() == 0:
        raise ValueError(f"{op}: input is a number; must have a dimension of classes")
    dim = min(input.dim() - 1, 1)
    expected = (*input.shape[:dim], *input.shape[dim + 1 :])
    if target.shape != expected:
        raise ValueError(
            f"{op}: target has shape {tuple(target.shape)}; input has shape {tuple(input.shape)}"
        )
    classes = input.shape[dim]
    if weight is not None and weight.shape != (classes,):
        raise ValueError(
            f"{op}: weight has shape {tuple(weight.shape)}; there are {classes} classes"
        )
    target = indices(op, target)
    counted = target != ignore_index
    places = torch.where(counted, target, 0)
    wide = torch.float32 if input.dtype in NARROW else input.dtype
    try:
        logs = input.gather(dim, places.unsqueeze(dim)).squeeze(dim).to(wide)
    except RuntimeError as error:
        if "out of bounds" not in str(error):
            raise
        raise ValueError(
            f"{op}: target has an index of no class; there are classes from 0 to {classes - 1}, "
            f"and ignore_index is {ignore_index}"
        ) from None
    share = counted.to(wide) if weight is None else torch.where(counted, weight.to(wide)[places], 0)
    losses = torch.where(counted, -logs * share, 0)
    found = losses if reduction == "none" else reduction_functions.sum(losses)
    if reduction == "mean":
        found = found / reduction_functions.sum(share)
    return found.to(result_dtype(input.dtype, input.device))
