# SPDX-License-Identifier: Apache-2.0
"""The record of dropout, whose derivative drops the same elements: the mask is made again from the
seed."""

from isobit.torch.records import Operator


def _gradients(call, _wanted, grad_y):
    return {"x": DROPOUT(grad_y, call.seed, call.p)}


def _tangents(call, along):
    return DROPOUT(along.x, call.seed, call.p)


DROPOUT = Operator(
    "dropout",
    lambda call: call.x.new_empty(call.x.shape),
    host=("seed",),
    keeps=("seed",),
    gradients=_gradients,
    tangents=_tangents,
)
RECORDS = (DROPOUT,)
