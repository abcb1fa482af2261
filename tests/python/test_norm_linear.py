# SPDX-License-Identifier: Apache-2.0
"""A norm with its linear layer has the bits of one after the other: in NumPy, in PyTorch with
gradients of every order, compiled, batched, under autocast, as modules, and in the versions beside
the C++."""

import itertools

import numpy as np
import pytest

import isobit.numpy as isobit_numpy

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

import isobit.torch  # noqa: E402
from isobit.ops.layernorm_linear import pytorch as layernorm_linear  # noqa: E402
from isobit.ops.rmsnorm_linear import pytorch as rmsnorm_linear  # noqa: E402

ACTIVATIONS = (None, "relu", "gelu", "gelu_tanh", "silu")
NORMS = ("layer_norm", "rms_norm")


def draw(*shape, dtype=torch.float32, seed=0):
    generator = torch.Generator().manual_seed(seed + sum(shape))
    return torch.randn(*shape, generator=generator, dtype=torch.float64).to(dtype)


def arguments(norm, dtype=torch.float32, rows=(5, 7), cols=40, features=33, weights=None):
    """Of a call, by name, in the order of the functions."""
    own = weights or dtype
    given = {"input": draw(*rows, cols, dtype=dtype), "norm_weight": draw(cols, dtype=own, seed=1)}
    if norm == "layer_norm":
        given["norm_bias"] = draw(cols, dtype=own, seed=2)
    given["weight"] = draw(features, cols, dtype=dtype, seed=3)
    return given | {"bias": draw(features, dtype=own, seed=4)}


def fused(norm, given, library=isobit.torch, **options):
    given = dict(given)
    x = given.pop("input")
    return getattr(library, f"{norm}_linear")(x, x.shape[-1:], **given, **options)


def separate(norm, given, activation=None, residual=None):
    x, shape = given["input"], given["input"].shape[-1:]
    weights = (given["norm_weight"], *((given["norm_bias"],) if "norm_bias" in given else ()))
    y = getattr(isobit.torch, norm)(x, shape, *weights, out_dtype=given["weight"].dtype)
    z = isobit.torch.linear(y, given["weight"], given["bias"], activation=activation)
    return z if residual is None else z + residual


def error(found, exact):
    return ((found.double() - exact).abs().max() / exact.abs().max()).item()


# What the README's table says.
@pytest.mark.parametrize(
    ("mean", "deviation", "algebraic"),
    [(0, 1, 0), (100, 0.01, 1e-3), (1e4, 1, 1e-3), (1e6, 1, 0.1)],
)
def test_a_large_mean_takes_digits_of_the_algebraic_form_alone(mean, deviation, algebraic):
    given = arguments("layer_norm", rows=(64,), cols=768, features=256)
    given["input"] = mean + deviation * given["input"]
    values = list(given.values())
    exact = layernorm_linear.reference(*(each.double() for each in values))
    assert error(fused("layer_norm", given), exact) < 2e-6
    assert error(layernorm_linear.algebraic(*values), exact) >= algebraic
    if mean == 0:
        assert error(layernorm_linear.algebraic(*values), exact) < 2e-6


def asking(given):
    return {name: each.detach().requires_grad_() for name, each in given.items()}


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_values_and_gradients_are_those_of_one_after_the_other(norm, activation, dtype):
    given = asking(arguments(norm, dtype, weights=torch.float32 if activation else dtype))
    z, expected = fused(norm, given, activation=activation), separate(norm, given, activation)
    assert torch.equal(z, expected)
    along = draw(*z.shape, dtype=dtype, seed=9)
    for own, other in zip(
        torch.autograd.grad(z, list(given.values()), along),
        torch.autograd.grad(expected, list(given.values()), along),
        strict=True,
    ):
        assert torch.equal(own, other)


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("activation", [None, "gelu", "relu"])
def test_derivatives_of_two_orders_are_right(norm, activation):
    given = arguments(norm, torch.float64, rows=(3,), cols=6, features=4)
    given["residual"] = draw(3, 4, dtype=torch.float64, seed=7)
    names = tuple(given)

    def function(*tensors):
        return fused(norm, dict(zip(names, tensors, strict=True)), activation=activation)

    tensors = tuple(asking(given).values())
    assert torch.autograd.gradcheck(function, tensors, check_forward_ad=True)
    assert torch.autograd.gradgradcheck(function, tensors, check_fwd_over_rev=True)


