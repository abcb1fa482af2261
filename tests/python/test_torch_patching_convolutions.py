# SPDX-License-Identifier: Apache-2.0
"""Isobit in the place of a model's convolutions, where patch is asked for them: the model goes on
as it was, with the bits of isobit.torch's convolutions; what stays says why."""

import abc
import copy
import io

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrize
from torch_calls import bits, draw

import isobit.torch
from isobit.torch import patch, patching

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:Using padding='same':UserWarning"),
    pytest.mark.filterwarnings("ignore:torch.ao.quantization is deprecated"),
    pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor"),
    pytest.mark.filterwarnings("ignore:.*weight_norm.* is deprecated"),
    pytest.mark.filterwarnings("ignore:Complex modules are a new feature"),
]

KINDS = ("Conv1d", "Conv2d", "ConvTranspose1d", "ConvTranspose2d")


class Named(nn.Conv1d):
    """No more than a name, and a method of its own."""

    def width(self):
        return self.kernel_size[0]


class NamedTransposed(nn.ConvTranspose2d):
    pass


class Speech(nn.Module):
    """As models of speech begin: convolutions, one of them twice, norms, a linear layer."""

    def __init__(self):
        super().__init__()
        self.embed = nn.ModuleList([nn.Conv1d(3, 8, 3, padding=1), Named(8, 8, 3, stride=2)])
        self.again = self.embed[0]
        self.tied = nn.Conv1d(3, 8, 3, padding="same", bias=False)
        self.tied.weight = self.embed[0].weight
        self.norm = nn.LayerNorm(8)
        self.mix = nn.Conv1d(8, 8, 5, padding=4, groups=8)
        self.head = nn.Linear(8, 4)

    def forward(self, x):
        x = self.embed[1](torch.tanh(self.embed[0](x) + self.tied(x)))
        x = self.norm(x.transpose(1, 2)).transpose(1, 2)
        return self.head(self.mix(x).transpose(1, 2))


X = draw(2, 3, 30)
CONVOLUTIONS = ["embed.0", "embed.1", "tied", "mix"]


@pytest.fixture
def speech():
    torch.manual_seed(0)
    return Speech()


def is_ours(module):
    return isinstance(module, patching._OURS) or isinstance(type(module), patching.Patched)


def gradients(model, *given):
    """The result, and the gradients of all parameters."""
    model.zero_grad()
    y = model(*given)
    y.float().square().sum().backward()
    return y.detach(), *(each.grad for each in model.parameters())


def drawn(name, channels=4):
    return draw(2, channels, *(9,) * int(name[-2]))


@pytest.mark.parametrize("options", [{}, {"padding": 2, "groups": 2, "bias": False, "stride": 2}])
@pytest.mark.parametrize("name", KINDS)
def test_a_convolution_becomes_isobits_with_its_bits_and_gradients(name, options):
    module = getattr(nn, name)(4, 6, 3, **options)
    ours = getattr(isobit.torch, name)(4, 6, 3, **options)
    ours.load_state_dict(module.state_dict())
    x = drawn(name)
    theirs = gradients(module, x)
    report = patch(module, convolutions=True)
    assert type(module) is type(ours) and report.replaced == {"": type(ours)}
    assert report.convolutions == [""] and report.skipped == {} and report.linear is None
    found = gradients(module, x)
    assert bits(*found) == bits(*gradients(ours, x))
    for one, other in zip(found, theirs, strict=True):
        assert torch.allclose(one, other, rtol=1e-4, atol=1e-4)


def test_convolutions_stay_where_nobody_asked(speech):
    report = patch(speech, linear=True)
    assert set(report.replaced) == {"norm", "head"} and report.convolutions is None
    assert report.skipped == {} and type(speech.mix) is nn.Conv1d


def test_modules_keep_their_identity_parameters_hooks_and_mode(speech):
    modules, parameters = dict(speech.named_modules()), dict(speech.named_parameters())
    state, calls = speech.state_dict(), []
    speech.mix.register_forward_hook(lambda *_: calls.append("after"))
    speech.embed[1].register_forward_pre_hook(lambda *_: calls.append("before"))
    speech.mix.eval()
    patch(speech, convolutions=True)
    assert dict(speech.named_modules()) == modules
    assert all(value is parameters[name] for name, value in speech.named_parameters())
    assert list(speech.state_dict()) == list(state)
    assert bits(*speech.state_dict().values()) == bits(*state.values())
    speech(X)
    assert calls == ["before", "after"] and not speech.mix.training
    assert speech.tied.weight is speech.embed[0].weight, "tied weights stay tied"


