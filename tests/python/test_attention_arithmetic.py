# SPDX-License-Identifier: Apache-2.0
"""The arithmetic of attention: asked for by name, carried to the operator, and refused where
nothing computes it: the CPU has it of bfloat16 alone, beside canonical gradients. Tensors of the
meta device show what a GPU would be asked for."""

import copy
import io
import itertools
import math

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch_calls import Products, bits, draw

import isobit.numpy
import isobit.torch
from isobit._products import ARITHMETICS as OF_PRODUCTS
from isobit.torch import MultiheadAttention, SelfAttention, paged_attention, patch, varlen_attention
from isobit.torch import scaled_dot_product_attention as attention
from isobit.torch.attending import ARITHMETICS

OP = "scaled_dot_product_attention"
REFUSED = (
    "attention: arithmetic tensor needs bf16 on a processor, or f16 or bf16 on a GPU .*; "
    "use canonical"
)
OPERATOR = torch.ops.isobit.attention


class Seen(TorchDispatchMode):
    """Which of the operators have been called, and with which arithmetic."""

    def __init__(self):
        super().__init__()
        self.seen = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        name = function._schema.name.removeprefix("isobit::")
        if name in ("attention", "attention_backward"):
            names = [each.name for each in function._schema.arguments]
            given = dict(zip(names, args, strict=False)) | (kwargs or {})
            self.seen.append((name, given.get("arithmetic", 0)))
        return function(*args, **(kwargs or {}))


def heads(dtype=torch.bfloat16):
    return [draw(2, 2, 5, 8, dtype=dtype, seed=seed) for seed in range(3)]


def test_names_are_numbered_as_the_library_does():
    nothing = (None, None, None, 0, 0, 0.0, 0.0, 0.0, *[None] * 6)
    with pytest.raises(ValueError, match=f"arithmetic is 2; allowed: 0 to {len(ARITHMETICS) - 1}"):
        OPERATOR(*heads(), *nothing, len(ARITHMETICS))
    with pytest.raises(RuntimeError, match=REFUSED):
        OPERATOR(*heads(torch.float16), *nothing, ARITHMETICS.index("tensor"))
    assert ARITHMETICS == OF_PRODUCTS


def ended(heads, **options):
    """Attention by the CPU's order of tensor, of at most 32 keys and elements that are whole: sums
    of products are then exact, and weights are all that is rounded on the way."""
    q, k, v = heads
    logits = q.double() @ k.double().transpose(-1, -2) * options["scale"]
    top = (logits.max(-1, keepdim=True).values / math.log(2)).round() * math.log(2)
    weights = (logits - top).exp()
    narrow = weights.bfloat16().double()
    return narrow @ v.double() / weights.sum(-1, keepdim=True)


def test_a_processor_rounds_weights_and_not_their_sum():
    given = [draw(2, 2, 20, 8, seed=seed).mul(4).round().bfloat16() for seed in range(3)]
    y = attention(*given, scale=0.11, arithmetic="tensor")
    expected = ended(given, scale=0.11)
    apart = (y.double() - expected).abs() / expected.abs().clamp(min=1e-3)
    assert apart.max() < 2**-8  # the rounding of y alone
    assert bits(y) != bits(attention(*given, scale=0.11))


def test_a_processor_has_the_same_bits_for_queries_alone_compiled_and_mapped():
    q, k, v = (draw(2, 3, 150, 40, dtype=torch.bfloat16, seed=seed) for seed in range(3))

    def call(*tensors):
        return attention(*tensors, causal="bottom_right", arithmetic="tensor")

    y = call(q, k, v)
    assert bits(y) != bits(attention(q, k, v, causal="bottom_right"))
    assert bits(call(q[:, :, -7:], k, v)) == bits(y[:, :, -7:].contiguous())
    assert bits(call(q[1:, 2:], k[1:, 2:], v[1:, 2:])) == bits(y[1:, 2:].contiguous())
    compiled = torch.compile(call, fullgraph=True, backend="aot_eager")
    for one in (compiled, torch.vmap(call)):
        assert bits(one(q, k, v)) == bits(y)
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        assert bits(call(q, k, v)) == bits(y)
    finally:
        torch.set_num_threads(threads)


def test_gradients_of_a_processor_are_canonical():
    tensors = [each.requires_grad_() for each in heads()]
    grad = draw(2, 2, 5, 8, dtype=torch.bfloat16, seed=9)
    with Seen() as calls:
        y = attention(*tensors, arithmetic="tensor")
        grads = torch.autograd.grad(y, tensors, grad)
    assert calls.seen == [("attention", 1), ("attention_backward", 0)]
    usual = torch.autograd.grad(attention(*tensors), tensors, grad)
    for one, other in zip(grads, usual, strict=True):
        assert (one - other).abs().max() <= 2**-6 * other.abs().max()
    rows = [each.detach()[0].transpose(0, 1).requires_grad_() for each in tensors]
    ends = torch.tensor([0, 2, 5])
    varlen_attention(*rows, ends, arithmetic="tensor").sum().backward()
    assert all(each.grad.isfinite().all() for each in rows)


