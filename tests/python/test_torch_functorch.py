# SPDX-License-Identifier: Apache-2.0
"""torch.func's transforms and forward mode see the norms as they see PyTorch's own functions, and
samples of a batch have the bits they have alone."""

import itertools

import pytest
import torch
from torch import func
from torch.autograd import forward_ad
from torch_calls import Norm, bits, draw, many, ramp

import isobit.torch

# PyTorch's forward mode scripts some of its own formulas.
pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")

NAMES = Norm.NAMES
EPS = 1e-3


class Norm64(Norm):
    """Beside its formula in PyTorch's own operations."""

    def draw(self, *shape):
        return super().draw(*shape, dtype=torch.float64)

    def dropped(self, v):
        if not self.name.startswith("dropout"):
            return v
        kept = isobit.torch.dropout_add_rms_norm(
            torch.ones_like(v.detach()), None, v.shape[-1:], p=0.3, seed=7
        )[1]
        return v * kept

    def formula(self, x, *others):
        """The same in PyTorch's operations, for inputs that have no further batch dimension."""
        rows, weights = others[: self.inputs - 1], others[self.inputs - 1 :]
        total = sum(rows, self.dropped(x))
        deviation = total - total.mean(-1, keepdim=True) if self.name in self.CENTERED else total
        y = deviation * (deviation.square().mean(-1, keepdim=True) + EPS).rsqrt()
        for weight in weights[:1]:
            y = y * weight
        for bias in weights[1:]:
            y = y + bias
        return (y, total) if self.inputs == 2 else y


def scalar(call):
    """A number of all results, in which every element has its own part."""

    def loss(*tensors):
        return sum((y * ramp(y)).sum() for y in many(call(*tensors)))

    return loss


def curved(call):
    """A number whose derivatives of any order depend on the results."""

    def loss(*tensors):
        return sum(y.pow(3).sum() for y in many(call(*tensors)))

    return loss


def close(ours, theirs):
    ours, theirs = many(ours), many(theirs)
    return len(ours) == len(theirs) and all(
        torch.allclose(one, other, rtol=1e-9, atol=1e-9)
        for one, other in zip(ours, theirs, strict=True)
    )


def a_sample(tensor, dim, index):
    return tensor if dim is None else tensor.select(dim, index)


def looped(call, tensors, dims, size, out_dim=0):
    """What vmap should give."""
    each = [
        many(call(*(a_sample(t, dim, i) for t, dim in zip(tensors, dims, strict=True))))
        for i in range(size)
    ]
    return [torch.stack(outputs, out_dim) for outputs in zip(*each, strict=True)]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("in_dim, out_dim", [(0, 0), (1, 2), (2, 1), (-1, -1), (-2, 0)])
def test_a_batch_in_any_dimension_has_the_bits_of_its_samples(name, in_dim, out_dim):
    norm = Norm(name)
    tensors = norm.draw(4, 6)
    for i in range(norm.inputs):
        samples = [draw(4, 6, seed=40 + 3 * i + j) for j in range(3)]
        tensors[i] = torch.stack(samples, in_dim)
    dims = [in_dim] * norm.inputs + [None] * norm.weights
    found = many(torch.vmap(norm, tuple(dims), out_dim)(*tensors))
    assert bits(*found) == bits(*looped(norm, tensors, dims, 3, out_dim))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_each_tensor_may_be_a_batch_or_not(name, dtype):
    norm = Norm(name)
    plain = norm.draw(4, 6, dtype=dtype)
    batches = [draw(5, *t.shape, dtype=dtype, seed=50 + i) for i, t in enumerate(plain)]
    for chosen in itertools.product((False, True), repeat=len(plain)):
        if not any(chosen):
            continue
        tensors = [b if take else t for b, t, take in zip(batches, plain, chosen, strict=True)]
        dims = [0 if take else None for take in chosen]
        found = many(torch.vmap(norm, tuple(dims))(*tensors))
        assert bits(*found) == bits(*looped(norm, tensors, dims, 5)), chosen