@pytest.mark.parametrize("norm", NORMS)
def test_every_set_of_gradients_may_be_asked_for(norm):
    given = arguments(norm)
    expected = separate(norm, asking(given), "silu").sum()
    for wanted in itertools.product((False, True), repeat=len(given)):
        if not any(wanted):
            continue
        asked = {
            name: each.detach().requires_grad_(want)
            for (name, each), want in zip(given.items(), wanted, strict=True)
        }
        z = fused(norm, asked, activation="silu")
        assert torch.equal(z.sum(), expected)
        z.sum().backward()
        assert [each.grad is not None for each in asked.values()] == list(wanted)


@pytest.mark.parametrize("norm", NORMS)
def test_compiled_code_has_the_same_bits_without_a_break(norm):
    given = asking(arguments(norm))
    compiled = torch.compile(
        lambda **tensors: fused(norm, tensors, activation="gelu"),
        fullgraph=True,
        backend="aot_eager",
    )
    z, expected = compiled(**given), fused(norm, given, activation="gelu")
    assert torch.equal(z, expected)
    along = draw(*z.shape, seed=9)
    own, other = (torch.autograd.grad(y, list(given.values()), along) for y in (z, expected))
    assert all(map(torch.equal, own, other))


@pytest.mark.parametrize("norm", NORMS)
def test_code_compiled_once_serves_any_number_of_rows(norm):
    compiled = []

    def backend(graph, inputs):
        compiled.append(graph)
        return graph.forward

    call = torch.compile(
        lambda **tensors: fused(norm, tensors), fullgraph=True, dynamic=True, backend=backend
    )
    for rows in ((5, 7), (3, 9), (1000, 2)):
        given = arguments(norm, rows=rows)
        assert torch.equal(call(**given), fused(norm, given))
    assert len(compiled) == 1


def test_operators_pass_opcheck():
    given = arguments("layer_norm")
    x, *others = given.values()
    call = (x.requires_grad_(), *others, None, 1e-5, False, 2)
    torch.library.opcheck(torch.ops.isobit.layer_norm_linear.default, call)
    torch.library.opcheck(torch.ops.isobit.activated_layer_norm_linear.default, call)
    x, gamma, weight, _ = arguments("rms_norm").values()
    along = draw(5, 7, 33)
    torch.library.opcheck(
        torch.ops.isobit.rms_norm_linear_backward.default,
        (along, x, gamma, weight, None, 1e-5, False, 0),
    )


@pytest.mark.parametrize("norm", NORMS)
def test_batches_and_nested_tensors_are_rows(norm):
    given = arguments(norm)
    x, others = given["input"], {name: each for name, each in given.items() if name != "input"}
    batched = torch.vmap(lambda row: fused(norm, {"input": row, **others}))(x)
    assert torch.equal(batched, fused(norm, given))
    ragged = torch.nested.nested_tensor([x[0, :3], x[1]], layout=torch.jagged)
    own = fused(norm, {"input": ragged, **others})
    assert torch.equal(own.values(), torch.cat([fused(norm, given)[0, :3], fused(norm, given)[1]]))


@pytest.mark.parametrize("norm", NORMS)
def test_autocast_computes_as_pytorch_casts(norm):
    given = asking(arguments(norm))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        z, expected = fused(norm, given, activation="gelu"), separate(norm, given, "gelu")
    assert z.dtype == torch.bfloat16
    narrow = given | {name: given[name].bfloat16() for name in ("weight", "bias")}
    assert torch.equal(z, separate(norm, narrow, "gelu"))
    if norm == "rms_norm":
        return
    own, other = (torch.autograd.grad(y.float().sum(), list(given.values())) for y in (z, expected))
    assert all(a.dtype == b.dtype for a, b in zip(own, other, strict=True))


MODULES = (
    (isobit.torch.LayerNormLinear, (40, 33), {"activation": "silu"}),
    (isobit.torch.RMSNormLinear, (40, 33), {"bias": False, "zero_centered": True}),
    (isobit.torch.LayerNormMLP, (40, 24), {}),
    (isobit.torch.LayerNormMLP, (40, 24), {"activation": "swiglu", "normalization": "RMSNorm"}),
)


@pytest.mark.parametrize(("kind", "sizes", "options"), MODULES)
def test_modules_take_transformer_engines_states(kind, sizes, options):
    first, second = kind(*sizes, **options), kind(*sizes, **options)
    state = first.state_dict()
    assert set(state) <= {
        *("layer_norm_weight", "layer_norm_bias", "weight", "bias"),
        *("fc1_weight", "fc1_bias", "fc2_weight", "fc2_bias"),
    }
    second.load_state_dict(state | {"_extra_state": torch.empty(0)})
    x = draw(3, 40)
    assert torch.equal(first(x), second(x))
    assert kind.__name__ in repr(first) and str(sizes[1]) in repr(first)


