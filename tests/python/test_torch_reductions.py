# SPDX-License-Identifier: Apache-2.0
"""isobit.torch.sum, mean, var, std, var_mean, std_mean, norm, amax and amin beside
PyTorch's: over all dimensions, in every type and any strides; bits, derivatives, transforms, and
what is refused."""

import functools
import itertools
import math

import pytest
import torch

import isobit.numpy
import isobit.torch
from isobit.torch.broadcasting import expanded

FUNCTIONS = {
    "sum": (isobit.torch.sum, torch.sum),
    "mean": (isobit.torch.mean, torch.mean),
    "var": (isobit.torch.var, torch.var),
    "std": (isobit.torch.std, torch.std),
}
NORMS = {
    f"norm{order}": (
        functools.partial(isobit.torch.norm, ord=order),
        functools.partial(torch.linalg.vector_norm, ord=order),
    )
    for order in (2, 1, math.inf, -math.inf, 0)
}
BOUNDS = {
    name: (
        getattr(isobit.torch, name),
        lambda x, dim, keepdim=False, name=name: getattr(x, name)(
            dim if dim is not None else (), keepdim
        ),
    )
    for name in ("amax", "amin")
}
EVERY = FUNCTIONS | NORMS | BOUNDS
ROUGH = ("norminf", "norm-inf", "norm0", *BOUNDS)
DTYPES = {
    torch.float32: 1e-5,
    torch.float64: 1e-12,
    torch.float16: 2e-3,
    torch.bfloat16: 2e-2,
}


def draw(*shape, seed=0, dtype=torch.float32):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def same_bits(a, b):
    return torch.equal(*(each.reshape(-1).view(torch.uint8) for each in (a, b)))


def dims_of(rank):
    yield None
    for count in range(1, rank + 1):
        for dims in itertools.combinations(range(rank), count):
            yield dims if count > 1 else dims[0]


@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize("keepdim", [False, True])
def test_over_all_dimensions_they_are_pytorchs(name, keepdim):
    ours, theirs = EVERY[name]
    x = draw(3, 4, 5, 6)
    for dim in dims_of(4):
        found, expected = ours(x, dim=dim, keepdim=keepdim), theirs(x, dim=dim, keepdim=keepdim)
        assert found.dtype == expected.dtype and found.shape == expected.shape
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize("dtype", DTYPES)
def test_in_every_type_they_are_pytorchs(name, dtype):
    ours, theirs = EVERY[name]
    x = draw(7, 600, dtype=dtype)
    for dim in (None, 0, 1, -1, (0, 1)):
        found, expected = ours(x, dim=dim), theirs(x, dim=dim)
        assert found.dtype == expected.dtype
        torch.testing.assert_close(found, expected, rtol=DTYPES[dtype], atol=DTYPES[dtype])


@pytest.mark.parametrize("name", EVERY)
def test_strides_change_no_bit(name):
    ours, _ = EVERY[name]
    x = draw(5, 600, 3, 70)
    for order in ((0, 1, 2, 3), (3, 1, 0, 2), (1, 3, 2, 0), (2, 3, 1, 0)):
        back = [order.index(dim) for dim in range(4)]
        view = x.permute(order).contiguous().permute(back)
        for dim in (None, 0, 1, 3, (0, 2), (1, 3), (0, 1, 3)):
            assert same_bits(ours(x, dim=dim), ours(view, dim=dim))
    every_other = torch.empty(5, 1200, 3, 70)[:, ::2].copy_(x)
    assert same_bits(ours(x, dim=1), ours(every_other, dim=1))
    repeated = x[:1].expand(4, -1, -1, -1)
    assert same_bits(ours(repeated, dim=(0, 3)), ours(repeated.contiguous(), dim=(0, 3)))


def test_columns_have_the_bits_of_rows():
    x = draw(3000, 33)
    for ours, _ in EVERY.values():
        assert same_bits(ours(x, dim=0), ours(x.T.contiguous(), dim=1))


@pytest.mark.parametrize("name", EVERY)
def test_numpy_has_the_same_bits(name):
    ours, _ = EVERY[name]
    x = draw(6, 5, 700)
    for axis in (None, 0, (0, 2), -1):
        if name.startswith("norm"):
            found = isobit.numpy.norm(x.numpy(), ours.keywords["ord"], axis)
        elif name in ("var", "std"):
            found = getattr(isobit.numpy, name)(x.numpy(), axis, correction=1)
        else:
            found = getattr(isobit.numpy, name)(x.numpy(), axis)
        assert same_bits(torch.from_numpy(found), ours(x, dim=axis))
    kept = isobit.numpy.sum(x.numpy(), (0, 2), keepdims=True)
    assert kept.shape == (1, 5, 1)
    with pytest.raises(ValueError, match="sum: axis is \\(0, 0\\), which has an axis twice"):
        isobit.numpy.sum(x.numpy(), (0, 0))


