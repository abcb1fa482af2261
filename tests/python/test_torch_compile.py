# SPDX-License-Identifier: Apache-2.0
"""torch.compile, torch.export and their kin call the operators, and change no bit of them."""

import io
import itertools
import operator

import pytest
import torch
from torch import func
from torch._dynamo import compiled_autograd
from torch._dynamo.testing import CompileCounterWithBackend
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.autograd import forward_ad
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint
from torch_calls import VARIANTS, Norm, bits, draw, many, ramp, sample, step

import isobit.torch

# PyTorch's own formulas and packages are scripted.
pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning")

OPS = torch.ops.isobit
BACKENDS = ("aot_eager", "inductor")


@pytest.fixture(autouse=True)
def nothing_compiled_before():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def compiled(call, backend="aot_eager", **options):
    return torch.compile(call, backend=backend, **{"fullgraph": True} | options)


class Graphs(list):
    """A backend that keeps what the graphs call."""

    def __call__(self, graph, _inputs):
        calls = [n for n in graph.graph.nodes if n.op == "call_function"]
        self.append([str(node.target).removesuffix(".default") for node in calls])
        return graph


OF_EACH_OPERATOR = 12  # of the samples, the first ones


def operator_samples():
    """(operator, arguments, named arguments)."""
    drops = {"dropout": 0.25, "seed": torch.tensor(7)}
    for dtype, dims in ((torch.float32, 1), (torch.bfloat16, 2)):
        x, r, g = (draw(3, 4, 8, dtype=dtype, seed=i, requires_grad=True) for i in range(3))
        w, b = (draw(*x.shape[3 - dims :], seed=i, requires_grad=True) for i in (3, 4))
        yield OPS.layer_norm, (x, w, b, 1e-3, dims), {}
        yield OPS.rms_norm, (x, w, 1e-3, dims), {"zero_centered": True}
        yield OPS.add_layer_norm, (x, w, b, 1e-3, dims), {"residual": r}
        yield OPS.add_rms_norm, (x, w, 1e-3, dims), {"residual": r} | drops
        yield OPS.layer_norm_backward, (g, x, w, 1e-3, dims), {}
        yield OPS.rms_norm_backward, (g, x, w, 1e-3, dims, True), {}
        yield OPS.add_layer_norm_backward, (g, x, w, 1e-3, dims), {"grad_sum": r}
        more = drops | {"grad_sum": r, "needs_residual": True}
        yield OPS.add_rms_norm_backward, (g, x, w, 1e-3, dims), more
        yield OPS.add, (x, r), {}
        yield OPS.increment, (x,), {}
        yield OPS.transpose, (x, 0, -1), {}
        yield OPS.transpose, (x, -2, 1), {"dtype": torch.float16}
    for weights in ((None, b), (w, None), (None, None)):
        yield OPS.layer_norm, (x, *weights, 1e-3, 2), {"out_dtype": torch.float32}
        yield OPS.add_layer_norm, (x, *weights, 1e-3, 2), drops
    for needs in itertools.product((False, True), repeat=3):
        yield OPS.layer_norm_backward, (g, x, w, 1e-3, 2, False, *needs), {}
    needs = {"needs_input": False, "needs_weight": False, "needs_residual": True}
    yield OPS.add_rms_norm_backward, (g, x, w, 1e-3, 2), drops | needs
    wide = [draw(2, 8, dtype=torch.float64, seed=i, requires_grad=True) for i in range(2)]
    yield OPS.rms_norm, (wide[0].flip(0), None, 1e-3), {}
    yield OPS.rms_norm_backward, (wide[1][:1, :1].expand(2, 8), wide[0], None, 1e-3), {}
    yield OPS.layer_norm, (torch.empty(0, 8, requires_grad=True), None, None, 1e-3), {}
    yield OPS.rms_norm, (draw(8, requires_grad=True), None, 1e-3), {}


TRACED = "test_aot_dispatch_dynamic"  # takes most of the time
OTHERS = ("test_schema", "test_autograd_registration", "test_faketensor")


@pytest.mark.parametrize("call, arguments, named", [*operator_samples()])
def test_operators_are_what_pytorch_asks_of_operators(call, arguments, named):
    torch.library.opcheck(call.default, arguments, named, test_utils=OTHERS)


@pytest.mark.parametrize(
    "call, arguments, named",
    [
        pytest.param(*each, marks=() if i < OF_EACH_OPERATOR else pytest.mark.full)
        for i, each in enumerate(operator_samples())
    ],
)
def test_operators_are_traced_for_any_shape(call, arguments, named):
    torch.library.opcheck(call.default, arguments, named, test_utils=TRACED)


