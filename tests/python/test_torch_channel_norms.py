# SPDX-License-Identifier: Apache-2.0
"""Norms of channels in PyTorch and NumPy: PyTorch's own samples, derivatives of every order,
running statistics, modules, and LayerNorm's bits wherever channels stand in memory."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.autograd import gradcheck, gradgradcheck

import isobit.numpy
import isobit.torch

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:.*running_mean.*:UserWarning"),
]

REALS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
NAMES = ("batch_norm", "group_norm", "instance_norm")


def drawn(*shape, dtype=torch.float64, seed=1):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype)


def channels_last(x):
    formats = {4: torch.channels_last, 5: torch.channels_last_3d}
    return x.to(memory_format=formats[x.dim()])


def copied(sample, dtype=None):
    """Running statistics are changed in place."""

    def copy(v):
        if not isinstance(v, torch.Tensor):
            return v
        return v.detach().to(dtype or v.dtype, copy=True).requires_grad_(v.requires_grad)

    return sample.transform(copy)


def leaves(sample):
    given = (sample.input, *sample.args, *sample.kwargs.values())
    return [t for t in given if torch.is_tensor(t) and t.requires_grad]


@pytest.mark.parametrize("dtype", REALS)
@pytest.mark.parametrize("name", NAMES)
def test_values_and_gradients_of_pytorchs_samples(internal, name, dtype):
    info = internal.operators[f"nn.functional.{name}"]
    seen = 0
    for sample in info.sample_inputs("cpu", dtype, requires_grad=True):
        statistics = (
            [a for a in sample.args[:2] if torch.is_tensor(a)] if name != "group_norm" else []
        )
        for each in statistics:
            each.requires_grad_(False)
        ours, theirs = copied(sample), copied(sample, torch.float64)
        y = getattr(isobit.torch, name)(ours.input, *ours.args, **ours.kwargs)
        reference = info.op(theirs.input, *theirs.args, **theirs.kwargs)
        near = {"atol": 2e-2, "rtol": 2e-2} if dtype.itemsize == 2 else {"atol": 1e-4, "rtol": 1e-4}
        assert y.dtype == dtype
        near |= {"equal_nan": True, "check_dtype": False}
        torch.testing.assert_close(y, reference, **near)
        for mine, other in zip(ours.args[:2], theirs.args[:2], strict=True) if statistics else ():
            torch.testing.assert_close(mine, other, **near)
        to = torch.full_like(y, 0.5)
        found = torch.autograd.grad(y, leaves(ours), to)
        expected = torch.autograd.grad(reference, leaves(theirs), to.double())
        torch.testing.assert_close(found, expected, **near)
        seen += 1
    assert seen > 3


def test_what_is_normalised_together_has_the_bits_of_layer_norm():
    x = drawn(3, 8, 5, 7, dtype=torch.float32) + 1e4
    for given in (x, channels_last(x)):
        y = isobit.torch.group_norm(given, 4)
        assert y.stride() == given.stride()
        expected = isobit.torch.layer_norm(x.view(3, 4, -1), (70,))
        assert torch.equal(y.reshape(3, 4, -1), expected)
        assert torch.equal(isobit.torch.instance_norm(given), isobit.torch.group_norm(x, 8))
        y = isobit.torch.batch_norm(given, None, None, training=True)
        assert y.stride() == given.stride()
        expected = isobit.torch.layer_norm(x.transpose(0, 1).flatten(1), (105,))
        assert torch.equal(y.transpose(0, 1).flatten(1), expected)
    volumes = drawn(2, 4, 3, 4, 5, dtype=torch.float32)
    last = channels_last(volumes)
    assert torch.equal(isobit.torch.group_norm(last, 2), isobit.torch.group_norm(volumes, 2))


def test_gradients_do_not_depend_on_where_channels_stand():
    weight, bias = drawn(70, dtype=torch.float32), drawn(70, dtype=torch.float32, seed=2)
    x, grad = drawn(2, 70, 6, 7, dtype=torch.float32), drawn(2, 70, 6, 7, seed=3).float()
    for call in (
        lambda *given: isobit.torch.batch_norm(given[0], None, None, *given[1:], True),
        lambda *given: isobit.torch.group_norm(given[0], 5, *given[1:]),
    ):
        found = []
        for order in (lambda t: t, channels_last):
            leaf = [t.detach().clone().requires_grad_() for t in (x, weight, bias)]
            y = call(order(leaf[0]), *leaf[1:])
            found.append(torch.autograd.grad(y, leaf, order(grad)))
        assert all(torch.equal(*pair) for pair in zip(*found, strict=True))


def calls():
    mean, var = drawn(4, seed=5), drawn(4, seed=6).square() + 0.5
    return {
        "group": lambda x, w, b: isobit.torch.group_norm(x, 2, w, b),
        "without weights": lambda x, w, b: isobit.torch.group_norm(x, 2) + (w + b).sum(),
        "batch": lambda x, w, b: isobit.torch.batch_norm(x, None, None, w, b, True),
        "batch that moves": lambda x, w, b: isobit.torch.batch_norm(
            x, mean.clone(), var.clone(), w, b, True
        ),
        "evaluated": lambda x, w, b: isobit.torch.batch_norm(x, mean, var, w, b),
        "instance": lambda x, w, b: isobit.torch.instance_norm(x, None, None, w, b),
    }


@pytest.mark.parametrize("name", calls())
def test_derivatives_of_every_order(name):
    given = (drawn(2, 4, 3), drawn(4, seed=2), drawn(4, seed=3))
    given = [each.requires_grad_() for each in given]
    assert gradcheck(calls()[name], given, check_forward_ad=True, check_batched_grad=True)
    assert gradgradcheck(calls()[name], given, check_fwd_over_rev=True)


def test_only_what_is_asked_for_is_differentiated():
    x, weight, bias = drawn(2, 4, 3), drawn(4), drawn(4)
    for mask in range(1, 8):
        given = [
            t.clone().requires_grad_(bool(mask >> i & 1)) for i, t in enumerate((x, weight, bias))
        ]
        isobit.torch.batch_norm(given[0], None, None, *given[1:], True).sum().backward()
        assert [t.grad is not None for t in given] == [bool(mask >> i & 1) for i in range(3)]


def test_batches_of_calls_are_calls():
    x, weight, bias = drawn(5, 2, 4, 3), drawn(4), drawn(4)
    found = torch.vmap(lambda x: isobit.torch.group_norm(x, 2, weight, bias))(x)
    each = [isobit.torch.group_norm(one, 2, weight, bias) for one in x]
    assert torch.equal(found, torch.stack(each))


def pairs():
    yield "1d", nn.BatchNorm1d, isobit.torch.BatchNorm1d, (4,), {}, (6, 4)
    yield "1d of signals", nn.BatchNorm1d, isobit.torch.BatchNorm1d, (4,), {}, (6, 4, 5)
    yield "2d", nn.BatchNorm2d, isobit.torch.BatchNorm2d, (4,), {"momentum": None}, (3, 4, 5, 6)
    yield "3d", nn.BatchNorm3d, isobit.torch.BatchNorm3d, (4,), {"affine": False}, (3, 4, 2, 3, 4)
    more = {"track_running_stats": False}
    yield "untracked", nn.BatchNorm2d, isobit.torch.BatchNorm2d, (4,), more, (3, 4, 5, 6)
    yield "group", nn.GroupNorm, isobit.torch.GroupNorm, (2, 4), {}, (3, 4, 5, 6)
    yield "instance", nn.InstanceNorm2d, isobit.torch.InstanceNorm2d, (4,), {}, (3, 4, 5, 6)
    yield "unbatched", nn.InstanceNorm1d, isobit.torch.InstanceNorm1d, (4,), {}, (4, 5)
    more = {"affine": True, "track_running_stats": True}
    yield "tracked", nn.InstanceNorm3d, isobit.torch.InstanceNorm3d, (4,), more, (3, 4, 2, 5, 6)


@pytest.mark.parametrize(
    ("theirs", "ours", "args", "options", "shape"),
    [pytest.param(*rest, id=name) for name, *rest in pairs()],
)
def test_modules_are_those_of_pytorch(theirs, ours, args, options, shape):
    other, mine = theirs(*args, **options), ours(*args, **options)
    state = {
        n: torch.rand_like(t) if t.is_floating_point() else t for n, t in other.state_dict().items()
    }
    other.load_state_dict(state)
    mine.load_state_dict(state)
    for step in range(3):
        x = drawn(*shape, dtype=torch.float32, seed=step)
        torch.testing.assert_close(mine(x), other(x), atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(mine.state_dict(), other.state_dict(), atol=1e-5, rtol=1e-5)
    x = drawn(*shape, dtype=torch.float32, seed=7)
    torch.testing.assert_close(mine.eval()(x), other.eval()(x), atol=1e-5, rtol=1e-5)
    assert repr(mine) == repr(other)


def test_evaluation_does_not_look_at_the_batch():
    norm = isobit.torch.BatchNorm1d(3).eval()
    norm.running_mean.copy_(torch.tensor([1.0, 2.0, 3.0]))
    x = torch.tensor([[1.0, 2.0, 3.0], [9.0, 9.0, 9.0]])
    y = norm(x)
    assert torch.equal(y[0], torch.zeros(3)) and torch.equal(norm(x[:1]), y[:1])
    assert torch.equal(norm.running_mean, torch.tensor([1.0, 2.0, 3.0]))


def test_statistics_that_moved_on_are_not_missed_by_backward():
    norm, x, more = (
        isobit.torch.BatchNorm2d(4),
        drawn(3, 4, 5, 6).float(),
        drawn(3, 4, 5, 6, seed=2),
    )
    alone = x.clone().requires_grad_()
    isobit.torch.BatchNorm2d(4)(alone).square().sum().backward()
    x.requires_grad_()
    y = norm(x)
    norm(more.float())
    y.square().sum().backward()
    assert torch.equal(x.grad, alone.grad)


@pytest.mark.parametrize(
    "shape", [(3, 8), (3, 8, 5), (3, 8, 5, 6), (3, 8, 1, 6), (2, 8, 3, 4, 5), (1, 8, 1, 1)]
)
def test_any_shape_and_order_has_the_bits_of_signals(shape):
    x = drawn(*shape).float()
    signals = x.reshape(*shape[:2], -1)
    given = {"dense": x, "slice": torch.cat((x, x), -1)[..., : shape[-1]]}
    if len(shape) > 3:
        given |= {"last": channels_last(x), "turned": x.mT.contiguous().mT}
    for name, each in given.items():
        for call in (
            lambda x: isobit.torch.group_norm(x, 2),
            lambda x: isobit.torch.batch_norm(x, torch.zeros(8), torch.ones(8)),
        ):
            one, other = each.detach().requires_grad_(), signals.clone().requires_grad_()
            y, expected = call(one), call(other)
            assert torch.equal(y, expected.reshape(shape)), name
            made = torch.ops.isobit.group_norm.default(one.to("meta"), None, None, 2, 1e-5)[0]
            assert made.stride() == isobit.torch.group_norm(one, 2).stride(), name
            y.square().sum().backward()
            expected.square().sum().backward()
            assert torch.equal(one.grad, other.grad.reshape(shape)), name


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_16_bits_stand_beside_weights_of_32(dtype):
    x = drawn(3, 4, 5, dtype=dtype)
    for weights in (torch.float32, dtype):
        weight, bias = drawn(4, dtype=weights), drawn(4, dtype=weights, seed=2)
        running = [drawn(4, dtype=weights, seed=3), drawn(4, seed=4).abs().to(weights)]
        wide = [each.double() for each in (x, *running, weight, bias)]
        y = isobit.torch.batch_norm(x, *running, weight, bias, True)
        expected = F.batch_norm(*wide, True)
        assert y.dtype == dtype
        torch.testing.assert_close(y.double(), expected, atol=2e-2, rtol=1e-2)
        torch.testing.assert_close(running[1].double(), wide[2], atol=2e-2, rtol=1e-2)


def test_compiled_code_moves_running_statistics():
    torch._dynamo.reset()
    both = [isobit.torch.BatchNorm2d(4), isobit.torch.BatchNorm2d(4)]
    compiled = torch.compile(both[0], backend="aot_eager", fullgraph=True)
    for step in range(2):
        given = [drawn(3, 4, 5, 6, seed=step).float().requires_grad_() for _ in both]
        found = [norm(x) for norm, x in zip((compiled, both[1]), given, strict=True)]
        for y in found:
            y.square().sum().backward()
        assert torch.equal(*found) and torch.equal(*(x.grad for x in given))
    assert all(
        torch.equal(*each) for each in zip(*(m.state_dict().values() for m in both), strict=True)
    )


def test_empty_batches_change_nothing():
    norm = isobit.torch.BatchNorm2d(4)
    before = norm.running_mean.clone(), norm.running_var.clone()
    x = torch.empty(0, 4, 5, 6, requires_grad=True)
    y = norm(x)
    y.sum().backward()
    assert y.shape == x.shape == x.grad.shape
    assert torch.equal(norm.running_mean, before[0]) and torch.equal(norm.running_var, before[1])
    assert torch.equal(norm.weight.grad, torch.zeros(4))
    assert isobit.torch.group_norm(torch.empty(0, 4, 5), 2).shape == (0, 4, 5)
    assert isobit.torch.instance_norm(torch.empty(0, 4, 5)).shape == (0, 4, 5)


@pytest.mark.parametrize("shape", [(0, 4), (0, 4, 5), (3, 0, 5), (3, 4, 0)])
@pytest.mark.parametrize("name", NAMES)
def test_further_derivatives_of_nothing_are_nothing(name, shape):
    if name == "instance_norm" and len(shape) == 2:
        return
    more = {"batch_norm": (None, None, None, None, True), "group_norm": (2,), "instance_norm": ()}

    def loss(x):
        return getattr(isobit.torch, name)(x, *more[name]).square().sum()

    x = torch.empty(shape, dtype=torch.float64)
    slope = torch.func.grad(loss)
    assert torch.func.jvp(loss, (x,), (x,))[1] == 0
    assert torch.func.jvp(slope, (x,), (x,))[1].shape == shape
    assert torch.func.grad(lambda x: slope(x).sum())(x).shape == shape


def test_a_derivative_by_running_statistics_is_refused_and_not_left_out():
    """As PyTorch refuses it."""
    mean, var = torch.zeros(3, requires_grad=True), torch.ones(3)
    with pytest.raises(NotImplementedError, match="no derivative by running statistics"):
        isobit.torch.batch_norm(drawn(2, 3, 4).float(), mean, var).sum().backward()


def test_one_value_of_each_channel_is_refused_in_training():
    one = torch.ones(1, 4, 1)
    with pytest.raises(ValueError, match="one value of each channel; there must be more"):
        isobit.torch.batch_norm(one, None, None, training=True)
    with pytest.raises(ValueError, match="one value of each channel of an image"):
        isobit.torch.instance_norm(torch.ones(2, 4, 1))
    with pytest.raises(ValueError, match="one value of each group"):
        isobit.torch.group_norm(one, 4)
    with pytest.raises(ValueError, match="one value of each channel"):
        isobit.numpy.batch_norm(one.numpy(), None, None, training=True)
    with pytest.raises(ValueError, match="running_mean is None; must be given without training"):
        isobit.torch.batch_norm(one, None, None)
    with pytest.raises(ValueError, match="4 channels, which 3 groups cannot share"):
        isobit.torch.group_norm(torch.ones(2, 4, 3), 3)


def test_a_nan_stays_in_its_channel_and_its_group():
    x = drawn(2, 4, 6, dtype=torch.float32)
    spoiled = x.clone()
    spoiled[1, 2, 3] = torch.nan
    found = isobit.torch.batch_norm(spoiled, None, None, training=True)
    clean = isobit.torch.batch_norm(x, None, None, training=True)
    others = [0, 1, 3]
    assert found[:, 2].isnan().all() and torch.equal(found[:, others], clean[:, others])
    found, clean = isobit.torch.group_norm(spoiled, 2), isobit.torch.group_norm(x, 2)
    assert found[1, 2:].isnan().all() and torch.equal(found[0], clean[0])
    assert torch.equal(found[1, :2], clean[1, :2])


def test_numpy_has_the_same_bits():
    x = drawn(3, 4, 5, 6, dtype=torch.float32)
    weight, bias = drawn(4, dtype=torch.float32, seed=2), drawn(4, dtype=torch.float32, seed=3)
    last = np.ascontiguousarray(x.permute(0, 2, 3, 1).numpy()).transpose(0, 3, 1, 2)
    for given in (x.numpy(), last):
        y = isobit.numpy.group_norm(given, 2, weight.numpy(), bias.numpy())
        assert np.array_equal(y, isobit.torch.group_norm(x, 2, weight, bias).numpy())
        running = [np.zeros(4, np.float32), np.ones(4, np.float32)]
        theirs = [torch.zeros(4), torch.ones(4)]
        y = isobit.numpy.batch_norm(given, *running, weight.numpy(), bias.numpy(), True)
        expected = isobit.torch.batch_norm(x, *theirs, weight, bias, True)
        assert np.array_equal(y, expected.numpy())
        assert all(np.array_equal(a, b.numpy()) for a, b in zip(running, theirs, strict=True))
    frozen = np.zeros(4, np.float32)
    frozen.flags.writeable = False
    with pytest.raises(
        ValueError, match="running_mean is changed in training; it must be writable"
    ):
        isobit.numpy.batch_norm(x.numpy(), frozen, frozen, training=True)


def network():
    return nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.GroupNorm(2, 4), nn.InstanceNorm2d(4)
    )


def test_patch_exchanges_norms_of_channels_where_it_is_asked_to():
    model = network()
    x = drawn(2, 3, 6, 6, dtype=torch.float32)
    before = model(x)
    report = isobit.torch.patch(model)
    assert not report.replaced and report.channel_norms is None
    assert report.skipped.keys() == {"1", "2", "3"}
    report = isobit.torch.patch(model, channel_norms=True)
    assert report.channel_norms == ["1", "2", "3"] and not report.skipped
    assert "0 norms and 3 norms of channels" in repr(report)
    assert type(model[1]) is isobit.torch.BatchNorm2d
    torch.testing.assert_close(model(x), before, atol=1e-5, rtol=1e-5)
    again = isobit.torch.patch(model, channel_norms=True)
    assert set(again.skipped.values()) == {"is Isobit's already"}
    report.restore()
    assert [type(each) for each in model] == [type(each) for each in network()]


def test_patch_leaves_alone_what_computes_otherwise():
    class Other(nn.BatchNorm2d):
        def forward(self, input):
            return super().forward(input) + 1

    class Alike(nn.GroupNorm):
        pass

    model = nn.Sequential(Other(4), nn.SyncBatchNorm(4), nn.LazyBatchNorm2d(), Alike(2, 4))
    report = isobit.torch.patch(model, channel_norms=True)
    assert report.channel_norms == ["3"] and isinstance(model[3], Alike)
    assert report.skipped["0"] == "Other has a forward of its own"
    assert "over processes" in report.skipped["1"] and "2" in report.skipped
    x = drawn(2, 4, 5, dtype=torch.float32)
    expected = isobit.torch.group_norm(x, 2, model[3].weight, model[3].bias)
    assert torch.equal(model[3](x), expected)


@pytest.mark.parametrize("training", [True, False])
def test_operators_are_what_opcheck_asks_for(training):
    x = drawn(2, 4, 3, dtype=torch.float32)
    last = x.transpose(1, 2).contiguous().transpose(1, 2)
    for given in (x, last):
        given = given.requires_grad_()
        weights = (drawn(4).float().requires_grad_(), drawn(4, seed=2).float().requires_grad_())
        running = (drawn(4, seed=3).float(), drawn(4, seed=4).float().square())
        torch.library.opcheck(
            torch.ops.isobit.batch_norm.default, (given, *weights, *running, training)
        )
        torch.library.opcheck(torch.ops.isobit.group_norm.default, (given, *weights, 2))
