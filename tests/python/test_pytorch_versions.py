# SPDX-License-Identifier: Apache-2.0
"""The operators' PyTorch versions mean what the library computes, and PyTorch's agree with it."""

import itertools
import weakref

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from pytorch_draws import REALS, draw, same_bits  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402

import isobit.numpy  # noqa: E402
from isobit.ops.activation import pytorch as activation  # noqa: E402
from isobit.ops.attention import pytorch as attention  # noqa: E402
from isobit.ops.conv1d import pytorch as conv1d  # noqa: E402
from isobit.ops.conv2d import pytorch as conv2d  # noqa: E402
from isobit.ops.elementwise import pytorch as elementwise  # noqa: E402
from isobit.ops.rope import pytorch as rope  # noqa: E402
from isobit.ops.scan import pytorch as scan  # noqa: E402
from isobit.ops.transpose import pytorch as transpose  # noqa: E402


def operands(dtype):
    if dtype == torch.int32:
        ends = torch.tensor([2**31 - 1, -(2**31), -1, 0], dtype=dtype)
        return ends.repeat(4), ends.repeat_interleave(4)
    ends = torch.tensor([0.0, -0.0, 1e-45, 6e-8, 1.0, 3e38, float("inf"), float("nan")])
    x, residual = ends.repeat(8), ends.repeat_interleave(8)
    drawn = draw(2, 400, dtype=dtype) * 100
    return torch.cat([x.to(dtype), drawn[0]]), torch.cat([residual.to(dtype), drawn[1]])


@pytest.mark.parametrize("dtype", [*REALS, torch.int32])
def test_each_way_to_add_gives_the_bits_of_the_library(dtype):
    x, residual = operands(dtype)
    for added, expected in (
        (residual, isobit.numpy.add(x, residual)),
        (None, isobit.numpy.increment(x)),
    ):
        assert same_bits(elementwise.reference(x, added), expected)
        assert same_bits(elementwise.standard(x, added), expected)
        assert same_bits(elementwise.fused(x, added, out=torch.empty_like(x)), expected)


def test_a_fused_sum_may_take_the_place_of_its_operand():
    x, residual = operands(torch.float32)
    expected = isobit.numpy.add(x, residual)
    assert elementwise.fused(x, residual, out=x) is x
    assert same_bits(x, expected)


@pytest.mark.parametrize("shape", [(3, 5), (2, 4, 7), (1, 6), (0, 3)])
@pytest.mark.parametrize("dtype", [*REALS, torch.int32])
def test_each_way_to_transpose_gives_the_same_bits_in_new_memory(shape, dtype):
    x = (draw(*shape) * 100).to(dtype)
    expected = torch.stack([x[..., i] for i in range(shape[-1])], dim=-2)
    for y in (
        transpose.reference(x),
        transpose.standard(x),
        transpose.fused(x, out=torch.empty_like(expected)),
    ):
        assert same_bits(y, expected) and y.is_contiguous()


@pytest.mark.parametrize("to", REALS)
@pytest.mark.parametrize("dtype", REALS)
def test_a_transpose_that_casts_rounds_as_pytorch_does_but_once(dtype, to):
    x = operands(dtype)[0].reshape(2, -1)
    y = transpose.fused(x, out=torch.empty(*x.shape[::-1], dtype=to))
    assert same_bits(transpose.standard(x, to), y)
    if dtype != torch.float64 or to in (torch.float32, torch.float64):
        assert same_bits(transpose.reference(x, to), y)


@pytest.mark.parametrize(("to", "digits"), [(torch.float16, 11), (torch.bfloat16, 8)])
def test_the_reference_rounds_a_double_to_16_bits_once(to, digits):
    step = 2.0 ** (1 - digits)
    just_more, just_less = 1 + step / 2 + 2.0**-50, 1 + 3 * step / 2 - 2.0**-50
    x = torch.tensor([[just_more, -just_more, just_less, -just_less]], dtype=torch.float64)
    once = torch.tensor([1 + step, -1 - step, 1 + step, -1 - step], dtype=torch.float64)
    assert torch.equal(transpose.reference(x, to).double().flatten(), once)


def of_activation(function, x, gate=None):
    """What isobit.numpy calls it."""
    tanh = {"approximate": "tanh"} if function == "gelu_tanh" else {}
    if gate is None:
        return getattr(isobit.numpy, "gelu" if tanh else function)(x, **tanh)
    gated = isobit.numpy.swiglu if function == "silu" else isobit.numpy.geglu
    return gated(gate, x, **tanh)


