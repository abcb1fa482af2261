# SPDX-License-Identifier: Apache-2.0
"""The short way for small calls gives what the operators give, and leaves alone what is not its."""

import pytest
import torch
from torch.autograd import forward_ad
from torch.utils._python_dispatch import TorchDispatchMode
from torch_calls import bits, draw

from isobit.torch import fast, norms

OPS = torch.ops.isobit
CALLS = {
    "layer_norm": (fast.layer_norm, fast.forward_of(norms.LAYER_NORM), OPS._layer_norm, 2),
    "rms_norm": (fast.rms_norm, fast.forward_of(norms.RMS_NORM), OPS._rms_norm, 1),
}


def arguments(count, dtype=torch.float32, shape=(3, 5)):
    return [draw(*shape, dtype=dtype), *(draw(5, dtype=dtype, seed=i) for i in range(count)), 1e-5]


def test_the_module_is_there():
    assert fast.missing == ""


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("shape", [(5,), (3, 5), (2, 3, 5), (1, 1, 1, 1, 1, 1, 1, 5)])
def test_results_are_those_of_the_operators(name, dtype, shape):
    short, inner, operator, count = CALLS[name]
    given = arguments(count, dtype, shape)
    y = operator(*given)
    for normalized_shape in (5, (5,)):
        assert bits(short(normalized_shape, *given)) == bits(y)
    result = inner(*given)
    assert result.dtype == dtype and result.shape == y.shape and result.stride() == y.stride()
    assert result.data_ptr() % 64 == 0


@pytest.mark.parametrize("norm", [norms.LAYER_NORM, norms.RMS_NORM], ids=lambda norm: norm.name)
def test_gradients_are_those_of_the_operators(norm):
    x, g, w = draw(3, 5), draw(3, 5, seed=1), draw(5, seed=2)
    expected = norm.operator("_backward")(g, x, w, 1e-5)
    assert bits(*fast.backward_of(norm)(g, x, w, 1e-5)) == bits(*expected)


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
    short, _, _, count = CALLS["layer_norm"]
    given = arguments(count)
    with mode():
        assert short(5, *given) is None
    assert short(5, *given) is not None


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
        fast._module.connect(object(), *[None] * 10)
    with pytest.raises(TypeError, match="11 arguments"):
        fast._module.connect()