@pytest.mark.parametrize("name", NAMES)
def test_batches_of_batches_and_chunks_change_no_bit(name):
    norm = Norm(name)
    tensors = norm.draw(4, 6)
    tensors[0] = draw(2, 3, 4, 6)
    rest = [None] * (len(tensors) - 1)
    outer, inner = (0, *rest), (1, *rest)
    found = many(torch.vmap(torch.vmap(norm, (0, *rest)), outer)(*tensors))
    swapped = many(torch.vmap(torch.vmap(norm, (0, *rest)), inner)(*tensors))
    chunks = many(torch.vmap(torch.vmap(norm, (0, *rest)), outer, chunk_size=1)(*tensors))
    expected = [looped(norm, [half, *tensors[1:]], (0, *rest), 3) for half in tensors[0].unbind()]
    expected = [torch.stack(each) for each in zip(*expected, strict=True)]
    assert bits(*found) == bits(*chunks) == bits(*expected)
    assert bits(*(y.transpose(0, 1) for y in swapped)) == bits(*expected)


@pytest.mark.parametrize("name", NAMES)
def test_batches_of_two_normalised_dimensions(name):
    norm = Norm(name, dims=2, zero_centered=True, out_dtype=torch.float16)
    tensors = norm.draw(3, 4, 5)
    tensors[0] = draw(3, 2, 4, 5)
    dims = [1] + [None] * (len(tensors) - 1)
    found = many(torch.vmap(norm, tuple(dims))(*tensors))
    assert bits(*found) == bits(*looped(norm, tensors, dims, 2))


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize("name", NAMES)
def test_batches_without_gradients(name, mode):
    norm = Norm(name)
    tensors = norm.draw(4, 6, requires_grad=True)
    tensors[0] = draw(3, 4, 6, requires_grad=True)
    dims = [0] + [None] * (len(tensors) - 1)
    with mode():
        found = many(torch.vmap(norm, tuple(dims))(*tensors))
    assert not any(y.requires_grad for y in found)
    assert bits(*found) == bits(*looped(norm, tensors, dims, 3))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_grad_and_vjp_have_the_bits_of_backward(name, dtype):
    norm = Norm(name)
    tensors = norm.draw(4, 6, dtype=dtype)
    leaves = [t.clone().requires_grad_() for t in tensors]
    outputs = many(norm(*leaves))
    to = [ramp(y) for y in outputs]
    expected = torch.autograd.grad(outputs, leaves, to)
    everything = tuple(range(len(tensors)))
    assert bits(*func.grad(scalar(norm), everything)(*tensors)) == bits(*expected)
    results, pull = func.vjp(norm, *tensors)
    assert bits(*many(results)) == bits(*outputs)
    assert bits(*pull(tuple(to) if norm.inputs == 2 else to[0])) == bits(*expected)
    for wanted in everything:
        (found,) = many(func.grad(scalar(norm), wanted)(*tensors))
        assert bits(found) == bits(expected[wanted])


@pytest.mark.parametrize("name", NAMES)
def test_gradients_of_samples_have_the_bits_of_a_loop(name):
    norm = Norm(name)
    tensors = norm.draw(4, 6)
    everything = tuple(range(len(tensors)))
    for i in range(norm.inputs):
        tensors[i] = draw(3, 4, 6, seed=60 + i)
    dims = [0] * norm.inputs + [None] * norm.weights
    gradient = func.grad(scalar(norm), everything)
    found = torch.vmap(gradient, tuple(dims))(*tensors)
    assert bits(*found) == bits(*looped(gradient, tensors, dims, 3))


@pytest.mark.parametrize("name", NAMES)
def test_batched_cotangents_have_the_bits_of_a_loop(name):
    norm = Norm(name)
    tensors = norm.draw(4, 6, requires_grad=True)
    y = many(norm(*tensors))[0]
    to = draw(3, 4, 6, seed=70)
    found = torch.autograd.grad(y, tensors, to, is_grads_batched=True, retain_graph=True)
    each = [torch.autograd.grad(y, tensors, one, retain_graph=True) for one in to]
    assert bits(*found) == bits(*map(torch.stack, zip(*each, strict=True)))