@pytest.mark.repeats
@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("name", Norm.NAMES)
def test_compiled_code_gives_the_bits_of_eager(name, variant):
    norm, tensors = sample(name, variant, requires_grad=True)
    expected = step(norm, tensors)
    assert step(compiled(norm), tensors) == expected
    with torch.no_grad():
        assert bits(*many(compiled(norm)(*tensors))) == expected[: norm.inputs]


@pytest.mark.parametrize(
    "name",
    ["layer_norm", "add_rms_norm", pytest.param("dropout_add_layer_norm", marks=pytest.mark.full)],
)
def test_compiled_code_gives_any_set_of_gradients(name):
    norm, tensors = sample(name, "plain")
    for wanted in itertools.product((False, True), repeat=len(tensors)):
        torch._dynamo.reset()
        leaves = [t.requires_grad_(want) for t, want in zip(tensors, wanted, strict=True)]
        assert step(compiled(norm), leaves) == step(norm, leaves), wanted


def all_of_them(x, residual, weight, bias):
    """Every function, and between them operations that round nothing or once."""
    shape = x.shape[-1:]
    x = isobit.torch.layer_norm(x, shape, weight, bias)
    x = isobit.torch.rms_norm(x.transpose(0, 1), shape, weight).transpose(0, 1)
    x, residual = isobit.torch.add_layer_norm(x * 2, residual, shape, weight, bias)
    x, residual = isobit.torch.add_rms_norm(x, residual + x, shape, weight)
    x, residual = isobit.torch.dropout_add_layer_norm(x, residual, shape, bias=bias, p=0.2, seed=1)
    x, residual = isobit.torch.dropout_add_rms_norm(x, residual, shape, weight, seed=2)
    narrow = isobit.torch.rms_norm(x[:, ::2], shape, out_dtype=torch.bfloat16)
    return isobit.torch.add(x, residual), isobit.torch.increment(narrow)


@pytest.mark.parametrize(
    "backend", [BACKENDS[0], pytest.param(BACKENDS[1], marks=pytest.mark.full)]
)
def test_shapes_may_change_without_a_new_compilation(backend):
    counter = CompileCounterWithBackend(backend)
    call = compiled(all_of_them, counter, dynamic=True)
    counts = []
    for shape in ((4, 6, 32), (5, 3, 32), (2, 7, 500)):
        x, residual, weight = draw(*shape), draw(*shape, seed=1), draw(*shape[-1:])
        tensors = [t.requires_grad_() for t in (x, residual, weight, draw(*shape[-1:], seed=2))]
        assert step(call, tensors) == step(all_of_them, tensors)
        counts.append(counter.frame_count)
    assert counts[0] == counts[1] == counts[2]  # Dynamo may start the first one again


def test_a_dimension_marked_dynamic_is_dynamic():
    norm, counter = Norm("add_layer_norm"), CompileCounterWithBackend("aot_eager")
    call = compiled(norm, counter)
    for batch in (3, 5, 2, 64):
        tensors = norm.draw(batch, 8)
        for t in tensors[:2]:
            torch._dynamo.mark_dynamic(t, 0)
        assert bits(*call(*tensors)) == bits(*norm(*tensors))
    assert counter.frame_count == 1


def test_seeds_do_not_compile_anew_for_ever():
    counter = CompileCounterWithBackend("eager")
    ones = torch.ones(8, 32)

    def dropped(v, seed):
        return isobit.torch.dropout_add_rms_norm(v, None, (32,), p=0.4, seed=seed)[1]

    call = compiled(dropped, counter)
    for seed in (1, 2, 3, 99, -5, 1 << 62, (1 << 64) - 1):
        assert bits(call(ones, seed)) == bits(dropped(ones, seed))
    assert counter.frame_count <= 3  # a constant, a symbol, a symbol that is too large for int64
    for seed in (4, 5, 6):
        assert bits(call(ones, torch.tensor(seed))) == bits(dropped(ones, seed))
    assert counter.frame_count <= 4


def test_seeds_of_compiled_code_stay_off_the_default_device():
    x, norm = draw(4, 8), Norm("dropout_add_rms_norm")
    expected = bits(*norm(x, x, x[0]))
    with torch.device("meta"):
        assert bits(*norm(x, x, x[0])) == expected
        assert bits(*compiled(norm)(x, x, x[0])) == expected


