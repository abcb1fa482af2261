# SPDX-License-Identifier: Apache-2.0
"""The arithmetic of products: asked for by name, carried to every product that a call leads to, and
refused where nothing computes it. Tensors of the meta device show what a GPU would be asked for; of
bfloat16 the CPU has it, which gives each product of its own other bits than canonical."""

import copy
import io

import pytest
import torch
from torch import nn
from torch._dynamo.backends.common import aot_autograd
from torch.nn.utils import parametrize
from torch_calls import Products, bits, draw

import isobit.numpy
import isobit.torch
from isobit.torch import patch
from isobit.torch.products import ACTIVATIONS, ARITHMETICS

REFUSED = (
    "matmul: arithmetic tensor needs bf16 on a processor, or f16 or bf16 on a GPU .*; use canonical"
)
TENSOR = ARITHMETICS.index("tensor")
OPERATORS = torch.ops.isobit


def meta(*shape, dtype=torch.bfloat16):
    return torch.empty(*shape, dtype=dtype, device="meta", requires_grad=True)


def test_names_are_numbered_as_the_library_does():
    given = (draw(3, 4), draw(4, 5))
    with pytest.raises(ValueError, match=f"arithmetic is 2; allowed: 0 to {len(ARITHMETICS) - 1}"):
        OPERATORS.matmul(*given, None, 0, None, len(ARITHMETICS))
    for name in ARITHMETICS[1:]:
        with pytest.raises(RuntimeError, match=f"arithmetic {name} needs"):
            OPERATORS.matmul(*given, None, 0, None, ARITHMETICS.index(name))
    assert ARITHMETICS == isobit._products.ARITHMETICS


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_canonical_is_the_default(dtype):
    x, weight = draw(3, 4, dtype=dtype), draw(5, 4, dtype=dtype)
    expected = isobit.torch.linear(x, weight)
    assert bits(isobit.torch.linear(x, weight, arithmetic="canonical")) == bits(expected)
    assert bits(isobit.torch.matmul(x, weight.t(), arithmetic="canonical")) == bits(expected)
    layer = isobit.torch.Linear(4, 5, bias=False, dtype=dtype, arithmetic="canonical")
    layer.weight = nn.Parameter(weight)
    assert bits(layer(x)) == bits(expected)


