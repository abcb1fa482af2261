# SPDX-License-Identifier: Apache-2.0
"""From one record follows all that PyTorch must know of an operator, tried with operators that
Isobit does not have; and the records of those it has say what is so."""

import itertools
from types import SimpleNamespace

import pytest
import torch
import torch.distributed as dist
from torch.autograd import gradcheck, gradgradcheck
from torch_calls import bits, draw, many
from torch_made_up import PRODUCT, TRANSPOSE

import isobit.torch
from isobit.torch import adapters, catalog, functional, sharding
from isobit.torch.activations import CODES
from isobit.torch.scanning import KINDS

pytestmark = [
    pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors is in prototype"),
    pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning"),
]

MADE_UP = {
    "made_up_transpose": (TRANSPOSE, lambda x, *_: TRANSPOSE.overload()(x, 0, -1), 1),
    "made_up_transpose_to_half": (
        TRANSPOSE,
        lambda x, *_: TRANSPOSE.overload()(x, -2, 1, torch.float16),
        1,
    ),
    "made_up_product": (PRODUCT, PRODUCT.overload(), 2),
}


def made_up(name, *leading, dtype=torch.float32, requires_grad=False):
    record, call, count = MADE_UP[name]
    tensors = [draw(*leading, 3, 4, 6, dtype=dtype), draw(6, 5, dtype=dtype)][:count]
    return record, call, [each.requires_grad_(requires_grad) for each in tensors]


def test_every_operator_of_the_adapter_has_a_record_and_no_other():
    named = [each.name for each in catalog.RECORDS]
    theirs = [name for name in adapters.NAMES if not name.startswith("made_up")]
    assert sorted(named) == sorted(theirs) and len(set(named)) == len(named)


@pytest.mark.parametrize("name", MADE_UP)
def test_shapes_and_derivatives_are_what_opcheck_asks_for(name):
    record, _, tensors = made_up(name, requires_grad=True)
    options = {"made_up_transpose": (0, -1), "made_up_transpose_to_half": (-2, 1, torch.float16)}
    torch.library.opcheck(record.overload(), (*tensors, *options.get(name, ())))


@pytest.mark.parametrize("name", MADE_UP)
def test_compiled_code_has_the_bits_of_eager_code_for_any_batch(name):
    _, call, _ = made_up(name)
    torch._dynamo.reset()
    compiled = torch.compile(call, backend="aot_eager", fullgraph=True, dynamic=True)
    for leading in ((), (2,), (7,)):
        _, _, tensors = made_up(name, *leading, requires_grad=True)
        found, expected = compiled(*tensors), call(*tensors)
        assert found.dtype == expected.dtype and bits(found) == bits(expected)
        gradients = [torch.autograd.grad(y.float().sum(), tensors) for y in (found, expected)]
        assert bits(*gradients[0]) == bits(*gradients[1])


@pytest.mark.parametrize("dims", [(0, 1), (-1, 0), (1, -2), (2, 2)])
@pytest.mark.parametrize("in_dim", [0, 2, -1])
def test_a_batch_of_transposes_is_one_call(dims, in_dim, monkeypatch):
    x = draw(3, 4, 6, 5)
    calls = []
    monkeypatch.setattr(torch, "stack", calls.append)  # which joins what is called one by one
    found = torch.vmap(lambda x: TRANSPOSE.overload()(x, *dims), in_dim)(x)
    monkeypatch.undo()
    samples = [each.transpose(*dims) for each in x.unbind(in_dim)]
    assert not calls and torch.equal(found, torch.stack(samples))


@pytest.mark.parametrize("in_dims", [(0, None), (0, 0), (None, 1)])
def test_a_batch_of_products_with_and_without_weights_of_their_own(in_dims):
    batch = [draw(5, 2, 5, 5), draw(5, 5, 5)]
    given = [each if dim is not None else each[0] for each, dim in zip(batch, in_dims, strict=True)]
    found = torch.vmap(PRODUCT.overload(), in_dims)(*given)
    assert torch.allclose(found, torch.vmap(torch.matmul, in_dims)(*given), atol=1e-5)


