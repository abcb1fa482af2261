# SPDX-License-Identifier: Apache-2.0
"""The norms' versions in PyTorch against the library, and the library against their references."""

import pytest

torch = pytest.importorskip("torch")

from pytorch_draws import REALS, SHAPES, draw, worst_c  # noqa: E402

import isobit.numpy  # noqa: E402
from isobit.ops.layernorm import pytorch as layernorm  # noqa: E402
from isobit.ops.rmsnorm import pytorch as rmsnorm  # noqa: E402


def forward_truth(x, weight, bias):
    """y in double, and the scale of its C."""
    xhat, _, _ = layernorm.reference(x)
    scale = weight.double().abs() * (1 + xhat.abs()) + bias.double().abs()
    return layernorm.reference(x, weight, bias)[0], scale


def backward_truth(grad_y, x, weight):
    """Each gradient in double, and the scale of its C."""
    xhat, _, rstd = layernorm.reference(x)
    xhat, dy, rows = xhat.abs(), grad_y.double().abs(), tuple(range(x.dim() - 1))
    g = dy * weight.double().abs()
    mean_g, mean_gx = g.mean(-1, keepdim=True), (g * xhat).mean(-1, keepdim=True)
    scale = rstd.unsqueeze(-1) * (g + mean_g + xhat * mean_gx)
    scales = scale, (dy * (1 + xhat)).sum(rows), dy.sum(rows)
    return zip(layernorm.reference_backward(grad_y, x, weight), scales, strict=True)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", REALS[:3])
def test_the_library_keeps_its_gate_against_the_reference(shape, dtype):
    x, grad_y = draw(*shape, dtype=dtype), draw(*shape, dtype=dtype, seed=1)
    weight, bias = draw(shape[-1], dtype=dtype, seed=2), draw(shape[-1], dtype=dtype, seed=3)
    y = isobit.numpy.layer_norm(x, shape[-1], weight, bias)
    assert worst_c(y, *forward_truth(x, weight, bias)) <= 8
    gradients = isobit.numpy.layer_norm_backward(grad_y, x, shape[-1], weight)
    for gradient, truth in zip(gradients, backward_truth(grad_y, x, weight), strict=True):
        assert worst_c(gradient, *truth) <= 8


@pytest.mark.parametrize("shape", SHAPES[1:])
def test_pytorchs_versions_keep_it_too_on_plain_rows_of_floats(shape):
    x, grad_y = draw(*shape), draw(*shape, seed=1)
    module = layernorm.Standard(shape[-1])
    for parameter in module.parameters():
        torch.nn.init.normal_(parameter, generator=torch.Generator().manual_seed(2))
    weight, bias = module.weight.detach(), module.bias.detach()
    for y in (module(x).detach(), layernorm.fused(x, weight, bias)):
        assert worst_c(y, *forward_truth(x, weight, bias)) <= 8
    gradients = layernorm.fused_backward(grad_y, x, weight)
    for gradient, truth in zip(gradients, backward_truth(grad_y, x, weight), strict=True):
        assert worst_c(gradient, *truth) <= 8


