# SPDX-License-Identifier: Apache-2.0
"""Rotary embeddings of isobit.numpy and isobit.torch: the same bits, their derivatives, what they
refuse, and what transformers does."""

import sys
import types

import numpy as np
import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

import isobit.numpy as of_numpy
from isobit._frequencies import inverse_frequencies
from isobit.torch import RotaryEmbedding, apply_rotary, patch, rotary_tables

POSITIONS = 16
STYLES = ["half", "interleaved"]


def drawn(*shape, dtype=torch.float32, seed=0):
    made = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=made, dtype=torch.float64).to(dtype)


def complex_form(x, angles, style):
    """By multiplication of complex numbers, in float64."""
    turn = torch.polar(torch.ones_like(angles), angles)[None, :, None, :]
    pairs = x.double()
    if style == "half":
        pairs = pairs.unflatten(-1, (2, -1)).transpose(-1, -2)
    else:
        pairs = pairs.unflatten(-1, (-1, 2))
    y = torch.view_as_real(torch.view_as_complex(pairs.contiguous()) * turn)
    return y.transpose(-1, -2).flatten(-2) if style == "half" else y.flatten(-2)


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64])
def test_it_is_the_complex_form(style, dtype):
    q, k = drawn(2, 5, 4, 12, dtype=dtype), drawn(2, 5, 2, 12, dtype=dtype, seed=1)
    real = torch.float64 if dtype == torch.float64 else torch.float32
    cos, sin = rotary_tables(POSITIONS, 12, dtype=real)
    found = apply_rotary(q, k, cos=cos, sin=sin, style=style, offset=3)
    frequencies = torch.tensor(inverse_frequencies(12)[0], dtype=torch.float64)
    angles = torch.arange(3, 8, dtype=torch.float64)[:, None] * frequencies
    for x, y in zip((q, k), found, strict=True):
        assert y.dtype == dtype
        tolerance = 4 * torch.finfo(dtype).eps
        torch.testing.assert_close(
            y.double(), complex_form(x, angles, style), atol=tolerance, rtol=tolerance
        )


@pytest.mark.parametrize("style", STYLES)
def test_numpy_and_torch_have_the_same_bits(style):
    q, k = drawn(2, 5, 4, 14), drawn(2, 5, 2, 14, seed=1)
    cos, sin = rotary_tables(POSITIONS, 10)
    there = of_numpy.rotary_tables(POSITIONS, 10)
    assert np.array_equal(cos.numpy(), there[0]) and np.array_equal(sin.numpy(), there[1])
    ids = torch.tensor([[3, 1, 4, 1, 5], [9, 2, 6, 5, 3]])
    ours = apply_rotary(q, k, cos=cos, sin=sin, position_ids=ids, style=style, offset=6)
    theirs = of_numpy.apply_rotary(
        q.numpy(), k.numpy(), position_ids=ids.numpy(), style=style, offset=6, rotary_dim=10
    )
    for mine, other in zip(ours, theirs, strict=True):
        assert np.array_equal(mine.numpy(), other)


def test_frequencies_are_the_librarys_own():
    for dim in (2, 10, 64, 128):
        for base in (1.0, 10000.0, 500000.0):
            given = np.array(inverse_frequencies(dim, base)[0])
            for offset in (0, 2**24 - 4):
                mine = of_numpy.rotary_tables(4, dim, inv_freq=given, offset=offset)
                own = of_numpy.rotary_tables(4, dim, base=base, offset=offset)
                assert all(np.array_equal(a, b) for a, b in zip(mine, own, strict=True))


def test_layouts_packed_buffers_and_places_give_the_same_bits():
    packed = drawn(2, 5, 3, 4, 12)
    q, k = packed[:, :, 0].clone(), packed[:, :, 1].clone()
    cos, sin = rotary_tables(POSITIONS, 12)
    y_q, y_k = apply_rotary(q, k, cos=cos, sin=sin)
    heads_first = apply_rotary(q.transpose(1, 2), cos=cos, sin=sin, layout="bhsd")
    assert torch.equal(heads_first.transpose(1, 2), y_q)
    at = packed.data_ptr()
    apply_rotary(packed[:, :, 0], packed[:, :, 1], cos=cos, sin=sin, inplace=True)
    assert packed.data_ptr() == at
    assert torch.equal(packed[:, :, 0], y_q) and torch.equal(packed[:, :, 1], y_k)


