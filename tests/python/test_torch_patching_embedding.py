# SPDX-License-Identifier: Apache-2.0
"""Isobit in the place of a model's embeddings, where patch is asked for them: the model goes on as
it was, with the bits of isobit.torch.embedding; what stays says why."""

import pickle

import pytest
import torch
from torch import nn
from torch_calls import bits

import isobit.torch
from isobit.torch import patch


class Named(nn.Embedding):
    """No more than a name, and a method of its own."""

    def width(self):
        return self.embedding_dim


class Scaled(nn.Embedding):
    def forward(self, input):
        return super().forward(input) * 2


class Model(nn.Module):
    """As models of text begin; the head has the table of tokens, and segments stand twice."""

    def __init__(self):
        super().__init__()
        self.tokens = nn.Embedding(20, 8, padding_idx=0)
        self.places = Named(9, 8)
        self.segments = nn.Embedding(2, 8)
        self.again = self.segments
        self.scaled = Scaled(2, 8)
        self.norm = nn.LayerNorm(8)
        self.head = nn.Linear(8, 20, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, index):
        places = torch.arange(index.shape[-1])
        rows = self.tokens(index) + self.places(places) + self.again(index % 2)
        return self.head(self.norm(rows + self.scaled(index % 2)))


INDEX = torch.tensor([[1, 5, 0, 5], [19, 0, 0, 5]])


@pytest.fixture
def model():
    torch.manual_seed(0)
    return Model()


def gradients(model):
    model.zero_grad()
    y = model(INDEX)
    y.square().sum().backward()
    return y.detach(), *(each.grad for each in model.parameters())


def test_embeddings_become_isobits_and_what_stays_says_why(model):
    theirs = gradients(model)
    state = list(model.state_dict())
    report = patch(model, embedding=True)
    assert report.embedding == ["tokens", "places", "segments"]
    assert type(model.tokens) is isobit.torch.Embedding
    assert isinstance(model.places, (isobit.torch.Embedding, Named)) and model.places.width() == 8
    assert type(model.norm) is isobit.torch.LayerNorm and type(model.head) is nn.Linear
    assert report.skipped == {
        "again": "is segments",
        "scaled": "Scaled has a forward of its own",
    }
    assert str(report).startswith("Isobit computes 1 norm and 3 embeddings")
    assert model.head.weight is model.tokens.weight and list(model.state_dict()) == state
    found = gradients(model)
    for one, other in zip(found, theirs, strict=True):
        torch.testing.assert_close(one, other)
    report.restore()
    assert type(model.tokens) is nn.Embedding and type(model.places) is Named
    assert bits(*gradients(model)) == bits(*theirs)


def test_embeddings_stay_where_nobody_asked(model):
    report = patch(model)
    assert report.embedding is None and set(report.replaced) == {"norm"}
    assert type(model.tokens) is nn.Embedding


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"max_norm": 1.0}, "its max_norm is 1.0, which changes the table"),
        ({"sparse": True}, "its sparse is True"),
    ],
)
def test_what_isobits_does_not_do_stays(options, why):
    report = patch(nn.Sequential(nn.Embedding(4, 3, **options)), embedding=True)
    assert report.embedding == []
    assert report.skipped == {"0": f"{why}; Isobit has no such embedding"}


def test_one_that_is_isobits_stays_and_tables_of_other_types_do():
    report = patch(nn.Sequential(isobit.torch.Embedding(4, 3)), embedding=True)
    assert report.skipped == {"0": "is Isobit's already"}
    table = nn.Embedding(4, 3, dtype=torch.complex64)
    report = patch(nn.Sequential(table), embedding=True)
    assert report.skipped == {"0": "weight is of torch.complex64"}


def test_copies_of_a_patched_model_compute_the_same(model):
    patch(model, embedding=True)
    again = pickle.loads(pickle.dumps(model))
    assert type(again.places) is type(model.places)
    assert bits(*gradients(again)) == bits(*gradients(model))


def test_a_token_has_its_gradient_whatever_stands_beside_it(model):
    """The bits of a row of the table depend on its own occurrences alone."""
    patch(model, embedding=True)
    grad = torch.randn(300, 8, generator=torch.Generator().manual_seed(1))
    index = torch.full((300,), 5)
    (alone,) = torch.autograd.grad(model.tokens(index), model.tokens.weight, grad)
    both = torch.stack([index, torch.arange(300) % 5], 1)
    (beside,) = torch.autograd.grad(
        model.tokens(both), model.tokens.weight, torch.stack([grad, grad], 1)
    )
    assert torch.equal(alone[5], beside[5])
