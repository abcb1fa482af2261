# SPDX-License-Identifier: Apache-2.0
"""Every function and module in the table of counterparts is Isobit's where that was asked for."""

from functools import partial

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch_calls import bits, draw, many

import isobit.torch
from isobit.torch import counterparts, intercept, patch
from isobit.torch.watching import Watcher

pytestmark = pytest.mark.usefixtures("one_thread")


def positive(*shape):
    return draw(*shape).abs() + 0.1


ROWS, SIGNAL, IMAGE = draw(6, 24), draw(2, 4, 20), draw(2, 3, 9, 9)
SQUARE, BATCH, HEADS = draw(24, 24), draw(2, 6, 24), draw(2, 3, 7, 8)
TARGET = torch.arange(6) % 24


def also_method(name, ours, *args, **more):
    """A function of torch and the method of that name."""
    return {
        each: (partial(each, *args, **more), partial(ours, *args, **more))
        for each in (getattr(torch, name), getattr(torch.Tensor, name))
    }


def scans():
    for name in ("cumsum", "cumprod", "logcumsumexp", "cummax", "cummin"):
        yield from also_method(name, getattr(isobit.torch, name), ROWS, -1).items()


def in_place():
    for name in ("exp", "log", "sigmoid", "tanh"):
        ours = partial(getattr(isobit.torch, name), positive(3, 5))
        for of in (torch, torch.Tensor):
            theirs = getattr(of, name + "_")
            yield theirs, (lambda theirs=theirs: theirs(positive(3, 5)), ours)


def softmaxes():
    for name in ("softmax", "log_softmax"):
        ours = partial(getattr(isobit.torch, name), ROWS, 0)
        for of in (torch, torch.Tensor, F, torch.special):
            theirs = getattr(of, name)
            yield theirs, (partial(theirs, ROWS, 0), ours)


def pools():
    for name, x in (("max_pool1d", SIGNAL), ("max_pool2d", IMAGE), ("avg_pool1d", SIGNAL)):
        ours = partial(getattr(isobit.torch, name), x, 3, 2, 1)
        for theirs in (getattr(F, name), getattr(torch, name)):
            yield theirs, (partial(theirs, x, 3, 2, 1), ours)
        if name.startswith("max"):
            theirs, more = getattr(F, name + "_with_indices"), {"return_indices": True}
            yield theirs, (partial(theirs, x, 3, 2, 1), partial(ours, **more))
    yield (
        F.avg_pool2d,
        (partial(F.avg_pool2d, IMAGE, 3), partial(isobit.torch.avg_pool2d, IMAGE, 3)),
    )
    for dims, x in ((1, SIGNAL), (2, IMAGE)):
        name = f"adaptive_avg_pool{dims}d"
        for theirs in {getattr(F, name), getattr(torch, name, getattr(F, name))}:
            yield theirs, (partial(theirs, x, 4), partial(getattr(isobit.torch, name), x, 4))


def resamplings():
    more = {"scale_factor": 1.5, "mode": "bicubic"}
    ours = partial(isobit.torch.interpolate, IMAGE, **more)
    yield F.interpolate, (partial(F.interpolate, IMAGE, **more), ours)


def products():
    plain = partial(isobit.torch.matmul, ROWS, SQUARE)
    for name in ("matmul", "mm"):
        yield from also_method(name, plain.func, ROWS, SQUARE).items()
    yield from also_method("bmm", plain.func, BATCH, BATCH.transpose(1, 2)).items()
    yield torch.Tensor.__matmul__, (lambda: ROWS @ SQUARE, plain)
    yield torch.Tensor.__rmatmul__, (lambda: torch.Tensor.__rmatmul__(SQUARE, ROWS), plain)
    yield F.linear, (partial(F.linear, ROWS, SQUARE.t()), plain)
    yield from also_method("mv", plain.func, SQUARE, ROWS[0]).items()
    yield from also_method("dot", plain.func, ROWS[1], ROWS[0]).items()
    biased = partial(plain, bias=ROWS[0])
    for of in (torch, torch.Tensor):
        yield of.addmm, (partial(of.addmm, ROWS[0], ROWS, SQUARE), biased)