@pytest.mark.parametrize("name", NAMES)
def test_jvp_is_the_derivative_of_the_formula(name):
    norm = Norm64(name)
    tensors = norm.draw(4, 6)
    along = [draw(*t.shape, dtype=t.dtype, seed=80 + i) for i, t in enumerate(tensors)]
    found = func.jvp(norm, tuple(tensors), tuple(along))
    expected = func.jvp(norm.formula, tuple(tensors), tuple(along))
    for ours, theirs in zip(found, expected, strict=True):
        assert close(ours, theirs)
    assert bits(*many(found[0])) == bits(*many(norm(*tensors)))


@pytest.mark.parametrize("name", NAMES)
def test_jacobians_and_hessians_are_those_of_the_formula(name):
    norm = Norm64(name)
    tensors = norm.draw(2, 4)
    everything = tuple(range(len(tensors)))
    flat = torch.utils._pytree.tree_leaves
    expected = flat(func.jacrev(norm.formula, everything)(*tensors))
    assert close(tuple(flat(func.jacrev(norm, everything)(*tensors))), tuple(expected))
    assert close(
        tuple(flat(func.jacrev(norm, everything, chunk_size=3)(*tensors))), tuple(expected)
    )
    assert close(tuple(flat(func.jacfwd(norm, everything)(*tensors))), tuple(expected))
    ours, theirs = curved(norm), curved(norm.formula)
    expected = tuple(flat(func.hessian(theirs, everything)(*tensors)))
    assert close(tuple(flat(func.hessian(ours, everything)(*tensors))), expected)
    twice = func.jacrev(func.jacfwd(ours, everything), everything)(*tensors)
    assert close(tuple(flat(twice)), expected)


@pytest.mark.parametrize("name", NAMES)
def test_gradients_of_gradients_of_gradients(name):
    norm = Norm64(name)
    tensors = norm.draw(2, 4)

    def thrice(loss):
        for _ in range(3):
            loss = scalar(func.grad(loss))
        return func.grad(loss)(*tensors)

    assert close(thrice(curved(norm)), thrice(curved(norm.formula)))


@pytest.mark.parametrize("name", NAMES)
def test_transforms_nest_in_any_order(name):
    norm = Norm64(name)
    tensors = norm.draw(2, 4)
    batch = draw(3, 2, 4, dtype=torch.float64, seed=90)

    def product(call):
        """A Hessian times a vector for every sample."""

        def one(v):
            gradient = func.grad(curved(lambda x: call(x, *tensors[1:])))
            return func.jvp(gradient, (tensors[0],), (v,))[1]

        return torch.vmap(one)(batch)

    assert close(product(norm), product(norm.formula))


@pytest.mark.parametrize("name", NAMES)
def test_tangents_of_any_of_the_tensors(name):
    norm = Norm64(name)
    tensors = norm.draw(4, 6)
    along = [draw(*t.shape, dtype=t.dtype, seed=80 + i) for i, t in enumerate(tensors)]

    def tangents(call, moved):
        with forward_ad.dual_level():
            duals = [
                forward_ad.make_dual(t, v) if take else t
                for t, v, take in zip(tensors, along, moved, strict=True)
            ]
            unpacked = [forward_ad.unpack_dual(y) for y in many(call(*duals))]
            return tuple(
                torch.zeros_like(y.primal) if y.tangent is None else y.tangent for y in unpacked
            )

    for moved in itertools.product((False, True), repeat=len(tensors)):
        assert close(tangents(norm, moved), tangents(norm.formula, moved)), moved
    with torch.no_grad():
        assert close(tangents(norm, moved), tangents(norm.formula, moved))


def test_tangents_have_the_dtypes_of_what_they_belong_to():
    x, weight = draw(4, 6, dtype=torch.bfloat16), draw(6)
    norm = Norm("add_layer_norm", out_dtype=torch.float16)
    _, (y_t, sum_t) = func.jvp(
        lambda x, w: norm(x, x, w), (x, weight), (torch.ones_like(x), torch.ones_like(weight))
    )
    assert (y_t.dtype, sum_t.dtype) == (torch.float16, torch.bfloat16)


def dropped(v, **options):
    return isobit.torch.dropout_add_rms_norm(v, None, v.shape[-1:], p=0.4, **options)[1]


