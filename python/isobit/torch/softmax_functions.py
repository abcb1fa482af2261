# SPDX-License-Identifier: Apache-2.0
"""softmax and log_softmax: torch's, with a mask and a scale, and the same bits wherever they are
computed."""

import torch
import torch.nn.functional as F

from isobit import _arguments
from isobit.torch.derived import short
from isobit.torch.fast import TENSORS
from isobit.torch.functional import overridable, run_as
from isobit.torch.softmaxes import SOFTMAX


def _along(function, input, dim, mask, scale, dtype, log):
    if mask is None and dtype is None and type(dim) is int and type(input) in TENSORS:
        last = input.ndim - 1
        if dim in (-1, last) and last >= 0:
            y = short(SOFTMAX, input, None, scale, log, None)
            if y is not None:
                return y
    if not isinstance(input, torch.Tensor):
        raise TypeError(f"{function}: input must be a Tensor; it is {type(input).__name__}")
    if dim is None:  # what torch.nn.functional does, with its warning
        dim = F._get_softmax_dim(function, input.dim(), 4)
    dim = _arguments.dim(function, "dim", dim, max(input.dim(), 1))
    narrow = input.dtype in (torch.float16, torch.bfloat16)
    if dtype is not None and dtype != input.dtype and not (narrow and dtype == torch.float32):
        input, dtype = input.to(dtype), None
    if mask is not None:
        if not isinstance(mask, torch.Tensor):
            raise TypeError(f"{function}: mask must be a Tensor; it is {type(mask).__name__}")
        try:
            mask = mask.expand(input.shape)
        except RuntimeError:
            raise ValueError(
                f"{function}: mask has shape {tuple(mask.shape)}, which does not expand to that of "
                f"input, {tuple(input.shape)}"
            ) from None
    last = dim in (input.dim() - 1, 0) and (input.dim() <= 1 or dim == input.dim() - 1)
    if not last:
        input = input.movedim(dim, -1)
        mask = None if mask is None else mask.movedim(dim, -1)
    tensors = {"x": input, "mask": mask}
    y = run_as(function, SOFTMAX, tensors, scale=scale, log=log, dtype=dtype)
    return y if last else y.movedim(-1, dim).contiguous()


@overridable
def softmax(input, dim=None, *, dtype=None, mask=None, scale=1.0):
    """torch.softmax. mask: a bool tensor that expands to input; where it is False there is no
    element: the result is 0, whatever input holds. scale: what input is multiplied by. A dimension
    that is not the last is copied there and back."""
    return _along("softmax", input, dim, mask, scale, dtype, False)


@overridable
def log_softmax(input, dim=None, *, dtype=None, mask=None, scale=1.0):
    """torch.log_softmax; see softmax. Where mask is False the result is -inf."""
    return _along("log_softmax", input, dim, mask, scale, dtype, True)
