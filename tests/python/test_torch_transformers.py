# SPDX-License-Identifier: Apache-2.0
"""Hugging Face's models train with Isobit's norms as with their own, and get their own back."""

import copy

import pytest
import torch
from torch_calls import bits

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

# its configuration, the class of the model, how many norms it has
MODELS = {
    "gpt2": (lambda hf: hf.GPT2Config(**SHAPE, **NO_DROPOUT), "GPT2LMHeadModel", 5),
    "bert": (lambda hf: hf.BertConfig(**SHAPE, **NO_DROPOUT_OF_BERT), "BertForMaskedLM", 6),
    "llama": (lambda hf: hf.LlamaConfig(**SHAPE), "LlamaForCausalLM", 5),
    "gemma": (lambda hf: hf.GemmaConfig(**SHAPE), "GemmaForCausalLM", 5),
    "t5": (lambda hf: hf.T5Config(**T5_SHAPE, dropout_rate=0), "T5ForConditionalGeneration", 12),
}
TOKENS = torch.arange(24).reshape(2, 12) % 47 + 1

OPTIMISERS = {
    "SGD": lambda parameters: torch.optim.SGD(parameters, lr=0.1),
    "AdamW": lambda parameters: torch.optim.AdamW(parameters, lr=1e-3),
}


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    """At these sizes threads take longer to meet than to compute."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


of_models = pytest.mark.parametrize("name", MODELS)


def drawn(name):
    hf = pytest.importorskip("transformers", reason="transformers is not installed")
    config, model, _ = MODELS[name]
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
def test_a_model_is_replaced_whole_and_restored_to_the_bit(name):
    model = drawn(name)
    before, expected = gradients(model)
    report = patch(model)
    assert len(report.replaced) == MODELS[name][2] and not report.skipped
    after, found = gradients(model)
    assert torch.allclose(after, before, rtol=1e-5)
    for key, gradient in found.items():
        largest = expected[key].abs().max().item()  # some, of keys' biases, are rounding errors
        assert torch.allclose(gradient, expected[key], rtol=1e-3, atol=1e-4 * largest + 1e-9), key
    report.restore()
    loss, restored = gradients(model)
    assert bits(loss, *restored.values()) == bits(before, *expected.values())


@of_models
@pytest.mark.parametrize("optimiser", OPTIMISERS)
def test_a_patched_model_trains_like_the_original_and_always_to_the_same_bits(name, optimiser):
    original = drawn(name)
    ours = [copy.deepcopy(original) for _ in range(2)]
    for model in ours:
        patch(model)
    theirs = trained(original, optimiser)
    once, again = (trained(model, optimiser) for model in ours)
    assert torch.allclose(once, theirs, rtol=1e-4) and once[-1] < once[0]
    assert bits(once) == bits(again)
    assert bits(*ours[0].parameters()) == bits(*ours[1].parameters())


@of_models
def test_a_model_of_16_bits_keeps_its_types(name):
    model = drawn(name).bfloat16()
    with torch.no_grad():
        before = run(model).logits
        patch(model)
        after = run(model).logits
    assert after.dtype == before.dtype == torch.bfloat16
    assert torch.allclose(after.float(), before.float(), atol=0.02 * before.abs().max().item())
