# SPDX-License-Identifier: Apache-2.0
"""Data parallel training with the same bits on any number of ranks: the gradients of the
micro-batches of a global batch are added by the pair tree of order.h, wherever they were computed.

Ranks that add their own sums one after the other give other bits than one rank that adds all.
"""

import sys
from contextlib import contextmanager, nullcontext

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from isobit.torch.functional import add

__all__ = ["GradientTree", "all_reduce", "pair_tree_hook", "reduce_scatter"]

_NAME = "isobit.torch.distributed"


def _is_power_of_two(number):
    return number & (number - 1) == 0


def _total(parts):
    """By adjacent pairs, level by level; an odd one is carried up."""
    while len(parts) > 1:
        pairs = [add(parts[i], parts[i + 1]) for i in range(0, len(parts) - 1, 2)]
        parts = pairs + parts[2 * len(pairs) :]
    return parts[0]


def _divided(tensor, divisor):
    """A new tensor, rounded as IEEE 754 says; a GPU would multiply by a scalar's reciprocal."""
    if _is_power_of_two(divisor):
        return tensor * (1 / divisor)
    wide = tensor.float() if tensor.element_size() < 4 else tensor
    return (wide / torch.tensor(divisor, dtype=wide.dtype, device=wide.device)).to(tensor.dtype)


def _own_share(source, group):
    """source: a contiguous vector of as many elements for each rank. The sum over ranks of those
    for this one."""
    ranks = dist.get_world_size(group)
    if ranks == 1:
        return source
    received = torch.empty_like(source)
    dist.all_to_all_single(received, source, group=group)
    return _total(list(received.chunk(ranks)))


@torch.no_grad()
def reduce_scatter(output, input, group=None):
    """What ``torch.distributed.reduce_scatter_tensor`` computes, a sum, but by the pair tree over
    the ranks. input has the elements of output for each rank, one after the other."""
    ranks = dist.get_world_size(group)
    if input.numel() != ranks * output.numel() or input.dtype != output.dtype:
        raise ValueError(
            f"{_NAME}.reduce_scatter: input has {input.numel()} elements of {input.dtype}; must "
            f"have {ranks * output.numel()} of {output.dtype}, as output has for each rank"
        )
    if output.numel():
        output.copy_(_own_share(input.reshape(-1), group).view(output.shape))


