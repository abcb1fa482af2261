# SPDX-License-Identifier: Apache-2.0
"""The PyTorch versions of pooling mean what the library computes, and PyTorch's own agrees."""

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from pytorch_draws import REALS, draw, same_bits, worst_c  # noqa: E402

import isobit.numpy  # noqa: E402
import isobit.torch  # noqa: E402
from isobit.ops.pool2d import pytorch as pool2d  # noqa: E402

WINDOWS = [((3, 3), (2, 2), (1, 1)), ((2, 3), (1, 2), (0, 1)), ((4, 1), (4, 1), (0, 0))]
WAYS = (pool2d.standard, pool2d.tap_by_tap, pool2d.custom)


def library(x, kernel, stride, padding, reduction):
    if reduction == "max":
        return isobit.numpy.max_pool2d(x, kernel, stride, padding)
    return isobit.numpy.avg_pool2d(x, kernel, stride, padding, count_include_pad=False)


def gradient(way, x, along, *windows):
    leaf = x.clone().requires_grad_()
    return torch.autograd.grad(way(leaf, *windows), leaf, along)[0]


@pytest.mark.parametrize("windows", WINDOWS)
@pytest.mark.parametrize("dtype", REALS)
def test_each_way_to_find_the_largest_has_the_bits_of_the_library(dtype, windows):
    x = draw(2, 3, 9, 12, dtype=dtype)
    x[0, 1, 4:6, 3:8] = torch.nan
    y = library(x, *windows, "max")
    assert same_bits(pool2d.reference(x, *windows, "max").to(dtype), y)
    assert all(same_bits(way(x, *windows, "max"), y) for way in WAYS)


@pytest.mark.parametrize("windows", WINDOWS)
@pytest.mark.parametrize("dtype", REALS)
def test_each_way_to_average_agrees_with_the_library(dtype, windows):
    x = draw(2, 3, 9, 12, dtype=dtype)
    y = library(x, *windows, "average")
    assert same_bits(pool2d.tap_by_tap(x, *windows, "average"), y)
    truth = pool2d.reference(x, *windows, "average")
    if dtype in (torch.float32, torch.bfloat16):
        magnitudes = pool2d.reference(x.abs(), *windows, "average")
        assert worst_c(y, truth, magnitudes) <= 8 * 3
    near = {"rtol": 8 * torch.finfo(dtype).eps, "atol": 8 * torch.finfo(dtype).eps}
    for way in WAYS:
        found = way(x, *windows, "average")
        assert found.dtype == dtype
        torch.testing.assert_close(found, y, **near)


@pytest.mark.parametrize("windows", WINDOWS)
@pytest.mark.parametrize("reduction", ["max", "average"])
@pytest.mark.parametrize("dtype", REALS)
def test_each_gradient_agrees_with_the_library(dtype, reduction, windows):
    x = draw(2, 3, 9, 12, dtype=dtype)

    def ours(x, *windows):
        kernel, stride, padding, _ = windows
        if reduction == "max":
            return isobit.torch.max_pool2d(x, kernel, stride, padding)
        return isobit.torch.avg_pool2d(x, kernel, stride, padding, count_include_pad=False)

    along = draw(*library(x, *windows, reduction).shape, dtype=dtype, seed=1)
    expected = gradient(ours, x, along, *windows, reduction)
    truth = pool2d.reference_backward(along, x, *windows, reduction)
    near = {"rtol": 4 * torch.finfo(dtype).eps, "atol": 32 * torch.finfo(dtype).eps}
    torch.testing.assert_close(expected, truth.to(dtype), **near)
    for way in WAYS:
        if reduction == "max" and way is pool2d.tap_by_tap:
            continue  # which of equal elements PyTorch's where gives to is its own
        found = gradient(way, x, along, *windows, reduction)
        torch.testing.assert_close(found, expected, **near)
