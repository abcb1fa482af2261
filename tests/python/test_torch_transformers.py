# SPDX-License-Identifier: Apache-2.0
"""Hugging Face's models train with Isobit's norms and linear layers as with their own, and get
their own back."""

import copy
import pickle

import pytest
import torch
from torch_calls import bits

import isobit.torch
from isobit.torch import patch

SHAPE = {
    "vocab_size": 48,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 32,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}
T5_SHAPE = {
    "vocab_size": 48,
    "d_model": 32,
    "d_kv": 16,
    "d_ff": 48,
    "num_layers": 2,
    "num_heads": 2,
    "decoder_start_token_id": 0,
}
NO_DROPOUT = {"resid_pdrop": 0, "embd_pdrop": 0, "attn_pdrop": 0}
NO_DROPOUT_OF_BERT = {"hidden_dropout_prob": 0, "attention_probs_dropout_prob": 0}

# its configuration, the class of the model, how many norms and how many linear layers it has
MODELS = {
    "gpt2": (lambda hf: hf.GPT2Config(**SHAPE, **NO_DROPOUT), "GPT2LMHeadModel", 5, 9),
    "bert": (lambda hf: hf.BertConfig(**SHAPE, **NO_DROPOUT_OF_BERT), "BertForMaskedLM", 6, 14),
    "llama": (lambda hf: hf.LlamaConfig(**SHAPE), "LlamaForCausalLM", 5, 15),
    "gemma": (lambda hf: hf.GemmaConfig(**SHAPE), "GemmaForCausalLM", 5, 15),
    "t5": (
        *(lambda hf: hf.T5Config(**T5_SHAPE, dropout_rate=0), "T5ForConditionalGeneration"),
        *(12, 33),
    ),
}
TOKENS = torch.arange(24).reshape(2, 12) % 47 + 1

OPTIMISERS = {
    "SGD": lambda parameters: torch.optim.SGD(parameters, lr=0.1),
    "AdamW": lambda parameters: torch.optim.AdamW(parameters, lr=1e-3),
}


pytestmark = pytest.mark.usefixtures("one_thread")


of_models = pytest.mark.parametrize("name", MODELS)
with_linear = pytest.mark.parametrize("linear", [False, True], ids=["norms", "linear"])


def drawn(name):
    hf = pytest.importorskip("transformers", reason="transformers is not installed")
    config, model, *_ = MODELS[name]
    torch.manual_seed(0)
    return getattr(hf, model)(config(hf)).train()


def run(model):
    return model(input_ids=TOKENS, labels=TOKENS)


def gradients(model):
    """The loss, and those of all parameters."""
    model.zero_grad()
    loss = run(model).loss
    loss.backward()
    return loss.detach(), {name: each.grad for name, each in model.named_parameters()}


def trained(model, optimiser, steps=4):
    """The losses on the way."""
    optimiser = OPTIMISERS[optimiser](model.parameters())
    losses = []
    for _ in range(steps):
        losses.append(gradients(model)[0])
        optimiser.step()
    return torch.stack(losses)


@of_models
@with_linear
def test_a_model_is_replaced_whole_and_restored_to_the_bit(name, linear):
    model = drawn(name)
    before, expected = gradients(model)
    report = patch(model, linear=linear)
    _, _, norms, layers = MODELS[name]
    assert len(report.replaced) == norms + linear * layers and not report.skipped
    assert len(report.linear or ()) == linear * layers
    after, found = gradients(model)
    assert torch.allclose(after, before, rtol=1e-5)
    for key, gradient in found.items():
        largest = expected[key].abs().max().item()  # some, of keys' biases, are rounding errors
        assert torch.allclose(gradient, expected[key], rtol=1e-3, atol=1e-4 * largest + 1e-9), key
    report.restore()
    loss, restored = gradients(model)
    assert bits(loss, *restored.values()) == bits(before, *expected.values())


@of_models
@with_linear
@pytest.mark.parametrize("optimiser", OPTIMISERS)
def test_a_patched_model_trains_like_the_original_and_always_to_the_same_bits(
    name, linear, optimiser
):
    original = drawn(name)
    ours = [copy.deepcopy(original) for _ in range(2)]
    for model in ours:
        patch(model, linear=linear)
    theirs = trained(original, optimiser)
    once, again = (trained(model, optimiser) for model in ours)
    assert torch.allclose(once, theirs, rtol=1e-4) and once[-1] < once[0]
    assert bits(once) == bits(again)
    assert bits(*ours[0].parameters()) == bits(*ours[1].parameters())


@of_models
@with_linear
def test_a_model_of_16_bits_keeps_its_types(name, linear):
    model = drawn(name).bfloat16()
    with torch.no_grad():
        before = run(model).logits
        patch(model, linear=linear)
        after = run(model).logits
    assert after.dtype == before.dtype == torch.bfloat16
    assert torch.allclose(after.float(), before.float(), atol=0.02 * before.abs().max().item())


def test_layers_that_store_their_weights_by_columns_are_computed_as_they_lie():
    """Conv1D of GPT-2."""
    model = drawn("gpt2")
    layer = model.transformer.h[0].mlp.c_fc
    kind, weight = type(layer), layer.weight
    x = torch.randn(2, 3, SHAPE["hidden_size"])
    with patch(model, linear=True) as report:
        assert report.replaced["transformer.h.0.mlp.c_fc"].__name__ == "IsobitConv1D"
        assert isinstance(layer, kind) and layer.weight is weight
        assert bits(layer(x)) == bits(isobit.torch.linear(x, weight.t(), layer.bias))
        assert bits(layer(x[:, 0])) == bits(layer(x)[:, 0])
        copied = pickle.loads(pickle.dumps(layer))
        assert type(copied) is type(layer) and bits(copied(x)) == bits(layer(x))
    assert type(layer) is kind


def test_the_head_stays_tied_to_the_embedding():
    model = drawn("gpt2")
    patch(model, linear=True)
    assert isinstance(model.lm_head, isobit.torch.Linear)
    assert model.lm_head.weight is model.transformer.wte.weight
