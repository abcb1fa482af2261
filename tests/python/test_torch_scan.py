# SPDX-License-Identifier: Apache-2.0
"""The scans in PyTorch: values, bits, derivatives of every order, transforms, compiled code."""

import itertools

import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck
from torch_calls import bits, draw, many

import isobit.numpy
import isobit.torch
from isobit.torch.scanning import KINDS

pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")

NAMES = {
    "sum": "cumsum",
    "prod": "cumprod",
    "max": "cummax",
    "min": "cummin",
    "logsumexp": "logcumsumexp",
}
FLAGS = tuple(itertools.product((False, True), repeat=2))
REAL = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
INTEGERS = (torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)


def ours(kind):
    return getattr(isobit.torch, NAMES[kind])


def theirs(kind):
    return getattr(torch, NAMES[kind])


def values(outputs):
    """Without indices."""
    return many(outputs)[0]


def drawn(kind, *shape, dtype=torch.float32, seed=0):
    x = draw(*shape or (1,), dtype=torch.float64, seed=seed).reshape(shape)
    return (x.abs() + 0.5 if kind == "prod" else x).to(dtype)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", REAL)
def test_values_are_those_of_pytorch(kind, dtype):
    for shape, dim in (((5, 40), 1), ((5, 4, 3), 0), ((3, 40, 2), -2), ((), 0), ((0, 3), 1)):
        x = drawn(kind, *shape, dtype=dtype)
        found, expected = ours(kind)(x, dim), theirs(kind)(x.double(), dim)
        assert values(found).dtype == dtype and values(found).shape == x.shape
        torch.testing.assert_close(values(found), values(expected).to(dtype))
        if kind in ("max", "min"):
            assert torch.equal(found.indices, theirs(kind)(x, dim).indices)
            assert torch.equal(found.values, expected.values.to(dtype))


@pytest.mark.parametrize("kind", ["sum", "prod", "max", "min"])
@pytest.mark.parametrize("dtype", INTEGERS)
def test_integers_are_those_of_pytorch(kind, dtype):
    x = (draw(4, 90).mul(50)).to(torch.int64).to(dtype)
    found, expected = ours(kind)(x, -1), theirs(kind)(x, -1)
    assert type(found) is type(expected)
    for one, other in zip(many(found), many(expected), strict=True):
        assert one.dtype == other.dtype and torch.equal(one, other)


@pytest.mark.parametrize("kind", ["sum", "prod"])
def test_dtype_is_what_is_computed_in(kind):
    for own, dtype in itertools.product((*REAL, *INTEGERS), (*REAL, *INTEGERS[1:])):
        x = draw(3, 8).mul(3).to(own)
        found, expected = ours(kind)(x, 1, dtype=dtype), theirs(kind)(x, 1, dtype=dtype)
        assert found.dtype == dtype
        torch.testing.assert_close(found, expected)
    with pytest.raises(ValueError, match=r"dtype is torch\.bool"):
        ours(kind)(x, 1, dtype=torch.bool)


@pytest.mark.parametrize("kind", ["max", "min"])
@pytest.mark.parametrize("dtype", INTEGERS)
def test_before_the_first_element_stands_the_least_of_its_own_type(kind, dtype):
    x = draw(3, 5).mul(50).to(torch.int64).to(dtype)
    found = ours(kind)(x, 1, exclusive=True)
    whole = (
        (False, True) if dtype == torch.bool else (torch.iinfo(dtype).min, torch.iinfo(dtype).max)
    )
    assert (found.values[:, 0] == whole[kind == "min"]).all() and (found.indices[:, 0] == -1).all()
    assert torch.equal(found.values[:, 1:], theirs(kind)(x, 1).values[:, :-1])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16])
