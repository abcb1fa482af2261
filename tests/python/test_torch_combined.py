# SPDX-License-Identifier: Apache-2.0
"""Every option of the norms beside every other: results and gradients in all their combinations
are those of double precision."""

from itertools import product

import pytest
import torch
from torch_calls import draw

import isobit.torch

EPS = 1e-3
SHAPE = (3, 5, 4, 6)
NORMS = {
    "layer_norm": isobit.torch.dropout_add_layer_norm,
    "rms_norm": isobit.torch.dropout_add_rms_norm,
}
# (of the inputs, of the weights, of y)
DTYPES = {
    "f32": (torch.float32, torch.float32, None),
    "f64": (torch.float64, torch.float64, None),
    "bf16 beside f32": (torch.bfloat16, torch.float32, None),
    "f16 to f32": (torch.float16, torch.float16, torch.float32),
    "f32 to bf16": (torch.float32, torch.float32, torch.bfloat16),
}


def in_double(name, total, dims, weight, bias, zero_centered):
    """y of the sum."""
    over = tuple(range(-dims, 0))
    deviation = total - total.mean(over, keepdim=True) if name == "layer_norm" else total
    y = deviation * (deviation.square().mean(over, keepdim=True) + EPS).rsqrt()
    if weight is not None:
        y = y * (weight + 1 if zero_centered else weight)
    return y if bias is None else y + bias


def close(found, expected, step):
    scale = expected.abs().max().item() + 1
    return torch.allclose(found.double(), expected, rtol=8 * step, atol=8 * step * scale)


@pytest.mark.parametrize("dims", [1, 2])
@pytest.mark.parametrize("p", [0.0, 0.3])
@pytest.mark.parametrize("has_residual", [True, False])
@pytest.mark.parametrize("zero_centered", [False, True])
@pytest.mark.parametrize("dtypes", DTYPES)
@pytest.mark.parametrize("name", NORMS)
def test_options_hold_beside_each_other(name, dtypes, zero_centered, has_residual, p, dims):
    dtype, weight_dtype, out_dtype = DTYPES[dtypes]
    columns = SHAPE[-dims:]
    for has_weight, has_bias in product((True, False), repeat=2):
        if has_bias and name == "rms_norm":
            continue
        x = draw(*SHAPE, dtype=dtype, requires_grad=True)
        residual = draw(*SHAPE, dtype=dtype, seed=1, requires_grad=True) if has_residual else None
        weight = draw(*columns, dtype=weight_dtype, seed=2).requires_grad_() if has_weight else None
        bias = draw(*columns, dtype=weight_dtype, seed=3).requires_grad_() if has_bias else None
        weights = (weight, bias) if name == "layer_norm" else (weight,)
        options = {"p": p, "eps": EPS, "seed": 11}
        y, total = NORMS[name](
            *(x, residual, columns, *weights),
            **options,
            zero_centered=zero_centered and has_weight,
            out_dtype=out_dtype,
        )
        # what is dropped depends on the seed and the place alone
        ones = torch.ones(SHAPE, dtype=torch.float64)
        kept = NORMS[name](ones, None, columns, **options)[1]
        assert (p == 0) == bool((kept == 1).all())

        leaves = [each for each in (x, residual, weight, bias) if each is not None]
        doubles = {id(each): each.detach().double().requires_grad_() for each in leaves}
        x64, residual64, weight64, bias64 = (
            doubles.get(id(each)) for each in (x, residual, weight, bias)
        )
        total64 = x64 * kept if residual is None else x64 * kept + residual64
        assert close(total, total64, torch.finfo(dtype).eps)
        # forward rounds the sum before it is normalised
        total64 = total64 + (total.detach().double() - total64.detach())
        y64 = in_double(name, total64, dims, weight64, bias64, zero_centered)

        assert (y.dtype, total.dtype) == (out_dtype or dtype, dtype)
        assert close(y, y64, torch.finfo(y.dtype).eps)
        along = [draw(*SHAPE, seed=20 + i) for i in range(2)]
        found = torch.autograd.grad(
            (y, total),
            leaves,
            [t.to(each.dtype) for t, each in zip(along, (y, total), strict=True)],
        )
        along = [t.to(each.dtype).double() for t, each in zip(along, (y, total), strict=True)]
        expected = torch.autograd.grad((y64, total64), list(doubles.values()), along)
        for leaf, ours, theirs in zip(leaves, found, expected, strict=True):
            assert ours.dtype == leaf.dtype
            assert close(ours, theirs, torch.finfo(leaf.dtype).eps * 4)
