# SPDX-License-Identifier: Apache-2.0
"""The records of embedding and the gradient of its table. Both are linear, and each is made of the
other: derivatives of every order are these two operators."""

import torch

from isobit.torch.records import SUM, Axis, Operator


def _gradients(call, _wanted, grad):
    tokens = call.weight.shape[0]
    return {
        "weight": EMBEDDING_BACKWARD(
            grad, call.index, tokens, call.padding_idx, call.scale_grad_by_freq
        )
    }


def _axes(call):
    for dim in range(call.index.ndim):
        yield Axis({"index": dim}, (dim,))
    yield Axis({"weight": 1}, (call.index.ndim,))


EMBEDDING = Operator(
    "embedding",
    lambda call: call.weight.new_empty((*call.index.shape, call.weight.shape[1])),
    rows=("index",),
    axes=_axes,
    keeps=("index",),
    knows=("weight",),
    gradients=_gradients,
    tangents=lambda call, along: EMBEDDING(along.weight, call.index),
)


def _spread(call, grad):
    """The other way: what each row of grad_y is given of a gradient of grad_weight."""
    tokens = torch.arange(call.tokens, device=grad.device).unsqueeze(-1)
    if call.scale_grad_by_freq:
        count = torch.zeros_like(tokens, dtype=torch.promote_types(grad.dtype, torch.float32))
        flat = call.index.reshape(-1, 1)
        count = count.scatter_add(0, flat.long(), torch.ones_like(flat, dtype=count.dtype))
        grad = (grad / count.clamp(min=1)).to(grad.dtype)
    grad = grad.masked_fill(tokens == call.padding_idx, 0)
    return EMBEDDING(grad, call.index)


def _backward_axes(call):
    rows = call.index.ndim
    yield Axis({"grad_y": rows}, (1,))
    if not call.scale_grad_by_freq:
        for dim in range(rows):
            yield Axis({"grad_y": dim, "index": dim}, (SUM,))


EMBEDDING_BACKWARD = Operator(
    "embedding_backward",
    lambda call: call.grad_y.new_empty((call.tokens, call.grad_y.shape[-1])),
    outputs=("grad_weight",),
    axes=_backward_axes,
    keeps=("index",),
    gradients=lambda call, _wanted, grad: {"grad_y": _spread(call, grad)},
    tangents=lambda call, along: EMBEDDING_BACKWARD(
        along.grad_y, call.index, call.tokens, call.padding_idx, call.scale_grad_by_freq
    ),
)

RECORDS = (EMBEDDING, EMBEDDING_BACKWARD)