@pytest.mark.parametrize(("exclusive", "reverse"), FLAGS)
def test_bits_are_those_of_numpy_with_and_without_init(kind, dtype, exclusive, reverse):
    x = drawn(kind, 3, 600, 5, dtype=dtype)
    for init in (None, drawn(kind, 3, 5, dtype=dtype, seed=1)):
        options = {"exclusive": exclusive, "reverse": reverse}
        found = many(ours(kind)(x, 1, **options, init=init))
        arrays = None if init is None else init.numpy()
        expected = many(getattr(isobit.numpy, NAMES[kind])(x.numpy(), 1, **options, init=arrays))
        assert bits(*found) == bits(*map(torch.from_numpy, expected))


def views():
    yield draw(6, 7, 8).transpose(0, 2)
    yield draw(6, 14, 8)[:, ::2]
    yield draw(6, 1, 8).expand(6, 7, 8)
    yield draw(*(2,) * 12).permute(*range(11, -1, -1))
    yield draw(*(3,) * 9)[..., ::2].transpose(0, 4)


@pytest.mark.parametrize("kind", KINDS)
def test_any_dimension_of_any_view_has_the_bits_of_its_copy(kind):
    for x in views():
        for dim in range(x.dim()):
            init = x.select(dim, 0).mul(0.5)
            found = many(ours(kind)(x, dim, init=init))
            lying = x.movedim(dim, -1).contiguous()
            expected = many(ours(kind)(lying, -1, init=init.contiguous()))
            assert bits(*found) == bits(*(each.movedim(-1, dim) for each in expected))


def test_a_view_of_few_dimensions_is_not_copied(monkeypatch):
    x = torch.zeros(1 << 12, 1 << 12)[::2, ::2].transpose(0, 1)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        isobit.torch.cumsum(x, 0)
    called = {event.key for event in profile.key_averages()}
    assert "isobit::_scan" in called or "isobit::scan" in called
    assert not called & {"aten::copy_", "aten::clone", "aten::contiguous"}


def cases():
    for kind, (exclusive, reverse) in itertools.product(KINDS, FLAGS):
        yield pytest.param(kind, exclusive, reverse, id=f"{kind}-{exclusive}-{reverse}")


@pytest.mark.parametrize(("kind", "exclusive", "reverse"), list(cases()))
def test_derivatives_of_both_orders(kind, exclusive, reverse):
    for shape, dim in (((2, 5), 1), ((3, 2), 0), ((1,), 0), ((), 0), ((2, 0), 1)):
        x = drawn("sum", *shape, dtype=torch.float64).requires_grad_()
        before = shape[:dim] + shape[dim + 1 :]
        init = drawn("sum", *before, dtype=torch.float64, seed=1).requires_grad_()

        def call(x, init=None, dim=dim):
            y = values(ours(kind)(x, dim, exclusive=exclusive, reverse=reverse, init=init))
            if not exclusive or init is not None:
                return y
            return y.masked_fill(y.abs() == torch.inf, 0)  # what is neutral, if that is no number

        for given in ((x,), (x, init)):
            forward = {"check_forward_ad": x.numel() > 0}
            assert gradcheck(call, given, **forward, check_batched_grad=x.numel() > 0)
            assert gradgradcheck(call, given)


@pytest.mark.parametrize("zeros", [(), (0,), (2,), (1, 3), (0, 1, 2, 3, 4)])
def test_gradients_of_products_with_zeros_are_pytorchs(zeros):
    x = draw(2, 5, dtype=torch.float64)
    x[:, list(zeros)] = 0
    x.requires_grad_()
    grad = draw(2, 5, dtype=torch.float64, seed=3)
    (found,) = torch.autograd.grad(isobit.torch.cumprod(x, 1), x, grad)
    (expected,) = torch.autograd.grad(torch.cumprod(x, 1), x, grad)
    torch.testing.assert_close(found, expected)


def test_the_gradient_of_a_long_product_does_not_leave_the_range_of_float32():
    half = torch.full((400,), 0.5)
    x = torch.cat((half, 1 / half)).requires_grad_()
    y = isobit.torch.cumprod(x, 0)
    (grad,) = torch.autograd.grad(y[-1], x)
    assert torch.equal(grad, 1 / x.detach())


