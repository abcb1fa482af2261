# SPDX-License-Identifier: Apache-2.0
"""Hugging Face's models, converted: what is Isobit's of them, what remains, and the way back."""

import pytest
import torch
from torch_calls import bits

import isobit.torch
from isobit.torch import Unreproducible

TOKENS = torch.arange(24).reshape(2, 12) % 47 + 1
TEXT = {"input_ids": TOKENS, "labels": TOKENS}
IMAGES = {
    "pixel_values": (torch.arange(2 * 3 * 32 * 32) % 91 / 90).reshape(2, 3, 32, 32),
    "labels": torch.tensor([0, 1]),
}
SHAPE = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
}
WORDS = {
    "vocab_size": 48,
    "max_position_embeddings": 32,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}
NO_DROPOUT = {"resid_pdrop": 0, "embd_pdrop": 0, "attn_pdrop": 0}
NO_DROPOUT_OF_BERT = {"hidden_dropout_prob": 0, "attention_probs_dropout_prob": 0}
CONVOLVED = {"embedding_size": 8, "hidden_sizes": [8, 16], "depths": [1, 1], "layer_type": "basic"}

TURNED = {("aten.cos", False), ("aten.sin", False)}
EMBEDDED = ("aten.embedding_dense_backward", True)
NORMALISED = {("aten.native_batch_norm", False), ("aten.native_batch_norm_backward", True)}

BY_MODULES = {EMBEDDED, *NORMALISED}  # what remains where their modules stay PyTorch's

# configuration, model, inputs, how many other modules are Isobit's, its functions, what remains of
# PyTorch's: (operation, whether backward)
MODELS = {
    "gpt2": (
        lambda hf: hf.GPT2Config(**SHAPE, **WORDS, **NO_DROPOUT),
        *("GPT2LMHeadModel", TEXT, 16, {"torch.nn.functional.cross_entropy"}),
        {EMBEDDED},
    ),
    "llama": (
        lambda hf: hf.LlamaConfig(**SHAPE, **WORDS, num_key_value_heads=2, head_dim=16),
        *("LlamaForCausalLM", TEXT, 20),
        {"torch.nn.functional.silu", "torch.nn.functional.cross_entropy"},
        {EMBEDDED, *TURNED},
    ),
    "bert": (
        lambda hf: hf.BertConfig(**SHAPE, **WORDS, **NO_DROPOUT_OF_BERT),
        *("BertForMaskedLM", TEXT, 23),
        {"torch.nn.functional.cross_entropy"},
        {EMBEDDED},
    ),
    "vit": (
        lambda hf: hf.ViTConfig(**SHAPE, image_size=32, patch_size=8),
        *("ViTForImageClassification", IMAGES, 21),
        {"torch.nn.functional.cross_entropy"},
        set(),
    ),
    "resnet": (
        lambda hf: hf.ResNetConfig(**CONVOLVED),
        *("ResNetForImageClassification", IMAGES, 9, {"torch.nn.functional.cross_entropy"}),
        NORMALISED,
    ),
}

pytestmark = [
    pytest.mark.usefixtures("one_thread"),
    pytest.mark.filterwarnings("ignore:`gradient_checkpointing_enable`"),
]
of_models = pytest.mark.parametrize("name", MODELS)


@pytest.fixture
def convert():
    """isobit.torch.convert, undone after the test: models share functions of their modules."""
    reports = []

    def converted(model, **how):
        reports.append(isobit.torch.convert(model, **how))
        return reports[-1]

    yield converted
    for each in reports:
        each.restore()


def drawn(name):
    hf = pytest.importorskip("transformers", reason="transformers is not installed")
    config, model, *_ = MODELS[name]
    torch.manual_seed(0)
    return getattr(hf, model)(config(hf)).train()


def step(name, model):
    """The loss, and the bits of it and of all gradients."""
    model.zero_grad()
    loss = model(**MODELS[name][2]).loss
    loss.backward()
    grads = (each.grad for each in model.parameters() if each.grad is not None)
    return loss.detach(), bits(loss, *grads)


@of_models
def test_a_model_is_converted_trains_and_comes_back(name, convert):
    *_, inputs, modules, functions, remaining = MODELS[name]
    model = drawn(name)
    state = {key: value.clone() for key, value in model.state_dict().items()}
    kinds = [type(each) for each in model.modules()]
    plain, before = step(name, model)
    model.load_state_dict(state)  # running statistics
    report = convert(model).run(**inputs)
    classes = [each.__name__ for each in report.patched.replaced.values()]
    classes = [each for each in classes if "Dropout" not in each]  # of 0 in most
    later = sum("Embedding" in each or "BatchNorm" in each for each in classes)
    assert len(classes) - later == modules and report.skipped == {}
    assert {each.function for each in report.functions} == functions
    remains = {(each.operation, each.backward) for each in report.remaining}
    assert remains == remaining - (BY_MODULES if later else set())
    assert all("modeling_" in each.place for each in report.remaining)
    ours, found = step(name, model)
    assert torch.allclose(ours, plain, rtol=1e-4)
    model.load_state_dict(state)
    assert step(name, model)[1] == found
    report.restore()
    model.load_state_dict(state)
    assert [type(each) for each in model.modules()] == kinds and step(name, model)[1] == before


@of_models
def test_strict_refuses_a_model_by_what_remains_of_it(name, convert):
    model = drawn(name)
    report = convert(model).run(**MODELS[name][2])
    operations = {each.operation for each in report.remaining}
    report.restore()
    convert(model, strict=True)
    if not operations:
        step(name, model)
        return
    with pytest.raises(Unreproducible) as refused:
        step(name, model)
    assert any(f"convert: {each} (" in str(refused.value) for each in operations)
    assert "modeling_" in str(refused.value)


@pytest.mark.parametrize("name", ["gpt2", "llama", "bert"])
def test_checkpoints_of_transformers_compute_again_with_isobit(name, convert):
    model = drawn(name)
    convert(model)
    expected = step(name, model)[1]
    model.gradient_checkpointing_enable()
    assert step(name, model)[1] == expected


def test_a_model_generates_the_same_tokens_converted_and_is_saved_under_its_own_name(
    tmp_path, convert
):
    model = drawn("llama").eval()
    convert(model)
    with torch.no_grad():
        tokens = model.generate(TOKENS[:1, :4], max_new_tokens=6, do_sample=False)
        logits = model(tokens).logits
    assert bits(logits[:, 3:-1].argmax(-1)) == bits(tokens[:, 4:])
    model.save_pretrained(tmp_path)
    again = type(drawn("llama")).from_pretrained(tmp_path)
    assert again.config.architectures == ["LlamaForCausalLM"]
    convert(again.eval())
    with torch.no_grad():
        assert bits(again(tokens).logits) == bits(logits)
