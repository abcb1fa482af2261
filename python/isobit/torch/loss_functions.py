# SPDX-License-Identifier: Apache-2.0
"""cross_entropy and linear_cross_entropy: torch.nn.functional's, with the same bits wherever they
are computed."""

import torch
import torch.nn.functional as F

from isobit.torch.cross_entropies import CROSS_ENTROPY
from isobit.torch.fast import TENSORS
from isobit.torch.functional import overridable, run
from isobit.torch.linear_cross_entropies import LINEAR_CROSS_ENTROPY
from isobit.torch.product_functions import linear
from isobit.torch.records import NARROW, is_autocast

_REDUCTIONS = ("none", "mean", "sum")


def _check(op, tensors, reduction):
    """tensors: by their names in the call, optional ones None where they are not given."""
    optional = ("linear_bias", "weight")
    for name, tensor in tensors.items():
        if (tensor is not None or name not in optional) and not isinstance(tensor, torch.Tensor):
            kind = type(tensor).__name__
            raise TypeError(f"{op}: {name} must be a Tensor; it is {kind}")
        if tensor is not None and tensor.is_nested:
            raise NotImplementedError(f"{op}: {name} is nested; its values() are rows")
    if reduction not in _REDUCTIONS:
        allowed = ", ".join(_REDUCTIONS)
        raise ValueError(f"{op}: reduction is {reduction!r}; allowed: {allowed}")
    target = tensors["target"]
    if target.is_floating_point():
        raise NotImplementedError(
            f"{op}: target has dtype {target.dtype}, as probabilities of classes have; "
            f"for these there is torch.nn.functional.{op}"
        )


def indices(op, target):
    """Of classes, as int64: PyTorch takes bytes, too."""
    if target.dtype == torch.uint8:
        return target.long()
    if target.dtype != torch.int64:
        raise ValueError(f"{op}: target has dtype {target.dtype}; must be int64 or uint8")
    return target


def _check_classes(op, target, weight, expected, classes, input):
    """expected: the shape of target."""
    if target.shape != expected:
        raise ValueError(
            f"{op}: target has shape {tuple(target.shape)}; input has shape {tuple(input.shape)}"
        )
    if weight is not None and weight.shape != (classes,):
        raise ValueError(
            f"{op}: weight has shape {tuple(weight.shape)}; there are {classes} classes"
        )
    if classes == 0 and target.numel() > 0:
        raise ValueError(f"{op}: there are no classes, but targets")


def _are_rows(input, target, weight, reduction):
    """Whether this is a call of rows of logits, of which nothing that is checked is wrong."""
    if type(input) not in TENSORS or type(target) not in TENSORS or weight is not None:
        return False
    if input.ndim != 2 or input.is_nested or target.dtype is not torch.int64:
        return False
    return target.shape == input.shape[:1] and input.shape[1] > 0 and reduction in _REDUCTIONS


def result_dtype(dtype, device):
    """As that of PyTorch's losses, which autocast makes float32."""
    if dtype in NARROW and is_autocast(device):
        return torch.float32
    return dtype


def of_dtype(tensor, dtype):
    """tensor.to(dtype), which takes as long as a small kernel where there is nothing to do."""
    return tensor if tensor.dtype is dtype else tensor.to(dtype)


@overridable
def cross_entropy(
    input,
    target,
    weight=None,
    size_average=None,
    ignore_index=-100,
    reduce=None,
    reduction="mean",
    label_smoothing=0.0,
    *,
    z_loss=0.0,
):
    """torch.nn.functional.cross_entropy of indices of classes. z_loss: the factor of the square of
    each row's logsumexp, which is added to its loss, times the weight of its class. Logits whose
    classes are not adjacent in memory are copied there and back."""
    if size_average is not None or reduce is not None:
        reduction = F._Reduction.legacy_get_string(size_average, reduce)
    op = "cross_entropy"
    options = {"label_smoothing": label_smoothing, "z_loss": z_loss}
    if _are_rows(input, target, weight, reduction):
        tensors = {"x": input, "target": target, "weight": None}
        return _reduced(CROSS_ENTROPY, tensors, "weight", reduction, ignore_index, options)
    given = {"input": input, "target": target, "weight": weight}
    _check(op, given, reduction)
    if input.dim() == 0:
        raise ValueError(f"{op}: input is a number; must have a dimension of classes")
    classes = min(input.dim() - 1, 1)
    expected = (*input.shape[:classes], *input.shape[classes + 1 :])
    _check_classes(op, target, weight, expected, input.shape[classes], input)
    target = indices(op, target)
    tensors = {"x": input.movedim(classes, -1), "target": target, "weight": weight}
    return _reduced(CROSS_ENTROPY, tensors, "weight", reduction, ignore_index, options)


def _reduced(record, tensors, weights, reduction, ignore_index, options):
    """The losses of a record. weights: its name for those of classes."""
    x = tensors["x"]
    if tensors[weights] is not None:
        tensors[weights] = tensors[weights].to(torch.promote_types(x.dtype, torch.float32))
    dtype = result_dtype(x.dtype, x.device)
    totals = reduction != "none"
    loss, _, _, total, count = run(
        record, tensors, ignore_index=ignore_index, **options, totals=totals
    )
    if reduction == "none":
        return of_dtype(loss, dtype)
    return of_dtype(total if reduction == "sum" else total / count.detach(), dtype)


@overridable
def linear_cross_entropy(
    input,
    linear_weight,
    target,
    *,
    linear_bias=None,
    weight=None,
    reduction="mean",
    ignore_index=None,
    label_smoothing=0.0,
    options=None,
    z_loss=0.0,
):
    """torch.nn.functional.linear_cross_entropy of indices of classes: cross_entropy of
    linear(input, linear_weight, linear_bias), bit for bit, in both passes, but without an array of
    all logits: a few rows of them exist at a time. Backward makes them anew. input may have any
    dimensions before its last, and target has them.

    z_loss is as in cross_entropy. options must be None: they choose how PyTorch cuts rows, which
    are always cut here. A linear_weight of more than two dimensions, for several losses a row, has
    all logits at once, and so have derivatives of higher order.
    """
    op = "linear_cross_entropy"
    given = {"input": input, "linear_weight": linear_weight, "target": target}
    _check(op, given | {"linear_bias": linear_bias, "weight": weight}, reduction)
    if options is not None:
        raise NotImplementedError(
            f"{op}: options choose how PyTorch cuts rows; leave them out: rows are always cut here"
        )
    for name in ("input", "linear_weight"):
        least = 1 if name == "input" else 2
        if given[name].dim() < least:
            shape = tuple(given[name].shape)
            raise ValueError(f"{op}: {name} has shape {shape}; must have {least} dimensions")
    if ignore_index is None:
        ignore_index = -100
    losses = {"label_smoothing": label_smoothing, "z_loss": z_loss}
    several = linear_weight.shape[1:-1]
    if several:
        bias = None if linear_bias is None else linear_bias.reshape(-1)
        logits = linear(input, linear_weight.flatten(0, -2), bias)
        logits = torch.unflatten(logits, -1, linear_weight.shape[:-1])
        losses |= {"ignore_index": ignore_index, "reduction": reduction}
        return cross_entropy(logits, target, weight, **losses)
    _check_classes(op, target, weight, input.shape[:-1], linear_weight.shape[0], input)
    tensors = {"x": input, "weight": linear_weight, "bias": linear_bias}
    tensors |= {"target": indices(op, target), "class_weight": weight}
    return _reduced(LINEAR_CROSS_ENTROPY, tensors, "class_weight", reduction, ignore_index, losses)
