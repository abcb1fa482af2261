# SPDX-License-Identifier: Apache-2.0
"""What test_torch_parallel.py runs in several ranks: a small model with Isobit's norms under
PyTorch's ways to distribute it, beside the same with PyTorch's norms and beside one rank."""

import copy

import torch
import torch._dynamo  # here, once: else it is every rank that imports it
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor, Shard, distribute_tensor
from torch.distributed.tensor.debug import CommDebugMode
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint
from torch_calls import draw
from torch_ranks import Cases
from torch_sharding_cases import full, spread

import isobit.torch

CASES = Cases()
WIDTH, BATCH, CONTEXT = 32, 8, 8

NORMS = {
    "torch": (nn.LayerNorm, nn.RMSNorm),
    "isobit": (isobit.torch.LayerNorm, isobit.torch.RMSNorm),
    "patched": (nn.LayerNorm, nn.RMSNorm),
    "with_linear": (nn.LayerNorm, nn.RMSNorm),
}
PATCHED = {"patched": 4, "with_linear": 8}  # how many modules are replaced
OURS = ("isobit", *PATCHED)
CHECKPOINTS = {"reentrant": True, "not_reentrant": False}


class Block(nn.Module):
    def __init__(self, norms, reentrant=None):
        super().__init__()
        layer_norm, rms_norm = norms
        self.reentrant = reentrant
        self.before, self.after = layer_norm(WIDTH), rms_norm(WIDTH)
        self.wide, self.narrow = nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, x):
        if self.reentrant is None:
            return self.compute(x)
        return checkpoint(self.compute, x, use_reentrant=self.reentrant)

    def compute(self, x):
        return self.after(x + self.narrow(torch.tanh(self.wide(self.before(x)))))


def model_of(kind, reentrant=None, device=None):
    """Two blocks; with the same weights, whatever the kind and the rank."""
    with torch.device(device or "cpu"):
        model = nn.Sequential(*(Block(NORMS[kind], reentrant) for _ in range(2)))
    if kind in PATCHED:
        report = isobit.torch.patch(model, linear=kind == "with_linear")
        assert len(report.replaced) == PATCHED[kind]
    if device != "meta":
        fill(model)
    return model


def fill(model):
    with torch.no_grad():
        for i, parameter in enumerate(model.parameters()):
            start = 1.0 if parameter.dim() == 1 else 0.0
            drawn = start + draw(*parameter.shape, seed=i, dtype=torch.float32) / 8
            if isinstance(parameter, DTensor):
                drawn = distribute_tensor(drawn, parameter.device_mesh, parameter.placements)
            parameter.copy_(drawn)


def batch():
    return draw(BATCH, CONTEXT, WIDTH), draw(BATCH, CONTEXT, WIDTH, seed=1)


def mine(tensor):
    """A rank's share of a batch."""
    return tensor.chunk(dist.get_world_size())[dist.get_rank()]


def step(model, x, wanted):
    """The error, and all gradients, by name."""
    x = x.detach().requires_grad_()
    error = (full(model(x)).float() - wanted).square().mean()
    error.backward()
    names = ((name.removeprefix("module."), each) for name, each in model.named_parameters())
    gradients = {name: full(each.grad) for name, each in names}
    return gradients | {"error": average(error.detach())}


def average(value):
    dist.all_reduce(value)
    return value / dist.get_world_size()


def on_one_rank(kind):
    model = model_of(kind)
    error = (model(batch()[0]) - batch()[1]).square().mean()
    error.backward()
    return {name: each.grad for name, each in model.named_parameters()} | {"error": error.detach()}


def assert_alike(ours, theirs, tolerance=1e-5):
    assert ours.keys() == theirs.keys()
    for name, one in ours.items():
        torch.testing.assert_close(one, theirs[name], atol=tolerance, rtol=tolerance, msg=name)


def compare(kind, distributed, tolerance=1e-5):
    """distributed: kind -> a model on all ranks, which get a share of the batch each."""
    found = {each: step(distributed(each), *map(mine, batch())) for each in (kind, "torch")}
    assert_alike(found[kind], found["torch"], tolerance)
    assert_alike(found[kind], on_one_rank("torch"), tolerance)


def with_checkpoints(*values):
    return [*values, *(f"{values[0]}-{each}" for each in CHECKPOINTS)]


def parted(name):
    value, _, how = name.partition("-")
    return value, CHECKPOINTS.get(how)


@CASES(2, 4, of=with_checkpoints(*OURS))
def ddp(ranks, name):
    kind, reentrant = parted(name)
    compare(kind, lambda each: DistributedDataParallel(model_of(each, reentrant)))


BFLOAT16 = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
AS_THEY_ARE = MixedPrecisionPolicy(cast_forward_inputs=False)


def sharded(model, policy="float32", mesh=None):
    options = {"mesh": mesh, "mp_policy": BFLOAT16 if policy != "float32" else AS_THEY_ARE}
    for block in model:
        if policy == "float32_norms":  # they meet bfloat16 inputs
            for norm in (block.before, block.after):
                fully_shard(norm, mesh=mesh, mp_policy=AS_THEY_ARE)
        fully_shard(block, **options)
    return fully_shard(model, **options)


@CASES(2, 4, of=with_checkpoints(*OURS))
def fsdp(ranks, name):
    kind, reentrant = parted(name)
    compare(kind, lambda each: sharded(model_of(each, reentrant)))


