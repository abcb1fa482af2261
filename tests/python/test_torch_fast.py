# SPDX-License-Identifier: Apache-2.0
"""The short way for small calls gives what the operators give, and leaves alone what is not its."""

import itertools
import sys
from functools import partial

import pytest
import torch
from torch.autograd import forward_ad
from torch.utils._python_dispatch import TorchDispatchMode
from torch_calls import bits, draw

import isobit.torch
from isobit.torch import fast, norms
from isobit.torch.convolving import CONVOLUTION

OPS = torch.ops.isobit
EPS = 1e-5
each_norm = pytest.mark.parametrize("norm", norms.NORMS, ids=lambda norm: norm.name)


def given(norm, dtype=torch.float32, shape=(3, 5)):
    return norms.Given(
        draw(*shape, dtype=dtype),
        draw(5, dtype=dtype, seed=1),
        draw(5, dtype=dtype, seed=2) if norm.centered else None,
        draw(*shape, dtype=dtype, seed=3) if norm.adds else None,
    )


def arguments(norm, tensors):
    """(input, weight, [bias,] eps[, residual])"""
    x, weight, bias, residual, _ = tensors
    return (x, weight, *(bias,) * norm.centered, EPS, *(residual,) * norm.adds)


def short(norm, normalized_shape, *given):
    return getattr(fast, norm.name)(normalized_shape, *given)


def tensors_of(results):
    return results if isinstance(results, tuple) else (results,)


def test_the_module_is_there():
    assert fast.missing == ""


@each_norm
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("shape", [(5,), (3, 5), (2, 3, 5), (1, 1, 1, 1, 1, 1, 1, 5)])
def test_results_are_those_of_the_operators(norm, dtype, shape):
    tensors = given(norm, dtype, shape)
    expected = tensors_of(norm.forward(tensors, norms.Options(EPS)))
    call = arguments(norm, tensors)
    for normalized_shape in (5, (5,)):
        assert bits(*tensors_of(short(norm, normalized_shape, *call))) == bits(*expected)
    results = tensors_of(fast.forward_of(norm)(*call))
    assert len(results) == 1 + norm.adds
    for result in results:
        assert result.dtype == dtype and result.shape == shape and result.is_contiguous()
        assert result.data_ptr() % 64 == 0


@pytest.mark.parametrize(
    ("norm", "grad_sum"),
    [(norm, on) for norm in norms.NORMS for on in (False, True)[: 1 + norm.adds]],
)
def test_gradients_are_those_of_the_operators(norm, grad_sum):
    g, x, w = draw(3, 5), draw(3, 5, seed=1), draw(5, seed=2)
    more = (draw(3, 5, seed=3) if grad_sum else None,) * norm.adds
    incoming = norms.Incoming(g, more[0] if more else None, x, w, None)
    wanted = norms.Gradients(True, True, True, False)
    expected = norm.backward(incoming, norms.Options(EPS), wanted)[: 2 + norm.centered]
    found = fast.backward_of(norm)(g, x, w, EPS, *more)[: 2 + norm.centered]
    assert bits(*found) == bits(*expected)


@each_norm
def test_what_is_large_is_computed_elsewhere(norm):
    """By operators, which know of threads and of large memory."""
    tensors = given(norm, shape=(9000, 5))
    call = arguments(norm, tensors)
    assert fast.forward_of(norm)(*call) is None
    assert (
        fast.backward_of(norm)(*(draw(9000, 5),) * 2, tensors.weight, EPS, *call[-1:] * norm.adds)
        is None
    )
    expected = tensors_of(norm.forward(tensors, norms.Options(EPS)))
    assert bits(*tensors_of(short(norm, 5, *call))) == bits(*expected)


OF = {"y": (True, False), "sum": (False, True), "both": (True, True)}


