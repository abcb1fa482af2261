# SPDX-License-Identifier: Apache-2.0
"""Cross entropy in PyTorch and NumPy: PyTorch's own samples, derivatives of every order, vmap,
the mean's divisor, and rows on which others lose their digits."""

import itertools

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import isobit.numpy
import isobit.torch

REALS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
CROSS_ENTROPY = torch.ops.isobit.cross_entropy


def drawn(*shape, dtype=torch.float64, seed=1):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=torch.float64).mul(2).to(dtype)


def classes(*shape, of=5, seed=2):
    return torch.randint(of, shape, generator=torch.Generator().manual_seed(seed))


def z_term(x, target, weight, z, ignore_index=-100):
    """What z_loss adds to each row, by its definition; classes are the last dimension."""
    there = target != ignore_index
    own = torch.ones(x.shape[-1], dtype=x.dtype) if weight is None else weight
    own = own[target.masked_fill(~there, 0)]
    return (z * own * x.logsumexp(-1).square()).masked_fill(~there, 0)


@pytest.mark.parametrize("dtype", REALS)
def test_values_and_gradients_of_pytorchs_samples(internal, dtype):
    info = internal.operators["nn.functional.cross_entropy"]
    seen = set()
    for sample in info.sample_inputs("cpu", dtype, requires_grad=True):
        x, (target, *rest) = sample.input, sample.args
        if target.is_floating_point():
            with pytest.raises(NotImplementedError, match=r"torch\.nn\.functional\.cross_entropy"):
                isobit.torch.cross_entropy(x, target, *rest, **sample.kwargs)
            continue
        seen |= {x.dim(), *sample.kwargs}
        y, reference = (
            f(x, target, *rest, **sample.kwargs)
            for f in (isobit.torch.cross_entropy, F.cross_entropy)
        )
        torch.testing.assert_close(y, reference)
        into = torch.ones_like(y)
        found, expected = (torch.autograd.grad(each, x, into) for each in (y, reference))
        torch.testing.assert_close(found, expected)
    assert {2, 3, "weight", "reduction", "ignore_index"} <= seen


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize("shape", [(5,), (7, 5), (2, 5, 3), (2, 5, 3, 4)])
def test_every_option_beside_the_definition(shape, reduction):
    x = drawn(*shape)
    dim = min(len(shape) - 1, 1)
    target = classes(*shape[:dim], *shape[dim + 1 :])
    if target.dim():
        target.view(-1)[0] = 3
    rows = x.movedim(dim, -1)
    weights = drawn(5, seed=3).abs()
    for weight, smoothing, z in itertools.product((None, weights), (0.0, 0.3, 1.0), (0.0, 0.2)):
        options = {"label_smoothing": smoothing, "ignore_index": 3, "reduction": reduction}
        found = isobit.torch.cross_entropy(x, target, weight, z_loss=z, **options)
        added = z_term(rows, target, weight, z, 3)
        there = target[target != 3]
        if reduction == "sum":
            added = added.sum()
        elif reduction == "mean":
            added = added.sum() / (there.numel() if weight is None else weight[there].sum())
        expected = F.cross_entropy(x, target, weight, **options) + added
        torch.testing.assert_close(found, expected, equal_nan=True)


def test_the_mean_of_nothing_is_nan_and_ignored_rows_have_no_part_in_it():
    x, target = drawn(4, 5), torch.full((4,), -100)
    assert isobit.torch.cross_entropy(x, target).isnan()
    assert isobit.torch.cross_entropy(x, target, reduction="sum") == 0
    assert isobit.torch.cross_entropy(drawn(0, 5), target[:0]).isnan()
    target[1] = 2
    x[[0, 2, 3]] = torch.nan
    x.requires_grad_()
    loss = isobit.torch.cross_entropy(x, target)
    assert loss == isobit.torch.cross_entropy(x[1], target[1])
    (grad,) = torch.autograd.grad(loss, x)
    assert not grad[[0, 2, 3]].any()
    assert grad[1].isfinite().all()


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize("weighted", [False, True])
def test_derivatives_of_both_orders(weighted, reduction):
    x = drawn(4, 5).requires_grad_()
    target = torch.tensor([1, 4, -100, 0])
    weight = drawn(5, seed=3).abs() if weighted else None

    def losses(x):
        return isobit.torch.cross_entropy(
            x, target, weight, reduction=reduction, label_smoothing=0.2, z_loss=0.1
        )

    assert torch.autograd.gradcheck(losses, (x,), check_forward_ad=True)
    assert torch.autograd.gradgradcheck(losses, (x,))


def test_forward_mode_over_backward():
    x, target = drawn(3, 5), classes(3)
    found, expected = (
        torch.func.hessian(lambda x, f=f: f(x, target, label_smoothing=0.1).sin())(x)
        for f in (isobit.torch.cross_entropy, F.cross_entropy)
    )
    torch.testing.assert_close(found, expected)


