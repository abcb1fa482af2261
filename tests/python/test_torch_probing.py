# SPDX-License-Identifier: Apache-2.0
"""A norm of somebody else's class is replaced where it computes the same, and only there."""

import abc
import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils import parametrize
from torch_calls import bits, draw
from torch_norms import (
    EPS,
    WIDTH,
    BiasedNorm,
    CenteredLayerNorm,
    CenteredRMSNorm,
    NamedLayerNorm,
    NarrowingRMSNorm,
    PromotingRMSNorm,
    Weighted,
    WeightlessNorm,
    is_ours,
    made,
)

import isobit.torch
from isobit.torch import intercept, patch

COMPUTED = {
    PromotingRMSNorm: lambda m, x: isobit.torch.rms_norm(x, WIDTH, m.weight, EPS),
    NarrowingRMSNorm: lambda m, x: isobit.torch.rms_norm(x, WIDTH, m.weight, EPS),
    CenteredRMSNorm: lambda m, x: isobit.torch.rms_norm(
        x, WIDTH, m.weight, EPS, zero_centered=True
    ),
    BiasedNorm: lambda m, x: isobit.torch.layer_norm(x, WIDTH, m.weight, m.bias, EPS),
    CenteredLayerNorm: lambda m, x: isobit.torch.layer_norm(
        x, WIDTH, m.weight, m.bias, m.eps, zero_centered=True
    ),
    NamedLayerNorm: lambda m, x: isobit.torch.layer_norm(x, WIDTH, m.weight, m.bias, m.eps),
    WeightlessNorm: lambda m, x: isobit.torch.rms_norm(x, WIDTH, None, EPS),
}


@pytest.mark.parametrize("kind", COMPUTED, ids=lambda kind: kind.__name__)
def test_norms_of_other_classes_are_replaced_where_they_compute_the_same(kind):
    module = made(kind)
    x = draw(2, 5, WIDTH)
    before = module(x)
    report = patch(module)
    assert isinstance(module, kind) and is_ours(module), report
    assert bits(module(x)) == bits(COMPUTED[kind](module, x))
    assert torch.allclose(module(x), before, atol=1e-5)
    report.restore()
    assert type(module) is kind and bits(module(x)) == bits(before)


@pytest.mark.parametrize("kind", COMPUTED, ids=lambda kind: kind.__name__)
def test_the_result_has_the_type_that_it_had(kind):
    dtypes = (torch.float32, torch.float16, torch.bfloat16)
    for weight in dtypes:
        for input in dtypes:
            theirs, x = made(kind).to(weight), draw(3, WIDTH).to(input)
            ours = copy.deepcopy(theirs)
            patch(ours)
            try:
                expected = theirs(x)
            except RuntimeError:
                continue  # a mixture that PyTorch's layer_norm does not take
            y = ours(x)
            assert y.dtype == expected.dtype
            assert torch.allclose(y.float(), expected.float(), rtol=0.03, atol=0.03)
    assert ours.double()(draw(3, WIDTH).double()).dtype == torch.float64


def test_the_input_may_be_given_under_the_originals_name():
    module = made(PromotingRMSNorm)
    patch(module)
    x = draw(2, WIDTH)
    assert bits(module(hidden=x)) == bits(module(x))


class OutsideNorm(Weighted):
    def forward(self, x):
        return self.weight * x / (x.square().mean(-1, keepdim=True).sqrt() + self.epsilon)


class UnbiasedNorm(Weighted):
    def forward(self, x):
        variance, mean = torch.var_mean(x, -1, keepdim=True)
        return self.weight * (x - mean) * torch.rsqrt(variance + self.epsilon)


class DetachedNorm(Weighted):
    def forward(self, x):
        return self.weight * x * torch.rsqrt(x.square().mean(-1, keepdim=True) + EPS).detach()


class NoisyNorm(PromotingRMSNorm):
    def forward(self, x):
        return F.dropout(super().forward(x), 0.1, self.training)


class GatedNorm(PromotingRMSNorm):
    def forward(self, x, gate=None):
        return super().forward(x if gate is None else x * gate)


class CountingNorm(PromotingRMSNorm):
    def __init__(self):
        super().__init__()
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x):
        self.calls += 1
        return super().forward(x)


class ScaledNorm(PromotingRMSNorm):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(()))

    def forward(self, x):
        return self.scale * super().forward(x)


