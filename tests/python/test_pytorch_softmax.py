# SPDX-License-Identifier: Apache-2.0
"""softmax's PyTorch versions mean what the library computes, and PyTorch's own agrees with it."""

import itertools

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from pytorch_draws import REALS, SHAPES, draw, same_bits, worst_c  # noqa: E402

import isobit.numpy  # noqa: E402
from isobit.ops.softmax import pytorch as softmax  # noqa: E402

LIBRARY = {False: isobit.numpy.softmax, True: isobit.numpy.log_softmax}
WAYS = (softmax.standard, softmax.textbook, softmax.online, softmax.custom)
OPTIONS = list(itertools.product((False, True), (1.0, -0.7)))  # log, scale
ROWS = 4  # of those with masks; the last has no element


def masked():
    """x with what a mask has to take away, and the mask, of rows of more than two pieces."""
    x, mask = draw(ROWS, 300, dtype=torch.float64), draw(ROWS, 300, seed=1) > -0.5
    mask[1, : softmax.PIECE], mask[-1] = False, False  # a first piece, and a row
    x[:, ::2] = torch.where(mask[:, ::2], x[:, ::2], torch.nan)
    x[:, 1::2] = torch.where(mask[:, 1::2], x[:, 1::2], torch.inf)
    return x, mask


@pytest.mark.parametrize(("log", "scale"), OPTIONS)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", REALS)
def test_each_way_to_divide_a_row_agrees_with_the_library(dtype, shape, log, scale):
    x = 3 * draw(*shape, dtype=dtype)
    y = LIBRARY[log](x, scale=scale)
    truth = softmax.reference(x, scale=scale, log=log)
    if dtype in (torch.float32, torch.bfloat16):  # f16 has subnormal results here
        assert worst_c(y, truth, 1 + truth.abs() if log else truth) <= 8
    tolerance = {"rtol": 32 * torch.finfo(dtype).eps, "atol": 8 * torch.finfo(dtype).eps}
    for way in WAYS:
        found = way(x, scale=scale, log=log)
        assert found.dtype == dtype
        torch.testing.assert_close(found, y, **tolerance)


@pytest.mark.parametrize(("log", "scale"), OPTIONS)
def test_what_a_mask_takes_away_is_not_there(log, scale):
    x, mask = masked()
    y = LIBRARY[log](x, mask=mask, scale=scale)
    nothing = -torch.inf if log else 0
    assert y[~mask].eq(nothing).all() and y[mask].isfinite().all()
    for way in (softmax.reference, *WAYS):
        found = way(x, mask, scale=scale, log=log)
        torch.testing.assert_close(found[:-1], y[:-1])
        # PyTorch's own divides nothing by nothing.
        without = found[-1]
        assert (without.isnan() if way is softmax.standard else without == nothing).all()


@pytest.mark.parametrize(("log", "scale"), OPTIONS)
@pytest.mark.parametrize("with_mask", [False, True])
def test_gradients_by_formula_are_the_derivatives_of_what_a_textbook_writes(with_mask, log, scale):
    x, mask = masked()
    x, mask = (x, mask) if with_mask else (x.nan_to_num(0, 0), None)
    x.requires_grad_()
    along = draw(*x.shape, dtype=torch.float64, seed=2)
    if with_mask and log:  # -inf has no derivative
        along[~mask] = torch.nan
    given = {"scale": scale, "log": log}
    custom = softmax.custom(x, mask, **given)
    (expected,) = torch.autograd.grad(custom, x, along)
    assert expected.isfinite().all()
    by_formula = softmax.reference_backward(along, custom.detach(), mask, **given)
    torch.testing.assert_close(by_formula, expected)
    rows = slice(None, -1) if with_mask else slice(None)  # a textbook's last is NaN
    for way in (softmax.standard, softmax.textbook):
        part, part_mask = x[rows], None if mask is None else mask[rows]
        y = way(part, part_mask, **given)
        flow = along[rows]
        if part_mask is not None:
            y, flow = y.masked_select(part_mask), flow[part_mask]
        (found,) = torch.autograd.grad(y, x, flow)
        torch.testing.assert_close(found[rows], expected[rows])


@pytest.mark.parametrize("log", LIBRARY)
def test_a_gradient_of_nan_reaches_its_row_but_nothing_that_a_mask_takes_away(log):
    x, mask = masked()
    along = torch.full_like(x, torch.nan)
    y = softmax.reference(x, mask, log=log)
    grad_x = softmax.reference_backward(along, y, mask, log=log)
    assert grad_x[mask].isnan().all() and grad_x[~mask].eq(0).all()


@pytest.mark.parametrize("log", LIBRARY)
def test_a_custom_function_passes_pytorchs_check_of_gradients(log):
    x = draw(3, 7, dtype=torch.float64).requires_grad_()
    assert torch.autograd.gradcheck(lambda x: softmax.custom(x, scale=0.6, log=log), (x,))
    narrow = draw(3, 7, dtype=torch.bfloat16).requires_grad_()
    (gradient,) = torch.autograd.grad(softmax.custom(narrow, log=log).sum(), narrow)
    assert gradient.dtype == torch.bfloat16


def test_what_all_elements_have_in_common_costs_a_textbook_digits_and_the_library_none():
    """A difference of floats around 10^6 is exact, but its product with the scale is not."""
    x = (draw(3, 400) * 0.01).add(1e6)
    truth = softmax.reference(x, scale=37.3)
    assert worst_c(isobit.numpy.softmax(x, scale=37.3), truth, truth) <= 8
    for way in WAYS:
        assert worst_c(way(x, scale=37.3), truth, truth) > 1000


@pytest.mark.parametrize("log", LIBRARY)
def test_a_running_largest_element_takes_pieces_in_any_order(log):
    """Of rising elements, every piece raises it; of falling ones, the first has it."""
    rising = torch.linspace(-900, 900, 5 * softmax.PIECE, dtype=torch.float64).repeat(2, 1)
    rising[1, : softmax.PIECE] = -torch.inf
    y = softmax.online(rising, log=log)
    torch.testing.assert_close(y, softmax.reference(rising, log=log))
    torch.testing.assert_close(softmax.online(rising.flip(-1), log=log), y.flip(-1))
    nothing = rising[:, :0]
    for way in (softmax.reference, softmax.online, softmax.custom, softmax.standard):
        assert same_bits(way(nothing, log=log), nothing)