@pytest.mark.parametrize("kind", ["sum", "prod", "logsumexp"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_gradients_are_rounded_once_to_the_types_of_their_inputs(kind, dtype):
    x = drawn(kind, 3, 20, dtype=dtype).requires_grad_()
    wide = x.detach().double().requires_grad_()
    (found,) = torch.autograd.grad(ours(kind)(x, 1).double().sum(), x)
    (expected,) = torch.autograd.grad(theirs(kind)(wide, 1).sum(), wide)
    assert found.dtype == dtype
    torch.testing.assert_close(found, expected.to(dtype))


def test_the_gradient_of_a_logsumexp_of_nothing_is_zero():
    x = torch.tensor([-torch.inf, -torch.inf, 1.0, -torch.inf, 2.0]).requires_grad_()
    (grad,) = torch.autograd.grad(isobit.torch.logcumsumexp(x, 0)[2:].sum(), x)
    expected = [0, 0, 2 + torch.sigmoid(torch.tensor(-1.0)), 0, torch.sigmoid(torch.tensor(1.0))]
    torch.testing.assert_close(grad, torch.tensor(expected))


@pytest.mark.parametrize("kind", ["max", "min"])
@pytest.mark.parametrize("reverse", [False, True])
def test_gradients_go_where_the_indices_say(kind, reverse):
    x = draw(4, 700, 3).mul(2).round().requires_grad_()
    found = ours(kind)(x, 1, reverse=reverse)
    grad = draw(4, 700, 3, dtype=torch.float64, seed=2)
    expected = torch.zeros_like(grad).scatter_add(1, found.indices, grad)
    (added,) = torch.autograd.grad(found.values, x, grad.float())
    torch.testing.assert_close(added.double(), expected, rtol=1e-5, atol=1e-4)
    assert not found.indices.requires_grad


@pytest.mark.parametrize(("kind", "exclusive", "reverse"), list(cases()))
def test_opcheck(kind, exclusive, reverse):
    x, init = draw(3, 8).requires_grad_(), draw(3).requires_grad_()
    asked = ["test_schema", "test_autograd_registration", "test_faketensor"]
    if not exclusive and not reverse:  # which are numbers to who traces, and it takes long
        asked.append("test_aot_dispatch_dynamic")
    code = KINDS.index(kind)
    if kind in ("max", "min"):
        arguments = (x, init, code, 1, exclusive, reverse)
        torch.library.opcheck(torch.ops.isobit.scan_extreme.default, arguments, test_utils=asked)
    else:
        arguments = (x, init, None, code, -1, exclusive, reverse)
        torch.library.opcheck(torch.ops.isobit.scan.default, arguments, test_utils=asked)


@pytest.mark.parametrize("kind", KINDS)
def test_vmap_gives_the_bits_of_each_sample(kind):
    x, init = draw(4, 5, 6), draw(4, 5)

    def sample(x, init):
        return tuple(many(ours(kind)(x, -1, init=init)))

    for in_dims in ((0, 0), (0, None), (None, 0), (1, 0)):
        rows = x.transpose(0, 1) if in_dims[0] == 1 else x if in_dims[0] == 0 else x[0]
        first = init if in_dims[1] == 0 else init[0]
        found = torch.vmap(sample, in_dims)(rows, first)
        for i in range(4):
            own = rows if in_dims[0] is None else x[i]
            expected = sample(own, first if in_dims[1] is None else init[i])
            assert bits(*(each[i] for each in found)) == bits(*expected)
    numbers = torch.vmap(lambda x: values(ours(kind)(x, 0)))(x[0, 0])
    assert torch.equal(numbers, torch.stack([values(ours(kind)(each, 0)) for each in x[0, 0]]))


@pytest.mark.parametrize("kind", KINDS)
def test_compiled_code_has_the_bits_of_eager_code_and_so_have_gradients(kind):
    def call(x, init):
        return ours(kind)(x, 1, reverse=True, init=init)

    torch._dynamo.reset()
    backend = "inductor" if kind == "sum" else "aot_eager"  # half a minute each
    compiled = torch.compile(call, fullgraph=True, dynamic=True, backend=backend)
    for shape in ((3, 40), (2, 700)):
        x, init = draw(*shape).requires_grad_(), draw(shape[0]).requires_grad_()
        found, expected = compiled(x, init), call(x, init)
        assert bits(*many(found)) == bits(*many(expected))
        to = draw(*shape, seed=4)
        gradients = [torch.autograd.grad(values(y), (x, init), to) for y in (found, expected)]
        assert bits(*gradients[0]) == bits(*gradients[1])


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("kind", ["prod", "logsumexp", "max"])
def test_a_row_has_the_gradient_that_it_has_alone(kind, threads):
    x, grad = drawn(kind, 33, 900), draw(33, 900, seed=5)

    def gradient(x, grad):
        x = x.clone().requires_grad_()
        return torch.autograd.grad(values(ours(kind)(x, 1)), x, grad)[0]

    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        whole = gradient(x, grad)
    finally:
        torch.set_num_threads(before)
    for row in (0, 17, 32):
        alone = gradient(x[row : row + 1], grad[row : row + 1])
        assert bits(whole[row]) == bits(alone[0])


@pytest.mark.parametrize("kind", ["sum", "prod", "logsumexp"])
def test_autocast_of_the_processor_does_what_it_does_to_pytorchs(kind):
    for dtype in (torch.float32, torch.bfloat16):
        x = drawn(kind, 3, 8, dtype=dtype)
        with torch.autocast("cpu", torch.bfloat16):
            assert ours(kind)(x, 1).dtype == theirs(kind)(x, 1).dtype
            assert bits(ours(kind)(x, 1)) == bits(ours(kind)(x.clone(), 1))


def test_autocast_for_cuda_sums_16_bits_in_float32_unless_a_type_is_asked_for():
    from isobit.torch.scanning import SCAN

    x, init = draw(2, 3, dtype=torch.float16), draw(2, dtype=torch.float16)
    call = SCAN.call((x, init, None, KINDS.index("sum"), 1))
    changes = SCAN.autocast(SCAN, call)
    assert SCAN.autocast.keys == ("AutocastCUDA",)
    assert changes["dtype"] == torch.float32 and changes["init"].dtype == torch.float32
    for kind, dtype in (("logsumexp", None), ("sum", torch.float16)):
        call = SCAN.call((x, init, None, KINDS.index(kind), 1, False, False, dtype))
        assert SCAN.autocast(SCAN, call) == {}


def test_modules_are_functions():
    x, init = draw(3, 8), draw(8)
    for kind in KINDS:
        module = isobit.torch.Scan(kind, 0, exclusive=True, reverse=True)
        expected = ours(kind)(x, 0, exclusive=True, reverse=True, init=init)
        assert bits(*many(module(x, init))) == bits(*many(expected))
    assert repr(module) == "Scan('logsumexp', dim=0, exclusive=True, reverse=True)"
    with pytest.raises(ValueError, match="Scan: kind is 'mean'; allowed: sum, prod, max, min, log"):
        isobit.torch.Scan("mean")


def test_what_is_wrong_is_refused_by_name():
    x = draw(3, 8)
    for call, error, words in (
        (lambda: isobit.torch.cumsum(x, 2), ValueError, "cumsum: dim is 2; allowed: -2 to 1"),
        (lambda: isobit.torch.cumsum(x, 1.5), TypeError, "dim must be an integer"),
        (lambda: isobit.torch.cumprod([1.0], 0), TypeError, "input must be a Tensor; it is list"),
        (
            lambda: isobit.torch.cumsum(x, 1, init=draw(8)),
            ValueError,
            r"cumsum: init has shape \(8,\); input without dim has \(3,\)",
        ),
        (
            lambda: isobit.torch.cummax(x, 1, init=draw(3, dtype=torch.float64)),
            ValueError,
            "cummax: init has dtype torch.float64; must be torch.float32",
        ),
        (
            lambda: isobit.torch.logcumsumexp(x.to(torch.int64), 1),
            ValueError,
            "logcumsumexp: input has dtype torch.int64; must be float32",
        ),
        (
            lambda: isobit.torch.cumsum(x.to(torch.complex64), 1),
            ValueError,
            "cumsum: input has dtype torch.complex64",
        ),
        (
            lambda: torch.ops.isobit.scan(x, None, x, 0, 1),
            ValueError,
            "cumsum: reset has dtype torch.float32; must be bool or uint8",
        ),
        (
            lambda: torch.ops.isobit.scan(x, None, None, 2, 1),
            ValueError,
            "scan: kind is 2; allowed: 0, 1, 4",
        ),
    ):
        with pytest.raises(error, match=words):
            call()


def test_segments_of_sums_have_derivatives_and_of_others_are_refused_one():
    x = draw(2, 9, dtype=torch.float64).requires_grad_()
    reset = torch.tensor([0, 0, 1, 0, 0, 0, 1, 1, 0], dtype=torch.bool).expand(2, 9)
    for exclusive, reverse in FLAGS:

        def call(x, more=(exclusive, reverse)):
            return torch.ops.isobit.scan(x, None, reset, KINDS.index("sum"), 1, *more)

        pieces = x.tensor_split((2, 6, 7), 1)
        options = {"exclusive": exclusive, "reverse": reverse}
        alone = [isobit.torch.cumsum(piece, 1, **options) for piece in pieces]
        assert bits(call(x)) == bits(torch.cat(alone, 1))
        assert gradcheck(call, (x,), check_forward_ad=True) and gradgradcheck(call, (x,))
    y = torch.ops.isobit.scan(x, None, reset, KINDS.index("prod"), 1)
    with pytest.raises(NotImplementedError, match="segments of a prod"):
        y.sum().backward()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.int32])