class ConstantNorm(nn.Module):
    def forward(self, x):
        return F.rms_norm(x, x.shape[-1:], None, EPS)


class LayerNorm2d(nn.LayerNorm):
    def forward(self, x):
        return super().forward(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class PolyglotNorm(nn.LayerNorm):
    """Channels come last in rows, and first in images."""

    def forward(self, x):
        if x.dim() < 4:
            return super().forward(x)
        d = x - x.mean(1, keepdim=True)
        return d * torch.rsqrt(d.square().mean(1, keepdim=True) + self.eps)


class TransposingNorm(PromotingRMSNorm):
    def forward(self, x):
        return super().forward(x).mT


class WideNorm(PromotingRMSNorm):
    def forward(self, x):
        return super().forward(x).double()


class RoundingNorm(PromotingRMSNorm):
    """Another norm where the input has 16 bits."""

    def forward(self, x):
        return super().forward(x if x.dtype == torch.float32 else x.relu())


class AbstractNorm(PromotingRMSNorm, metaclass=abc.ABCMeta):
    pass


def owning():
    module = nn.LayerNorm(WIDTH)
    module.forward = lambda x: x
    return module


def parametrized():
    module = made(NamedLayerNorm)
    return parametrize.register_parametrization(module, "weight", nn.Softplus())


LEFT_ALONE = {
    "neither layer norm nor RMS norm": (OutsideNorm, UnbiasedNorm, NoisyNorm),
    "another gradient": (DetachedNorm,),
    "takes x and gate": (GatedNorm,),
    "buffers: calls": (CountingNorm,),
    "not a weight and a bias: weight, scale": (ScaledNorm,),
    "no attributes that could be epsilon": (ConstantNorm,),
    "its forward fails": (lambda: LayerNorm2d(WIDTH),),
    "neither": (lambda: PolyglotNorm(WIDTH),),
    "over the batch": (lambda: nn.BatchNorm2d(8), lambda: nn.SyncBatchNorm(8)),
    "a channel over its positions": (lambda: nn.InstanceNorm1d(8),),
    "groups of channels": (lambda: nn.GroupNorm(2, 8),),
    "neighbouring channels": (lambda: nn.LocalResponseNorm(2),),
    "is scripted": (lambda: torch.jit.script(nn.LayerNorm(8)),),
    "is Isobit's already": (lambda: isobit.torch.LayerNorm(8),),
    "a forward of its own": (owning,),
    "has parametrizations": (parametrized,),
    "not of the shape": (TransposingNorm,),
    "its result is of torch.float64": (WideNorm,),
    "another norm for weights of torch.float32 and rows of torch.float16": (RoundingNorm,),
    "of the type ABCMeta": (AbstractNorm,),
    "too narrow": (lambda: NamedLayerNorm(2),),
    "weight is of torch.float8": (lambda: nn.LayerNorm(8).to(torch.float8_e4m3fn),),
}


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is")
@pytest.mark.parametrize(
    "reason, make", [(why, make) for why, makers in LEFT_ALONE.items() for make in makers]
)
def test_what_computes_something_else_stays_and_says_why(reason, make):
    model = nn.Sequential(make())
    kind = type(model[0])
    report = patch(model)
    assert reason in report.skipped["0"] and not report.replaced
    assert type(model[0]) is kind


def test_trying_a_module_changes_nothing_of_it():
    class TamperingNorm(PromotingRMSNorm):
        def forward(self, x):
            self.seen = x.shape
            with torch.no_grad():
                self.weight.mul_(torch.rand(()) * 0 + 1)
            return super().forward(x)

    module = made(TamperingNorm)
    attributes, weight, random = dict(vars(module)), bits(module.weight), torch.get_rng_state()
    version = module.weight._version
    assert patch(module).replaced
    assert vars(module) == attributes and bits(module.weight) == weight
    assert module.weight._version == version and module.weight.grad is None
    assert torch.equal(torch.get_rng_state(), random)


def test_modules_are_tried_whatever_surrounds_the_call():
    for surroundings in (
        torch.no_grad(),
        torch.inference_mode(),
        torch.autocast("cpu", torch.bfloat16),
        torch.device("meta"),
        intercept(),
    ):
        module = made(PromotingRMSNorm)
        with surroundings:
            assert patch(module).replaced
