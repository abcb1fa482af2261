# SPDX-License-Identifier: Apache-2.0
"""What PyTorch tests its own norms with holds for ours: its samples, wrong inputs and dtypes."""

import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck
from torch_calls import bits

import isobit.torch

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:var_mean:UserWarning"),
]

REAL = (torch.float32, torch.float64, torch.float16, torch.bfloat16)


def ours_of_native_layer_norm(input, normalized_shape, weight, bias, eps):
    return isobit.torch.layer_norm(input, normalized_shape, weight, bias, eps)


# by PyTorch's name
FUNCTIONS = {
    "nn.functional.layer_norm": isobit.torch.layer_norm,
    "nn.functional.rms_norm": isobit.torch.rms_norm,
    "native_layer_norm": ours_of_native_layer_norm,
    "_refs.nn.functional.layer_norm": isobit.torch.layer_norm,
    "_refs.native_layer_norm": ours_of_native_layer_norm,
}
# Samples of the others are those of these.
ONCE = [name for name in FUNCTIONS if not name.startswith("_refs.")]
MODULES = {
    torch.nn.LayerNorm: isobit.torch.LayerNorm,
    torch.nn.RMSNorm: isobit.torch.RMSNorm,
}


def wide(value):
    return value.double() if torch.is_tensor(value) else value


def first(outputs):
    """y without what native_layer_norm returns beside it."""
    return outputs[0] if isinstance(outputs, tuple) else outputs


def eps_of(name, sample):
    given = [v for v in (*sample.args, *sample.kwargs.values()) if isinstance(v, float)]
    if given or "layer_norm" in name:
        return given[0] if given else 1e-5
    wide = sample.input.dtype == torch.float64
    return torch.finfo(torch.float64 if wide else torch.float32).eps


def growth(x, normalized_shape, eps, centered):
    """How many times larger errors become when the rows of x are scaled to a variance of 1."""
    if x.numel() == 0:
        return 1.0
    dims = tuple(range(-len(normalized_shape), 0))
    x = x.detach().double()
    square = x.var(dims, correction=0) if centered else x.square().mean(dims)
    r = (square + eps).rsqrt().nan_to_num().max().item()
    return 1 + r * (1 + x.abs().max().item() * centered)


def near(ours, reference, growth):
    """Rounded once to ours' dtype, after arithmetic in at least single precision."""
    rounding = torch.finfo(ours.dtype)
    working = torch.finfo(torch.float64 if ours.dtype == torch.float64 else torch.float32)
    scale = 1 + (reference.abs().nan_to_num().max().item() if reference.numel() else 0.0)
    return ours.shape == reference.shape and torch.allclose(
        *(ours.double(), reference),
        rtol=4 * rounding.eps,
        atol=8 * working.eps * scale * growth + 4 * rounding.tiny,
        equal_nan=True,
    )


def leaves_of(sample):
    return [t for t in (sample.input, *sample.args) if torch.is_tensor(t) and t.requires_grad]


@pytest.mark.parametrize("dtype", REAL)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_values_and_gradients_of_pytorchs_samples(internal, name, dtype):
    ours, info = FUNCTIONS[name], internal.operators[name]
    torch.manual_seed(0)
    samples = list(info.sample_inputs("cpu", dtype, requires_grad=True))
    assert samples and dtype in info.supported_dtypes("cpu")
    for sample in samples:
        y = ours(sample.input, *sample.args, **sample.kwargs)
        assert y.dtype == dtype
        double = sample.transform(lambda v: wide(v).detach().requires_grad_(v.requires_grad))
        eps = eps_of(name, sample)
        if "rms_norm" in name:
            double.kwargs = {"eps": eps}  # the default is that of the dtype
        reference = first(info.op(double.input, *double.args, **double.kwargs))
        errors = growth(sample.input, sample.args[0], eps, "layer_norm" in name)
        assert near(y, reference, errors)
        to = torch.full_like(y, 0.5)
        found = torch.autograd.grad(y, leaves_of(sample), to)
        expected = torch.autograd.grad(reference, leaves_of(double), to.double())
        assert len(found) == len(expected) > 0
        assert all(near(*pair, errors) for pair in zip(found, expected, strict=True))


@pytest.mark.parametrize("dtype", REAL)
@pytest.mark.parametrize("name", ONCE)
def test_samples_that_are_not_contiguous_change_no_bit(internal, name, dtype):
    ours = FUNCTIONS[name]
    for sample in internal.operators[name].sample_inputs("cpu", dtype):
        spread = sample.noncontiguous()
        assert bits(ours(sample.input, *sample.args, **sample.kwargs)) == bits(
            ours(spread.input, *spread.args, **spread.kwargs)
        )


@pytest.mark.parametrize("name", ONCE)
def test_derivatives_at_pytorchs_samples_are_numerical_ones(internal, name):
    ours, checked = FUNCTIONS[name], 0
    torch.manual_seed(0)
    for sample in internal.operators[name].sample_inputs("cpu", torch.float64, requires_grad=True):
        if eps_of(name, sample) < 0 or sample.input.numel() < 2:
            continue  # of nan, and of one element, whose derivative of rmsnorm is all but a step
        leaves = leaves_of(sample)

        def call(*tensors, sample=sample):
            given = iter(tensors)
            again = sample.transform(
                lambda v: next(given) if torch.is_tensor(v) and v.requires_grad else v
            )
            return ours(again.input, *again.args, **again.kwargs)

        assert gradcheck(call, leaves, check_forward_ad=True, check_batched_grad=True)
        assert gradgradcheck(call, leaves, check_fwd_over_rev=True)
        checked += 1
    assert checked