def test_bits_alone_by_threads_in_numpy_compiled_and_under_vmap():
    x, target = drawn(300, 130, dtype=torch.float32), classes(300, of=130)
    weight = drawn(130, dtype=torch.float32, seed=3).abs()
    options = {"label_smoothing": 0.1, "z_loss": 0.01}

    def losses(x, target, reduction="none"):
        return isobit.torch.cross_entropy(x, target, weight, reduction=reduction, **options)

    each = losses(x, target)
    assert all(torch.equal(losses(x[i], target[i]), each[i]) for i in (0, 7, 299))
    assert torch.equal(torch.vmap(losses)(x, target), each)
    for reduction in ("none", "mean", "sum"):
        y = losses(x, target, reduction)
        compiled = torch.compile(lambda x, r=reduction: losses(x, target, r), fullgraph=True)
        assert torch.equal(compiled(x), y)
        given = (x.numpy(), target.numpy(), weight.numpy())
        found = isobit.numpy.cross_entropy(*given, reduction=reduction, **options)
        assert np.array_equal(found, y.numpy())
        before = torch.get_num_threads()
        try:
            torch.set_num_threads(3)
            assert torch.equal(losses(x, target, reduction), y)
        finally:
            torch.set_num_threads(before)
    in_classes = x.t().reshape(1, 130, 300)
    assert torch.equal(losses(in_classes, target[None])[0], each)
    assert np.array_equal(
        isobit.numpy.cross_entropy(
            in_classes.numpy(), target[None].numpy(), weight.numpy(), axis=1, **options
        ),
        losses(x, target, "mean").numpy(),
    )
    sums = torch.vmap(lambda x, target: losses(x, target, "mean"))(
        x.view(3, 100, 130), target.view(3, 100)
    )
    assert torch.equal(sums[1], losses(x[100:200], target[100:200], "mean"))


def test_gradients_have_their_bits_by_threads_compiled_and_under_vmap():
    x, target = drawn(300, 130, dtype=torch.float32), classes(300, of=130)

    def gradient(x, target):
        return torch.func.grad(isobit.torch.cross_entropy)(x, target)

    y = gradient(x, target)
    assert torch.equal(torch.compile(gradient)(x, target), y)
    rows = torch.vmap(gradient)(x, target)
    assert torch.equal(rows[7], gradient(x[7], target[7]))
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(3)
        assert torch.equal(gradient(x, target), y)
    finally:
        torch.set_num_threads(before)


def test_rows_far_from_zero_keep_their_digits():
    for x in (
        torch.linspace(-100, 0, 300) + 1e6,
        torch.linspace(0, 1, 300) * 1e38,
        torch.linspace(-80, 80, 1000),
    ):
        x = x.requires_grad_()
        target = torch.tensor(200)
        wide = x.detach().double().requires_grad_()
        y, truth = isobit.torch.cross_entropy(x, target), F.cross_entropy(wide, target)
        assert (y - truth).abs() < 4 * 2.0**-24 * (1 + truth.abs())
        (grad,), (expected,) = torch.autograd.grad(y, x), torch.autograd.grad(truth, wide)
        assert (grad - expected).abs().max() < 8 * 2.0**-24


def test_a_class_that_cannot_be_is_no_matter_and_infinitely_bad_as_a_target():
    x = torch.tensor([[1.0, -torch.inf, 2.0], [1.0, 2.0, torch.inf]])
    for target in (torch.tensor([0, 0]), torch.tensor([1, 1])):
        found, expected = (
            f(x, target, reduction="none") for f in (isobit.torch.cross_entropy, F.cross_entropy)
        )
        torch.testing.assert_close(found, expected, equal_nan=True)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_results_have_the_types_of_pytorchs_under_autocast_too(dtype):
    x, target = drawn(5, 40, dtype=dtype), classes(5, of=40)
    weight = torch.ones(40, dtype=dtype)
    for given in (None, weight):
        assert isobit.torch.cross_entropy(x, target, given).dtype == dtype
    with torch.autocast("cpu", torch.bfloat16):
        y = isobit.torch.cross_entropy(x, target, reduction="none")
    assert y.dtype == torch.float32
    assert torch.equal(y, isobit.torch.cross_entropy(x.float(), target, reduction="none"))


def test_a_derivative_by_weights_of_classes_is_refused_and_not_left_out():
    """As PyTorch refuses it."""
    x, weight, target = drawn(5, 8).requires_grad_(), torch.rand(8, requires_grad=True), classes(5)
    with pytest.raises(NotImplementedError, match=r"^cross_entropy has no derivative by weight"):
        isobit.torch.cross_entropy(x, target, weight).backward()
    table = drawn(8, 4, seed=2)
    with pytest.raises(NotImplementedError, match="linear_cross_entropy has no derivative by weig"):
        isobit.torch.linear_cross_entropy(x[:, :4], table, target, weight=weight).backward()
    with pytest.raises(NotImplementedError, match=r"^cross_entropy has no derivative by weight"):
        torch.func.jvp(
            lambda w: isobit.torch.cross_entropy(x.detach(), target, w),
            (weight.detach(),),
            (weight.detach(),),
        )