@pytest.mark.parametrize("backend", BACKENDS)
def test_drawn_dropouts_differ_and_follow_manual_seed(backend):
    def dropped(v):
        return tuple(isobit.torch.dropout_add_rms_norm(v, None, (50,))[1] for _ in range(2))

    call, ones = compiled(dropped, backend), torch.ones(20, 50)
    torch.manual_seed(1)
    first = bits(*call(ones), *call(ones))
    torch.manual_seed(1)
    assert bits(*call(ones), *call(ones)) == first
    assert len(set(first)) == 4
    if backend == "aot_eager":  # Inductor has a generator of its own
        torch.manual_seed(1)
        assert bits(*dropped(ones), *dropped(ones)) == first


def test_compiled_checkpoints_draw_the_same_dropout_again():
    def block(v):
        y, total = isobit.torch.dropout_add_layer_norm(v, v, (8,), p=0.3)
        return isobit.torch.add(y, total)

    def run(v):
        return checkpoint(block, v, use_reentrant=False)

    found = []
    for call in (block, run, compiled(run)):
        torch.manual_seed(3)
        found.append(step(call, [draw(4, 8, requires_grad=True)]))
    assert found[0] == found[1] == found[2]


def test_the_graph_is_one_and_holds_the_operators():
    graphs, tensors = Graphs(), (draw(2, 3, 8), draw(2, 3, 8), draw(8), draw(8))
    compiled(all_of_them, graphs)(*tensors)
    ours = {f"isobit.{name}" for name in Norm.NAMES if "dropout" not in name}
    ours |= {"isobit.add", "isobit.increment"}
    around = {str(each) for each in (operator.add, operator.mul, operator.getitem, torch.tensor)}
    assert [set(graph) for graph in graphs] == [ours | around]
    assert torch._dynamo.explain(all_of_them)(*tensors).graph_break_count == 0


VIEWS = {
    "transposed": lambda t: t.transpose(0, 1),
    "columns_apart": lambda t: t[..., ::2],
    "columns_first": lambda t: t.transpose(1, 2),
    "rows_apart": lambda t: t[:, ::2],
    "spread": lambda t: t[:1].expand(2, *t.shape[1:]),
    "flipped": lambda t: t.flip(-1),
}


@pytest.mark.parametrize("backend", BACKENDS)
def test_strided_inputs_and_intermediates_change_no_bit(backend):
    def outside(*views):
        return tuple(isobit.torch.layer_norm(v, v.shape[-1:]) for v in views)

    def inside(*tensors):
        views = zip(VIEWS.values(), tensors, strict=True)
        return outside(*(view(x + 1) for view, x in views))

    tensors = [draw(4, 6, 10, seed=i) for i in range(len(VIEWS))]
    views = [view(x) for view, x in zip(VIEWS.values(), tensors, strict=True)]
    assert bits(*compiled(outside, backend)(*views)) == bits(*outside(*views))
    for x in tensors:
        x.requires_grad_()
    assert step(compiled(inside, backend), tensors) == step(inside, tensors)


class Model(torch.nn.Module):
    """Norms between operations that have the same bits however they are compiled."""

    def __init__(self):
        super().__init__()
        self.first = isobit.torch.LayerNorm(8)
        self.second = isobit.torch.RMSNorm(8, zero_centered=True)
        for i, parameter in enumerate(self.parameters()):
            parameter.data = draw(*parameter.shape, seed=i)

    def forward(self, x):
        y, total = isobit.torch.add_rms_norm(self.first(x), x, (8,), self.second.weight)
        return self.second(y.relu().flip(0)) + total


@pytest.mark.parametrize("backend", BACKENDS)
def test_training_in_compiled_code_keeps_every_bit(backend):
    x, kept = draw(5, 3, 8), []
    for compile_it in (False, True):
        model = Model()
        call = compiled(model, backend) if compile_it else model
        optimizer = torch.optim.SGD(model.parameters(), lr=0.125, momentum=0.5)
        for _ in range(3):
            optimizer.zero_grad()
            y = call(x)
            y.backward(ramp(y))
            optimizer.step()
        kept.append(bits(y, *model.parameters(), *(p.grad for p in model.parameters())))
    assert kept[0] == kept[1]


def exported(strict=False):
    batch = {"x": {0: torch.export.Dim("batch", min=2, max=1024)}}
    return torch.export.export(Model(), (draw(4, 8),), dynamic_shapes=batch, strict=strict)