@CASES(2, of=[f"{kind}-{policy}" for kind in OURS for policy in ("bfloat16", "float32_norms")])
def fsdp_of_mixed_types(ranks, name):
    kind, policy = name.split("-")
    seen = []

    def distributed(each):
        model = sharded(model_of(each), policy)
        norm = model[0].before
        norm.register_forward_hook(lambda _, given, y: seen.append((given[0].dtype, y.dtype)))
        norm.register_forward_hook(lambda norm, *_: seen.append(norm.weight.dtype))
        return model

    compare(kind, distributed, tolerance=3e-2)
    low, weight = torch.bfloat16, torch.float32 if policy == "float32_norms" else torch.bfloat16
    assert seen == [(low, low), weight] * 2


@CASES(2, of=OURS)
def fsdp_from_meta(ranks, kind):
    def distributed(each):
        model = sharded(model_of(each, device="meta"))
        model.to_empty(device="cpu")
        for module in model.modules():
            if hasattr(module, "reset_parameters"):
                module.reset_parameters()
        for block in model:
            assert (full(block.before.weight) == 1).all() and (full(block.before.bias) == 0).all()
            assert (full(block.after.weight) == 1).all()
        fill(model)
        return model

    compare(kind, distributed)


PLAN = {
    "before": SequenceParallel(),
    "wide": ColwiseParallel(input_layouts=Shard(1)),
    "narrow": RowwiseParallel(output_layouts=Shard(1), use_local_output=False),
    "after": SequenceParallel(),
}


def parallel(model, mesh):
    for block in model:
        parallelize_module(block, mesh, PLAN)
    return model


def along_sequence(mesh, x=None):
    return spread(batch()[0] if x is None else x, mesh, [Shard(1)])


@CASES(2, 4, of=with_checkpoints(*OURS))
def tensor_and_sequence_parallel(ranks, name):
    kind, reentrant = parted(name)
    mesh = init_device_mesh("cpu", (ranks,))
    found, collectives = {}, {}
    for each in (kind, "torch"):
        model = parallel(model_of(each, reentrant), mesh)
        with CommDebugMode() as counted:
            found[each] = step(model, along_sequence(mesh), batch()[1])
        collectives[each] = counted.get_total_counts()
    assert_alike(found[kind], found["torch"])
    assert_alike(found[kind], on_one_rank("torch"))
    assert collectives[kind] <= collectives["torch"], collectives


@CASES(4, of=OURS)
def fsdp_of_tensor_parallel(ranks, kind):
    mesh = init_device_mesh("cpu", (ranks // 2, 2), mesh_dim_names=("data", "tensor"))
    data, tensor = mesh["data"], mesh["tensor"]
    x, wanted = (each.chunk(data.size())[data.get_local_rank()] for each in batch())
    found = {}
    for each in (kind, "torch"):
        model = sharded(parallel(model_of(each), tensor), mesh=data)
        found[each] = step(model, along_sequence(tensor, x), wanted)
    assert_alike(found[kind], found["torch"])
    assert_alike(found[kind], on_one_rank("torch"))


@CASES(2, 4, of=["LayerNorm", "RMSNorm"])
def megatron_sums_what_is_marked(ranks, name):
    """Plain tensors, each rank with its part of the sequence."""
    norm = getattr(isobit.torch, name)(WIDTH, sequence_parallel=True)
    fill(norm)
    x, gradient = (each.requires_grad_() for each in batch())
    alone = copy.deepcopy(norm)
    y = alone(x)
    y.backward(gradient)
    share = [
        each.detach().chunk(ranks, dim=1)[dist.get_rank()] for each in (x, gradient, y, x.grad)
    ]
    own = share[0].requires_grad_()
    part = norm(own)
    part.backward(share[1])
    assert torch.equal(part, share[2]) and torch.equal(own.grad, share[3])
    for parameter in norm.parameters():
        if getattr(parameter, "sequence_parallel", False):
            dist.all_reduce(parameter.grad)
    gradients = [{n: p.grad for n, p in each.named_parameters()} for each in (norm, alone)]
    assert_alike(*gradients)


@CASES(2)
def patch_comes_first(ranks):
    mesh = init_device_mesh("cpu", (ranks,))
    for distributed in (sharded(model_of("torch")), parallel(model_of("torch"), mesh)):
        report = isobit.torch.patch(distributed)
        assert not report.replaced
        assert report.skipped["0.before"] == "weight is of the type DTensor"
    model = model_of("torch")
    with isobit.torch.patch(model):
        sharded(model)
        assert type(model[0].before) is isobit.torch.LayerNorm
    assert type(model[0].before) is nn.LayerNorm
    block = model_of("torch")[0]
    with isobit.torch.patch(block):
        fully_shard(block.before)
    assert isinstance(block.before, isobit.torch.LayerNorm), "FSDP made a class of it"


@CASES(2)
def marks_do_not_pass_into_dtensors(ranks):
    mesh = init_device_mesh("cpu", (ranks,))
    for distribute in (fully_shard, lambda norm: parallelize_module(norm, mesh, PLAN["before"])):
        norm = isobit.torch.LayerNorm(WIDTH, sequence_parallel=True)
        distribute(norm)
        assert isinstance(norm.weight, DTensor) and not hasattr(norm.weight, "sequence_parallel")
