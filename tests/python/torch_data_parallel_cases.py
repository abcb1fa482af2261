# SPDX-License-Identifier: Apache-2.0
"""What test_torch_data_parallel.py runs in several ranks: trainings whose weights must be those of
one rank, bit for bit. What one rank finds lies in the folder that all cases share."""

import hashlib
import json
import sys
from pathlib import Path

import pytest
import torch
import torch._dynamo  # here, once: else it is every rank that imports it
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel
from torch_ranks import Cases

import isobit.torch
from isobit.torch.distributed import GradientTree, all_reduce, pair_tree_hook, reduce_scatter

sys.path.append(str(Path(__file__).resolve().parents[2] / "examples"))
import reproducible

CASES = Cases()
STEPS, MICRO_BATCHES = 3, 8
BATCHES = {  # of one micro-batch
    "gpt": lambda draws: reproducible.sentences(draws, batch=2, context=16),
    "cnn": lambda draws: reproducible.digits(draws, batch=4),
    "mlp": lambda draws: reproducible.points(draws, batch=5),
}


def model_of(name):
    """Isobit's, with the same weights on all ranks."""
    model = reproducible.GPT(context=16) if name == "gpt" else reproducible.RUNS[name][0]()
    isobit.torch.init.reset_parameters_(model, 1)
    isobit.torch.convert(model)
    return model


def buckets(model, **options):
    """Small ones, so that there are several."""
    return DistributedDataParallel(model, bucket_cap_mb=0.01, **options)


def sharded(model, **options):
    for block in getattr(model, "blocks", ()):
        fully_shard(block, **options)
    return fully_shard(model, **options)


MIXED = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
WAYS = {
    "alone": lambda model: model,
    "ddp": buckets,
    "ddp_of_views": lambda model: buckets(model, gradient_as_bucket_view=True),
    "fsdp": sharded,
    "fsdp_bfloat16": lambda model: sharded(model, mp_policy=MIXED),
}


def whole(tensor):
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def hash_of(tensors):
    contents = b"".join(whole(each.detach()).numpy().tobytes() for each in tensors)
    return hashlib.sha256(contents).hexdigest()


def batches_of(name, count=MICRO_BATCHES):
    """Of all ranks, which draw the same."""
    draws = reproducible.Draws(2)
    found = BATCHES[name](draws)
    for _ in range(STEPS):
        yield [next(found) for _ in range(count)]


def trained(name, way, count=MICRO_BATCHES):
    """Hashes of the gradients of the first step, and of the weights at the end."""
    model = WAYS[way](model_of(name))
    optimizer = isobit.torch.optim.AdamW(model.parameters(), lr=3e-3)
    tree, first = GradientTree(model, count), None
    for batch in batches_of(name, count):
        for i in tree.indices:
            with tree.micro_batch():
                model(*batch[i]).backward()
        first = first or hash_of([each.grad for each in model.parameters()])
        optimizer.step()
        optimizer.zero_grad()
    return [first, hash_of(model.parameters())]


def as_on_one_rank(ranks, name, found):
    """Whether it is what one rank stored under this name, or one before it."""
    file = Path(f"{name}.json")
    if not file.exists() and ranks == 1:
        file.write_text(json.dumps(found))
    return json.loads(file.read_text()) == found


@CASES(1, 2, 4, of=[f"{name}-{way}" for name in ("mlp", "gpt") for way in WAYS if way != "alone"])
def a_training_ends_with_the_weights_of_one_rank(ranks, case):
    """And of one that knows nothing of ranks."""
    name, way = case.split("-")
    found = trained(name, way)
    if ranks == 1 and "bfloat16" not in way:
        assert found == trained(name, "alone")
    assert as_on_one_rank(ranks, f"training-{case}", found)


@CASES(1, 3, of=["6-ddp", "3-fsdp"])
def three_ranks_are_a_tree_too(ranks, case):
    count, way = case.split("-")
    found = trained("mlp", way, int(count))
    assert as_on_one_rank(ranks, f"three-{case}", found)


@CASES(1, 2, 4)
def batch_norm_has_the_same_gradients_and_other_statistics(ranks):
    model, (batch, *_) = buckets(model_of("cnn")), batches_of("cnn")
    tree = GradientTree(model, MICRO_BATCHES)
    for i in tree.indices:
        with tree.micro_batch():
            model(*batch[i]).backward()
    found = hash_of([each.grad for each in model.parameters()])
    assert as_on_one_rank(ranks, "gradients", found)
    assert as_on_one_rank(ranks, "statistics", hash_of(model.buffers())) == (ranks == 1)


