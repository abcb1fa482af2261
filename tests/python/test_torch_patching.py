# SPDX-License-Identifier: Apache-2.0
"""patch puts Isobit's norms into a model that goes on as it was, and takes them out again."""

import copy
import io

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils import parametrize
from torch_calls import bits, draw
from torch_norms import EPS, WIDTH, NamedLayerNorm, PromotingRMSNorm, is_ours, made

import isobit.torch
from isobit.torch import patch, patching


class Small(nn.Module):
    """Norms of PyTorch and of somebody else, one of them twice."""

    def __init__(self):
        super().__init__()
        self.first = nn.LayerNorm(WIDTH)
        self.layers = nn.ModuleList(made(PromotingRMSNorm) for _ in range(3))
        self.last = nn.RMSNorm(WIDTH)
        self.head = nn.Linear(WIDTH, WIDTH)
        self.tied = self.layers[1]

    def forward(self, x):
        x = self.first(x)
        for layer in (*self.layers, self.tied):
            x = x + self.head(layer(x))
        return self.last(x)


@pytest.fixture
def small():
    torch.manual_seed(0)
    return Small()


def test_modules_keep_their_identity_parameters_hooks_and_mode(small):
    modules, parameters = dict(small.named_modules()), dict(small.named_parameters())
    state, calls = small.state_dict(), []
    small.first.register_forward_hook(lambda *_: calls.append("after"))
    small.layers[0].register_forward_pre_hook(lambda *_: calls.append("before"))
    small.last.eval()
    patch(small)
    assert dict(small.named_modules()) == modules
    assert all(value is parameters[name] for name, value in small.named_parameters())
    assert list(small.state_dict()) == list(state)
    assert bits(*small.state_dict().values()) == bits(*state.values())
    assert calls == [], "patching runs no hook"
    small(draw(2, WIDTH))
    assert calls == ["after", "before"]
    assert not small.last.training and small.first.training


@pytest.mark.parametrize("kind", [nn.LayerNorm, nn.RMSNorm])
@pytest.mark.parametrize("affine", [True, False])
def test_norms_of_pytorch_become_isobits(kind, affine):
    module = kind((3, 8), eps=EPS, elementwise_affine=affine)
    report = patch(module)
    assert type(module) is getattr(isobit.torch, kind.__name__)
    assert report.replaced == {"": type(module)} and report.skipped == {}
    x = draw(5, 3, 8)
    function = isobit.torch.layer_norm if kind is nn.LayerNorm else isobit.torch.rms_norm
    assert bits(module(x)) == bits(function(x, (3, 8), eps=EPS))


def test_modules_that_only_contain_norms_or_parametrize_weights_are_not_norms():
    class PreNorm(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm = nn.LayerNorm(8)
            self.of = nn.utils.parametrizations.weight_norm(nn.Linear(8, 8))

    report = patch(PreNorm())
    assert list(report.replaced) == ["norm"] and report.skipped == {}


def test_a_model_without_memory_is_patched_before_it_gets_some():
    with torch.device("meta"):
        model = nn.Sequential(nn.LayerNorm(WIDTH), NamedLayerNorm(WIDTH))
    assert len(patch(model).replaced) == 2
    model.to_empty(device="cpu").load_state_dict(
        nn.Sequential(nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)).state_dict()
    )
    x = draw(3, WIDTH)
    once = isobit.torch.layer_norm(x, WIDTH)
    assert bits(model(x)) == bits(isobit.torch.layer_norm(once, WIDTH))


def test_a_module_with_two_names_is_replaced_once(small):
    report = patch(small)
    assert set(report.replaced) == {"first", "layers.0", "layers.1", "layers.2", "last"}
    assert report.skipped == {"tied": "is layers.1"}


def test_patching_again_changes_nothing_and_restores_in_any_order(small):
    x = draw(2, WIDTH)
    before = bits(small(x))
    part = patch(small.layers)
    whole = patch(small)
    after = bits(small(x))
    again = patch(small)
    assert len(part.replaced) == 3 and set(whole.replaced) == {"first", "last"}
    assert not again.replaced and bits(small(x)) == after
    again.restore()
    assert bits(small(x)) == after
    part.restore()
    part.restore()
    assert is_ours(small.first) and not any(map(is_ours, small.layers))
    whole.restore()
    assert not any(map(is_ours, small.modules())) and bits(small(x)) == before