def norms():
    for name in ("layer_norm", "rms_norm"):
        for of in (torch, F):
            ours = partial(getattr(isobit.torch, name), ROWS, (24,), eps=1e-3)
            yield getattr(of, name), (partial(getattr(of, name), ROWS, (24,), eps=1e-3), ours)
    statistics = draw(3), draw(3).abs() + 1
    for name, given in (
        ("batch_norm", (IMAGE, *statistics)),
        ("group_norm", (IMAGE, 3)),
        ("instance_norm", (IMAGE,)),
    ):
        theirs = getattr(F, name)
        yield theirs, (partial(theirs, *given), partial(getattr(isobit.torch, name), *given))


def convolutions():
    for name, x, weight in (
        ("conv1d", SIGNAL, draw(5, 4, 3)),
        ("conv2d", IMAGE, draw(5, 3, 3, 3)),
        ("conv_transpose1d", SIGNAL, draw(4, 5, 3)),
        ("conv_transpose2d", IMAGE, draw(3, 5, 3, 3)),
    ):
        theirs = getattr(torch, name)
        yield theirs, (partial(theirs, x, weight), partial(getattr(isobit.torch, name), x, weight))


def others():
    for name in ("exp", "log", "sigmoid", "tanh"):
        yield from also_method(name, getattr(isobit.torch, name), positive(3, 5)).items()
    sigmoid = partial(isobit.torch.sigmoid, ROWS)
    yield torch.special.expit, (partial(torch.special.expit, ROWS), sigmoid)
    yield F.silu, (partial(F.silu, ROWS), partial(isobit.torch.silu, ROWS))
    more = {"approximate": "tanh"}
    yield F.gelu, (partial(F.gelu, ROWS, **more), partial(isobit.torch.gelu, ROWS, **more))
    given = (TARGET.reshape(2, 3), SQUARE, 3)
    yield F.embedding, (partial(F.embedding, *given), partial(isobit.torch.embedding, *given))
    given = (HEADS, HEADS, HEADS, torch.ones(7, 7, dtype=torch.bool).tril())
    ours = partial(isobit.torch.scaled_dot_product_attention, *given)
    theirs = F.scaled_dot_product_attention
    yield theirs, (partial(theirs, *given, scale=0.5), partial(ours, scale=0.5))
    ours = partial(isobit.torch.cross_entropy, ROWS, TARGET, label_smoothing=0.1)
    yield F.cross_entropy, (partial(F.cross_entropy, ROWS, TARGET, label_smoothing=0.1), ours)
    if theirs := getattr(F, "linear_cross_entropy", None):
        given = ROWS, SQUARE, TARGET
        yield theirs, (partial(theirs, *given), partial(isobit.torch.linear_cross_entropy, *given))


def reductions():
    for name in ("sum", "mean", "var", "std", "amax", "amin"):
        yield from also_method(name, getattr(isobit.torch, name), ROWS, 0).items()
    for name in ("var_mean", "std_mean"):
        ours = partial(getattr(isobit.torch, name), ROWS)
        yield getattr(torch, name), (partial(getattr(torch, name), ROWS), ours)
    ours = partial(isobit.torch.norm, ROWS, 1, 0)
    for theirs in (torch.norm, torch.Tensor.norm, torch.linalg.vector_norm, torch.linalg.norm):
        yield theirs, (partial(theirs, ROWS, 1, 0), ours)


def gradient_of(function, *more, into=None):
    """Of a row that is repeated, where the result's gradient is ROWS; into: what it changes."""
    row = ROWS[0].clone().requires_grad_()
    given = (row, *more) if into is None else (into.clone(), row)
    return torch.autograd.grad(function(*given), row, ROWS)[0]