def test_sequences_one_after_the_other():
    x, ends = drawn(9, 4, 12), torch.tensor([0, 4, 4, 9], dtype=torch.int32)
    cos, sin = rotary_tables(POSITIONS, 12)
    y = apply_rotary(x, cos=cos, sin=sin, cu_seqlens=ends)
    for first, last in ((0, 4), (4, 9)):
        alone = apply_rotary(x[None, first:last], cos=cos, sin=sin)
        assert torch.equal(y[first:last], alone[0])
    assert np.array_equal(y, of_numpy.apply_rotary(x.numpy(), cu_seqlens=ends.numpy()))
    for wrong, words in (([0, 5, 4, 9], "falls from 5 to 4"), ([0, 8], "from 0 to 9")):
        with pytest.raises(ValueError, match=words):
            apply_rotary(x, cos=cos, sin=sin, cu_seqlens=torch.tensor(wrong))
        with pytest.raises(ValueError, match=words):
            of_numpy.apply_rotary(x.numpy(), cu_seqlens=np.array(wrong))


@pytest.mark.parametrize("wrong", [-1, POSITIONS, 2**62])
def test_a_position_without_a_table_is_refused(wrong):
    cos, sin = rotary_tables(POSITIONS, 12)
    with pytest.raises(ValueError, match=f"positions.0, 1. is {wrong}"):
        apply_rotary(drawn(1, 2, 1, 12), cos=cos, sin=sin, position_ids=torch.tensor([0, wrong]))


@pytest.mark.parametrize("style", STYLES)
def test_derivatives(style):
    q = drawn(2, 3, 2, 6, dtype=torch.float64).requires_grad_()
    k = drawn(2, 3, 1, 6, dtype=torch.float64, seed=1).requires_grad_()
    cos, sin = rotary_tables(POSITIONS, 4, dtype=torch.float64)

    def turned(q, k):
        return apply_rotary(q, k, cos=cos, sin=sin, style=style, offset=2)

    torch.autograd.gradcheck(turned, (q, k), check_forward_ad=True)
    torch.autograd.gradgradcheck(turned, (q, k))

    def in_place(q):
        return apply_rotary(q.clone(), cos=cos, sin=sin, style=style, inplace=True)

    torch.autograd.gradcheck(in_place, (q,))
    with pytest.raises(RuntimeError, match="leaf"):
        apply_rotary(q, cos=cos, sin=sin, inplace=True)


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("wanted", ["q", "k"])
def test_one_gradient_may_be_wanted_alone(wanted, style):
    given = {"q": drawn(2, 3, 4, 8), "k": drawn(2, 3, 2, 8, seed=1)}
    cos, sin = rotary_tables(POSITIONS, 6)
    turn = {"cos": cos, "sin": sin, "style": style, "offset": 2}

    def gradients(*names):
        """What a loss that takes both turns back to the inputs that require it."""
        inputs = {n: x.clone().requires_grad_(n in names) for n, x in given.items()}
        y_q, y_k = apply_rotary(inputs["q"], inputs["k"], **turn)
        loss = (y_q * drawn(*y_q.shape, seed=2)).sum() + (y_k * drawn(*y_k.shape, seed=3)).sum()
        loss.backward()
        return {name: x.grad for name, x in inputs.items()}

    alone, both = gradients(wanted), gradients("q", "k")
    other = "k" if wanted == "q" else "q"
    assert alone[other] is None and torch.equal(alone[wanted], both[wanted])
    assert not torch.equal(both[wanted], torch.zeros_like(both[wanted]))
    # A loss that takes but one of both outputs leaves the other's gradient zero.
    leaves = {name: x.clone().requires_grad_() for name, x in given.items()}
    used = dict(zip("qk", apply_rotary(leaves["q"], leaves["k"], **turn), strict=True))[wanted]
    (used * drawn(*used.shape, seed=2 if wanted == "q" else 3)).sum().backward()
    assert torch.equal(leaves[wanted].grad, both[wanted])
    unused = leaves[other].grad
    assert unused is None or not unused.any()


def test_the_operator_keeps_torchs_rules():
    q, k = drawn(2, 3, 2, 6).requires_grad_(), drawn(2, 3, 1, 6, seed=1).requires_grad_()
    cos, sin = rotary_tables(POSITIONS, 6)
    operator = torch.ops.isobit.rope.default
    torch.library.opcheck(operator, (q, k, cos, sin, None, 1, 2))
    torch.library.opcheck(operator, (q, None, cos, sin, torch.tensor([3, 1, 2])))
    in_place = torch.ops.isobit.rope_.default
    torch.library.opcheck(in_place, (q.detach().clone(), k.detach().clone(), cos, sin))
    frequencies = torch.ones(3, dtype=torch.float64)
    torch.library.opcheck(torch.ops.isobit.rope_tables.default, (frequencies, 4))


