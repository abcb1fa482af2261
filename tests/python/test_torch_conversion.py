# SPDX-License-Identifier: Apache-2.0
"""A model that convert has changed is Isobit's wherever it can be, says what is not and where, or
refuses it, and is given back as it was."""

import copy
import inspect
import io
import pickle
from abc import ABC, abstractmethod

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch_calls import bits, draw
from torch_models import WIDTH, Block, Net, X, drawn, kinds, step

import isobit.torch
from isobit.torch import Unreproducible, convert, intercept


def expected(net, x):
    """What Net computes, in Isobit's functions."""
    ours = isobit.torch
    for block in net.blocks:
        norm, mlp = block.norm, block.mlp
        y = ours.layer_norm(x, (WIDTH,), norm.weight, norm.bias)
        scores = ours.softmax(ours.matmul(y, y.transpose(-1, -2)), -1)
        hidden = ours.gelu(ours.linear(y, mlp.wide.weight, mlp.wide.bias))
        values = ours.silu(ours.tanh(ours.linear(hidden, mlp.narrow.weight, mlp.narrow.bias)))
        x = x + ours.matmul(scores, values)
    return x.relu()


def test_modules_and_functions_become_isobits_forward_and_backward():
    net = drawn()
    before, ours = kinds(net), step(net, lambda x: expected(net, x))
    plain = step(net)
    report = convert(net)
    assert step(net) == ours != plain
    assert type(net.blocks[0].mlp.act) is isobit.torch.GELU
    report.restore()
    assert kinds(net) == before and step(net) == plain
    report.restore()


def test_a_converted_model_has_the_same_bits_with_any_number_of_threads(one_thread):
    net, x = drawn(), draw(300, 64, WIDTH)

    def gradients(threads):
        torch.set_num_threads(threads)
        y = net(x)
        return bits(y, *torch.autograd.grad(y, list(net.parameters()), torch.ones_like(y)))

    plain = gradients(1), gradients(3)
    convert(net)
    assert gradients(1) == gradients(3) and plain[0] != plain[1]


def test_the_report_names_each_function_that_was_replaced_and_nothing_that_remains():
    report = convert(drawn())
    assert "shows once the model was watched" in repr(report)
    report.run(X)
    lines, first = inspect.getsourcelines(Block.forward)
    scores = 1 + next(i for i, line in enumerate(lines) if "softmax" in line)
    place = f"torch_models.py:{first + scores - 1}"
    found = {(each.function, each.module): each.place for each in report.functions}
    assert found["torch.Tensor.softmax", "blocks.1"].endswith(place)
    assert found.keys() == {
        (function, f"blocks.{i}{module}")
        for i in range(2)
        for function, module in (
            ("torch.Tensor.softmax", ""),
            ("torch.Tensor.matmul", ""),
            ("torch.nn.functional.silu", ""),
            ("torch.tanh", ".mlp"),
        )
    }
    assert report.remaining == {}
    shown = repr(report)
    assert "blocks.*.mlp.wide (2): Linear" in shown
    assert "torch.tanh at " in shown and "in blocks.*.mlp, 2 calls" in shown
    assert "Nothing that was watched is left without a promise" in shown


class Doubtful(nn.Module):
    def __init__(self):
        super().__init__()
        self.shift = nn.Parameter(torch.rand(WIDTH))
        self.drop = nn.Dropout1d(0.25)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x):
        self.calls += 1
        x = torch.where(x > 0, self.drop(x), self.shift)  # of which the backward is a sum
        return x.sin()


LINES, FIRST = inspect.getsourcelines(Doubtful.forward)
REMAINING = {
    ("aten.bernoulli_", "drop", 2, False): "random numbers",
    ("aten.sin", "", 3, False): "a transcendental function",
    ("aten.cos", "", 3, True): "a transcendental function",
    ("aten.sum", "", 2, True): "a reduction",
}