@pytest.mark.parametrize("activation", ["gelu", "silu", "swiglu", "geglu", "geglu_tanh"])
@pytest.mark.parametrize("normalization", ["LayerNorm", "RMSNorm"])
def test_an_mlp_is_its_operations_and_computes_again_what_it_is_told_to(activation, normalization):
    torch.manual_seed(0)
    options = {"activation": activation, "normalization": normalization}
    mlp = isobit.torch.LayerNormMLP(40, 24, **options)
    again = isobit.torch.LayerNormMLP(40, 24, recompute=True, **options)
    again.load_state_dict(mlp.state_dict())
    x, residual = draw(6, 40), draw(6, 40, seed=5)
    given = {"input": x, "norm_weight": mlp.layer_norm_weight}
    if normalization == "LayerNorm":
        given["norm_bias"] = mlp.layer_norm_bias
    given |= {"weight": mlp.fc1_weight, "bias": mlp.fc1_bias}
    norm = "layer_norm" if normalization == "LayerNorm" else "rms_norm"
    if activation in ("gelu", "silu"):
        h = separate_with(norm, given, mlp.eps, activation)
    else:
        gate, up = separate_with(norm, given, mlp.eps, None).chunk(2, -1)
        approximate = {"approximate": "tanh"} if activation == "geglu_tanh" else {}
        gated = isobit.torch.swiglu if activation == "swiglu" else isobit.torch.geglu
        h = gated(gate, up, **approximate)
    expected = isobit.torch.linear(h, mlp.fc2_weight, mlp.fc2_bias) + residual
    y = mlp(x, residual=residual)
    assert torch.equal(y, expected)
    own = torch.autograd.grad(y.sum(), list(mlp.parameters()))
    other = torch.autograd.grad(again(x, residual=residual).sum(), list(again.parameters()))
    assert all(map(torch.equal, own, other))


def separate_with(norm, given, eps, activation):
    """With another eps than the usual one."""
    return fused(norm, given, eps=eps, activation=activation)


def test_a_module_refuses_what_it_does_not_know():
    with pytest.raises(ValueError, match="LayerNormMLP: normalization is 'BatchNorm'; allowed"):
        isobit.torch.LayerNormMLP(4, 8, normalization="BatchNorm")
    with pytest.raises(ValueError, match="LayerNormMLP: activation is 'elu'; allowed"):
        isobit.torch.LayerNormMLP(4, 8, activation="elu")
    with pytest.raises(ValueError, match="LayerNormLinear: activation is 'elu'; allowed"):
        isobit.torch.LayerNormLinear(4, 8, activation="elu")


X, WEIGHT = draw(5, 40), draw(33, 40)


@pytest.mark.parametrize(
    ("change", "error", "says"),
    [
        ({"weight": draw(33, 39)}, ValueError, r"weight has shape \(33, 39\); must be \(out_fea"),
        ({"weight": 3}, TypeError, "weight must be a Tensor; it is int"),
        ({"bias": draw(4)}, ValueError, r"bias has shape \(4,\); must be \(33,\)"),
        ({"norm_weight": draw(3)}, ValueError, r"norm_weight has shape \(3,\); input has shape"),
        ({"residual": X}, ValueError, r"residual has shape \(5, 40\); must be \(5, 33\)"),
        ({"activation": "tanh"}, ValueError, "activation is 'tanh'; allowed: None, 'relu'"),
        ({"arithmetic": "fast"}, ValueError, "arithmetic is 'fast'; allowed: 'canonical'"),
        ({"eps": None}, TypeError, "eps must be a number; it is NoneType"),
        ({"zero_centered": "no"}, TypeError, "zero_centered must be True or False"),
        ({"normalized_shape": (5, 40)}, ValueError, "must be the last dimension alone"),
        ({"normalized_shape": 39}, ValueError, r"normalized_shape is \(39,\); input has shape"),
    ],
)
def test_bad_calls_are_refused_in_one_line(change, error, says):
    usual = {"normalized_shape": 40, "norm_weight": None, "norm_bias": None, "weight": WEIGHT}
    with pytest.raises(error, match=f"layer_norm_linear: .*{says}") as caught:
        isobit.torch.layer_norm_linear(X, **usual | change)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("norm", NORMS)
def test_numpy_has_the_bits_of_pytorch(norm):
    given = arguments(norm)
    residual = draw(5, 7, 33, seed=8)
    expected = fused(norm, given, activation="silu", residual=residual).numpy()
    arrays = {name: each.numpy() for name, each in given.items()}
    options = {"activation": "silu", "residual": residual.numpy()}
    own = fused(norm, arrays, isobit_numpy, **options)
    assert np.array_equal(own.view(np.int32), expected.view(np.int32))
    with pytest.raises(ValueError, match=f"{norm}_linear: weight has shape"):
        fused(norm, arrays | {"weight": arrays["weight"][:, 1:]}, isobit_numpy)
    with pytest.raises(ValueError, match=f"{norm}_linear: bias has shape"):
        fused(norm, arrays | {"bias": arrays["bias"][1:]}, isobit_numpy)