GATES = ("silu", "gelu", "gelu_tanh")


@pytest.mark.parametrize(
    ("function", "gated"),
    [(name, False) for name in activation.FUNCTIONS] + [(name, True) for name in GATES],
)
@pytest.mark.parametrize("dtype", REALS[:3])
def test_each_way_to_activate_agrees_with_the_library(function, gated, dtype):
    x = 3 * draw(4, 700, dtype=dtype)
    x = x.abs().clamp(min=1e-3) if function == "log" else x
    arrays = (x, 3 * draw(4, 700, dtype=dtype, seed=1)) if gated else (x,)
    y = of_activation(function, *arrays)
    tolerance = {"rtol": 2e-2 if y.itemsize == 2 else 1e-5, "atol": 1e-5}
    for other in (
        activation.reference(*arrays, function=function),
        activation.standard(*arrays, function=function),
        activation.fused(*arrays, function=function, out=torch.empty_like(x)),
    ):
        torch.testing.assert_close(other, y, **tolerance)


def of_scan(kind, x, dim, **options):
    """What isobit.numpy calls it."""
    name = {"sum": "cumsum", "prod": "cumprod", "logsumexp": "logcumsumexp"}.get(kind, f"cum{kind}")
    y = getattr(isobit.numpy, name)(x, dim, **options)
    return y[0] if kind in ("max", "min") else y


