# SPDX-License-Identifier: Apache-2.0
"""transformers' models with Isobit's attention: what they pass to it counts, and a text that grows
behind a cache has the bits that it has as a whole."""

import subprocess
import sys

import pytest
import torch
from torch_calls import bits, draw

import isobit.torch
from isobit.torch import patch, register_transformers_attention, transformers_attention

hf = pytest.importorskip("transformers", reason="transformers is not installed")

SHAPE = {
    "vocab_size": 48,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 64,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}
T5_SHAPE = {
    "vocab_size": 48,
    "d_model": 32,
    "d_kv": 16,
    "d_ff": 64,
    "num_layers": 2,
    "num_heads": 2,
    "decoder_start_token_id": 0,
}
EXPERTS = {"num_local_experts": 2, "num_experts_per_tok": 1, "sliding_window": 4}
WINDOW = {"sliding_window": 4, "layer_types": ["sliding_attention", "full_attention"]}
CAPPED = {"attn_logit_softcapping": 0.5, "query_pre_attn_scalar": 4}

# the configuration, and the class of the model
MODELS = {
    "llama": (lambda **sizes: hf.LlamaConfig(**SHAPE | sizes), "LlamaForCausalLM"),
    "gpt2": (lambda: hf.GPT2Config(**SHAPE), "GPT2LMHeadModel"),
    "gemma2": (lambda: hf.Gemma2Config(**SHAPE, **WINDOW, **CAPPED), "Gemma2ForCausalLM"),
    "mistral": (lambda: hf.MistralConfig(**SHAPE, sliding_window=4), "MistralForCausalLM"),
    "gpt_oss": (lambda: hf.GptOssConfig(**SHAPE, **EXPERTS), "GptOssForCausalLM"),
    "bert": (lambda: hf.BertConfig(**SHAPE), "BertForMaskedLM"),
    "t5": (lambda: hf.T5Config(**T5_SHAPE), "T5ForConditionalGeneration"),
}
TOKENS = torch.arange(24).reshape(2, 12) % 45 + 3
PADDING = torch.ones(2, 12, dtype=torch.long)
PADDING[1, :5] = 0


pytestmark = pytest.mark.usefixtures("one_thread")


def drawn(name, **sizes):
    config, model = MODELS[name]
    torch.manual_seed(0)
    made = config(**sizes)
    made._attn_implementation = "eager"
    model = getattr(hf, model)(made).eval()
    with torch.no_grad():  # weights of which attention has something to choose
        for key, each in model.named_parameters():
            if "norm" not in key and each.dim() > 1:
                torch.nn.init.normal_(each, std=0.3)
            if "sinks" in key:
                torch.nn.init.normal_(each)
    return model


def run(model, **more):
    given = {"decoder_input_ids": TOKENS[:, :7]} if model.config.is_encoder_decoder else {}
    return model(input_ids=TOKENS, **given, **more)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("padded", [False, True])
def test_a_model_computes_what_it_did(name, padded):
    model = drawn(name)
    more = {"attention_mask": PADDING} if padded else {}
    # A query of padding has no keys.
    there = slice(5 if padded and not model.config.is_encoder_decoder else 0, None)
    expected = run(model, **more).logits[:, there]
    (theirs,) = torch.autograd.grad(expected.square().mean(), [wanted := next(model.parameters())])
    report = patch(model, attention=True)
    assert report.models == [""] and report.attention == [] and report.skipped == {}
    assert model.config._attn_implementation == "isobit"
    found = run(model, **more).logits[:, there]
    scale = expected.abs().max().item()
    torch.testing.assert_close(found, expected, atol=2e-5 * scale, rtol=1e-4)
    (ours,) = torch.autograd.grad(found.square().mean(), [wanted])
    torch.testing.assert_close(ours, theirs, atol=2e-4 * theirs.abs().max().item(), rtol=1e-3)
    report.restore()
    assert model.config._attn_implementation == "eager"
    assert bits(run(model, **more).logits[:, there]) == bits(expected)


@pytest.mark.parametrize("name", ["llama", "gpt2", "gemma2", "mistral"])
@pytest.mark.parametrize("rotary", [False, True])
def test_a_text_behind_a_cache_has_the_bits_of_the_whole(name, rotary):
    """At these widths rows of PyTorch's silu are whole vectors, and have their bits anywhere."""
    model = drawn(name)
    patch(model, linear=True, attention=True, rotary=rotary)
    in_parts_and_whole(model)


