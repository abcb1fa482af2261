# SPDX-License-Identifier: Apache-2.0
"""Embedding in PyTorch: what it means, PyTorch's own, as the product that it stands for, and by
indexing. Their gradients are autograd's, but for `ordered`, which adds in Isobit's order.

All take an index and weight, and give a row for each element of the index.
"""

import torch
import torch.nn.functional as F

RUN = 16  # occurrences that are added one after the other


def reference(index, weight):
    """In double, element after element."""
    weight = weight.double()
    rows = [weight[i] for i in index.reshape(-1).tolist()]
    return torch.stack(rows or [weight.new_zeros(weight.shape[1])])[: index.numel()].view(
        *index.shape, weight.shape[1]
    )


def standard(index, weight):
    """PyTorch's own. Its gradient adds a token's rows in the table's own type on the processor, and
    on GPUs, unless asked for determinism, in whatever order they come."""
    return F.embedding(index, weight)


def one_hot(index, weight):
    """The product that an embedding stands for, and with which its gradient is one, too."""
    return F.one_hot(index.long(), weight.shape[0]).to(weight.dtype) @ weight


def indexed(index, weight):
    """By indexing, whose gradient is index_put with accumulation."""
    return weight[index.long()]


class _Ordered(torch.autograd.Function):
    @staticmethod
    def forward(ctx, index, weight):
        ctx.save_for_backward(index)
        ctx.tokens = weight.shape[0]
        return weight[index.long()]

    @staticmethod
    def backward(ctx, grad):
        (index,) = ctx.saved_tensors
        return None, table_gradient(grad, index, ctx.tokens)


def table_gradient(grad, index, tokens):
    """The sum of each token's rows in Isobit's order, in float beside 16 bits: positions sorted by
    token, runs of RUN one after the other, and runs by adjacent pairs, all tokens at a time."""
    real = torch.promote_types(grad.dtype, torch.float32)
    index = index.reshape(-1).long()
    rows = grad.reshape(index.numel(), grad.shape[-1]).to(real)
    counts = index.bincount(minlength=tokens)
    order = index.argsort(stable=True)
    begins = counts.cumsum(0) - counts
    runs = (counts + RUN - 1) // RUN
    sums = rows.new_zeros(int(runs.sum()), rows.shape[1])
    of_run = torch.arange(tokens).repeat_interleave(runs)
    first = begins[of_run] + RUN * (torch.arange(len(sums)) - (runs.cumsum(0) - runs)[of_run])
    for i in range(RUN):
        there = first + i < (begins + counts)[of_run]
        sums[there] = sums[there] + rows[order[first[there] + i]]
    while len(sums) > 0 and int(runs.max()) > 1:
        place = torch.arange(len(sums)) - (runs.cumsum(0) - runs)[of_run]
        left = place % 2 == 0
        paired = left & (place + 1 < runs[of_run])
        sums[paired] = sums[paired] + sums[paired.nonzero().squeeze(1) + 1]
        sums, of_run, runs = sums[left], of_run[left], (runs + 1) // 2
    table = rows.new_zeros(tokens, rows.shape[1])
    table[of_run] = sums
    return table.to(grad.dtype)


def ordered(index, weight):
    """Indexing, with a gradient that has Isobit's bits."""
    return _Ordered.apply(index, weight)