def broadcasts():
    """They are PyTorch's; of what they repeat, the gradient is Isobit's sum."""
    total = partial(isobit.torch.sum, ROWS, 0)
    halves = partial(isobit.torch.sum, ROWS * 0.5, 0)
    of = dict.fromkeys(("add", "sub", "subtract"), (torch.ones(6, 24), total))
    of |= dict.fromkeys(("mul", "multiply"), (torch.full((6, 24), 0.5), halves))
    of |= dict.fromkeys(("div", "divide", "true_divide"), (torch.full((6, 24), 2.0), halves))
    for name, (by, ours) in of.items():
        for place in (torch, torch.Tensor):
            theirs = getattr(place, name)
            yield theirs, (partial(gradient_of, theirs, by), ours)
    ones, row = torch.ones(6, 24), ROWS[0]
    along = {"add_": ROWS, "sub_": -ROWS, "mul_": ROWS, "div_": -ROWS * (ones / row / row)}
    for name, terms in along.items():
        theirs = getattr(torch.Tensor, name)
        call = partial(gradient_of, theirs, into=ones)
        yield theirs, (call, partial(isobit.torch.sum, terms, 0))
    shapes = {torch.Tensor.expand: (6, 24), torch.Tensor.expand_as: ROWS}
    shapes |= {torch.broadcast_to: (6, 24), torch.Tensor.broadcast_to: (6, 24)}
    for theirs, shape in shapes.items():
        yield theirs, (partial(gradient_of, theirs, shape), total)


def losses():
    ones = (SQUARE > 0).float()
    for name in ("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss"):
        theirs, ours = getattr(F, name), getattr(isobit.torch, name)
        yield theirs, (partial(theirs, ROWS, SQUARE[:6]), partial(ours, ROWS, SQUARE[:6]))
    theirs = F.binary_cross_entropy_with_logits
    ours = isobit.torch.binary_cross_entropy_with_logits
    yield theirs, (partial(theirs, SQUARE, ones), partial(ours, SQUARE, ones))
    yield (
        F.nll_loss,
        (partial(F.nll_loss, ROWS, TARGET), partial(isobit.torch.nll_loss, ROWS, TARGET)),
    )


def dropouts():
    """Of all, since nothing else is the same in PyTorch's."""
    for theirs in (F.dropout, torch.dropout):
        yield theirs, (partial(theirs, ROWS, 1.0, True), partial(isobit.torch.dropout, ROWS, 1.0))


# function: (a call of it, what it is of Isobit's)
CALLS = dict(
    each
    for rows in (
        *(scans, in_place, softmaxes, pools, products, norms, convolutions, others),
        resamplings,
        reductions,
        broadcasts,
        losses,
        dropouts,
    )
    for each in rows()
)


def broadcasting_functions():
    """Those of which only the gradient is Isobit's."""
    return {each for each, _ in broadcasts()}


def named(function):
    return torch.overrides.resolve_name(function) or function.__name__


def test_every_function_of_the_table_is_called_here():
    assert CALLS.keys() == counterparts.EVERY.keys()


@pytest.mark.parametrize("function", CALLS, ids=named)
def test_a_function_of_the_table_is_isobits_inside_and_pytorchs_outside(function):
    call, ours = CALLS[function]
    seen = Watcher({}, {}, {})
    with seen, intercept(every=True):
        found = many(call())
    assert bits(*found) == bits(*many(ours()))
    assert seen.functions or function in broadcasting_functions()
    seen = Watcher({}, {}, {})
    with seen:
        outside = many(call())
    assert not seen.functions
    for one, other in zip(found, outside, strict=True):
        assert torch.allclose(one.float(), other.float(), rtol=1e-4, atol=1e-5)


def whole_numbers():
    """What PyTorch alone computes, and without a word."""
    x = torch.arange(24).reshape(2, 12)
    return (
        *(x.softmax(-1, torch.float32), torch.softmax(x, -1, dtype=torch.float64)),
        *(
            torch.exp(x),
            x.sigmoid(),
            torch.exp(ROWS.cfloat()).real,
            torch.exp(ROWS, out=torch.empty(1)),
        ),
        F.cross_entropy(ROWS, ROWS.softmax(-1)),
        F.embedding(TARGET, SQUARE.clone(), max_norm=1.0),
        torch.addmm(ROWS[0], ROWS, SQUARE, beta=2),
        torch.addmm(ROWS, ROWS, SQUARE),
        F.max_pool1d(SIGNAL.to(torch.int32).float(), 2),
        F.scaled_dot_product_attention(HEADS, HEADS, HEADS, is_causal=True),
        ROWS.cumsum(0, dtype=torch.float64),
        *(F.linear(ROWS, SQUARE, bias) for bias in (ROWS, ROWS[:1], ROWS[0, 0], ROWS[0, :1])),
    )