def recorded_calls():
    """Norm, rows, which result has a gradient, and which tensors want theirs."""
    for norm in norms.NORMS:
        present = [tensor is not None for tensor in given(norm)[:4]]
        for wanted in itertools.product(
            *((False, True) if there else (False,) for there in present)
        ):
            for of in OF if norm.adds else ["y"]:
                for rows in (3, 9000) if wanted == tuple(present) else (3,):
                    if any(wanted):
                        yield norm, rows, of, norms.Gradients(*wanted)


@pytest.mark.parametrize(("norm", "rows", "of", "wanted"), recorded_calls())
def test_recorded_calls_have_the_gradients_of_the_operators(norm, rows, of, wanted):
    plain = given(norm, shape=(rows, 5))
    tensors = norms.Given(
        *(t.requires_grad_() if want else t for t, want in zip(plain[:4], wanted, strict=True))
    )
    results = tensors_of(short(norm, 5, *arguments(norm, tensors)))
    grad_y, grad_sum = (draw(rows, 5, seed=7 + i) if on else None for i, on in enumerate(OF[of]))
    with_gradient = [
        (result, gradient)
        for result, gradient in zip(results, (grad_y, grad_sum)[: len(results)], strict=True)
        if gradient is not None
    ]
    torch.autograd.backward(*zip(*with_gradient, strict=True))

    normalised = results[1].detach() if norm.adds else tensors.input.detach()
    if grad_y is None:
        grad_y = torch.zeros_like(normalised)
    incoming = norms.Incoming(grad_y, grad_sum, normalised, tensors.weight.detach(), None)
    options = norms.Options(EPS)
    expected = norm.backward(incoming, options, wanted.once(options)).twice(options).where(wanted)
    for tensor, want, gradient in zip(tensors[:4], wanted, expected, strict=True):
        if want:
            assert bits(tensor.grad) == bits(gradient)


@pytest.mark.parametrize(
    "mode",
    [
        TorchDispatchMode,
        torch.overrides.TorchFunctionMode,
        torch.profiler.profile,
        forward_ad.dual_level,
    ],
    ids=lambda mode: mode.__name__,
)
def test_nothing_is_served_while_a_mode_watches(mode):
    call = arguments(norms.LAYER_NORM, given(norms.LAYER_NORM))
    with mode():
        assert fast.layer_norm(5, *call) is None
    assert fast.layer_norm(5, *call) is not None


def test_nothing_is_served_within_transforms():
    seen = []

    def call(x):
        seen.append(fast.rms_norm(5, x, None, 1e-5))
        return x

    torch.vmap(call)(draw(3, 5))
    torch.func.grad(lambda x: call(x).sum())(draw(5))
    torch.jit.trace(lambda x: call(x), draw(3, 5), check_trace=False)
    assert seen == [None] * 3


X = draw(3, 5)
LEFT = {
    "another normalized_shape": (4, X, None, 1e-5),
    "two dimensions": ((3, 5), X, None, 1e-5),
    "a list": ([5], X, None, 1e-5),
    "an integer eps": (5, X, None, 1),
    "no tensor": (5, X.numpy(), None, 1e-5),
    "nothing": (5, None, None, 1e-5),
    "a wider weight": (5, X, draw(6), 1e-5),
    "a weight of two dimensions": (5, X, draw(1, 5), 1e-5),
    "a weight of another type": (5, X, draw(5).half(), 1e-5),
    "columns apart": (5, X.repeat_interleave(2, 1)[:, ::2], None, 1e-5),
    "rows apart": (5, X.repeat_interleave(2, 0)[::2], None, 1e-5),
    "negated": (1, torch.complex(X, X).conj().imag[:, :1], None, 1e-5),
    "no rows": (5, X[:0], None, 1e-5),
    "integers": (5, X.long(), None, 1e-5),
    "a number": (1, torch.tensor(1.0), None, 1e-5),
    "nine dimensions": (5, X[(None,) * 7], None, 1e-5),
    "a sparse tensor": (5, X.to_sparse(), None, 1e-5),
    "on no device": (5, X.to("meta"), None, 1e-5),
    "a subclass": (5, X.as_subclass(type("Mine", (torch.Tensor,), {})), None, 1e-5),
    "too few arguments": (5, X, None),
    "an eps that is none": (5, X, None, float("nan")),
}


