# SPDX-License-Identifier: Apache-2.0
"""Gradients of micro-batches are added by one tree, on one rank and on several."""

import pytest
import torch
import torch_data_parallel_cases as cases
import torch_ranks

from isobit.torch.distributed import GradientTree


@pytest.fixture(scope="module")
def outcomes():
    """All of them: some compare with what others leave."""
    return torch_ranks.launch(cases.__name__, cases.CASES.parameters())


@pytest.mark.parametrize(("ranks", "name"), cases.CASES.parameters())
def test_in_several_ranks(outcomes, ranks, name):
    assert not outcomes[ranks, name], outcomes[ranks, name]


def gradients_of(model, batch):
    model(*batch).backward()
    found = [each.grad for each in model.parameters()]
    model.zero_grad()
    return found


def totals(model, tree, batch):
    for i in tree.indices:
        with tree.micro_batch():
            model(*batch[i]).backward()
    return [each.grad for each in model.parameters()]


@pytest.mark.parametrize("reduction", ["sum", "mean"])
@pytest.mark.parametrize("count", [1, 2, 3, 6, 7, 8])
def test_one_rank_adds_any_number_of_micro_batches_by_pairs(count, reduction):
    model, batch = cases.model_of("mlp"), next(iter(cases.batches_of("mlp", count)))
    parts = zip(*(gradients_of(model, each) for each in batch), strict=True)
    wanted = [cases.by_hand(each) for each in parts]
    if reduction == "mean":
        wanted = [each / count for each in wanted]
    found = totals(model, GradientTree(model, count, reduction=reduction), batch)
    assert all(map(torch.equal, found, wanted))


def test_a_mean_of_narrow_gradients_is_divided_by_the_number_itself():
    weight = torch.nn.Parameter(torch.zeros(1, dtype=torch.bfloat16))
    model = torch.nn.ParameterList([weight])
    tree = GradientTree(model, 257)  # which is no bfloat16
    for _ in tree.indices:
        with tree.micro_batch():
            weight.sum().backward()
    assert weight.grad.item() == 255 / 256  # 256 / 257, rounded; it would be 1


def test_an_error_in_a_micro_batch_forgets_the_batch():
    model, batch = cases.model_of("mlp"), next(iter(cases.batches_of("mlp", 4)))
    tree = GradientTree(model, 4)
    for i in range(2):
        with tree.micro_batch():
            model(*batch[i]).backward()
    with pytest.raises(ZeroDivisionError), tree.micro_batch():
        1 / 0  # noqa: B018
    found, other = totals(model, tree, batch), cases.model_of("mlp")
    assert all(map(torch.equal, found, totals(other, GradientTree(other, 4), batch)))


def test_what_is_no_batch_is_refused():
    model = cases.model_of("mlp")
    for count in (0, 2.0, -4):
        with pytest.raises(ValueError, match="must be a positive integer"):
            GradientTree(model, count)
    with pytest.raises(ValueError, match="reduction is 'max'; allowed: mean, sum"):
        GradientTree(model, 2, reduction="max")
    tree = GradientTree(model, 2)
    with pytest.raises(RuntimeError, match="ended without a backward"), tree.micro_batch():
        pass
    model(*next(iter(cases.batches_of("mlp")))[0]).backward()
    with pytest.raises(RuntimeError, match="have gradients before"), tree.micro_batch():
        raise AssertionError("nobody comes here")
    sparse = torch.nn.Embedding(3, 2, sparse=True)
    tree = GradientTree(sparse, 2)
    with pytest.raises(NotImplementedError, match="must be dense"), tree.micro_batch():
        sparse(torch.tensor([1])).sum().backward()