def test_the_module_takes_the_place_of_pytorchs():
    assert issubclass(isobit.torch.CrossEntropyLoss, torch.nn.CrossEntropyLoss)
    x, target, weight = drawn(4, 5), classes(4), drawn(5, seed=3).abs()
    options = {"weight": weight, "ignore_index": 1, "label_smoothing": 0.1}
    theirs = torch.nn.CrossEntropyLoss(**options)
    torch.testing.assert_close(
        isobit.torch.CrossEntropyLoss(**options)(x, target), theirs(x, target)
    )
    ours = isobit.torch.CrossEntropyLoss(reduction="sum", z_loss=0.5)
    expected = F.cross_entropy(x, target, reduction="sum") + z_term(x, target, None, 0.5).sum()
    torch.testing.assert_close(ours(x, target), expected)
    with pytest.warns(UserWarning, match="size_average and reduce args"):
        y = isobit.torch.cross_entropy(x, target, reduce=False)
    assert y.shape == (4,)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (
            lambda x, t: isobit.torch.cross_entropy(x, t + 9),
            ValueError,
            r"cross_entropy: target\[0\] is 9; there are classes from 0 to 4",
        ),
        (
            lambda x, t: isobit.torch.cross_entropy(x, t[:2]),
            ValueError,
            r"target has shape \(2,\); input has shape \(3, 5\)",
        ),
        (lambda x, t: isobit.torch.cross_entropy(x, t.int()), ValueError, "target has dtype"),
        (lambda x, t: isobit.torch.cross_entropy(x.int(), t), ValueError, "x has dtype"),
        (
            lambda x, t: isobit.torch.cross_entropy(x, t, x[0, :4]),
            ValueError,
            r"weight has shape \(4,\); there are 5 classes",
        ),
        (
            lambda x, t: isobit.torch.cross_entropy(x, t, reduction="all"),
            ValueError,
            "reduction is 'all'; allowed: none, mean, sum",
        ),
        (
            lambda x, t: isobit.torch.cross_entropy(x, t, label_smoothing=1.5),
            ValueError,
            "label_smoothing is 1.5; allowed: 0 to 1",
        ),
        (lambda x, t: isobit.torch.cross_entropy(x, t, z_loss=np.inf), ValueError, "z_loss is inf"),
        (lambda x, t: isobit.torch.cross_entropy([1.0], t), TypeError, "input must be a Tensor"),
        (
            lambda x, t: isobit.torch.cross_entropy(x[:, :0], t),
            ValueError,
            "there are no classes, but targets",
        ),
        (
            lambda x, t: isobit.numpy.cross_entropy(x.numpy(), t.numpy()[:2]),
            ValueError,
            r"target has shape \(2,\); input has shape \(3, 5\)",
        ),
        (
            lambda x, t: isobit.numpy.cross_entropy(x.numpy(), t.numpy() - 7),
            ValueError,
            r"target\[0\] is -7",
        ),
        (
            lambda x, t: isobit.numpy.cross_entropy(x.numpy(), t.numpy(), reduction="all"),
            ValueError,
            "reduction is 'all'",
        ),
    ],
)
def test_bad_calls_are_refused_by_the_names_of_operator_and_argument(call, error, message):
    with pytest.raises(error, match=message):
        call(torch.ones(3, 5), torch.tensor([0, 1, 4]))


def test_what_is_kept_for_backward_is_a_row_s_two_numbers():
    x, target = drawn(4, 5), classes(4)
    loss, largest, total_of_row, total, count = CROSS_ENTROPY(x, target, totals=True)
    assert torch.equal(largest, x.amax(-1))
    torch.testing.assert_close(largest + total_of_row.log(), x.logsumexp(-1))
    torch.testing.assert_close(total, loss.sum())
    assert count == 4
    assert CROSS_ENTROPY(x, target)[3].shape == (4, 0)


def test_images_are_read_where_their_classes_are_adjacent():
    target = classes(2, 4, 3)
    x = drawn(2, 5, 4, 3, dtype=torch.float32)
    beside = x.contiguous(memory_format=torch.channels_last)
    found = []
    for each in (x, beside):
        each = each.requires_grad_()
        loss = isobit.torch.cross_entropy(each, target)
        found.append((loss, *torch.autograd.grad(loss, each)))
    assert torch.equal(found[0][0], found[1][0])
    assert torch.equal(found[0][1], found[1][1])


@pytest.mark.parametrize("totals", [False, True])
def test_shapes_and_derivatives_are_what_opcheck_asks_for(totals):
    x, target = drawn(3, 5, dtype=torch.float32).requires_grad_(), classes(3)
    options = (None, -100, 0.1, 0.1, totals)
    torch.library.opcheck(CROSS_ENTROPY.default, (x, target, *options))