def test_a_report_counts_what_was_asked_for(speech):
    with patch(speech, convolutions=True) as report:
        assert report.convolutions == CONVOLUTIONS
        assert set(report.replaced) == {"norm", *CONVOLUTIONS}
        assert report.skipped == {"again": "is embed.0"}
        lines = str(report).splitlines()
        assert lines[0] == "Isobit computes 1 norm and 4 convolutions"
        assert "  embed.1: IsobitNamed" in lines and "  mix: Conv1d" in lines
    report = patch(speech, linear=True, convolutions=True)
    told = "Isobit computes 1 norm, 1 linear layer and 4 convolutions\n"
    assert str(report).startswith(told)
    one = str(patch(nn.Conv2d(1, 1, 1), convolutions=True)).splitlines()
    assert one == ["Isobit computes 0 norms and 1 convolution", "  (the model): Conv2d"]


def test_restore_gives_every_class_and_bit_back_in_any_order(speech):
    before = bits(*gradients(speech, X))
    classes = [type(each) for each in speech.modules()]
    linear = patch(speech, linear=True)
    ours = patch(speech, convolutions=True)
    assert ours.convolutions == list(ours.replaced) == CONVOLUTIONS
    again = patch(speech, convolutions=True)
    assert not again.replaced
    assert all(again.skipped[name] == "is Isobit's already" for name in CONVOLUTIONS)
    after = bits(*gradients(speech, X))
    again.restore()
    linear.restore()
    assert is_ours(speech.mix) and not is_ours(speech.head)
    linear = patch(speech, linear=True)
    assert bits(*gradients(speech, X)) == after != before
    ours.restore()
    linear.restore()
    assert [type(each) for each in speech.modules()] == classes
    assert bits(*gradients(speech, X)) == before


def test_with_restores_at_its_end(speech):
    with pytest.raises(ZeroDivisionError), patch(speech, convolutions=True):
        assert type(speech.mix) is isobit.torch.Conv1d
        raise ZeroDivisionError
    assert type(speech.mix) is nn.Conv1d and type(speech.embed[1]) is Named


def test_a_class_that_inherits_its_forward_is_derived_from():
    model = nn.ModuleList([Named(4, 6, 3), NamedTransposed(4, 6, 3, stride=2)])
    x, image = draw(2, 4, 9), draw(2, 4, 5, 5)
    patch(model, convolutions=True)
    for module, kind, ours in zip(
        model,
        (Named, NamedTransposed),
        (isobit.torch.Conv1d, isobit.torch.ConvTranspose2d),
        strict=True,
    ):
        assert isinstance(module, kind) and isinstance(module, ours) and is_ours(module)
    assert model[0].width() == 3
    assert bits(model[0](input=x)) == bits(isobit.torch.conv1d(x, *model[0].parameters()))
    sized = model[1](output_size=(12, 12), input=image)
    more = {"stride": 2, "output_padding": 1}
    expected = isobit.torch.conv_transpose2d(image, *model[1].parameters(), **more)
    assert bits(sized) == bits(expected)


def test_an_attribute_of_somebody_elses_is_not_taken_for_ours():
    class Counting(nn.Conv1d):
        _function = "a count"

    module = Counting(4, 4, 3)
    module._function_of_mine = 1
    patch(module, convolutions=True)
    assert module._function == "a count"
    x = drawn("Conv1d")
    assert bits(module(x)) == bits(isobit.torch.conv1d(x, *module.parameters()))


def test_copies_and_pickles_of_a_patched_model_compute_the_same(speech):
    patch(speech, convolutions=True)
    file = io.BytesIO()
    torch.save(speech, file)
    patching.patched_class.cache_clear()  # as in a process that never patched anything
    file.seek(0)
    loaded = torch.load(file, weights_only=False)
    assert is_ours(loaded.embed[1]) and loaded.again is loaded.embed[0]
    assert loaded.tied.weight is loaded.embed[0].weight
    expected = bits(speech(X))
    assert bits(loaded(X)) == bits(copy.deepcopy(speech)(X)) == expected