def test_vmap_and_autocast():
    x = drawn(3, 2, 5, 2, 6)
    cos, sin = rotary_tables(POSITIONS, 6)
    each = torch.vmap(lambda q: apply_rotary(q, cos=cos, sin=sin))(x)
    assert torch.equal(each, torch.stack([apply_rotary(q, cos=cos, sin=sin) for q in x]))
    with torch.autocast("cpu", torch.bfloat16):
        assert apply_rotary(x[0], cos=cos, sin=sin).dtype == torch.float32


def test_the_module_has_the_same_bits_compiled_and_however_its_tables_grow():
    q, k = drawn(2, 5, 4, 12), drawn(2, 5, 2, 12, seed=1)
    module = RotaryEmbedding(12)
    cos, sin = rotary_tables(64, 12)
    expected = apply_rotary(q, k, cos=cos, sin=sin, offset=7)
    ids = torch.arange(7, 12)
    compiled = torch.compile(module, fullgraph=True, backend="aot_eager")
    ways = [module(q, k, offset=7), module(q, k, position_ids=ids), compiled(q, k, offset=7)]
    module(drawn(1, 40, 1, 12))
    ways += [module(q, k, offset=7), compiled(q, k, position_ids=ids)]
    for found in ways:
        assert all(map(torch.equal, found, expected))


def test_a_module_that_was_evaluated_in_inference_mode_can_be_trained():
    x, module = drawn(1, 5, 2, 8), RotaryEmbedding(8)
    with torch.inference_mode():
        expected, made_inside = module(x), RotaryEmbedding(8)
    for each in (module, made_inside):
        q = x.clone().requires_grad_()
        found = each(q)
        assert torch.equal(found, expected)
        found.sum().backward()
        assert q.grad.isfinite().all()


def test_a_module_computes_after_it_was_made_on_meta_or_called_with_fake_tensors():
    x, expected = drawn(1, 5, 2, 8), RotaryEmbedding(8)(drawn(1, 5, 2, 8))
    with torch.device("meta"):
        modules = [torch.nn.Sequential(RotaryEmbedding(8)), RotaryEmbedding(8, device="meta")]
        rotary_tables(3, 8, base=77)
    modules[0].to_empty(device="cpu")
    assert rotary_tables(3, 8, base=77)[0].device.type == "cpu"
    modules.append(RotaryEmbedding(8))
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        modules[2](mode.from_tensor(x))
        rotary_tables(3, 8, base=78)
    assert type(rotary_tables(3, 8, base=78)[0]) is torch.Tensor
    assert modules[1](x.to("meta")).is_meta
    for each in modules:
        found = each(x)
        assert type(found) is torch.Tensor and torch.equal(found, expected)


def test_what_is_no_choice_is_refused():
    x = drawn(1, 2, 1, 4)
    cos, sin = rotary_tables(4, 4)
    with pytest.raises(ValueError, match="style is 'full'"):
        apply_rotary(x, cos=cos, sin=sin, style="full")
    with pytest.raises(ValueError, match="layout is 'sbhd'"):
        of_numpy.apply_rotary(x.numpy(), layout="sbhd")
    table = torch.ones(2, 4, 4)
    with pytest.raises(ValueError, match="apply_rotary: cos has 3 dimensions; must have 2"):
        apply_rotary(drawn(2, 4, 2, 8), cos=table, sin=table)
    with pytest.raises(ValueError, match="q has 3 dimensions; must have 4"):
        apply_rotary(x[0], cos=cos, sin=sin)
    with pytest.raises(ValueError, match="rope_type is 'su'"):
        inverse_frequencies(4, scaling={"rope_type": "su"})
    with pytest.raises(ValueError, match="linear scaling lacks factor"):
        inverse_frequencies(4, scaling={"rope_type": "linear"})


SCALINGS = [
    {"rope_type": "linear", "factor": 4.0},
    {"rope_type": "dynamic", "factor": 2.0},
    {"rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": 4096},
    {
        **{"rope_type": "llama3", "factor": 8.0, "original_max_position_embeddings": 8192},
        **{"low_freq_factor": 1.0, "high_freq_factor": 4.0},
    },
]


@pytest.mark.parametrize("scaling", SCALINGS, ids=lambda each: each["rope_type"])
def test_frequencies_are_scaled_as_transformers_does(scaling):
    rope_utils = pytest.importorskip("transformers.modeling_rope_utils")
    from transformers import LlamaConfig

    config = LlamaConfig(
        **{"hidden_size": 512, "num_attention_heads": 4, "head_dim": 128},
        **{"max_position_embeddings": 32768, "rope_parameters": scaling | {"rope_theta": 5e5}},
    )
    theirs, factor = rope_utils.ROPE_INIT_FUNCTIONS[scaling["rope_type"]](
        config, None, seq_len=50000
    )
    ours, our_factor = inverse_frequencies(
        128, 5e5, scaling | {"max_position_embeddings": 32768}, 50000
    )
    torch.testing.assert_close(torch.tensor(ours).float(), theirs, rtol=1e-6, atol=0)
    assert our_factor == pytest.approx(factor, rel=1e-12)


