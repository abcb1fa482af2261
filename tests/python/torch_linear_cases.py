# SPDX-License-Identifier: Apache-2.0
"""What test_torch_linear_ranks.py runs in several ranks: Isobit's linear layers, patched ones too,
split in each way that PyTorch knows, beside the bits of one rank."""

import torch
import torch._dynamo  # here, once: else it is every rank that imports it
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard
from torch.distributed.tensor.debug import CommDebugMode
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)
from torch_calls import draw
from torch_ranks import Cases
from torch_sharding_cases import full, on_all, spread

import isobit.torch

CASES = Cases()
INPUTS, OUTPUTS, BATCH, CONTEXT = 48, 32, 8, 4
KINDS = [f"{kind}-{bias}" for kind in ("isobit", "patched") for bias in ("bias", "plain")]


def layer_of(name, inputs=INPUTS, outputs=OUTPUTS):
    """With the same weights on all ranks."""
    kind, bias = name.split("-")
    maker = isobit.torch.Linear if kind == "isobit" else nn.Linear
    layer = maker(inputs, outputs, bias=bias == "bias")
    if kind == "patched":
        assert isobit.torch.patch(layer, linear=True).linear == [""]
    with torch.no_grad():
        for i, parameter in enumerate(layer.parameters()):
            parameter.copy_(draw(*parameter.shape, seed=i))
    return layer


def given():
    """Rows, and a gradient of what a layer makes of them."""
    return draw(BATCH, CONTEXT, INPUTS, requires_grad=True), draw(BATCH, CONTEXT, OUTPUTS, seed=1)


def step(layer, x, gradient):
    """(y, the gradient of x, those of the parameters by name)"""
    y = layer(x)
    if isinstance(y, DTensor):
        gradient = spread(gradient, y.device_mesh, y.placements)
    y.backward(gradient)
    return y, x.grad, {name: each.grad for name, each in layer.named_parameters()}


def assert_equal(ours, theirs):
    assert ours.keys() == theirs.keys()
    for name, one in ours.items():
        assert torch.equal(full(one), theirs[name]), name


def assert_close(ours, theirs):
    assert ours.keys() == theirs.keys()
    for name, one in ours.items():
        torch.testing.assert_close(full(one), theirs[name], atol=1e-4, rtol=1e-4, msg=name)


@CASES(2, 4, of=[f"{kind}-{along}" for kind in KINDS for along in ("whole", "sequence")])
def parallel_by_columns(ranks, name):
    """Each rank has some outputs of every row: they have the bits of one rank."""
    name, along = name.rsplit("-", 1)
    mesh = init_device_mesh("cpu", (ranks,))
    x, gradient = given()
    y, of_x, of_weights = step(layer_of(name), x, gradient)
    layout = Replicate() if along == "whole" else Shard(1)
    layer = layer_of(name)
    style = ColwiseParallel(input_layouts=layout, use_local_output=False)
    parallelize_module(layer, mesh, style)
    assert layer.weight.placements == (Shard(0),)
    split = spread(x, mesh, [layout])
    found, of_split, of_parts = step(layer, split, gradient)
    assert found.placements == (Shard(2),) and torch.equal(full(found), y)
    assert_equal(of_parts, of_weights)
    torch.testing.assert_close(full(of_split), of_x, atol=1e-4, rtol=1e-4)  # a sum over ranks


