# SPDX-License-Identifier: Apache-2.0
"""Losses of single elements, and nll_loss, beside PyTorch's."""

import inspect
from functools import partial

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch_calls import draw

import isobit.numpy
import isobit.torch

NAMES = ("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss")
ALL = (*NAMES, "binary_cross_entropy_with_logits", "nll_loss")
BCE = "binary_cross_entropy_with_logits"
DTYPES = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
REDUCTIONS = ("none", "mean", "sum")


def arrays(name, dtype=torch.float32):
    x = draw(6, 33).to(dtype)
    target = draw(6, 33, seed=1).to(dtype)
    return x, (target > 0).to(dtype) if name == BCE else target


@pytest.mark.parametrize("name", ALL)
def test_arguments_are_those_of_pytorch(name):
    ours, theirs = (inspect.signature(getattr(each, name)) for each in (isobit.torch, F))
    assert [(p.name, p.default) for p in ours.parameters.values()] == [
        (p.name, p.default) for p in theirs.parameters.values()
    ]


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", (*NAMES, BCE))
def test_losses_and_gradients_are_pytorchs(name, dtype, reduction):
    x, target = arrays(name, dtype)
    x.requires_grad_()
    ours = getattr(isobit.torch, name)(x, target, reduction=reduction)
    wide = x.detach().double().requires_grad_()
    theirs = getattr(F, name)(wide, target.double(), reduction=reduction)
    assert ours.dtype == dtype and ours.shape == theirs.shape
    torch.testing.assert_close(ours, theirs.to(dtype))
    grad = draw(*ours.shape, seed=2).to(dtype) if ours.dim() else torch.tensor(1.5, dtype=dtype)
    (found,) = torch.autograd.grad(ours, x, grad)
    (expected,) = torch.autograd.grad(theirs, wide, grad.double())
    torch.testing.assert_close(found, expected.to(dtype))


@pytest.mark.parametrize("name, option", [("smooth_l1_loss", "beta"), ("huber_loss", "delta")])
@pytest.mark.parametrize("value", [0.1, 2.0])
def test_bends_are_pytorchs(name, option, value):
    x, target = arrays(name)
    ours, theirs = (getattr(each, name)(x, target, **{option: value}) for each in (isobit.torch, F))
    torch.testing.assert_close(ours, theirs)
    if option == "beta":
        found = isobit.torch.smooth_l1_loss(x, target, beta=0.0)
        torch.testing.assert_close(found, F.l1_loss(x, target))
    with pytest.raises(ValueError, match=f"{option} is -1"):
        getattr(isobit.torch, name)(x, target, **{option: -1.0})


def test_weights_broadcast():
    x, target = arrays(BCE)
    weight, pos_weight = draw(6, 1).abs(), draw(33, seed=4).abs() + 0.5
    given = {"weight": weight, "pos_weight": pos_weight}
    x.requires_grad_()
    ours = isobit.torch.binary_cross_entropy_with_logits(x, target, **given)
    theirs = F.binary_cross_entropy_with_logits(x, target, **given)
    torch.testing.assert_close(ours, theirs)
    grads = [torch.autograd.grad(each, x)[0] for each in (ours, theirs)]
    torch.testing.assert_close(*grads)


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("name", ["mse_loss", "l1_loss", "huber_loss"])
def test_a_mean_of_weighted_losses_is_divided_by_what_pytorch_divides_by(name, reduction):
    """By the sum of the weights, but that of huber_loss by the number of elements."""
    x, target = arrays(name)
    weight = draw(6, 33, seed=3).abs()
    given = {"weight": weight, "reduction": reduction}
    x.requires_grad_()
    ours, theirs = (getattr(each, name)(x, target, **given) for each in (isobit.torch, F))
    torch.testing.assert_close(ours, theirs)
    into = torch.ones_like(ours)
    torch.testing.assert_close(
        torch.autograd.grad(ours, x, into), torch.autograd.grad(theirs, x, into)
    )
    given["weight"] = weight.numpy()
    found = getattr(isobit.numpy, name)(x.detach().numpy(), target.numpy(), **given)
    assert found.tobytes() == ours.detach().numpy().tobytes()
    for wrong in (weight[:1], weight[0, 0]):
        with pytest.raises(ValueError, match=f"{name}: weight has shape"):
            getattr(isobit.torch, name)(x, target, weight=wrong)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", NAMES)
