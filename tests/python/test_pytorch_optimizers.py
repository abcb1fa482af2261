# SPDX-License-Identifier: Apache-2.0
"""The versions of steps and norms in plain PyTorch give what their formulas say, and so do ours."""

import numpy as np
import pytest
import torch

import isobit.numpy
from isobit.ops.adam import pytorch as adam
from isobit.ops.lion import pytorch as lion
from isobit.ops.sgd import pytorch as sgd
from isobit.ops.vector_norm import pytorch as vector_norm


def drawn(*shape, seed=0, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=dtype)


def states(count):
    return [drawn(3, 40, seed=seed) for seed in range(count)]


def close(found, expected):
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(torch.as_tensor(one), other)


@pytest.mark.parametrize("decoupled", [False, True])
@pytest.mark.parametrize("amsgrad", [False, True])
@pytest.mark.parametrize("maximize", [False, True])
def test_steps_of_adam(decoupled, amsgrad, maximize):
    param, grad, average, square, largest = states(5)
    given = [param, grad, average, square.abs()] + [largest.abs()] * amsgrad
    options = {"step": 7, "lr": 0.1, "eps": 1e-3, "weight_decay": 0.2}
    options |= {"decoupled": decoupled, "maximize": maximize}
    expected = adam.reference(*given, **options)
    assert len(expected) == len(given) - 1
    close(adam.standard(*given, **options), expected)
    close(adam.fused(*given, **options), expected)
    close(isobit.numpy.adam(*(each.numpy() for each in given), **options), expected)


@pytest.mark.parametrize("nesterov", [False, True])
@pytest.mark.parametrize("first", [False, True])
def test_steps_of_sgd(nesterov, first):
    param, grad, buffer = states(3)
    given = [param, grad] if first else [param, grad, buffer]
    options = {"lr": 0.1, "momentum": 0.8, "dampening": 0.3, "weight_decay": 0.2}
    options |= {"nesterov": nesterov, "maximize": True}
    expected = sgd.reference(*given, **options)
    close(sgd.standard(*given, **options), expected)
    close(isobit.numpy.sgd(*(each.numpy() for each in given), **options), expected)
    plain = {"lr": 0.1, "weight_decay": 0.2}
    (moved,) = sgd.reference(param, grad, **plain)
    close([isobit.numpy.sgd(param.numpy(), grad.numpy(), **plain)], [moved])


def test_steps_of_sgd_in_place():
    param, grad, buffer = states(3)
    options = {"lr": 0.1, "momentum": 0.8, "dampening": 0.3}
    expected = sgd.reference(param, grad, buffer, **options)
    close(sgd.fused(param.clone(), grad, buffer.clone(), **options), expected)


def test_steps_of_lion():
    param, grad, average = states(3)
    options = {"lr": 0.1, "beta1": 0.7, "beta2": 0.95, "weight_decay": 0.2}
    expected = lion.reference(param, grad, average, **options)
    close(lion.standard(param, grad, average, **options), expected)
    close(lion.fused(param.clone(), grad, average.clone(), **options), expected)
    betas = (options.pop("beta1"), options.pop("beta2"))
    given = (each.numpy() for each in (param, grad, average))
    close(isobit.numpy.lion(*given, betas=betas, **options), expected)


@pytest.mark.parametrize("order", vector_norm.ORDERS)
def test_norms_of_rows(order):
    x = drawn(4, 1300)
    expected = vector_norm.reference(x, order=order)
    torch.testing.assert_close(vector_norm.standard(x, order=order), expected)
    torch.testing.assert_close(vector_norm.in_pieces(x, order=order), expected)
    ours = isobit.numpy.vector_norm(x.numpy(), vector_norm.ORDERS[order])
    np.testing.assert_allclose(ours, expected.numpy(), rtol=1e-14)
    with pytest.raises(NotImplementedError, match="ord is 3"):
        isobit.numpy.vector_norm(x.numpy(), 3)
