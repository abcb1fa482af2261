# SPDX-License-Identifier: Apache-2.0
"""The functions of isobit.torch compute what PyTorch's do, in the bits of the library."""

import subprocess
import sys

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch._C import DispatchKey, DispatchKeySet
from torch_calls import FUNCTIONS, bits, draw, many

import isobit.torch
from isobit._library import library_path

NARROW = (torch.float16, torch.bfloat16)
DTYPES = (torch.float32, torch.float64, *NARROW)


def arguments(name, shape, normalized, dtype, weight_dtype=None):
    _, _, inputs, has_bias = FUNCTIONS[name]
    x = [draw(*shape, dtype=dtype, seed=i) for i in range(inputs)]
    weights = [
        draw(*normalized, dtype=weight_dtype or dtype, seed=10 + i) for i in range(1 + has_bias)
    ]
    return x, weights


def near(ours, reference):
    """Within a few roundings of ours' type, of double precision."""
    step = torch.finfo(ours.dtype).eps
    return torch.allclose(ours.double(), reference.double(), rtol=4 * step, atol=8 * step)


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape, dims", [((5, 7), 1), ((2, 3, 4), 2), ((33,), 1), ((3, 1, 65), 1)])
def test_values_are_those_of_double_precision(name, dtype, shape, dims):
    ours, theirs, *_ = FUNCTIONS[name]
    normalized = shape[len(shape) - dims :]
    x, weights = arguments(name, shape, normalized, dtype)
    outputs = many(ours(*x, normalized, *weights, eps=1e-3))
    double = [t.double() for t in weights]
    # the sum is rounded before it is normalised
    x64 = [sum(x).double(), torch.zeros(shape, dtype=torch.float64)][: len(x)]
    expected = many(theirs(*x64, normalized, *double, eps=1e-3))
    for output, reference in zip(outputs, expected, strict=True):
        assert output.dtype == dtype and output.is_contiguous()
        assert near(output, reference)


@pytest.mark.parametrize("dtype", NARROW)
def test_single_precision_weights_meet_16_bit_inputs(dtype):
    x, (w, b) = arguments("layer_norm", (6, 50), (50,), dtype, torch.float32)
    y = isobit.torch.layer_norm(*x, (50,), w, b)
    assert y.dtype == dtype
    assert near(y, F.layer_norm(x[0].double(), (50,), w.double(), b.double()))


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("out_dtype", [torch.float32, *NARROW])
def test_out_dtype_is_that_of_y_alone(name, out_dtype):
    ours, *_ = FUNCTIONS[name]
    x, weights = arguments(name, (6, 50), (50,), torch.float32)
    wide = many(ours(*x, 50, *weights))
    narrow = many(ours(*x, 50, *weights, out_dtype=out_dtype))
    assert bits(narrow[0]) == bits(wide[0].to(out_dtype))
    assert bits(*narrow[1:]) == bits(*wide[1:])


@pytest.mark.parametrize("name", FUNCTIONS)
def test_zero_centered_weights_are_stored_less_one(name):
    ours = FUNCTIONS[name][0]
    x, (w, *bias) = arguments(name, (6, 50), (50,), torch.float32)
    less = w - 1
    assert bits(*many(ours(*x, 50, less, *bias, zero_centered=True))) == bits(
        *many(ours(*x, 50, less + 1, *bias))
    )


@pytest.mark.parametrize("name", FUNCTIONS)
def test_zero_centered_is_whatever_python_takes_for_true(name):
    ours = FUNCTIONS[name][0]
    x, weights = arguments(name, (6, 50), (50,), torch.float32)
    no, yes = (bits(*many(ours(*x, 50, *weights, zero_centered=z))) for z in (False, True))
    assert no != yes
    assert bits(*many(ours(*x, 50, *weights, zero_centered=0))) == no
    for value in (1, 2, -1, 256):
        assert bits(*many(ours(*x, 50, *weights, zero_centered=value))) == yes


