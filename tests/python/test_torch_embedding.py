# SPDX-License-Identifier: Apache-2.0
"""Embedding in PyTorch and NumPy: PyTorch's own samples, derivatives of every order, and failures
that others had: padding with a gradient, rows divided by another's count, sums that stop growing,
gradients that change from run to run."""

import itertools

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import isobit.numpy
import isobit.torch

REALS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
EMBEDDING = torch.ops.isobit.embedding
BACKWARD = torch.ops.isobit.embedding_backward


def drawn(*shape, dtype=torch.float64, seed=1):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype)


def indices(*shape, of=5, seed=2):
    return torch.randint(of, shape, generator=torch.Generator().manual_seed(seed))


def by_definition(grad_y, index, tokens):
    """Runs of 16 occurrences one after the other, these by adjacent pairs."""
    grad_y, index = grad_y.reshape(-1, grad_y.shape[-1]), index.reshape(-1)
    rows = []
    for token in range(tokens):
        terms = list(grad_y[index == token])
        runs = [
            sum(terms[i : i + 16], torch.zeros_like(grad_y[0])) for i in range(0, len(terms), 16)
        ]
        while len(runs) > 1:
            runs = [sum(runs[i + 1 : i + 2], runs[i]) for i in range(0, len(runs), 2)]
        rows.append(runs[0] if runs else torch.zeros_like(grad_y[0]))
    return torch.stack(rows)


@pytest.mark.parametrize("dtype", REALS)
def test_values_and_gradients_of_pytorchs_samples(internal, dtype):
    info = internal.operators["nn.functional.embedding"]
    compared = refused = 0
    samples = itertools.chain(
        info.sample_inputs("cpu", dtype, requires_grad=True),
        info.sample_inputs("cpu", dtype, requires_grad=False),
    )
    for sample in samples:
        weight, (index,) = sample.input, sample.args
        if sample.kwargs.get("max_norm") is not None or sample.kwargs.get("sparse"):
            with pytest.raises(NotImplementedError, match=r"torch\.nn\.functional\.embedding"):
                isobit.torch.embedding(index, weight, **sample.kwargs)
            refused += 1
            continue
        compared += 1
        y, reference = (
            f(index, weight, **sample.kwargs) for f in (isobit.torch.embedding, F.embedding)
        )
        assert torch.equal(y, reference)
        if weight.requires_grad:
            into = torch.ones_like(y)
            found, expected = (torch.autograd.grad(each, weight, into) for each in (y, reference))
            torch.testing.assert_close(found, expected)
    assert compared > 5 and refused > 0


@pytest.mark.parametrize("dtype", REALS)
@pytest.mark.parametrize("index_dtype", [torch.int64, torch.int32])
def test_gradients_beside_pytorchs(dtype, index_dtype):
    index = indices(40, 30, of=50).to(index_dtype)
    grad = drawn(40, 30, 7, dtype=dtype)
    for padding, by_count in itertools.product((None, 3, -1), (False, True)):
        options = {"padding_idx": padding, "scale_grad_by_freq": by_count}
        weight = drawn(60, 7, dtype=dtype).requires_grad_()
        wide = weight.detach().double().requires_grad_()
        (found,) = torch.autograd.grad(
            isobit.torch.embedding(index, weight, **options), weight, grad
        )
        (expected,) = torch.autograd.grad(F.embedding(index, wide, **options), wide, grad.double())
        assert found.dtype == dtype
        tolerance = 2 * torch.finfo(dtype).eps
        torch.testing.assert_close(found.double(), expected, rtol=tolerance, atol=20 * tolerance)
        if padding is not None:
            assert not found[padding].any()
        assert not found[50:59].any()


def test_gradients_are_sums_in_the_order_of_occurrences():
    index = torch.cat([indices(900, of=3), torch.full((700,), 1), indices(50, of=9)])
    grad = drawn(len(index), 33, dtype=torch.float32)
    assert torch.equal(BACKWARD(grad, index, 9), by_definition(grad, index, 9))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_sum_of_many_small_terms_goes_on_growing(dtype):
    """A sum in bfloat16 stops at 256 ones (tenstorrent/tt-metal#36341)."""
    index = torch.zeros(1000, dtype=torch.int64)
    found = BACKWARD(torch.ones(1000, 3, dtype=dtype), index, 2)
    assert torch.equal(found, torch.tensor([[1000.0] * 3, [0.0] * 3], dtype=dtype))


def test_the_row_of_padding_has_no_gradient_however_many_rows_there_are():
    """On GPUs it had one from some size on (pytorch#26302)."""
    for shape in ((2, 3), (256, 3, 7), (4000,)):
        index = indices(*shape, of=10)
        for module in (isobit.torch.Embedding, torch.nn.Embedding):
            layer = module(10, 5, padding_idx=0)
            layer(index).sum().backward()
            expected = index.reshape(-1).bincount(minlength=10).index_fill(0, torch.tensor(0), 0)
            assert torch.equal(layer.weight.grad, expected.float().unsqueeze(-1).expand(10, 5))


