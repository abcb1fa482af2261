# SPDX-License-Identifier: Apache-2.0
"""With checkpoint=True a module keeps its inputs alone for backward, and no bit is another."""

import pytest
import torch
from torch_calls import draw

import isobit.torch

MODULES = {
    "Linear": lambda **more: isobit.torch.Linear(32, 96, activation="gelu", **more),
    "LayerNormLinear": lambda **more: isobit.torch.LayerNormLinear(
        32, 96, activation="silu", **more
    ),
    "RMSNormLinear": lambda **more: isobit.torch.RMSNormLinear(32, 96, activation="gelu", **more),
    "LayerNormMLP": lambda **more: isobit.torch.LayerNormMLP(32, 96, activation="swiglu", **more),
    "MultiheadAttention": lambda **more: isobit.torch.MultiheadAttention(
        32, 4, dropout=0.3, batch_first=True, **more
    ),
    "SelfAttention": lambda **more: isobit.torch.SelfAttention(32, 4, dropout=0.3, **more),
}


def called(module, x):
    if isinstance(module, torch.nn.MultiheadAttention):
        return module(x, x, x, need_weights=False)[0]
    return module(x)


def run(name, **more):
    """What one forward and backward give, and how many bytes lie between them."""
    torch.manual_seed(3)
    module = MODULES[name](**more)
    own = {each.untyped_storage().data_ptr() for each in module.parameters()}
    kept = {}

    def pack(tensor):
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    x = draw(2, 30, 32, dtype=torch.float32).requires_grad_()
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        y = called(module, x)
        size = sum(kept.values())
        y.square().sum().backward()
    return module, size, [y, x.grad, *(each.grad for each in module.parameters())], x.nbytes


@pytest.mark.parametrize("name", MODULES)
def test_inputs_alone_are_kept_and_no_bit_is_another(name):
    plain, size, results, _ = run(name)
    module, least, again, of_x = run(name, checkpoint=True)
    assert all(map(torch.equal, results, again))
    assert least <= of_x + 200 < size
    said = "recompute=True" if name == "LayerNormMLP" else "checkpoint=True"
    assert said in repr(module) and said not in repr(plain)


@pytest.mark.parametrize("name", MODULES)
def test_without_gradients_nothing_is_kept(name):
    module, kept = MODULES[name](checkpoint=True), []
    hooks = torch.autograd.graph.saved_tensors_hooks(kept.append, lambda tensor: tensor)
    with torch.no_grad(), hooks:
        assert not called(module, draw(2, 30, 32, dtype=torch.float32)).requires_grad
    assert not kept


def test_modules_that_were_converted_keep_what_they_kept():
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.GELU())
    isobit.torch.convert(model)
    assert model[0].checkpoint is False and "checkpoint" not in repr(model)


def test_compiled_code_computes_again_too():
    torch.manual_seed(3)
    model = torch.nn.Sequential(MODULES["Linear"](checkpoint=True), isobit.torch.Linear(96, 4))
    x, found = draw(3, 32, dtype=torch.float32).requires_grad_(), []
    for call in (model, torch.compile(model, fullgraph=True)):
        y = call(x)
        found.append([y, *torch.autograd.grad(y.square().sum(), [x, *model.parameters()])])
    torch._dynamo.reset()
    assert all(map(torch.equal, *found))