def test_the_fused_operator_does_without_weights():
    x, grad_y = draw(6, 300), draw(6, 300, seed=1)
    torch.testing.assert_close(layernorm.fused(x), layernorm.reference(x)[0].float())
    truths = layernorm.reference_backward(grad_y, x)
    for gradient, truth in zip(layernorm.fused_backward(grad_y, x), truths, strict=True):
        torch.testing.assert_close(gradient, truth.float(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("affine", [True, False])
def test_the_formulas_are_the_derivatives_of_what_a_textbook_writes(affine):
    module = layernorm.Standard(7, elementwise_affine=affine).double()
    x = draw(3, 4, 7, dtype=torch.float64).requires_grad_()
    grad_y = draw(3, 4, 7, dtype=torch.float64, seed=1)
    if affine:
        torch.nn.init.normal_(module.weight, generator=torch.Generator().manual_seed(2))
    module(x).backward(grad_y)
    grad_x, grad_weight, grad_bias = layernorm.reference_backward(grad_y, x, module.weight)
    torch.testing.assert_close(x.grad, grad_x)
    if affine:
        torch.testing.assert_close(module.weight.grad, grad_weight)
        torch.testing.assert_close(module.bias.grad, grad_bias)


@pytest.mark.parametrize("options", [{}, {"bias": False}, {"elementwise_affine": False}])
def test_the_textbook_module_takes_the_place_of_pytorchs(options):
    ours, theirs = layernorm.Standard(9, 1e-3, **options), torch.nn.LayerNorm(9, 1e-3, **options)
    for parameter in theirs.parameters():
        torch.nn.init.normal_(parameter, generator=torch.Generator().manual_seed(2))
    ours.load_state_dict(theirs.state_dict())
    x = draw(5, 9)
    torch.testing.assert_close(ours(x), theirs(x))


def rms_truths(grad_y, x, weight):
    """y and the gradients in double, each with the scale of its C."""
    xhat, rstd = rmsnorm.reference(x)
    size, dy, rows = xhat.abs(), grad_y.double().abs(), tuple(range(x.dim() - 1))
    g = dy * weight.double().abs()
    scale = rstd.unsqueeze(-1) * (g + size * (g * size).mean(-1, keepdim=True))
    scales = weight.double().abs() * size, scale, (dy * size).sum(rows)
    truths = rmsnorm.reference(x, weight)[0], *rmsnorm.reference_backward(grad_y, x, weight)
    return list(zip(truths, scales, strict=True))


def rms_function(x, weight=None):
    return rmsnorm.Function.apply(x, weight, 1e-5)


def by_pytorch(norm, grad_y, x, weight):
    given = x.clone().requires_grad_(), weight.clone().requires_grad_()
    y = norm(*given)
    return y.detach(), *torch.autograd.grad(y, given, grad_y)


@pytest.mark.parametrize("shape", SHAPES[1:])
@pytest.mark.parametrize("dtype", REALS)
def test_rmsnorm_in_the_library_and_in_pytorch_keeps_its_gate(shape, dtype):
    x, grad_y = draw(*shape, dtype=dtype), draw(*shape, dtype=dtype, seed=1)
    weight = draw(shape[-1], dtype=dtype, seed=2)
    truths = rms_truths(grad_y, x, weight)
    y = isobit.numpy.rms_norm(x, shape[-1], weight, eps=1e-5)
    ways = [(y, *isobit.numpy.rms_norm_backward(grad_y, x, shape[-1], weight, eps=1e-5))]
    if dtype == torch.float32:
        ways += [by_pytorch(way, grad_y, x, weight) for way in (rmsnorm.standard, rms_function)]
    for way in ways if dtype != torch.float64 else ():  # the reference is in double, too
        for found, truth in zip(way, truths, strict=True):
            assert worst_c(found, *truth) <= 8
    for found, (truth, _) in zip(ways[0], truths, strict=True) if dtype == torch.float64 else ():
        torch.testing.assert_close(found, truth)


def test_rmsnorms_function_is_right_without_a_weight_in_16_bits_and_once():
    x = draw(3, 7, dtype=torch.float64).requires_grad_()
    weight = draw(7, dtype=torch.float64, seed=2).requires_grad_()
    for given in ((x, weight), (x,)):
        assert torch.autograd.gradcheck(rms_function, given)
    narrow = x.detach().bfloat16()
    y = rmsnorm.Function.apply(narrow, weight.detach().float(), 0.1)
    truth = rmsnorm.reference(narrow, weight.detach().float(), 0.1)[0]
    assert y.dtype == torch.bfloat16
    torch.testing.assert_close(y.double(), truth, rtol=2.0**-8, atol=0)
    (grad_x,) = torch.autograd.grad(rms_function(x).square().sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        grad_x.sum().backward()