@pytest.mark.parametrize("name", ["made_up_transpose", "made_up_product"])
def test_derivatives_of_every_kind(name):
    _, call, tensors = made_up(name, dtype=torch.float64, requires_grad=True)
    assert gradcheck(call, tensors, check_forward_ad=True, check_batched_grad=True)
    assert gradgradcheck(call, tensors, check_fwd_over_rev=True)
    _, there = torch.func.vjp(call, *(each.detach() for each in tensors))
    shape = call(*tensors).shape
    assert all(each.dtype == torch.float64 for each in there(draw(*shape, dtype=torch.float64)))


def test_what_is_not_kept_is_known_by_its_type():
    x = draw(3, 4, requires_grad=True)
    y = TRANSPOSE.overload()(x, 0, 1, torch.float16)
    held = (*y.grad_fn.options, *y.grad_fn.likes)
    assert y.dtype == torch.float16 and not any(map(torch.is_tensor, held))
    assert y.grad_fn.saved_tensors == ()
    (gradient,) = torch.autograd.grad(y.sum(), x)
    assert gradient.dtype == torch.float32


def test_autocast_is_what_the_record_says():
    x, weight = draw(3, 4, requires_grad=True), draw(4, 5)
    with torch.autocast("cpu", torch.bfloat16):
        assert TRANSPOSE.overload()(x, 0, 1).dtype == torch.float32
        y = PRODUCT.overload()(x, weight)
        assert y.dtype == torch.bfloat16
        assert PRODUCT.overload("_")(x.detach(), weight).dtype == torch.bfloat16
        assert PRODUCT.overload()(x.double(), weight.double()).dtype == torch.float64
    (gradient,) = torch.autograd.grad(y.sum(), x)
    assert gradient.dtype == torch.float32
    assert PRODUCT.overload()(x, weight).dtype == torch.float32


@pytest.mark.parametrize(
    ("name", "more"),
    {"increment": (), "add": (torch.ones(2),), "transpose": (0, 1), "gelu": (), "sum": ()}.items(),
)
def test_an_input_that_is_none_is_refused_by_name(name, more):
    with pytest.raises(TypeError, match=f"{name}: (x|input) must be a Tensor; it is NoneType"):
        getattr(isobit.torch, name)(None, *more)


def test_tensors_of_two_devices_are_refused_by_name():
    with pytest.raises(ValueError, match="made_up_product: weight is on cpu; x is on meta"):
        PRODUCT.overload()(draw(3, 4).to("meta"), draw(4, 5))


def test_nested_tensors_are_their_rows_where_the_record_says_rows():
    rows, weight = draw(5, 6), draw(6, 4)
    x = torch.nested.nested_tensor_from_jagged(rows, torch.tensor([0, 2, 5]))
    y = functional.run(PRODUCT, {"x": x, "weight": weight})
    assert y.is_nested and torch.equal(y.values(), rows @ weight)
    with pytest.raises(NotImplementedError, match="made_up_transpose: nested tensors are not"):
        functional.run(TRANSPOSE, {"x": x}, dim0=0, dim1=1)


def few(*tensors):
    """Of few digits, for sums of parts in another order."""
    return tuple(each.mul(4).round() for each in tensors)