def test_a_result_of_another_type_is_that_of_a_cast_input():
    x = draw(4, 900, dtype=torch.bfloat16)
    for ours in (isobit.torch.sum, isobit.torch.mean, isobit.torch.norm):
        for dtype in (torch.float32, torch.float64, torch.float16):
            assert same_bits(ours(x, dim=1, dtype=dtype), ours(x.to(dtype), dim=1))
    leaf = x.clone().requires_grad_()
    isobit.torch.mean(leaf, 1, dtype=torch.float32).sum().backward()
    assert leaf.grad.dtype == torch.bfloat16
    assert torch.equal(leaf.grad, torch.full_like(x, 1 / 900))


def test_ways_to_say_the_correction():
    x = draw(4, 30)
    for ours, theirs in (FUNCTIONS["var"], FUNCTIONS["std"]):
        for arguments, more in (
            ((), {}),
            ((False,), {}),
            ((1, False), {}),
            ((1, True, True), {}),
            ((1,), {"correction": 0}),
            ((), {"correction": 2.5}),
            ((), {"unbiased": False}),
            ((0,), {"correction": 30}),
        ):
            torch.testing.assert_close(ours(x, *arguments, **more), theirs(x, *arguments, **more))
    for ours, theirs in (
        (isobit.torch.var_mean, torch.var_mean),
        (isobit.torch.std_mean, torch.std_mean),
    ):
        for found, expected in zip(ours(x, 1), theirs(x, 1), strict=True):
            torch.testing.assert_close(found, expected)
    with pytest.raises(TypeError, match="var: unbiased and correction are both given"):
        isobit.torch.var(x, 1, True, correction=1)
    with pytest.raises(TypeError, match="var: unbiased is given twice"):
        isobit.torch.var(x, True, True)


def test_spreads_of_what_others_lose():
    far = 1e6 + draw(4, 1000, seed=1)
    exact = far.double().var(1)
    torch.testing.assert_close(isobit.torch.var(far, 1).double(), exact, rtol=1e-6, atol=0)
    constant = torch.full((3, 777), 1e5 / 3)
    assert torch.equal(isobit.torch.var(constant, 1), torch.zeros(3))
    huge = draw(2, 500) * 1e30
    assert torch.isfinite(isobit.torch.std(huge, 1)).all()
    assert torch.isfinite(isobit.torch.norm(huge, dim=1)).all()
    most = torch.full((5,), torch.finfo(torch.float32).max)
    torch.testing.assert_close(isobit.torch.mean(most), most[0])


def test_of_nothing():
    x = torch.empty(3, 0)
    for ours, theirs in (*FUNCTIONS.values(), *(NORMS[f"norm{order}"] for order in (2, 1, 0))):
        torch.testing.assert_close(ours(x, dim=1), theirs(x, dim=1), equal_nan=True)
        assert ours(x, dim=0).shape == (0,)
    assert isobit.torch.sum(torch.empty(0, 5), 0).tolist() == [0] * 5
    with pytest.raises(ValueError, match="norm: input has shape \\(3, 0\\); no element is largest"):
        isobit.torch.norm(x, math.inf, 1)
    with pytest.raises(ValueError, match="amax: input has shape \\(3, 0\\); no element is largest"):
        isobit.torch.amax(x)
    assert isobit.torch.amin(x, 0).shape == (0,)


def test_equal_elements_share_the_gradient_of_the_largest_and_a_nan_is_all():
    x = torch.tensor([[1.0, 3, 3, -5, -5], [-0.0, 0, 0, -0.0, 0], [1, math.nan, 2, 3, 4]])
    for name, (ours, theirs) in BOUNDS.items():
        leaf, other = x.clone().requires_grad_(), x.clone().requires_grad_()
        y, expected = ours(leaf, 1), theirs(other, 1)
        torch.testing.assert_close(y, expected, equal_nan=True)
        assert not y[1].signbit(), f"{name}: a zero is +0"
        y.sum().backward()
        expected.sum().backward()
        torch.testing.assert_close(leaf.grad, other.grad, equal_nan=True)
        assert leaf.grad[0].tolist() == (
            [0, 0.5, 0.5, 0, 0] if name == "amax" else [0, 0, 0, 0.5, 0.5]
        )


