# SPDX-License-Identifier: Apache-2.0
"""The versions of embedding in plain PyTorch give what its definition says; the gradient of one of
them has Isobit's bits."""

import pytest
import torch

from isobit.ops.embedding import pytorch

VERSIONS = ("standard", "one_hot", "indexed", "ordered")


def drawn(*shape, dtype=torch.float64, seed=1):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype)


def indices(*shape, of):
    return torch.randint(of, shape, generator=torch.Generator().manual_seed(2))


@pytest.mark.parametrize("name", VERSIONS)
@pytest.mark.parametrize("shape", [(3, 4), (0,), ()])
def test_rows_are_those_of_the_definition_in_isobit_too(name, shape):
    import isobit.torch

    weight, index = drawn(7, 3), indices(*shape, of=7)
    expected = pytorch.reference(index, weight)
    assert torch.equal(getattr(pytorch, name)(index, weight), expected)
    assert torch.equal(isobit.torch.embedding(index, weight), expected)


@pytest.mark.parametrize("name", ["reference", *VERSIONS])
def test_gradients_are_those_of_difference_quotients(name):
    weight, index = drawn(4, 3).requires_grad_(), torch.tensor([[1, 3, 1], [0, 1, 1]])
    version = getattr(pytorch, name)
    assert torch.autograd.gradcheck(lambda weight: version(index, weight).sin(), (weight,))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("tokens", [1, 3, 40])
def test_the_gradient_in_order_has_isobits_bits(dtype, tokens):
    import isobit.torch

    for count in (0, 1, 15, 16, 17, 300, 1300):
        index, grad = indices(count, of=tokens), drawn(count, 5, dtype=dtype)
        weight = drawn(tokens + 2, 5, dtype=dtype).requires_grad_()
        found, expected = (
            torch.autograd.grad(f(index, weight), weight, grad)[0]
            for f in (pytorch.ordered, isobit.torch.embedding)
        )
        assert torch.equal(found, expected), count