@pytest.mark.filterwarnings("ignore:An output with one or more elements was resized")
def test_calls_that_isobit_lacks_stay_pytorchs():
    expected = whole_numbers()
    with intercept(every=True):
        found = whole_numbers()
    for one, other in zip(found, expected, strict=True):
        assert one.dtype == other.dtype and torch.allclose(one, other, rtol=1e-4, atol=1e-5)


def test_names_of_numpy_for_arguments_are_isobits_too():
    calls = [
        lambda: torch.sum(ROWS, axis=0, keepdims=True),
        lambda: ROWS.mean(axis=(0, -1)),
        lambda: ROWS.var(axis=1, keepdims=True, correction=0),
        lambda: torch.std(ROWS, axis=0),
        lambda: ROWS.amax(axis=1),
        lambda: ROWS.cumsum(axis=0),
        lambda: torch.var_mean(ROWS, axis=1)[0],
    ]
    for i, call in enumerate(calls):
        seen = Watcher({}, {}, {})
        with seen, intercept(every=True):
            found = call()
        assert seen.functions, i
        torch.testing.assert_close(found, call())


def test_intercepted_functions_have_isobits_gradients():
    def loss(f, softmax, x):
        return f(x.tanh() if f is F.gelu else isobit.torch.tanh(x)).square() * softmax(x, -1)

    found, expected = [], []
    x = draw(5, 24, requires_grad=True)
    with intercept(every=True):
        y = loss(F.gelu, torch.softmax, x)
    found = torch.autograd.grad(y, x, draw(5, 24, seed=3))
    y = loss(isobit.torch.gelu, isobit.torch.softmax, x)
    expected = torch.autograd.grad(y, x, draw(5, 24, seed=3))
    assert bits(*found) == bits(*expected)


def test_what_is_expanded_is_expanded_without_gradients_too():
    """A class token without gradients, say, stayed that of one image."""
    row, shape = ROWS[:1], (6, 24)
    calls = [
        lambda: row.expand(shape),
        lambda: row.expand(-1, -1),
        lambda: row.expand_as(ROWS),
        lambda: torch.broadcast_to(row, shape),
        lambda: row.broadcast_to(shape),
    ]
    with intercept(every=True):
        found = [call() for call in calls]
        row = row.clone().requires_grad_()
        with torch.no_grad():
            found += [call() for call in calls]
        with torch.inference_mode():
            found += [call() for call in calls]
    for one, call in zip(found, calls * 3, strict=True):
        assert torch.equal(one, call())


def test_a_number_of_another_type_changes_no_type():
    """A 16-bit model with one gain in float32 became one of float32 behind it."""
    gain, x = torch.tensor(1.5, requires_grad=True), ROWS.bfloat16()
    wide = torch.tensor([1.5], requires_grad=True)
    calls = [
        lambda: x * gain,
        lambda: gain + x,
        lambda: torch.sub(x, gain),
        lambda: x.clone().div_(gain),
        lambda: ROWS * gain.double(),
        lambda: x * wide,
    ]
    for call in calls:
        plain = call()
        with intercept(every=True):
            found = call()
        assert found.dtype == plain.dtype and bits(found) == bits(plain)


def test_activations_in_place_have_gradients():
    """They keep their input for backward, which the result took the place of."""
    x = draw(5, 24, requires_grad=True)
    calls = {
        "silu": lambda x: F.silu(x, inplace=True),
        "sigmoid": torch.sigmoid_,
        "tanh": torch.Tensor.tanh_,
        "exp": torch.exp_,
        "log": lambda x: x.square_().log_(),
    }
    for name, call in calls.items():
        with intercept(every=True):
            (found,) = torch.autograd.grad(call(x * 2).sum(), x)
        (expected,) = torch.autograd.grad(call(x * 2).sum(), x)
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4, msg=name)
    y = isobit.torch.silu(x)
    wanted = torch.autograd.grad(y, x, torch.ones_like(y))
    y = isobit.torch.silu(x * 1, inplace=True)
    assert bits(*torch.autograd.grad(y, x, torch.ones_like(y))) == bits(*wanted)