def test_parametrizations_come_and_go_before_and_after():
    model = nn.Sequential(Named(4, 4, 3), nn.Conv1d(4, 4, 3), nn.Conv1d(4, 4, 3))
    for early in (model[0], model[1]):
        parametrize.register_parametrization(early, "weight", nn.Softplus())
    report = patch(model, convolutions=True)
    assert report.convolutions == ["0", "1", "2"] and report.skipped == {}
    parametrize.register_parametrization(model[2], "weight", nn.Softplus())
    x = drawn("Conv1d")
    for layer in (*model, *copy.deepcopy(model)):
        expected = isobit.torch.conv1d(x, layer.weight, layer.bias)
        assert is_ours(layer) and bits(layer(x)) == bits(expected)
    parametrize.remove_parametrizations(model[0], "weight")
    assert isinstance(model[0], Named) and is_ours(model[0])
    report.restore()
    kinds = [parametrize.type_before_parametrizations(layer) for layer in model]
    assert kinds == [Named, nn.Conv1d, nn.Conv1d]


@pytest.mark.parametrize(
    "prepare", [nn.utils.weight_norm, nn.utils.spectral_norm, nn.utils.parametrizations.weight_norm]
)
def test_weights_that_are_made_before_each_call_are_those_of_the_call(prepare):
    model = nn.Sequential(nn.Conv1d(4, 4, 3)).eval()
    prepare(model[0])
    x = drawn("Conv1d")
    expected = model(x)
    assert patch(model, convolutions=True).convolutions == ["0"]
    found = model(x)
    assert torch.allclose(found, expected, atol=1e-5)
    assert bits(found) == bits(isobit.torch.conv1d(x, model[0].weight, model[0].bias))


@torch.no_grad()
def test_compiled_code_follows_patch_and_restore():
    torch._dynamo.reset()
    model, x = nn.Sequential(Named(20, 9, 5), nn.ConvTranspose1d(9, 4, 3)), draw(2, 20, 30)
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    before = compiled(x)
    report = patch(compiled, convolutions=True)
    assert len(report.convolutions) == 2
    assert bits(compiled(x)) == bits(model(x)) != bits(before)
    report.restore()
    assert bits(compiled(x)) == bits(before)
    torch._dynamo.reset()


class Normed(nn.Module):
    """A norm whose result a convolution takes, and a norm whose result a linear layer takes."""

    def __init__(self):
        super().__init__()
        self.norm1, self.conv = nn.LayerNorm(12), nn.Conv1d(4, 4, 3, padding=1)
        self.norm2, self.linear = nn.LayerNorm(12), nn.Linear(12, 12)

    def forward(self, x):
        return self.linear(self.norm2(x + self.conv(self.norm1(x))))


def test_norms_that_leave_their_work_compute_for_convolutions():
    model, x = Normed(), draw(2, 4, 12)
    with patch(model, linear=True, convolutions=True):
        expected = bits(*gradients(model, x))
    report = patch(model, fuse=True, convolutions=True)
    assert str(report).startswith("Isobit computes 2 norms, 1 linear layer and 1 convolution\n")
    assert bits(*gradients(model, x)) == expected
    lines = str(report).splitlines()
    assert "  norm1: DeferredLayerNorm, computed for conv1d" in lines
    assert "  norm2: DeferredLayerNorm, fused with a linear layer" in lines
    assert "  conv: Conv1d" in lines


def test_a_signal_alone_equals_itself_in_every_batch_on_any_number_of_threads(speech):
    patch(speech, linear=True, convolutions=True)
    x = draw(9, 3, 40)
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        alone = [speech(each[None])[0] for each in x]
        for count in (1, 2, 5):
            torch.set_num_threads(count)
            for m in (1, 2, 9):
                assert bits(speech(x[-m:])) == bits(torch.stack(alone[-m:])), (count, m)
    finally:
        torch.set_num_threads(threads)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast_chooses_the_types_that_it_chose(speech, dtype):
    with torch.autocast("cpu", dtype):
        theirs = gradients(speech, X)
        patch(speech, convolutions=True)
        ours = gradients(speech, X)
    for one, other in zip(ours, theirs, strict=True):
        assert one.dtype == other.dtype
        largest = other.abs().max().item()
        assert torch.allclose(one.float(), other.float(), rtol=0.05, atol=0.05 * largest)


