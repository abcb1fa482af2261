# SPDX-License-Identifier: Apache-2.0
"""What looks like a linear layer and is none that Isobit computes stays as it is, and the report of
patch says why."""

import abc

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrize
from torch_calls import bits, draw

import isobit.torch
from isobit.torch import patch

WIDTH = 8

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:torch.ao.quantization is deprecated"),
    pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor"),
    pytest.mark.filterwarnings("ignore:Sparse CSR tensor support is in beta"),
]


class DoublingLinear(nn.Linear):
    def forward(self, input):
        return 2 * super().forward(input)


class FakeQuantisedLinear(nn.Module):
    """As libraries for quantisation store weights."""

    def __init__(self):
        super().__init__()
        self.register_buffer("qweight", torch.zeros(WIDTH, WIDTH, dtype=torch.int8))


class AbstractLinear(nn.Linear, metaclass=abc.ABCMeta):
    pass


class Tagged(torch.Tensor):
    pass


def with_weight(weight):
    module = nn.Linear(WIDTH, WIDTH, bias=False)
    module.weight = nn.Parameter(weight, requires_grad=False)
    return module


def with_buffer():
    module = nn.Linear(WIDTH, WIDTH, bias=False)
    del module.weight
    module.register_buffer("weight", torch.zeros(WIDTH, WIDTH, dtype=torch.int8))
    return module


def owning():
    module = nn.Linear(WIDTH, WIDTH)
    module.forward = lambda x: x
    return module


def quantised():
    if not {"onednn", "fbgemm", "x86", "qnnpack"} & {*torch.backends.quantized.supported_engines}:
        pytest.skip("PyTorch has no engine for quantised layers here")
    model = nn.Sequential(nn.Linear(WIDTH, WIDTH))
    return torch.ao.quantization.quantize_dynamic(model, {nn.Linear}, dtype=torch.qint8)[0]


LEFT_ALONE = {
    "DoublingLinear has a forward of its own": lambda: DoublingLinear(WIDTH, WIDTH),
    "has a forward of its own, set on the module": owning,
    "its weights are quantised": quantised,
    "FakeQuantisedLinear is no torch.nn.Linear": FakeQuantisedLinear,
    "is lazy": lambda: nn.LazyLinear(WIDTH),
    "is scripted": lambda: torch.jit.script(nn.Linear(WIDTH, WIDTH)),
    "is Isobit's already": lambda: isobit.torch.Linear(WIDTH, WIDTH, activation="relu"),
    "of the type ABCMeta": lambda: AbstractLinear(WIDTH, WIDTH),
    "multiplies by two inputs": lambda: nn.Bilinear(WIDTH, WIDTH, WIDTH),
    "weight is of torch.complex64": lambda: nn.Linear(WIDTH, WIDTH, dtype=torch.complex64),
    "weight is of torch.float8": lambda: nn.Linear(WIDTH, WIDTH).to(torch.float8_e4m3fn),
    "weight is of torch.int32": lambda: with_weight(torch.zeros(WIDTH, WIDTH, dtype=torch.int32)),
    "weight is of torch.int8": with_buffer,
    "weight is of the type Tagged": lambda: with_weight(torch.zeros(2, 2).as_subclass(Tagged)),
    "weight has layout torch.sparse_csr": lambda: with_weight(torch.eye(WIDTH).to_sparse_csr()),
}


@pytest.mark.parametrize("reason", LEFT_ALONE)
def test_what_is_no_plain_linear_layer_stays_and_says_why(reason):
    model = nn.Sequential(LEFT_ALONE[reason]())
    kind, attributes = type(model[0]), dict(vars(model[0]))
    report = patch(model, linear=True)
    assert reason in report.skipped["0"] and not report.replaced and report.linear == []
    assert type(model[0]) is kind and vars(model[0]) == attributes
    assert str(report).startswith("Isobit computes 0 norms and 0 linear layers\nand leaves alone\n")


def test_what_only_has_the_name_or_contains_layers_is_not_mentioned():
    class LinearStack(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = nn.Linear(WIDTH, WIDTH)
            self.up = nn.UpsamplingBilinear2d(2)
            self.embedding = nn.Embedding(3, WIDTH)
            self.conv = nn.Conv1d(WIDTH, WIDTH, 1)

    class Scale(nn.Module):
        """A parametrization with a layer inside."""

        def __init__(self):
            super().__init__()
            self.of = nn.Linear(WIDTH, WIDTH)

        def forward(self, weight):
            return self.of(weight)

    model = LinearStack()
    parametrize.register_parametrization(model.inner, "weight", Scale())
    report = patch(model, linear=True)
    assert report.linear == ["inner"] and report.skipped == {}
    assert type(model.inner.parametrizations.weight[0].of) is nn.Linear


def test_a_lazy_layer_is_replaced_after_its_first_call():
    model = nn.Sequential(nn.LazyLinear(WIDTH))
    x = draw(3, WIDTH)
    model(x)
    patch(model, linear=True)
    assert type(model[0]) is isobit.torch.Linear
    assert bits(model(x)) == bits(isobit.torch.linear(x, *model[0].parameters()))


class CallingAttention(nn.MultiheadAttention):
    """Uses its layer as a layer."""

    def forward(self, x):
        return self.out_proj(x)


class OwnLinear(nn.Linear):
    pass


def test_attention_never_calls_the_layer_whose_weight_it_takes():
    attention = nn.MultiheadAttention(WIDTH, 2, batch_first=True)
    calls = []
    attention.out_proj.register_forward_hook(lambda *_: calls.append(1))
    report = patch(attention, linear=True)
    reason = "torch.nn.MultiheadAttention multiplies by its weight and never calls it"
    assert report.skipped == {"out_proj": reason} and not report.replaced
    assert patch(attention.out_proj, linear=True).skipped == {"": reason}
    x = draw(2, 3, WIDTH)
    attention(x, x, x)
    assert not calls, "or it could be replaced"


def test_another_layer_in_that_place_is_told_apart_by_what_calls_it():
    for kind, called in ((nn.MultiheadAttention, False), (CallingAttention, True)):
        attention = kind(WIDTH, 2)
        attention.out_proj = OwnLinear(WIDTH, WIDTH)
        report = patch(attention, linear=True)
        assert (report.linear == ["out_proj"]) == called
        assert ("never calls it" in report.skipped.get("out_proj", "")) != called


def test_norms_and_linear_layers_are_told_apart():
    class NormLinear(nn.Linear):
        """By its class a linear layer, by its name a norm."""

    class LinearNorm(nn.LayerNorm):
        """The reverse."""

    model = nn.Sequential(NormLinear(WIDTH, WIDTH), LinearNorm(WIDTH), nn.LayerNorm(WIDTH))
    report = patch(model, linear=True)
    assert report.linear == ["0"] and set(report.replaced) == {"0", "1", "2"}
    assert str(report).startswith("Isobit computes 2 norms and 1 linear layer\n")
    x = draw(3, WIDTH)
    assert bits(model[0](x)) == bits(isobit.torch.linear(x, *model[0].parameters()))
    assert bits(model[1](x)) == bits(isobit.torch.layer_norm(x, WIDTH))
