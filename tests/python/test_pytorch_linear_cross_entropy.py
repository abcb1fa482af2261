# SPDX-License-Identifier: Apache-2.0
"""The ways of writing linear_cross_entropy in PyTorch, which Isobit's is shown beside."""

import pytest
import torch

from isobit.ops.linear_cross_entropy import pytorch


def drawn(*shape, seed):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("way", [pytorch.standard, pytorch.pieces])
def test_each_way_is_the_definition_with_its_gradients(way):
    x, weight, bias = drawn(1100, 6, seed=1), drawn(9, 6, seed=2), drawn(9, seed=3)
    target = torch.arange(1100) % 9
    target[7] = 4
    given = tuple(each.requires_grad_() for each in (x, weight, bias))
    options = {"ignore_index": 4, "label_smoothing": 0.1}
    into = drawn(1100, seed=4)
    found = []
    for function in (way, pytorch.reference):
        loss = function(*given, target, drawn(9, seed=5).abs(), **options)
        found.append((loss, *torch.autograd.grad(loss, given, into)))
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other)
