# SPDX-License-Identifier: Apache-2.0
"""What test_torch_sharding.py runs in several ranks: Isobit's operators with DTensors, beside the
same call on one rank and beside PyTorch's."""

from itertools import product

import torch
import torch._dynamo  # here, once: else it is every rank that imports it
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import (
    DTensor,
    Partial,
    Replicate,
    Shard,
    distribute_module,
    distribute_tensor,
)
from torch.distributed.tensor.debug import CommDebugMode
from torch_calls import FUNCTIONS, draw, many
from torch_ranks import Cases

import isobit.torch

CASES = Cases()
WIDTH = 24

# name: (shape, placements on a mesh of (n,), or of (n / 2, 2) where there are two)
LAYOUTS = {
    "batch": ((4, 6, WIDTH), [Shard(0)]),
    "sequence": ((2, 8, WIDTH), [Shard(1)]),
    "uneven": ((5, 3, WIDTH), [Shard(0)]),
    "rows_fewer_than_ranks": ((1, 3, WIDTH), [Shard(0)]),
    "whole": ((4, 6, WIDTH), [Replicate()]),
    "sum_of_parts": ((4, 6, WIDTH), [Partial()]),
    "columns": ((4, 6, WIDTH), [Shard(2)]),
    "batch_and_sequence": ((4, 6, WIDTH), [Shard(0), Shard(1)]),
    "batch_twice": ((8, 3, WIDTH), [Shard(0), Shard(0)]),
    "batch_and_columns": ((4, 6, WIDTH), [Shard(0), Shard(2)]),
}

# where nothing has to move
STAYING = ("batch", "sequence", "uneven", "whole", "batch_and_sequence", "batch_twice")


