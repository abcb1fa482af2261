# SPDX-License-Identifier: Apache-2.0
"""The versions of norms of channels in plain PyTorch give what their formulas say, and Isobit."""

import pytest
import torch

import isobit.torch
from isobit.ops.batch_norm import pytorch as batch_norm
from isobit.ops.group_norm import pytorch as group_norm

SHAPES = [(5, 6), (3, 6, 7), (2, 6, 4, 5)]


def drawn(*shape, seed=1):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=torch.float64)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("groups", [1, 3])
def test_group_norms_are_those_of_the_definition(shape, groups):
    x, weight, bias = drawn(*shape), drawn(6, seed=2), drawn(6, seed=3)
    for weights in ((None, None), (weight, bias), (weight, None)):
        y, mean, rstd = group_norm.reference(x, groups, *weights)
        assert mean.shape == rstd.shape == (shape[0], groups)
        for version in (group_norm.textbook, group_norm.standard, isobit.torch.group_norm):
            torch.testing.assert_close(version(x, groups, *weights), y)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("training", [True, False])
def test_batch_norms_are_those_of_the_definition(shape, training):
    x, weight, bias = drawn(*shape), drawn(6, seed=2), drawn(6, seed=3)
    mean, var = drawn(6, seed=4), drawn(6, seed=5).square() + 0.5
    for weights in ((None, None), (weight, bias), (weight, None)):
        more = (*weights, training, 0.3)
        expected = batch_norm.reference(x, mean, var, *more)
        for version in (batch_norm.textbook, batch_norm.standard):
            torch.testing.assert_close(version(x, mean, var, *more), expected)
        kept = mean.clone(), var.clone()
        y = isobit.torch.batch_norm(x, *kept, *more)
        torch.testing.assert_close((y, *kept), expected)