def test_every_sample_drops_what_a_call_with_its_seed_drops():
    ones = torch.ones(3, 4, 50)
    seeds = torch.tensor([5, 5, 6])
    same = torch.vmap(lambda v: dropped(v, seed=5))(ones)
    assert bits(*same) == bits(dropped(ones[0], seed=5)) * 3
    each = torch.vmap(lambda v, seed: dropped(v, seed=seed), (None, 0))(ones[0], seeds)
    assert bits(*each[:2]) == bits(*same[:2])
    assert bits(each[2]) == bits(dropped(ones[0], seed=6)) != bits(each[0])


def test_seeds_are_drawn_in_a_batch_as_vmap_is_told():
    ones = torch.ones(3, 4, 50)
    with pytest.raises(RuntimeError, match="randomness"):
        torch.vmap(dropped)(ones)
    torch.manual_seed(0)
    same = torch.vmap(dropped, randomness="same")(ones)
    assert bits(same[0]) == bits(same[1]) == bits(same[2])
    torch.manual_seed(0)
    assert bits(dropped(ones[0])) == bits(same[0])
    different = torch.vmap(dropped, randomness="different")(ones)
    assert len({one for sample in different for one in bits(sample)}) == 3
    torch.manual_seed(1)
    once = torch.vmap(dropped, randomness="different")(ones)
    torch.manual_seed(1)
    assert bits(once) == bits(torch.vmap(dropped, randomness="different")(ones))


def test_functionalize_changes_nothing():
    x, weight = draw(4, 6), draw(6)

    def call(x):
        y = isobit.torch.layer_norm(x, (6,), weight)
        y.mul_(2)
        return isobit.torch.add_rms_norm(y, x, (6,), weight)

    assert bits(*func.functionalize(call)(x)) == bits(*call(x))


@pytest.mark.filterwarnings("ignore:Attempted to insert a get_attr:UserWarning")
def test_linearize_pushes_tangents_forward():
    x, along = draw(4, 6, dtype=torch.float64), draw(4, 6, dtype=torch.float64, seed=1)
    norm = Norm("layer_norm")
    y, push = func.linearize(norm, x)
    assert bits(y) == bits(norm(x))
    assert close(push(along), func.jvp(norm, (x,), (along,))[1])


class Block(torch.nn.Module):
    def __init__(self, seed):
        super().__init__()
        self.first = isobit.torch.LayerNorm(6)
        self.second = isobit.torch.RMSNorm(6, eps=EPS)
        for i, parameter in enumerate(self.parameters()):
            parameter.data = draw(6, seed=seed + i)

    def forward(self, x):
        return self.second(self.first(x) + x)


def test_modules_give_the_gradients_of_each_sample():
    block, batch = Block(0), draw(5, 4, 6)
    parameters = {name: p.detach() for name, p in block.named_parameters()}

    def loss(parameters, x):
        return scalar(lambda x: func.functional_call(block, parameters, (x,)))(x)

    found = torch.vmap(func.grad(loss), (None, 0))(parameters, batch)
    each = [torch.autograd.grad(scalar(block)(x), [*block.parameters()]) for x in batch]
    assert bits(*found.values()) == bits(*map(torch.stack, zip(*each, strict=True)))


def test_an_ensemble_of_modules_has_the_bits_of_its_members():
    blocks, x = [Block(seed) for seed in (0, 10, 20)], draw(4, 6)
    parameters, buffers = func.stack_module_state(blocks)

    def member(parameters, buffers, x):
        return func.functional_call(blocks[0], (parameters, buffers), (x,))

    found = torch.vmap(member, (0, 0, None))(parameters, buffers, x)
    assert bits(*found) == bits(*(block(x) for block in blocks))


@pytest.fixture
def no_slow_way():
    """PyTorch may not batch what has no rule by a loop of its own."""
    torch._C._functorch._set_vmap_fallback_enabled(False)
    yield
    torch._C._functorch._set_vmap_fallback_enabled(True)


