# SPDX-License-Identifier: Apache-2.0
"""patch(model, fuse=True): linear layers normalise what norms leave to them, nothing of it is kept,
and every bit is that of norms and layers apart."""

import copy
import pickle

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint
from torch_calls import bits, draw

import isobit.torch
from isobit.torch import deferral, patch

WIDTH = 24


class Block(nn.Module):
    """Of a pre-norm transformer: one norm feeds three layers, the other an MLP's first."""

    def __init__(self, norm=nn.LayerNorm):
        super().__init__()
        self.norm1, self.norm2 = norm(WIDTH), norm(WIDTH)
        self.q, self.k, self.v, self.out = (nn.Linear(WIDTH, WIDTH) for _ in range(4))
        self.mlp = nn.Sequential(
            nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH, bias=False)
        )

    def forward(self, x):
        h = self.norm1(x)
        x = x + self.out(F.scaled_dot_product_attention(self.q(h), self.k(h), self.v(h)))
        return x + self.mlp(self.norm2(x))


class Pair(nn.Module):
    """A norm, a layer, and what happens in between."""

    def __init__(self, between=lambda h: h, **norm):
        super().__init__()
        self.norm, self.linear = nn.LayerNorm(WIDTH, **norm), nn.Linear(WIDTH, 8)
        self.between = between

    def forward(self, x):
        return self.linear(self.between(self.norm(x)))


def weighted(model, dtype=torch.float32):
    for i, parameter in enumerate(model.parameters()):
        parameter.data = draw(*parameter.shape, seed=i) / 4
    return model.to(dtype)


def step(model, x):
    """The result, and the gradients of input and weights, in one list."""
    x = x.detach().requires_grad_()
    y = model(x)
    y.backward(draw(*y.shape, seed=99).to(y.dtype))
    return [y.detach(), x.grad, *(each.grad for each in model.parameters())]


def assert_same(one, other):
    assert len(one) == len(other)
    for a, b in zip(one, other, strict=True):
        assert (a is None) == (b is None)
        assert a is None or bits(a) == bits(b)


def both(model, x, run=step):
    """What linear=True gives, what fuse=True gives, and what then took the rows of each norm."""
    apart, fused = copy.deepcopy(model), copy.deepcopy(model)
    patch(apart, linear=True)
    report = patch(fused, fuse=True)
    return run(apart, x), run(fused, x), report.fused


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("norm", [nn.LayerNorm, nn.RMSNorm], ids=["LayerNorm", "RMSNorm"])
def test_results_and_gradients_have_the_bits_of_norm_and_layer_apart(norm, dtype):
    x = draw(3, 37, WIDTH).to(dtype)
    apart, fused, taken = both(weighted(Block(norm), dtype), x)
    assert_same(apart, fused)
    assert taken == {"norm1": ("a linear layer",), "norm2": ("a linear layer",)}


@pytest.mark.parametrize("affine", [{"elementwise_affine": False}, {"bias": False}], ids=str)
def test_norms_without_weights(affine):
    apart, fused, taken = both(weighted(Pair(**affine)), draw(20, WIDTH))
    assert_same(apart, fused)
    assert taken == {"norm": ("a linear layer",)}


