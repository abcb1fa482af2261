# SPDX-License-Identifier: Apache-2.0
"""State-space models convolve by functions that take a module's weight: patch exchanges them with
the convolutions, in the Python modules that the model's classes come from."""

import sys
import types

import pytest
import torch
import torch.nn.functional as F
from torch_calls import bits, draw

import isobit.torch
from isobit.torch import patch

CHANNELS, WIDTH = 5, 4

# A Python module of a model, as transformers write them.
SOURCE = """
import torch
import torch.nn.functional as F
from torch import nn


def activated(y, activation):
    return y if activation is None else getattr(F, activation)(y)


def causal_conv1d_fn(hidden_states, weight, bias=None, activation=None, seq_idx=None, **_):
    if seq_idx is not None:
        return torch.full_like(hidden_states, 7)
    length, padding = hidden_states.shape[-1], weight.shape[-1] - 1
    x = hidden_states.to(weight.dtype)
    y = F.conv1d(x, weight.unsqueeze(1), bias, padding=padding, groups=weight.shape[0])
    return activated(y[..., :length], activation).to(hidden_states.dtype)


def causal_conv1d_update(hidden_states, conv_state, weight, bias=None, activation=None):
    joined = torch.cat((conv_state, hidden_states), -1).to(weight.dtype)
    conv_state.copy_(joined[..., -conv_state.shape[-1] :])
    y = F.conv1d(joined, weight.unsqueeze(1), bias, groups=weight.shape[0])
    y = y[..., -hidden_states.shape[-1] :]
    return activated(y, activation).to(hidden_states.dtype)


class Mixer(nn.Module):
    activation, more = "silu", {}

    def __init__(self, channels, width):
        super().__init__()
        self.conv1d = nn.Conv1d(channels, channels, width, groups=channels, padding=width - 1)

    def forward(self, x, state=None):
        weights = self.conv1d.weight.squeeze(1), self.conv1d.bias
        if state is None:
            return causal_conv1d_fn(x, *weights, activation=self.activation, **self.more)
        return causal_conv1d_update(x, state, *weights, self.activation)
"""


@pytest.fixture
def source():
    """That module, imported."""
    made = types.ModuleType("made_up_mamba")
    sys.modules[made.__name__] = made
    exec(SOURCE, vars(made))
    yield made
    del sys.modules[made.__name__]


@pytest.fixture
def mixer(source):
    torch.manual_seed(0)
    return source.Mixer(CHANNELS, WIDTH)


X = draw(2, CHANNELS, 30)


def by_isobit(mixer, x=X):
    weight, bias = mixer.conv1d.weight.squeeze(1), mixer.conv1d.bias
    return isobit.torch.causal_conv1d(x, weight, bias, activation=mixer.activation)


def test_the_functions_are_isobits_until_they_are_restored(source, mixer):
    own, plain = source.causal_conv1d_fn, mixer(X)
    with patch(mixer, convolutions=True) as report:
        assert report.causal == {
            "made_up_mamba.causal_conv1d_fn": "causal_conv1d",
            "made_up_mamba.causal_conv1d_update": "causal_conv1d_update",
        }
        assert str(report).splitlines() == [
            "Isobit computes 0 norms and 1 convolution",
            "  conv1d: Conv1d",
            "  made_up_mamba.causal_conv1d_fn: causal_conv1d",
            "  made_up_mamba.causal_conv1d_update: causal_conv1d_update",
        ]
        found = mixer(X)
        assert bits(found) == bits(by_isobit(mixer)) != bits(plain)
        leaves, along = tuple(mixer.parameters()), draw(*X.shape, seed=1)
        assert bits(*torch.autograd.grad(found, leaves, along)) == bits(
            *torch.autograd.grad(by_isobit(mixer), leaves, along)
        )
    assert source.causal_conv1d_fn is own and bits(mixer(X)) == bits(plain)


@torch.no_grad()
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_tokens_have_the_bits_of_the_whole(mixer, dtype):
    x = X.to(dtype)
    with patch(mixer, convolutions=True):
        whole, state = mixer(x), x.new_zeros(2, CHANNELS, WIDTH)
        tokens = [mixer(token, state) for token in x.split(1, -1)]
    assert whole.dtype == tokens[0].dtype == state.dtype == dtype
    assert bits(torch.cat(tokens, -1)) == bits(whole)
    assert bits(state) == bits(x[..., -WIDTH:])


def test_nobodys_functions_are_exchanged_where_nobody_asked(source, mixer):
    own = source.causal_conv1d_fn
    assert patch(mixer, linear=True).causal == {} and source.causal_conv1d_fn is own


def test_they_are_exchanged_once_and_restored_with_the_last_model(source, mixer):
    own = source.causal_conv1d_update
    first = patch(mixer, convolutions=True)
    ours = source.causal_conv1d_update
    second = patch(mixer, convolutions=True)
    assert second.causal == first.causal and source.causal_conv1d_update is ours
    first.restore()
    first.restore()
    assert source.causal_conv1d_update is ours
    second.restore()
    assert source.causal_conv1d_update is own
    third = patch(mixer, convolutions=True)
    source.causal_conv1d_update = other = lambda: None
    third.restore()
    assert source.causal_conv1d_update is other, "is somebody else's by now"