def test_a_mean_is_a_number_where_the_sum_of_losses_is_not(name, dtype):
    largest = torch.finfo(dtype).max
    far = largest**0.5 / 2 if name == "mse_loss" else largest / 2
    x, target = torch.full((40,), far, dtype=dtype), torch.zeros(40, dtype=dtype)
    each = getattr(isobit.torch, name)(x, target, reduction="none")
    found = getattr(isobit.torch, name)(x, target)
    assert each.isfinite().all()
    torch.testing.assert_close(found, each[0])
    assert getattr(isobit.numpy, name)(x.numpy(), target.numpy()) == found.numpy()


def test_targets_of_another_shape_are_warned_of():
    x, target = arrays("mse_loss")
    for name in NAMES:
        with pytest.warns(UserWarning, match=f"{name}: target has shape \\(33,\\), input"):
            found = getattr(isobit.torch, name)(x, target[0])
        with pytest.warns(UserWarning):
            torch.testing.assert_close(found, getattr(F, name)(x, target[0]))
    torch._dynamo.reset()
    compiled = torch.compile(isobit.torch.l1_loss, fullgraph=True, backend="aot_eager")
    with pytest.warns(UserWarning):
        assert compiled(x, target[0]).equal(isobit.torch.l1_loss(x, target[0]))
    torch._dynamo.reset()


def test_a_second_derivative_of_smooth_l1_loss_with_a_beta_of_0_is_that_of_l1_loss():
    x, target = arrays("l1_loss")
    x.requires_grad_()
    loss = isobit.torch.smooth_l1_loss(x, target, beta=0.0)
    (slope,) = torch.autograd.grad(loss, x, create_graph=True)
    (found,) = torch.autograd.grad(slope.square().sum(), x)
    assert found.equal(torch.zeros_like(x))


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", ALL)
def test_autocast_makes_losses_of_16_bits_float32_as_pytorchs(name, dtype, reduction):
    """A loss of float16 leaves its range where a GradScaler multiplies it."""
    x, target = arrays(name, dtype)
    target = torch.arange(6) if name == "nll_loss" else target
    x.requires_grad_()
    with torch.autocast("cpu", torch.bfloat16):
        ours, theirs = (
            getattr(each, name)(x, target, reduction=reduction) for each in (isobit.torch, F)
        )
    assert ours.dtype == theirs.dtype
    torch.testing.assert_close(ours, theirs)
    grads = [torch.autograd.grad(each.sum(), x)[0] for each in (ours, theirs)]
    assert grads[0].dtype == dtype
    torch.testing.assert_close(*grads)


@pytest.mark.parametrize("delta", [0.0, -1.0, float("inf"), float("nan")])
def test_a_wrong_delta_is_told_as_delta(delta):
    x, target = arrays("huber_loss")
    with pytest.raises(ValueError, match="huber_loss: delta is"):
        isobit.torch.huber_loss(x, target, delta=delta)
    with pytest.raises(ValueError, match="huber_loss: delta is"):
        isobit.numpy.huber_loss(x.numpy(), target.numpy(), delta=delta)


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(7, 5), (3, 5, 4), (5,)])
def test_nll_loss_is_pytorchs(shape, dtype, reduction):
    x = draw(*shape).log_softmax(min(len(shape) - 1, 1)).to(dtype).requires_grad_()
    classes = min(len(shape) - 1, 1)
    expected = (*shape[:classes], *shape[classes + 1 :])
    target = torch.arange(torch.Size(expected).numel()).reshape(expected) % 5
    for weight in (None, draw(5, seed=3).abs().to(dtype)):
        given = {"weight": weight, "ignore_index": 2, "reduction": reduction}
        ours = isobit.torch.nll_loss(x, target, **given)
        wide = x.detach().double().requires_grad_()
        given["weight"] = None if weight is None else weight.double()
        theirs = F.nll_loss(wide, target, **given)
        assert ours.dtype == dtype
        torch.testing.assert_close(ours, theirs.to(dtype))
        if not expected:
            continue
        (found,) = torch.autograd.grad(ours.sum(), x)
        torch.testing.assert_close(found, torch.autograd.grad(theirs.sum(), wide)[0].to(dtype))


