# SPDX-License-Identifier: Apache-2.0
"""Calls of PyTorch's functions are Isobit's where that was asked for, and nowhere else."""

import copy
import threading

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch_calls import bits, draw

import isobit.torch
from isobit.torch import intercept, interception, override

WIDTH = 24
EPS = 1e-3


def calls(x, weight):
    return (
        F.layer_norm(x, (WIDTH,), weight),
        F.layer_norm(x, normalized_shape=[WIDTH], weight=weight, bias=weight, eps=EPS),
        torch.layer_norm(x, (WIDTH,), weight, None, EPS, False),
        F.rms_norm(x, (WIDTH,), weight, EPS),
        torch.rms_norm(x, (WIDTH,), weight=weight, eps=EPS),
    )


def expected_calls(x, weight):
    return (
        isobit.torch.layer_norm(x, WIDTH, weight),
        isobit.torch.layer_norm(x, WIDTH, weight, weight, EPS),
        isobit.torch.layer_norm(x, WIDTH, weight, None, EPS),
        isobit.torch.rms_norm(x, WIDTH, weight, EPS),
        isobit.torch.rms_norm(x, WIDTH, weight, EPS),
    )


@pytest.fixture
def call():
    return draw(64, WIDTH), nn.Parameter(draw(WIDTH))


def test_calls_are_isobits_inside_and_pytorchs_outside(call):
    plain = bits(*calls(*call))
    with intercept():
        inside = bits(*calls(*call))
        with intercept():
            assert bits(*calls(*call)) == inside
        assert bits(*calls(*call)) == inside
    assert inside == bits(*expected_calls(*call)) != plain
    assert bits(*calls(*call)) == plain


def test_an_intercepted_call_has_a_gradient(call):
    x, weight = call
    with intercept():
        inside = F.layer_norm(x, (WIDTH,), weight)
    (gradient,) = torch.autograd.grad(inside.square().sum(), weight)
    y = isobit.torch.layer_norm(x, WIDTH, weight)
    assert bits(gradient) == bits(*torch.autograd.grad(y.square().sum(), weight))


def test_other_threads_keep_pytorchs_functions(call):
    plain, found = bits(*calls(*call)), []
    with intercept():
        thread = threading.Thread(target=lambda: found.append(bits(*calls(*call))))
        thread.start()
        thread.join()
    assert found == [plain]


def test_tensors_that_isobit_does_not_compute_stay_with_pytorch():
    class Tagged(torch.Tensor):
        pass

    weight = torch.ones(WIDTH)
    x = draw(2, WIDTH).as_subclass(Tagged)
    parts = [draw(2, WIDTH), draw(3, WIDTH)]
    with intercept():
        assert type(F.layer_norm(x, (WIDTH,))) is Tagged
        for layout in (torch.strided, torch.jagged):
            nested = torch.nested.nested_tensor(parts, layout=layout)
            assert F.layer_norm(nested, (WIDTH,), weight, weight).is_nested
        with pytest.raises(RuntimeError, match="mixed dtype"):
            F.layer_norm(draw(2, WIDTH), (WIDTH,), weight.bfloat16())
        assert F.layer_norm(torch.empty(2, WIDTH, device="meta"), (WIDTH,)).is_meta


def test_interception_reaches_into_compiled_code(call):
    compiled = torch.compile(calls, backend="aot_eager", fullgraph=True)

    @torch.compile(backend="aot_eager", fullgraph=True)
    def intercepting(x, weight):
        with intercept():
            return calls(x, weight)

    plain, expected = bits(*calls(*call)), bits(*expected_calls(*call))
    assert bits(*compiled(*call)) == plain
    with intercept():
        assert bits(*compiled(*call)) == expected
    assert bits(*compiled(*call)) == plain
    assert bits(*intercepting(*call)) == expected


def layer_norm_bits(call):
    return bits(F.layer_norm(call[0], (WIDTH,), call[1]))