@pytest.mark.parametrize("rows", [3, 0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_a_processor_refuses_tensor_in_the_librarys_words(dtype, rows):
    x, weight = draw(rows, 4, dtype=dtype), draw(5, 4, dtype=dtype)
    layer = isobit.torch.Linear(4, 5, dtype=dtype, arithmetic="tensor")
    calls = [
        lambda: isobit.torch.linear(x, weight, arithmetic="tensor"),
        lambda: isobit.torch.linear(x, weight, activation="silu", arithmetic="tensor"),
        lambda: isobit.torch.matmul(x, weight.t(), arithmetic="tensor"),
        lambda: layer(x),
        lambda: OPERATORS.matmul_backward(x @ weight.t(), x, weight.t(), None, arithmetic=TENSOR),
    ]
    for call in calls:
        with pytest.raises(RuntimeError, match=REFUSED):
            call()


def steps_of(a, b):
    """a @ b in the order of AMX, of factors whose sums are far from subnormal: chains of fma by way
    of float64, where the sum of a product of bfloat16 and a float32 is all but always exact."""
    a, b = a.double(), b.double()
    total = torch.zeros(a.shape[0], b.shape[1])
    for step in range(0, a.shape[1], 32):
        chains = [torch.zeros_like(total), torch.zeros_like(total)]
        for k in range(step, min(step + 32, a.shape[1])):
            product = a[:, k, None] * b[None, k, :]
            chains[k % 2] = (chains[k % 2].double() + product).float()
        total += chains[0] + chains[1]
    return total


def grown(*shape):
    """Elements of all sizes near 1, so that orders differ in bits."""
    return draw(*shape, dtype=torch.bfloat16)


def test_a_processor_has_the_order_of_amx():
    a, b = grown(9, 300), grown(300, 11)
    y = isobit.torch.matmul(a, b, out_dtype=torch.float32, arithmetic="tensor")
    assert bits(y) == bits(steps_of(a, b))
    assert bits(y) != bits(isobit.torch.matmul(a, b, out_dtype=torch.float32))


def test_gradients_are_products_of_the_same_arithmetic():
    leaves = [grown(40, 300).requires_grad_(), grown(300, 50).requires_grad_()]
    grad = grown(40, 50).float()
    y = isobit.torch.matmul(*leaves, out_dtype=torch.float32, arithmetic="tensor")
    grads = torch.autograd.grad(y, leaves, grad)
    a, b = (each.detach() for each in leaves)
    expected = steps_of(grad.bfloat16(), b.t()), steps_of(a.t(), grad.bfloat16())
    assert [bits(each) for each in grads] == [bits(each.bfloat16()) for each in expected]


def test_layers_autocast_compiled_and_mapped_calls_have_it():
    x, weight = grown(6, 300), grown(5, 300)
    expected = bits(steps_of(x, weight.t()).bfloat16())
    layer = isobit.torch.Linear(300, 5, bias=False, dtype=torch.bfloat16, arithmetic="tensor")
    layer.weight = nn.Parameter(weight)
    usual = nn.Sequential(nn.Linear(300, 5, bias=False))
    usual[0].weight = nn.Parameter(weight.float())
    with patch(usual, linear=True, arithmetic="tensor"), torch.autocast("cpu", torch.bfloat16):
        assert bits(usual(x.float())) == expected
    assert bits(layer(x)) == expected

    def call(x):
        return isobit.torch.linear(x, weight, arithmetic="tensor")

    assert bits(torch.compile(call, fullgraph=True, backend="aot_eager")(x)) == expected
    assert bits(torch.vmap(call)(x)) == expected


@pytest.mark.parametrize("call", [isobit.numpy.matmul, isobit.numpy.linear])
def test_numpy_has_it_too(call):
    ml_dtypes = pytest.importorskip("ml_dtypes")
    a, b = grown(9, 300), grown(300, 300)
    arrays = [each.float().numpy().astype(ml_dtypes.bfloat16) for each in (a, b)]
    y = torch.from_numpy(call(*arrays, arithmetic="tensor").astype("f4"))
    b = b if call is isobit.numpy.matmul else b.t()
    assert bits(y.bfloat16()) == bits(steps_of(a, b).bfloat16())


def test_compiled_and_mapped_calls_are_refused_too():
    x, weight = draw(2, 3, 4, dtype=torch.float16), draw(4, 5, dtype=torch.float16)

    def call(x):
        return isobit.torch.matmul(x, weight, arithmetic="tensor")

    for one in (torch.compile(call, fullgraph=True, backend="aot_eager"), torch.vmap(call)):
        with pytest.raises(RuntimeError, match=REFUSED):
            one(x)


@pytest.mark.parametrize("call", [isobit.numpy.matmul, isobit.numpy.linear])
def test_numpy_refuses_it_too(call):
    x = draw(4, 4, dtype=torch.float16).numpy()
    with pytest.raises(NotImplementedError, match=REFUSED):
        call(x, x, arithmetic="tensor")
    assert call(x, x, arithmetic="canonical").tobytes() == call(x, x).tobytes()


@pytest.mark.parametrize("wrong", ["fast", None, 1, ["tensor"]])
def test_another_arithmetic_is_an_error_that_names_what_is_allowed(wrong):
    x = draw(4, 4)
    calls = {
        "matmul": lambda: isobit.torch.matmul(x, x, arithmetic=wrong),
        "linear": lambda: isobit.torch.linear(x, x, arithmetic=wrong),
        "Linear": lambda: isobit.torch.Linear(4, 4, arithmetic=wrong),
        "patch": lambda: patch(nn.Linear(4, 4), linear=True, arithmetic=wrong),
    }
    of_numpy = {
        name: lambda name=name: getattr(isobit.numpy, name)(x.numpy(), x.numpy(), arithmetic=wrong)
        for name in ("matmul", "linear")
    }
    for name, call in (*calls.items(), *of_numpy.items()):
        with pytest.raises(ValueError) as raised:
            call()
        expected = f"{name}: arithmetic is {wrong!r}; allowed: 'canonical', 'tensor'"
        assert str(raised.value) == expected


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_every_product_of_a_call_has_the_arithmetic_of_the_call(activation):
    """Those of forward, backward, the gradients of gradients, and forward mode."""
    leaves = meta(6, 8), meta(5, 8), meta(5)
    activation = None if activation == "none" else activation

    def call(*tensors):
        return isobit.torch.linear(*tensors, activation=activation, arithmetic="tensor")

    with Products() as products:
        y = call(*leaves)
        forward = {name for name, _ in products.seen}
        grads = torch.autograd.grad(y, leaves, meta(6, 5), create_graph=True)
        assert [each.shape for each in grads] == [each.shape for each in leaves]
        along = [torch.ones_like(each) for each in grads]
        torch.autograd.grad(grads, leaves, along, allow_unused=True)
        torch.func.jvp(call, leaves, tuple(map(torch.ones_like, leaves)))
    assert forward == {"matmul" if activation is None else "activated_matmul"}
    names = {name.removeprefix("_") for name, _ in products.seen}
    assert names >= forward | {"matmul", "matmul_backward"}
    assert {arithmetic for _, arithmetic in products.seen} == {TENSOR}


@pytest.mark.parametrize("code", range(len(ACTIVATIONS)))
def test_backward_hands_it_to_its_own_derivatives(code):
    grad, a, b, pre = meta(6, 5), meta(6, 8), meta(8, 5), meta(6, 5) if code else None
    given = [each for each in (grad, a, b, pre) if each is not None]

    def call(*tensors):
        tensors = (*tensors, None)[:4]
        return OPERATORS.matmul_backward(
            *tensors, code, True, True, torch.bfloat16, arithmetic=TENSOR
        )

    with Products() as products:
        results = call(*given)
        along = [torch.ones_like(each) for each in results]
        torch.autograd.grad(results, given, along, allow_unused=True)
        torch.func.jvp(call, tuple(given), tuple(map(torch.ones_like, given)))
    assert {name.removeprefix("_") for name, _ in products.seen} == {"matmul", "matmul_backward"}
    assert {arithmetic for _, arithmetic in products.seen} == {TENSOR}


def test_samples_and_gradients_of_samples_have_it():
    a, b = meta(7, 6, 8).detach(), meta(8, 5).detach()

    def loss(a):
        return isobit.torch.matmul(a, b, activation="gelu", arithmetic="tensor").sum()

    with Products() as products:
        assert torch.vmap(torch.func.grad(loss))(a).shape == a.shape
    assert len({name for name, _ in products.seen}) > 1
    assert {arithmetic for _, arithmetic in products.seen} == {TENSOR}


def test_a_graph_tells_the_arithmetic():
    weight, graphs = draw(5, 4, dtype=torch.bfloat16), []

    def keep(graph, _):
        graphs.append(graph)
        return lambda *given: (given[0].new_zeros(3, 5),)

    call = torch.compile(
        lambda x: isobit.torch.linear(x, weight, arithmetic="tensor"),
        backend=aot_autograd(fw_compiler=keep),
    )
    call(draw(3, 4, dtype=torch.bfloat16))
    (product,) = (node for node in graphs[0].graph.nodes if node.target is OPERATORS.matmul.default)
    assert TENSOR in product.args


@pytest.mark.parametrize("name", ["matmul", "activated_matmul", "matmul_backward"])
def test_opcheck_finds_nothing(name):
    a, b = draw(3, 4, requires_grad=True), draw(4, 5, requires_grad=True)
    given = {
        "matmul": (a, b),
        "activated_matmul": (a, b, None, ACTIVATIONS.index("gelu")),
        "matmul_backward": (draw(3, 5), a, b, None),
    }[name]
    torch.library.opcheck(getattr(OPERATORS, name).default, given, {"arithmetic": 0})


class Named(nn.Linear):
    """No more than a name."""


def test_patch_gives_a_models_linear_layers_an_arithmetic_and_takes_it_back():
    model = nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4), Named(4, 4, bias=False))
    x = draw(3, 4)
    theirs = bits(model(x))
    with patch(model, linear=True, arithmetic="tensor") as report:
        assert report.linear == ["0", "2"] and report.skipped == {}
        with pytest.raises(RuntimeError, match=REFUSED):
            model(x)
        saved = io.BytesIO()
        torch.save(model, saved)
        saved.seek(0)
        for copied in (copy.deepcopy(model), torch.load(saved, weights_only=False)):
            with pytest.raises(RuntimeError, match=REFUSED):
                copied(x)
        on_meta = copy.deepcopy(model).to("meta")
        with Products() as products:
            on_meta(x.to("meta")).sum().backward()
        assert [name for name, _ in products.seen].count("matmul") == 2
        assert {arithmetic for _, arithmetic in products.seen} == {TENSOR}
    assert bits(model(x)) == theirs
    with pytest.raises(ValueError, match=r"patch: arithmetic is 'tensor'; needs linear=True or"):
        patch(model, arithmetic="tensor")


def test_an_attribute_of_this_name_is_somebody_elses():
    layer, x = nn.Linear(4, 4), draw(3, 4)
    layer.arithmetic = "tensor"
    patch(layer, linear=True)
    assert bits(layer(x)) == bits(isobit.torch.linear(x, layer.weight, layer.bias))


def test_parametrized_layers_have_it_too():
    layer = nn.Linear(4, 4)
    parametrize.register_parametrization(layer, "weight", nn.Identity())
    patch(layer, linear=True, arithmetic="tensor")
    with pytest.raises(RuntimeError, match=REFUSED):
        layer(draw(3, 4))


def test_a_module_shows_it_where_it_is_not_the_usual_one():
    assert "arithmetic" not in repr(isobit.torch.Linear(3, 4))
    shown = repr(isobit.torch.Linear(3, 4, activation="relu", arithmetic="tensor"))
    assert shown.endswith("bias=True, activation='relu', arithmetic='tensor')")