def test_with_an_activation_of_isobits_it_does_at_any_width():
    model = drawn("llama", hidden_size=36, intermediate_size=50, head_dim=10)
    patch(model, linear=True, attention=True)
    for layer in model.model.layers:
        layer.mlp.act_fn = isobit.torch.SiLU()
    in_parts_and_whole(model)


def in_parts_and_whole(model):
    with torch.no_grad():
        whole, cache, parts = model(TOKENS).logits, None, []
        for start, end in ((0, 5), *((i, i + 1) for i in range(5, 10)), (10, 12)):
            step = model(TOKENS[:, start:end], past_key_values=cache, use_cache=True)
            cache = step.past_key_values
            parts.append(step.logits)
        assert bits(torch.cat(parts, 1)) == bits(whole)
        assert bits(model(TOKENS[:1]).logits) == bits(whole[:1])


@pytest.mark.parametrize("name", ["llama", "gpt2"])
@pytest.mark.parametrize("cache", [None, "static"])
def test_generation_gives_the_bits_of_the_whole_forward(name, cache):
    model = drawn(name)
    patch(model, linear=True, attention=True)
    options = {"do_sample": False, "max_new_tokens": 12, "eos_token_id": None}
    shown = {"return_dict_in_generate": True, "output_logits": True}
    more = {} if cache is None else {"cache_implementation": cache, "disable_compile": True}
    made = model.generate(TOKENS[:, :4], **options, **shown, **more)
    with torch.no_grad():
        whole = model(made.sequences).logits
    assert made.sequences.shape == (2, 16)
    assert bits(torch.stack(made.logits, 1)) == bits(whole[:, 3:-1])
    without = model.generate(TOKENS[:, :4], use_cache=False, **options)
    assert torch.equal(without, made.sequences)


def test_a_padded_prompt_has_the_bits_that_it_has_alone():
    model = drawn("llama")
    patch(model, linear=True, attention=True)
    places = (PADDING.cumsum(1) - 1).clamp(min=0)
    with torch.no_grad():
        padded = model(TOKENS, attention_mask=PADDING, position_ids=places).logits
        alone = model(TOKENS[1:, 5:]).logits
    assert bits(padded[1:, 5:]) == bits(alone)


@pytest.mark.parametrize("name", ["llama", "gemma2", "gpt_oss", "t5"])
def test_weights_are_eager_ones(name):
    model = drawn(name)
    key = "decoder_attentions" if name == "t5" else "attentions"
    expected = run(model, output_attentions=True)[key]
    patch(model, attention=True)
    found = run(model, output_attentions=True)[key]
    assert len(found) == 2
    torch.testing.assert_close(found, expected, atol=2e-5, rtol=1e-3)


def test_a_configuration_may_ask_for_it():
    register_transformers_attention()
    config = MODELS["llama"][0]()
    model = hf.AutoModelForCausalLM.from_config(config, attn_implementation="isobit").eval()
    patched = drawn("llama")
    patched.load_state_dict(model.state_dict())
    patch(patched, attention=True)
    with torch.no_grad():
        patch(model)
        assert bits(model(TOKENS).logits) == bits(patched(TOKENS).logits)
    again = patch(patched, attention=True)
    assert again.models == [] and again.skipped[""] == "has Isobit's attention already"


def test_a_model_inside_of_another_and_one_that_cannot(monkeypatch):
    inner, outer = drawn("bert"), torch.nn.Module()
    outer.text, outer.other = inner, drawn("gpt2")
    outer.attention = torch.nn.MultiheadAttention(8, 2)
    monkeypatch.setattr(type(outer.other), "_can_set_attn_implementation", lambda: False)
    report = patch(outer, attention=True)
    assert report.models == ["text"] and report.attention == ["attention"]
    reason = "GPT2LMHeadModel computes attention without transformers' AttentionInterface"
    assert report.skipped == {"other": reason}
    assert "  text: attn_implementation is 'isobit'" in repr(report)
    assert "1 attention and the attention of 1 model" in repr(report)
    assert outer.other.config._attn_implementation == "eager"
    report.restore()
    assert inner.config._attn_implementation == "eager"


