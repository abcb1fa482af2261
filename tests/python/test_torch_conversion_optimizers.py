# SPDX-License-Identifier: Apache-2.0
"""What becomes of the optimizer of a model that convert has changed."""

import copy
import sys
from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch_calls import bits
from torch_models import drawn, kinds, step

import isobit.torch
from isobit.torch import convert


def trained(net, optimizer, steps):
    for _ in range(steps):
        step(net)
        optimizer.step()


def expect_listed_and_refused(net, optimizer, name, words):
    report = convert(net, optimizer)
    assert report.optimizer is None
    assert [str(each) for each in report.remaining] == [f"{name}, an optimiser"]
    report.restore()
    with pytest.raises(ValueError, match=words):
        convert(net, optimizer, strict=True)


def test_an_optimizer_that_isobit_lacks_is_listed_and_refused_by_strict():
    net = drawn()
    before = kinds(net)
    optimizer = torch.optim.Rprop(net.parameters())
    words = r"isobit.torch has no Rprop .* strict=True refuses it"
    expect_listed_and_refused(net, optimizer, "torch.optim.rprop.Rprop", words)
    assert kinds(net) == before


def test_an_optimizer_becomes_isobits_with_parameters_options_and_state(monkeypatch):
    """Whatever Isobit's is: here a stand-in, which tells what it was given."""

    class SGD(torch.optim.SGD):
        pass

    class Own(torch.optim.SGD):
        pass

    monkeypatch.setitem(sys.modules, "isobit.torch.optim", SimpleNamespace(SGD=SGD))
    net = drawn()
    first, *others = net.parameters()
    groups = [{"params": [first], "lr": 0.3}, {"params": others}]
    optimizer = torch.optim.SGD(groups, lr=0.1, momentum=0.9)
    trained(net, optimizer, 2)
    report = convert(net, optimizer)
    assert type(report.optimizer) is SGD and report.remaining == {}
    lengths = [len(group["params"]) for group in report.optimizer.param_groups]
    assert [group["lr"] for group in report.optimizer.param_groups] == [0.3, 0.1]
    assert lengths == [1, len(others)] and report.optimizer.param_groups[0]["momentum"] == 0.9
    one, other = (
        [each.state[p]["momentum_buffer"] for p in net.parameters()]
        for each in (optimizer, report.optimizer)
    )
    assert bits(*one) == bits(*other)
    report.restore()
    assert convert(net, Own(net.parameters(), lr=0.1)).optimizer is None


def test_groups_that_an_optimizer_is_given_later_have_the_options_of_the_one_that_was_given():
    """They had the defaults of the class: no momentum, no decay."""
    groups = []
    for convert_it in (False, True):
        net = drawn()
        first, *others = net.named_parameters()
        optimizer = torch.optim.SGD([first], lr=0.1, momentum=0.9, weight_decay=0.2)
        if convert_it:
            optimizer = convert(net, optimizer).optimizer
        optimizer.add_param_group({"params": others})
        groups.append([{**group, "params": None} for group in optimizer.param_groups])
    plain, ours = groups
    assert ours == [group | {"master_weights": False} for group in plain]


def test_the_optimizer_that_was_given_keeps_its_state_as_it_was():
    """Both had the same tensors: a step of one moved the other's averages, too."""
    net = drawn()
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.1)
    trained(net, optimizer, 1)
    before = copy.deepcopy(optimizer.state_dict()["state"])
    report = convert(net, optimizer)
    trained(net, report.optimizer, 1)
    after = optimizer.state_dict()["state"]
    for place, state in before.items():
        assert bits(*state.values()) == bits(*after[place].values())


@pytest.mark.parametrize("option", ["capturable", "differentiable"])
def test_an_optimizer_of_options_that_isobits_lacks_stays_and_is_listed(option):
    """It was exchanged, and its first step raised."""
    net = drawn()
    optimizer = torch.optim.AdamW(net.parameters(), **{option: True})
    words = rf"AdamW has no {option}=True; .*; strict=True refuses"
    expect_listed_and_refused(net, optimizer, "torch.optim.adamw.AdamW", words)


@pytest.mark.parametrize("strict", [False, True])
def test_an_optimizer_that_is_isobits_already_is_the_reports(strict):
    """It was listed as PyTorch's, and refused by strict."""
    net = drawn()
    optimizer = isobit.torch.optim.Lion(net.parameters())
    report = convert(net, optimizer, strict=strict)
    assert report.optimizer is optimizer and report.remaining == {}


def test_a_model_with_complex_parameters_is_converted_and_its_optimizer_listed():
    net = nn.Linear(3, 3, dtype=torch.complex64)
    report = convert(net, torch.optim.SGD(net.parameters(), lr=0.1))
    assert report.optimizer is None and len(report.remaining) == 1
