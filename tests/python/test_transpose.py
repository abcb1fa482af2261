# SPDX-License-Identifier: Apache-2.0
"""transpose moves every element to its place with one rounding at most, in NumPy and in PyTorch,
wherever the elements lie; and PyTorch knows of it what it asks of an operator."""

import gc
import itertools
import tracemalloc

import ml_dtypes
import numpy as np
import pytest

import isobit.numpy
from isobit import c_abi

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from torch.autograd import gradcheck, gradgradcheck  # noqa: E402
from torch_calls import bits, draw  # noqa: E402

import isobit.torch  # noqa: E402

FLOATS = (torch.float32, torch.float16, torch.bfloat16, torch.float64)
OTHERS = (torch.int32, torch.int64, torch.bool, torch.uint8)
MANY = (2, 1, 3, 2, 1, 2, 2, 3, 2, 2)

VIEWS = {
    "dense": lambda: draw(3, 4, 5),
    "a number": lambda: draw(1)[0],
    "one dimension": lambda: draw(7),
    "every third": lambda: draw(40)[1::3],
    "steps": lambda: draw(6, 8, 10)[::2, 1::3, ::4],
    "columns": lambda: draw(6, 30)[:, 3:20],
    "permuted": lambda: draw(3, 4, 5, 6).permute(2, 0, 3, 1),
    "channels last": lambda: draw(2, 3, 4, 5).contiguous(memory_format=torch.channels_last),
    "expanded": lambda: draw(4, 1).expand(3, 4, 5),
    "one number expanded": lambda: draw(1).expand(3, 5),
    "windows": lambda: draw(12).unfold(0, 4, 1),
    "no rows": lambda: draw(3, 0, 4),
    "ones": lambda: draw(1, 5, 1, 3, 1),
}
DEEP = {
    "ten dimensions": lambda: draw(*MANY),
    "ten permuted": lambda: draw(*MANY).permute(3, 8, 0, 2, 7, 9, 4, 6, 1, 5),
    "ten that nothing joins": lambda: draw(*[4] * 5, *[2] * 5)[(slice(None, None, 2),) * 10],
    "ten expanded": lambda: draw(2, *[1] * 8, 3).expand(*[2] * 9, 3),
    "ten without elements": lambda: draw(2, 0, *[2] * 8).permute(9, 4, 6, 1, 3, 2, 5, 8, 7, 0),
}


def pairs(rank):
    """All dimensions, as PyTorch takes them of a number too."""
    most = max(rank, 1)
    return itertools.product(range(-most, most), repeat=2)