def test_a_number_is_reduced_to_itself():
    x = torch.tensor(-3.0)
    assert isobit.torch.sum(x) == -3 and isobit.torch.mean(x, 0) == -3
    assert isobit.torch.norm(x, 1, -1) == 3
    assert isobit.torch.var(x).isnan() and isobit.torch.var(x, correction=0) == 0


def test_more_dimensions_than_the_c_abi_has():
    x = draw(*(2,) * 12)
    assert same_bits(isobit.torch.sum(x), isobit.torch.sum(x.reshape(-1)))
    torch.testing.assert_close(isobit.torch.sum(x, (0, 2, 5)), x.sum((0, 2, 5)))
    torch.testing.assert_close(
        isobit.torch.mean(x.permute(*range(11, -1, -1)), (0, 1)),
        x.mean((10, 11)).permute(*range(9, -1, -1)),
    )


@pytest.mark.parametrize("name", EVERY)
def test_gradients_are_pytorchs(name):
    ours, theirs = EVERY[name]
    for dim, keepdim in itertools.product((None, 0, 1, (0, 2), (1, 2)), (False, True)):
        x = draw(5, 6, 40).requires_grad_()
        y = ours(x, dim=dim, keepdim=keepdim)
        grad = draw(*y.shape, seed=3)
        (found,) = torch.autograd.grad(y, x, grad)
        if name == "norm0":  # of which PyTorch's gradient is none
            assert not found.any()
            continue
        (expected,) = torch.autograd.grad(theirs(x, dim=dim, keepdim=keepdim), x, grad)
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", EVERY)
def test_derivatives_of_two_orders(name):
    ours, _ = EVERY[name]
    x = (draw(3, 4, dtype=torch.float64) + 0.1).requires_grad_()
    for dim in (None, 0, 1):

        def function(x, dim=dim):
            return ours(x, dim=dim)

        assert torch.autograd.gradcheck(function, x, check_forward_ad=True)
        if name not in ROUGH:
            assert torch.autograd.gradgradcheck(function, x)


@pytest.mark.parametrize("name", EVERY)
def test_transforms_and_compiled_code_have_the_same_bits(name):
    ours, _ = EVERY[name]
    x = draw(6, 5, 70)
    batched = torch.vmap(lambda row: ours(row, dim=0))(x)
    assert same_bits(batched, ours(x, dim=1))
    along_last = torch.vmap(lambda row: ours(row, dim=(0, 1)), in_dims=2)(x)
    assert same_bits(along_last, ours(x, dim=(0, 1)))
    torch.compiler.reset()  # the same lines have been compiled for other functions
    compiled = torch.compile(lambda x: ours(x, dim=(0, 2)), fullgraph=True, backend="aot_eager")
    assert same_bits(compiled(x), ours(x, dim=(0, 2)))
    if name in ROUGH:
        return

    def loss(x):
        return ours(x, dim=1).square().sum()

    grads = torch.vmap(torch.func.grad(lambda row: ours(row, dim=0).square().sum()))(x)
    leaf = x.clone().requires_grad_()
    loss(leaf).backward()
    torch.testing.assert_close(grads, leaf.grad)


def test_opcheck():
    x, dims = draw(3, 4, 5).requires_grad_(), [-3, -1]
    for arguments in ((x, dims), (x, dims, True), (x.detach().bfloat16(), dims, False)):
        torch.library.opcheck(torch.ops.isobit.total.default, arguments)
    torch.library.opcheck(torch.ops.isobit.reduce.default, (x, dims, 3, 1.0))
    torch.library.opcheck(
        torch.ops.isobit.reduce_backward.default, (draw(4).requires_grad_(), x, dims, 3, 1.0)
    )


def test_what_is_refused_names_function_and_argument():
    x = draw(3, 4)
    with pytest.raises(ValueError, match="sum: dim is \\(0, -2\\), which has a dimension twice"):
        isobit.torch.sum(x, (0, -2))
    with pytest.raises(ValueError, match="mean: dim is 2; allowed: -2 to 1"):
        isobit.torch.mean(x, 2)
    with pytest.raises(TypeError, match="sum: input must be a Tensor; it is list"):
        isobit.torch.sum([1.0])
    with pytest.raises(ValueError, match=r"input has dtype torch\.int64"):
        isobit.torch.sum(torch.arange(3))
    with pytest.raises(NotImplementedError, match="norm: ord is 3; allowed: 2, 1, inf, -inf and 0"):
        isobit.torch.norm(x, 3)
    with pytest.raises(ValueError, match="total: dims has -3; allowed: -2 to -1"):
        torch.ops.isobit.total(x, [-3])
    with pytest.raises(ValueError, match="total: dims has -1 twice"):
        torch.ops.isobit.total(x, [-1, -1])
    with pytest.raises(ValueError, match="reduce: reduction is 11"):
        torch.ops.isobit.reduce(x, [-1], 11)
    with pytest.raises(ValueError, match="reduce_backward: grad_y has shape"):
        torch.ops.isobit.reduce_backward(draw(4), x, [-1], 2)
    nested = torch.nested.nested_tensor([x, draw(2, 4)], layout=torch.jagged)
    with pytest.raises(NotImplementedError, match="sum: input is nested; its values"):
        isobit.torch.sum(nested, 2)


