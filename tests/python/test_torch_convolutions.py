# SPDX-License-Identifier: Apache-2.0
"""Convolutions in PyTorch: its own samples, arguments, layouts, derivatives of every order."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch.autograd import gradcheck, gradgradcheck
from torch_calls import bits, draw

import isobit.numpy as isobit_numpy
import isobit.torch

pytestmark = pytest.mark.filterwarnings("ignore:Using padding='same':UserWarning")
NAMES = ("conv1d", "conv2d", "conv_transpose1d", "conv_transpose2d")


@pytest.mark.parametrize("name", NAMES)
def test_values_and_gradients_at_pytorchs_samples(internal, name):
    ours, theirs = getattr(isobit.torch, name), getattr(F, name)
    info = internal.operators[f"nn.functional.{name}"]
    given = list(info.sample_inputs("cpu", torch.float64, requires_grad=True))
    assert len(given) > 5
    for sample in given:
        arguments = (sample.input, *sample.args)
        found, expected = ours(*arguments, **sample.kwargs), theirs(*arguments, **sample.kwargs)
        torch.testing.assert_close(found, expected)
        tensors = [each for each in arguments if isinstance(each, torch.Tensor)]
        tensors += [each for each in sample.kwargs.values() if isinstance(each, torch.Tensor)]
        along = torch.randn_like(expected)
        gradients = [torch.autograd.grad(y, tensors, along) for y in (found, expected)]
        for one, other in zip(*gradients, strict=True):
            torch.testing.assert_close(one, other)


@pytest.mark.parametrize("name", NAMES)
def test_derivatives_of_every_kind(name):
    dims = int(name[-2])
    function = getattr(isobit.torch, name)
    x = draw(1, 4, *(7, 4)[:dims], dtype=torch.float64).requires_grad_()
    weight = draw(4, 2, *(3, 2)[:dims], dtype=torch.float64).requires_grad_()
    more = {"groups": 2} if not name.startswith("conv_t") else {"output_padding": 1}
    bias = draw(4 if not name.startswith("conv_t") else 2, dtype=torch.float64).requires_grad_()

    def call(x, weight, bias):
        return function(x, weight, bias, stride=2, padding=1, **more)

    assert gradcheck(call, (x, weight, bias), check_forward_ad=True, check_batched_grad=True)
    assert gradgradcheck(call, (x, weight, bias), check_fwd_over_rev=True)


# What is not finite is met by those who have it in their window; bits are the same anyhow.
@pytest.mark.parametrize("name", ["conv1d", "conv2d"])
def test_compiled_code_and_batches_have_the_bits_of_eager_code(name):
    dims = int(name[-2])
    function = getattr(isobit.torch, name)
    x, weight = draw(3, 5, *(12,) * dims), draw(6, 5, *(3,) * dims)
    expected = function(x, weight, padding=1)
    torch._dynamo.reset()
    compiled = torch.compile(function, fullgraph=True, backend="aot_eager")
    assert bits(compiled(x, weight, padding=1)) == bits(expected)
    batched = torch.vmap(lambda x: function(x, weight, padding=1))(x.unsqueeze(1))
    assert bits(batched.squeeze(1)) == bits(expected)
    alone = torch.cat([function(each, weight, padding=1) for each in x.split(1)])
    assert bits(alone) == bits(expected)


# In one group, and depthwise: more channels than a turn takes, windows that reach over
# the edge on every side, strides whose gradients come from some of the taps.
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize(
    ("channels", "size", "filters", "more"),
    [
        (6, (9, 11), (8, 6, 3, 3), {"padding": 1}),
        (67, (5, 75), (67, 1, 3, 3), {"padding": 1, "groups": 67}),
        (19, (12, 45), (19, 1, 5, 2), {"padding": (2, 3), "stride": 2, "groups": 19}),
        (3, (8, 7), (3, 1, 3, 3), {"padding": 2, "dilation": 2, "stride": 3, "groups": 3}),
    ],
)
def test_channels_that_lie_last_stay_there_and_change_no_bit(channels, size, filters, more, dtype):
    x, weight = draw(2, channels, *size, dtype=dtype), draw(*filters, dtype=dtype)
    dense = [each.clone().requires_grad_() for each in (x, weight)]
    last = [
        each.clone().contiguous(memory_format=torch.channels_last).requires_grad_()
        for each in (x, weight)
    ]
    results = [isobit.torch.conv2d(*each, **more) for each in (dense, last)]
    assert results[1].is_contiguous(memory_format=torch.channels_last)
    assert bits(results[0]) == bits(results[1].contiguous())
    along = draw(*results[0].shape, dtype=dtype, seed=3)
    layouts = (along, along.contiguous(memory_format=torch.channels_last))
    gradients = [
        torch.autograd.grad(y, given, grad_y)
        for y, given, grad_y in zip(results, (dense, last), layouts, strict=True)
    ]
    for one, other in zip(*gradients, strict=True):
        assert bits(one) == bits(other.contiguous())


@pytest.mark.parametrize("mode", ["zeros", "reflect", "replicate", "circular"])
@pytest.mark.parametrize("dims", [1, 2])
def test_modules_are_those_of_torch(dims, mode):
    ours, theirs = (
        getattr(library, f"Conv{dims}d")(4, 6, 3, padding=2, groups=2, padding_mode=mode)
        for library in (isobit.torch, torch.nn)
    )
    theirs.load_state_dict(ours.state_dict())
    x = draw(2, 4, *(9,) * dims)
    assert isinstance(ours, type(theirs)) and torch.allclose(ours(x), theirs(x), atol=1e-5)


@pytest.mark.parametrize("dims", [1, 2])
def test_transposed_modules_are_those_of_torch(dims):
    ours, theirs = (
        getattr(library, f"ConvTranspose{dims}d")(4, 6, 3, stride=2, padding=1)
        for library in (isobit.torch, torch.nn)
    )
    theirs.load_state_dict(ours.state_dict())
    x, size = draw(2, 4, *(9,) * dims), (18,) * dims
    assert torch.allclose(ours(x, size), theirs(x, size), atol=1e-5)


# torch allows it where dilation is larger; there windows reach what stride alone would not.
def test_a_transposed_convolution_may_end_behind_its_last_window():
    x, weight = draw(2, 3, 5), draw(3, 4, 3)
    for padding in (0, 1, 2, 4):
        more = {"padding": padding, "dilation": 4, "output_padding": 3, "stride": 2}
        found = isobit.torch.conv_transpose1d(x, weight, **more)
        assert torch.allclose(found, F.conv_transpose1d(x, weight, **more), atol=1e-5)


def test_autocast_takes_the_type_of_torch():
    x, weight = draw(1, 3, 8, 8), draw(4, 3, 3, 3)
    with torch.autocast("cpu", torch.bfloat16):
        assert isobit.torch.conv2d(x, weight).dtype == F.conv2d(x, weight).dtype
        y = isobit.torch.conv_transpose2d(x, weight.transpose(0, 1))
    assert y.dtype == torch.bfloat16


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda x, w: isobit.torch.conv2d(x, w, padding="same", stride=2), "needs a stride of 1"),
        (lambda x, w: isobit.torch.conv2d(x, w, padding="full"), "padding is 'full'"),
        (lambda x, w: isobit.torch.conv2d(x, w, stride=0), "stride is 0; must be at least 1"),
        (lambda x, w: isobit.torch.conv2d(x, w, stride=(1, 2, 3)), "stride has 3 numbers"),
        (lambda x, w: isobit.torch.conv2d(x, w, groups=2), "groups is 2"),
        (lambda x, w: isobit.torch.conv2d(x, w, dilation=9), r"- 9 \* \(3 - 1\)"),
        (lambda x, w: isobit.torch.conv2d(x, w[0]), "weight has 3 dimensions; must have 4"),
        (lambda x, w: isobit.torch.conv1d(x, w), "input has 4 dimensions; must have 3, or 2"),
        (
            lambda x, w: isobit.torch.conv_transpose2d(x, w, output_padding=1),
            "output_padding is",
        ),
    ],
)
def test_a_mistake_is_told_in_words(call, says):
    with pytest.raises(ValueError, match=says):
        call(draw(1, 3, 8, 8), draw(3, 3, 3, 3))


def test_numpy_has_the_bits_of_torch():
    numpy = pytest.importorskip("numpy")
    import isobit.numpy

    x, weight, bias = draw(2, 4, 30), draw(6, 4, 5), draw(6)
    arrays = [each.numpy() for each in (x, weight, bias)]
    for padding in (2, "same", "valid"):
        found = isobit.numpy.conv1d(*arrays, padding=padding)
        assert bits(torch.from_numpy(found)) == bits(
            isobit.torch.conv1d(x, weight, bias, padding=padding)
        )
    causal = isobit.numpy.conv1d(*arrays, padding="causal")
    padded = isobit.torch.conv1d(F.pad(x, (4, 0)), weight, bias)
    assert numpy.array_equal(causal, padded.numpy())


@pytest.mark.parametrize("name", NAMES)
def test_the_gradient_of_a_bias_is_its_own_sum(name):
    """The sum of torch has another order for each number of threads."""
    dims = int(name[-2])
    x, weight = draw(2, 3, *(60,) * dims), draw(3, 3, *(3,) * dims)
    bias = draw(3, seed=1).requires_grad_()
    y = getattr(isobit.torch, name)(x, weight, bias)
    along = draw(*y.shape, seed=2)
    y.backward(along)
    assert bits(bias.grad) == bits(torch.ops.isobit.convolution_bias(along))


def test_the_gradient_of_a_wide_bias_is_not_rounded_to_sixteen_bits():
    x, weight = torch.zeros(1, 1, 70000).half(), torch.zeros(1, 1, 1).half()
    bias = torch.zeros(1, requires_grad=True)
    y = isobit.torch.conv1d(x, weight, bias)
    y.backward(torch.ones_like(y))
    assert bias.grad.dtype == torch.float32 and bias.grad.item() == 70000


@pytest.mark.parametrize("shape", [(1,), (5,), (2, 2)])
def test_a_bias_of_another_shape_is_refused(shape):
    x, weight = draw(1, 3, 9), draw(3, 4, 3)
    with pytest.raises(ValueError, match=r"conv_transpose1d: bias has shape .*; must be \(4,\)"):
        isobit.torch.conv_transpose1d(x, weight, torch.ones(shape))


def test_a_transposed_convolution_may_consist_of_output_padding():
    x, options = torch.ones(1, 1, 1), {"padding": 1, "output_padding": 2, "dilation": 3}
    bias = torch.full((1,), 3.0)
    expected = F.conv_transpose1d(x, x, bias, **options)
    assert torch.equal(isobit.torch.conv_transpose1d(x, x, bias, **options), expected)


def test_shapes_that_do_not_belong_together_are_found_on_the_meta_device():
    x = torch.empty(1, 3, 8, 8, device="meta")
    with pytest.raises(ValueError, match="convolution: x has 3 channels; weight has 5"):
        isobit.torch.conv2d(x, torch.empty(4, 5, 3, 3, device="meta"))
    with pytest.raises(ValueError, match=r"would have the extents \[0, 0\]"):
        isobit.torch.conv2d(x, torch.empty(4, 3, 9, 9, device="meta"))


@pytest.mark.parametrize(
    ("change", "error", "says"),
    [
        ({"stride": "2"}, TypeError, "stride must be integers; it is '2'"),
        ({"dilation": (1, 1, 1)}, ValueError, "dilation has 3 numbers; must have 1 or 2"),
        ({"groups": 0}, ValueError, "groups is 0; must be at least 1"),
        ({"padding": "causal"}, ValueError, "padding is 'causal'; allowed: numbers, 'same'"),
        ({"padding": "same", "stride": 2}, ValueError, "needs a stride of 1"),
        ({"padding_mode": "odd"}, ValueError, "padding_mode is 'odd'; allowed: 'zeros'"),
        ({"activation": "tan"}, ValueError, "activation is 'tan'; allowed: None"),
        ({"input": draw(3, 8, 8).numpy()}, ValueError, "input has 3 dimensions; must have 4"),
    ],
)
def test_numpys_mistakes_are_told_in_words(change, error, says):
    given = {"input": draw(1, 3, 8, 8).numpy(), "weight": draw(4, 3, 3, 3).numpy()} | change
    with pytest.raises(error, match=f"conv2d: .*{says}"):
        isobit_numpy.conv2d(**given)


def test_numpys_paddings_by_name_are_those_of_numbers():
    x, weight = draw(1, 2, 9).numpy(), draw(3, 2, 3).numpy()
    same = isobit_numpy.conv1d(x, weight, padding="same")
    assert np.array_equal(same, isobit_numpy.conv1d(x, weight, padding=1))
    causal = isobit_numpy.conv1d(x, weight, padding="causal")
    assert np.array_equal(causal, isobit_numpy.conv1d(x, weight, padding=2)[..., :9])
    assert isobit_numpy.conv1d(x, weight, padding="valid").shape == (1, 3, 7)
