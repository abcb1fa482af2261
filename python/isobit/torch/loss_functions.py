# SPDX-License-Identifier: Apache-2.0
"""cross_entropy: torch.nn.functional's, with the same bits wherever it is computed."""

import torch
import torch.nn.functional as F

from isobit.torch.cross_entropies import CROSS_ENTROPY
from isobit.torch.functional import overridable, run
from isobit.torch.records import NARROW

_REDUCTIONS = ("none", "mean", "sum")


def _checked(input, target, weight, reduction):
    for name, tensor in {"input": input, "target": target, "weight": weight}.items():
        if not isinstance(tensor, torch.Tensor) and not (name == "weight" and tensor is None):
            kind = type(tensor).__name__
            raise TypeError(f"cross_entropy: {name} must be a Tensor; it is {kind}")
        if tensor is not None and tensor.is_nested:
            raise NotImplementedError(f"cross_entropy: {name} is nested; its values() are rows")
    if reduction not in _REDUCTIONS:
        allowed = ", ".join(_REDUCTIONS)
        raise ValueError(f"cross_entropy: reduction is {reduction!r}; allowed: {allowed}")
    if target.is_floating_point():
        raise NotImplementedError(
            f"cross_entropy: target has dtype {target.dtype}, as probabilities of classes have; "
            "for these there is torch.nn.functional.cross_entropy"
        )
    if input.dim() == 0:
        raise ValueError("cross_entropy: input is a number; must have a dimension of classes")
    classes = min(input.dim() - 1, 1)
    expected = (*input.shape[:classes], *input.shape[classes + 1 :])
    if target.shape != expected:
        raise ValueError(
            f"cross_entropy: target has shape {tuple(target.shape)}; input has shape "
            f"{tuple(input.shape)}"
        )
    if weight is not None and weight.shape != input.shape[classes : classes + 1]:
        raise ValueError(
            f"cross_entropy: weight has shape {tuple(weight.shape)}; there are "
            f"{input.shape[classes]} classes"
        )
    if input.shape[classes] == 0 and target.numel() > 0:
        raise ValueError("cross_entropy: there are no classes, but targets")
    return classes


def _result_dtype(input):
    """As PyTorch's, which autocast makes float32."""
    if input.dtype in NARROW and torch.is_autocast_enabled(input.device.type):
        return torch.float32
    return input.dtype


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
    classes = _checked(input, target, weight, reduction)
    dtype = _result_dtype(input)
    if weight is not None:
        weight = weight.to(torch.promote_types(input.dtype, torch.float32))
    tensors = {"x": input.movedim(classes, -1), "target": target, "weight": weight}
    loss, _, _, total, count = run(
        CROSS_ENTROPY,
        tensors,
        ignore_index=ignore_index,
        label_smoothing=label_smoothing,
        z_loss=z_loss,
        totals=reduction != "none",
    )
    if reduction == "none":
        return loss.to(dtype)
    return (total if reduction == "sum" else total / count).to(dtype)
