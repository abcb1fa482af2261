# SPDX-License-Identifier: Apache-2.0
"""The arithmetic of attention: asked for by name, carried to the operator, and refused where
nothing computes it. Tensors of the meta device show what a GPU would be asked for."""

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch_calls import bits, draw

import isobit.numpy
from isobit._products import ARITHMETICS as OF_PRODUCTS
from isobit.torch import paged_attention, varlen_attention
from isobit.torch import scaled_dot_product_attention as attention
from isobit.torch.attending import ARITHMETICS

OP = "scaled_dot_product_attention"
REFUSED = "attention: arithmetic tensor needs f16 or bf16 on a GPU .*; use canonical"
OPERATOR = torch.ops.isobit.attention


class Seen(TorchDispatchMode):
    """Which of the operators have been called, and forward with which arithmetic."""

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
        OPERATOR(*heads(), *nothing, ARITHMETICS.index("tensor"))
    assert ARITHMETICS == OF_PRODUCTS


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_a_processor_refuses_it_and_has_canonical(dtype):
    q, k, v = heads(dtype)
    assert bits(attention(q, k, v, arithmetic="canonical")) == bits(attention(q, k, v))

    def call(*tensors):
        return attention(*tensors, is_causal=True, arithmetic="tensor")

    compiled = torch.compile(call, fullgraph=True, backend="aot_eager")
    for one in (call, compiled, torch.vmap(call)):
        with pytest.raises(RuntimeError, match=REFUSED):
            one(q, k, v)


def test_forward_is_asked_for_it_and_gradients_are_canonical():
    q, k, v = (each.to("meta").requires_grad_() for each in heads())
    with Seen() as calls:
        attention(q, k, v, dropout_p=0.1, seed=3, arithmetic="tensor").sum().backward()
        attention(q, k, v)
    assert calls.seen == [("attention", 1), ("attention_backward", 0), ("attention", 0)]


def test_packed_and_nested_sequences_ask_for_it_too():
    q, k, v = (each[0].transpose(0, 1) for each in heads())
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
    with pytest.raises(ValueError, match="varlen_attention: arithmetic is 'fast'; allowed: "):
        varlen_attention(q, k, v, ends, arithmetic="fast")


def test_numpy_refuses_it():
    arrays = [each.numpy() for each in heads(torch.float16)]
    usual = isobit.numpy.scaled_dot_product_attention(*arrays)
    named = isobit.numpy.scaled_dot_product_attention(*arrays, arithmetic="canonical")
    assert usual.tobytes() == named.tobytes()
    with pytest.raises(NotImplementedError, match=REFUSED):
        isobit.numpy.scaled_dot_product_attention(*arrays, arithmetic="tensor")


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