# (record, its arguments), of every operator
def samples():
    def x(seed=0):
        return draw(4, 6, 8, seed=seed)

    def w(seed=0):
        return draw(8, seed=seed)

    def heads(count, seed=0):
        return draw(2, 6, count, 8, seed=seed)

    def table(seed=0):
        return draw(6, 4, seed=seed)

    names = {each.name: each for each in catalog.RECORDS}
    windows = ((1, 1), (1, 1), (0, 0), (1, 1))  # stride, padding, extra padding, dilation
    pools = ((3, 3), (1, 1), (2, 2), (1, 1), (1, 1))  # kernel, bins, stride, padding, dilation
    places = torch.tensor([[0, 2, 4], [12, 14, 17], [24, 27, 35]])
    given = {
        "layer_norm": (x(), w(), w(1), 1e-3),
        "rms_norm": (x(), w(), 1e-3),
        "add_layer_norm": (x(), w(), w(1), 1e-3, 1, False, None, x(1)),
        "add_rms_norm": (x(), w(), 1e-3, 1, False, None, x(1)),
        "layer_norm_backward": (x(1), x(), w(), 1e-3),
        "rms_norm_backward": (x(1), x(), w(), 1e-3),
        "add_layer_norm_backward": (x(1), x(), w(), 1e-3, 1, False, True, True, False, x(2)),
        "add_rms_norm_backward": (x(1), x(), w(), 1e-3, 1, False, True, True, x(2)),
        "add": (x(), x(1)),
        "increment": (x(),),
        "pointwise_loss": (x(), x(1), x(2), None, 3, 0.5),
        "pointwise_loss_backward": (x(3), x(), x(1), x(2), None, 4, 0.5),
        "dropout": (x(), torch.tensor(7), 0.5),
        "rope": (heads(4), heads(2, 1), table(), table(1)),
        "rope_tables": (draw(4).abs(), 6),
        "scan": (x(), None, None, KINDS.index("sum"), -1),
        "scan_extreme": (x(), None, KINDS.index("max"), -1),
        "matmul": few(draw(2, 4, 6, 8), draw(2, 4, 8, 6)),
        "activated_matmul": (*few(draw(2, 4, 6, 8), draw(2, 4, 8, 6)), None, 3),
        "matmul_backward": (*few(draw(2, 4, 6, 6), draw(2, 4, 6, 8), draw(2, 4, 8, 6)), None),
        "convolution": (*few(draw(2, 4, 6, 6), draw(6, 4, 3, 3)), draw(6), *windows),
        "convolution_input": (*few(draw(2, 6, 6, 6), draw(6, 4, 3, 3)), (6, 6), *windows),
        "convolution_weight": (*few(draw(2, 6, 6, 6), draw(2, 4, 6, 6)), (3, 3), *windows),
        "convolution_backward": (
            *few(draw(2, 6, 6, 6), draw(2, 4, 6, 6), draw(6, 4, 3, 3)),
            torch.float32,
            *windows,
        ),
        "convolution_bias": few(draw(2, 6, 4, 4)),
        "max_pool": (draw(2, 4, 6, 6), *pools),
        "max_pool_backward": (draw(2, 4, 3, 3), places.expand(2, 4, 3, 3), (6, 6), *pools),
        "interpolate": (draw(2, 4, 6, 6), (5, 9), 3),
        "interpolate_backward": (draw(2, 4, 5, 9), (6, 6), 3),
        "average_pool": (draw(2, 4, 6, 6), *pools),
        "average_pool_backward": (draw(2, 4, 3, 3), (6, 6), *pools),
        "softmax": (x(), x(1) > 0),
        "softmax_backward": (x(1), x().softmax(-1), x(2) > 0),
        "transpose": (x(), 0, -1),
        "activation": (x(), CODES["gelu"]),
        "activation_backward": (x(1), x(), CODES["gelu"]),
        "gated_activation": (x(), x(1), CODES["silu"]),
        "gated_activation_backward": (x(2), x(), x(1), CODES["silu"]),
    }
    z, weight, residual = draw(4, 6, 4, seed=1), draw(4, 8), draw(4, 6, 4, seed=2)
    for norm, norm_weights in (("layer_norm", (w(), w(1))), ("rms_norm", (w(),))):
        of_norm = (x(), *norm_weights, weight)
        given[f"{norm}_linear"] = (*of_norm, draw(4), residual, 1e-3)
        given[f"activated_{norm}_linear"] = (*of_norm, draw(4), None, 1e-3, False, CODES["gelu"])
        needs = (True,) * (2 + len(norm_weights))
        options = (1e-3, False, CODES["gelu"], *needs, torch.float32)
        given[f"{norm}_linear_backward"] = (z, *of_norm, draw(4, 6, 4, seed=3), *options)
    q, k, v = draw(2, 4, 6, 8), draw(2, 4, 5, 8, seed=1), draw(2, 4, 5, 8, seed=2)
    y, _lse, largest, total = names["attention"].operator(q, k, v)
    saved = (None, None, y, largest, total)
    given["attention"] = (q, k, v)
    given["attention_backward"] = (draw(2, 4, 6, 8, seed=3), None, q, k, v, *saved)
    rows = [draw(7, 4, 8, seed=seed) for seed in (4, 5, 6, 7)]
    ends = (torch.tensor([0, 3, 7]),) * 2
    y, _lse, *saved = names["varlen_attention"].operator(*rows[:3], *ends)
    given["varlen_attention"] = (*rows[:3], *ends)
    given["varlen_attention_backward"] = (rows[3], None, *rows[:3], *ends, y, *saved)
    losses = (x(), torch.arange(x()[..., 0].numel()).view(x().shape[:-1]) % x().shape[-1])
    _loss, *saved, _total, _count = names["cross_entropy"].operator(*losses)
    given["cross_entropy"] = (*losses, None, -100, 0.1, 0.1)
    given["cross_entropy_backward"] = (draw(*x().shape[:-1]), *losses, None, *saved, -100, 0.1, 0.1)
    weight, bias, smooth = draw(4, x().shape[-1]), draw(4), (-100, 0.1, 0.1)
    losses = (x(), weight, bias, losses[1] % 4, None)
    _loss, *saved, _total, _count = names["linear_cross_entropy"].operator(*losses)
    given["linear_cross_entropy"] = (*losses, *smooth)
    wanted = (True, True, torch.float32)
    into = (draw(*x().shape[:-1]), *losses, *saved, *smooth, *wanted)
    given["linear_cross_entropy_backward"] = into
    given["embedding"] = (draw(8, 4), (places % 8).repeat(4, 2), 3)
    given["embedding_backward"] = (draw(72, 4), (places % 8).repeat(4, 2).view(-1), 8, 3)
    images, channels = (
        few(draw(4, 6, 8), draw(4, 6, 8, seed=1)),
        [draw(6, seed=s) for s in range(4)],
    )
    statistics = (channels[2], channels[3].abs() + 0.5)
    given["group_norm"] = (images[0], *channels[:2], 3, 1e-3)
    moments = names["group_norm"].operator(images[1], None, None, 3)[1]
    given["group_norm_backward"] = (*images, channels[0], moments, 3, 1e-3)
    given["batch_norm"] = (images[0], *channels[:2], *statistics, True, 0.1, 1e-3)
    given["total"] = (x(), [-1])
    given["reduce"] = (x(), [-1], 3, 1.0)
    given["reduce_backward"] = (draw(4, 6), x(), [-1], 3, 1.0)
    moments = names["batch_norm"].operator(images[1], training=True)[3]
    given["batch_norm_backward"] = (*images, channels[0], None, None, moments, True, 1e-3)
    assert names.keys() == given.keys()
    for name, arguments in given.items():
        yield pytest.param(names[name], arguments, id=name)
    evaluated = (images[0], *channels[:2], *statistics)
    yield pytest.param(names["batch_norm"], evaluated, id="batch_norm without training")
    evaluated = (*images, channels[0], *statistics)
    yield pytest.param(names["batch_norm_backward"], evaluated, id="batch_norm_backward, too")
    of_linear = (draw(10, 8), draw(8, 6), draw(6), 2)
    yield pytest.param(names["matmul"], of_linear, id="matmul with bias and activation")
    of_bias = (*few(draw(10, 8), draw(8, 6), draw(6)), 0)
    yield pytest.param(names["matmul"], of_bias, id="matmul with bias")
    grad, a, b, pre = few(draw(10, 6), draw(10, 8), draw(8, 6), draw(10, 6, seed=1))
    of_relu = (grad, a, b, pre, 1, True, True, torch.float32)
    yield pytest.param(names["matmul_backward"], of_relu, id="matmul_backward with relu and bias")
    yield pytest.param(TRANSPOSE, (x(), 0, -1), id="made_up_transpose")
    # of few digits: PyTorch's own product sums in another order when there are fewer rows
    yield pytest.param(PRODUCT, few(x(), draw(8, 4)), id="made_up_product")


