# SPDX-License-Identifier: Apache-2.0
"""Our optimisers beside PyTorch's: losses, states, checkpoints, masters, and bits."""

import copy
import importlib
import io
import itertools

import numpy as np
import pytest
import torch

import isobit.numpy
import isobit.torch

OURS = isobit.torch.optim
CASES = [
    ("SGD", {"lr": 0.05}),
    ("SGD", {"lr": 0.05, "momentum": 0.9, "weight_decay": 0.01}),
    ("SGD", {"lr": 0.05, "momentum": 0.9, "dampening": 0.3, "maximize": True}),
    ("SGD", {"lr": 0.05, "momentum": 0.9, "nesterov": True}),
    ("Adam", {"lr": 0.01}),
    ("Adam", {"lr": 0.01, "weight_decay": 0.1, "amsgrad": True}),
    ("Adam", {"lr": 0.01, "betas": (0.0, 0.5), "eps": 1e-3, "maximize": True}),
    ("AdamW", {"lr": 0.01}),
    ("AdamW", {"lr": 0.01, "weight_decay": 0.3, "amsgrad": True}),
]
IDS = ["-".join((name, *options)) for name, options in CASES]


def model(seed=0, dtype=torch.float32):
    torch.manual_seed(seed)
    return torch.nn.Sequential(
        torch.nn.Linear(7, 33), torch.nn.Tanh(), torch.nn.Linear(33, 5), torch.nn.LayerNorm(5)
    ).to(dtype)


def batches(count, dtype=torch.float32):
    torch.manual_seed(1)
    return [
        (torch.randn(16, 7, dtype=dtype), torch.randn(16, 5, dtype=dtype)) for _ in range(count)
    ]


def train(net, optimizer, data):
    losses = []
    for x, y in data:
        optimizer.zero_grad()
        loss = (net(x) - y).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def weights(net):
    return [p.detach().clone() for p in net.parameters()]


def equal(ours, theirs):
    return all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True))