@pytest.mark.parametrize("kind", scan.STANDARD)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int64])
def test_each_way_to_scan_agrees_with_the_library(kind, dtype):
    if kind == "logsumexp" and dtype == torch.int64:
        return
    for (exclusive, reverse), given in itertools.product(
        itertools.product((False, True), repeat=2), (False, True)
    ):
        for length in (1, 2, 7, 64, 100):
            x = (draw(3, length, 2).mul(0.2) + 1).mul(1 if dtype != torch.int64 else 3).to(dtype)
            init = x[:, 0] * 2 if given else None
            options = {"exclusive": exclusive, "reverse": reverse, "init": init}
            y = of_scan(kind, x, 1, **options)
            for way in (scan.reference, scan.standard, scan.work_efficient):
                other = way(x, 1, kind=kind, **options)
                torch.testing.assert_close(other, y, rtol=1e-4, atol=1e-5)
            if not (exclusive or reverse or given):
                out = torch.empty_like(x)
                assert scan.fused(x, 1, kind=kind, out=out) is out
                torch.testing.assert_close(out, y, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("style", ["half", "interleaved"])
@pytest.mark.parametrize("dtype", REALS)
def test_each_way_to_turn_agrees_with_the_library(dtype, style):
    q = draw(2, 7, 3, 10, dtype=dtype)
    cos, sin = rope.tables(9, 10)
    if dtype == torch.float64:
        cos, sin = cos.double(), sin.double()
    y = isobit.numpy.apply_rotary(q, cos=cos[:7], sin=sin[:7], style=style)
    # What is rounded twice before a subtraction that cancels, and once more in 16 bits.
    tolerance = 4 * torch.finfo(dtype).eps
    truth = rope.reference(q.double(), cos[:7], sin[:7], style)
    for other in (
        y,
        rope.reference(q, cos[:7], sin[:7], style),
        rope.standard(q, cos[:7], sin[:7], style),
    ):
        assert other.dtype == dtype
        torch.testing.assert_close(other.double(), truth, rtol=tolerance, atol=tolerance)
    assert not torch.equal(truth, rope.reference(q.double(), cos[1:8], sin[1:8], style))


@pytest.mark.parametrize("style", ["half", "interleaved"])
def test_the_textbooks_rotary_module_keeps_the_tables_that_the_library_computes(style):
    module = rope.Module(64, 50, base=500000.0, style=style)
    cos, sin = isobit.numpy.rotary_tables(50, 64, base=500000.0)
    for table, ours in ((module.cos, cos), (module.sin, sin)):
        assert (table - torch.from_numpy(ours)).abs().max() <= 2.0**-24
    assert not module.state_dict()
    q = draw(2, 31, 4, 64)
    y = isobit.numpy.apply_rotary(q, cos=module.cos[:31], sin=module.sin[:31], style=style)
    torch.testing.assert_close(module(q), y, rtol=1e-6, atol=1e-6)
    assert not torch.equal(module(q), module(q.roll(1, 1)).roll(-1, 1))


# What a call takes beside q, k and v: queries of 5, keys of 140, two heads for each of k.
ATTENTIONS = {
    "plain": {},
    "top_left": {"causal": "top_left"},
    "bottom_right": {"causal": "bottom_right"},
    "window": {"window": 7},
    "of the last": {"causal": "bottom_right", "window": 9, "scale": -0.3},
    "softcap": {"softcap": 1.5, "scale": 2.0},
    "bias": {"bias": draw(5, 140, dtype=torch.float64, seed=8)},
    "mask": {"mask": draw(1, 1, 5, 140, seed=9) > 0.3, "causal": "bottom_right"},
    "bias of a query": {"bias": draw(4, 5, 1, dtype=torch.float64, seed=8), "softcap": 2.0},
    "all": {
        "bias": draw(2, 1, 5, 140, dtype=torch.float64, seed=8),
        "mask": draw(2, 4, 5, 140, seed=9) > -1,
        "causal": "bottom_right",
        "window": 130,
        "softcap": 3.0,
    },
}


def attended(dtype=torch.float64, queries=5, keys=140):
    shapes = (2, 4, queries, 8), (2, 2, keys, 8), (2, 2, keys, 6)
    return [draw(*shape, dtype=dtype, seed=i) for i, shape in enumerate(shapes)]


def of_attention(q, k, v, bias=None, mask=None, *, scale=0, **options):
    """What isobit.numpy calls it. y and lse."""
    options |= {"scale": scale or None, "return_lse": True}
    whole = (*q.shape[:3], k.shape[2])
    added = None if bias is None else bias.to(q.dtype).expand(whole)
    if mask is not None and bias is not None:
        added = added.masked_fill(~mask, -torch.inf)
    return isobit.numpy.scaled_dot_product_attention(
        q, k, v, mask if added is None else added, **options
    )


@pytest.mark.parametrize("name", ATTENTIONS)
@pytest.mark.parametrize("dtype", REALS)
def test_each_way_to_attend_agrees_with_the_library(dtype, name):
    arrays, options = attended(dtype), ATTENTIONS[name]
    options = {k: v.to(dtype) if k == "bias" else v for k, v in options.items()}
    y, lse = of_attention(*arrays, **options)
    tolerance = {"rtol": 32 * torch.finfo(dtype).eps, "atol": 8 * torch.finfo(dtype).eps}
    truth, lse_of_truth = attention.reference(*arrays, **options)
    torch.testing.assert_close(truth, y.double(), **tolerance)
    torch.testing.assert_close(lse_of_truth, lse.double(), rtol=1e-5, atol=1e-5)
    tiled, lse_of_tiled = attention.tiled(*arrays, **options)
    torch.testing.assert_close(lse_of_tiled, lse, rtol=1e-5, atol=1e-5)
    others = [tiled, attention.standard(*arrays, **options)]
    if "softcap" not in options:
        others.append(attention.fused(*arrays, **options))
    for other in others:
        torch.testing.assert_close(other, y, **tolerance)


@pytest.mark.parametrize("queries", [1, 5])
@pytest.mark.parametrize("causal", ["no", "bottom_right"])
def test_slopes_and_ranges_of_keys_are_a_bias_and_a_mask(queries, causal):
    q, k, v = attended(torch.float32, queries)
    slopes = draw(2, 4, dtype=torch.float32, seed=5) / 16
    ends = {"key_begin": torch.tensor([0, 9]), "key_end": torch.tensor([131, 140])}
    y, lse = isobit.numpy.scaled_dot_product_attention(
        *(q, k, v), causal=causal, alibi_slopes=slopes, return_lse=True, **ends
    )
    bias, mask = attention.bias_and_mask(q, k, slopes=slopes, **ends)
    truth, lse_of_truth = attention.reference(q, k, v, bias, mask, causal=causal)
    torch.testing.assert_close(truth, y.double(), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(lse_of_truth, lse.double(), rtol=1e-5, atol=1e-5)
    both = attention.bias_and_mask(q, k, bias, mask, slopes=-slopes, **ends)
    plain = attention.standard(q, k, v, mask=mask, causal=causal)
    torch.testing.assert_close(attention.standard(q, k, v, *both, causal=causal), plain)


@pytest.mark.parametrize("name", ATTENTIONS)
def test_the_gradients_of_attention_are_the_derivatives_of_what_a_textbook_writes(name):
    options = ATTENTIONS[name]
    arrays = [each.requires_grad_() for each in attended()]
    if "bias" in options:
        options = options | {"bias": options["bias"].expand(2, 4, 5, 140).clone().requires_grad_()}
        arrays.append(options["bias"])
    grad_y = draw(2, 4, 5, 6, dtype=torch.float64, seed=4)
    expected = torch.autograd.grad(attention.standard(*arrays[:3], **options), arrays, grad_y)
    found = attention.reference_backward(grad_y, *arrays[:3], **options)
    again = torch.autograd.grad(attention.tiled(*arrays[:3], **options)[0], arrays, grad_y)
    for each in (found[: len(arrays)], again):
        torch.testing.assert_close(list(each), list(expected))


def test_the_gradient_of_lse_and_of_a_bias_that_repeats_reach_their_arrays():
    q, k, v = (each.requires_grad_() for each in attended())
    bias = ATTENTIONS["bias of a query"]["bias"].clone().requires_grad_()
    of_both = draw(2, 4, 5, 6, dtype=torch.float64), draw(2, 4, 5, dtype=torch.float64, seed=1)

    def both(*arrays):
        scores = attention.scores_of(arrays[0], arrays[1], arrays[3])
        return attention.standard(*arrays), scores.logsumexp(-1)

    given = (q, k, v, bias)
    expected = torch.autograd.grad(both(*given), given, of_both)
    found = torch.autograd.grad(attention.tiled(*given), given, of_both)
    torch.testing.assert_close(list(found), list(expected))
    grad_y, grad_lse = of_both
    formulas = attention.reference_backward(grad_y, *given, grad_lse=grad_lse)
    torch.testing.assert_close(list(formulas[:3]), list(expected[:3]))
    torch.testing.assert_close(formulas[3].sum_to_size(bias.shape), expected[3])


def test_the_second_derivatives_of_panels_are_those_of_the_formulas():
    given = [each.requires_grad_() for each in attended()]

    def of(way):
        y, lse = way(*given, softcap=2.0)
        total = y.square().sum() + lse.square().sum()
        first = torch.autograd.grad(total, given, create_graph=True)
        return torch.autograd.grad(sum(each.square().sum() for each in first), given)

    torch.testing.assert_close(of(attention.tiled), of(attention.reference))


class Living(TorchDispatchMode):
    """Counts the tensors of a shape that there are at once."""

    def __init__(self, shape):
        super().__init__()
        self.shape, self.made, self.most = shape, [], 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        if isinstance(result, torch.Tensor) and result.shape[-2:] == self.shape:
            self.made.append(weakref.ref(result))
            self.most = max(self.most, sum(each() is not None for each in self.made))
        return result


def test_panels_keep_no_scores_of_those_before_unless_a_bias_wants_its_gradient():
    q, k, v = (each.requires_grad_() for each in attended(keys=30 * 128))
    with Living((5, 128)) as living:
        y, _ = attention.tiled(q, k, v)
        y.sum().backward()
    assert 1 < living.most < 12


def test_panels_of_no_keys_have_a_gradient_of_their_bias():
    q, k, v = attended(keys=0)
    bias = q.new_empty(*q.shape[:3], 0, requires_grad=True)
    attention.tiled(q, k, v, bias)[0].sum().backward()
    assert bias.grad.shape == bias.shape


def test_a_query_without_keys_gives_zeros_to_all_who_say_so_and_to_a_textbook_nan():
    q, k, v = (each.requires_grad_() for each in attended(queries=200))
    options = {"causal": "bottom_right"}
    blind = 60  # that see no key
    y, lse = of_attention(q.detach(), k.detach(), v.detach(), **options)
    for found, lse_of_found in (
        attention.reference(q, k, v, **options),
        attention.tiled(q, k, v, **options),
    ):
        torch.testing.assert_close(found, y)
        torch.testing.assert_close(lse_of_found, lse)
        assert not found[:, :, :blind].any() and lse_of_found[:, :, :blind].isneginf().all()
        gradients = torch.autograd.grad(found.sum(), (k, v), retain_graph=True)
        assert all(gradient.isfinite().all() for gradient in gradients)
    of_textbook = attention.standard(q, k, v, **options)
    assert of_textbook[:, :, :blind].isnan().all() and of_textbook[:, :, blind:].isfinite().all()


def test_a_causal_that_there_is_not_is_refused():
    with pytest.raises(ValueError, match="attention: causal is 'yes'; allowed: no, top_left, bott"):
        attention.standard(*attended(), causal="yes")


CONVOLUTIONS = {1: conv1d, 2: conv2d}
WINDOWS = (
    {},
    {"bias": True, "stride": 2, "padding": 1, "activation": "silu"},
    {"dilation": 2, "groups": 3, "padding": "same", "activation": "gelu"},
    {"padding": "valid", "stride": (3, 2), "dilation": (1, 2), "activation": "gelu_tanh"},
    {"padding": (2, 1), "padding_mode": "reflect", "bias": True, "activation": "relu"},
    {"padding": 2, "padding_mode": "replicate", "stride": 2, "groups": 3},
    {"padding": "same", "padding_mode": "circular", "dilation": 2},
    {"padding": "causal", "dilation": 2, "bias": True},
)


def window_arrays(dims, options, dtype):
    """x, weight, a bias if it is asked for, and the other options of so many dimensions."""
    options = {
        name: value[-dims:] if isinstance(value, tuple) else value
        for name, value in options.items()
    }
    kernel = (3, 4)[-dims:]
    x = draw(2, 6, *(9, 11)[-dims:], dtype=dtype)
    weight = draw(9, 6 // options.get("groups", 1), *kernel, dtype=dtype, seed=1)
    bias = draw(9, dtype=dtype, seed=2) if options.pop("bias", False) else None
    return (x, weight, bias), options


@pytest.mark.parametrize("options", WINDOWS, ids=lambda o: " ".join(f"{k} {o[k]}" for k in o))
@pytest.mark.parametrize("dims", CONVOLUTIONS)
@pytest.mark.parametrize("dtype", REALS)
def test_each_way_to_convolve_agrees_with_the_library(dims, options, dtype):
    version = CONVOLUTIONS[dims]
    (x, *weights), options = window_arrays(dims, options, dtype)
    named = options | {"activation": options.get("activation")}
    before = x
    if options.get("padding") == "causal" and dims == 2:  # which the library has of signals alone
        before, named["padding"] = torch.nn.functional.pad(x, (2 * 3, 0, 2 * 2, 0)), 0
    y = getattr(isobit.numpy, f"conv{dims}d")(before, *weights, **named)
    residual = draw(*y.shape, dtype=dtype, seed=3)
    tolerance = {"rtol": 2e-2 if y.itemsize == 2 else 1e-5, "atol": 64 * torch.finfo(dtype).eps}
    for way in (version.reference, version.standard, version.custom):
        found = way(x, *weights, **options)
        assert found.dtype == dtype
        torch.testing.assert_close(found, y, **tolerance)
        found = way(x, *weights, **options, residual=residual)
        torch.testing.assert_close(found, y + residual, **tolerance)


@pytest.mark.parametrize("options", WINDOWS, ids=lambda o: " ".join(f"{k} {o[k]}" for k in o))
@pytest.mark.parametrize("dims", CONVOLUTIONS)
def test_gradients_by_formula_are_those_of_pytorchs_convolution(dims, options):
    version = CONVOLUTIONS[dims]
    arrays, options = window_arrays(dims, options, torch.float64)
    given = [each.requires_grad_() for each in arrays if each is not None]
    results = [way(*arrays, **options) for way in (version.custom, version.standard)]
    along = draw(*results[0].shape, dtype=torch.float64, seed=3)
    ours, theirs = (torch.autograd.grad(y, given, along) for y in results)
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"stride": 2, "padding": 1, "dilation": 2, "groups": 3, "bias": False},
        {"padding": "same", "padding_mode": "reflect"},
    ],
)
@pytest.mark.parametrize("dims", CONVOLUTIONS)
def test_the_module_of_a_convolution_takes_the_place_of_pytorchs(dims, options):
    ours = CONVOLUTIONS[dims].Module(6, 9, 3, **options)
    theirs = getattr(torch.nn, f"Conv{dims}d")(6, 9, 3, **options)
    bound = 1 / (ours.weight[0].numel() ** 0.5)
    assert bound / 2 < max(each.abs().max() for each in ours.parameters()) <= bound
    theirs.load_state_dict(ours.state_dict())
    x = draw(2, 6, *(9,) * dims)
    torch.testing.assert_close(ours(x), theirs(x))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"padding": "full"}, "convolution: padding is 'full'; allowed: numbers, 'same'"),
        (
            {"padding": "same", "stride": 2},
            "padding is 'same', which needs a stride of 1; it is .2, 2",
        ),
        ({"padding": 1, "padding_mode": "edge"}, "padding_mode is 'edge'; allowed: zeros, reflect"),
    ],
)
def test_convolutions_refuse_a_padding_that_they_do_not_have(options, said):
    x, weight = draw(1, 1, 5, 5), draw(1, 1, 2, 2)
    for way in (conv2d.reference, conv2d.standard, conv2d.custom):
        with pytest.raises(ValueError, match=said):
            way(x, weight, **options)
