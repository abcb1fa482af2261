# SPDX-License-Identifier: Apache-2.0
"""embedding: torch.nn.functional's, whose gradient has the same bits wherever it is computed."""

import torch

from isobit.torch.derived import short
from isobit.torch.embeddings import EMBEDDING
from isobit.torch.functional import overridable, run

_INDICES = (torch.int64, torch.int32)


def unsupported(max_norm, sparse):
    """What embedding does not do, in words that end with who does."""
    if max_norm is not None:
        return f"max_norm is {max_norm}, which changes the table"
    return "sparse is True" if sparse else None


def _checked(input, weight, padding_idx):
    for name, tensor in {"input": input, "weight": weight}.items():
        if not isinstance(tensor, torch.Tensor):
            raise TypeError(f"embedding: {name} must be a Tensor; it is {type(tensor).__name__}")
    if input.dtype not in _INDICES:
        raise ValueError(f"embedding: input has dtype {input.dtype}; must be int64 or int32")
    if weight.dim() != 2:
        raise ValueError(
            f"embedding: weight has shape {tuple(weight.shape)}; must have two dimensions, of "
            "tokens and of columns"
        )
    if padding_idx is None:
        return -1
    tokens = weight.shape[0]
    if not -tokens <= padding_idx < tokens:
        raise ValueError(f"embedding: padding_idx is {padding_idx}; there are {tokens} tokens")
    return padding_idx + tokens if padding_idx < 0 else padding_idx


@overridable
def embedding(
    input,
    weight,
    padding_idx=None,
    max_norm=None,
    norm_type=2.0,
    scale_grad_by_freq=False,
    sparse=False,
):
    """torch.nn.functional.embedding: rows of weight, the very bytes. The gradient of a row is the
    sum over its token's occurrences in their order. max_norm and sparse are PyTorch's alone."""
    if max_norm is None and not sparse and padding_idx is None:
        y = short(EMBEDDING, weight, input, -1, scale_grad_by_freq)
        if y is not None:
            return y
    reason = unsupported(max_norm, sparse)
    if reason is not None:
        raise NotImplementedError(
            f"embedding: {reason}; for that there is torch.nn.functional.embedding"
        )
    padding_idx = _checked(input, weight, padding_idx)
    return run(
        EMBEDDING,
        {"weight": weight, "index": input},
        padding_idx=padding_idx,
        scale_grad_by_freq=scale_grad_by_freq,
    )