@pytest.mark.parametrize("name", FUNCTIONS)
def test_dtypes_beyond_ours_are_refused(internal, name):
    info = internal.operators[name]
    assert set(REAL) <= info.supported_dtypes("cpu")
    for dtype in info.supported_dtypes("cpu") - set(REAL):
        for sample in info.sample_inputs("cpu", dtype):
            with pytest.raises(ValueError, match=f"input has dtype {dtype}; must be float32"):
                FUNCTIONS[name](sample.input, *sample.args, **sample.kwargs)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_inputs_that_pytorch_refuses_are_refused(internal, name):
    info = internal.operators[name]
    wrong = list(info.error_inputs("cpu")) if info.error_inputs_func else []
    assert bool(wrong) != name.endswith("functional.layer_norm")
    for each in wrong:
        sample = each.sample_input
        with pytest.raises(each.error_type):
            info.op(sample.input, *sample.args, **sample.kwargs)
        with pytest.raises(ValueError, match="has shape"):
            FUNCTIONS[name](sample.input, *sample.args, **sample.kwargs)


@pytest.mark.parametrize("theirs", MODULES)
@pytest.mark.parametrize("dtype", REAL)
@pytest.mark.parametrize("training", [True, False])
def test_modules_do_what_pytorchs_do_with_its_samples(internal, theirs, dtype, training):
    info = internal.modules[theirs]
    torch.manual_seed(0)
    inputs = info.module_inputs_func(
        info, device="cpu", dtype=dtype, requires_grad=True, training=training
    )
    assert inputs
    for each in inputs:
        make, run = each.constructor_input, each.forward_input
        ours = MODULES[theirs](*make.args, **make.kwargs).to(dtype).train(training)
        reference = theirs(*make.args, **make.kwargs).double().train(training)
        reference.load_state_dict(ours.state_dict())
        (x,) = run.args
        y, expected = ours(x), reference(x.double())
        assert y.dtype == dtype
        errors = growth(x, ours.normalized_shape, ours.eps, theirs is torch.nn.LayerNorm)
        assert near(y, expected, errors)
        (y * 0.5).sum().backward()
        (expected * 0.5).sum().backward()
        errors *= 1 + y.numel() ** 0.5  # of the sums over rows
        for parameter, theirs_of in zip(ours.parameters(), reference.parameters(), strict=True):
            assert parameter.grad.dtype == dtype
            assert near(parameter.grad, theirs_of.grad, errors)


def as_doubles(named):
    """Masks as PyTorch takes them beside doubles."""
    return {
        name: each.double() if isinstance(each, torch.Tensor) and each.is_floating_point() else each
        for name, each in named.items()
    }


@pytest.mark.parametrize("dtype", REAL)
def test_samples_of_attention_give_what_pytorch_gives(internal, dtype):
    info = internal.operators["nn.functional.scaled_dot_product_attention"]
    ours, count = isobit.torch.scaled_dot_product_attention, 0
    for sample in info.sample_inputs("cpu", dtype, requires_grad=dtype.itemsize > 2):
        if sample.kwargs.get("dropout_p", 0) > 0:
            continue  # PyTorch drops others
        tensors = (sample.input, *sample.args)
        y, exact = ours(*tensors, **sample.kwargs), as_doubles(sample.kwargs)
        expected = info.op(*(each.double() for each in tensors), **exact)
        # Scores are in the hundreds, and a rounding of one is as much of a weight.
        loose = {2: 0.02, 4: 1e-4, 8: 1e-7}[dtype.itemsize]
        torch.testing.assert_close(y, expected.to(dtype), atol=loose, rtol=loose)
        if dtype.itemsize > 2:
            into = torch.ones_like(y)
            found = torch.autograd.grad(y, tensors[:3], into)
            of_theirs = torch.autograd.grad(expected, tensors[:3], into)
            torch.testing.assert_close(found, of_theirs, atol=loose, rtol=loose)
        count += 1
    assert count > 5


def test_samples_of_multihead_attention_give_what_pytorch_gives(internal):
    info, count = internal.modules[torch.nn.MultiheadAttention], 0
    for sample in info.module_inputs_func(info, "cpu", torch.float64, True, False):
        given = sample.constructor_input
        theirs = torch.nn.MultiheadAttention(*given.args, **given.kwargs, dtype=torch.float64)
        ours = isobit.torch.MultiheadAttention(*given.args, **given.kwargs, dtype=torch.float64)
        ours.load_state_dict(theirs.state_dict())
        call = sample.forward_input
        found, expected = (each.eval()(*call.args, **call.kwargs) for each in (ours, theirs))
        torch.testing.assert_close(found, expected)
        found, expected = (
            sample.reference_fn(each, *call.args, **call.kwargs) for each in (ours, theirs)
        )
        torch.testing.assert_close(found, expected)
        count += 1
    assert count > 50