def test_what_remains_is_listed_by_module_line_and_direction():
    model = nn.Sequential(nn.Linear(WIDTH, WIDTH), drawn(Doubtful))
    report = convert(model).run(X)
    found = {}
    for each, calls in report.remaining.items():
        file, line = each.place.rsplit(":", 1)
        assert file.endswith("test_torch_conversion.py") and calls == 1
        assert each.module.startswith("1")
        place = each.module[2:], int(line) - FIRST, each.backward
        found[(each.operation, *place)] = each.kind
    assert found == REMAINING
    assert "aten.sum (a reduction) at " in repr(report)
    assert f":{FIRST + 2} in 1, backward" in repr(report)


def test_a_run_leaves_everything_as_it_was():
    model = nn.Sequential(nn.LocalResponseNorm(2), drawn(Doubtful))
    report, x = convert(model), draw(4, 5, WIDTH)
    state, random = copy.deepcopy(model.state_dict()), torch.get_rng_state()
    report.run(x)
    assert bits(*model.state_dict().values()) == bits(*state.values())
    assert bits(random) == bits(torch.get_rng_state())
    assert all(each.grad is None for each in model.parameters())
    assert {each.operation for each in report.remaining} >= {"aten.bernoulli_", "aten.pow"}
    assert "response norm" in report.patched.skipped["0"]


def test_a_run_goes_backward_inside_of_no_grad_too():
    """It listed nothing of backward there, as if nothing were left."""
    model = SumsBackward()
    with torch.no_grad():
        report = convert(model).run(X)
    assert [(each.operation, each.backward) for each in report.remaining] == [("aten.sum", True)]
    report.remaining.clear()
    with torch.inference_mode():
        report.run(X)  # which records nothing
    assert report.remaining == {}


class Abstract(nn.Module, ABC):
    @abstractmethod
    def forward(self, x): ...


class Concrete(Abstract):
    def __init__(self):
        super().__init__()
        self.net = drawn()

    def forward(self, x):
        return F.gelu(self.net(x))


def test_a_model_of_an_abstract_class_is_converted():
    """It was refused: its class is no plain type."""
    model = Concrete()
    before, plain = kinds(model), bits(model(X))
    report = convert(model)
    ours = isobit.torch.gelu(expected(model.net, X))
    assert bits(model(X)) == bits(ours) != plain and report.skipped == {}
    assert type(model).__name__ == "Concrete" and isinstance(model, Abstract)
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert bits(other(X)) == bits(ours) and type(other) is type(model)
    report.restore()
    assert kinds(model) == before and bits(model(X)) == plain


def test_a_model_of_another_type_of_classes_is_refused_in_words():
    class Kind(type):
        pass

    class Other(nn.Module, metaclass=Kind):
        def forward(self, x):
            return x

    with pytest.raises(ValueError, match="convert: model is of a class of the type Kind"):
        convert(Other())


def test_a_loss_and_an_optimizer_are_watched_with_the_model():
    net = drawn()
    report = convert(net)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9, foreach=False)
    with report.watching():
        for _ in range(2):
            net(X).square().mean().backward()
            optimizer.step()
    assert {each.operation for each in report.remaining} == {"aten.mean", "aten.add_"}
    assert all(each.module == "" for each in report.remaining)


def test_inside_of_with_the_loss_is_isobits_and_the_model_is_restored_behind_it():
    net, target = drawn(), torch.arange(10)
    before = kinds(net)
    ours = isobit.torch.cross_entropy(expected(net, X).flatten(0, 1), target)
    with convert(net) as report, report.watching():
        assert bits(F.cross_entropy(net(X).flatten(0, 1), target)) == bits(ours)
    assert report.remaining == {} and kinds(net) == before
    assert torch._C._len_torch_function_stack() == torch._C._len_torch_dispatch_stack() == 0


@pytest.fixture
def strict():
    """A model that is converted with strict=True."""

    def of(model):
        convert(model, strict=True)
        return model

    return of


def test_strict_lets_a_model_train_to_the_same_bits(strict):
    net = drawn()
    convert(net)
    ours = step(net)
    assert step(strict(drawn())) == ours


def test_strict_refuses_in_forward(strict):
    model = strict(drawn(Doubtful))
    with pytest.raises(Unreproducible, match=rf"aten.bernoulli_ \(random .*:{FIRST + 2} in drop"):
        model(X)
    model.eval()
    words = rf"convert: aten.sin \(a transcendental function\) at .*:{FIRST + 3} in the model: "
    with pytest.raises(Unreproducible, match=words), torch.no_grad():
        model(X)
    assert torch._C._len_torch_function_stack() == torch._C._len_torch_dispatch_stack() == 0