def _begin_all_reduce(vector, divisor, group):
    """Of a contiguous vector, in place. Returns a future of it."""
    ranks, count = dist.get_world_size(group), vector.numel()
    if ranks == 1 or count == 0:
        if divisor != 1:
            vector.copy_(_divided(vector, divisor))
        done = torch.futures.Future()
        done.set_result(vector)
        return done
    source = vector
    if count % ranks:
        source = vector.new_zeros(-(-count // ranks) * ranks)
        source[:count] = vector
    share = _own_share(source, group)
    if divisor != 1:
        share = _divided(share, divisor)
    # PyTorch 2.11 has the older name, of which 2.13 warns.
    gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
    work = gather(source, share, group=group, async_op=True)

    def ended(gathered):
        gathered.value()  # which raises what went wrong
        return vector if source is vector else vector.copy_(source[:count])

    return work.get_future().then(ended)


@torch.no_grad()
def all_reduce(tensor, group=None):
    """What ``torch.distributed.all_reduce`` computes, a sum in place, but by the pair tree over the
    ranks. It moves as much: each rank adds its share of the elements, and gathers the others'."""
    vector = tensor if tensor.dim() == 1 and tensor.is_contiguous() else tensor.reshape(-1)
    found = _begin_all_reduce(vector, 1, group).wait()
    if vector is not tensor:
        tensor.copy_(found.view(tensor.shape))


def pair_tree_hook(process_group, bucket):
    """For DistributedDataParallel: gradients averaged over ranks, added by the pair tree.

    ::

        model.register_comm_hook(None, isobit.torch.distributed.pair_tree_hook)

    process_group: None for all ranks. Where a rank has several micro-batches, GradientTree has a
    hook of its own.
    """
    with torch.no_grad():
        ranks = dist.get_world_size(process_group)
        return _begin_all_reduce(_buffer_of(bucket), ranks, process_group)


def _buffer_of(bucket):
    """Where a parameter has no gradient, what adds nothing, not even to -0.0: PyTorch has +0.0."""
    for parameter, gradient in zip(bucket.parameters(), bucket.gradients(), strict=True):
        if parameter.grad is None:
            gradient.fill_(-0.0)
    return bucket.buffer()


class _Tree:
    """Adds gradients by pairs as they come, as order.h's PairTree does: {parameter: gradient}.
    What is absent has no part in the sum."""

    def __init__(self):
        self.pending, self.count = [], 0

    @staticmethod
    def _sum(first, second):
        """Takes out what it adds, so that memory is free early."""
        found = {}
        for parameter in first | second:
            one, other = first.pop(parameter, None), second.pop(parameter, None)
            both = one is not None and other is not None
            found[parameter] = add(one, other) if both else one if other is None else other
        return found

    def push(self, gradients):
        count, self.count = self.count, self.count + 1
        while count & 1:
            gradients = self._sum(self.pending.pop(), gradients)
            count >>= 1
        self.pending.append(gradients)

    def total(self):
        total = self.pending.pop()
        while self.pending:
            total = self._sum(self.pending.pop(), total)
        self.count = 0
        return total

    def with_last(self, parameter, gradient):
        """What it comes to of one parameter with a last gradient, which completes the tree."""
        for gradients in reversed(self.pending):
            if (before := gradients.pop(parameter, None)) is not None:
                gradient = add(before, gradient)
        return gradient


class _OneRank:
    """A model whose gradients no other rank has a part in."""

    def __init__(self):
        self.rank, self.ranks = 0, 1

    def check(self, each):
        pass

    def indices(self, each):
        return range(self.rank * each, (self.rank + 1) * each)

    def around(self, _tree, _last):
        return nullcontext()

    def completes(self, _last):
        """Whether the gradients that are there have all that the tree has."""
        return False


class _Replicated(_OneRank):
    """DistributedDataParallel: a rank adds what it has, and the ranks their totals, which are
    aligned subtrees."""

    def __init__(self, model, divisor):
        if model.parameters_to_ignore:
            raise NotImplementedError(
                f"{_NAME}.GradientTree: DistributedDataParallel ignores "
                f"{', '.join(sorted(model.parameters_to_ignore))}, which no rank would add"
            )
        self.model, self.divisor, self.tree = model, divisor, None
        self.group = model.process_group
        self.rank, self.ranks = dist.get_rank(self.group), dist.get_world_size(self.group)
        model.register_comm_hook(None, self.reduce)

    def check(self, each):
        if self.model.static_graph and each > 1:
            raise NotImplementedError(
                f"{_NAME}.GradientTree: DistributedDataParallel with static_graph=True has no "
                "backward without communication, of which several micro-batches of a rank need one"
            )
        if self.ranks > 1 and not _is_power_of_two(each):
            raise ValueError(
                f"{_NAME}.GradientTree: a rank has {each} micro-batches; must be a power of two, "
                "so that they are a subtree"
            )

    def reduce(self, _state, bucket):
        with torch.no_grad():
            buffer = _buffer_of(bucket)
            if self.tree is None:  # a backward outside of any micro-batch
                return _begin_all_reduce(buffer, self.ranks, self.group)
            if self.tree.pending:
                for parameter, gradient in zip(
                    bucket.parameters(), bucket.gradients(), strict=True
                ):
                    gradient.copy_(self.tree.with_last(parameter, gradient))
            return _begin_all_reduce(buffer, self.divisor, self.group)

    @contextmanager
    def around(self, tree, last):
        self.tree = tree
        if last and self.model.find_unused_parameters:
            # One that was used, but not in the last micro-batch, must have a gradient all the same.
            for parameter in {each for gradients in tree.pending for each in gradients}:
                parameter.grad = torch.full_like(parameter, -0.0)
        try:
            with nullcontext() if last else self.model.no_sync():
                yield
        finally:
            self.tree = None

    def completes(self, last):
        return last


class _ReduceScatter:
    """What FSDP calls to add up gradients, torch.distributed.fsdp's ReduceScatter."""

    def allocate(self, size, *, dtype, device):
        return torch.empty(*size, dtype=dtype, device=device)

    def __call__(self, output_tensor, input_tensor, group, op, async_op=False):
        if op != dist.ReduceOp.SUM:
            raise NotImplementedError(
                f"{_NAME}: FSDP asks for {op}; GradientTree divides by itself"
            )
        reduce_scatter(output_tensor, input_tensor, group)


class _Sharded(_OneRank):
    """fully_shard: the ranks add each micro-batch of theirs, a subtree that all of them have a
    part in, and then a rank its parts."""

    def __init__(self, model, shards):
        parameters = list(model.parameters())
        meshes = {each.device_mesh for each in parameters if hasattr(each, "device_mesh")}
        if not all(hasattr(each, "device_mesh") for each in parameters):
            raise NotImplementedError(
                f"{_NAME}.GradientTree: fully_shard has not been called on all of the model, whose "
                "other gradients no rank would add"
            )
        if len(meshes) != 1 or (mesh := meshes.pop()).ndim != 1:
            raise NotImplementedError(
                f"{_NAME}.GradientTree: parameters must lie on one mesh of one dimension; HSDP and "
                "tensor parallelism add in an order of their own"
            )
        self.ranks, self.rank = mesh.size(), mesh.get_local_rank()
        self.dtypes = {each.dtype for each in parameters}
        for each in shards:
            each.set_custom_reduce_scatter(_ReduceScatter())
            each.set_gradient_divide_factor(1.0)
            each.set_force_sum_reduction_for_comms(True)
            each.set_all_reduce_hook(self.require_whole)

    def require_whole(self, gradients):
        if gradients.dtype not in self.dtypes:
            raise NotImplementedError(
                f"{_NAME}.GradientTree: FSDP adds gradients in {gradients.dtype}, and rounds "
                "otherwise with other ranks; reduce_dtype of the MixedPrecisionPolicy must be the "
                "type of the parameters"
            )

    def check(self, each):
        if each > 1 and not _is_power_of_two(self.ranks):
            raise ValueError(
                f"{_NAME}.GradientTree: {self.ranks} ranks share each of several micro-batches; "
                "must be a power of two, so that these are subtrees"
            )

    def indices(self, each):
        return range(self.rank, self.ranks * each, self.ranks)


def _way_of(model, divisor):
    if isinstance(model, DistributedDataParallel):
        return _Replicated(model, divisor)
    fsdp = sys.modules.get("torch.distributed.fsdp")  # without it, nobody has used it
    shards = [each for each in model.modules() if fsdp and isinstance(each, fsdp.FSDPModule)]
    if shards:
        return _Sharded(model, shards)
    ranks = dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1
    if ranks > 1:
        raise ValueError(
            f"{_NAME}.GradientTree: model is neither a DistributedDataParallel nor sharded by "
            f"fully_shard; there are {ranks} ranks, whose gradients nobody would add"
        )
    return _OneRank()


def _local(tensor):
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor


def _as_gradient(parameter, total):
    if not hasattr(parameter, "to_local"):
        return total
    from torch.distributed.tensor import DTensor

    return DTensor.from_local(
        total,
        parameter.device_mesh,
        parameter.placements,
        run_check=False,
        shape=parameter.shape,
        stride=parameter.stride(),
    )


class GradientTree:
    """The gradients of a global batch of micro-batches, added by the pair tree over them: the same
    bits on any number of ranks, if each micro-batch's gradients have the same bits everywhere.

    ::

        model = DistributedDataParallel(model)  # or fully_shard(model), or a model alone
        tree = isobit.torch.distributed.GradientTree(model, micro_batches=8)
        for batch in batches:                   # each a list of 8 micro-batches, on all ranks
            for i in tree.indices:              # those of this rank, in their order
                with tree.micro_batch():
                    loss_of(model(batch[i])).backward()
            optimizer.step()
            optimizer.zero_grad()

    model: replicated by ``DistributedDataParallel``, sharded by ``fully_shard``, or on one rank
    neither. It takes over how the model's gradients are added.
    micro_batches: of all ranks together; a multiple of the ranks. With DistributedDataParallel a
    rank has a power of two of them; with fully_shard, ranks that have several are a power of two.
    reduction: ``"mean"`` divides the total by micro_batches, ``"sum"`` leaves it as it is.

    Gradients are added in their own type. A parameter that a micro-batch does not use has no
    gradient to add there. Until the last micro-batch, gradients wait: with DistributedDataParallel
    as many more as the logarithm of a rank's micro-batches, with fully_shard this many of a rank's
    own part.
    """

    def __init__(self, model, micro_batches, *, reduction="mean"):
        if not isinstance(micro_batches, int) or micro_batches < 1:
            raise ValueError(
                f"{_NAME}.GradientTree: micro_batches is {micro_batches!r}; must be a positive "
                "integer"
            )
        if reduction not in ("mean", "sum"):
            raise ValueError(
                f"{_NAME}.GradientTree: reduction is {reduction!r}; allowed: mean, sum"
            )
        self._divisor = micro_batches if reduction == "mean" else 1
        self._parameters = list(model.parameters())
        self._way = _way_of(model, self._divisor)
        if micro_batches % self._way.ranks:
            raise ValueError(
                f"{_NAME}.GradientTree: micro_batches is {micro_batches}; must be a multiple of "
                f"the {self._way.ranks} ranks"
            )
        self._each = micro_batches // self._way.ranks
        self._way.check(self._each)
        self._tree = _Tree()

    @property
    def indices(self):
        """Which micro-batches of the global batch are this rank's, in the order in which it must
        compute them."""
        return self._way.indices(self._each)

    @contextmanager
    def micro_batch(self):
        """Around forward and backward of the next micro-batch of this rank. The last of a batch
        leaves the gradients of all ranks' in the parameters. An error forgets the batch."""
        if any(each.grad is not None for each in self._parameters):
            raise RuntimeError(
                f"{_NAME}: parameters have gradients before a micro-batch; call "
                "optimizer.zero_grad() after each step, which sets them to None"
            )
        last = self._tree.count + 1 == self._each
        try:
            with self._way.around(self._tree, last):
                yield
            self._end(last)
        except BaseException:
            self._tree = _Tree()
            raise

    @torch.no_grad()
    def _end(self, last):
        found = {each: _local(each.grad) for each in self._parameters if each.grad is not None}
        if not found:
            raise RuntimeError(f"{_NAME}: a micro-batch ended without a backward")
        if any(each.layout != torch.strided for each in found.values()):
            raise NotImplementedError(f"{_NAME}: gradients must be dense; some are sparse")
        if self._way.completes(last):
            self._tree = _Tree()
            return
        for parameter in found:
            parameter.grad = None
        self._tree.push(found)
        del found
        if last:
            for parameter, total in self._tree.total().items():
                total = total if self._divisor == 1 else _divided(total, self._divisor)
                parameter.grad = _as_gradient(parameter, total)
