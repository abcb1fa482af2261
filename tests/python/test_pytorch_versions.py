# SPDX-License-Identifier: Apache-2.0
"""The operators' PyTorch versions mean what the library computes, and PyTorch's agree with it."""

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

import isobit.numpy  # noqa: E402
from isobit.ops.elementwise import pytorch as elementwise  # noqa: E402
from isobit.ops.layernorm import pytorch as layernorm  # noqa: E402

REALS = (torch.float32, torch.float16, torch.bfloat16, torch.float64)
SHAPES = ((3, 1), (5, 64), (2, 4, 513), (33, 100))


def draw(*shape, dtype=torch.float32, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64).to(dtype)


def same_bits(a, b):
    """NaN counts as equal: only the library has but one."""
    return a.dtype == b.dtype and torch.equal(*(t.nan_to_num(nan=12345.0) for t in (a, b)))


def worst_c(actual, truth, scale):
    """The largest C of docs/numerics.md, without what it says of subnormal and infinite numbers."""
    apart = torch.zeros_like(truth)
    if actual.itemsize == 2:
        digits = 11 if actual.dtype == torch.float16 else 8
        apart = torch.ldexp(torch.ones_like(truth), torch.frexp(truth).exponent - digits - 1)
    unit = 2.0**-53 if actual.dtype == torch.float64 else 2.0**-24
    return float(((actual.double() - truth).abs() - apart).clamp(min=0).div(unit * scale).max())


def operands(dtype):
    if dtype == torch.int32:
        ends = torch.tensor([2**31 - 1, -(2**31), -1, 0], dtype=dtype)
        return ends.repeat(4), ends.repeat_interleave(4)
    ends = torch.tensor([0.0, -0.0, 1e-45, 6e-8, 1.0, 3e38, float("inf"), float("nan")])
    x, residual = ends.repeat(8), ends.repeat_interleave(8)
    drawn = draw(2, 400, dtype=dtype) * 100
    return torch.cat([x.to(dtype), drawn[0]]), torch.cat([residual.to(dtype), drawn[1]])


@pytest.mark.parametrize("dtype", [*REALS, torch.int32])
def test_each_way_to_add_gives_the_bits_of_the_library(dtype):
    x, residual = operands(dtype)
    for added, expected in (
        (residual, isobit.numpy.add(x, residual)),
        (None, isobit.numpy.increment(x)),
    ):
        assert same_bits(elementwise.reference(x, added), expected)
        assert same_bits(elementwise.standard(x, added), expected)
        assert same_bits(elementwise.fused(x, added, out=torch.empty_like(x)), expected)


def test_a_fused_sum_may_take_the_place_of_its_operand():
    x, residual = operands(torch.float32)
    expected = isobit.numpy.add(x, residual)
    assert elementwise.fused(x, residual, out=x) is x
    assert same_bits(x, expected)


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