def spec(tensor, placement):
    """What DTensor tells of a tensor, on two ranks."""
    mesh = SimpleNamespace(size=lambda *_: 2, ndim=1)
    return SimpleNamespace(
        ndim=tensor.dim(), shape=tensor.shape, placements=(placement,), mesh=mesh
    )


def offered(record, arguments, lying):
    """What the record offers where the named tensors lie so, and all others are whole."""
    from torch.distributed.tensor import Replicate

    call = record.call(arguments)
    specs = {
        name: spec(tensor, lying.get(name, Replicate()))
        for name, tensor in record.given(call).items()
    }
    rule = sharding.placements_of(record)
    return rule(*(specs.get(name, getattr(call, name)) for name in record.names))


def parts(value, placement):
    if placement is None or not isinstance(value, torch.Tensor) or placement.is_replicate():
        return value, value
    if placement.is_partial():
        return value / 4, value - value / 4
    return value.chunk(2, placement.dim)


def whole(found, placement):
    if placement.is_partial():
        return found[0] + found[1]
    if placement.is_replicate():
        assert torch.equal(*found)
        return found[0]
    return torch.cat(found, placement.dim)


def cuts(record, arguments):
    """Every (name, dimension) of a tensor of the call."""
    for name, tensor in record.given(record.call(arguments)).items():
        yield from itertools.product([name], range(tensor.dim()))


