# SPDX-License-Identifier: Apache-2.0
"""The PyTorch versions of interpolation mean what the library computes, as PyTorch's own does."""

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from pytorch_draws import REALS, draw, same_bits, worst_c  # noqa: E402

import isobit.torch  # noqa: E402
from isobit.ops.interpolate import pytorch as interpolate  # noqa: E402

WAYS = (interpolate.standard, interpolate.as_products, interpolate.by_elements)
MODES = [
    *(("nearest", False), ("nearest_exact", False)),
    *((mode, aligned) for mode in ("linear", "cubic") for aligned in (False, True)),
]
SIZES = [(14, 24), (5, 7), (1, 13)]


def library(x, size, mode, aligned):
    more = {} if mode.startswith("nearest") else {"align_corners": aligned}
    names = {"nearest_exact": "nearest-exact", "linear": "bilinear", "cubic": "bicubic"}
    return isobit.torch.interpolate(x, size, mode=names.get(mode, mode), **more)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(("mode", "aligned"), MODES)
@pytest.mark.parametrize("dtype", REALS)
def test_each_way_and_its_gradient_agree_with_the_library(dtype, mode, aligned, size):
    x = draw(2, 3, 7, 12, dtype=dtype).requires_grad_()
    y = library(x, size, mode, aligned)
    truth = interpolate.reference(x, size, mode, aligned)
    if mode.startswith("nearest"):
        assert same_bits(truth.to(dtype).detach(), y.detach())
    elif dtype in (torch.float32, torch.bfloat16):
        sides = zip(x.shape[2:], size, strict=True)
        down, across = (interpolate.matrix(*each, mode, aligned).abs() for each in sides)
        magnitudes = down @ x.detach().double().abs() @ across.t()
        assert worst_c(y.detach(), truth.detach(), magnitudes) <= (8 if mode == "linear" else 16)
    eps = torch.finfo(dtype).eps
    near = {"rtol": 32 * eps, "atol": 32 * eps}
    along = draw(*y.shape, dtype=dtype)
    (expected,) = torch.autograd.grad(y, x, along)
    for way in WAYS:
        found = way(x, size, mode, aligned)
        assert found.dtype == dtype
        torch.testing.assert_close(found, y, **near)
        torch.testing.assert_close(torch.autograd.grad(found, x, along)[0], expected, **near)