def test_rms_norm_takes_the_epsilon_of_torch():
    for dtype in DTYPES:
        x = torch.full((2, 5), 1e-4, dtype=dtype)
        expected = F.rms_norm(x, (5,))
        assert torch.allclose(isobit.torch.rms_norm(x, (5,)), expected, rtol=1e-2)


def test_weight_or_bias_may_be_absent():
    x, (w, b) = arguments("layer_norm", (6, 50), (50,), torch.float32)
    one, zero = torch.ones(50), torch.zeros(50)
    assert near(isobit.torch.layer_norm(*x, 50), isobit.torch.layer_norm(*x, 50, one, zero))
    assert near(isobit.torch.layer_norm(*x, 50, w), isobit.torch.layer_norm(*x, 50, w, zero))
    only_bias = isobit.torch.layer_norm(*x, 50, None, b)
    assert near(only_bias, isobit.torch.layer_norm(*x, 50, one, b))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_bits_are_those_of_the_command_line(dtype, tmp_path):
    x, (w, b) = arguments("layer_norm", (37, 1000), (1000,), dtype)
    for name, value in {"x": x[0], "weight": w, "bias": b}.items():
        view = value.view(torch.uint16) if dtype == torch.bfloat16 else value
        np.save(tmp_path / f"{name}.npy", view.numpy())
    lab = library_path().parent / "isobit"
    letters = {torch.float32: "f32", torch.bfloat16: "bf16", torch.float64: "f64"}[dtype]
    given_arrays = [f"--in={name}={tmp_path}/{name}.npy" for name in ("x", "weight", "bias")]
    subprocess.run(
        [lab, "run", "layernorm", f"--dtype={letters}", *given_arrays, f"--out={tmp_path}/out"],
        check=True,
        capture_output=True,
    )
    y = isobit.torch.layer_norm(*x, (1000,), w, b)
    written = np.load(tmp_path / "out" / "y.npy")
    ours = (y.view(torch.uint16) if dtype == torch.bfloat16 else y).numpy()
    assert ours.tobytes() == written.tobytes()


def test_thread_count_and_batch_change_no_bit():
    x, weights = arguments("layer_norm", (300, 769), (769,), torch.float32)
    threads = torch.get_num_threads()
    try:
        seen = []
        for count in (1, 2, 3):
            torch.set_num_threads(count)
            seen.append(bits(isobit.torch.layer_norm(*x, (769,), *weights)))
    finally:
        torch.set_num_threads(threads)
    alone = torch.cat([isobit.torch.layer_norm(row, (769,), *weights)[None] for row in x[0]])
    assert seen == [bits(alone)] * 3


VIEWS = {
    "transposed": lambda x: x.transpose(0, 1),
    "every other row": lambda x: x[::2],
    "every other column": lambda x: x[..., ::2],
    "columns of a wider array": lambda x: x[..., 1:-1],
    "an expanded row": lambda x: x[:1].expand(9, *x.shape[1:]),
    "an expanded number": lambda x: x[:1, :1, :1].expand(4, 5, 6),
    "channels last": lambda x: x[None].contiguous(memory_format=torch.channels_last)[0],
    "overlapping windows": lambda x: x[0].unfold(1, 3, 1),
    "flipped": lambda x: x.flip(0),
    "no rows": lambda x: x[:0],
}


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("dims", [1, 2])
def test_any_strides_give_the_bits_of_adjacent_elements(view, dims):
    x = VIEWS[view](draw(6, 5, 8))
    normalized = tuple(x.shape[-dims:])
    w, b = draw(*normalized, seed=1), draw(*normalized, seed=2)
    assert bits(isobit.torch.layer_norm(x, normalized, w, b)) == bits(
        isobit.torch.layer_norm(x.clone(memory_format=torch.contiguous_format), normalized, w, b)
    )
    strided = w.repeat_interleave(2, dim=-1)[..., ::2]
    assert bits(isobit.torch.layer_norm(x, normalized, strided)) == bits(
        isobit.torch.layer_norm(x, normalized, w)
    )


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_drawn_views_give_the_bits_of_adjacent_elements(data):
    shape = data.draw(st.lists(st.integers(1, 5), min_size=1, max_size=5))
    order = data.draw(st.permutations(range(len(shape))))
    steps = [data.draw(st.integers(1, 2)) for _ in shape]
    x = draw(*shape).permute(order)[tuple(slice(None, None, step) for step in steps)]
    dims = data.draw(st.integers(1, x.dim()))
    normalized = tuple(x.shape[x.dim() - dims :])
    adjacent = x.clone(memory_format=torch.contiguous_format)
    assert bits(isobit.torch.rms_norm(x, normalized)) == bits(
        isobit.torch.rms_norm(adjacent, normalized)
    )


