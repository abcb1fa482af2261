# SPDX-License-Identifier: Apache-2.0
"""Products of isobit.numpy and isobit.torch: shapes, layouts, gradients, and that they agree."""

import numpy as np
import pytest

import isobit.numpy as isobit_numpy

SHAPES = [
    ((3, 4), (4, 5)),
    ((4,), (4, 5)),
    ((3, 4), (4,)),
    ((4,), (4,)),
    ((2, 3, 4), (4, 5)),
    ((2, 3, 4), (2, 4, 5)),
    ((2, 1, 3, 4), (7, 4, 5)),
    ((3, 0), (0, 5)),
    ((0, 4), (4, 5)),
]


def drawn(*shape, dtype="f4", seed=1):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def same_bits(a, b):
    return a.shape == b.shape and a.dtype == b.dtype and a.tobytes() == b.tobytes()


@pytest.mark.parametrize(("a_shape", "b_shape"), SHAPES)
def test_numpy_products_are_numpys_in_shape_and_value(a_shape, b_shape):
    a, b = drawn(*a_shape, dtype="f8"), drawn(*b_shape, dtype="f8", seed=2)
    y, expected = isobit_numpy.matmul(a, b), np.matmul(a, b)
    assert y.shape == expected.shape
    assert np.allclose(y, expected, rtol=1e-13, atol=1e-13)


def test_numpy_products_read_views_where_they_lie():
    a, b = drawn(30, 40), drawn(40, 50, seed=2)
    expected = isobit_numpy.matmul(a, b)
    wide = np.zeros((60, 120), "f4")
    wide[::2, ::3] = a
    assert same_bits(isobit_numpy.matmul(wide[::2, ::3], b), expected)
    assert same_bits(isobit_numpy.matmul(np.asfortranarray(a), np.asfortranarray(b)), expected)
    assert same_bits(isobit_numpy.matmul(a[::-1], b)[::-1].copy(), expected)


def test_numpy_linear_has_bias_activation_and_another_dtype():
    x, weight, bias = drawn(6, 8), drawn(5, 8, seed=2), drawn(5, seed=3)
    y = isobit_numpy.linear(x, weight, bias, activation="relu")
    assert np.allclose(y, np.maximum(x @ weight.T + bias, 0), rtol=1e-5, atol=1e-5)
    narrow = isobit_numpy.matmul(x, weight.T, out_dtype="float16")
    assert same_bits(narrow, isobit_numpy.matmul(x, weight.T).astype("f2"))


@pytest.mark.parametrize(
    ("call", "error", "says"),
    [
        (lambda: isobit_numpy.matmul(drawn(3, 4), drawn(5, 4)), ValueError, "a has 4 columns; b"),
        (lambda: isobit_numpy.matmul(drawn(3, 4), drawn(4, 4, dtype="f8")), TypeError, "b has"),
        (lambda: isobit_numpy.matmul(drawn(), drawn(4, 4)), ValueError, "no dimensions"),
        (
            lambda: isobit_numpy.matmul(drawn(3, 4), drawn(4, 4), activation="tanh"),
            ValueError,
            "activation is 'tanh'; allowed: None, 'relu'",
        ),
        (
            lambda: isobit_numpy.matmul(drawn(2, 3, 4), drawn(3, 4, 4)),
            ValueError,
            "do not broadcast",
        ),
        (
            lambda: isobit_numpy.linear(drawn(3, 4), drawn(5, 4), drawn(4)),
            ValueError,
            r"bias has shape \(4,\); must be \(5,\)",
        ),
    ],
)
def test_numpy_says_what_is_wrong(call, error, says):
    with pytest.raises(error, match=says):
        call()


