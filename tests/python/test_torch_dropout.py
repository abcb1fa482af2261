# SPDX-License-Identifier: Apache-2.0
"""dropout and Dropout: torch's, with the masks of dropout_add_layer_norm, made anew in backward."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch_calls import draw

import isobit.numpy
import isobit.torch
from isobit.torch import dropout


def expected(x, p, seed):
    """By the norm that drops the same elements."""
    return isobit.torch.dropout_add_layer_norm(x, None, x.shape[-1], p=p, seed=seed)[1]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("p", [0.1, 0.5, 0.75])
def test_masks_are_those_of_norms(dtype, p):
    x = draw(3, 7, 130).to(dtype)
    assert torch.equal(dropout(x, p, seed=5), expected(x, p, 5))
    assert torch.equal(dropout(x.transpose(0, 1), p, seed=5), expected(x.transpose(0, 1), p, 5))
    assert dropout(x, p, seed=5).dtype == dtype


def test_gradients_drop_the_same_elements():
    x = draw(9, 50).requires_grad_()
    seed = torch.tensor(11)
    y = dropout(x, 0.3, seed=seed)
    grad = draw(9, 50, seed=1)
    (found,) = torch.autograd.grad(y, x, grad, create_graph=True)
    assert torch.equal(found.detach(), dropout(grad, 0.3, seed=seed))
    assert torch.equal(found.detach() == 0, y.detach() == 0)
    wide = draw(3, 8).double().requires_grad_()
    assert torch.autograd.gradcheck(lambda x: dropout(x, 0.4, seed=seed), wide)
    assert torch.autograd.gradgradcheck(lambda x: dropout(x, 0.4, seed=seed), wide)
    primal, tangent = torch.func.jvp(lambda x: dropout(x, 0.3, seed=11), (x.detach(),), (grad,))
    assert torch.equal(primal, y.detach()) and torch.equal(tangent, found.detach())


def test_seeds_come_from_pytorchs_generator():
    x = draw(40, 40)
    torch.manual_seed(3)
    first, second = dropout(x), dropout(x)
    torch.manual_seed(3)
    assert torch.equal(dropout(x), first) and not torch.equal(first, second)
    assert torch.equal(dropout(x, seed=2**64 - 1), dropout(x, seed=-1))
    zeros = (first == 0).double().mean().item()
    assert 0.4 < zeros < 0.6


def test_without_training_or_with_p_of_0_or_1():
    x = draw(4, 4)
    for arguments in ((0.5, False), (0.0,), (0.5, False, True)):
        assert dropout(x, *arguments) is x and F.dropout(x, *arguments) is x
    assert torch.equal(dropout(x * torch.inf, 1.0), torch.zeros(4, 4))
    before = x.clone()
    assert dropout(x, 0.5, inplace=True, seed=1) is x
    assert torch.equal(x, dropout(before, 0.5, seed=1))
    number = dropout(torch.tensor(3.0), 0.25, seed=1)
    assert number.shape == () and number.item() in (0, 4)
    assert dropout(torch.empty(0, 3), seed=1).shape == (0, 3)


def test_the_module_is_pytorchs():
    module = isobit.torch.Dropout(0.3)
    assert isinstance(module, nn.Dropout) and repr(module) == "Dropout(p=0.3, inplace=False)"
    x = draw(8, 8)
    torch.manual_seed(1)
    y = module(x)
    torch.manual_seed(1)
    assert torch.equal(y, dropout(x, 0.3))
    assert torch.equal(module.eval()(x), x)


def test_models_and_functions_are_patched():
    model = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5))
    with isobit.torch.patch(model, others=True):
        assert type(model[1]) is isobit.torch.Dropout
    x = draw(6, 6)
    for theirs in (F.dropout, torch.dropout):
        torch.manual_seed(2)
        with isobit.torch.intercept(every=True):
            y = theirs(x, 0.5, True)
        torch.manual_seed(2)
        assert torch.equal(y, dropout(x, 0.5))


def test_compiled_functions_drop_the_same():
    torch._dynamo.reset()
    x, seed = draw(5, 33).requires_grad_(), torch.tensor(9)
    compiled = torch.compile(
        lambda x, seed: dropout(x, 0.4, seed=seed), fullgraph=True, backend="aot_eager"
    )
    y = compiled(x, seed)
    assert torch.equal(y, dropout(x, 0.4, seed=seed))
    grads = [torch.autograd.grad(each.sum(), x)[0] for each in (y, dropout(x, 0.4, seed=seed))]
    assert torch.equal(*grads)
    torch._dynamo.reset()


def test_opcheck():
    x = draw(3, 5).requires_grad_()
    torch.library.opcheck(torch.ops.isobit.dropout.default, (x, torch.tensor(3), 0.5))


def test_numpy_has_the_same_bits():
    x = draw(3, 7, 30)
    ours = isobit.numpy.dropout(x.numpy(), 0.3, seed=4)
    assert np.array_equal(ours, dropout(x, 0.3, seed=4).numpy())
    assert np.array_equal(isobit.numpy.dropout(x.numpy(), 0.3, False), x.numpy())
    assert isobit.numpy.dropout(np.full((), 3, np.float32), 0.25, seed=1) in (0, 4)


def test_what_is_wrong_is_told_by_name():
    x = draw(3, 3)
    with pytest.raises(ValueError, match=r"dropout: p is 1.5; allowed: 0 to 1"):
        dropout(x, 1.5)
    with pytest.raises(ValueError, match="dropout: p is -1; must be a number from 0 to 1"):
        isobit.numpy.dropout(x.numpy(), -1)
    with pytest.raises(TypeError, match="dropout: seed must be an integer; it is float"):
        dropout(x, seed=0.5)
    with pytest.raises(TypeError, match="dropout: input must be a Tensor; it is list"):
        dropout([1.0])
    with pytest.raises(ValueError, match=r"dropout: input has dtype torch.int64; must be float32"):
        dropout(torch.ones(3, dtype=torch.int64))