@CASES(1, 2, 4, of=["mlp", "gpt"])
def the_ordinary_sum_ends_with_other_weights(ranks, name):
    """Which is why there is another."""
    model = buckets(model_of(name))
    optimizer = isobit.torch.optim.AdamW(model.parameters(), lr=3e-3)
    each = MICRO_BATCHES // ranks
    for batch in batches_of(name):
        *before, last = batch[dist.get_rank() * each :][:each]
        with model.no_sync():
            for micro_batch in before:
                (model(*micro_batch) / each).backward()
        (model(*last) / each).backward()
        optimizer.step()
        optimizer.zero_grad()
    found = hash_of(model.parameters())
    assert as_on_one_rank(ranks, f"ordinary-{name}", found) == (ranks == 1)


@CASES(1, 2, 4, of=["ddp", "fsdp"])
def dropout_that_is_seeded_by_the_micro_batch_drops_the_same(ranks, way):
    module = nn.Sequential(nn.Linear(4, 32), nn.Dropout(0.5), nn.Linear(32, 2))
    isobit.torch.init.reset_parameters_(module, 5)
    isobit.torch.convert(module)
    model, x = WAYS[way](module), reproducible.Draws(6).tensor(MICRO_BATCHES, 6, 4)
    tree = GradientTree(model, MICRO_BATCHES)
    for i in tree.indices:
        torch.manual_seed(i)
        with tree.micro_batch():
            model(x[i]).square().sum().backward()
    norm = isobit.torch.clip_grad_norm_(model.parameters(), 0.1) if way == "ddp" else None
    found = [hash_of([each.grad for each in model.parameters()]), norm and norm.item()]
    assert as_on_one_rank(ranks, f"dropout-{way}", found)


class Branching(nn.Module):
    def __init__(self):
        super().__init__()
        self.always, self.sometimes = nn.Linear(4, 4), nn.Linear(4, 4)
        self.last, self.scale = nn.Linear(4, 1), nn.Parameter(torch.ones(3))

    def forward(self, x, branches):
        y = self.always(x)
        if not branches:
            return self.last(torch.tanh(y)).sum()
        nothing = (self.scale * -0.0).sum()  # of which the gradient is -0.0
        return self.last(torch.tanh(self.sometimes(y))).sum() + nothing


@CASES(1, 2, 4, of=["even", "odd", "first"])
def what_some_micro_batches_do_not_use_is_not_added(ranks, when):
    used = {"even": (0, 2, 4, 6), "odd": (1, 3, 5, 7), "first": (0,)}[when]
    module = Branching()
    isobit.torch.init.reset_parameters_(module, 3, keep_unknown=True)
    x = reproducible.Draws(4).tensor(MICRO_BATCHES, 5, 4)
    model = buckets(module, find_unused_parameters=True)
    found = []
    for each in (model, module) if ranks == 1 else (model,):
        tree = GradientTree(each, MICRO_BATCHES, reduction="sum")
        for i in tree.indices:
            with tree.micro_batch():
                each(x[i], i in used).backward()
        found.append(hash_of([each.grad for each in module.parameters()]))
        module.zero_grad()
    assert len(set(found)) == 1
    assert as_on_one_rank(ranks, f"unused-{when}", found[0])


def by_hand(parts):
    """The sum of order.h's PairTree."""
    if len(parts) == 1:
        return parts[0]
    half = 1 << (len(parts) - 1).bit_length() - 1
    return by_hand(parts[:half]) + by_hand(parts[half:])


def of_rank(rank, *shape, dtype):
    return reproducible.Draws(rank).tensor(*shape).to(dtype) * 2.0**-rank