def operators(x, weight, residual):
    """Calls by name, with and without what has a default: PyTorch leaves out of a call what
    equals its default."""
    ops = torch.ops.isobit
    seed = torch.tensor(7)
    return (
        ops.layer_norm(x, weight, None, EPS),
        ops.layer_norm(x, weight, None, eps=EPS, zero_centered=True, out_dtype=torch.float32),
        ops.rms_norm(x, weight, EPS),
        *ops.add_layer_norm(x, weight, None, EPS, residual=residual),
        *ops.add_rms_norm(x, weight, EPS, residual=residual),
        *ops.add_rms_norm(x, weight, EPS, residual=residual, dropout=0.5, seed=seed),
        ops.add(x, residual),
        ops.increment(x),
    )


def functions(x, weight, residual):
    shape = x.shape[-1:]
    return (
        isobit.torch.layer_norm(x, shape, weight, eps=EPS),
        isobit.torch.layer_norm(
            x, shape, weight, eps=EPS, zero_centered=True, out_dtype=torch.float32
        ),
        isobit.torch.rms_norm(x, shape, weight, eps=EPS),
        *isobit.torch.add_layer_norm(x, residual, shape, weight, eps=EPS),
        *isobit.torch.add_rms_norm(x, residual, shape, weight, eps=EPS),
        *isobit.torch.dropout_add_rms_norm(x, residual, shape, weight, eps=EPS, p=0.5, seed=7),
        x + residual,
        x + 1,
    )


def test_operators_called_by_name_know_the_transforms(no_slow_way):
    tensors = draw(3, 4, 6), draw(6), draw(3, 4, 6, seed=1)
    dims = (0, None, 0)
    found = torch.vmap(operators, dims)(*tensors)
    assert bits(*found) == bits(*looped(operators, tensors, dims, 3))
    everything = (0, 1, 2)
    found = func.grad(scalar(operators), everything)(*tensors)
    expected = func.grad(scalar(functions), everything)(*tensors)
    assert bits(*found) == bits(*expected)
    along = tuple(draw(*t.shape, seed=80 + i) for i, t in enumerate(tensors))
    found = func.jvp(operators, tensors, along)
    expected = func.jvp(functions, tensors, along)
    assert bits(*found[0]) == bits(*expected[0])
    assert bits(*found[1]) == bits(*expected[1])


def test_elementwise_functions_know_the_transforms(no_slow_way):
    x, residual = draw(3, 4, 6), draw(4, 6)
    for ours, theirs, tensors in (
        (isobit.torch.add, torch.add, (x, residual)),
        (isobit.torch.increment, lambda x: x + 1, (x,)),
    ):
        dims = (0, None)[: len(tensors)]
        assert bits(torch.vmap(ours, dims, 1)(*tensors)) == bits(
            torch.vmap(theirs, dims, 1)(*tensors)
        )
        sample = tuple(t.reshape(-1, 6)[:4] for t in tensors)
        everything = tuple(range(len(tensors)))
        gradients = [func.grad(scalar(call), everything)(*sample) for call in (ours, theirs)]
        assert bits(*gradients[0]) == bits(*gradients[1])
        along = tuple(draw(*t.shape, seed=3) for t in sample)
        tangents = [func.jvp(call, sample, along)[1] for call in (ours, theirs)]
        assert bits(tangents[0]) == bits(tangents[1])


def test_errors_within_a_batch_are_those_of_a_sample():
    x = draw(3, 4, 6)
    message = "input has shape \\(4, 6\\), of which \\(6,\\) is normalised"
    with pytest.raises(ValueError, match="normalized_shape is \\(5,\\)"):
        torch.vmap(lambda v: isobit.torch.layer_norm(v, (5,)))(x)
    with pytest.raises(ValueError, match=message):
        torch.vmap(lambda v, w: isobit.torch.layer_norm(v, (6,), w), (0, 0))(x, draw(3, 5))
    assert bits(torch.vmap(Norm("layer_norm"))(x)) == bits(Norm("layer_norm")(x))


@pytest.mark.parametrize("name", NAMES)
def test_batches_of_16_bits_meet_single_precision_weights(name):
    norm = Norm(name)
    tensors = norm.draw(4, 6, dtype=torch.float16, weight_dtype=torch.float32)
    tensors[0] = draw(3, 4, 6, dtype=torch.float16)
    dims = [0] + [None] * (len(tensors) - 1)
    found = many(torch.vmap(norm, tuple(dims))(*tensors))
    assert bits(*found) == bits(*looped(norm, tensors, dims, 3))