def test_sums_do_not_depend_on_threads():
    x, target = draw(500, 401), draw(500, 401, seed=1)
    threads = torch.get_num_threads()
    found = []
    try:
        for count in (1, 2, 5):
            torch.set_num_threads(count)
            found.append(isobit.torch.mse_loss(x, target, reduction="sum"))
    finally:
        torch.set_num_threads(threads)
    assert len({each.item() for each in found}) == 1


def with_weights(name):
    """The losses as a function of all tensors that they take, and these."""
    tensors = [each.double()[:2, :5].clone() for each in arrays(name)]
    names = {"smooth_l1_loss": (), BCE: ("weight", "pos_weight")}.get(name, ("weight",))
    tensors += [draw(2, 5, seed=3 + i).double().abs() for i in range(len(names))]

    def loss(function, *tensors, **more):
        return function(*tensors[:2], **dict(zip(names, tensors[2:], strict=True)), **more)

    return loss, tensors


@pytest.mark.parametrize("name", (*NAMES, BCE))
def test_derivatives_of_every_order_by_every_tensor(name):
    loss, tensors = with_weights(name)
    ours, theirs = (partial(loss, getattr(each, name)) for each in (isobit.torch, F))
    leaves = [each.requires_grad_() for each in tensors]
    unreduced = partial(ours, reduction="none")
    assert torch.autograd.gradcheck(unreduced, leaves, check_forward_ad=True)
    assert torch.autograd.gradgradcheck(unreduced, leaves, check_fwd_over_rev=True)
    detached = [each.detach() for each in leaves]
    hessians = [torch.func.hessian(each)(*detached) for each in (ours, theirs)]
    torch.testing.assert_close(*hessians)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", (*NAMES, BCE))
def test_gradients_by_targets_and_weights_are_pytorchs(name, dtype):
    loss, tensors = with_weights(name)
    given = [each.to(dtype).requires_grad_() for each in tensors]
    wide = [each.detach().double().requires_grad_() for each in given]
    if name == BCE:  # of which PyTorch has no derivative by weights
        given[2:], wide[2:] = ([each.detach() for each in some[2:]] for some in (given, wide))
    leaves = [[each for each in some if each.requires_grad] for some in (given, wide)]
    found = torch.autograd.grad(loss(getattr(isobit.torch, name), *given), leaves[0])
    expected = torch.autograd.grad(loss(getattr(F, name), *wide), leaves[1])
    few = {} if dtype.itemsize > 2 else {"atol": 0.01, "rtol": 0.05}  # two roundings cancel
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other.to(dtype), **few)


MODULES = ("MSELoss", "L1Loss", "SmoothL1Loss", "HuberLoss", "BCEWithLogitsLoss", "NLLLoss")


@pytest.mark.parametrize("name", MODULES)
def test_modules_are_pytorchs(name):
    ours, theirs = (getattr(each, name)(reduction="sum") for each in (isobit.torch, nn))
    assert isinstance(ours, getattr(nn, name)) and repr(ours) == repr(theirs)
    if name == "NLLLoss":
        x, target = draw(6, 5).log_softmax(1), torch.arange(6) % 5
    else:
        x, target = arrays(BCE if name.startswith("BCE") else "mse_loss")
    torch.testing.assert_close(ours(x, target), theirs(x, target))
    patched = nn.Sequential(theirs)
    with isobit.torch.patch(patched, others=True):
        assert type(patched[0]) is getattr(isobit.torch, name)


def test_losses_of_convert_are_ours():
    x, target = arrays("mse_loss")
    with isobit.torch.intercept(every=True):
        found = F.mse_loss(x, target)
    assert found.equal(isobit.torch.mse_loss(x, target))


def test_compiled_losses_are_the_same():
    torch._dynamo.reset()
    x, target = arrays(BCE)
    for name in (BCE, "huber_loss"):
        function = getattr(isobit.torch, name)
        assert torch.compile(function, fullgraph=True, backend="aot_eager")(x, target).equal(
            function(x, target)
        )
    torch._dynamo.reset()


