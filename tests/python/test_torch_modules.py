# SPDX-License-Identifier: Apache-2.0
"""The modules are PyTorch's in all but the arithmetic."""

import copy
import io
import pickle

import pytest
import torch
from torch_calls import bits, draw

import isobit.torch

PAIRS = {
    "LayerNorm": (isobit.torch.LayerNorm, torch.nn.LayerNorm),
    "RMSNorm": (isobit.torch.RMSNorm, torch.nn.RMSNorm),
}
ARGUMENTS = {
    "a number": ((8,), {}),
    "a tuple": (((3, 8),), {}),
    "a list": (([3, 8],), {}),
    "eps": ((8, 1e-3), {}),
    "no weights": ((8,), {"elementwise_affine": False}),
    "dtype": ((8,), {"dtype": torch.float64}),
    "positional": ((8, 1e-4, False), {}),
}


@pytest.mark.parametrize("name", PAIRS)
@pytest.mark.parametrize("arguments", ARGUMENTS)
def test_every_argument_of_torch_means_the_same(name, arguments):
    ours, theirs = PAIRS[name]
    args, kwargs = ARGUMENTS[arguments]
    module, reference = ours(*args, **kwargs), theirs(*args, **kwargs)
    assert isinstance(module, theirs)
    assert repr(module) == repr(reference)
    assert module.normalized_shape == reference.normalized_shape
    assert list(module.state_dict()) == list(reference.state_dict())
    assert bits(*module.parameters()) == bits(*reference.parameters())
    reference.load_state_dict(module.state_dict())
    x = draw(2, 3, 8, dtype=kwargs.get("dtype", torch.float32))
    assert torch.allclose(module(x), reference(x), atol=1e-6)


def test_a_layer_norm_without_bias():
    module = isobit.torch.LayerNorm(8, bias=False)
    assert module.bias is None and list(module.state_dict()) == ["weight"]
    assert torch.allclose(
        module(draw(2, 8)), torch.nn.LayerNorm(8, bias=False)(draw(2, 8)), atol=1e-6
    )


@pytest.mark.parametrize("name", PAIRS)
def test_hidden_size_is_another_name(name):
    ours, _ = PAIRS[name]
    assert repr(ours(hidden_size=8)) == repr(ours(8))
    for wrong in ({}, {"normalized_shape": 8, "hidden_size": 8}):
        with pytest.raises(TypeError, match="normalized_shape or hidden_size"):
            ours(**wrong)


@pytest.mark.parametrize("name", PAIRS)
def test_options_are_those_of_the_function(name):
    ours, _ = PAIRS[name]
    module = ours(8, zero_centered=True, out_dtype=torch.bfloat16)
    assert module.weight.eq(0).all()
    assert "zero_centered=True, out_dtype=torch.bfloat16" in repr(module)
    x = draw(2, 8)
    assert bits(module(x)) == bits(ours(8)(x).to(torch.bfloat16))


@pytest.mark.parametrize("name", PAIRS)
def test_meta_modules_take_their_memory_later(name):
    ours, _ = PAIRS[name]
    module = ours(8, device="meta")
    assert module.weight.is_meta and module(torch.empty(2, 8, device="meta")).is_meta
    module.to_empty(device="cpu").reset_parameters()
    assert bits(module(draw(2, 8))) == bits(ours(8)(draw(2, 8)))
    with torch.device("meta"):
        assert ours(8).weight.is_meta


@pytest.mark.parametrize("name", PAIRS)
def test_modules_are_copied_saved_and_loaded(name):
    ours, _ = PAIRS[name]
    module = ours((3, 8), zero_centered=True)
    torch.nn.init.normal_(module.weight)
    x = draw(2, 3, 8)
    file = io.BytesIO()
    torch.save(module, file)
    file.seek(0)
    for again in (
        copy.deepcopy(module),
        pickle.loads(pickle.dumps(module)),
        torch.load(file, weights_only=False),
    ):
        assert bits(again(x)) == bits(module(x))


@pytest.mark.parametrize("name", PAIRS)
def test_modules_change_type_like_others(name):
    ours, theirs = PAIRS[name]
    x = draw(2, 8, dtype=torch.bfloat16)
    module, reference = ours(8).bfloat16(), theirs(8).bfloat16()
    assert module(x).dtype == reference(x).dtype == torch.bfloat16
    assert ours(8)(x).dtype == torch.bfloat16  # weights of single precision


def test_a_training_step_through_modules():
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Linear(8, 8), isobit.torch.LayerNorm(8), isobit.torch.RMSNorm(8)
    )
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-2)
    losses = []
    for _ in range(5):
        loss = model(draw(16, 8)).square().mean() - model(draw(16, 8))[:, 0].mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0]