def test_more_dimensions_than_the_c_abi_has():
    x = draw(*([1, 2] * 6), 7)
    assert bits(isobit.torch.layer_norm(x, 7).flatten()) == bits(
        isobit.torch.layer_norm(x.reshape(-1, 7), 7).flatten()
    )


def test_memory_that_lies_on_no_vector():
    memory = torch.zeros(4 * 9 * 5 + 64)
    for offset in (1, 3, 5):
        x = memory[offset : offset + 36].view(4, 9).copy_(draw(4, 9))
        assert bits(isobit.torch.layer_norm(x, 9)) == bits(isobit.torch.layer_norm(x.clone(), 9))


@pytest.mark.parametrize("shape", [(0, 5), (3, 0), (0, 0), (2, 0, 4)])
def test_empty_inputs_give_empty_outputs(shape):
    x = torch.empty(shape)
    y = isobit.torch.layer_norm(x, shape[-1:], torch.ones(shape[-1]))
    assert y.shape == shape


def test_rows_with_nan_or_infinity_are_nan_and_others_are_not():
    x = draw(4, 9)
    x[1, 3], x[2, 0] = torch.nan, torch.inf
    y = isobit.torch.layer_norm(x, 9)
    assert y.isnan().all(dim=1).tolist() == [False, True, True, False]
    assert bits(y[0]) == bits(isobit.torch.layer_norm(x[0], 9))


def test_rows_that_torch_loses():
    x = 1e30 * torch.tensor([[1.0, 2.0, 3.0, 4.0]])
    assert F.layer_norm(x, (4,)).isnan().any()
    expected = F.layer_norm(torch.tensor([[1.0, 2.0, 3.0, 4.0]]), (4,), eps=0)
    assert near(isobit.torch.layer_norm(x, (4,)), expected)


def test_dropout_depends_on_the_seed_alone():
    x, r = draw(40, 50), draw(40, 50, seed=1)

    def call(seed, rows=slice(None)):
        return isobit.torch.dropout_add_layer_norm(x[rows], r[rows], 50, p=0.25, seed=seed)

    assert bits(*call(3)) == bits(*call(3)) == bits(*call(torch.tensor(3)))
    assert bits(call(3)[1]) != bits(call(4)[1])
    assert bits(*(t[:7] for t in call(3))) == bits(*call(3, slice(7)))
    dropped = call(3)[1] == r
    assert 0.15 < dropped.float().mean() < 0.35
    kept = (call(3)[1] - (x / 0.75 + r))[~dropped]
    assert kept.abs().max() < 1e-5


def test_torch_draws_the_seed_of_a_dropout():
    x = draw(8, 50)

    def call():
        return isobit.torch.dropout_add_rms_norm(x, None, 50)

    torch.manual_seed(5)
    first, second = call(), call()
    torch.manual_seed(5)
    assert bits(*call()) == bits(*first) and bits(*second) != bits(*first)


def test_evaluation_drops_nothing():
    x = draw(8, 50)
    y, total = isobit.torch.dropout_add_layer_norm(x, None, 50, p=0.9, training=False)
    assert bits(total) == bits(x) and total.data_ptr() != x.data_ptr()
    assert bits(y) == bits(isobit.torch.layer_norm(x, 50))


