# SPDX-License-Identifier: Apache-2.0
"""Isobit in the place of a model's linear layers, where patch is asked for them: the model goes on
as it was, with the bits of isobit.torch.linear."""

import copy
import io

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrize, prune
from torch.utils.checkpoint import checkpoint
from torch_calls import bits, draw

import isobit.torch
from isobit.torch import patch, patching

# PyTorch's compiler is scripted in places.
pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning")

WIDTH = 24


class NamedLinear(nn.Linear):
    """No more than a name."""


class Adapted(nn.Module):
    """As adapters of low rank wrap a layer."""

    def __init__(self, base_layer):
        super().__init__()
        self.base_layer = base_layer
        self.lora_A, self.lora_B = nn.Linear(WIDTH, 2, bias=False), nn.Linear(2, WIDTH, bias=False)

    def forward(self, x):
        return self.base_layer(x) + self.lora_B(self.lora_A(x))


class Small(nn.Module):
    """A head that is tied to an embedding, layers of several classes, and norms."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(40, WIDTH)
        self.norm = nn.LayerNorm(WIDTH)
        self.layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(3))
        self.named = NamedLinear(WIDTH, WIDTH, bias=False)
        self.adapted = Adapted(nn.Linear(WIDTH, WIDTH))
        self.again = self.layers[1]
        self.head = nn.Linear(WIDTH, 40, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, tokens):
        x = self.norm(self.embedding(tokens))
        for layer in (*self.layers, self.again, self.named, self.adapted):
            x = x + torch.tanh(layer(x))
        return self.head(x)


TOKENS = torch.arange(30).reshape(3, 10)
LINEAR = ["layers.0", "layers.1", "layers.2", "named"]
LINEAR += [f"adapted.{name}" for name in ("base_layer", "lora_A", "lora_B")] + ["head"]


@pytest.fixture
def small():
    torch.manual_seed(0)
    return Small()


@pytest.fixture
def nothing_compiled_before():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def is_ours(module):
    return isinstance(module, isobit.torch.Linear) or isinstance(type(module), patching.Patched)


def gradients(model, *given):
    """The result, and the gradients of all parameters."""
    model.zero_grad()
    y = model(*given)
    y.float().square().sum().backward()
    return y.detach(), *(each.grad for each in model.parameters())


@pytest.mark.parametrize("bias", [True, False])
def test_a_linear_layer_becomes_isobits_with_its_bits_and_gradients(bias):
    module = nn.Linear(WIDTH, 7, bias=bias)
    report = patch(module, linear=True)
    assert type(module) is isobit.torch.Linear
    assert report.replaced == {"": isobit.torch.Linear} and report.skipped == {}
    for shape in ((WIDTH,), (5, WIDTH), (2, 3, WIDTH), (0, WIDTH)):
        x = draw(*shape, requires_grad=True)
        leaves = (x, *module.parameters())
        wanted = isobit.torch.linear(x, module.weight, module.bias)
        found = module(x)
        assert bits(found) == bits(wanted)
        along = draw(*wanted.shape, seed=3)
        assert bits(*torch.autograd.grad(found, leaves, along)) == bits(
            *torch.autograd.grad(wanted, leaves, along)
        )


def test_linear_layers_stay_where_nobody_asked(small):
    report = patch(small)
    assert list(report.replaced) == ["norm"] and report.skipped == {} and report.linear is None
    assert not any(map(is_ours, small.modules()))
    assert str(report) == "Isobit computes 1 norm\n  norm: LayerNorm"


def test_modules_keep_their_identity_parameters_hooks_and_mode(small):
    modules, parameters = dict(small.named_modules()), dict(small.named_parameters())
    state, calls = small.state_dict(), []
    small.head.register_forward_hook(lambda *_: calls.append("after"))
    small.named.register_forward_pre_hook(lambda *_: calls.append("before"))
    small.layers[0].register_full_backward_hook(lambda *_: calls.append("back"))
    small.head.eval()
    patch(small, linear=True)
    assert dict(small.named_modules()) == modules
    assert all(value is parameters[name] for name, value in small.named_parameters())
    assert list(small.state_dict()) == list(state)
    assert bits(*small.state_dict().values()) == bits(*state.values())
    assert calls == [], "patching runs no hook"
    small(TOKENS).sum().backward()
    assert calls == ["before", "after", "back"]
    assert not small.head.training and small.named.training


def test_a_report_counts_norms_and_linear_layers(small):
    report = patch(small, linear=True)
    assert report.linear == LINEAR and set(report.replaced) == {"norm", *LINEAR}
    assert report.skipped == {"again": "is layers.1"}
    lines = str(report).splitlines()
    assert lines[0] == "Isobit computes 1 norm and 8 linear layers"
    assert "  layers.* (3): Linear" in lines and "  named: IsobitNamedLinear" in lines
    assert lines[-2:] == ["and leaves alone", "  again: is layers.1"]
    one = str(patch(nn.Linear(2, 2), linear=True)).splitlines()
    assert one == ["Isobit computes 0 norms and 1 linear layer", "  (the model): Linear"]


def test_restore_gives_every_class_and_bit_back_in_any_order(small):
    before = bits(*gradients(small, TOKENS))
    norms = patch(small)
    linear = patch(small, linear=True)
    assert linear.linear == list(linear.replaced) == LINEAR
    assert linear.skipped["norm"] == "is Isobit's already"
    after = bits(*gradients(small, TOKENS))
    again = patch(small, linear=True)
    assert not again.replaced and again.skipped["head"] == "is Isobit's already"
    assert again.skipped["named"] == "is Isobit's already"
    again.restore()
    assert bits(*gradients(small, TOKENS)) == after != before
    norms.restore()
    assert type(small.norm) is nn.LayerNorm and is_ours(small.head)
    linear.restore()
    assert not any(map(is_ours, small.modules())) and type(small.named) is NamedLinear
    assert bits(*gradients(small, TOKENS)) == before


def test_with_restores_at_its_end(small):
    with pytest.raises(ZeroDivisionError), patch(small, linear=True):
        assert type(small.head) is isobit.torch.Linear
        raise ZeroDivisionError
    assert type(small.head) is nn.Linear and type(small.named) is NamedLinear


def test_a_patched_model_computes_what_the_original_did(small):
    theirs = gradients(small, TOKENS)
    patch(small, linear=True)
    for one, other in zip(gradients(small, TOKENS), theirs, strict=True):
        assert torch.allclose(one, other, rtol=1e-4, atol=1e-5 * other.abs().max().item())


def test_tied_weights_stay_tied_and_get_the_gradients_of_all_their_uses(small):
    weight = small.embedding.weight
    patch(small, linear=True)
    assert small.head.weight is small.embedding.weight is weight
    small(TOKENS).square().sum().backward()
    found = weight.grad
    hidden = []
    small.head.register_forward_pre_hook(lambda _, given: hidden.append(given[0]))
    y = small(TOKENS)
    of_head = isobit.torch.linear(hidden[0].detach(), weight)
    along = 2 * y.detach()
    (of_head,) = torch.autograd.grad(of_head, weight, along)
    (of_rows,) = torch.autograd.grad(hidden[0], weight, isobit.torch.matmul(along, weight.detach()))
    assert of_rows.abs().max() > 0 and of_head.abs().max() > 0
    assert torch.allclose(found, of_head + of_rows, rtol=1e-5, atol=1e-5)


def test_a_class_that_inherits_its_forward_is_derived_from(small):
    patch(small, linear=True)
    assert isinstance(small.named, NamedLinear) and is_ours(small.named)
    x = draw(3, WIDTH)
    assert bits(small.named(x)) == bits(isobit.torch.linear(x, small.named.weight))
    assert bits(small.named(input=x)) == bits(small.named(x))


def test_an_attribute_of_somebody_elses_is_not_taken_for_an_activation():
    module = nn.Linear(WIDTH, WIDTH)
    module.activation = "relu"  # which its owner applies
    patch(module, linear=True)
    x = draw(3, WIDTH)
    assert is_ours(module) and isinstance(module, nn.Linear)
    assert bits(module(x)) == bits(isobit.torch.linear(x, module.weight, module.bias))


def test_copies_and_pickles_of_a_patched_model_compute_the_same(small):
    patch(small, linear=True)
    file = io.BytesIO()
    torch.save(small, file)
    patching.patched_class.cache_clear()  # as in a process that never patched anything
    file.seek(0)
    loaded = torch.load(file, weights_only=False)
    assert is_ours(loaded.named) and type(loaded.head) is isobit.torch.Linear
    assert loaded.again is loaded.layers[1] and loaded.head.weight is loaded.embedding.weight
    expected = bits(small(TOKENS))
    assert bits(loaded(TOKENS)) == bits(copy.deepcopy(small)(TOKENS)) == expected


def test_weights_move_between_a_patched_and_an_unpatched_model(small):
    other = Small()
    patch(other, linear=True)
    other.load_state_dict(small.state_dict())
    report = patch(small, linear=True)
    assert bits(other(TOKENS)) == bits(small(TOKENS))
    report.restore()
    small.load_state_dict(other.state_dict())


def test_a_model_without_memory_is_patched_before_it_gets_some():
    with torch.device("meta"):
        model = nn.Sequential(nn.Linear(WIDTH, 8), NamedLinear(8, 4))
    assert patch(model, linear=True).linear == ["0", "1"]
    given = nn.Sequential(nn.Linear(WIDTH, 8), nn.Linear(8, 4))
    model.to_empty(device="cpu").load_state_dict(given.state_dict())
    x = draw(3, WIDTH)
    once = isobit.torch.linear(x, *given[0].parameters())
    assert bits(model(x)) == bits(isobit.torch.linear(once, *given[1].parameters()))


def test_parametrizations_come_and_go_before_and_after_and_are_not_run():
    class Counted(nn.Softplus):
        calls = 0

        def forward(self, weight):
            type(self).calls += 1
            return super().forward(weight)

    x = draw(3, WIDTH)
    model = nn.Sequential(nn.Linear(WIDTH, 8), NamedLinear(WIDTH, 8), nn.Linear(WIDTH, 8))
    for early in (model[0], model[1]):
        parametrize.register_parametrization(early, "weight", Counted())
    calls = Counted.calls
    report = patch(model, linear=True)
    assert report.linear == ["0", "1", "2"] and report.skipped == {} and Counted.calls == calls
    assert report.replaced["0"] is report.replaced["2"] is isobit.torch.Linear
    parametrize.register_parametrization(model[2], "weight", Counted())
    for layer in (*model, *copy.deepcopy(model)):
        expected = isobit.torch.linear(x, layer.weight, layer.bias)
        assert is_ours(layer) and bits(layer(x)) == bits(expected)
    parametrize.remove_parametrizations(model[1], "weight")
    assert isinstance(model[1], NamedLinear) and is_ours(model[1])
    report.restore()
    kinds = [parametrize.type_before_parametrizations(layer) for layer in model]
    assert kinds == [nn.Linear, NamedLinear, nn.Linear] and not any(map(is_ours, model))


@pytest.mark.filterwarnings("ignore:.*weight_norm.* is deprecated")
@pytest.mark.parametrize(
    "prepare",
    [
        nn.utils.weight_norm,
        nn.utils.spectral_norm,
        lambda layer: prune.random_unstructured(layer, "weight", 0.5),
        nn.utils.parametrizations.weight_norm,
    ],
    ids=["weight_norm", "spectral_norm", "pruned", "parametrized"],
)
def test_weights_that_are_made_before_each_call_are_those_of_the_call(prepare):
    model = nn.Sequential(nn.Linear(WIDTH, 8)).eval()
    prepare(model[0])
    x = draw(3, WIDTH)
    expected = model(x)
    assert patch(model, linear=True).linear == ["0"]
    found = model(x)
    assert torch.allclose(found, expected, atol=1e-5)
    assert bits(found) == bits(isobit.torch.linear(x, model[0].weight, model[0].bias))


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_compiled_code_follows_patch_and_restore(backend, nothing_compiled_before):
    model = nn.Sequential(nn.Linear(3000, 50), NamedLinear(50, 9))
    x = draw(70, 3000)
    compiled = torch.compile(model, backend=backend, fullgraph=True)
    before = compiled(x)
    report = patch(compiled, linear=True)
    assert len(report.linear) == 2
    expected = gradients(model, x)
    assert bits(*gradients(compiled, x)) == bits(*expected)
    assert bits(expected[0]) != bits(before)
    report.restore()
    assert bits(compiled(x)) == bits(before)


def test_a_row_alone_equals_itself_in_every_batch_on_any_number_of_threads():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(700, 300), NamedLinear(300, 40))
    patch(model, linear=True)
    x = draw(257, 700)
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        rows = [model(row) for row in x]
        for count in range(1, 8):
            torch.set_num_threads(count)
            for m in (1, 2, 3, 8, 9, 31, 64, 129, 257):
                assert bits(model(x[:m])) == bits(torch.stack(rows[:m])), (count, m)
                assert bits(model(x[-m:])) == bits(torch.stack(rows[-m:])), (count, m)
    finally:
        torch.set_num_threads(threads)


def test_gradients_do_not_depend_on_the_number_of_threads():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(300, 200), nn.Linear(200, 70))
    patch(model, linear=True)
    threads, found = torch.get_num_threads(), []
    try:
        for count in range(1, 8):
            torch.set_num_threads(count)
            found.append(bits(*gradients(model, draw(150, 300))))
    finally:
        torch.set_num_threads(threads)
    assert all(each == found[0] for each in found)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast_chooses_the_types_that_it_chose(small, dtype):
    with torch.autocast("cpu", dtype):
        theirs = gradients(small, TOKENS)
        patch(small, linear=True)
        ours = gradients(small, TOKENS)
    for one, other in zip(ours, theirs, strict=True):
        assert one.dtype == other.dtype
        largest = other.abs().max().item()
        assert torch.allclose(one.float(), other.float(), rtol=0.05, atol=0.05 * largest)
    with torch.autocast("cpu", dtype):
        x = draw(3, WIDTH)
        layer = small.layers[0]
        narrow = [each.to(dtype) for each in (x, layer.weight, layer.bias)]
        assert bits(layer(x)) == bits(layer(x.to(dtype))) == bits(isobit.torch.linear(*narrow))


@pytest.mark.parametrize("reentrant", [True, False])
def test_checkpoints_change_no_bit(small, reentrant):
    patch(small, linear=True)
    x = draw(3, WIDTH)

    def run(layer, x):
        return checkpoint(layer, x, use_reentrant=reentrant)

    found = []
    for call in (run, lambda layer, x: layer(x)):
        leaf = x.clone().requires_grad_()
        small.zero_grad()
        y = leaf
        for layer in (*small.layers, small.named, small.adapted):
            y = torch.tanh(call(layer, y))
        y.square().sum().backward()
        grads = [each.grad for each in small.parameters() if each.grad is not None]
        found.append(bits(y, leaf.grad, *grads))
    assert found[0] == found[1]


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors is in prototype")
def test_nested_tensors_are_their_rows():
    model = nn.Sequential(nn.Linear(WIDTH, 8), NamedLinear(8, 4))
    rows = draw(5, WIDTH, requires_grad=True)
    x = torch.nested.nested_tensor_from_jagged(rows, torch.tensor([0, 2, 2, 5]))
    shape = model(x).shape[0], model(x).shape[2]
    patch(model, linear=True)
    y = model(x)
    assert y.is_nested and (y.shape[0], y.shape[2]) == shape
    assert bits(y.values()) == bits(model(rows))
    strided = torch.nested.nested_tensor([draw(2, WIDTH), draw(3, WIDTH)], layout=torch.strided)
    with pytest.raises(NotImplementedError, match=r"must have layout=torch\.jagged"):
        model(strided)
    wanted = torch.autograd.grad(model(rows).square().sum(), rows)
    assert bits(*torch.autograd.grad(y.values().square().sum(), rows)) == bits(*wanted)


def test_a_transformer_trains_with_isobits_products_and_tells_what_stays():
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0, batch_first=True)
    model = nn.TransformerEncoder(layer, 2)
    x = draw(3, 5, 16)
    before = gradients(model, x)
    report = patch(model, linear=True)
    assert str(report).startswith("Isobit computes 4 norms and 4 linear layers\n")
    assert set(report.linear) == {f"layers.{i}.linear{j}" for i in (0, 1) for j in (1, 2)}
    assert "never calls it" in report.skipped["layers.0.self_attn.out_proj"]
    assert "without its norms' and linear layers' forward" in report.skipped["layers.1"]
    after = gradients(model, x)
    for one, other in zip(after, before, strict=True):
        assert torch.allclose(one, other, rtol=1e-4, atol=1e-4)
    assert bits(*after) == bits(*gradients(model, x)) != bits(*before)
    report.restore()
    assert bits(*gradients(model, x)) == bits(*before)


def test_a_transformer_layer_tells_of_its_fast_path():
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval()
    x = draw(2, 3, 8)
    with torch.no_grad():
        fast = bits(layer(x))
        patch(layer, linear=True)
        assert bits(layer(x)) == fast
        torch.backends.mha.set_fastpath_enabled(False)
        try:
            calls = []
            layer.linear1.register_forward_hook(lambda *_: calls.append(1))
            layer(x)
            assert calls == [1]
        finally:
            torch.backends.mha.set_fastpath_enabled(True)