def test_models_on_both_sides_of_somebody_elses_exchange_restore_their_own(source, mixer):
    first = patch(mixer, convolutions=True)
    ours = source.causal_conv1d_update
    theirs = source.causal_conv1d_update = lambda *given, **more: ours(*given, **more)
    second = patch(mixer, convolutions=True)
    exchanged = source.causal_conv1d_update
    assert exchanged is not theirs
    first.restore()
    assert source.causal_conv1d_update is exchanged
    second.restore()
    assert source.causal_conv1d_update is theirs


@torch.no_grad()
@pytest.mark.filterwarnings("ignore:Complex modules are a new feature")
def test_calls_that_ask_for_more_stay_theirs(mixer):
    patch(mixer, convolutions=True)
    mixer.more = {"position_ids": torch.arange(3), "seq_idx": None, "return_final_states": False}
    assert bits(mixer(X)) == bits(by_isobit(mixer))
    mixer.more = {"seq_idx": torch.zeros(2, 30, dtype=torch.int32)}
    assert mixer(X).eq(7).all()
    mixer.more, mixer.activation = {}, "relu"
    state, more = X.new_zeros(2, CHANNELS, WIDTH), {"padding": WIDTH - 1, "groups": CHANNELS}
    theirs = F.conv1d(X, mixer.conv1d.weight, mixer.conv1d.bias, **more).relu()
    assert torch.allclose(mixer(X), theirs[..., :30])
    assert torch.allclose(mixer(X, state), mixer(X), atol=1e-5)
    mixer.activation = "silu"
    assert mixer.to(torch.complex64)(X.cfloat()).is_complex()


def test_other_functions_of_these_names_stay_and_say_why(source, mixer):
    source.causal_conv1d_fn = lambda hidden_states, weight, **_: hidden_states
    source.causal_conv1d_update = refusing = lambda x: x
    report = patch(mixer, convolutions=True)
    assert report.causal == {} and source.causal_conv1d_update is refusing
    assert report.skipped == {
        "made_up_mamba.causal_conv1d_fn": "computes something else than causal_conv1d",
        "made_up_mamba.causal_conv1d_update": (
            "cannot be called with a signal and weights: TypeError"
        ),
    }


def test_a_function_whose_arguments_have_other_names_is_not_exchanged(source, mixer):
    own = source.causal_conv1d_fn
    source.causal_conv1d_fn = theirs = lambda x, weight, bias=None, activation=None: own(
        x, weight, bias, activation
    )
    report = patch(mixer, convolutions=True)
    assert source.causal_conv1d_fn is theirs
    assert "cannot be called" in report.skipped["made_up_mamba.causal_conv1d_fn"]
    source.causal_conv1d_fn(x=X, weight=mixer.conv1d.weight.squeeze(1))  # as callers name it


def test_isobits_own_functions_are_not_exchanged_for_themselves(source, mixer):
    library = sys.modules[isobit.torch.CausalConv1d.__module__]
    own = library.causal_conv1d_update
    source.causal_conv1d_update = own
    report = patch(
        torch.nn.Sequential(mixer, isobit.torch.CausalConv1d(4, 4, 3)), convolutions=True
    )
    assert library.causal_conv1d_update is own and source.causal_conv1d_update is own
    assert [*report.causal] == ["made_up_mamba.causal_conv1d_fn"]


@torch.no_grad()
def test_compiled_code_follows(mixer):
    torch._dynamo.reset()
    compiled = torch.compile(mixer, backend="aot_eager", fullgraph=True)
    plain = bits(compiled(X))
    with patch(mixer, convolutions=True):
        assert bits(compiled(X)) == bits(by_isobit(mixer)) != plain
    assert bits(compiled(X)) == plain
    torch._dynamo.reset()


@torch.no_grad()
def test_a_mamba_of_transformers_generates_with_the_bits_of_the_whole():
    hf = pytest.importorskip("transformers", reason="transformers is not installed")
    if not hasattr(sys.modules[hf.MambaModel.__module__], "causal_conv1d_fn"):
        pytest.skip("its functions have other names here")
    torch.manual_seed(0)
    shape = {"vocab_size": 48, "hidden_size": 16, "num_hidden_layers": 1, "state_size": 4}
    model = hf.MambaForCausalLM(hf.MambaConfig(**shape)).eval()
    (mixer,) = (each for each in model.modules() if hasattr(each, "conv1d"))
    tokens = torch.arange(9)[None]
    before = model(tokens).logits
    taken = []
    with patch(model, linear=True, convolutions=True) as report:
        names = ["causal_conv1d_fn", "causal_conv1d_update"]
        assert [name.rpartition(".")[2] for name in report.causal] == names
        mixer.x_proj.register_forward_pre_hook(lambda _, given: taken.append(given[0]))
        after, whole = model(tokens).logits, taken.pop()
        first = model(tokens[:, :8], use_cache=True)
        model(tokens[:, 8:], cache_params=first.cache_params, use_cache=True)
    assert torch.allclose(after, before, atol=1e-4)
    assert [each.shape[1] for each in taken] == [8, 1]
    assert bits(torch.cat(taken, 1)) == bits(whole), "what the convolution gives"