def test_numpy_has_it_too():
    ml_dtypes = pytest.importorskip("ml_dtypes")
    arrays = [each.float().numpy().astype(ml_dtypes.bfloat16) for each in heads()]
    y = isobit.numpy.scaled_dot_product_attention(*arrays, arithmetic="tensor")
    expected = attention(*heads(), arithmetic="tensor")
    assert bits(torch.from_numpy(y.astype("f4")).bfloat16()) == bits(expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_a_processor_refuses_it_of_other_types_and_has_canonical(dtype):
    q, k, v = heads(dtype)
    assert bits(attention(q, k, v, arithmetic="canonical")) == bits(attention(q, k, v))

    def call(*tensors):
        return attention(*tensors, is_causal=True, arithmetic="tensor")

    compiled = torch.compile(call, fullgraph=True, backend="aot_eager")
    for one in (call, compiled, torch.vmap(call)):
        with pytest.raises(RuntimeError, match=REFUSED):
            one(q, k, v)


def test_gradients_are_asked_for_it_where_forward_is():
    q, k, v = (each.to("meta").requires_grad_() for each in heads())
    with Seen() as calls:
        attention(q, k, v, dropout_p=0.1, seed=3, arithmetic="tensor").sum().backward()
        attention(q, k, v, is_causal=True).sum().backward()
    names = ["attention", "attention_backward"] * 2
    assert calls.seen == list(zip(names, [1, 1, 0, 0], strict=True))


def test_packed_and_nested_sequences_ask_for_it_too():
    q, k, v = (each[0].transpose(0, 1) for each in heads(torch.float16))
    ends = torch.tensor([0, 2, 5])
    usual = varlen_attention(q, k, v, ends)
    assert bits(varlen_attention(q, k, v, ends, arithmetic="canonical")) == bits(usual)
    pool = [torch.stack([each[:2], each[2:4]]) for each in (k, v)]  # of two keys each
    table, counts = torch.tensor([[1], [0]]), torch.tensor([2, 2])
    nested = [torch.nested.nested_tensor_from_jagged(each, ends).transpose(1, 2) for each in (q, k)]
    for call in (
        lambda: varlen_attention(q, k, v, ends, arithmetic="tensor"),
        lambda: attention(nested[0], nested[1], nested[1], arithmetic="tensor"),
        lambda: paged_attention(q, *pool, table, counts, cu_seqlens_q=ends, arithmetic="tensor"),
    ):
        with pytest.raises(RuntimeError, match=REFUSED):
            call()
    q, k, v = (each[0].transpose(0, 1) for each in heads())
    packed = varlen_attention(q, k, v, ends, arithmetic="tensor")
    for begin, end in itertools.pairwise(ends):
        alone = attention(
            *(each[begin:end].transpose(0, 1) for each in (q, k, v)), arithmetic="tensor"
        )
        assert bits(packed[begin:end]) == bits(alone.transpose(0, 1).contiguous())
    with pytest.raises(ValueError, match="varlen_attention: arithmetic is 'fast'; allowed: "):
        varlen_attention(q, k, v, ends, arithmetic="fast")


def test_numpy_refuses_it():
    arrays = [each.numpy() for each in heads(torch.float16)]
    usual = isobit.numpy.scaled_dot_product_attention(*arrays)
    named = isobit.numpy.scaled_dot_product_attention(*arrays, arithmetic="canonical")
    assert usual.tobytes() == named.tobytes()
    with pytest.raises(NotImplementedError, match=REFUSED):
        isobit.numpy.scaled_dot_product_attention(*arrays, arithmetic="tensor")


class Named(nn.MultiheadAttention):
    """No more than a name."""


SIZES = {"dtype": torch.bfloat16}
MODULES = {
    "MultiheadAttention": lambda **more: MultiheadAttention(16, 2, **SIZES, **more),
    "SelfAttention": lambda **more: SelfAttention(16, 2, kv_heads=1, **SIZES, **more),
}


def called(module, *, device="cpu", dtype=torch.bfloat16, **more):
    x = draw(5, 16, dtype=dtype).to(device)
    if isinstance(module, nn.MultiheadAttention):
        return module(x, x, x, **{"need_weights": False} | more)[0]
    return module(x, **more)


def asked(module):
    """The products that a GPU would be asked for, and in which arithmetic."""
    with Products() as products:
        called(copy.deepcopy(module).to("meta"), device="meta").sum().backward()
    return products.seen


@pytest.mark.parametrize("name", MODULES)
def test_modules_have_it_in_all_their_products(name):
    usual, ours = MODULES[name](), MODULES[name](arithmetic="tensor")
    seen = asked(ours)
    assert {each for each, _ in seen} == {
        *("attention", "attention_backward"),
        *("matmul", "matmul_backward"),
    }
    assert {arithmetic for _, arithmetic in seen} == {1}
    assert asked(usual) == [(each, 0) for each, _ in seen]
    ours.load_state_dict(usual.state_dict())
    y, other = called(ours), called(usual)
    assert bits(y) != bits(other) and (y - other).abs().max() <= 2**-5 * other.abs().max()
    y.sum().backward()
    with pytest.raises(RuntimeError, match="arithmetic tensor needs bf16 on a processor"):
        called(MODULES[name](arithmetic="tensor").half(), dtype=torch.float16)
    ours = MODULES[name](arithmetic="canonical")
    ours.load_state_dict(usual.state_dict())
    assert bits(called(ours)) == bits(called(usual))
    with pytest.raises(ValueError) as raised:
        MODULES[name](arithmetic="fast")
    expected = f"{name}: arithmetic is 'fast'; allowed: 'canonical', 'tensor'"
    assert str(raised.value) == expected


@pytest.mark.parametrize("name", MODULES)
def test_a_module_shows_it_and_computes_again_with_it(name):
    assert "arithmetic" not in repr(MODULES[name]()).splitlines()[0]
    ours = MODULES[name](arithmetic="tensor", checkpoint=True)
    text = repr(ours)
    assert "arithmetic='tensor'" in text and "checkpoint=True" in text
    seen = asked(ours)
    assert [each for each, _ in seen].count("attention") == 2
    assert {arithmetic for _, arithmetic in seen} == {1}


def test_nested_sequences_of_a_module_ask_for_it():
    rows, ends = draw(5, 16, dtype=torch.bfloat16), torch.tensor([0, 2, 5])
    x = torch.nested.nested_tensor_from_jagged(rows, ends)
    module = MODULES["SelfAttention"](arithmetic="tensor")
    y = module(x)
    alone = module(rows[2:5].unsqueeze(0))
    assert bits(y.values()[2:5].contiguous()) == bits(alone[0])


def test_weights_of_a_module_are_canonical(monkeypatch):
    # PyTorch knows no autocast of the meta device, and raises where it is asked.
    monkeypatch.setattr(isobit.torch.attention_functions, "autocasts", lambda tensor: False)
    module = MODULES["MultiheadAttention"](arithmetic="tensor").to("meta")
    with Products() as products:
        called(module, device="meta", need_weights=True)
    assert sorted(products.seen) == [("attention", 1), ("matmul", 0), ("matmul", 1), ("matmul", 1)]


@pytest.mark.parametrize("kind", [nn.MultiheadAttention, Named])
def test_patch_gives_attention_an_arithmetic_and_takes_it_back(kind):
    model = kind(16, 2, **SIZES)
    theirs = bits(called(model))
    report = patch(model, attention=True, arithmetic="tensor")
    assert report.attention == [""] and report.skipped == {} and isinstance(model, kind)
    saved = io.BytesIO()
    torch.save(model, saved)
    saved.seek(0)
    for each in (model, torch.load(saved, weights_only=False)):
        assert {arithmetic for _, arithmetic in asked(each)} == {1}
        assert called(each).isfinite().all()
    with pytest.raises(RuntimeError, match="arithmetic tensor needs bf16 on a processor"):
        called(copy.deepcopy(model).half(), dtype=torch.float16)
    report.restore()
    assert type(model) is kind and bits(called(model)) == theirs
    with patch(model, attention=True):
        assert {arithmetic for _, arithmetic in asked(model)} == {0}
    with pytest.raises(ValueError, match="needs linear=True or attention=True"):
        patch(model, arithmetic="tensor")


def test_a_processor_has_linear_layers_of_it_beside_canonical_attention():
    model = nn.ModuleList([nn.MultiheadAttention(16, 2, **SIZES), nn.Linear(16, 16, **SIZES)])
    with patch(model, attention=True), patch(model, linear=True, arithmetic="tensor") as report:
        assert report.linear == ["1"]
        y = called(model[0])
        assert bits(model[1](y)) == bits(
            isobit.torch.linear(y, model[1].weight, model[1].bias, arithmetic="tensor")
        )
    with patch(model, attention=True, linear=True, arithmetic="tensor"):
        assert bits(called(model[0])) != bits(y)


def test_an_attribute_of_this_name_is_somebody_elses():
    module = nn.MultiheadAttention(16, 2, **SIZES)
    module.arithmetic = "their own"
    patch(module, attention=True)
    assert {arithmetic for _, arithmetic in asked(module)} == {0}


@pytest.mark.parametrize("wrong", ["fast", None, 1, ["tensor"]])
def test_another_arithmetic_is_an_error_that_names_what_is_allowed(wrong):
    q = heads(torch.float32)[0]
    for call, of in (
        (attention, q),
        (isobit.numpy.scaled_dot_product_attention, q.numpy()),
    ):
        with pytest.raises(ValueError) as raised:
            call(of, of, of, arithmetic=wrong)
        expected = f"{OP}: arithmetic is {wrong!r}; allowed: 'canonical', 'tensor'"
        assert str(raised.value) == expected