class TestTorch:
    @pytest.fixture(autouse=True)
    def torch(self):
        torch = pytest.importorskip("torch", reason="PyTorch is not installed")
        import isobit.torch

        self.torch, self.isobit = torch, isobit.torch

    def drawn(self, *shape, seed=1, dtype=None, grad=False):
        generator = self.torch.Generator().manual_seed(seed)
        x = self.torch.randn(*shape, generator=generator, dtype=dtype)
        return x.requires_grad_() if grad else x

    @pytest.mark.parametrize(("a_shape", "b_shape"), SHAPES)
    def test_products_are_torchs_in_shape_and_numpys_in_bits(self, a_shape, b_shape):
        a, b = self.drawn(*a_shape), self.drawn(*b_shape, seed=2)
        y = self.isobit.matmul(a, b)
        assert y.shape == self.torch.matmul(a, b).shape
        expected = isobit_numpy.matmul(a.numpy(), b.numpy())
        assert same_bits(y.numpy(), np.asarray(expected))

    @pytest.mark.parametrize("activation", [None, "relu", "gelu", "gelu_tanh", "silu"])
    def test_gradients_are_those_of_finite_differences(self, activation):
        double = {"dtype": self.torch.float64, "grad": True}
        x, weight = self.drawn(2, 3, 4, **double), self.drawn(5, 4, seed=2, **double)
        bias = self.drawn(5, seed=3, **double)

        def call(*tensors):
            return self.isobit.linear(*tensors, activation=activation)

        gradcheck = self.torch.autograd.gradcheck
        assert gradcheck(call, (x, weight, bias), check_forward_ad=True)
        assert self.torch.autograd.gradgradcheck(call, (x, weight, bias))

    @pytest.mark.parametrize("activation", ["relu", "gelu", "gelu_tanh", "silu"])
    def test_gradients_need_no_bias(self, activation):
        double = {"dtype": self.torch.float64, "grad": True}
        x, weight = self.drawn(3, 4, **double), self.drawn(5, 4, seed=2, **double)

        def call(*tensors):
            return self.isobit.linear(*tensors, activation=activation)

        gradcheck = self.torch.autograd.gradcheck
        assert gradcheck(call, (x, weight), check_forward_ad=True)
        assert self.torch.autograd.gradgradcheck(call, (x, weight))

    def test_batches_broadcast_in_gradients(self):
        double = {"dtype": self.torch.float64, "grad": True}
        a, b = self.drawn(2, 1, 3, 4, **double), self.drawn(3, 4, 5, seed=2, **double)
        assert self.torch.autograd.gradcheck(self.isobit.matmul, (a, b))

    def test_a_row_of_a_batch_equals_itself_alone(self):
        layer = self.isobit.Linear(300, 70)
        x = self.drawn(40, 300)
        all_rows = layer(x)
        for row in range(0, 40, 7):
            assert self.torch.equal(layer(x[row : row + 1]), all_rows[row : row + 1])

    def test_linear_is_torchs_within_rounding(self):
        ours, theirs = self.isobit.Linear(30, 20), self.torch.nn.Linear(30, 20)
        theirs.load_state_dict(ours.state_dict())
        x, again = self.drawn(5, 30, grad=True), self.drawn(5, 30, grad=True)
        ours(x).square().sum().backward()
        theirs(again).square().sum().backward()
        self.torch.testing.assert_close(x.grad, again.grad)
        for mine, other in zip(ours.parameters(), theirs.parameters(), strict=True):
            self.torch.testing.assert_close(mine.grad, other.grad)

    def test_compiled_and_mapped_products_have_the_same_bits(self):
        a, b = self.drawn(6, 5, 40), self.drawn(6, 40, 7, seed=2)
        expected = self.isobit.bmm(a, b)
        compiled = self.torch.compile(self.isobit.bmm, fullgraph=True, backend="aot_eager")
        assert self.torch.equal(compiled(a, b), expected)
        assert self.torch.equal(self.torch.vmap(self.isobit.mm)(a, b), expected)
        shared = self.torch.vmap(self.isobit.mm, in_dims=(0, None))(a, b[0])
        assert self.torch.equal(shared, self.isobit.matmul(a, b[0]))

    def test_autocast_narrows_products_as_torchs(self):
        a, b = self.drawn(3, 4), self.drawn(4, 5, seed=2)
        with self.torch.autocast("cpu", dtype=self.torch.bfloat16):
            y = self.isobit.mm(a, b)
        assert y.dtype == self.torch.bfloat16
        assert self.torch.equal(y, self.isobit.mm(a.bfloat16(), b.bfloat16()))

    def test_bad_calls_say_what_is_wrong(self):
        x = self.drawn(3, 4)
        with pytest.raises(ValueError, match="mm: mat2 has 3 dimensions; must have 2"):
            self.isobit.mm(x, x[None])
        with pytest.raises(ValueError, match="activation is 'tanh'"):
            self.isobit.linear(x, x, activation="tanh")
        with pytest.raises(TypeError, match="other must be a Tensor; it is int"):
            self.isobit.matmul(x, 3)
        with pytest.raises(ValueError, match="matmul: input has 4 columns; other has 3 rows"):
            self.isobit.matmul(x, x)

    def test_widths_that_do_not_fit_are_told_in_the_words_of_linear(self):
        x, weight, linear = self.drawn(2, 3, 4), self.drawn(6, 5), self.isobit.linear
        for call in (
            lambda: linear(x, weight),
            lambda: linear(x[0, 0], weight),
            lambda: linear(x, weight[0]),
            lambda: linear(x.to("meta"), weight.to("meta")),
            lambda: self.torch.vmap(lambda x: linear(x, weight))(x),
            lambda: self.isobit.Linear(5, 6)(x),
        ):
            with pytest.raises(ValueError, match=r"^linear: input has 4 columns; weight has 5$"):
                call()
        with pytest.raises(ValueError, match=r"^linear: input has 4 columns; weight has 8$"):
            self.isobit.SelfAttention(8, 2)(x)
        with pytest.raises(ValueError, match=r"^linear: bias has shape \(5,\); must have \(6,\),"):
            linear(x, weight[:, :4], weight[0])

    @pytest.mark.parametrize("code", range(5))
    def test_backward_has_derivatives_of_its_own(self, code):
        double = {"dtype": self.torch.float64, "grad": True}
        grad, a, b, pre = (
            self.drawn(*shape, seed=seed, **double)
            for seed, shape in enumerate([(4, 5), (4, 3), (3, 5), (4, 5)])
        )

        def backward(grad, a, b, pre=None):
            wanted = (True, True, self.torch.float64)
            return self.torch.ops.isobit.matmul_backward(grad, a, b, pre, code, *wanted)

        given = (grad, a, b) if code == 0 else (grad, a, b, pre)
        assert self.torch.autograd.gradcheck(backward, given, check_forward_ad=True)
        assert self.torch.autograd.gradgradcheck(backward, given)

    @pytest.mark.parametrize("code", range(1, 5))
    @pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
    def test_gradients_are_the_same_where_pre_is_kept_and_made_anew(self, code, dtype):
        dtype = getattr(self.torch, dtype)
        given = [
            self.drawn(*shape, seed=seed).to(dtype).requires_grad_()
            for seed, shape in enumerate([(20, 30), (30, 40), (40,)])
        ]
        kept, pre = self.torch.ops.isobit.activated_matmul(*given, code)
        anew = self.torch.ops.isobit.matmul(*given, code)
        along = self.drawn(20, 40, seed=9).to(dtype)
        assert self.torch.equal(kept, anew)
        assert self.torch.equal(pre, self.torch.ops.isobit.matmul(*given))
        found = self.torch.autograd.grad(kept, given, along)
        assert all(map(self.torch.equal, found, self.torch.autograd.grad(anew, given, along)))

    def test_gradients_of_biases_add_rows_as_those_of_norms_do(self):
        rows, bias = self.drawn(70, 5), self.torch.zeros(5, requires_grad=True)
        y = self.isobit.linear(self.torch.zeros(70, 3), self.torch.zeros(5, 3), bias)
        (found,) = self.torch.autograd.grad(y, bias, rows)
        y = self.isobit.layer_norm(self.torch.ones(70, 5), 5, self.torch.ones(5), bias)
        assert self.torch.equal(found, self.torch.autograd.grad(y, bias, rows)[0])