@pytest.mark.parametrize("what", LEFT)
def test_everything_else_is_left_to_the_operators(what):
    assert fast.rms_norm(*LEFT[what]) is None


ADDED_LEFT = {
    "no residual": (5, X, None, 1e-5, None),
    "a residual of another shape": (5, X, None, 1e-5, draw(5)),
    "a residual of another type": (5, X, None, 1e-5, X.half()),
    "a residual that is no tensor": (5, X, None, 1e-5, 1.0),
    "too few arguments": (5, X, None, 1e-5),
}


@pytest.mark.parametrize("what", ADDED_LEFT)
def test_every_other_sum_is_left_to_the_operators(what):
    assert fast.add_rms_norm(*ADDED_LEFT[what]) is None


@pytest.mark.parametrize("grad_sum", [draw(5), X.half()], ids=["shape", "type"])
def test_gradients_of_other_sums_are_left_to_the_operators(grad_sum):
    call = fast.backward_of(norms.ADD_RMS_NORM)
    assert call(X, X, draw(5), EPS, grad_sum) is None
    assert call(X, X, draw(5), EPS, X) is not None


def recorded(norm, shape=(3, 5)):
    """The tensors of a call, all of which want gradients, and its results."""
    tensors = norms.Given(
        *(t if t is None else t.requires_grad_() for t in given(norm, shape=shape))
    )
    return tensors, tensors_of(short(norm, 5, *arguments(norm, tensors)))


@each_norm
def test_no_statement_of_python_runs_in_recorded_calls(norm):
    """Neither forward nor in a node: that would take longer than the norm."""
    tensors, results = recorded(norm)
    call = partial(getattr(fast, norm.name), 5, *arguments(norm, tensors))
    node = results[0].grad_fn.apply
    gradients = (draw(3, 5, seed=9),) * len(results)
    entered = []

    def note(frame, event, _):
        if event == "call":
            entered.append(frame.f_code)

    with torch.no_grad():  # as PyTorch calls nodes
        sys.setprofile(note)
        node(*gradients)
        sys.setprofile(None)
    sys.setprofile(note)
    results = call()
    sys.setprofile(None)
    assert entered == [] and tensors_of(results)[0].requires_grad


@each_norm
@pytest.mark.parametrize("plain", [True, False], ids=["served", "left to the operators"])
def test_what_was_kept_is_asked_for_once(norm, plain):
    """Checkpoints compute it where it is asked for, and refuse to do so twice."""
    asked = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: (asked.append(1), t)[1]):
        tensors, results = recorded(norm)
    gradient = draw(3, 5, seed=9) if plain else draw(5, 3, seed=9).t()
    wanted = [t for t in tensors if t is not None]
    found = torch.autograd.grad(results, wanted, (gradient,) * len(results))
    assert len(asked) == 2  # tensors
    again, same = recorded(norm)
    wanted = [t for t in again if t is not None]
    copied = (gradient.contiguous(),) * len(same)
    assert bits(*found) == bits(*torch.autograd.grad(same, wanted, copied))


@each_norm
def test_a_graph_is_walked_again_only_if_it_was_kept(norm):
    tensors, results = recorded(norm)
    gradients = (draw(3, 5, seed=9),) * len(results)
    first = torch.autograd.grad(results, tensors.input, gradients, retain_graph=True)
    assert bits(*torch.autograd.grad(results, tensors.input, gradients)) == bits(*first)
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        torch.autograd.grad(results, tensors.input, gradients)


@each_norm
def test_what_was_kept_must_not_have_changed(norm):
    tensors, results = recorded(norm)
    with torch.no_grad():
        tensors.weight.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        torch.autograd.grad(results[0], tensors.input, draw(3, 5, seed=9))


@each_norm
def test_a_node_refuses_another_number_of_gradients(norm):
    _, results = recorded(norm)
    with pytest.raises(TypeError, match="a gradient of each result"):
        results[0].grad_fn.apply(*(draw(3, 5),) * 3)