def test_the_override_holds_in_all_threads_until_its_last_holder_restores(call):
    plain = layer_norm_bits(call)
    ours = bits(isobit.torch.layer_norm(call[0], WIDTH, call[1]))
    found = []
    first = override()
    with override():
        first.restore()
        first.restore()
        thread = threading.Thread(target=lambda: found.append(layer_norm_bits(call)))
        thread.start()
        thread.join()
        assert found == [layer_norm_bits(call)] == [ours]
    assert layer_norm_bits(call) == plain != ours


def test_the_override_lasts_without_its_result(call):
    override()
    try:
        ours = bits(isobit.torch.layer_norm(call[0], WIDTH, call[1]))
        assert layer_norm_bits(call) == ours
    finally:
        for holder in list(interception._overrides):
            holder.restore()


def test_threads_may_override_at_once(call):
    plain = layer_norm_bits(call)

    def hold():
        for _ in range(50):
            with override():
                assert interception._overrides

    threads = [threading.Thread(target=hold) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not interception._overrides and layer_norm_bits(call) == plain


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is")
def test_the_override_reaches_scripts_and_pytorchs_own_cpp():
    x = draw(2, 3, 8)
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, norm_first=True).eval()
    module = nn.LayerNorm(8)
    script = torch.jit.script(copy.deepcopy(module))
    with torch.no_grad():
        fast = bits(layer(x))
        with override():
            assert bits(script(x)) == bits(isobit.torch.layer_norm(x, 8, *module.parameters()))
            assert bits(layer(x)) != fast
        assert bits(layer(x)) == fast


def test_the_override_differentiates_once_and_twice():
    x, w, b = (draw(*shape).double().requires_grad_() for shape in ((2, 5), (5,), (5,)))

    def norm(x, w, b):
        return F.layer_norm(x, (5,), w, b)

    with override():
        assert torch.autograd.gradcheck(norm, (x, w, b))
        assert torch.autograd.gradgradcheck(norm, (x, w, b))


def test_the_override_differentiates_without_weights(call):
    x = call[0].requires_grad_()
    expected = torch.autograd.grad(F.layer_norm(x, (WIDTH,)).square().sum(), x)[0]
    with override():
        found = torch.autograd.grad(F.layer_norm(x, (WIDTH,)).square().sum(), x)[0]
    assert torch.allclose(found, expected, atol=1e-5)


def test_gradients_under_the_override_are_those_of_the_stored_statistics(call):
    """PyTorch hands them to backward, and not eps: their bits differ from isobit.torch's."""
    x, weight = call[0].requires_grad_(), call[1]
    y = isobit.torch.layer_norm(x, WIDTH, weight)
    expected = torch.autograd.grad(y.square().sum(), (x, weight))
    with override():
        y = F.layer_norm(x, (WIDTH,), weight)
        found = torch.autograd.grad(y.square().sum(), (x, weight))
    for one, other in zip(found, expected, strict=True):
        assert torch.allclose(one, other, rtol=1e-5, atol=1e-5)


def test_what_went_forward_under_the_override_must_go_backward_under_it():
    """PyTorch keeps statistics of 16 bits there; ours have 32."""
    x = draw(4, WIDTH, dtype=torch.bfloat16, requires_grad=True)
    with override():
        y = F.layer_norm(x, (WIDTH,))
    with pytest.raises(RuntimeError, match="BFloat16"):
        torch.autograd.grad(y.sum(), x)


def products(a, b, bias):
    """All that intercept(products=True) takes, the products with a bias at the end."""
    weight = b.t()
    return (
        *(torch.matmul(a, b), torch.mm(a, b), torch.bmm(a[None], b[None])[0], F.linear(a, weight)),
        *(a @ b, a.matmul(b), a.mm(b), a[None].bmm(b[None])[0], torch.Tensor.__rmatmul__(b, a)),
        *(F.linear(a, weight, bias), F.linear(input=a, weight=weight, bias=bias)),
    )


def expected_products(a, b, bias):
    plain, biased = isobit.torch.matmul(a, b), isobit.torch.matmul(a, b, bias=bias)
    return *(plain,) * 9, biased, biased