@pytest.mark.filterwarnings("ignore:.*LeafSpec:FutureWarning")
@pytest.mark.parametrize("strict", [False, True])
def test_exported_programs_are_saved_loaded_and_run(strict):
    program = exported(strict)
    targets = [node.target for node in program.graph.nodes if node.op == "call_function"]
    assert targets.count(OPS.layer_norm.default) == targets.count(OPS.rms_norm.default) == 1
    file = io.BytesIO()
    torch.export.save(program, file)
    file.seek(0)
    model, x = Model(), draw(9, 8, requires_grad=True)
    expected = step(model, [x])
    for each in (program, torch.export.load(file)):
        assert step(each.module(), [x]) == expected
    assert bits(program.run_decompositions().module()(x)) == expected[:1]


@pytest.mark.full
@pytest.mark.filterwarnings("ignore:.*LeafSpec:FutureWarning")
def test_ahead_of_time_compiled_packages_run(tmp_path):
    package = torch._inductor.aoti_compile_and_package(
        exported(), package_path=str(tmp_path / "model.pt2")
    )
    run, x = torch._inductor.aoti_load_package(package), draw(9, 8)
    assert bits(run(x)) == bits(Model()(x))


@pytest.mark.parametrize("mode", ["real", "fake", "symbolic"])
def test_make_fx_traces_both_passes(mode):
    def both(x, weight):
        x = x.detach().requires_grad_()
        y, total = isobit.torch.add_layer_norm(x, x, (8,), weight)
        return y, torch.autograd.grad((y, total), x, (ramp(y), total))[0]

    graph = make_fx(both, tracing_mode=mode)(draw(4, 8), draw(8))
    names = [str(node.target) for node in graph.graph.nodes]
    assert [name.count("isobit") for name in names].count(1) == 2
    other = draw(4, 8, seed=1), draw(8, seed=1)
    assert bits(*graph(*other)) == bits(*both(*other))


def test_symbolic_traces_keep_the_functions_whole():
    model = Model()
    graph = torch.fx.symbolic_trace(model)
    targets = [node.target for node in graph.graph.nodes if node.op == "call_function"]
    for name in ("layer_norm", "rms_norm", "add_rms_norm"):
        assert getattr(isobit.torch, name) in targets
    for dtype in (torch.float32, torch.float64):  # whose default eps differ
        x = draw(4, 8, dtype=dtype) * 1e-6
        assert bits(graph.to(dtype)(x)) == bits(model.to(dtype)(x))


@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning")
def test_jit_traces_are_saved_loaded_and_trained():
    model, x = Model(), draw(9, 8, requires_grad=True)
    traced = torch.jit.trace(model, draw(4, 8))
    file = io.BytesIO()
    torch.jit.save(traced, file)
    file.seek(0)
    assert step(traced, [x]) == step(torch.jit.load(file), [x]) == step(model, [x])


@pytest.mark.parametrize("name", Norm.NAMES)
def test_compiled_autograd_calls_the_operators(name):
    norm, graphs = Norm(name), Graphs()
    tensors = norm.draw(4, 8, requires_grad=True)
    expected = step(norm, tensors)[norm.inputs :]
    outputs = many(norm(*tensors))
    with compiled_autograd._enable(torch.compile(backend=graphs, fullgraph=True)):
        torch.autograd.backward(outputs, [ramp(y) for y in outputs])
    assert bits(*(t.grad for t in tensors)) == expected
    assert sum("isobit" in target for graph in graphs for target in graph) == 1


def test_a_setting_gives_compiled_code_the_formulas_of_torch(monkeypatch):
    graphs, norm, x = Graphs(), Norm("add_rms_norm"), draw(4, 8)
    call = compiled(norm, graphs)
    ours = call(x, x, x[0])
    monkeypatch.setattr(isobit.torch.settings, "compiled_fuses", True)
    theirs = call(x, x, x[0])
    assert torch.allclose(ours[0], theirs[0]) and bits(ours[1]) == bits(theirs[1])
    assert ["isobit.add_rms_norm" in graph for graph in graphs] == [True, False]


