# SPDX-License-Identifier: Apache-2.0
"""Isobit in the place of torch.nn.MultiheadAttention, where patch is asked for it: the model goes
on as it was, with the bits of isobit.torch.MultiheadAttention."""

import copy
import io

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrize
from torch_calls import bits, draw

import isobit.torch
from isobit.torch import patch

WIDTH = 8


pytestmark = pytest.mark.usefixtures("one_thread")


class Named(nn.MultiheadAttention):
    """No more than a name, and a helper that is called as one of ours is."""

    def _heads(self):
        raise AssertionError("nobody calls it")


class Other(nn.MultiheadAttention):
    def forward(self, query):
        return super().forward(query, query, query)[0]


class NormOfAttention(nn.LayerNorm):
    pass


class PlainAttention(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)


def attention(kind=nn.MultiheadAttention, **more):
    torch.manual_seed(0)
    return kind(WIDTH, 2, batch_first=True, **more)


def reference(module, x):
    ours = isobit.torch.MultiheadAttention(WIDTH, 2, batch_first=True)
    ours.load_state_dict(module.state_dict())
    return ours(x, x, x)


@pytest.mark.parametrize("kind", [nn.MultiheadAttention, Named])
def test_it_becomes_isobits_and_gets_its_class_back(kind):
    module, x, seen = attention(kind), draw(2, 5, WIDTH), []
    module.register_forward_hook(lambda *given: seen.append(1))
    parameters, theirs = [*module.parameters()], bits(*module(x, x, x))
    ours = bits(*reference(module, x))
    report = patch(module, attention=True)
    assert report.attention == [""] and report.skipped == {}
    assert isinstance(module, kind) and [*map(id, module.parameters())] == [*map(id, parameters)]
    assert bits(*module(x, x, x)) == ours and len(seen) == 2
    assert bits(*copy.deepcopy(module)(x, x, x)) == ours
    saved = io.BytesIO()
    module._forward_hooks.clear()
    torch.save(module, saved)
    saved.seek(0)
    assert bits(*torch.load(saved, weights_only=False)(x, x, x)) == ours
    module._reset_parameters()
    patched_again = patch(module, attention=True)
    assert patched_again.skipped == {"": "is Isobit's already"}
    module.load_state_dict(attention().state_dict())
    report.restore()
    assert type(module) is kind and bits(*module(x, x, x)) == theirs


def test_what_stays_says_why():
    scripted = attention()
    scripted.forward = lambda *given: None
    model = nn.ModuleDict(
        {
            "a": attention(),
            "b": attention(Other),
            "c": attention(dtype=torch.complex64),
            "d": PlainAttention(),
            "e": isobit.torch.SelfAttention(WIDTH, 2),
            "f": scripted,
            "g": NormOfAttention(WIDTH),
        }
    )
    model["again"] = model["a"]
    report = patch(model, attention=True)
    assert report.attention == ["a"] and report.linear is None
    assert {*report.replaced} == {"a", "g"}
    assert report.replaced["a"] is isobit.torch.MultiheadAttention
    assert report.skipped == {
        "b": "Other has a forward of its own",
        "c": "in_proj_weight is of torch.complex64",
        "d": "PlainAttention is no torch.nn.MultiheadAttention",
        "f": "has a forward of its own, set on the module",
        "again": "is a",
    }
    assert repr(report).startswith("Isobit computes 1 norm and 1 attention\n  a: Multihead")
    assert patch(nn.Sequential(attention())).attention is None


def test_with_linear_layers_its_output_layer_is_the_attentions():
    model = nn.ModuleList([attention(), nn.Linear(WIDTH, WIDTH)])
    report = patch(model, linear=True, attention=True)
    assert report.attention == ["0"] and report.linear == ["1"] and report.skipped == {}
    assert "Isobit computes 0 norms, 1 linear layer and 1 attention" in repr(report)
    later = patch(model, linear=True)
    assert later.skipped == {"1": "is Isobit's already"}


def test_parametrizations_stay():
    class Doubled(nn.Module):
        def forward(self, weight):
            return 2 * weight

    module, x = attention(), draw(2, 5, WIDTH)
    parametrize.register_parametrization(module, "in_proj_weight", Doubled())
    theirs = module(x, x, x)
    report = patch(module, attention=True)
    assert report.attention == [""]
    torch.testing.assert_close(module(x, x, x), theirs)
    plain = attention()
    plain.load_state_dict(
        {
            "in_proj_weight": module.in_proj_weight,
            "in_proj_bias": module.in_proj_bias,
            "out_proj.weight": module.out_proj.weight,
            "out_proj.bias": module.out_proj.bias,
        }
    )
    assert bits(*module(x, x, x)) == bits(*reference(plain, x))
    report.restore()
    assert bits(*module(x, x, x)) == bits(*theirs)


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors:UserWarning")
def test_a_transformer_of_pytorch_takes_no_fast_path():
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(WIDTH, 2, 16, batch_first=True, dropout=0.0)
    model = nn.TransformerEncoder(layer, 2)
    x, padding = draw(3, 6, WIDTH), torch.zeros(3, 6, dtype=torch.bool)
    padding[:, 4:] = True

    def result(evaluated):
        model.train(not evaluated)
        with torch.inference_mode(evaluated):
            return bits(model(x), model(x, src_key_padding_mask=padding)[:, :4])

    theirs = result(True)
    report = patch(model, linear=True, attention=True)
    assert report.attention == ["layers.0.self_attn", "layers.1.self_attn"]
    assert report.skipped == {} and len(report.linear) == 4
    ours = result(True)
    assert ours == result(False)
    with torch.no_grad():
        alone = model.eval()(x[1:2, :4])
    assert bits(model(x, src_key_padding_mask=padding)[1:2, :4]) == bits(alone)
    report.restore()
    assert model.use_nested_tensor and result(True) == theirs != ours


def test_a_pytorch_decoder_layer():
    torch.manual_seed(0)
    model = nn.TransformerDecoderLayer(WIDTH, 2, 16, dropout=0.0)
    x, memory = draw(5, 2, WIDTH), draw(7, 2, WIDTH)
    mask = nn.Transformer.generate_square_subsequent_mask(5)
    options = {"tgt_mask": mask, "tgt_is_causal": True}
    theirs = model(x, memory, **options)
    report = patch(model, linear=True, attention=True)
    assert report.attention == ["self_attn", "multihead_attn"]
    ours = model(x, memory, **options)
    torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-5)
    first = model(x[:2], memory, tgt_mask=mask[:2, :2])
    assert bits(first) == bits(ours[:2])


@pytest.mark.filterwarnings("ignore:enable_nested_tensor is True:UserWarning")
def test_norms_that_linear_layers_compute_are_fused_with_those_of_attention():
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(WIDTH, 2, 16, dropout=0.0, norm_first=True)
    model = nn.TransformerEncoder(layer, 2)
    fused, results, x = copy.deepcopy(model), [], draw(5, 2, WIDTH)
    report = patch(fused, fuse=True, attention=True)
    patch(model, linear=True, attention=True)
    for each in (model, fused):
        y = each(x)
        y.square().sum().backward()
        results.append(bits(y, *(parameter.grad for parameter in each.parameters())))
    assert results[0] == results[1]
    assert report.fused == dict.fromkeys(report.fused, ("a linear layer",))
    assert len(report.fused) == 4