@CASES(1, 2, 3, 4, of=[torch.float32, torch.bfloat16, torch.float64])
def collectives_add_by_pairs(ranks, dtype):
    rank = dist.get_rank()
    for shape in [(), (0,), (1,), (ranks,), (7,), (5, 13), (4, 3, ranks)]:
        parts = [of_rank(each, *shape, dtype=dtype) for each in range(ranks)]
        wanted = by_hand(parts)
        tensor = parts[rank].clone()
        all_reduce(tensor)
        assert torch.equal(tensor, wanted)
        if len(shape) > 1:
            tensor = parts[rank].mT.contiguous().mT
            all_reduce(tensor)
            assert torch.equal(tensor, wanted)
        if shape and shape[-1] == ranks:
            output = torch.empty(wanted.numel() // ranks, dtype=dtype)
            reduce_scatter(output, parts[rank])
            assert torch.equal(output, wanted.flatten().chunk(ranks)[rank])
    with pytest.raises(ValueError, match=r"input has 3 elements of .*; must have"):
        reduce_scatter(torch.empty(4, dtype=dtype), torch.empty(3, dtype=dtype))


@CASES(2, 3, 4)
def the_hook_alone_averages_over_ranks(ranks):
    found, batch = [], next(iter(batches_of("mlp", ranks)))
    for hooked in (True, False):
        model = buckets(model_of("mlp"))
        if hooked:
            model.register_comm_hook(None, pair_tree_hook)
            model(*batch[dist.get_rank()]).backward()
        else:
            (i,) = (tree := GradientTree(model, ranks)).indices
            with tree.micro_batch():
                model(*batch[i]).backward()
        found.append(hash_of([each.grad for each in model.parameters()]))
    assert found[0] == found[1]


@CASES(2)
def a_backward_outside_of_a_micro_batch_averages_over_ranks(ranks):
    model = buckets(model_of("mlp"))
    batch = next(iter(batches_of("mlp", ranks)))
    GradientTree(model, MICRO_BATCHES)
    model(*batch[dist.get_rank()]).backward()
    ordinary = buckets(model_of("mlp"))
    ordinary(*batch[dist.get_rank()]).backward()
    for one, other in zip(model.parameters(), ordinary.parameters(), strict=True):
        torch.testing.assert_close(one.grad, other.grad)


@CASES(3)
def numbers_of_micro_batches_that_are_no_subtrees_are_refused(ranks):
    for count, way, why in (
        (4, "ddp", "micro_batches is 4; must be a multiple of the 3 ranks"),
        (9, "ddp", "a rank has 3 micro-batches; must be a power of two"),
        (6, "fsdp", "3 ranks share each of several micro-batches; must be a power of two"),
    ):
        with pytest.raises(ValueError, match=why):
            GradientTree(WAYS[way](model_of("mlp")), count)


@CASES(4)
def what_would_be_added_in_another_order_is_refused(ranks):
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicas", "shards"))
    with pytest.raises(NotImplementedError, match="one mesh of one dimension; HSDP"):
        GradientTree(fully_shard(model_of("mlp"), mesh=mesh), 8)
    partial = model_of("gpt")
    fully_shard(partial.blocks[0])
    with pytest.raises(NotImplementedError, match="not been called on all of the model"):
        GradientTree(partial, 8)
    with pytest.raises(ValueError, match="neither a DistributedDataParallel nor sharded"):
        GradientTree(model_of("mlp"), 8)
    static = buckets(model_of("mlp"), static_graph=True)
    with pytest.raises(NotImplementedError, match="static_graph=True"):
        GradientTree(static, 8)
    ignoring = model_of("mlp")
    nn.parallel.DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(
        ignoring, ["layers.0.bias"]
    )
    with pytest.raises(NotImplementedError, match=r"ignores layers\.0\.bias"):
        GradientTree(DistributedDataParallel(ignoring), 8)


@CASES(2)
def sums_in_a_narrower_type_are_refused(ranks):
    narrow = MixedPrecisionPolicy(param_dtype=torch.bfloat16)
    model = sharded(model_of("mlp"), mp_policy=narrow)
    tree, batch = GradientTree(model, ranks), next(iter(batches_of("mlp", ranks)))
    with (
        pytest.raises(NotImplementedError, match=r"adds gradients in torch\.bfloat16"),
        tree.micro_batch(),
    ):
        model(*batch[dist.get_rank()]).backward()


@CASES(2)
def a_mean_of_fsdps_own_is_refused(ranks):
    model = sharded(model_of("mlp"))
    tree, batch = GradientTree(model, ranks), next(iter(batches_of("mlp", ranks)))
    model.set_gradient_divide_factor(2.0)
    model.set_force_sum_reduction_for_comms(False)
    with pytest.raises(NotImplementedError, match="FSDP asks for "), tree.micro_batch():
        model(*batch[dist.get_rank()]).backward()