@pytest.mark.parametrize("name", ["std", "norm"])
def test_second_derivatives_of_a_deviation_or_a_length_of_0_are_0(name):
    """As PyTorch's of a deviation; there the slope is 0 by agreement."""
    x = torch.tensor([[5.0, 5.0, 5.0], [0.0, 0.0, 0.0], [1.0, 2.0, 4.0]], requires_grad=True)
    (slope,) = torch.autograd.grad(
        getattr(isobit.torch, name)(x, dim=1).sum(), x, create_graph=True
    )
    (found,) = torch.autograd.grad((slope * torch.arange(9.0).view(3, 3)).sum(), x)
    rows = slice(0, 2) if name == "std" else slice(1, 2)
    assert found[rows].equal(torch.zeros_like(found[rows])) and found.isfinite().all()
    moved = torch.func.jvp(
        torch.func.grad(lambda x: getattr(isobit.torch, name)(x, dim=1).sum()),
        (x.detach(),),
        (torch.ones_like(x),),
    )[1]
    assert moved.isfinite().all()


def test_what_is_repeated_has_a_gradient_in_the_order_of_sums():
    x, grad = draw(3, 1, 40).requires_grad_(), draw(2, 3, 50, 40, seed=1)
    y = expanded(x, (2, 3, 50, 40))
    assert torch.equal(y, x.expand(2, 3, 50, 40))
    (found,) = torch.autograd.grad(y, x, grad, create_graph=True)
    assert same_bits(found, isobit.torch.sum(grad, (0, 2)).unsqueeze(1))
    assert expanded(x.detach(), (2, 3, 50, 40)).shape == (3, 1, 40)
    along = torch.vmap(torch.func.grad(lambda row: expanded(row, (5, 4)).sum()))(draw(3, 4))
    assert torch.equal(along, torch.full((3, 4), 5.0))


def converted(function):
    """(what it computes in a converted module, and the report)."""

    class Net(torch.nn.Module):
        def forward(self, *inputs):
            return function(*inputs)

    net = Net()
    report = isobit.torch.convert(net)
    return net, report


def test_convert_replaces_them_and_sums_of_what_was_broadcast():
    def function(x, bias):
        y = (x + bias) * bias.expand(4, 6) / (bias[:1] - 0.5)
        parts = [
            *(y.sum(0), torch.sum(y, dim=1), y.mean(), torch.mean(y, 1, keepdim=True).sum()),
            *(y.var(1), torch.std(y, 0), y.norm(), torch.norm(y, p=1, dim=1)),
            *(torch.linalg.vector_norm(y, dim=0), torch.linalg.norm(y), torch.var_mean(y, 1)[0]),
            *(y.amax(1), torch.amin(y, dim=0), y.amax()),
        ]
        return torch.cat([each.reshape(-1) for each in parts])

    x, bias = draw(4, 6), draw(6, seed=1).requires_grad_()
    expected = function(x, bias)
    net, report = converted(function)
    torch.testing.assert_close(net(x, bias), expected)
    report.run(x, bias)
    assert report.remaining == {}
    replaced = {each.function for each in report.functions}
    assert {"torch.Tensor.sum", "torch.sum", "torch.Tensor.mean", "torch.Tensor.var"} <= replaced
    assert {
        "torch.functional.norm",
        "torch.linalg.vector_norm",
        "torch.var_mean",
        "torch.std",
        "torch.Tensor.amax",
        "torch.amin",
    } <= replaced


def test_convert_leaves_what_is_not_theirs():
    def function(x):
        counts = x.long().sum(0)
        third = torch.linalg.vector_norm(x, 3, dim=1)
        spectral = torch.linalg.norm(x, 2)
        into = torch.sum(x, 0, out=torch.empty(6))
        return counts, third, spectral, into

    x = draw(4, 6)
    net, _ = converted(function)
    for found, expected in zip(net(x), function(x), strict=True):
        assert torch.equal(found, expected)