MODULES = {
    nn.Sigmoid: ((), ROWS),
    nn.Tanh: ((), ROWS),
    nn.GELU: (("tanh",), ROWS),
    nn.SiLU: ((), ROWS),
    nn.Softmax: ((0,), ROWS),
    nn.LogSoftmax: ((-1,), ROWS),
    nn.MaxPool1d: ((3, 2, 1), SIGNAL),
    nn.MaxPool2d: ((3, 2, 1), IMAGE),
    nn.AvgPool1d: ((3, 2, 1), SIGNAL),
    nn.AvgPool2d: ((3, 2, 1), IMAGE),
    nn.AdaptiveAvgPool1d: ((4,), SIGNAL),
    nn.AdaptiveAvgPool2d: (((4, 3),), IMAGE),
    nn.Upsample: ((None, 1.5, "bicubic"), IMAGE),
    nn.Dropout: ((1.0,), ROWS),
    nn.MSELoss: ((), ROWS, SQUARE[:6]),
    nn.L1Loss: ((), ROWS, SQUARE[:6]),
    nn.SmoothL1Loss: ((), ROWS, SQUARE[:6]),
    nn.HuberLoss: ((), ROWS, SQUARE[:6]),
    nn.BCEWithLogitsLoss: ((), ROWS, SQUARE[:6]),
    nn.NLLLoss: ((), ROWS, TARGET),
}


def test_every_module_of_the_table_is_made_here():
    assert MODULES.keys() == counterparts.MODULES.keys()


@pytest.mark.parametrize("kind", MODULES)
def test_a_module_of_the_table_is_patched_where_that_was_asked_for(kind):
    arguments, *inputs = MODULES[kind]
    ours = getattr(isobit.torch, kind.__name__)
    module = nn.Sequential(kind(*arguments))
    patch(module, linear=True, attention=True, convolutions=True)
    assert type(module[0]) is kind
    report = patch(module, others=True)
    assert type(module[0]) is ours and report.others == ["0"]
    assert "and 1 other module" in repr(report)
    assert bits(module[0](*inputs)) == bits(ours(*arguments)(*inputs))
    report.restore()
    assert type(module[0]) is kind


class NewGELU(nn.Module):
    """By the hyperbolic tangent, as GPT-2 has it."""

    def forward(self, x):
        return 0.5 * x * (1 + torch.tanh((2 / torch.pi) ** 0.5 * (x + 0.044715 * x**3)))


class GELUByErf(nn.Module):
    def forward(self, x):
        return x * (1 + torch.erf(x / 2**0.5)) / 2


class QuickGELU(nn.Module):
    def forward(self, x):
        return x * torch.sigmoid(1.702 * x)


class ClippedGELU(GELUByErf):
    def forward(self, x):
        return super().forward(x).clip(-10, 10)


class GELUOfTwo(nn.Module):
    def forward(self, x, y):
        return x * y


def test_a_gelu_of_somebody_elses_class_is_known_by_what_it_computes():
    model = nn.Sequential(NewGELU(), GELUByErf(), QuickGELU(), ClippedGELU(), GELUOfTwo())
    report = patch(model, others=True)
    assert report.others == ["0", "1"] and isinstance(model[0], NewGELU)
    assert report.skipped == {
        "2": "computes another function than gelu",
        "3": "computes another function than gelu",
        "4": "its forward fails for (322,): TypeError",
    }
    assert bits(model[0](ROWS)) == bits(isobit.torch.gelu(ROWS, approximate="tanh"))
    assert bits(model[1](ROWS)) == bits(isobit.torch.gelu(ROWS))
    assert patch(model, others=True).skipped["0"] == "is Isobit's already"
    report.restore()
    assert type(model[0]) is NewGELU and type(model[1]) is GELUByErf


class Gentle(nn.GELU):
    scale = 2


class Own(nn.GELU):
    def forward(self, input):
        return super().forward(input) * 2


def test_subclasses_are_patched_unless_they_have_a_forward_of_their_own():
    model = nn.Sequential(Gentle("tanh"), Own())
    report = patch(model, others=True)
    assert isinstance(model[0], (Gentle, isobit.torch.GELU)) and model[0].scale == 2
    assert report.skipped == {"1": "Own has a forward of its own"}
    assert bits(model[0](ROWS)) == bits(isobit.torch.gelu(ROWS, approximate="tanh"))
    assert patch(model, others=True).skipped["0"] == "is Isobit's already"
