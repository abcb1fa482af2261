# SPDX-License-Identifier: Apache-2.0
"""Interpolation in PyTorch and NumPy: PyTorch's own samples, every mode, type and layout,
derivatives of every order, transforms, compiled code, modules."""

import sys

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch.autograd import gradcheck, gradgradcheck
from torch_calls import bits, draw

import isobit.numpy as isobit_numpy
import isobit.torch
from isobit.torch import intercept, patch

REALS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
NEAREST = ("nearest", "nearest-exact")
CORNERS = ("linear", "bilinear", "bicubic")
SIDES = {3: (11,), 4: (7, 11)}


def modes(dims):
    return (*NEAREST, "area", *(("linear",) if dims == 3 else ("bilinear", "bicubic")))


def options_of(dims, mode):
    """Sizes and scales, with and without corners."""
    several = {3: [(1,), (5,), (22,), (13,)], 4: [(1, 1), (14, 22), (3, 25), (7, 11), (1, 9)]}[dims]
    for size in (*several, 6):
        yield {"size": size}
        if mode in CORNERS:
            yield {"size": size, "align_corners": True}
    for scale in (0.7, 1.5, 2, 3.3, (0.7, 2.1)[: dims - 2]):
        for again in (None, True, False):
            yield {"scale_factor": scale, "recompute_scale_factor": again}
        if mode in CORNERS:
            yield {"scale_factor": scale, "align_corners": True}


CALLS = [(dims, mode) for dims in (3, 4) for mode in modes(dims)]
FEW = [
    (3, {"mode": "linear", "scale_factor": 1.7}),
    (3, {"mode": "nearest", "size": 25}),
    (4, {"mode": "nearest-exact", "size": (5, 25)}),
    (4, {"mode": "bilinear", "size": (3, 25), "align_corners": True}),
    (4, {"mode": "bilinear", "scale_factor": 0.7}),
    (4, {"mode": "bicubic", "scale_factor": (1.5, 0.7)}),
    (4, {"mode": "area", "size": (5, 4)}),
]


def images(dims, *leading, **more):
    return draw(*leading, *SIDES[dims], **more)


@pytest.mark.parametrize("dtype", REALS)
@pytest.mark.parametrize(("dims", "mode"), CALLS)
def test_values_and_gradients_of_every_option_are_pytorchs(dims, mode, dtype):
    x = images(dims, 2, 3, dtype=dtype).requires_grad_()
    wide = x.detach().double().requires_grad_()
    digits = {torch.float16: 9, torch.bfloat16: 6, torch.float32: 19, torch.float64: 46}[dtype]
    near = {"rtol": 2.0**-digits, "atol": 4 * 2.0**-digits}
    for options in options_of(dims, mode):
        found, expected = (
            each(given, mode=mode, **options)
            for each, given in ((isobit.torch.interpolate, x), (F.interpolate, wide))
        )
        assert found.dtype == dtype and found.is_contiguous()
        torch.testing.assert_close(found, expected.to(dtype), **near)
        along = draw(*found.shape, dtype=dtype)
        (one,) = torch.autograd.grad(found, x, along)
        (other,) = torch.autograd.grad(expected, wide, along.double())
        torch.testing.assert_close(one, other.to(dtype), **near)


def test_values_and_gradients_at_pytorchs_samples(internal):
    methods = sys.modules["torch.testing._internal.common_methods_invocations"]
    seen = set()
    for info in methods.op_db:
        if info.name not in ("nn.functional.interpolate", "nn.functional.upsample_bilinear"):
            continue
        for sample in info.sample_inputs("cpu", torch.float64, requires_grad=True):
            options = dict(sample.kwargs)
            if info.name != "nn.functional.interpolate":
                options |= {"mode": "bilinear", "align_corners": True}
            x = sample.input
            if x.dim() == 5 or options["mode"] == "lanczos" or options.get("antialias"):
                with pytest.raises(NotImplementedError, match=r"torch\.nn\.functional\.interpol"):
                    isobit.torch.interpolate(x, *sample.args, **options)
                continue
            seen.add((x.dim(), options["mode"]))
            found, expected = (
                each(x, *sample.args, **options)
                for each in (isobit.torch.interpolate, F.interpolate)
            )
            torch.testing.assert_close(found, expected)
            along = torch.randn_like(expected)
            gradients = [torch.autograd.grad(y, x, along) for y in (found, expected)]
            torch.testing.assert_close(*gradients)
    assert seen >= set(CALLS)


