# SPDX-License-Identifier: Apache-2.0
"""What is wrong with a call is told of the function that was called and of its arguments, whatever
the operator behind it is called."""

import pytest
import torch

import isobit.torch


@pytest.mark.parametrize(
    "name, more",
    [
        *((name, ()) for name in ("exp", "gelu", "silu", "sum", "mean", "var", "norm", "amax")),
        *((name, (0,)) for name in ("softmax", "log_softmax")),
        *((name, (2,)) for name in ("max_pool1d", "max_pool2d", "avg_pool1d", "avg_pool2d")),
        *(("dropout", ()), ("interpolate", (2,)), ("logcumsumexp", (0,))),
    ],
)
def test_what_is_wrong_is_told_of_the_function_that_was_called(name, more):
    """And of its input, whatever the operator behind it is called."""
    x = torch.ones(1, 2, 4, 4, dtype=torch.int64)
    x = x[0] if name.endswith("1d") else x
    with pytest.raises(
        ValueError, match=rf"^{name}: input has dtype torch\.int64; must be float32"
    ):
        getattr(isobit.torch, name)(x, *more)
    with pytest.raises(TypeError, match=f"^{name}: input must be a Tensor; it is list"):
        getattr(isobit.torch, name)([1.0], *more)


@pytest.mark.parametrize("name", ["sum", "mean", "norm"])
def test_a_wrong_type_of_the_result_is_told_as_such(name):
    with pytest.raises(
        ValueError, match=rf"^{name}: dtype is torch\.int64; allowed: None, torch\."
    ):
        getattr(isobit.torch, name)(torch.ones(3), dtype=torch.int64)


@pytest.mark.parametrize("order", ["fro", None, 3])
def test_an_order_of_a_norm_that_is_none_is_told_by_name(order):
    with pytest.raises(NotImplementedError, match=f"^norm: ord is {order!r}; allowed: 2, 1, inf"):
        isobit.torch.norm(torch.ones(3), order)


def test_what_is_wrong_with_a_product_is_told_in_the_words_of_its_function():
    x, whole = torch.ones(3, 4), torch.ones(3, 4, dtype=torch.int64)
    matmul, linear = isobit.torch.matmul, isobit.torch.linear
    for call, words in (
        (
            lambda: matmul(whole, whole.t()),
            r"^matmul: input has dtype torch\.int64; must be float32",
        ),
        (
            lambda: isobit.torch.mm(x, x.t().double()),
            r"^mm: mat2 has dtype torch\.float64; input has",
        ),
        (
            lambda: linear(x, x.double()),
            r"^linear: weight has dtype torch\.float64; input has torch",
        ),
        (lambda: matmul(x, x), "^matmul: input has 4 columns; other has 3 rows"),
        (
            lambda: matmul(x.expand(2, 3, 4), x.t().expand(3, 4, 3)),
            r"^matmul: the batch of input is",
        ),
    ):
        with pytest.raises(ValueError, match=words):
            call()