@pytest.mark.parametrize("name", ["llama", "gpt2"])
def test_a_model_has_the_arithmetic_that_it_is_patched_with(name):
    """On the CPU, which has it of bfloat16 alone."""
    model = drawn(name).to(torch.bfloat16)
    with torch.no_grad():
        theirs = run(model).logits
        with patch(model, attention=True, arithmetic="tensor") as report:
            assert model.config._attn_implementation == "isobit_tensor"
            assert "attn_implementation is 'isobit_tensor'" in repr(report)
            ours = run(model).logits
            assert ours.isfinite().all() and bits(ours) != bits(theirs)
            again = patch(model, attention=True)
            assert again.models == [] and again.skipped[""] == "has Isobit's attention already"
        assert model.config._attn_implementation == "eager"
        assert bits(run(model).logits) == bits(theirs)
        register_transformers_attention()
        model.set_attn_implementation("isobit_tensor")
        assert bits(run(model).logits) == bits(ours)
        with pytest.raises(RuntimeError, match="attention: arithmetic tensor needs bf16 on"):
            run(model.half())


class Module(torch.nn.Module):
    is_causal = True


def attended(*given, **more):
    return transformers_attention.attention_forward(Module(), *given, **more)


def test_what_is_passed_counts():
    q, k, v = draw(2, 4, 5, 8), draw(2, 2, 5, 8), draw(2, 2, 5, 8, seed=1)
    ours = isobit.torch.scaled_dot_product_attention
    shared = {"enable_gqa": True}
    for mask, options, expected in (
        (None, {}, {"is_causal": True}),
        (None, {"is_causal": False}, {}),
        (None, {"scaling": 0.3, "softcap": 2.0}, {"is_causal": True, "scale": 0.3, "softcap": 2.0}),
        (torch.eye(5, dtype=torch.bool), {}, {"attn_mask": torch.eye(5, dtype=torch.bool)}),
        (draw(5, 5), {"softcap": None}, {"attn_mask": draw(5, 5)}),
    ):
        y, weights = attended(q, k, v, mask, **options)
        assert weights is None
        assert bits(y) == bits(ours(q, k, v, **expected, **shared).transpose(1, 2))
    alone, _ = attended(q[:, :, -1:], k, v, None)
    assert bits(alone) == bits(attended(q, k, v, None)[0][:, -1:])
    torch.manual_seed(2)
    dropped, weights = attended(q, k, v, None, dropout=0.5, output_attentions=True)
    repeated = v.repeat_interleave(2, 1)
    torch.testing.assert_close(dropped, (weights @ repeated).transpose(1, 2))
    assert 0.5 < (weights == 0).float().mean() < 0.9  # of which causality takes 0.4
    with pytest.raises(NotImplementedError, match="paged caches are not supported"):
        attended(q, k, v, None, cache=object())
    assert bits(attended(q, k, v, None, arithmetic="canonical")[0]) == bits(
        attended(q, k, v, None)[0]
    )
    with pytest.raises(ValueError, match="arithmetic is 'fast'; allowed"):
        attended(q, k, v, None, arithmetic="fast")
    narrow = [each.half() for each in (q, k, v)]
    for more in ({}, {"cu_seq_lens_q": torch.tensor([0, 10])}):
        with pytest.raises(RuntimeError, match="attention: arithmetic tensor needs bf16 on"):
            attended(*narrow, None, arithmetic="tensor", **more)


LENGTHS = (5, 1, 6)
PLACES = torch.cat([torch.arange(length) for length in LENGTHS])[None]
PACKED = {"cu_seq_lens_q": torch.tensor([0, 5, 6, 12], dtype=torch.int32), "max_length_q": 6}
PACKED |= {"cu_seq_lens_k": PACKED["cu_seq_lens_q"], "max_length_k": 6}


@pytest.mark.parametrize("name", ["llama", "mistral", "gemma2", "gpt_oss"])
@pytest.mark.parametrize("use_cache", [False, True])
def test_packed_sequences_have_the_bits_that_they_have_alone(name, use_cache):
    model, tokens = drawn(name), TOKENS[:1]
    patch(model, linear=True, attention=True)
    with torch.no_grad():
        whole = model(tokens, position_ids=PLACES, use_cache=use_cache, **PACKED).logits
        alone = torch.cat([model(each).logits for each in tokens.split(LENGTHS, 1)], 1)
    if name == "gpt_oss":  # whose experts are products of PyTorch
        torch.testing.assert_close(whole, alone, atol=1e-4, rtol=1e-4)
    else:
        assert bits(whole) == bits(alone)


def test_packed_sequences_have_the_gradients_of_a_mask_between_them():
    model, tokens = drawn("llama"), TOKENS[:1]
    patch(model, attention=True)
    found = []
    for more in (PACKED, {}):  # without a cache transformers tells sequences by their positions
        y = model(tokens, position_ids=PLACES, use_cache=False, **more).logits
        found.append(torch.autograd.grad(y.square().mean(), [*model.parameters()]))
    torch.testing.assert_close(*found, atol=1e-4, rtol=1e-3)


