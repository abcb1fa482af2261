# SPDX-License-Identifier: Apache-2.0
"""The versions of cross entropy in plain PyTorch give what its formula says, and their gradients
what a difference quotient says."""

import itertools

import pytest
import torch

from isobit.ops.cross_entropy import pytorch

VERSIONS = ("standard", "textbook", "online")


def drawn(*shape, seed=1):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=torch.float64).mul(2)


@pytest.mark.parametrize("name", VERSIONS)
@pytest.mark.parametrize("classes", [3, 2500])
def test_losses_are_those_of_the_definition_in_isobit_too(name, classes):
    import isobit.torch

    x, weight = drawn(2, 3, classes), drawn(classes, seed=2).abs()
    target = torch.tensor([[0, 2, -100], [1, 1, 0]])
    for given, smoothing, z in itertools.product((None, weight), (0.0, 0.2), (0.0, 0.1)):
        options = {"label_smoothing": smoothing, "z_loss": z}
        expected = pytorch.reference(x, target, given, **options)
        torch.testing.assert_close(getattr(pytorch, name)(x, target, given, **options), expected)
        ours = isobit.torch.cross_entropy(
            x.movedim(-1, 1), target, given, reduction="none", **options
        )
        torch.testing.assert_close(ours, expected)


@pytest.mark.parametrize("name", ["reference", *VERSIONS])
def test_gradients_are_those_of_difference_quotients(name):
    x, target = drawn(3, 4).requires_grad_(), torch.tensor([0, -100, 3])

    def losses(x):
        version = getattr(pytorch, name)
        return version(x, target, drawn(4, seed=2).abs(), label_smoothing=0.2, z_loss=0.1)

    assert torch.autograd.gradcheck(losses, (x,))
    assert torch.autograd.gradgradcheck(losses, (x,))


@pytest.mark.parametrize("name", VERSIONS)
def test_classes_that_cannot_be_are_of_no_matter(name):
    x = torch.tensor([[-torch.inf, 1.0, 2.0]])
    target = torch.tensor([1])
    expected = pytorch.reference(x, target).float()
    torch.testing.assert_close(getattr(pytorch, name)(x, target), expected)