@pytest.mark.parametrize("dtype", [*DTYPES, torch.int32])
def test_elementwise_functions_round_once(dtype):
    x = (100 * draw(5, 7)).to(dtype)
    assert bits(isobit.torch.add(x, x.flip(0))) == bits(x + x.flip(0))
    assert bits(isobit.torch.increment(x)) == bits(x + 1)
    assert isobit.torch.increment(x[0, 0]).shape == ()


ERRORS = {
    "normalized_shape is (4,); input has shape (2, 3)": lambda x: isobit.torch.layer_norm(x, 4),
    "normalized_shape is (); input has shape (2, 3)": lambda x: isobit.torch.layer_norm(x, ()),
    "weight has shape (2,); input has shape (2, 3), of which (3,) is normalised": lambda x: (
        isobit.torch.layer_norm(x, 3, x[:, 0])
    ),
    "bias has shape (3, 1); input": lambda x: isobit.torch.layer_norm(x, 3, None, x[:1].T),
    "rms_norm: weight has dtype torch.float16; must be float32, since input has dtype": (
        lambda x: isobit.torch.rms_norm(x, 3, x[0].half())
    ),
    "weight has dtype torch.bfloat16; must be float16 or float32, since input": (
        lambda x: isobit.torch.add_layer_norm(x.half(), x.half(), 3, x[0].bfloat16())
    ),
    "bias has dtype torch.float64; must be float32, since input": lambda x: isobit.torch.layer_norm(
        x, 3, x[0], x[0].double()
    ),
    "bias has dtype f16; weight has f32": lambda x: isobit.torch.layer_norm(
        x.half(), 3, x[0], x[0].half()
    ),
    "residual has shape (3, 2); input has shape (2, 3)": lambda x: isobit.torch.add_rms_norm(
        x, x.reshape(3, 2), 3
    ),
    "eps is nan": lambda x: isobit.torch.layer_norm(x, 3, eps=float("nan")),
    "dropout is 1": lambda x: isobit.torch.dropout_add_rms_norm(x, x, 3, p=1.0),
    "layer_norm: input has dtype torch.int64; must be float32, float16, bfloat16 or float64": (
        lambda x: isobit.torch.layer_norm(x.long(), 3)
    ),
    "add_rms_norm: residual has dtype torch.int16; must be float32, float16": lambda x: (
        isobit.torch.add_rms_norm(x, x.short(), 3)
    ),
    "increment: x has dtype torch.int64; must be float32, float16, bfloat16, float64 or int32": (
        lambda x: isobit.torch.increment(x.long())
    ),
    "add: residual has dtype torch.bool; must be float32": lambda x: isobit.torch.add(x, x > 0),
    "layer_norm: out_dtype is torch.int64; must be float32": lambda x: isobit.torch.layer_norm(
        x, 3, out_dtype=torch.int64
    ),
    "seed is 18446744073709551616; allowed: -2^63 to 2^64 - 1": lambda x: (
        isobit.torch.dropout_add_rms_norm(x, x, 3, seed=1 << 64)
    ),
    "seed must be one int64": lambda x: isobit.torch.dropout_add_rms_norm(x, x, 3, seed=x),
    "residual has shape (3,); x has shape (2, 3)": lambda x: isobit.torch.add(x, x[0]),
}


@pytest.mark.parametrize("message", ERRORS)
def test_broken_rules_are_value_errors_that_say_so(message):
    with pytest.raises(ValueError) as caught:
        ERRORS[message](draw(2, 3))
    assert message in str(caught.value)


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_weights_left_on_the_meta_device_give_no_results(name, device):
    """Of a module whose weights were never filled: PyTorch asks the meta device, and its results
    would be memory that nobody wrote."""
    function, _, inputs, centered = FUNCTIONS[name]
    x, weight = draw(2, 3).to(device), draw(3).to("meta" if device == "cpu" else "cpu")
    for place in range(1 + centered):
        others = [None] * place + [weight]
        with pytest.raises(ValueError, match=r": (weight|bias) is on .*; (x|input) is on "):
            function(*[x] * inputs, 3, *others)