@CASES(2, of=["isobit-plain", "patched-plain", "isobit-bias", "patched-bias"])
def parallel_by_rows(ranks, name):
    """Each rank has a part of every sum, and of the bias: the result is the sum of two rounded
    parts."""
    mesh = init_device_mesh("cpu", (ranks,))
    x, gradient = given()
    whole = layer_of(name)
    y, of_x, of_weights = step(whole, x, gradient)
    half = None if whole.bias is None else whole.bias / 2
    parts = [
        isobit.torch.linear(*each, half)
        for each in zip(x.chunk(2, -1), whole.weight.chunk(2, -1), strict=True)
    ]
    layer = layer_of(name)
    parallelize_module(layer, mesh, RowwiseParallel(use_local_output=False))
    assert layer.weight.placements == (Shard(1),)
    with CommDebugMode() as counted:
        found, of_split, of_parts = step(layer, spread(x, mesh, [Shard(-1)]), gradient)
    sums = torch.ops.c10d_functional.all_reduce
    assert counted.get_comm_counts().get(sums) == 1
    assert torch.equal(full(found), parts[0] + parts[1])
    assert not torch.equal(full(found), y)
    torch.testing.assert_close(full(found), y, atol=1e-4, rtol=1e-4)
    assert torch.equal(full(of_split), of_x)  # of these each rank has whole sums
    assert_equal(of_parts, of_weights)


@CASES(2, 4, of=KINDS)
def rows_stay_where_they_are(ranks, name):
    mesh = init_device_mesh("cpu", (ranks,))
    x, gradient = given()
    y, of_x, of_weights = step(layer_of(name), x, gradient)
    layer = layer_of(name)
    for key, parameter in list(layer.named_parameters()):
        setattr(layer, key, nn.Parameter(on_all(parameter.detach(), mesh)))
    split = spread(x, mesh, [Shard(0)])
    with CommDebugMode() as counted:
        found, of_split, of_parts = step(layer, split, gradient)
    assert counted.get_comm_counts().get(torch.ops.c10d_functional.all_gather_into_tensor, 0) == 0
    assert found.placements == of_split.placements == (Shard(0),)
    assert torch.equal(full(found), y) and torch.equal(full(of_split), of_x)
    assert all(each.placements == (Partial(),) for each in of_parts.values())
    assert_close(of_parts, of_weights)


NARROW = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)


@CASES(2, 4, of=KINDS)
def fully_sharded(ranks, name):
    """Each rank has its rows, and for a moment the whole weights."""
    x, gradient = given()
    y, of_x, of_weights = step(layer_of(name), x, gradient)
    model = nn.Sequential(layer_of(name))
    fully_shard(model)
    assert isinstance(model[0].weight, DTensor)
    mine, along, wanted, of_mine = (
        each.detach().chunk(ranks)[dist.get_rank()] for each in (x, gradient, y, of_x)
    )
    found, of_rows, of_parts = step(model, mine.clone().requires_grad_(), along)
    assert torch.equal(found, wanted) and torch.equal(of_rows, of_mine)
    # FSDP takes the mean over ranks, each of which has the gradients of its rows.
    assert_close(
        {name: full(each) * ranks for name, each in of_parts.items()}, prefixed(of_weights)
    )


def prefixed(gradients):
    return {f"0.{name}": each for name, each in gradients.items()}


@CASES(2, of=KINDS)
def fully_sharded_of_16_bits(ranks, name):
    x, _ = given()
    whole = layer_of(name)
    narrow = [each.bfloat16() for each in (x, *whole.parameters())]
    model = nn.Sequential(layer_of(name))
    fully_shard(model, mp_policy=NARROW)
    mine = x.detach().chunk(ranks)[dist.get_rank()]
    wanted = isobit.torch.linear(*narrow).chunk(ranks)[dist.get_rank()]
    found = model(mine)
    assert found.dtype == torch.bfloat16 and torch.equal(found, wanted)


@CASES(2)
def patch_comes_first(ranks):
    mesh = init_device_mesh("cpu", (ranks,))
    for distribute in (
        fully_shard,
        lambda model: parallelize_module(model, mesh, {"0": ColwiseParallel()}),
    ):
        model = nn.Sequential(nn.Linear(INPUTS, OUTPUTS))
        distribute(model)
        report = isobit.torch.patch(model, linear=True)
        assert not report.replaced and report.skipped == {"0": "weight is of the type DTensor"}
        model = nn.Sequential(nn.Linear(INPUTS, OUTPUTS))
        with isobit.torch.patch(model, linear=True):
            distribute(model)
            assert type(model[0]) is isobit.torch.Linear
        assert type(model[0]) is nn.Linear