class Standardised(nn.Conv2d):
    def forward(self, input):
        return self._conv_forward(input, self.weight - self.weight.mean(), self.bias)


class Shifted(nn.Conv1d):
    def _conv_forward(self, input, weight, bias):
        return super()._conv_forward(input + 1, weight, bias)


class AbstractConv(nn.Conv1d, metaclass=abc.ABCMeta):
    pass


class GatedConv(nn.Module):
    """A convolution by its name, that is none of PyTorch's classes."""

    def __init__(self):
        super().__init__()
        self.kernel = nn.Parameter(torch.zeros(3))


def owning(name):
    module = nn.Conv1d(1, 1, 1)
    setattr(module, name, lambda *given: given[0])
    return module


def quantised():
    return torch.ao.nn.quantized.Conv1d(1, 1, 1)


LEFT_ALONE = {
    "Standardised has a forward of its own": lambda: Standardised(1, 1, 1),
    "Shifted has a _conv_forward of its own": lambda: Shifted(1, 1, 1),
    "has a forward of its own, set on the module": lambda: owning("forward"),
    "has a _conv_forward of its own, set on the module": lambda: owning("_conv_forward"),
    "is lazy": lambda: nn.LazyConv1d(4, 3),
    "is of three dimensions; Isobit computes those of one and two": lambda: nn.Conv3d(1, 1, 1),
    "of three dimensions": lambda: nn.ConvTranspose3d(1, 1, 1),
    "is scripted": lambda: torch.jit.script(nn.Conv1d(1, 1, 1)),
    "its class is of the type ABCMeta": lambda: AbstractConv(1, 1, 1),
    "weight is of torch.complex64": lambda: nn.Conv1d(1, 1, 1, dtype=torch.complex64),
    "weight is of torch.float8": lambda: nn.Conv2d(1, 1, 1).to(torch.float8_e4m3fn),
    "its weights are quantised": quantised,
    "GatedConv is none of torch.nn's convolutions": GatedConv,
    "is Isobit's already": lambda: isobit.torch.Conv2d(1, 1, 1),
}


@pytest.mark.parametrize("reason", LEFT_ALONE)
def test_what_is_no_plain_convolution_stays_and_says_why(reason):
    model = nn.Sequential(LEFT_ALONE[reason]())
    kind, attributes = type(model[0]), dict(vars(model[0]))
    report = patch(model, convolutions=True)
    assert reason in report.skipped["0"] and not report.replaced and report.convolutions == []
    assert type(model[0]) is kind and vars(model[0]) == attributes
    told = "Isobit computes 0 norms and 0 convolutions\nand leaves alone\n"
    assert str(report).startswith(told)


def test_what_only_has_the_name_or_contains_convolutions_is_not_mentioned():
    class ConvStack(nn.Module):
        def __init__(self):
            super().__init__()
            self.scale, self.inner = nn.Parameter(torch.ones(1)), nn.Conv1d(1, 1, 1)

    class Convert(nn.Module):
        pass

    class Conv1D(nn.Module):
        """As transformers call a linear layer."""

        forward = nn.Linear.forward

        def __init__(self):
            super().__init__()
            self.weight, self.bias = nn.Parameter(torch.ones(2, 2)), None

    report = patch(nn.Sequential(ConvStack(), Convert(), Conv1D()), convolutions=True)
    assert report.convolutions == ["0.inner"] and report.skipped == {}


def test_a_lazy_convolution_is_replaced_after_its_first_call():
    model = nn.Sequential(nn.LazyConv1d(4, 3))
    x = drawn("Conv1d")
    model(x)
    patch(model, convolutions=True)
    assert bits(model(x)) == bits(isobit.torch.conv1d(x, *model[0].parameters()))