@pytest.mark.parametrize(("record", "arguments"), list(samples()))
def test_every_placement_that_is_offered_computes_the_whole(record, arguments):
    """As two ranks would, each with its parts."""
    from torch.distributed.tensor import Shard

    operator = record.overload("_")
    expected, tried = many(operator(*arguments)), []
    for name, dim in cuts(record, arguments):
        for results, inputs in offered(record, arguments, {name: Shard(dim)}):
            if (results, inputs) in tried:
                continue
            tried.append((results, inputs))
            complete = record.arguments(record.call(arguments))
            both = zip(*itertools.starmap(parts, zip(complete, inputs, strict=True)), strict=True)
            found = zip(*(many(operator(*each)) for each in both), strict=True)
            for each, placement, y in zip(found, results, expected, strict=True):
                if placement.is_partial():
                    assert torch.allclose(whole(each, placement), y, atol=1e-5), (inputs, results)
                else:
                    assert bits(whole(each, placement)) == bits(y), (inputs, results)
    # What is dropped depends on the rows of the whole.
    assert len(tried) > 1 or record.name == "dropout"


@pytest.mark.parametrize(("record", "arguments"), list(samples()))
def test_rows_stay_where_any_of_the_tensors_has_them(record, arguments):
    """Whichever tensor is split along rows, the others may be split so too, and no result is
    gathered; a gradient that comes in split finds the whole input."""
    from torch.distributed.tensor import Replicate, Shard

    call = record.call(arguments)
    given = record.given(call)
    # Others may stand beside what has heads, and a sequence is not cut.
    of_rows = next(iter(given.values())).dim() == 3 and "cu_q" not in given
    of_rows = of_rows and not record.name.startswith(("batch_norm", "dropout", "group_norm"))
    alike = {n for n, t in given.items() if of_rows and (t.dim() == 3 or n in record.rows)}
    for name in alike:
        for dim in (0, 1):
            assert any(
                all(
                    place == (Shard(dim) if each in alike else Replicate())
                    for each, place in zip(record.names, inputs, strict=True)
                    if each in record.given(call)
                )
                for _, inputs in offered(record, arguments, {name: Shard(dim)})
            ), (name, dim)


def test_weights_gradients_are_parts_of_a_sum_and_unwanted_ones_are_whole():
    from torch.distributed.tensor import Partial, Replicate, Shard

    record = next(each for each in catalog.RECORDS if each.name == "layer_norm_backward")
    x, weight = draw(4, 8), draw(8)
    for wanted in itertools.product((True, False), repeat=3):
        arguments = (x, x, weight, 1e-3, 1, False, *wanted)
        _, (results, inputs) = offered(record, arguments, {"grad_y": Shard(0)})
        assert inputs[:3] == [Shard(0), Shard(0), Replicate()]
        places = (Shard(0), Partial(), Partial())
        assert results == [
            place if each else Replicate() for each, place in zip(wanted, places, strict=True)
        ]


@pytest.fixture
def mesh():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield dist.init_device_mesh("cpu", (1,))
    dist.destroy_process_group()


def test_dtensor_moves_a_transposed_dimension_along(mesh):
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor
    from torch.distributed.tensor.experimental import register_sharding

    register_sharding(TRANSPOSE.overload())(sharding.placements_of(TRANSPOSE))
    x = draw(4, 6, 8)
    for dim, place in ((0, 2), (1, 1), (2, 0)):
        given = distribute_tensor(x, mesh, [Shard(dim)]).requires_grad_()
        y = TRANSPOSE.overload()(given, 0, 2)
        assert y.placements == (Shard(place),) and torch.equal(y.full_tensor(), x.transpose(0, 2))
        (gradient,) = torch.autograd.grad(y, given, y.detach())
        assert gradient.placements == (Shard(dim),) and torch.equal(gradient.full_tensor(), x)
    y = TRANSPOSE.overload()(distribute_tensor(x, mesh, [Replicate()]), 0, 2)
    assert y.placements == (Replicate(),)