def mesh_of(ranks, placements):
    """Two dimensions need four ranks; with two, the first is one rank wide."""
    shape = (ranks,) if len(placements) == 1 else (ranks // 2, 2)
    return init_device_mesh("cpu", shape)


def spread(tensor, mesh, placements):
    """tensor, which all ranks have, as they are to have it, and as a leaf."""
    if any(each.is_partial() for each in placements):
        spread = DTensor.from_local(tensor / mesh.size(), mesh, placements)
    else:
        whole = distribute_tensor(tensor, mesh, [Replicate()] * mesh.ndim)
        spread = whole.redistribute(placements=placements)
    return spread.detach().requires_grad_(tensor.requires_grad)


def on_all(tensor, mesh):
    return spread(tensor, mesh, [Replicate()] * mesh.ndim)


def full(tensor):
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


class Called:
    """Results, gradients and collectives of function(*rows, (width,), *weights)."""

    def __init__(self, function, rows, weights, gradients):
        leaves = [each.detach().requires_grad_() for each in (*rows, *weights)]
        rows, weights = leaves[: len(rows)], leaves[len(rows) :]
        with CommDebugMode() as forward:
            self.results = many(function(*rows, (WIDTH,), *weights))
        gradients = [
            each if not isinstance(y, DTensor) else spread(each, y.device_mesh, y.placements)
            for each, y in zip(gradients, self.results, strict=False)
        ]
        with CommDebugMode() as backward:
            torch.autograd.backward(self.results, gradients)
        self.of_rows = [each.grad for each in rows]
        self.of_weights = [each.grad for each in weights]
        self.collectives = [sum(each.get_comm_counts().values()) for each in (forward, backward)]


def inputs(name, shape, dtype=torch.float32):
    _, _, count, has_bias = FUNCTIONS[name]
    rows = [draw(*shape, seed=i, dtype=dtype) for i in range(count)]
    weights = [draw(WIDTH, seed=5 + i) for i in range(1 + has_bias)]
    gradients = [draw(*shape, seed=9 + i, dtype=dtype) for i in range(count)]
    return rows, weights, gradients


def yardstick(name):
    """nn.LayerNorm's operator, with as many inputs: what collectives may cost."""
    adds = name.startswith("add")
    return FUNCTIONS["add_layer_norm" if adds else "layer_norm"][1]


def compare(name, layout, ranks, dtype):
    shape, placements = LAYOUTS[layout]
    ours, torchs, _, _ = FUNCTIONS[name]
    mesh = mesh_of(ranks, placements)
    rows, weights, gradients = inputs(name, shape, dtype)
    split_rows = [spread(each, mesh, placements) for each in rows]
    split_weights = [on_all(each, mesh) for each in weights]
    rows = [full(each) for each in split_rows]  # parts do not always sum up to what they were

    here = Called(ours, rows, weights, gradients)
    split = Called(ours, split_rows, split_weights, gradients)
    for one, other in zip(here.results, split.results, strict=True):
        assert isinstance(other, DTensor) and torch.equal(one, full(other)), "bits of results"
    for one, other in zip(here.of_rows, split.of_rows, strict=True):
        assert torch.equal(one, full(other)), "bits of rows' gradients"
    for one, other in zip(here.of_weights, split.of_weights, strict=True):
        torch.testing.assert_close(full(other), one, atol=1e-5, rtol=1e-5)
        if split.results[0].placements == (Replicate(),) * mesh.ndim:
            assert torch.equal(one, full(other)), "every rank has all rows"

    if dtype == torch.float32:  # of mixed types PyTorch's RMS norm knows nothing
        other = Called(torchs, rows, weights, gradients)
        for which in ("results", "of_rows", "of_weights"):
            for one, theirs in zip(getattr(split, which), getattr(other, which), strict=True):
                torch.testing.assert_close(full(one), theirs, atol=1e-5, rtol=1e-5)
    allowed = Called(yardstick(name), split_rows, split_weights, gradients).collectives
    message = f"collectives forward and backward: {split.collectives}; PyTorch's norm: {allowed}"
    if layout == "rows_fewer_than_ranks" and torch.__version__ < "2.13":
        pass  # PyTorch left them split until then
    elif len(rows) == 1:
        assert all(a <= b for a, b in zip(split.collectives, allowed, strict=True)), message
    else:  # both rows move forward, and then none backward
        assert sum(split.collectives) <= sum(allowed), message
    if layout == "uneven" and len(rows) == 2 and torch.__version__ < "2.13":
        pass  # PyTorch put them together until then, as it still did before its own additions
    elif layout in STAYING:
        assert split.collectives == [0, 0]


def named(*values):
    return ["-".join(each) for each in product(*values)]


@CASES(4, of=named(FUNCTIONS, LAYOUTS))
def rows_are_split(ranks, names):
    compare(*names.split("-"), ranks, torch.float32)


@CASES(2, of=named(["layer_norm", "add_rms_norm"], ["batch", "uneven", "columns", "sum_of_parts"]))
def rows_are_split_in_two(ranks, names):
    compare(*names.split("-"), ranks, torch.float32)


@CASES(2, of=named(FUNCTIONS, ["uneven"]))
def rows_are_narrower_than_weights(ranks, names):
    compare(*names.split("-"), ranks, torch.bfloat16)


def gradient_of(function, x, gradient, *weights):
    """(y, the gradients, how many collectives backward took)"""
    y = function(x, (WIDTH,), *weights)
    with CommDebugMode() as counted:
        y.backward(gradient)
    return y, [x.grad, *(each.grad for each in weights)], counted.get_total_counts()


@CASES(4, of=["whole", "batch", "columns", "sum_of_parts"])
def gradients_come_as_they_like(ranks, layout):
    """Not as rows went: then it is the gradient that moves, as in PyTorch's norm."""
    mesh = init_device_mesh("cpu", (ranks,))
    placements = LAYOUTS[layout][1]
    x, weight, bias, gradient = (
        draw(4, 8, WIDTH),
        *(draw(WIDTH, seed=i) for i in (1, 2)),
        spread(draw(4, 8, WIDTH, seed=3), mesh, placements),
    )
    found = []
    for function in (isobit.torch.layer_norm, F.layer_norm):
        leaves = [on_all(each, mesh).requires_grad_() for each in (weight, bias)]
        split = spread(x, mesh, [Shard(1)]).requires_grad_()
        y, gradients, collectives = gradient_of(function, split, gradient, *leaves)
        assert y.placements == gradients[0].placements == (Shard(1),)
        found.append((gradients, collectives))
    (ours, mine), (torchs, theirs) = found
    assert mine <= theirs
    for one, other in zip(ours, torchs, strict=True):
        torch.testing.assert_close(full(one), full(other), atol=1e-5, rtol=1e-5)
    leaf = x.requires_grad_()
    isobit.torch.layer_norm(leaf, (WIDTH,), weight, bias).backward(full(gradient))
    assert torch.equal(full(ours[0]), leaf.grad)


@CASES(4)
def a_view_of_split_rows_stays_split(ranks):
    if torch.__version__ < "2.13":
        return  # PyTorch 2.11 itself refuses this view
    mesh = init_device_mesh("cpu", (2, 2))
    x = spread(draw(4, 6, WIDTH), mesh, [Shard(0), Shard(1)])
    x_rows = x.flatten(0, 1)
    with CommDebugMode() as counted:
        y = isobit.torch.rms_norm(x_rows, WIDTH)
    assert counted.get_total_counts() == 0
    assert torch.equal(full(y), isobit.torch.rms_norm(full(x).flatten(0, 1), WIDTH))


OPTIONS = {
    "zero_centered": {"zero_centered": True},
    "out_dtype": {"out_dtype": torch.float16},
    "two_dimensions": {"shape": (6, WIDTH)},
}


@CASES(2, of=OPTIONS)
def options_hold_for_every_rank(ranks, option):
    options = dict(OPTIONS[option])
    shape = options.pop("shape", (WIDTH,))
    mesh = init_device_mesh("cpu", (ranks,))
    x, weight = draw(4, 6, WIDTH), draw(*shape, seed=1)
    one = isobit.torch.layer_norm(x, shape, weight, **options)
    split = spread(x, mesh, [Shard(0)])
    other = isobit.torch.layer_norm(split, shape, on_all(weight, mesh), **options)
    assert other.placements == (Shard(0),) and other.dtype == one.dtype
    assert torch.equal(one, full(other))
    # along what is normalised, rows are put together first
    gathered = isobit.torch.layer_norm(
        spread(x, mesh, [Shard(len(x.shape) - len(shape))]), shape, on_all(weight, mesh), **options
    )
    assert gathered.placements == (Replicate(),) and torch.equal(one, full(gathered))


@CASES(2, 4, of=["batch", "whole", "sum_of_parts"])
def elements_are_added_where_they_are(ranks, layout):
    mesh = init_device_mesh("cpu", (ranks,))
    shape, placements = LAYOUTS[layout]
    x, residual = (spread(draw(*shape, seed=i), mesh, placements) for i in (0, 1))
    with CommDebugMode() as counted:
        total = isobit.torch.add(x, residual)
    assert counted.get_total_counts() == 0 and total.placements == x.placements
    more = isobit.torch.increment(x)
    assert torch.equal(full(more), full(x) + 1)
    torch.testing.assert_close(full(total), full(x) + full(residual), atol=1e-6, rtol=1e-6)


@CASES(2)
def dropout_takes_whole_rows_only(ranks):
    mesh = init_device_mesh("cpu", (ranks,))
    x, residual, gradient = (draw(4, 6, WIDTH, seed=i) for i in range(3))
    one = isobit.torch.dropout_add_layer_norm(x, residual, WIDTH, seed=3)
    whole = on_all(x, mesh).requires_grad_()
    split = spread(residual, mesh, [Shard(0)]).requires_grad_()
    other = isobit.torch.dropout_add_layer_norm(whole, split, WIDTH, seed=3)
    assert all(torch.equal(a, full(b)) for a, b in zip(one, other, strict=True))
    other[0].backward(spread(gradient, mesh, [Shard(0)]))
    x.requires_grad_()
    isobit.torch.dropout_add_layer_norm(x, residual, WIDTH, seed=3)[0].backward(gradient)
    assert torch.equal(x.grad, full(whole.grad))

    said = refusal(lambda: isobit.torch.dropout_add_rms_norm(split, None, WIDTH))
    assert said.startswith("dropout_add_rms_norm: input is split, as (Shard(dim=0),)")
    assert "to_local()" in said
    resting, total = isobit.torch.dropout_add_rms_norm(split, whole, WIDTH, training=False)
    assert resting.placements == total.placements == (Shard(0),)


def refusal(call, error=NotImplementedError):
    try:
        call()
    except error as refused:
        return str(refused)
    raise AssertionError("it was not refused")


@CASES(2)
def a_tensor_beside_dtensors_is_refused(ranks):
    mesh = init_device_mesh("cpu", (ranks,))
    split, weight = spread(draw(4, WIDTH), mesh, [Shard(0)]), draw(WIDTH)
    assert "mixed" in refusal(lambda: isobit.torch.rms_norm(split, WIDTH, weight), RuntimeError)
    weight = on_all(weight, mesh)
    said = refusal(lambda: isobit.torch.rms_norm(draw(4, WIDTH), WIDTH, weight), RuntimeError)
    assert "mixed" in said


@CASES(2)
def compiled_code_is_eager_code(ranks):
    mesh = init_device_mesh("cpu", (ranks,))
    norm = distribute_module(isobit.torch.LayerNorm(WIDTH), mesh)
    x, gradient = (spread(draw(4, WIDTH, seed=i), mesh, [Shard(0)]) for i in (0, 1))
    found = []
    for call in (norm, torch.compile(norm, backend="aot_eager", fullgraph=True)):
        leaf = x.detach().requires_grad_()
        norm.zero_grad()
        y = call(leaf)
        y.backward(gradient)
        found.append([full(each) for each in (y, leaf.grad, norm.weight.grad, norm.bias.grad)])
    assert all(torch.equal(a, b) for a, b in zip(*found, strict=True))


@CASES(2)
def second_derivatives_are_split_too(ranks):
    mesh = init_device_mesh("cpu", (ranks,))
    found = []
    for place in (lambda each, _: each.detach(), lambda each, how: spread(each, mesh, [how])):
        x = place(draw(4, WIDTH), Shard(0)).requires_grad_()
        weight = place(draw(WIDTH, seed=1), Replicate()).requires_grad_()
        y = isobit.torch.layer_norm(x, WIDTH, weight)
        (gradient,) = torch.autograd.grad(y.square().sum(), x, create_graph=True)
        found.append(torch.autograd.grad(gradient.square().sum(), (x, weight)))
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(full(other), one, atol=1e-5, rtol=1e-5)


@CASES(2)
def operators_are_known_without_our_functions(ranks):
    mesh = init_device_mesh("cpu", (ranks,))
    x = draw(4, WIDTH)
    split = spread(x, mesh, [Shard(0)])
    with torch.inference_mode():
        y = torch.ops.isobit.rms_norm(split, None, 1e-5)
        assert y.placements == (Shard(0),)
        assert torch.equal(full(y), torch.ops.isobit.rms_norm(x, None, 1e-5))


@CASES(2)
def a_result_on_its_way_is_waited_for(ranks):
    mesh = init_device_mesh("cpu", (ranks,))
    x = draw(4, WIDTH)
    coming = spread(x, mesh, [Shard(0)]).redistribute(placements=[Replicate()], async_op=True)
    coming = coming.to_local()
    assert type(coming) is not torch.Tensor
    assert torch.equal(isobit.torch.rms_norm(coming, WIDTH), isobit.torch.rms_norm(x, WIDTH))


@CASES(2)
def pytorchs_norm_overridden_is_split_by_pytorchs_rules(ranks):
    mesh = init_device_mesh("cpu", (ranks,))
    x = draw(4, WIDTH)
    with isobit.torch.override():
        y = F.layer_norm(spread(x, mesh, [Shard(0)]), (WIDTH,))
    assert y.placements == (Shard(0),)
    assert torch.equal(full(y), isobit.torch.layer_norm(x, WIDTH))