@pytest.mark.parametrize(("name", "options"), CASES, ids=IDS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_losses_and_states_are_those_of_pytorch(name, options, dtype):
    ours, theirs = model(dtype=dtype), model(dtype=dtype)
    mine = getattr(OURS, name)(ours.parameters(), **options)
    its = getattr(torch.optim, name)(theirs.parameters(), **options)
    assert isinstance(mine, type(its))
    data = batches(30, dtype)
    found, expected = train(ours, mine, data), train(theirs, its, data)
    np.testing.assert_allclose(found, expected, rtol=1e-5 if dtype == torch.float32 else 1e-12)
    for p, q in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(p, q)
        assert mine.state.get(p, {}).keys() == its.state.get(q, {}).keys()
        for key, value in mine.state.get(p, {}).items():
            torch.testing.assert_close(value, its.state[q][key])
            assert value.dtype == its.state[q][key].dtype


@pytest.mark.parametrize(("name", "options"), CASES, ids=IDS)
def test_state_dicts_go_both_ways(name, options):
    data = batches(12)
    for first, then in itertools.permutations((OURS, torch.optim)):
        net = model()
        optimizer = getattr(first, name)(net.parameters(), **options)
        train(net, optimizer, data[:6])
        other = copy.deepcopy(net)
        loaded = getattr(then, name)(other.parameters(), **options)
        loaded.load_state_dict(copy.deepcopy(optimizer.state_dict()))
        np.testing.assert_allclose(
            train(other, loaded, data[6:]), train(net, optimizer, data[6:]), rtol=1e-5
        )


LION = ("Lion", {"lr": 0.003, "weight_decay": 0.1})


@pytest.mark.repeats
@pytest.mark.parametrize(("name", "options"), [*CASES, LION], ids=[*IDS, "Lion"])
@pytest.mark.parametrize(
    ("dtype", "masters"),
    [
        (torch.float32, False),
        (torch.bfloat16, False),
        (torch.bfloat16, True),
        (torch.float16, True),
    ],
)
def test_a_checkpoint_goes_on_with_the_same_bits(name, options, dtype, masters):
    data = batches(8, dtype)
    net = model(dtype=dtype)
    optimizer = getattr(OURS, name)(net.parameters(), **options, master_weights=masters)
    train(net, optimizer, data[:4])
    file = io.BytesIO()
    torch.save((net.state_dict(), optimizer.state_dict()), file)
    file.seek(0)
    again = model(seed=5, dtype=dtype)
    other = getattr(OURS, name)(again.parameters(), **options, master_weights=masters)
    of_net, of_optimizer = torch.load(file)
    again.load_state_dict(of_net)
    other.load_state_dict(of_optimizer)
    assert train(again, other, data[4:]) == train(net, optimizer, data[4:])
    assert equal(weights(again), weights(net))
    for p, q in zip(again.parameters(), net.parameters(), strict=True):
        for key, value in other.state.get(p, {}).items():
            assert torch.equal(value, optimizer.state[q][key]), key


@pytest.mark.parametrize(("name", "options"), [*CASES, LION], ids=[*IDS, "Lion"])
def test_bits_do_not_depend_on_threads_neighbours_or_layout(name, options):
    make = getattr(OURS, name)
    torch.manual_seed(2)
    shapes = [(), (3,), (300, 257), (1,), (64, 3, 5, 5), (70_001,)]
    start = [torch.randn(shape) for shape in shapes]
    grads = [[torch.randn(shape) for shape in shapes] for _ in range(3)]

    def moved(threads, together, channels_last=False):
        params = [each.clone() for each in start]
        if channels_last:
            params[4] = params[4].to(memory_format=torch.channels_last)
        groups = [params] if together else [[p] for p in params]
        optimizers = [make(group, **options) for group in groups]
        before = torch.get_num_threads()
        torch.set_num_threads(threads)
        try:
            for turn in grads:
                for p, grad in zip(params, turn, strict=True):
                    p.grad = grad.clone()
                for optimizer in optimizers:
                    optimizer.step()
        finally:
            torch.set_num_threads(before)
        return params

    expected = moved(1, True)
    assert not any(torch.equal(a, b) for a, b in zip(expected, start, strict=True))
    for threads, together, channels_last in [(3, True, False), (2, False, False), (2, True, True)]:
        assert equal(moved(threads, together, channels_last), expected)


@pytest.mark.parametrize("name", ["SGD", "Adam", "AdamW", "Lion"])
def test_numpy_gives_the_same_bits(name):
    torch.manual_seed(0)
    p, grad = torch.randn(3, 50), torch.randn(3, 50)
    options = {"lr": 0.1, "weight_decay": 0.25}
    there = p.clone()
    there.grad = grad
    optimizer = getattr(OURS, name)(
        [there], **options | ({"momentum": 0.5} if name == "SGD" else {})
    )
    here, states = p.numpy(), {}
    for step in (1, 2, 3):
        optimizer.step()
        if name == "SGD":
            buffer = states.get("momentum_buffer")
            here, new = isobit.numpy.sgd(here, grad.numpy(), buffer, momentum=0.5, **options)
            states = {"momentum_buffer": new}
        elif name == "Lion":
            average = states.get("exp_avg", np.zeros_like(here))
            here, new = isobit.numpy.lion(here, grad.numpy(), average, **options)
            states = {"exp_avg": new}
        else:
            found = [states.get(key, np.zeros_like(here)) for key in ("exp_avg", "exp_avg_sq")]
            here, *new = isobit.numpy.adam(
                here, grad.numpy(), *found, step=step, decoupled=name == "AdamW", **options
            )
            states = dict(zip(("exp_avg", "exp_avg_sq"), new, strict=True))
        assert np.array_equal(there.numpy(), here)
        for key, value in states.items():
            assert np.array_equal(optimizer.state[there][key].numpy(), value)


def test_lion_is_the_published_rule():
    torch.manual_seed(0)
    p = torch.randn(100, dtype=torch.float64)
    wide, average = p.clone(), torch.zeros(100, dtype=torch.float64)
    optimizer = OURS.Lion([p], lr=0.01, betas=(0.8, 0.95), weight_decay=0.5)
    for _ in range(5):
        p.grad = torch.randn(100, dtype=torch.float64)
        optimizer.step()
        wide *= 1 - 0.01 * 0.5
        wide -= 0.01 * torch.sign(average * 0.8 + p.grad * 0.2)
        average = average * 0.95 + p.grad * 0.05
        torch.testing.assert_close(p, wide)
        torch.testing.assert_close(optimizer.state[p]["exp_avg"], average)


@pytest.mark.parametrize("name", ["SGD", "Adam", "AdamW", "Lion"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_masters_move_as_float32_parameters_do(name, dtype):
    options = {"lr": 1e-3} | ({"momentum": 0.9} if name == "SGD" else {})
    torch.manual_seed(0)
    p = torch.randn(40, 30).to(dtype)
    wide = p.float()
    optimizer = getattr(OURS, name)([p], **options, master_weights=True)
    reference = getattr(OURS, name)([wide], **options)
    for _ in range(10):
        p.grad = torch.randn(40, 30).to(dtype)
        wide.grad = p.grad.float()
        optimizer.step()
        reference.step()
        state = optimizer.state[p]
        assert torch.equal(state["master_param"], wide)
        assert torch.equal(p, wide.to(dtype))
        assert all(each.dtype == torch.float32 for each in state.values())
    # Without masters so small a step is often none.
    assert not torch.equal(p.float(), wide)


def test_masters_begin_with_a_state_of_pytorchs():
    net, data = model(dtype=torch.bfloat16), batches(6, torch.bfloat16)
    theirs = torch.optim.AdamW(net.parameters(), lr=0.01)
    train(net, theirs, data[:3])
    ours = OURS.AdamW(net.parameters(), lr=0.01, master_weights=True)
    ours.load_state_dict(theirs.state_dict())
    train(net, ours, data[3:])
    for p in net.parameters():
        assert ours.state[p]["exp_avg"].dtype == torch.float32
        assert torch.equal(ours.state[p]["master_param"].bfloat16(), p)
        assert ours.state[p]["step"] == 6


def test_groups_schedules_closures_and_tensors_of_lr():
    ours, theirs = model(), model()
    data = batches(10)
    losses = []
    for net, module in ((ours, OURS), (theirs, torch.optim)):
        first, *rest = net.parameters()
        optimizer = module.AdamW([{"params": [first], "lr": 0.1}, {"params": rest}], lr=0.01)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 10)
        for x, y in data:

            def closure(net=net, optimizer=optimizer, x=x, y=y):
                optimizer.zero_grad()
                loss = (net(x) - y).square().mean()
                loss.backward()
                return loss

            losses.append(optimizer.step(closure).item())
            schedule.step()
    np.testing.assert_allclose(losses[:10], losses[10:], rtol=1e-5)

    found = []
    for lr in (0.01, torch.tensor(0.01, dtype=torch.float64)):
        net = model()
        train(net, OURS.Adam(net.parameters(), lr=lr), data)
        found.append(weights(net))
    assert equal(*found)


def test_a_grad_scaler_divides_and_leaves_steps_out():
    p = torch.ones(3)
    optimizer = OURS.Adam([p], lr=0.5, fused=True)
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    for grad in (4.0, torch.inf):
        p.grad = torch.full((3,), grad)
        scaler.scale(torch.ones(()))
        scaler.step(optimizer)
        scaler.update()
        assert optimizer.state[p]["step"] == 1
        torch.testing.assert_close(p, torch.full((3,), 0.5))
        torch.testing.assert_close(optimizer.state[p]["exp_avg"], torch.full((3,), 0.1))


def test_versions_count_and_parameters_without_gradients_stay():
    p, q = torch.ones(3), torch.ones(3)
    optimizer = OURS.SGD([p, q], lr=0.5)
    p.grad = torch.ones(3)
    version = p._version
    optimizer.step()
    assert p._version > version
    assert torch.equal(q, torch.ones(3))
    assert not optimizer.state.get(q)


def test_views_and_expanded_gradients_are_taken():
    base = torch.zeros(4, 6)
    p = base[:, ::2]
    optimizer = OURS.SGD([p], lr=1.0, momentum=0.5)
    for _ in range(2):
        p.grad = torch.ones(()).expand(4, 3)
        optimizer.step()
    assert torch.equal(p, torch.full((4, 3), -2.5))
    assert not base[:, 1::2].any()


def test_what_is_not_there_is_refused():
    p = torch.ones(3, requires_grad=True)
    for options in ({"capturable": True}, {"differentiable": True}):
        with pytest.raises(NotImplementedError, match=r"has no .*=True; torch.optim has"):
            OURS.Adam([p], **options)
    with pytest.raises(NotImplementedError, match="no differentiable=True"):
        OURS.SGD([p], differentiable=True)
    with pytest.raises(NotImplementedError, match="no complex parameters"):
        OURS.SGD([torch.ones(3, dtype=torch.complex64)])
    optimizer = OURS.SGD([p], lr=0.1)
    p.grad = torch.sparse_coo_tensor([[0]], [1.0], (3,))
    with pytest.raises(NotImplementedError, match="no sparse gradients"):
        optimizer.step()
    with pytest.raises(ValueError, match="Invalid learning rate"):
        OURS.Lion([p], lr=-1.0)
    with pytest.raises(ValueError, match="Nesterov momentum requires"):
        OURS.SGD([p], nesterov=True)


def test_bad_lists_move_nothing():
    p, q, grad = torch.ones(3), torch.ones(2, dtype=torch.float64), torch.ones(3)
    sgd = torch.ops.isobit.sgd_
    for arguments, message in (
        (([p, q], [grad, grad], [], []), "grads has dtype torch.float32"),
        (([p, p], [grad], [], []), "grads has 1 tensors; params has 2"),
        (([p], [grad[:2]], [], []), r"grads has shape \(2,\); its parameter has shape \(3,\)"),
        (([p], [grad], [], [grad.double()]), "masters has dtype torch.float64"),
    ):
        with pytest.raises(ValueError, match=message):
            sgd(*arguments, lr=0.5)
    with pytest.raises(ValueError, match="sgd: lr is -1"):
        sgd([p], [grad], [], [], lr=-1.0)
    half = torch.tensor(0.5)
    with pytest.raises(ValueError, match=r"steps has 0\.5; must be a whole number"):
        torch.ops.isobit.adam_([p], [grad], [p], [p], [], [], [half], 0.1, 0.9, 0.9, 0.1, 0.0)
    assert torch.equal(p, torch.ones(3))
    assert torch.equal(q, torch.ones(2, dtype=torch.float64))


def test_clipping_is_pytorchs():
    for norm_type, dtype in itertools.product((1, 2.0, float("inf"), "inf"), (None, torch.float64)):
        ours, theirs = (model(dtype=dtype or torch.float32) for _ in range(2))
        for net in (ours, theirs):
            torch.manual_seed(3)
            for p in net.parameters():
                p.grad = torch.randn_like(p)
        found = isobit.torch.clip_grad_norm_(ours.parameters(), 0.25, norm_type)
        expected = torch.nn.utils.clip_grad_norm_(theirs.parameters(), 0.25, norm_type)
        torch.testing.assert_close(found, expected)
        for p, q in zip(ours.parameters(), theirs.parameters(), strict=True):
            torch.testing.assert_close(p.grad, q.grad)


def test_total_norms_have_their_bits_and_their_range():
    torch.manual_seed(0)
    grads = [torch.randn(shape) for shape in ((300, 257), (5,), (), (2, 3, 4, 5), (70_001,))]
    total = isobit.torch.get_total_norm(grads)
    grads[3] = grads[3].to(memory_format=torch.channels_last)
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(3)
        assert torch.equal(isobit.torch.get_total_norm(grads), total)
    finally:
        torch.set_num_threads(before)
    each = np.array([isobit.numpy.vector_norm(g.contiguous().reshape(-1).numpy()) for g in grads])
    assert np.array_equal(isobit.numpy.vector_norm(each), total.numpy())
    for scale in (1e-30, 1e30):
        found = isobit.torch.get_total_norm([g * scale for g in grads])
        torch.testing.assert_close(found / scale, total)
    assert isobit.torch.get_total_norm([torch.ones(4, dtype=torch.bfloat16)]).dtype == torch.float32
    mixed = isobit.torch.get_total_norm([torch.ones(9), torch.ones(16, dtype=torch.float64)])
    assert mixed == 5
    assert mixed.dtype == torch.float64
    assert isobit.torch.get_total_norm([]) == 0
    assert isobit.torch.get_total_norm([torch.tensor([1.0, torch.inf])]) == torch.inf
    with pytest.raises(RuntimeError, match="non-finite"):
        isobit.torch.get_total_norm([torch.tensor([torch.nan])], error_if_nonfinite=True)
    for norm_type in (0, 3):
        with pytest.raises(NotImplementedError, match=r"torch\.nn\.utils"):
            isobit.torch.get_total_norm(grads, norm_type)


@pytest.mark.parametrize("name", ["SGD", "Adam", "AdamW"])
def test_pytorchs_own_inputs_of_its_optimisers(internal, name):
    assert internal
    optimizers = importlib.import_module("torch.testing._internal.common_optimizers")
    (info,) = [each for each in optimizers.optim_db if each.optim_cls is getattr(torch.optim, name)]
    seen = 0
    for each in info.optim_inputs_func(device="cpu", dtype=torch.float32):
        if each.kwargs.get("capturable") or each.kwargs.get("differentiable"):
            continue
        seen += 1
        ours, theirs = model(), model()
        data = batches(5)
        found = train(ours, getattr(OURS, name)(ours.parameters(), **each.kwargs), data)
        expected = train(
            theirs, getattr(torch.optim, name)(theirs.parameters(), **each.kwargs), data
        )
        np.testing.assert_allclose(found, expected, rtol=1e-5, err_msg=each.desc)
    assert seen > 3
    for each in info.optim_error_inputs_func(device="cpu", dtype=torch.float32):
        given = each.optimizer_error_input
        if each.error_on is optimizers.OptimizerErrorEnum.CONSTRUCTION_ERROR:
            expected = pytest.warns if issubclass(each.error_type, Warning) else pytest.raises
            with expected(each.error_type, match=each.error_regex):
                getattr(OURS, name)(given.params, **given.kwargs)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ["SGD", "Adam", "Lion"])
def test_a_rank_moves_its_own_part_of_a_dtensor(name):
    import torch.distributed as dist
    from torch.distributed.tensor import Shard, distribute_tensor, init_device_mesh

    options = {"lr": 0.1} | ({"momentum": 0.5} if name == "SGD" else {})
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        mesh = init_device_mesh("cpu", (1,))
        torch.manual_seed(0)
        plain, grad = torch.randn(6, 5), torch.randn(6, 5)
        spread = distribute_tensor(plain.clone(), mesh, [Shard(0)])
        for p, its in ((plain, grad), (spread, distribute_tensor(grad, mesh, [Shard(0)]))):
            optimizer = getattr(OURS, name)([p], **options)
            for _ in range(2):
                p.grad = its
                optimizer.step()
        assert torch.equal(spread.to_local(), plain)
        state = optimizer.state[spread]["momentum_buffer" if name == "SGD" else "exp_avg"]
        assert hasattr(state, "to_local")
        with pytest.raises(NotImplementedError, match=r"no DTensor is; torch\.nn\.utils"):
            isobit.torch.get_total_norm([spread])
    finally:
        dist.destroy_process_group()