def test_patch_turns_by_the_models_own_tables():
    transformers = pytest.importorskip("transformers")
    from transformers.models.llama import modeling_llama

    config = transformers.LlamaConfig(
        **{"hidden_size": 32, "num_attention_heads": 4, "num_key_value_heads": 2},
        **{"num_hidden_layers": 1, "intermediate_size": 32, "vocab_size": 16},
    )
    model = transformers.LlamaModel(config).eval()
    tokens, original = torch.arange(10).view(2, 5), modeling_llama.apply_rotary_pos_emb
    before = model(tokens).last_hidden_state
    with patch(model, rotary=True) as report:
        assert report.rotary == ["transformers.models.llama.modeling_llama"]
        assert "apply_rotary" in repr(report)
        torch.testing.assert_close(model(tokens).last_hidden_state, before, atol=1e-5, rtol=1e-4)
        q, k, angles = drawn(2, 4, 5, 8), drawn(2, 2, 5, 8, seed=1), drawn(5, 4, seed=2)
        cos, sin = angles.cos(), angles.sin()
        found = modeling_llama.apply_rotary_pos_emb(
            q, k, torch.cat((cos, cos), -1)[None], torch.cat((sin, sin), -1)[None]
        )
        assert all(map(torch.equal, found, apply_rotary(q, k, cos=cos, sin=sin, layout="bhsd")))
    assert modeling_llama.apply_rotary_pos_emb is original


def test_models_that_share_a_rotary_function_give_it_back_when_the_last_is_restored(monkeypatch):
    def apply_rotary_pos_emb(q, k, cos, sin, unsqueeze_dim=1):
        def turned(x):
            first, second = x.chunk(2, -1)
            around = torch.cat((-second, first), -1)
            return x * cos.unsqueeze(unsqueeze_dim) + around * sin.unsqueeze(unsqueeze_dim)

        return turned(q), turned(k)

    source = types.ModuleType("somebodys_modeling")
    source.apply_rotary_pos_emb = apply_rotary_pos_emb
    monkeypatch.setitem(sys.modules, source.__name__, source)
    made = type("Model", (torch.nn.Module,), {"__module__": source.__name__})
    first, second = (patch(made(), rotary=True) for _ in range(2))
    assert first.rotary == second.rotary == ["somebodys_modeling"]
    exchanged = source.apply_rotary_pos_emb
    first.restore()
    first.restore()
    assert source.apply_rotary_pos_emb is exchanged is not apply_rotary_pos_emb
    second.restore()
    assert source.apply_rotary_pos_emb is apply_rotary_pos_emb


@pytest.mark.parametrize("shape", [(2, 0, 3, 8), (0, 5, 3, 8), (2, 5, 0, 8)])
def test_a_slice_without_elements_is_turned(shape):
    """Memory of nothing begins where other memory of nothing does, whatever the strides say."""
    cos, sin = rotary_tables(10, 8)
    q = drawn(2, 5, 3, 8)[: shape[0], : shape[1], : shape[2]].requires_grad_()
    y = apply_rotary(q, cos=cos, sin=sin)
    y.sum().backward()
    assert y.shape == q.grad.shape == shape
    found = of_numpy.apply_rotary(q.detach().numpy(), cos=cos.numpy(), sin=sin.numpy())
    assert found.shape == shape
    assert apply_rotary(q.detach(), cos=cos, sin=sin, inplace=True).shape == shape


def test_positions_may_be_int32():
    cos, sin = rotary_tables(10, 8)
    q, positions = drawn(2, 5, 3, 8), torch.tensor([3, 1, 0, 2, 9])
    found = apply_rotary(q, cos=cos, sin=sin, position_ids=positions.int())
    assert found.equal(apply_rotary(q, cos=cos, sin=sin, position_ids=positions))


@pytest.mark.parametrize("name", ["q", "k", "cos", "sin"])
def test_what_is_no_tensor_is_told_by_name(name):
    cos, sin = rotary_tables(10, 8)
    given = {"q": drawn(2, 5, 3, 8), "k": None, "cos": cos, "sin": sin} | {name: [1.0]}
    with pytest.raises(TypeError, match=f"apply_rotary: {name} must be a Tensor; it is list"):
        apply_rotary(**given)
