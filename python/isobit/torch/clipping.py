# SPDX-License-Identifier: Apache-2.0
"""The norm of all gradients together, with the same bits on every machine, and gradients that are
clipped by it."""

import math

import torch
from torch.library import register_fake

from isobit.torch.records import require_one_device

_ORDERS = {2.0: 0, 1.0: 1, math.inf: 2}


def _norms(tensors, order=0):
    require_one_device("vector_norms", {f"tensors[{i}]": each for i, each in enumerate(tensors)})
    wide = any(each.dtype == torch.float64 for each in tensors)
    return tensors[0].new_empty(len(tensors), dtype=torch.float64 if wide else torch.float32)


register_fake("isobit::vector_norms", _norms)


def _listed(tensors):
    return [tensors] if isinstance(tensors, torch.Tensor) else list(tensors)


def _order_of(norm_type):
    if float(norm_type) not in _ORDERS:
        raise NotImplementedError(
            f"isobit.torch: norm_type is {norm_type}; allowed: 1, 2 and inf; torch.nn.utils has "
            "others"
        )
    return _ORDERS[float(norm_type)]


def _check(tensors):
    for each in tensors:
        if each.layout != torch.strided or each.is_complex() or hasattr(each, "full_tensor"):
            raise NotImplementedError(
                "isobit.torch: norms are those of dense, real tensors, which no DTensor is; "
                "torch.nn.utils has others"
            )


@torch.no_grad()
def get_total_norm(tensors, norm_type=2.0, error_if_nonfinite=False, foreach=None):
    """torch.nn.utils.get_total_norm of types 1, 2 and inf: the norm of the norms of the tensors, in
    their order. It is float32, or float64 where a tensor is. foreach changes nothing."""
    order = _order_of(norm_type)
    tensors = _listed(tensors)
    if not tensors:
        return torch.tensor(0.0)
    _check(tensors)
    # One call a device; the norms come together in the order of the tensors.
    places = {}
    for i, each in enumerate(tensors):
        places.setdefault(each.device, []).append(i)
    if len(places) == 1:
        norms = torch.ops.isobit.vector_norms(tensors, order)
    else:
        found = [
            torch.ops.isobit.vector_norms([tensors[i] for i in some], order).to(tensors[0].device)
            for some in places.values()
        ]
        kind = max((each.dtype for each in found), key=lambda dtype: dtype.itemsize)
        norms = torch.empty(len(tensors), dtype=kind, device=tensors[0].device)
        for some, each in zip(places.values(), found, strict=True):
            norms[some] = each.to(kind)
    total = torch.ops.isobit.vector_norms([norms], order)[0]
    if error_if_nonfinite and not total.isfinite():
        raise RuntimeError(
            f"The total norm of order {float(norm_type)} for gradients from `parameters` is "
            "non-finite, so it cannot be clipped. To disable this error and scale the gradients by "
            "the non-finite norm anyway, set `error_if_nonfinite=False`"
        )
    return total


@torch.no_grad()
def clip_grad_norm_(parameters, max_norm, norm_type=2.0, error_if_nonfinite=False, foreach=None):
    """``torch.nn.utils.clip_grad_norm_`` of types 1, 2 and inf, by get_total_norm: gradients are
    multiplied by max_norm / (total + 1e-6) where that is less than 1. Returns the total."""
    parameters = _listed(parameters)
    grads = [p.grad for p in parameters if p.grad is not None]
    total = get_total_norm(grads, norm_type, error_if_nonfinite, foreach)
    if grads:
        # Each of these is one rounding, which IEEE 754 defines.
        factor = (float(max_norm) / (total + 1e-6)).clamp(max=1.0)
        by_kind = {}
        for grad in grads:
            by_kind.setdefault((grad.device, grad.dtype), []).append(grad)
        for (device, _), some in by_kind.items():
            torch._foreach_mul_(some, factor.to(device))
    return total
