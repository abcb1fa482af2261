// SPDX-License-Identifier: Apache-2.0
// What a caller of matmul includes: products of matrices, with what is usually done to them next.
#pragma once

#include "isobit/core/execution.h"
#include "isobit/core/tensor_view.h"

namespace isobit {
class Operation;
}

namespace isobit::matmul {

enum class Activation { none, relu, gelu, gelu_tanh, silu };

// pre = alpha a b + beta c + bias; y = activation(pre) + residual, rounded once. All arrays may
// have any strides: a transposed matrix is one with its strides exchanged, and one that serves all
// products of a batch has strides of 0. c is not read where beta is 0. y may be c or residual.
struct Args {
  TensorView a;              // (..., m, k)
  TensorView b;              // (..., k, n)
  TensorView bias = {};      // (n), optional
  TensorView c = {};         // like y, optional
  TensorView residual = {};  // like y, optional
  TensorView y;              // (..., m, n)
  TensorView pre = {};       // like y, optional
  double alpha = 1;
  double beta = 0;
  Activation activation = Activation::none;
};

void run(const Args& args, const Execution& execution);

const Operation& operation();

}  // namespace isobit::matmul