def test_each_row_is_divided_by_the_count_of_its_own_token():
    """Sorted indices led to another's count (pytorch#190063)."""
    index = torch.tensor([1, 1, 3, 0, 1])
    found = BACKWARD(torch.ones(5, 2), index, 5, -1, True)
    assert torch.equal(found[:, 0], torch.tensor([1.0, 1.0, 0.0, 1.0, 0.0]))
    grad = drawn(5, 2)
    expected = torch.stack([grad[3], (grad[0] + grad[1] + grad[4]) / 3, 0 * grad[0], grad[2]])
    torch.testing.assert_close(BACKWARD(grad, index, 4, -1, True), expected)


def test_derivatives_of_both_orders_and_modes():
    weight, index = drawn(7, 3).requires_grad_(), indices(2, 4, of=7)

    def rows(weight):
        return isobit.torch.embedding(index, weight).sin()

    assert torch.autograd.gradcheck(rows, (weight,), check_forward_ad=True)
    assert torch.autograd.gradgradcheck(rows, (weight,))


@pytest.mark.parametrize("padding", [-1, 2])
@pytest.mark.parametrize("by_count", [False, True])
def test_derivatives_of_the_gradient_know_padding_and_counts(padding, by_count):
    """PyTorch's do not know the counts."""
    grad, index = drawn(6, 3).requires_grad_(), torch.tensor([1, 2, 2, 4, 1, 1])

    def table(grad):
        return BACKWARD(grad, index, 5, padding, by_count)

    assert torch.autograd.gradcheck(table, (grad,), check_forward_ad=True)
    assert torch.autograd.gradgradcheck(table, (grad,))


def test_bits_by_threads_compiled_in_numpy_and_under_vmap():
    weight, index = drawn(40, 70, dtype=torch.float32), indices(30, 50, of=40)
    grad = drawn(30, 50, 70, dtype=torch.float32)

    def rows(index, weight):
        return isobit.torch.embedding(index, weight, 3)

    def table(index, weight):
        return torch.func.vjp(lambda weight: rows(index, weight), weight)[1](grad)[0]

    y, gradient = rows(index, weight), table(index, weight)
    assert torch.equal(y, weight[index])
    assert torch.equal(torch.compile(rows, fullgraph=True, backend="aot_eager")(index, weight), y)
    assert torch.equal(torch.compile(table, backend="aot_eager")(index, weight), gradient)
    assert torch.equal(torch.vmap(rows, (0, None))(index, weight), y)
    assert torch.equal(torch.vmap(rows, (None, 0))(index, weight[None])[0], y)
    assert torch.equal(
        torch.vmap(BACKWARD, (0, 0, None))(grad, index, 40)[7], BACKWARD(grad[7], index[7], 40)
    )
    assert np.array_equal(isobit.numpy.embedding(index.numpy(), weight.numpy()), y.numpy())
    before = torch.get_num_threads()
    try:
        for threads in (1, 3):
            torch.set_num_threads(threads)
            assert torch.equal(table(index, weight), gradient)
    finally:
        torch.set_num_threads(before)


def test_a_token_s_gradient_does_not_depend_on_what_stands_between():
    index, grad = torch.full((600,), 2), drawn(600, 9, dtype=torch.float32)
    alone = BACKWARD(grad, index, 3)[2]
    order = torch.arange(600).repeat_interleave(2)
    others = indices(1200, of=50).add(3)
    others[::2] = 2
    mixed = grad[order].clone()
    assert torch.equal(BACKWARD(mixed, others, 60)[2], alone)


def test_views_of_any_strides():
    weight = drawn(6, 9, dtype=torch.float32).t()  # (9, 6), columns not adjacent
    index = indices(4, 6, of=9).t()
    y = isobit.torch.embedding(index, weight)
    assert torch.equal(y, F.embedding(index, weight))
    grad = drawn(4, 6, 6, dtype=torch.float32).transpose(0, 1)
    assert torch.equal(BACKWARD(grad, index, 9), BACKWARD(grad.contiguous(), index.contiguous(), 9))
    ones = torch.ones(()).expand(6, 4, 6)
    assert torch.equal(BACKWARD(ones, index, 9)[:, 0], index.reshape(-1).bincount(minlength=9))