def test_what_is_wrong_is_told_by_name():
    x, target = arrays("mse_loss")
    with pytest.raises(ValueError, match="mse_loss: reduction is 'median'; allowed: none"):
        isobit.torch.mse_loss(x, target, reduction="median")
    with (
        pytest.warns(UserWarning, match="l1_loss: target has shape"),
        pytest.raises(ValueError, match="l1_loss: shapes do not broadcast"),
    ):
        isobit.torch.l1_loss(x, target[:, :5])
    with pytest.raises(TypeError, match="huber_loss: target must be a Tensor; it is float"):
        isobit.torch.huber_loss(x, 1.0)
    with pytest.raises(ValueError, match="target has shape"):
        isobit.torch.binary_cross_entropy_with_logits(x, target[0])
    with pytest.raises(ValueError, match="nll_loss: target has shape"):
        isobit.torch.nll_loss(x, torch.zeros(5, dtype=torch.int64))
    for wrong in (-1, 33):
        with pytest.raises(
            ValueError, match="nll_loss: target has an index of no class; there are"
        ):
            isobit.torch.nll_loss(x, torch.full((6,), wrong))


@pytest.mark.parametrize("name", ["nll_loss", "cross_entropy"])
def test_indices_of_classes_may_be_bytes_and_nothing_else(name):
    """As PyTorch has it, which refuses flags, too."""
    x, target, ours = draw(6, 33), torch.arange(6), getattr(isobit.torch, name)
    assert ours(x, target.to(torch.uint8)).equal(ours(x, target))
    for wrong in (target > 2, target.int(), target.to(torch.int8)):
        with pytest.raises(
            ValueError, match=f"{name}: target has dtype {wrong.dtype}; must be int"
        ):
            ours(x, wrong)


def test_opcheck():
    x, target = arrays("mse_loss")
    ops = torch.ops.isobit
    given = (x.requires_grad_(), target, None, None, 3, 0.5)
    torch.library.opcheck(ops.pointwise_loss.default, given)
    torch.library.opcheck(ops.pointwise_loss_backward.default, (draw(6, 33, seed=5), *given))


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_numpy_has_the_same_bits(dtype, reduction):
    if dtype == torch.bfloat16:
        bfloat16 = pytest.importorskip("ml_dtypes").bfloat16

    def array(tensor):
        if dtype == torch.bfloat16:
            return tensor.view(torch.uint16).numpy().view(bfloat16)
        return tensor.numpy()

    def same(found, expected):
        return found.shape == expected.shape and found.tobytes() == array(expected).tobytes()

    x, target = arrays("mse_loss", dtype)
    weight = draw(33, seed=3).abs().to(dtype)
    for name in (*NAMES, BCE):
        ours = getattr(isobit.numpy, name)(array(x), array(target), reduction=reduction)
        expected = getattr(isobit.torch, name)(x, target, reduction=reduction)
        assert same(ours, expected), name
    given = {"weight": weight, "pos_weight": weight}
    expected = isobit.torch.binary_cross_entropy_with_logits(
        x, target, **given, reduction=reduction
    )
    given = {name: array(each) for name, each in given.items()}
    found = isobit.numpy.binary_cross_entropy_with_logits(
        array(x), array(target), **given, reduction=reduction
    )
    assert same(found, expected)
    target = torch.arange(6) % 5
    given = {"ignore_index": 2, "reduction": reduction}
    expected = isobit.torch.nll_loss(x, target, weight, **given)
    assert same(isobit.numpy.nll_loss(array(x), target.numpy(), array(weight), **given), expected)


def test_numpy_tells_what_is_wrong_by_name():
    x, target = (each.numpy() for each in arrays("mse_loss"))
    with pytest.raises(ValueError, match="l1_loss: reduction is 'all'; allowed: none, mean, sum"):
        isobit.numpy.l1_loss(x, target, reduction="all")
    with pytest.raises(ValueError, match="mse_loss: target has shape"):
        isobit.numpy.mse_loss(x, target[:, :5])
    with pytest.raises(ValueError, match="beta is -1; must be a number, not negative"):
        isobit.numpy.smooth_l1_loss(x, target, beta=-1)
    with pytest.raises(ValueError, match=r"nll_loss: target\[0\] is 33; there are classes"):
        isobit.numpy.nll_loss(x, np.full(6, 33))