def test_kernels_read_no_memory_of_another_device():
    """Which PyTorch's dispatcher lets through where one of the tensors is on the kernel's own."""
    cpu, ops = DispatchKeySet(DispatchKey.CPU), torch.ops.isobit
    x, w = draw(2, 3), draw(3)
    calls = {
        "weight": (ops._layer_norm, x, w.to("meta"), None, 1e-5),
        "bias": (ops._layer_norm, x, w, w.to("meta"), 1e-5),
        "grad_y": (ops._rms_norm_backward, x.to("meta"), x, w, 1e-5),
        "residual": (ops._add, x, x.to("meta")),
    }
    for name, (operator, *arguments) in calls.items():
        with pytest.raises(ValueError, match=f": {name} is on meta; (x|input) is on cpu"):
            operator.default.redispatch(cpu, *arguments)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_what_is_no_tensor_is_a_type_error(name):
    ours, _, inputs, _ = FUNCTIONS[name]
    with pytest.raises(TypeError, match=f"{name}: .* must be a Tensor; it is ndarray"):
        ours(*[np.zeros((2, 3))] * inputs, 3)
    with pytest.raises(TypeError, match=f"{name}: (x|input) must be a Tensor; it is NoneType"):
        ours(*[None] * inputs, 3)


WRONG_KINDS = {
    "layer_norm: out_dtype must be a torch.dtype; it is str": lambda x: isobit.torch.layer_norm(
        x, 3, out_dtype="bogus"
    ),
    "add_rms_norm: out_dtype must be a torch.dtype; it is type": lambda x: (
        isobit.torch.add_rms_norm(x, x, 3, out_dtype=float)
    ),
    "layer_norm: eps must be a number; it is NoneType": lambda x: isobit.torch.layer_norm(
        x, 3, eps=None
    ),
    "add_layer_norm: eps must be a number; it is NoneType": lambda x: isobit.torch.add_layer_norm(
        x, x, 3, eps=None
    ),
    "rms_norm: eps must be a number; it is str": lambda x: isobit.torch.rms_norm(x, 3, eps="1"),
    "dropout_add_rms_norm: p must be a number; it is NoneType": lambda x: (
        isobit.torch.dropout_add_rms_norm(x, x, 3, p=None)
    ),
    "set_cache_limit: limit must be an integer; it is float": lambda _: (
        isobit.torch.set_cache_limit(1e9)
    ),
    "patch: model must be a torch.nn.Module; it is int": lambda _: isobit.torch.patch(3),
    "LayerNorm: normalized_shape or hidden_size, its other name, must be given; both are": (
        lambda _: isobit.torch.LayerNorm(3, hidden_size=3)
    ),
    "RMSNorm: normalized_shape or hidden_size, its other name, must be given; neither is": (
        lambda _: isobit.torch.RMSNorm()
    ),
}


@pytest.mark.parametrize("message", WRONG_KINDS)
def test_wrong_kinds_of_objects_are_type_errors_of_one_line(message):
    with pytest.raises(TypeError) as caught:
        WRONG_KINDS[message](draw(2, 3))
    assert str(caught.value) == message


DTYPES_REFUSED = ("int64", "int32", "bool", "complex64", "float8_e5m2", "float8_e4m3fn")


@pytest.mark.parametrize("rows", [2, 20_000])
@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("dtype", DTYPES_REFUSED)
def test_a_dtype_that_norms_do_not_take_is_told_with_operator_and_argument(name, dtype, rows):
    function, _, inputs, _ = FUNCTIONS[name]
    x = torch.zeros(rows, 3).to(getattr(torch, dtype))
    expected = (
        f"{name}: input has dtype torch.{dtype}; must be float32, float16, bfloat16 or float64"
    )
    with pytest.raises(ValueError) as caught:
        function(*[x] * inputs, 3)
    assert str(caught.value) == expected