def test_the_versions_in_pytorch_mean_the_same():
    x, gamma, beta, weight, bias = arguments("layer_norm", torch.float64).values()
    exact = layernorm_linear.reference(x, gamma, beta, weight, bias, activation="gelu")
    for z in (
        layernorm_linear.standard(x, gamma, beta, weight, bias, activation="gelu"),
        fused("layer_norm", arguments("layer_norm", torch.float64), activation="gelu"),
    ):
        assert torch.allclose(z, exact, rtol=1e-12, atol=1e-12)
    x, gamma, weight, bias = arguments("rms_norm", torch.float64).values()
    exact = rmsnorm_linear.reference(x, gamma, weight, bias)
    assert torch.allclose(rmsnorm_linear.standard(x, gamma, weight, bias), exact, atol=1e-12)
    given = asking(arguments("layer_norm", torch.float64, rows=(3,), cols=6, features=4))
    assert torch.autograd.gradcheck(
        lambda *tensors: layernorm_linear.Function.apply(*tensors, 1e-5), tuple(given.values())
    )


def test_a_nested_residual_has_rows_of_the_result():
    given = arguments("layer_norm")
    x, others = given["input"], {name: each for name, each in given.items() if name != "input"}
    ragged = torch.nested.nested_tensor([x[0, :3], x[1]], layout=torch.jagged)
    rows = draw(10, 33, seed=6)
    residual = torch.nested.nested_tensor_from_jagged(rows, ragged.offsets())
    found = fused("layer_norm", {"input": ragged, **others}, residual=residual)
    plain = torch.cat([x[0, :3], x[1]])
    assert torch.equal(
        found.values(), fused("layer_norm", {"input": plain, **others}, residual=rows)
    )


def test_an_expert_without_tokens_has_gradients_of_zero():
    layer = isobit.torch.LayerNormLinear(40, 33, activation="silu")
    layer(torch.empty(0, 40)).sum().backward()
    assert all(torch.equal(each.grad, torch.zeros_like(each)) for each in layer.parameters())


def kept(call):
    """Bytes that backward holds of the call, but for parameters."""
    held = {}

    def pack(tensor):
        if not isinstance(tensor, torch.nn.Parameter):
            held[tensor.data_ptr()] = tensor.nbytes
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        y = call()
    assert y.requires_grad
    return sum(held.values())


@pytest.mark.parametrize("activation", ["gelu", "swiglu"])
def test_an_mlp_that_computes_again_keeps_its_input_alone(activation):
    x = draw(64, 40)
    mlp = isobit.torch.LayerNormMLP(40, 160, activation=activation)
    again = isobit.torch.LayerNormMLP(40, 160, activation=activation, recompute=True)
    again.load_state_dict(mlp.state_dict())
    assert kept(lambda: again(x)) <= x.nbytes < kept(lambda: mlp(x)) / 4
    mlp(x).square().sum().backward()
    again(x).square().sum().backward()
    for one, other in zip(mlp.parameters(), again.parameters(), strict=True):
        assert torch.equal(one.grad, other.grad)


def test_the_residual_of_an_mlp_takes_autocasts_type():
    x = draw(6, 40)
    mlp = isobit.torch.LayerNormMLP(40, 24)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = mlp(x, residual=x)
        assert y.dtype == torch.bfloat16
        assert torch.equal(y, mlp(x) + x.bfloat16())


@pytest.mark.parametrize("name", ["input", "norm_weight", "weight", "bias"])
def test_what_is_no_tensor_is_a_type_error(name):
    given = arguments("layer_norm") | {name: [1.0]}
    shape, x = (40,), given.pop("input")
    with pytest.raises(TypeError, match=f"layer_norm_linear: {name} must be a Tensor; it is list"):
        isobit.torch.layer_norm_linear(x, shape, **given, activation="gelu")


def test_shapes_that_do_not_belong_together_are_found_on_the_meta_device():
    x, weight = torch.empty(5, 40, device="meta"), torch.empty(33, 39, device="meta")
    with pytest.raises(ValueError, match="layer_norm_linear: weight has 39 columns; input has 40"):
        isobit.torch.layer_norm_linear(x, 40, None, None, weight)
    with pytest.raises(ValueError, match="linear: input has 40 columns; weight has 39"):
        isobit.torch.linear(x, weight)
    with pytest.raises(ValueError, match="matmul: input has 40 columns; other has 39 rows"):
        isobit.torch.matmul(x, weight.t())