def test_values_and_gradients_at_pytorchs_samples(internal, kind, dtype):
    info = internal.operators[NAMES[kind]]
    if dtype not in info.supported_dtypes("cpu"):
        assert kind == "logsumexp" and dtype == torch.int32
        return
    torch.manual_seed(0)
    floating = dtype.is_floating_point
    samples = list(info.sample_inputs("cpu", dtype, requires_grad=floating))
    assert samples
    for sample in samples:
        x = sample.input
        found = values(ours(kind)(x, *sample.args, **sample.kwargs))
        expected = values(info.op(x, *sample.args, **sample.kwargs))
        torch.testing.assert_close(found, expected)
        if floating and found.is_floating_point():
            to = torch.full_like(found, 0.5)
            wide = x.detach().double().requires_grad_()
            truth = values(info.op(wide, *sample.args, **sample.kwargs))
            (expected,) = torch.autograd.grad(truth, wide, to.double())
            (found,) = torch.autograd.grad(found, x, to)
            torch.testing.assert_close(found, expected.to(x.dtype))


@pytest.mark.parametrize("scale", [1.0, 600.0, 1e10, 1e19, 1e38])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_gradients_of_logcumsumexp_of_large_numbers_keep_their_digits(dtype, scale):
    """Results of 1e19 are thousands apart, in float64 too, and gradients are powers of e."""
    generator = torch.Generator().manual_seed(3)
    drawn = torch.randn(8, 33, generator=generator, dtype=dtype).clamp(-3, 3) * scale
    x = drawn.requires_grad_()
    into = torch.randn(8, 33, generator=generator, dtype=dtype)
    (found,) = torch.autograd.grad(isobit.torch.logcumsumexp(x, 1), x, into)
    of_x, along = x.detach().double(), into.double()
    expected = torch.zeros_like(of_x)
    for end in range(1, 34):
        expected[:, :end] += of_x[:, :end].softmax(1) * along[:, end - 1 : end]
    few = 100 * torch.finfo(dtype).eps
    torch.testing.assert_close(found.double(), expected, rtol=few, atol=few)