@pytest.mark.filterwarnings("ignore:Sparse")
@pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor")
def test_layouts_that_are_not_rows_are_told_with_operator_and_argument():
    x = torch.eye(4)
    sparse = "has layout torch.sparse_coo; must be strided"
    with pytest.raises(NotImplementedError, match=f"rms_norm: input {sparse}"):
        isobit.torch.rms_norm(x.to_sparse(), 4)
    with pytest.raises(NotImplementedError, match=f"add_rms_norm: residual {sparse}"):
        isobit.torch.add_rms_norm(x, x.to_sparse(), 4)
    with pytest.raises(NotImplementedError, match=f"increment: x {sparse}"):
        isobit.torch.increment(x.to_sparse())
    with pytest.raises(NotImplementedError, match=r"input has layout torch\.sparse_csr"):
        isobit.torch.layer_norm(x.to_sparse_csr(), 4)
    quantized = torch.quantize_per_tensor(x, 0.1, 0, torch.qint8)
    with pytest.raises(
        NotImplementedError, match=r"layer_norm: input is quantized, as torch\.qint8"
    ):
        isobit.torch.layer_norm(quantized, 4)


def test_seeds_are_64_bits_of_either_sign():
    x = draw(2, 3)

    def call(seed):
        return isobit.torch.dropout_add_rms_norm(x, x, 3, seed=seed)

    for signed, unsigned in ((-1, (1 << 64) - 1), (-(1 << 63), 1 << 63)):
        assert bits(*call(signed)) == bits(*call(unsigned))
    for seed in (-(1 << 63) - 1, 1 << 64):
        with pytest.raises(ValueError, match=f"seed is {seed}; allowed: -2\\^63 to 2\\^64 - 1"):
            call(seed)


def test_what_is_no_integer_is_a_type_error():
    x = draw(2, 3)
    with pytest.raises(TypeError, match="norm: seed must be an integer; it is float"):
        isobit.torch.dropout_add_rms_norm(x, x, 3, seed=1.5)
    for shape in (3.0, None):
        with pytest.raises(TypeError, match="normalized_shape must be one int or several; it is"):
            isobit.torch.layer_norm(x, shape)


def test_integers_of_numpy_are_integers():
    x = draw(2, 3)
    seeds = ((1 << 63) + 5, np.uint64((1 << 63) + 5))
    one, same = (isobit.torch.dropout_add_rms_norm(x, x, 3, seed=each) for each in seeds)
    assert bits(*one) == bits(*same)
    assert bits(isobit.torch.layer_norm(x, np.int64(3))) == bits(isobit.torch.layer_norm(x, 3))


def test_overridden_tensors_see_the_function():
    calls = []

    class Logged(torch.Tensor):
        @classmethod
        def __torch_function__(cls, function, types, args=(), kwargs=None):
            calls.append(function)
            return super().__torch_function__(function, types, args, kwargs)

    y = isobit.torch.layer_norm(draw(2, 3).as_subclass(Logged), 3)
    assert isinstance(y, Logged) and isobit.torch.layer_norm in calls


def test_inference_mode_and_no_grad_give_plain_results():
    x = draw(2, 3, requires_grad=True)
    with torch.no_grad():
        assert not isobit.torch.layer_norm(x, 3).requires_grad
    with torch.inference_mode():
        assert isobit.torch.layer_norm(x, 3).is_inference()
    assert isobit.torch.layer_norm(x, 3).requires_grad


def test_negated_and_conjugated_views_are_read_as_they_mean():
    z = torch.complex(draw(4, 9), draw(4, 9, seed=1))
    x = z.conj().imag
    assert x.is_neg()
    assert bits(isobit.torch.layer_norm(x, 9)) == bits(isobit.torch.layer_norm(-z.imag, 9))
    assert bits(isobit.torch.layer_norm(x[:, :1], 1)) == bits(
        isobit.torch.layer_norm(-z.imag[:, :1], 1)
    )


def test_importing_needs_no_cuda_and_starts_no_threads():
    code = (
        "import threading, torch, isobit.torch; assert not torch.cuda.is_initialized(); "
        "assert threading.active_count() == 1"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
