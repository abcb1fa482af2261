# SPDX-License-Identifier: Apache-2.0
"""Pooling in PyTorch and NumPy: PyTorch's own samples, layouts, ties and NaN, derivatives of every
order, transforms, compiled code, modules."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch.autograd import gradcheck, gradgradcheck
from torch_calls import bits, draw

import isobit.numpy as isobit_numpy
import isobit.torch

NAMES = ("max_pool1d", "max_pool2d", "avg_pool1d", "avg_pool2d")
ADAPTIVE = ("adaptive_avg_pool1d", "adaptive_avg_pool2d")
REALS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
NAN, INFINITY = float("nan"), float("inf")

WINDOWS = {
    "max_pool1d": [{"kernel_size": 3, "stride": 2, "padding": 1}, {"kernel_size": 2}],
    "max_pool2d": [
        {"kernel_size": 3, "stride": 2, "padding": 1},
        {"kernel_size": (2, 3), "stride": (1, 2), "dilation": (2, 1), "ceil_mode": True},
        {"kernel_size": 2, "stride": []},
    ],
    "avg_pool1d": [{"kernel_size": 3, "stride": 2, "padding": 1, "ceil_mode": True}],
    "avg_pool2d": [
        {"kernel_size": 3, "stride": 2, "padding": 1},
        {"kernel_size": (3, 2), "stride": 2, "padding": (1, 0), "count_include_pad": False},
        {"kernel_size": 3, "stride": (2, 3), "padding": 1, "ceil_mode": True},
        {"kernel_size": 2, "divisor_override": -3},
    ],
    "adaptive_avg_pool1d": [{"output_size": 4}, {"output_size": 1}],
    "adaptive_avg_pool2d": [{"output_size": (3, 5)}, {"output_size": (None, 2)}],
}
CALLS = [(name, windows) for name, all_of_it in WINDOWS.items() for windows in all_of_it]


def images(name, *leading, seed=0, **more):
    return draw(*leading, *(10, 11)[-int(name[-2]) :], seed=seed, **more)


def both(name):
    return getattr(isobit.torch, name), getattr(F, name)


@pytest.mark.parametrize("name", (*NAMES, *ADAPTIVE))
def test_values_and_gradients_at_pytorchs_samples(internal, name):
    ours, theirs = both(name)
    info = internal.operators[f"nn.functional.{name}"]
    given = list(info.sample_inputs("cpu", torch.float64, requires_grad=True))
    assert len(given) >= 4
    for sample in given:
        found = ours(sample.input, *sample.args, **sample.kwargs)
        expected = theirs(sample.input, *sample.args, **sample.kwargs)
        if isinstance(expected, tuple):
            assert torch.equal(found[1], expected[1])
            found, expected = found[0], expected[0]
        assert found.stride() == expected.stride()
        torch.testing.assert_close(found, expected)
        along = torch.randn_like(expected)
        gradients = [torch.autograd.grad(y, sample.input, along) for y in (found, expected)]
        torch.testing.assert_close(*gradients)


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("dtype", REALS)
@pytest.mark.parametrize(("name", "windows"), CALLS)
def test_values_and_gradients_of_every_type_and_layout(name, windows, dtype, last):
    ours, theirs = both(name)
    x = images(name, 2, 19, dtype=dtype)
    if last and x.dim() == 4:
        x = x.to(memory_format=torch.channels_last)
    x.requires_grad_()
    wide = x.detach().double().requires_grad_()
    found, expected = ours(x, **windows), theirs(wide, **windows)
    assert found.dtype == dtype and found.stride() == theirs(x, **windows).stride()
    digits = {torch.float16: 10, torch.bfloat16: 7, torch.float32: 21, torch.float64: 50}[dtype]
    near = {"rtol": 2.0**-digits, "atol": 2.0**-digits}
    torch.testing.assert_close(found, expected.to(dtype), **near)
    along = torch.randn(found.shape).to(dtype)
    (one,) = torch.autograd.grad(found, x, along)
    (other,) = torch.autograd.grad(expected, wide, along.double())
    torch.testing.assert_close(one, other.to(dtype), **near)


@pytest.mark.parametrize(("name", "windows"), CALLS)
def test_derivatives_of_every_kind(name, windows):
    x = images(name, 1, 2, dtype=torch.float64).requires_grad_()

    def call(x):
        return both(name)[0](x, **windows)

    assert gradcheck(call, x, check_forward_ad=True, check_batched_grad=True)
    assert gradgradcheck(call, x, check_fwd_over_rev=True)


@pytest.mark.parametrize(("name", "windows"), CALLS)
def test_compiled_code_batches_and_channels_last_have_the_bits_of_eager_code(name, windows):
    function, _ = both(name)
    x = images(name, 3, 5)
    expected = function(x, **windows)
    torch._dynamo.reset()
    compiled = torch.compile(function, fullgraph=True, backend="aot_eager")
    assert bits(compiled(x, **windows)) == bits(expected)
    leaf = x.clone().requires_grad_()
    gradients = [
        torch.autograd.grad(each(leaf, **windows).square().sum(), leaf)[0]
        for each in (function, compiled)
    ]
    assert bits(gradients[0]) == bits(gradients[1])
    assert bits(torch.vmap(lambda x: function(x, **windows))(x)) == bits(expected)
    alone = [function(x[i : i + 1], **windows) for i in range(3)]
    assert bits(torch.cat(alone)) == bits(expected)
    with torch.no_grad():
        assert bits(function(x, **windows)) == bits(expected)
    with torch.autocast("cpu", torch.bfloat16):
        assert bits(function(x, **windows)) == bits(expected)
    if x.dim() == 4:
        last = function(x.to(memory_format=torch.channels_last), **windows)
        assert bits(last.contiguous()) == bits(expected)


def test_largest_elements_are_pytorchs_where_they_tie_and_of_nan():
    values = torch.tensor([1, 2, -0.0, 0.0, NAN, -INFINITY, INFINITY])
    generator = torch.Generator().manual_seed(3)
    for last in (False, True):
        x = values[torch.randint(7, (3, 20, 9, 12), generator=generator)]
        if last:
            x = x.to(memory_format=torch.channels_last)
        for windows in WINDOWS["max_pool2d"]:
            found, index = isobit.torch.max_pool2d(x, **windows, return_indices=True)
            expected, places = F.max_pool2d(x, **windows, return_indices=True)
            assert torch.equal(index, places) and index.stride() == places.stride()
            torch.testing.assert_close(found, expected, rtol=0, atol=0, equal_nan=True)
            assert torch.equal(found.signbit() & (found == 0), expected.signbit() & (expected == 0))


def test_sums_are_those_of_windows_row_by_row():
    """The bits of elements that are added one after the other, from +0."""
    x = draw(1, 1, 6, 7)
    found = isobit.torch.avg_pool2d(x, (3, 4), 1)
    total = torch.zeros_like(found)
    for i in range(3):
        for j in range(4):
            total += x[..., i : i + 4, j : j + 4]
    assert bits(found) == bits(total / 12)


def test_nothing_but_the_index_is_kept():
    x = images("max_pool2d", 2, 3).requires_grad_()
    y = isobit.torch.max_pool2d(x, 2)
    assert [each.dtype for each in y.grad_fn.saved_tensors] == [torch.int64]
    assert isobit.torch.avg_pool2d(x, 2).grad_fn.saved_tensors == ()


def test_images_may_have_any_strides_and_be_few():
    x = draw(7, 9, 2, 3).permute(2, 3, 0, 1)
    for name in ("max_pool2d", "avg_pool2d"):
        function, _ = both(name)
        assert bits(function(x, 3, 2, 1)) == bits(function(x.contiguous(), 3, 2, 1))
        assert function(x[:0], 2).shape == (0, 3, 3, 4)
        assert bits(function(x[0], 2)) == bits(function(x, 2)[0])
    assert bits(isobit.torch.max_pool1d(x[0, :, 0], 2)) == bits(F.max_pool1d(x[0, :, 0], 2))


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda x: isobit.torch.max_pool2d(x[0, 0], 2), "input has 2 dimensions; must have 4, or"),
        (lambda x: isobit.torch.max_pool2d(x, 0), "kernel_size is 0; must be at least 1"),
        (lambda x: isobit.torch.max_pool2d(x, 2, 0), "stride is 0; must be at least 1"),
        (lambda x: isobit.torch.max_pool2d(x, 2, dilation=0), "dilation is 0; must be at least 1"),
        (lambda x: isobit.torch.max_pool2d(x, (1, 2, 3)), "kernel_size has 3 numbers"),
        (lambda x: isobit.torch.max_pool2d(x, 3, padding=2), r"padding_h is 2; allowed: at most"),
        (lambda x: isobit.torch.max_pool2d(x, 11), r"\(10 \+ 2 \* 0 - 1 \* \(11 - 1\) - 1\) / 11"),
        (lambda x: isobit.torch.avg_pool2d(x, 2, divisor_override=0), "divisor_override is 0"),
        (lambda x: isobit.torch.adaptive_avg_pool2d(x, (1, 2, 3)), "output_size has 3 numbers"),
        (lambda x: isobit.torch.adaptive_avg_pool2d(x, 0), "output_size is 0; must be at least 1"),
        (lambda x: isobit.torch.avg_pool2d(x[:, :, :0], 2), "height is 0; allowed: 1 to 2"),
    ],
)
def test_wrong_calls_are_told_what_is_wrong(call, words):
    with pytest.raises(ValueError, match=words):
        call(images("max_pool2d", 2, 3))


def test_wrong_types_are_told():
    x = images("max_pool2d", 2, 3)
    with pytest.raises(ValueError, match=r"input has dtype torch\.int64"):
        isobit.torch.max_pool2d(x.long(), 2)
    with pytest.raises(TypeError, match="input must be a Tensor; it is list"):
        isobit.torch.avg_pool1d([1.0], 1)
    with pytest.raises(TypeError, match="ceil_mode must be True or False; it is str"):
        isobit.torch.avg_pool2d(x, 2, ceil_mode="yes")
    with pytest.raises(NotImplementedError, match="no derivative without with_index"):
        leaf = x.requires_grad_()
        pairs = [(2, 2), (1, 1), (2, 2), (0, 0), (1, 1)]
        y, _ = torch.ops.isobit.max_pool(leaf, *pairs, with_index=False)
        y.sum().backward()


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("MaxPool1d", {"kernel_size": 3, "stride": 2, "padding": 1, "return_indices": True}),
        ("MaxPool2d", {"kernel_size": (3, 2), "dilation": 2, "ceil_mode": True}),
        ("AvgPool1d", {"kernel_size": 3, "stride": 2, "padding": 1, "count_include_pad": False}),
        ("AvgPool2d", {"kernel_size": 3, "padding": 1, "divisor_override": 5}),
        ("AdaptiveAvgPool1d", {"output_size": 3}),
        ("AdaptiveAvgPool2d", {"output_size": (None, 3)}),
    ],
)
def test_modules_are_pytorchs(name, arguments):
    ours, theirs = (getattr(of, name)(**arguments) for of in (isobit.torch, torch.nn))
    assert isinstance(ours, type(theirs)) and repr(ours) == repr(theirs)
    x = images(name.lower(), 2, 5)
    found, expected = ours(x), theirs(x)
    if isinstance(expected, tuple):
        assert torch.equal(found[1], expected[1])
        found, expected = found[0], expected[0]
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize(("name", "windows"), [each for each in CALLS if "2d" in each[0]])
def test_numpy_has_the_bits_of_pytorch(name, windows):
    x = images(name, 2, 3)
    if windows.get("stride") == []:
        windows = {"kernel_size": 2}
    found = getattr(isobit_numpy, name)(x.numpy(), **windows)
    assert bits(torch.from_numpy(found)) == bits(getattr(isobit.torch, name)(x, **windows))
    strided = x.numpy().transpose(2, 0, 3, 1).copy().transpose(1, 3, 0, 2)
    assert np.array_equal(getattr(isobit_numpy, name)(strided, **windows), found)
    if name == "max_pool2d":
        found = isobit_numpy.max_pool2d(x.numpy(), **windows, return_indices=True)
        expected = isobit.torch.max_pool2d(x, **windows, return_indices=True)
        assert all(np.array_equal(a, b.numpy()) for a, b in zip(found, expected, strict=True))


def test_numpy_says_what_is_wrong():
    x = np.zeros((1, 2, 5, 6), np.float32)
    for call, words in (
        (lambda: isobit_numpy.max_pool2d(x[0], 2), "max_pool2d: x has 3 dimensions; must have 4"),
        (lambda: isobit_numpy.max_pool2d(x, 2, stride=0), "stride is 0; must be at least 1"),
        (lambda: isobit_numpy.avg_pool2d(x, 2, divisor_override=0), "divisor_override is 0"),
        (lambda: isobit_numpy.avg_pool2d(x, 7), "leave no window"),
        (lambda: isobit_numpy.adaptive_avg_pool2d(x, 0), "output_size is 0"),
    ):
        with pytest.raises(ValueError, match=words):
            call()
    with pytest.raises(TypeError, match="x has dtype int64"):
        isobit_numpy.max_pool2d(x.astype(np.int64), 2)