class SumsBackward(nn.Module):
    """With no doubt forward; it may keep its result for itself."""

    def __init__(self, kept=False):
        super().__init__()
        self.shift, self.kept = nn.Parameter(torch.rand(WIDTH)), kept

    def forward(self, x):
        y = torch.where(x > 0, x, self.shift)
        if not self.kept:
            return {"result": (y * 2,)}
        self.loss = y.relu()
        return x


@pytest.mark.parametrize("kept", [False, True])
def test_strict_refuses_in_backward_whatever_becomes_of_the_result(strict, kept):
    model = strict(SumsBackward(kept))
    for _ in range(2):
        result = model(X)
        result = model.loss if kept else result["result"][0]
        words = r"aten.sum \(a reduction\) at .*test_torch_conversion.py:\d+ in the model, backward"
        with pytest.raises(Unreproducible, match=words):
            result.backward(torch.ones_like(result))
        assert not torch.utils._python_dispatch.is_in_torch_dispatch_mode()
        assert torch._C._len_torch_dispatch_stack() == 0


def test_strict_leaves_alone_what_stands_around_the_model(strict):
    net, shift = strict(drawn()), torch.rand(WIDTH, requires_grad=True)
    net((X + shift).sin()).mean().backward()
    assert shift.grad is not None and not torch._C._len_torch_dispatch_stack()


def test_strict_stays_eager_in_compiled_code(strict):
    model = torch.compile(strict(drawn(Doubtful).eval()), backend="eager")
    with pytest.raises(Unreproducible, match=r"aten.sin"):
        model(X)
    torch._dynamo.reset()
    net = drawn()
    convert(net)
    ours = step(net)
    net = strict(drawn())
    assert step(net, torch.compile(net, backend="eager")) == ours
    torch._dynamo.reset()


def test_compiled_code_has_the_bits_of_eager_code():
    net = drawn()
    plain = step(net)
    report = convert(net)
    ours = step(net)
    torch._dynamo.reset()
    compiled = torch.compile(net, backend="aot_eager", fullgraph=True)
    assert step(net, compiled) == ours
    report.restore()
    torch._dynamo.reset()
    assert step(net, torch.compile(net, backend="aot_eager", fullgraph=True)) == plain
    torch._dynamo.reset()


class Attending(nn.Module):
    def __init__(self):
        super().__init__()
        self.places = nn.Parameter(torch.rand(1, 5, WIDTH))
        self.token = nn.Parameter(torch.rand(1, 1, WIDTH))
        self.attention = nn.MultiheadAttention(WIDTH, 2, batch_first=True)
        self.own = isobit.torch.SelfAttention(WIDTH, 2)

    def forward(self, x):
        x = x + self.places
        x = torch.cat([self.token.expand(x.shape[0], -1, -1), x], 1)
        count = x.shape[0] * self.attention.num_heads
        mask = torch.ones(count, 6, 6, dtype=torch.bool).triu(1)
        x, _ = self.attention(x, x, x, attn_mask=mask, need_weights=False)
        return self.own(x)[:, 1:]


@pytest.mark.parametrize("dynamic", [None, True])
def test_a_model_that_attends_and_repeats_parameters_is_compiled_as_a_whole(dynamic):
    """Dynamo refused the function whose derivative is the sum over what was repeated, since it has
    a jvp, and the method unflatten inside of a mode."""
    model = drawn(Attending)
    convert(model)
    ours = step(model)
    torch._dynamo.reset()
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True, dynamic=dynamic)
    assert step(model, compiled) == ours
    torch._dynamo.reset()


def test_what_a_checkpoint_computes_again_is_isobits_too():
    net = drawn()
    convert(net)
    ours = step(net)
    net.checkpoints = True
    assert step(net) == ours


