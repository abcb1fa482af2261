// SPDX-License-Identifier: Apache-2.0
// Calls after their check: a norm, and the product of its rows with a weight.
#pragma once

#include "isobit/core/matrix_views.h"
#include "isobit/core/tensor_view.h"
#include "isobit/norms/problem.h"
#include "isobit/ops/matmul/problem.h"

namespace isobit::norm_linear {

// The product of the normalised rows y with the weight. Views have rank 2 but for the bias; those
// that are absent have rank 0.
struct Product {
  DType dtype = DType::f32;  // of y, the weight and z
  std::int64_t rows = 0, cols = 0, features = 0;
  TensorView weight;  // (features, cols)
  matmul::Activation activation = matmul::Activation::none;
  matmul::Arithmetic arithmetic = matmul::Arithmetic::canonical;

  // y in an array, or nowhere.
  TensorView y_at(void* data) const {
    return matrix_view(data, rows * cols * size_of(dtype), dtype, rows, cols, cols);
  }
};

// norm.y is given only where the caller asks for y.
struct ForwardProblem {
  norms::ForwardProblem norm;
  Product product;
  TensorView bias, residual, z, pre;
};

// norm.grad_y is nowhere yet. `again` normalises x once more, for the gradient of the weight.
struct BackwardProblem {
  norms::BackwardProblem norm;
  norms::ForwardProblem again;
  Product product;
  TensorView grad_z, pre, grad_weight, grad_bias;

  bool wants_norm() const { return norm.wants_rows() || norm.wants_sums(); }
};

// z, of y.
inline matmul::Problem product_of(const ForwardProblem& problem, const TensorView& y) {
  const Product& product = problem.product;
  return matmul::problem_of({.a = y,
                             .b = turned(product.weight),
                             .bias = problem.bias,
                             .residual = problem.residual,
                             .y = problem.z,
                             .pre = problem.pre,
                             .activation = product.activation,
                             .arithmetic = product.arithmetic},
                            product.dtype);
}

// With s = grad_z activation'(pre): the gradient of y, s times the weight.
inline matmul::Problem gradient_of_y(const BackwardProblem& problem, const TensorView& grad_y) {
  const Product& product = problem.product;
  const bool bends = product.activation != matmul::Activation::none;
  return matmul::problem_of(
      {.a = problem.grad_z, .b = product.weight, .y = grad_y, .arithmetic = product.arithmetic},
      product.dtype, problem.pre, bends ? matmul::Derived::a : matmul::Derived::none,
      product.activation);
}

// That of the weight, s' y.
inline matmul::Problem gradient_of_weight(const BackwardProblem& problem, const TensorView& y) {
  const Product& product = problem.product;
  const bool bends = product.activation != matmul::Activation::none;
  return matmul::problem_of({.a = turned(problem.grad_z),
                             .b = y,
                             .y = problem.grad_weight,
                             .arithmetic = product.arithmetic},
                            product.dtype, bends ? turned(problem.pre) : TensorView{},
                            bends ? matmul::Derived::a : matmul::Derived::none, product.activation);
}

// That of the bias, the sum of the rows of s.
inline matmul::Problem gradient_of_bias(const BackwardProblem& problem) {
  matmul::BackwardArgs args;
  args.grad_y = problem.grad_z;
  args.a.dtype = problem.product.dtype;
  args.grad_bias = problem.grad_bias;
  args.activation = problem.product.activation;
  args.arithmetic = problem.product.arithmetic;
  return matmul::rows_problem(args, problem.pre);
}

}  // namespace isobit::norm_linear