@pytest.mark.parametrize("mode", NEAREST)
def test_nearest_elements_are_exact_where_pytorchs_fall_short(mode):
    short = 0
    for extent in range(1, 30):
        x = torch.arange(extent, dtype=torch.float32)[None, None]
        for size in range(1, 130):
            found = isobit.torch.interpolate(x, size, mode=mode)[0, 0].long()
            places = 2 * torch.arange(size) + (mode == "nearest-exact")
            assert torch.equal(found, places * extent // (2 * size))
            differ = (found != F.interpolate(x, size, mode=mode)[0, 0].long()).nonzero()
            short += len(differ)
            assert all(places[i] * extent % (2 * size) == 0 for i in differ.view(-1))
    assert short < 100


@pytest.mark.parametrize(("dims", "options"), FEW)
def test_derivatives_of_every_kind(dims, options):
    x = images(dims, 2, 2, dtype=torch.float64).requires_grad_()

    def call(x):
        return isobit.torch.interpolate(x, **options)

    assert gradcheck(call, x, check_forward_ad=True, check_batched_grad=True)
    assert gradgradcheck(call, x, check_fwd_over_rev=True)


@pytest.mark.parametrize(("dims", "options"), FEW)
def test_compiled_code_batches_and_channels_last_have_the_bits_of_eager_code(dims, options):
    function = isobit.torch.interpolate
    x = images(dims, 3, 5)
    expected = function(x, **options)
    torch._dynamo.reset()
    compiled = torch.compile(function, fullgraph=True, backend="aot_eager")
    assert bits(compiled(x, **options)) == bits(expected)
    leaf = x.clone().requires_grad_()
    gradients = [
        torch.autograd.grad(each(leaf, **options).square().sum(), leaf)[0]
        for each in (function, compiled)
    ]
    assert bits(gradients[0]) == bits(gradients[1])
    assert bits(torch.vmap(lambda x: function(x[None], **options)[0])(x)) == bits(expected)
    alone = [function(x[i : i + 1], **options) for i in range(3)]
    assert bits(torch.cat(alone)) == bits(expected)
    with torch.autocast("cpu", torch.bfloat16):
        assert bits(function(x, **options)) == bits(expected)
    if x.dim() == 4:
        leaf = x.to(memory_format=torch.channels_last).requires_grad_()
        last = function(leaf, **options)
        assert last.is_contiguous(memory_format=torch.channels_last)
        assert bits(last.contiguous()) == bits(expected)
        (found,) = torch.autograd.grad(last.square().sum(), leaf)
        assert bits(found.contiguous()) == bits(gradients[0])


def test_sizes_that_change_are_compiled_once_for_all():
    torch._dynamo.reset()

    def call(x):
        return isobit.torch.interpolate(x, scale_factor=1.5, mode="bilinear")

    compiled = torch.compile(call, fullgraph=True, backend="aot_eager", dynamic=True)
    for extent in (8, 9, 12):
        x = draw(2, 3, extent, extent + 1)
        assert bits(compiled(x)) == bits(call(x))


@pytest.mark.parametrize("corners", [False, True])
def test_results_are_the_products_that_the_page_describes(corners):
    """In float32: places and weights in double, and rows before columns."""
    x = draw(1, 1, 4, 5)
    found = isobit.torch.interpolate(x, (6, 9), mode="bilinear", align_corners=corners)

    def taps(result, sources, results):
        place = 2 * result * (sources - 1) / (2 * (results - 1))
        if not corners:
            place = max(0.0, ((2 * result + 1) * sources - results) / (2 * results))
        low = int(place)
        return low, min(low + 1, sources - 1), place - low

    for row in range(6):
        top, bottom, down = taps(row, 4, 6)
        for col in range(9):
            left, right, across = taps(col, 5, 9)
            lines = [
                x[0, 0, i, left] * (1 - across) + x[0, 0, i, right] * across for i in (top, bottom)
            ]
            torch.testing.assert_close(
                found[0, 0, row, col], lines[0] * (1 - down) + lines[1] * down
            )


def test_nothing_is_kept():
    x = images(4, 2, 3).requires_grad_()
    assert isobit.torch.interpolate(x, 5, mode="bicubic").grad_fn.saved_tensors == ()


def test_images_may_have_any_strides_and_be_none():
    x = draw(7, 9, 2, 3).permute(2, 3, 0, 1)
    for mode in ("nearest", "bilinear", "bicubic"):
        one, other = (
            isobit.torch.interpolate(each, (5, 20), mode=mode) for each in (x, x.contiguous())
        )
        assert bits(one) == bits(other)
        assert isobit.torch.interpolate(x[:0], 5, mode=mode).shape == (0, 3, 5, 5)
        assert isobit.torch.interpolate(x[:, :0], 5, mode=mode).shape == (2, 0, 5, 5)


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda f, x: f(x), ValueError, "size and scale_factor are None"),
        (lambda f, x: f(x, 3, 2), ValueError, "size and scale_factor are given"),
        (lambda f, x: f(x, (3, 3, 3)), ValueError, "size has 3 numbers; must have 2"),
        (lambda f, x: f(x, 2.5), TypeError, "size is 2.5; must be an integer"),
        (lambda f, x: f(x, 0), ValueError, "from 7x11 to 0x0; there must be elements"),
        (lambda f, x: f(x, None, 0.01), ValueError, "from 7x11 to 0x0; there must be elements"),
        (lambda f, x: f(x, None, -1), ValueError, "scale_factor is -1; must be above 0"),
        (lambda f, x: f(x, 3, None, "linear"), NotImplementedError, "mode linear needs 3"),
        (lambda f, x: f(x, 3, None, "area", True), ValueError, "mode area has no corners"),
        (lambda f, x: f(x, 3, None, "nearest", False), ValueError, "no corners to align"),
        (
            lambda f, x: f(x, 3, recompute_scale_factor=True),
            ValueError,
            "recompute_scale_factor needs a scale_factor",
        ),
        (lambda f, x: f(x[:, :, :0], 3), ValueError, "from 0x11 to 3x3; there must be elements"),
        (lambda f, x: f(x[0, 0], 3), ValueError, "has 2 dimensions; must have 3 or 4"),
    ],
)
def test_wrong_calls_are_told_what_is_wrong(call, error, words):
    x = images(4, 2, 3)
    for function, given in (
        (isobit.torch.interpolate, x),
        (isobit_numpy.interpolate, x.numpy()),
    ):
        with pytest.raises(error, match=f"interpolate: .*{words}"):
            call(function, given)