def test_a_converted_model_keeps_its_names_signature_and_state():
    net = drawn()
    shown, state, signature = repr(net), net.state_dict(), inspect.signature(net.forward)
    ours = None
    convert(net)
    assert repr(net) == shown and type(net).__name__ == "Net" and isinstance(net, Net)
    assert type(net).__module__ == Net.__module__
    assert inspect.signature(net.forward) == signature
    assert bits(*net.state_dict().values()) == bits(*state.values())
    ours = bits(net(X))
    stored = io.BytesIO()
    torch.save(net, stored)
    stored.seek(0)
    for other in (
        copy.deepcopy(net),
        pickle.loads(pickle.dumps(net)),
        torch.load(stored, weights_only=False),
    ):
        assert bits(other(X)) == ours and type(other) is type(net)
    assert bits(net(X, scale=2.0)) == bits(net(X) * 2)


@pytest.mark.parametrize("attends", [False, True])
def test_a_converted_model_on_the_meta_device_has_shapes(attends):
    """PyTorch refuses to be asked whether autocast is on there."""
    with torch.device("meta"):
        net = nn.TransformerEncoderLayer(WIDTH, 2, activation=F.gelu) if attends else Net()
    convert(net)
    y = net(X.to("meta"))
    assert y.shape == X.shape and y.is_meta
    y.sum().backward()
    assert all(each.grad.shape == each.shape for each in net.parameters())


class Shifted(nn.Module):
    def __init__(self):
        super().__init__()
        self.shift = nn.Parameter(torch.rand(1, WIDTH))

    def forward(self, x):
        return torch.cat([x + self.shift, self.shift.expand(2, 1, -1)], 1)


@pytest.mark.filterwarnings("ignore:`torch.jit.trace", "ignore:Converting a tensor")
def test_a_converted_model_that_repeats_a_parameter_is_traced_with_gradients_on():
    model = Shifted()
    convert(model)
    traced = torch.jit.trace(model, X)
    assert bits(traced(X)) == bits(model(X))


def test_a_part_that_was_converted_stays_so_until_its_own_report_restores_it():
    net = drawn()
    ours = step(net, lambda x: expected(net, x))
    plain = step(net)
    part = convert(net.blocks[0])
    whole = convert(net)
    assert step(net) == ours
    whole.restore()
    assert type(net) is Net and type(net.blocks[0].mlp.act) is isobit.torch.GELU
    part.restore()
    assert step(net) == plain


def test_parts_whose_calls_stay_pytorchs_are_named():
    net = drawn()
    mlp = net.blocks[1].mlp
    mlp.forward = lambda x: F.gelu(x).sin()
    report = convert(net)
    assert report.skipped == {"blocks.1.mlp": "has a forward of its own, set on the module"}
    assert "blocks.1.mlp: has a forward of its own" in repr(report)
    del mlp.forward


@pytest.mark.parametrize(
    "module", [nn.Linear(WIDTH, 3), nn.Sequential(nn.Tanh()), nn.BatchNorm1d(5)]
)
def test_modules_of_pytorch_alone_are_converted(module):
    before = kinds(module)
    report = convert(module)
    module(X)
    report.restore()
    assert kinds(module) == before


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is")
def test_what_cannot_be_converted_is_refused_and_left_as_it_is():
    with pytest.raises(TypeError, match=r"convert: model must be a torch.nn.Module; it is int"):
        convert(3)
    with pytest.raises(TypeError, match=r"optimizer must be a torch.optim.Optimizer; it is float"):
        convert(drawn(), 0.1)
    with pytest.raises(ValueError, match=r"convert: model is scripted"):
        convert(torch.jit.script(nn.Linear(3, 3)))
    net = drawn()
    report = convert(net)
    with pytest.raises(ValueError, match="model is converted already; restore"):
        convert(net)
    report.restore()
    net.forward = lambda x: x
    with pytest.raises(ValueError, match="model has a forward of its own, set on the module"):
        convert(net)
    assert type(net.blocks[0].mlp.act) is nn.GELU


def test_functions_that_run_outside_of_the_model_stay_pytorchs():
    net = drawn()
    plain = bits(F.gelu(X))
    convert(net)
    net(X)
    assert bits(F.gelu(X)) == plain
    with intercept(every=True):
        assert bits(F.gelu(X)) == bits(isobit.torch.gelu(X))