def test_dispatch_modes_see_the_operators():
    seen = []

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            seen.append(function.name())
            return function(*args, **kwargs or {})

    for name in Norm.NAMES:
        norm = Norm(name)
        tensors = norm.draw(4, 8, requires_grad=True)
        seen.clear()
        with Watch():
            step(norm, tensors)
        assert sum("isobit::" in each for each in seen) == 2, seen


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("name", Norm.NAMES)
def test_meta_and_fake_tensors_have_the_types_of_real_ones(name, variant):
    norm, tensors = sample(name, variant, requires_grad=True)

    def described(tensors):
        outputs = many(norm(*tensors))
        found = (*outputs, *torch.autograd.grad(outputs, tensors, [y.detach() for y in outputs]))
        return [(t.shape, t.stride(), t.dtype, t.requires_grad) for t in found]

    expected = described(tensors)
    assert described([t.detach().to("meta").requires_grad_() for t in tensors]) == expected
    with FakeTensorMode() as mode:
        assert described([mode.from_tensor(t) for t in tensors]) == expected


@pytest.mark.repeats
@pytest.mark.parametrize("name", Norm.NAMES)
def test_transforms_within_compiled_code(name):
    norm = Norm(name)
    tensors = norm.draw(3, 4, 8)
    dims = (0,) * norm.inputs + (None,) * norm.weights
    everything = tuple(range(len(tensors)))

    def loss(*tensors):
        return sum((y * ramp(y)).sum() for y in many(norm(*tensors)))

    def plain(*tensors):  # Dynamo asks some functions for their names
        return norm(*tensors)

    def batches(*tensors):
        return torch.vmap(plain, dims)(*tensors)

    def gradients(*tensors):
        return torch.vmap(func.grad(loss, everything), dims)(*tensors)

    def tangents(*tensors):
        return many(func.jvp(plain, tensors, tensors)[1])

    for call in (batches, gradients, tangents):
        assert bits(*many(compiled(call)(*tensors))) == bits(*many(call(*tensors)))
    leaves = [t.requires_grad_() for t in tensors]
    assert step(compiled(batches), leaves) == step(batches, leaves)


def test_tangents_reach_and_leave_compiled_code():
    def tangent(call, x):
        with forward_ad.dual_level():
            y = call(forward_ad.make_dual(x, ramp(x)))
            return forward_ad.unpack_dual(y).tangent

    x, norm = draw(4, 8), Norm("layer_norm")
    expected = bits(tangent(norm, x))
    assert bits(tangent(compiled(norm), x)) == expected
    assert bits(compiled(lambda x: tangent(norm, x))(x)) == expected


WRONG = {
    "shape": (lambda x: isobit.torch.layer_norm(x, (7,)), "normalized_shape is (7,)"),
    "weight": (lambda x: isobit.torch.layer_norm(x, (8,), torch.ones(7)), "weight has shape"),
    "residual": (lambda x: isobit.torch.add_rms_norm(x, x[:1], (8,)), "residual has shape"),
    "device": (lambda x: isobit.torch.rms_norm(x, 8, x[0].to("meta")), "weight is on meta"),
    "dtype": (
        lambda x: isobit.torch.rms_norm(x.long(), (8,), eps=1e-3),
        "rms_norm: input has dtype torch.int64; must be float32, float16, bfloat16 or float64",
    ),
    "p": (lambda x: isobit.torch.dropout_add_rms_norm(x, x, (8,), p=1.5, seed=1), "dropout"),
}


def message(call, *arguments):
    with pytest.raises(ValueError) as raised:
        call(*arguments)
    return str(raised.value)


@pytest.mark.parametrize("wrong", WRONG)
def test_errors_of_compiled_code_are_those_of_eager(wrong):
    call, words = WRONG[wrong]
    x = draw(4, 8)
    expected = message(call, x)
    assert words in expected
    assert message(compiled(call, fullgraph=False), x) == expected
    torch._dynamo.reset()
    if wrong in ("shape", "device"):  # raised in Python, which Dynamo follows
        with pytest.raises(torch._dynamo.exc.Unsupported, match="Observed exception"):
            compiled(call)(x)
    else:
        assert message(compiled(call), x) == expected


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_failed_call_of_compiled_code_leaves_nothing_behind(backend):
    def eager(x, weight):
        return isobit.torch.layer_norm(x, x.shape[-1:], weight) * 2

    call = compiled(eager, backend, dynamic=True)
    # large enough for memory of the pool
    x, weight = draw(1100, 4096, requires_grad=True), draw(4096)
    expected = eager(x, weight)
    assert torch.equal(call(x, weight), expected)
    used = isobit.torch.cache_use()
    for wrong in (draw(4095), draw(4096, dtype=torch.float64), draw(4096).long()):
        assert message(call, x, wrong) == message(eager, x, wrong)
    assert isobit.torch.cache_use() == used and x.grad is None
    assert torch.equal(call(x, weight), expected)