def test_packed_sequences_that_are_passed_count():
    q, k, v = draw(2, 4, 6, 8), draw(2, 2, 6, 8), draw(2, 2, 6, 8, seed=1)
    ends = torch.tensor([0, 5, 6, 12])
    rows = [each.transpose(1, 2).flatten(0, 1) for each in (q, k, v)]
    options = {"window": 3, "softcap": 2.0, "scale": 0.3, "enable_gqa": True}
    expected = isobit.torch.varlen_attention(*rows, ends, causal="bottom_right", **options)
    given = {"scaling": 0.3, "softcap": 2.0, "sliding_window": 3, "cu_seq_lens_q": ends}
    y, weights = attended(q, k, v, None, **given)
    assert weights is None and bits(y.flatten(0, 1)) == bits(expected)
    both = isobit.torch.varlen_attention(*rows, ends, **options)
    assert bits(attended(q, k, v, None, is_causal=False, **given)[0].flatten(0, 1)) == bits(both)
    torch.manual_seed(3)
    y, _ = attended(q, k, v, None, dropout=0.5, **given)
    torch.manual_seed(3)
    options |= {"causal": "bottom_right", "dropout_p": 0.5}
    assert bits(y.flatten(0, 1)) == bits(isobit.torch.varlen_attention(*rows, ends, **options))
    sinks = draw(4)
    y, _ = attended(q, k, v, None, s_aux=sinks, cu_seq_lens_q=torch.tensor([0, 6, 12]))
    torch.testing.assert_close(y, attended(q, k, v, None, s_aux=sinks)[0])


def test_a_mask_beside_packed_sequences_may_only_say_the_same():
    q, k, v = draw(1, 4, 6, 8), draw(1, 2, 6, 8), draw(1, 2, 6, 8, seed=1)
    given = {"cu_seq_lens_q": torch.tensor([0, 2, 5]), "sliding_window": 2}
    whole = torch.ones(6, 6, dtype=torch.bool).tril().triu(-1)[None, None]
    own = torch.block_diag(torch.ones(2, 2), torch.ones(3, 3), torch.ones(1, 1)).bool()
    expected, _ = attended(q, k, v, None, **given)
    for mask in (whole, whole & own):
        assert bits(attended(q, k, v, mask, **given)[0]) == bits(expected)
    padded, wide = whole.clone(), whole.clone()
    padded[..., 3, 2], wide[..., 4, 2] = False, True
    for mask in (padded, wide, draw(1, 1, 6, 6)):
        with pytest.raises(ValueError, match="attention_mask allows other keys of a sequence"):
            attended(q, k, v, mask, **given)
    with pytest.raises(ValueError, match="are given for a batch of 2; must be 1"):
        attended(*[each.expand(2, -1, -1, -1) for each in (q, k, v)], whole, **given)
    for name, value in (("output_attentions", True), ("position_bias", draw(1, 4, 6, 6))):
        with pytest.raises(NotImplementedError, match=f"{name} and cu_seq_lens_q are given"):
            attended(q, k, v, None, **{name: value}, **given)
    with pytest.raises(ValueError, match="cu_seq_lens_k is given without cu_seq_lens_q"):
        attended(q, k, v, None, cu_seq_lens_k=given["cu_seq_lens_q"])


def test_transformers_is_not_imported_before_it_is_asked_for():
    script = (
        "import sys, torch, isobit.torch as it; it.patch(torch.nn.Linear(2, 2), attention=True);"
        "assert 'transformers' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


def test_the_parameters_of_self_attention_are_those_of_llamas():
    from transformers.models.llama.modeling_llama import LlamaAttention, LlamaRotaryEmbedding

    config = hf.LlamaConfig(
        hidden_size=32, num_attention_heads=4, num_key_value_heads=2, attn_implementation="eager"
    )
    theirs = LlamaAttention(config, 0)
    options = {"bias": False, "causal": True, "rotary": isobit.torch.RotaryEmbedding(8)}
    ours = isobit.torch.SelfAttention(32, 4, 2, **options)
    ours.load_state_dict(theirs.state_dict())
    x, places = draw(2, 9, 32), torch.arange(9)
    tables = LlamaRotaryEmbedding(config)(x, places[None])
    mask = torch.zeros(9, 9).masked_fill(places > places[:, None], -torch.inf)
    y, _ = theirs(x, position_embeddings=tables, attention_mask=mask)
    torch.testing.assert_close(ours(x), y, atol=1e-5, rtol=1e-5)