@pytest.mark.parametrize(
    ("shape", "options"),
    [
        ((1, 1, 4, 4), {"mode": "bilinear", "antialias": True}),
        ((1, 1, 4, 4, 4), {"mode": "nearest"}),
        ((1, 1, 4, 4, 4), {"mode": "trilinear"}),
        ((1, 1, 4, 4), {"mode": "lanczos", "antialias": True}),
    ],
)
def test_what_is_pytorchs_alone_is_named_and_stays_pytorchs(shape, options):
    x = draw(*shape)
    with pytest.raises(NotImplementedError, match=r"torch\.nn\.functional\.interpolate has that"):
        isobit.torch.interpolate(x, 6, **options)
    with intercept(every=True):
        found = F.interpolate(x, 6, **options)
    assert bits(found) == bits(F.interpolate(x, 6, **options))


def test_wrong_types_are_told():
    for factor, shown in (("2", "'2'"), ((2.0, None), "None")):
        with pytest.raises(TypeError, match=f"interpolate: scale_factor is {shown}; must be a num"):
            isobit.torch.interpolate(torch.ones(1, 1, 4, 4), scale_factor=factor)
    with pytest.raises(ValueError, match=r"input has dtype torch\.int64"):
        isobit.torch.interpolate(images(4, 2, 3).long(), 5)
    with pytest.raises(TypeError, match="input must be a Tensor; it is list"):
        isobit.torch.interpolate([1.0], 1)
    with pytest.raises(TypeError, match="x has dtype int64"):
        isobit_numpy.interpolate(np.ones((1, 1, 4), np.int64), 5)


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("Upsample", {"scale_factor": (2.0, 0.7), "mode": "bicubic", "align_corners": True}),
        ("Upsample", {"size": (3, 20)}),
        ("Upsample", {"scale_factor": 1.7, "mode": "bilinear", "recompute_scale_factor": True}),
        ("UpsamplingNearest2d", {"scale_factor": 2}),
        ("UpsamplingBilinear2d", {"size": 9}),
    ],
)
def test_modules_are_pytorchs(name, arguments):
    ours, theirs = (getattr(of, name)(**arguments) for of in (isobit.torch, torch.nn))
    assert isinstance(ours, type(theirs)) and repr(ours) == repr(theirs)
    x = images(4, 2, 5)
    torch.testing.assert_close(ours(x), theirs(x))
    model = torch.nn.Sequential(theirs)
    report = patch(model, others=True)
    assert report.others == ["0"] and bits(model(x)) == bits(ours(x))


def test_a_module_of_three_dimensions_is_not_patched():
    model = torch.nn.Sequential(torch.nn.Upsample(scale_factor=2, mode="trilinear"))
    assert patch(model, others=True).skipped == {"0": "mode is 'trilinear'"}
    assert type(model[0]) is torch.nn.Upsample


@pytest.mark.parametrize(("dims", "options"), FEW)
def test_numpy_has_the_bits_of_pytorch(dims, options):
    x = images(dims, 2, 3)
    expected = isobit.torch.interpolate(x, **options)
    found = isobit_numpy.interpolate(x.numpy(), **options)
    assert bits(torch.from_numpy(found)) == bits(expected)
    strided = np.ascontiguousarray(x.numpy().swapaxes(1, -1)).swapaxes(1, -1)
    assert np.array_equal(isobit_numpy.interpolate(strided, **options), found)