def test_a_single_index_none_and_nested_ones():
    weight = drawn(5, 4, dtype=torch.float32).requires_grad_()
    y = isobit.torch.embedding(torch.tensor(3), weight)
    assert torch.equal(y, weight[3])
    none = isobit.torch.embedding(torch.zeros(2, 0, dtype=torch.int64), weight)
    assert none.shape == (2, 0, 4)
    (grad,) = torch.autograd.grad(none, weight, torch.zeros_like(none))
    assert torch.equal(grad, torch.zeros(5, 4))
    parts = [torch.tensor([1, 2]), torch.tensor([4])]
    nested = torch.nested.nested_tensor(parts, layout=torch.jagged)
    assert torch.equal(isobit.torch.embedding(nested, weight).values(), weight[torch.cat(parts)])


def test_the_module_takes_the_place_of_pytorchs():
    assert issubclass(isobit.torch.Embedding, torch.nn.Embedding)
    theirs = torch.nn.Embedding(9, 4, padding_idx=-2, scale_grad_by_freq=True)
    ours = isobit.torch.Embedding(9, 4, padding_idx=-2, scale_grad_by_freq=True)
    ours.load_state_dict(theirs.state_dict())
    assert ours.padding_idx == 7 and repr(ours) == repr(theirs)
    index = indices(3, 20, of=9)
    for layer in (ours, theirs):
        layer(index).square().sum().backward()
    assert torch.equal(ours(index), theirs(index))
    torch.testing.assert_close(ours.weight.grad, theirs.weight.grad)
    table = drawn(9, 4, dtype=torch.float32)
    frozen = isobit.torch.Embedding.from_pretrained(table, padding_idx=2)
    assert type(frozen) is isobit.torch.Embedding and not frozen.weight.requires_grad
    assert torch.equal(frozen(index), table[index])
    for options in ({"max_norm": 1.0}, {"sparse": True}):
        with pytest.raises(NotImplementedError, match=r"torch\.nn\.functional\.embedding"):
            isobit.torch.Embedding(9, 4, **options)(index)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (
            lambda i, w: isobit.torch.embedding(i + 4, w),
            ValueError,
            r"embedding: index\[0, 1\] is 5; there are tokens from 0 to 4",
        ),
        (
            lambda i, w: isobit.torch.embedding(i - 1, w),
            ValueError,
            r"embedding: index\[0, 0\] is -1; there are tokens from 0 to 4",
        ),
        (
            lambda i, w: isobit.torch.embedding(i, w[:0]),
            ValueError,
            r"embedding: index\[0, 0\] is 0; there are no tokens",
        ),
        (lambda i, w: isobit.torch.embedding(i, w[0]), ValueError, r"weight has shape \(3,\)"),
        (lambda i, w: isobit.torch.embedding(i.short(), w), ValueError, "input has dtype"),
        (lambda i, w: isobit.torch.embedding(i, w.int()), ValueError, "weight has dtype"),
        (lambda i, w: isobit.torch.embedding([1], w), TypeError, "input must be a Tensor"),
        (
            lambda i, w: isobit.torch.embedding(i, w, 5),
            ValueError,
            "padding_idx is 5; there are 5 tokens",
        ),
        (
            lambda i, w: isobit.torch.embedding(i, w, -6),
            ValueError,
            "padding_idx is -6; there are 5 tokens",
        ),
        (
            lambda i, w: isobit.torch.embedding(i, w, scale_grad_by_freq="x"),
            TypeError,
            "scale_grad_by_freq must be True or False",
        ),
        (
            lambda i, w: BACKWARD(w, i, 5),
            ValueError,
            r"grad_y has shape \(5, 3\); index has shape \(2, 2\)",
        ),
        (lambda i, w: BACKWARD(w[:2], i[0], -1), ValueError, "tokens is -1; must not be negative"),
        (
            lambda i, w: isobit.numpy.embedding(i.numpy() + 4, w.numpy()),
            ValueError,
            r"embedding: index\[0, 1\] is 5; there are tokens from 0 to 4",
        ),
        (
            lambda i, w: isobit.numpy.embedding(i.numpy(), w.numpy()[0]),
            ValueError,
            r"weight has shape \(3,\)",
        ),
        (
            lambda i, w: isobit.numpy.embedding(w.numpy(), w.numpy()),
            TypeError,
            "input has dtype float32; must be int64 or int32",
        ),
    ],
)
def test_bad_calls_are_refused_by_the_names_of_operator_and_argument(call, error, message):
    with pytest.raises(error, match=message):
        call(torch.tensor([[0, 1], [0, 0]]), torch.ones(5, 3))


@pytest.mark.parametrize("options", [(), (2, True)])
def test_shapes_and_derivatives_are_what_opcheck_asks_for(options):
    weight, index = drawn(5, 4, dtype=torch.float32).requires_grad_(), indices(2, 3)
    torch.library.opcheck(EMBEDDING.default, (weight, index, *options))
    grad = drawn(2, 3, 4, dtype=torch.float32).requires_grad_()
    torch.library.opcheck(BACKWARD.default, (grad, index, 5, *options))