def test_large_calls_go_to_the_operators():
    x, w, b = draw(9000, 5, requires_grad=True), draw(5, seed=1), draw(5, seed=2)
    with torch.no_grad():
        y = fast.layer_norm(5, x, w, b, 1e-5)
    assert bits(y) == bits(OPS._layer_norm(x, w, b, 1e-5))
    g = draw(9000, 5, seed=3)
    recorded = fast.layer_norm(5, x, w.requires_grad_(), b.requires_grad_(), 1e-5)
    found = torch.autograd.grad(recorded, (x, w, b), g)
    assert bits(*found) == bits(*OPS._layer_norm_backward(g, x, w, 1e-5))
    with pytest.raises(ValueError, match="eps is nan"):
        fast.layer_norm(5, x.detach(), w, b, float("nan"))


def test_results_are_tensors_like_others():
    x = draw(3, 5)
    y = fast.rms_norm(5, x, None, 1e-5)
    assert type(y) is torch.Tensor and not y.requires_grad and y.is_contiguous()
    view = y[1]
    expected = bits(view)
    del y
    for _ in range(100):
        fast.rms_norm(5, x, None, 1e-5)
    assert bits(view) == expected
    view.add_(1)
    with torch.inference_mode():
        assert fast.rms_norm(5, x, None, 1e-5).is_inference()


def test_without_the_module_all_calls_are_left(monkeypatch, tmp_path):
    monkeypatch.setattr(fast, "library_path", lambda: tmp_path / "libisobit.so")
    module, why = fast._load()
    assert module is None and "python3-dev" in why
    (tmp_path / "_isobit_fast.abi3.so").write_bytes(b"no library")
    assert fast._load()[0] is None and fast._load()[1]
    assert fast._decline(1, 2) is None


def test_connecting_fails_where_pytorch_speaks_no_dlpack():
    with pytest.raises(AttributeError):
        fast._module.connect(object(), *[None] * 5)


@pytest.mark.parametrize(
    "function, count", [("connect", 6), ("connect_norms", 4), ("connect_records", 4)]
)
def test_connecting_counts_its_arguments(function, count):
    with pytest.raises(TypeError, match=f"{function} takes {count} arguments"):
        getattr(fast._module, function)()


class Watching(TorchDispatchMode):
    def __torch_dispatch__(self, function, types, arguments=(), more=None):
        return function(*arguments, **(more or {}))


def dispatched_calls(record, monkeypatch):
    """Of a record's operator by its name, from now on."""
    operator, called = record.operator, []
    record.layout  # noqa: B018, which asks the operator once

    def dispatched(*arguments):
        called.append(arguments)
        return operator(*arguments)

    monkeypatch.setitem(vars(record), "operator", dispatched)
    return called


@pytest.mark.parametrize(
    "mode",
    [
        Watching,
        torch.profiler.profile,
        forward_ad.dual_level,
        partial(torch.autocast, "cpu"),
    ],
    ids=str,
)
@pytest.mark.parametrize("requires_grad", [False, True])
def test_operators_are_called_by_the_dispatcher_where_a_mode_watches(
    mode, requires_grad, monkeypatch
):
    x, weight = draw(1, 2, 5, 5), draw(3, 2, 3, 3, requires_grad=requires_grad)
    called = dispatched_calls(CONVOLUTION, monkeypatch)
    isobit.torch.conv2d(x, weight)
    assert not called
    with mode():
        isobit.torch.conv2d(x, weight)
    assert len(called) == 1


def test_operators_are_called_by_the_dispatcher_with_tensors_of_other_classes(monkeypatch):
    class Own(torch.Tensor):
        pass

    called = dispatched_calls(CONVOLUTION, monkeypatch)
    weight = draw(3, 2, 3, 3)
    isobit.torch.conv2d(draw(1, 2, 5, 5), torch.nn.Parameter(weight))
    assert not called
    isobit.torch.conv2d(draw(1, 2, 5, 5).as_subclass(Own), weight)
    assert called