def few_pairs(rank):
    return [*itertools.combinations_with_replacement((0, 1, rank // 2, rank - 2, -1), 2)]


def filled(dtype, *shape):
    """Every bit pattern of 8 bits, or numbers with NaN, infinities and zeros of both signs."""
    if dtype == torch.bool:
        return draw(*shape) > 0
    if not dtype.is_floating_point:
        return (draw(*shape) * 1e4).long().to(dtype)
    x = draw(*shape, dtype=torch.float64).to(dtype)
    x.view(-1)[:5] = torch.tensor([np.nan, np.inf, -np.inf, -0.0, 0.0])
    return x


@pytest.mark.parametrize("view", [*VIEWS, *DEEP])
def test_elements_of_any_view_come_to_their_places(view):
    x = (VIEWS | DEEP)[view]()
    for dim0, dim1 in few_pairs(x.dim()) if view in DEEP else pairs(x.dim()):
        y = isobit.torch.transpose(x, dim0, dim1)
        expected = x.transpose(dim0, dim1)
        assert y.shape == expected.shape and torch.equal(y, expected)
        assert y.is_contiguous() and y.dtype == x.dtype
        assert not y.numel() or y.untyped_storage().data_ptr() != x.untyped_storage().data_ptr()
        narrow = isobit.torch.transpose(x, dim0, dim1, dtype=torch.float16)
        assert torch.equal(narrow, expected.half()) and narrow.is_contiguous()


@pytest.mark.parametrize("view", VIEWS)
def test_numpy_has_the_elements_of_any_view_too(view):
    x = VIEWS[view]().numpy()
    for dim0, dim1 in pairs(x.ndim):
        y = isobit.numpy.transpose(x, dim0, dim1)
        expected = np.swapaxes(x, dim0, dim1) if x.ndim else x
        assert np.array_equal(y, expected) and y.shape == expected.shape
        assert y.flags.c_contiguous and not np.shares_memory(x, y)


def test_numpy_takes_negative_strides_and_refuses_what_it_cannot_take():
    x = np.arange(24.0).reshape(2, 3, 4)
    assert np.array_equal(isobit.numpy.transpose(x[::-1, :, ::-2], 0, 2), x[::-1, :, ::-2].T)
    deep = np.zeros((1,) * 8)
    assert isobit.numpy.transpose(deep, 3, 3).shape == deep.shape
    with pytest.raises(ValueError, match="transpose: x has 9 dimensions; allowed: at most 8"):
        isobit.numpy.transpose(deep[None], 0, 1)
    with pytest.raises(ValueError, match="transpose: dim1 is 3; allowed: -3 to 2"):
        isobit.numpy.transpose(x, 0, 3)
    with pytest.raises(TypeError, match="transpose: dtype is float32; must be int64"):
        isobit.numpy.transpose(x.astype(np.int64), 0, 1, dtype=np.float32)


@pytest.mark.parametrize("dtype", [*FLOATS, *OTHERS])
def test_bytes_are_moved_as_they_are_and_as_the_c_call_moves_them(dtype):
    x = filled(dtype, 3, 37, 50)
    y, expected = isobit.torch.transpose(x, -1, -2), x.transpose(1, 2).contiguous()
    assert bits(y) == bits(expected)
    assert bits(isobit.numpy.transpose(x, 2, 1)) == bits(expected)
    array = (
        x.view(torch.int16).numpy().view(ml_dtypes.bfloat16) if dtype == FLOATS[2] else x.numpy()
    )
    found = isobit.numpy.transpose(array, 1, 2)
    assert found.dtype == array.dtype and found.tobytes() == bits(expected)[0]

    into, name = torch.empty_like(expected), str(dtype).removeprefix("torch.")
    tensors = {
        key: c_abi.Tensor(
            *(each.data_ptr(), each.nbytes, c_abi.DTYPES[name], 3, tuple(each.shape)),
            tuple(each.stride()),
        )
        for key, each in (("x", x), ("y", into))
    }
    c_abi.call("transpose", "fwd", **tensors)
    assert bits(y) == bits(into)


def rounded(x, dtype):
    """Of double precision to what has fewer digits, once. In PyTorch a double becomes 16 bits by
    way of float, which rounds twice; what is made odd between is never taken for a tie."""
    near = x.float()
    if dtype.itemsize == 2 and x.dtype == torch.float64:
        lost = (near.double() != x) & ~x.isnan() & (near.view(torch.int32) & 1 == 0)
        outwards = torch.where(near.double().abs() < x.abs(), 1, -1).int()
        near = torch.where(lost, near.view(torch.int32) + outwards, near.view(torch.int32))
        return near.view(torch.float32).to(dtype)
    return x.to(dtype)


def ties(dtype):
    """Midpoints between neighbours in a type of 16 bits, and a little beside them in double."""
    ones = torch.ones((), dtype=dtype).view(torch.int16) + torch.arange(64, dtype=torch.int16)
    here, there = ones.view(dtype).double(), (ones + 1).view(dtype).double()
    middle = (here + there) / 2
    return torch.stack([middle, middle * (1 + 2**-50), middle * (1 - 2**-50), -middle, here])


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("to", FLOATS)
def test_casts_round_once(dtype, to):
    given = [filled(dtype, 20, 33), *(ties(each).to(dtype) for each in (FLOATS[1], FLOATS[2]))]
    for x in given:
        expected, nans = rounded(x, to).T, x.T.isnan()
        for y in (
            isobit.torch.transpose(x, 0, 1, dtype=to),
            isobit.numpy.transpose(x, 0, 1, dtype=to),
        ):
            assert y.dtype == to and torch.equal(y.isnan(), nans)
            assert bits(y[~nans]) == bits(expected[~nans])


def test_what_cannot_be_cast_or_taken_is_refused():
    x = draw(3, 4)
    refused = {
        "transpose: x has dtype torch.complex64; must be float32, float16, bfloat16, float64, "
        "int32, int64, bool or uint8": lambda: (x.to(torch.complex64), 0, 1),
        "transpose: x has dtype torch.float8_e5m2; must be float32": lambda: (
            *(x.to(torch.float8_e5m2), 0, 1),
        ),
        "transpose: dim0 is 2; allowed: -2 to 1": lambda: (x, 2, 1),
        "transpose: dim1 is 1; allowed: -1 to 0": lambda: (x[0, 0], 0, 1),
        "transpose: dtype is torch.int32; must be float32, float16, bfloat16 or float64, "
        "since x has dtype torch.float32": lambda: (x, 0, 1, torch.int32),
        "transpose: dtype is torch.float32; must be int64, since x has dtype torch.int64": (
            lambda: (x.long(), 0, 1, torch.float32)
        ),
    }
    for message, given in refused.items():
        tensor, dim0, dim1, *dtype = given()
        with pytest.raises(ValueError) as caught:
            isobit.torch.transpose(tensor, dim0, dim1, dtype=dtype[0] if dtype else None)
        assert str(caught.value).startswith(message)
    kinds = {"dim0 must be an integer; it is float": (0.5, 1, None)}
    kinds |= {"dtype must be a torch.dtype; it is str": (0, 1, "float16")}
    for message, (dim0, dim1, dtype) in kinds.items():
        with pytest.raises(TypeError, match=f"transpose: {message}"):
            isobit.torch.transpose(x, dim0, dim1, dtype=dtype)
    with pytest.raises(NotImplementedError, match=r"transpose: x has layout torch\.sparse_coo"):
        isobit.torch.transpose(x.to_sparse(), 0, 1)
    with pytest.raises(NotImplementedError, match="transpose: nested tensors are not supported"):
        isobit.torch.transpose(torch.nested.as_nested_tensor([x], layout=torch.jagged), 1, 2)


@pytest.mark.parametrize("dims", [(0, 1), (-1, 0), (1, 1)])
def test_derivatives_of_every_kind(dims):
    def call(x):
        return isobit.torch.transpose(x, *dims)

    x = draw(3, 4, 2, dtype=torch.float64, requires_grad=True)
    assert gradcheck(call, x, check_forward_ad=True, check_batched_grad=True)
    assert gradgradcheck(call, x, check_fwd_over_rev=True)


def test_gradients_have_the_dtype_of_x_and_nothing_is_kept():
    x = draw(3, 4, dtype=torch.bfloat16, requires_grad=True)
    y = isobit.torch.transpose(x, 0, 1, dtype=torch.float64)
    assert y.grad_fn.saved_tensors == ()
    (expanded,) = torch.autograd.grad(y.sum(), x)  # its gradient is one number, expanded
    assert expanded.dtype == x.dtype and torch.equal(expanded, torch.ones_like(x))
    assert not isobit.torch.transpose(draw(3, 4) > 0, 0, 1).requires_grad


@pytest.mark.parametrize("dtype", [None, torch.bfloat16])
@pytest.mark.parametrize("view", ["dense", "permuted", "expanded", "a number", "no rows"])
def test_opcheck_finds_nothing(view, dtype):
    x = VIEWS[view]().requires_grad_()
    torch.library.opcheck(torch.ops.isobit.transpose.default, (x, 0, -1, dtype))


def test_compiled_and_exported_code_has_the_same_bits():
    torch._dynamo.reset()
    module = isobit.torch.Transpose(0, -1, torch.bfloat16)
    assert repr(module) == "Transpose(0, -1, dtype=torch.bfloat16)"
    assert repr(isobit.torch.Transpose(1, 2)) == "Transpose(1, 2)"
    compiled = torch.compile(module, backend="aot_eager", fullgraph=True, dynamic=True)
    for shape in ((3, 4), (5, 2, 6), (7, 2, 3)):
        x = draw(*shape, requires_grad=True)
        assert bits(compiled(x)) == bits(module(x))
        found, expected = (torch.autograd.grad(f(x).float().sum(), x) for f in (compiled, module))
        assert bits(*found) == bits(*expected)
    x = draw(4, 6, 8)[:, ::2]
    exported = torch.export.export(module, (x,)).module()
    assert bits(exported(x)) == bits(module(x))


@pytest.mark.parametrize("in_dim", [0, 1, -1])
def test_a_batch_is_one_call(in_dim, monkeypatch):
    x = draw(3, 4, 6, 5)
    for dims in ((0, 1), (-1, 0), (1, -2), (2, 2)):
        joined = []
        monkeypatch.setattr(torch, "stack", joined.append)  # it joins what is called one by one
        found = torch.vmap(lambda x, dims=dims: isobit.torch.transpose(x, *dims), in_dim)(x)
        monkeypatch.undo()
        samples = [each.transpose(*dims) for each in x.unbind(in_dim)]
        assert not joined and torch.equal(found, torch.stack(samples))


def test_dimensions_of_a_sample_do_not_reach_the_batch():
    for dims in ((0, -1), (0, 0), (-1, -1)):
        x = draw(5)
        assert torch.equal(torch.vmap(lambda x, d=dims: isobit.torch.transpose(x, *d))(x), x)
    for wrong in (2, -3):
        with pytest.raises(ValueError, match="transpose: dim1 is"):
            torch.vmap(lambda x, d=wrong: isobit.torch.transpose(x, 0, d))(draw(2, 3, 4))


def test_a_tensor_with_a_torch_function_of_its_own_sees_the_call():
    calls = []

    class Seen(torch.Tensor):
        @classmethod
        def __torch_function__(cls, function, types, args=(), kwargs=None):
            calls.append(function.__name__)
            return super().__torch_function__(function, types, args, kwargs or {})

    isobit.torch.transpose(draw(2, 3).as_subclass(Seen), 0, 1)
    assert "transpose" in calls


def taken(x, *dims):
    """The bytes that a call took for its result and all else: what it gave back waits in the pool,
    from which large memory comes."""
    gc.collect()
    isobit.torch.empty_cache()
    before = isobit.torch.cache_use().lent
    y = isobit.torch.transpose(x, *dims)
    lent, waiting = isobit.torch.cache_use()
    del y
    return lent - before + waiting


def test_a_view_is_read_in_place():
    x = draw(2, 1 << 10, 1 << 11)
    for view in (x, x[:, :, ::2], x[:, ::3].permute(1, 2, 0), x[:, :1, :].expand(2, 1 << 10, -1)):
        for dims in ((0, 1), (-1, 0), (2, 1), (1, 1)):
            assert taken(view, *dims) == pytest.approx(view.nbytes, rel=0.1)
    eight = draw(*[6] * 8).permute(7, 6, 5, 4, 3, 2, 1, 0)
    assert taken(eight, 0, 4) == pytest.approx(eight.nbytes, rel=0.1)
    ten = draw(*[4] * 10)
    assert taken(ten, 0, 5) == pytest.approx(ten.nbytes, rel=0.1)  # few are left once joined
    nothing_joins = ten.permute(9, 8, 7, 6, 5, 4, 3, 2, 1, 0)
    assert taken(nothing_joins, 0, 5) > 1.9 * ten.nbytes


def test_numpy_reads_a_view_in_place():
    array = np.ones((1 << 10, 1 << 10), np.float32)[:, ::2]
    tracemalloc.start()
    y = isobit.numpy.transpose(array, 0, 1)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert y.nbytes <= peak < 1.1 * y.nbytes