@pytest.fixture
def factors():
    return draw(40, 3000), draw(3000, 50), draw(50)  # one chain of a few has the same bits in MKL


def test_products_are_isobits_inside_where_that_was_asked_for(factors):
    plain, expected = bits(*products(*factors)), bits(*expected_products(*factors))
    norm = layer_norm_bits((draw(4, WIDTH), None))
    with intercept():
        assert bits(*products(*factors)) == plain
    with intercept(products=True):
        assert bits(*products(*factors)) == expected
        assert layer_norm_bits((draw(4, WIDTH), None)) != norm, "norms too"
    assert bits(*products(*factors)) == plain
    assert all(one != other for one, other in zip(plain, expected, strict=True))


def test_intercepted_products_have_gradients(factors):
    a, b, bias = (each.requires_grad_() for each in factors)
    with intercept(products=True):
        found = F.linear(a, b.t(), bias) @ b.t()
    expected = isobit.torch.matmul(isobit.torch.linear(a, b.t(), bias), b.t())
    grads = [torch.autograd.grad(y.square().sum(), (a, b, bias)) for y in (found, expected)]
    assert bits(*grads[0]) == bits(*grads[1])


def test_products_are_intercepted_in_compiled_code(factors):
    torch._dynamo.reset()
    compiled = torch.compile(products, backend="aot_eager", fullgraph=True)
    plain = bits(*compiled(*factors))
    with intercept(products=True):
        assert bits(*compiled(*factors)) == bits(*expected_products(*factors)) != plain
    assert bits(*compiled(*factors)) == plain
    torch._dynamo.reset()


class Operators(TorchDispatchMode):
    """The names of the operators that run inside."""

    def __init__(self):
        super().__init__()
        self.names = set()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.names.add(str(function.overloadpacket))
        return function(*args, **(kwargs or {}))


def test_autocast_narrows_intercepted_products_of_any_types(factors):
    a, b, _ = factors
    expected = bits(isobit.torch.matmul(a.bfloat16(), b.bfloat16()))
    with torch.autocast("cpu", torch.bfloat16), intercept(products=True), Operators() as seen:
        for one in (a, a.bfloat16()):
            for other in (b, b.bfloat16()):
                seen.names.clear()
                assert bits(one @ other) == expected
                assert "isobit.matmul" in seen.names, "16 bits seldom tell whose they are"


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support is in beta")
def test_products_that_isobit_does_not_compute_stay_with_pytorch(factors):
    a, b, _ = factors
    plain, place = bits(torch.mm(a, b)), torch.empty(40, 50)
    with intercept(products=True):
        torch.mm(a, b, out=place)
        assert bits(place) == plain
        whole = torch.arange(6).reshape(2, 3)
        assert (whole @ whole.t()).dtype == torch.int64
        assert torch.allclose(a.to_sparse_csr() @ b, a @ b, atol=1e-3)
        assert torch.allclose(a @ b.to_sparse_csr(), a @ b, atol=1e-3)
        with pytest.raises(RuntimeError, match="same dtype"):
            torch.mm(a, b.double())
        with pytest.raises(TypeError):
            a @ 3


def convolved(x, image):
    """Every call that intercept(convolutions=True) takes, by position and by name."""
    a, b = torch.ones(6, 2, 3).cumsum(1), torch.ones(4, 3, 3, 3).cumsum(0)
    bias = a[:, 0, 0]
    return (
        F.conv1d(x, a, bias, 2, 1, 1, 2),
        F.conv1d(input=x, weight=a, bias=bias, stride=2, padding=1, groups=2),
        torch.conv2d(image, b, padding="same"),
        F.conv_transpose1d(x, a[:4], None, 2, 1, 1, 2, 1),
        torch.conv_transpose2d(image, b.transpose(0, 1), stride=2, output_padding=1),
    )