def test_an_old_report_does_not_undo_a_later_patch(small):
    old = patch(small)
    old.restore()
    patch(small)
    old.restore()
    assert is_ours(small.first) and is_ours(small.layers[0])


def test_with_restores_at_its_end(small):
    with pytest.raises(ZeroDivisionError), patch(small):
        assert is_ours(small.last)
        raise ZeroDivisionError
    assert not any(map(is_ours, small.modules()))


def test_a_report_keeps_no_model_alive(small):
    report = patch(small)
    del small
    report.restore()
    assert len(report.replaced) == 5


def test_a_report_tells_layers_together(small):
    small.batch = nn.BatchNorm1d(WIDTH)
    lines = str(patch(small)).splitlines()
    assert lines[0] == "Isobit computes 5 norms"
    assert "  layers.* (3): IsobitPromotingRMSNorm" in lines and "  last: RMSNorm" in lines
    assert lines[-2] == "  tied: is layers.1"
    assert lines[-1] == "  batch: BatchNorm normalises over the batch"
    assert str(patch(nn.LayerNorm(4))).endswith("(the model): LayerNorm")


def test_copies_and_pickles_of_a_patched_model_compute_the_same(small):
    patch(small)
    x = draw(2, WIDTH)
    file = io.BytesIO()
    torch.save(small, file)
    patching.patched_class.cache_clear()  # as in a process that never patched anything
    file.seek(0)
    loaded = torch.load(file, weights_only=False)
    assert is_ours(loaded.layers[0]) and loaded.tied is loaded.layers[1]
    assert bits(loaded(x)) == bits(copy.deepcopy(small)(x)) == bits(small(x))


def test_weights_move_between_a_patched_and_an_unpatched_model(small):
    x = draw(2, WIDTH)
    other = Small()
    patch(other)
    other.load_state_dict(small.state_dict())
    report = patch(small)
    assert bits(other(x)) == bits(small(x))
    report.restore()
    small.load_state_dict(other.state_dict())


def test_parametrizations_come_and_go_before_and_after():
    x = draw(2, WIDTH)
    model = nn.Sequential(*(nn.LayerNorm(WIDTH) for _ in range(3)))
    for early in (model[0], model[1]):
        parametrize.register_parametrization(early, "weight", nn.Softplus())
    report = patch(model)
    parametrize.register_parametrization(model[2], "weight", nn.Softplus())
    weight = F.softplus(torch.ones(WIDTH))
    expected = bits(isobit.torch.layer_norm(x, WIDTH, weight, torch.zeros(WIDTH)))
    assert [bits(norm(x)) for norm in (*model, copy.deepcopy(model)[0])] == [expected] * 4
    parametrize.remove_parametrizations(model[1], "weight")
    assert type(model[1]) is isobit.torch.LayerNorm and bits(model[1](x)) == expected
    report.restore()
    assert [parametrize.type_before_parametrizations(norm) for norm in model] == [nn.LayerNorm] * 3
    assert parametrize.is_parametrized(model[0]) and not parametrize.is_parametrized(model[1])
    assert not any(map(is_ours, model))


def test_tied_weights_get_the_gradients_of_all_their_uses():
    model = nn.Sequential(made(PromotingRMSNorm), nn.LayerNorm(WIDTH, bias=False))
    model[1].weight = model[0].weight
    theirs = copy.deepcopy(model)
    patch(model)
    assert len(list(model.parameters())) == 1
    for each in (model, theirs):
        each(draw(4, WIDTH)).square().sum().backward()
    assert torch.allclose(model[0].weight.grad, theirs[0].weight.grad, rtol=1e-4, atol=1e-5)


def test_compiled_code_follows_patch_and_restore(small):
    x = draw(4, WIDTH)
    compiled = torch.compile(small, backend="aot_eager", fullgraph=True)
    before = bits(compiled(x))
    report = patch(compiled)
    assert len(report.replaced) == 5
    assert bits(compiled(x)) == bits(small(x)) != before
    report.restore()
    assert bits(compiled(x)) == before


def test_a_transformer_layer_tells_of_its_fast_path():
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval()
    x = draw(2, 3, 8)
    with torch.no_grad():
        fast = bits(layer(x))
        report = patch(layer)
        assert set(report.replaced) == {"norm1", "norm2"} and "fastpath" in report.skipped[""]
        assert bits(layer(x)) == fast