def test_under_autocast_too():
    def run(model, x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return step(model, x)

    apart, fused, taken = both(weighted(Block()), draw(2, 33, WIDTH), run)
    assert_same(apart, fused)
    assert taken["norm2"] == ("a linear layer",)


def test_an_input_of_sixteen_bits_under_autocast_is_normalised_at_once():
    def run(model, x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return step(model, x)

    model = weighted(Pair(), torch.bfloat16)
    apart, fused, taken = both(model, draw(20, WIDTH).bfloat16(), run)
    assert_same(apart, fused)
    assert taken == {"norm": ()}


def kept(model, x):
    """The bytes that the call keeps for backward, each storage once."""
    sizes = {}

    def pack(tensor):
        if type(tensor) is not deferral.Rows:
            sizes[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        y = model(x.detach().requires_grad_())
    del y
    return sum(sizes.values())


def test_the_rows_of_a_norm_are_not_kept():
    apart, fused, _ = both(weighted(Block()), draw(4, 64, WIDTH), kept)
    rows = 4 * 64 * WIDTH * 4
    assert apart - fused >= 2 * rows  # of each norm; its statistics besides


USES = {
    "added to": lambda h: h + 1,
    "viewed": lambda h: h.view(-1, WIDTH),
    "changed in place": lambda h: h.mul_(2),
    "indexed": lambda h: h[:, ::2],
    "put into another": lambda h: torch.cat((h, h)),
    "an argument by name": lambda h: F.dropout(input=h, p=0.0),
    "looked at": lambda h: h if h.isfinite().all() else None,
    "given to NumPy": lambda h: h * float(h.detach().numpy().max()),
    "given to another norm": nn.RMSNorm(WIDTH),
    "multiplied with an activation": lambda h: isobit.torch.linear(
        h, torch.eye(WIDTH), activation="relu"
    ),
    "given to an operator": lambda h: torch.ops.isobit.increment(h),
    "given to a function of its own": lambda h: Doubled.apply(h),
}


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        return grad * 2


@pytest.mark.parametrize("use", USES)
def test_whatever_else_takes_them_has_them_computed(use):
    apart, fused, taken = both(weighted(Pair(USES[use])), draw(3, 10, WIDTH))
    assert_same(apart, fused)
    takers = taken["norm"]
    assert takers and (takers[0] != "a linear layer")


def test_what_needs_no_elements_computes_none():
    def between(h):
        assert isinstance(h, torch.Tensor) and h.shape == (3, 10, WIDTH) and h.size(-1) == WIDTH
        assert h.dtype == torch.float32 and h.device.type == "cpu" and h.requires_grad
        assert h.dim() == h.ndim == 3 and h.numel() == 30 * WIDTH and not h.is_leaf
        assert h.grad_fn is not None and not h.is_nested
        return h

    apart, fused, taken = both(weighted(Pair(between)), draw(3, 10, WIDTH))
    assert_same(apart, fused)
    assert taken == {"norm": ("a linear layer",)}


def test_gradients_of_gradients():
    def run(model, x):
        x = x.detach().requires_grad_()
        (first,) = torch.autograd.grad(model(x).square().sum(), x, create_graph=True)
        first.square().sum().backward()
        return [first.detach(), x.grad, *(each.grad for each in model.parameters())]

    apart, fused, taken = both(weighted(Block(), torch.float64), draw(2, 5, WIDTH).double(), run)
    for one, other in zip(apart, fused, strict=True):
        torch.testing.assert_close(one, other)
    assert taken["norm1"] == ("a linear layer",)


def test_hooks_see_a_tensor():
    seen = []

    def run(model, x):
        model.norm2.register_forward_hook(lambda module, given, result: seen.append(result.sum()))
        model.norm1.register_full_backward_hook(lambda module, into, out: seen.append(out[0].sum()))
        return step(model, x)

    apart, fused, _ = both(weighted(Block()), draw(2, 9, WIDTH), run)
    assert_same(apart, fused)
    assert_same(seen[:2], seen[2:])


def test_under_checkpoint_too():
    def run(model, x):
        x = x.detach().requires_grad_()
        checkpoint(model, x, use_reentrant=False).sum().backward()
        return [x.grad, *(each.grad for each in model.parameters())]

    apart, fused, _ = both(weighted(Block()), draw(2, 9, WIDTH), run)
    assert_same(apart, fused)


def test_without_gradients_norms_compute_at_once():
    def run(model, x):
        with torch.no_grad():
            return [model(x)]

    apart, fused, taken = both(weighted(Block()), draw(2, 9, WIDTH), run)
    assert_same(apart, fused)
    assert taken == {"norm1": (), "norm2": ()}


def test_an_input_that_changed_meanwhile_is_an_error():
    model = weighted(Pair())
    patch(model, fuse=True)
    x = draw(20, WIDTH)
    h = model.norm(x)
    x.add_(1)
    with pytest.raises(RuntimeError, match=r"DeferredLayerNorm: .* changed in place before"):
        model.linear(h)


def test_frozen_parts_have_no_gradients():
    def run(model, x):
        model.norm1.requires_grad_(False)
        model.mlp.requires_grad_(False)
        y = model(x)
        y.backward(draw(*y.shape, seed=5))
        return [y.detach(), *(each.grad for each in model.parameters())]

    apart, fused, _ = both(weighted(Block()), draw(2, 9, WIDTH), run)
    assert_same(apart, fused)


def test_functions_of_torch_func_see_plain_norms():
    model = weighted(Block())
    report = patch(model, fuse=True)
    x = draw(2, 9, WIDTH)
    found = torch.func.grad(lambda x: model(x).square().sum())(x)
    expected = x.clone().requires_grad_()
    model(expected).square().sum().backward()
    torch.testing.assert_close(found, expected.grad)
    assert report.fused["norm1"] == ("a linear layer",)  # of the second call


def test_compiled_code_has_the_same_bits():
    model = weighted(Block())
    patch(model, fuse=True)
    x = draw(2, 9, WIDTH)
    eager = step(model, x)
    model.zero_grad()
    compiled = step_compiled(model, x)
    assert_same(eager, compiled)


def step_compiled(model, x):
    function = torch.compile(model, backend="aot_eager", fullgraph=True)
    x = x.detach().requires_grad_()
    y = function(x)
    y.backward(draw(*y.shape, seed=99))
    return [y.detach(), x.grad, *(each.grad for each in model.parameters())]


def test_restored_it_is_what_it_was_with_what_it_learnt():
    model = weighted(Block())
    with patch(model, fuse=True) as report:
        assert type(model.norm1) is deferral.DeferredLayerNorm
        step(model, draw(2, 9, WIDTH))
        with torch.no_grad():
            model.norm1.weight -= model.norm1.weight.grad
    assert type(model.norm1) is nn.LayerNorm and type(model.q) is nn.Linear
    assert bits(model.norm1.weight) != bits(weighted(Block()).norm1.weight)
    assert report.fused == {"norm1": ("a linear layer",), "norm2": ("a linear layer",)}


def test_isobits_own_norms_are_fused_too():
    model = weighted(Block(isobit.torch.LayerNorm))
    report = patch(model, fuse=True)
    step(model, draw(2, 9, WIDTH))
    assert report.fused["norm2"] == ("a linear layer",)
    report.restore()
    assert type(model.norm2) is isobit.torch.LayerNorm


def test_copies_and_pickles_compute_the_same():
    model = weighted(Block())
    patch(model, fuse=True)
    x = draw(2, 9, WIDTH)
    expected = step(model, x)
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        other.zero_grad()
        assert_same(expected, step(other, x))


def language_model(name):
    transformers = pytest.importorskip("transformers")
    if name == "llama":
        sizes = {"hidden_size": 32, "intermediate_size": 48, "num_attention_heads": 4}
        config = transformers.LlamaConfig(vocab_size=50, num_hidden_layers=2, **sizes)
        return transformers.LlamaForCausalLM(config)
    config = transformers.GPT2Config(vocab_size=50, n_positions=32, n_embd=32, n_layer=2, n_head=4)
    return transformers.GPT2LMHeadModel(config)


@pytest.mark.parametrize("name", ["llama", "gpt2"])
def test_transformers_models_train_to_the_same_bits(name):
    def run(model, tokens):
        model.eval()  # without dropout
        loss = model(input_ids=tokens, labels=tokens).loss
        loss.backward()
        return [loss.detach(), *(each.grad for each in model.parameters())]

    tokens = torch.arange(40).reshape(2, 20)
    torch.manual_seed(0)
    apart, fused, taken = both(language_model(name), tokens, run)
    assert_same(apart, fused)
    last = "model.norm" if name == "llama" else "transformer.ln_f"
    assert len(taken.pop(last)) == 1  # what chooses positions
    assert set(taken.values()) == {("a linear layer",)} and len(taken) == 4


def test_the_report_says_what_took_the_rows():
    model = weighted(Pair(USES["added to"]))
    report = patch(model, fuse=True)
    assert "norm: DeferredLayerNorm, not called with gradients yet" in repr(report)
    step(model, draw(4, WIDTH))
    assert "norm: DeferredLayerNorm, computed for add" in repr(report)
    assert "linear: Linear" in repr(report)