def expected_convolved(x, image):
    a, b = torch.ones(6, 2, 3).cumsum(1), torch.ones(4, 3, 3, 3).cumsum(0)
    first = isobit.torch.conv1d(x, a, a[:, 0, 0], 2, 1, groups=2)
    more = {"stride": 2, "output_padding": 1}
    return (
        *(first, first, isobit.torch.conv2d(image, b, padding="same")),
        isobit.torch.conv_transpose1d(x, a[:4], padding=1, groups=2, **more),
        isobit.torch.conv_transpose2d(image, b.transpose(0, 1), **more),
    )


def convolution_operators(products, convolutions):
    """Those of Isobit's that run."""
    with intercept(products=products, convolutions=convolutions), Operators() as seen:
        found = convolved(draw(2, 4, 20), draw(2, 3, 9, 9))
        draw(2, 3) @ draw(3, 2)
    return found, {name for name in seen.names if name.startswith("isobit")}


def test_convolutions_are_isobits_inside_where_that_was_asked_for():
    expected = bits(*expected_convolved(draw(2, 4, 20), draw(2, 3, 9, 9)))
    found, names = convolution_operators(False, True)
    assert bits(*found) == expected
    assert names == {"isobit.convolution", "isobit.convolution_input"}
    assert convolution_operators(True, False)[1] == {"isobit.matmul"}
    assert convolution_operators(True, True)[1] == names | {"isobit.matmul"}
    assert convolution_operators(False, False)[1] == set()


def test_intercepted_convolutions_reach_modules_and_have_gradients():
    module, x = nn.Conv1d(3, 5, 4, padding=2), draw(2, 3, 19)
    with intercept(convolutions=True):
        found = module(x)
    expected = isobit.torch.conv1d(x, module.weight, module.bias, padding=2)
    leaves = tuple(module.parameters())
    along = draw(*expected.shape)
    assert bits(found) == bits(expected)
    assert bits(*torch.autograd.grad(found, leaves, along)) == bits(
        *torch.autograd.grad(expected, leaves, along)
    )


def test_convolutions_are_intercepted_in_compiled_code():
    given = draw(2, 4, 20), draw(2, 3, 9, 9)
    torch._dynamo.reset()
    compiled = torch.compile(convolved, backend="aot_eager", fullgraph=True)
    with intercept(convolutions=True):
        assert bits(*compiled(*given)) == bits(*expected_convolved(*given))
    torch._dynamo.reset()


def test_convolutions_that_isobit_does_not_compute_stay_with_pytorch():
    x, weight = draw(1, 2, 9), draw(3, 2, 3)
    with intercept(convolutions=True):
        assert F.conv1d(x.cfloat(), weight.cfloat()).dtype == torch.complex64
        assert F.conv1d(x.long(), weight.long()).dtype == torch.int64
        assert F.conv3d(x[..., None, None], weight[..., None, None]).shape == (1, 3, 7, 1, 1)
        with pytest.raises(RuntimeError, match="expected scalar type"):
            F.conv1d(x, weight.double())
        with torch.autocast("cpu", torch.bfloat16):
            assert F.conv1d(x, weight.bfloat16()).dtype == torch.bfloat16


def test_products_inside_of_attention_stay_with_pytorch():
    """PyTorch calls the function of the whole attention without modes."""
    attention = nn.MultiheadAttention(16, 2)
    x = draw(70, 3, 16)
    plain = bits(attention(x, x, x)[0])
    with intercept(products=True):
        assert bits(attention(x, x, x)[0]) == plain


def test_calls_of_isobit_are_not_heard_of_but_by_other_modes():
    heard = []

    class Hears(interception.Interception):
        def __torch_function__(self, function, types, args=(), kwargs=None):
            heard.append(function)
            return super().__torch_function__(function, types, args, kwargs)

    class Other(TorchFunctionMode):
        def __torch_function__(self, function, types, args=(), kwargs=None):
            heard.append(function)
            return function(*args, **(kwargs or {}))

    x, weight = draw(1, 2, 5, 5), draw(3, 2, 3, 3)
    with Hears({}):
        isobit.torch.conv2d(x, weight)
    assert heard == []
    with Other(), Hears({}):
        isobit.torch.conv2d(x, weight)
    assert heard.count(isobit.torch.conv2d) == 2
