// SPDX-License-Identifier: Apache-2.0
// Relations that LayerNorm keeps to the last bit, on inputs that nobody chose.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "isobit/ops/layernorm/layernorm.h"
#include "isobit/simd/parallel_for.h"

namespace isobit::layernorm {
namespace {

struct Matrix {
  std::int64_t rows, cols;
  std::vector<float> values;

  TensorView view() {
    return matrix_view(values.data(), std::ssize(values) * 4, DType::f32, rows, cols, cols);
  }
  float* row(std::int64_t i) { return values.data() + i * cols; }
};

TensorView view(std::vector<float>& values) {
  return vector_view(values.data(), std::ssize(values) * 4, DType::f32, std::ssize(values));
}

// Numbers of a random scale, some of them equal, so that ordinary and unusual rows both come up.
Matrix any_matrix(std::int64_t max_rows, std::int64_t max_cols, int max_exponent = 60) {
  Matrix matrix{*rc::gen::inRange<std::int64_t>(1, max_rows + 1),
                *rc::gen::inRange<std::int64_t>(1, max_cols + 1),
                {}};
  const int exponent = *rc::gen::inRange(-max_exponent, max_exponent);
  const float offset = *rc::gen::element(0.0f, 1.0f, 1000.0f);
  const auto seed = *rc::gen::arbitrary<std::uint32_t>();
  std::uint32_t state = seed;
  for (std::int64_t i = 0; i < matrix.rows * matrix.cols; ++i) {
    state = state * 1664525u + 1013904223u;
    const float unit = static_cast<float>(static_cast<std::int32_t>(state)) * 0x1p-31f;
    matrix.values.push_back(std::ldexp(offset + unit, exponent));
  }
  return matrix;
}

Matrix normalised(Matrix x, double eps, Isa isa = Machine::here().isa, int threads = 1) {
  Matrix y = x;
  Execution execution = simd::here(threads);
  execution.machine.isa = isa;
  forward(
      {.x = x.view(), .weight = {}, .bias = {}, .y = y.view(), .mean = {}, .rstd = {}, .eps = eps},
      execution);
  return y;
}

RC_GTEST_PROP(LayerNorm, EveryInstructionSetAndThreadCountGivesTheSameBits, ()) {
  const Matrix x = any_matrix(9, 1200);
  const Matrix expected = normalised(x, 1e-5, Isa::scalar);
  for (Isa isa : Machine::isas_here())
    for (int threads : {1, 2, 3})
      RC_ASSERT(normalised(x, 1e-5, isa, threads).values == expected.values);
}

RC_GTEST_PROP(LayerNorm, ScalingByAPowerOfTwoChangesNothingWithoutEps, ()) {
  const Matrix x = any_matrix(4, 700);
  Matrix scaled = x;
  const int exponent = *rc::gen::inRange(-20, 20);
  for (float& value : scaled.values) value = std::ldexp(value, exponent);
  RC_ASSERT(normalised(scaled, 0).values == normalised(x, 0).values);
}

RC_GTEST_PROP(LayerNorm, NegatingTheRowNegatesTheResult, ()) {
  const Matrix x = any_matrix(4, 700);
  Matrix negated = x;
  for (float& value : negated.values) value = -value;
  Matrix y = normalised(negated, 1e-5);
  for (float& value : y.values) value = -value;
  RC_ASSERT(y.values == normalised(x, 1e-5).values);
}

RC_GTEST_PROP(LayerNorm, RowsAreIndependent, ()) {
  Matrix x = any_matrix(12, 300);
  std::vector<std::int64_t> order(x.rows);
  std::iota(order.begin(), order.end(), 0);
  std::reverse(order.begin(), order.end());
  std::rotate(order.begin(), order.begin() + *rc::gen::inRange<std::int64_t>(0, x.rows),
              order.end());
  Matrix permuted = x;
  for (std::int64_t i = 0; i < x.rows; ++i) std::copy_n(x.row(order[i]), x.cols, permuted.row(i));
  Matrix y = normalised(x, 1e-5), permuted_y = normalised(permuted, 1e-5);
  for (std::int64_t i = 0; i < x.rows; ++i)
    RC_ASSERT(std::equal(permuted_y.row(i), permuted_y.row(i) + x.cols, y.row(order[i])));
}

// Doubling is exact, so it passes through every sum and product of the backward pass (unless one
// underflows).
RC_GTEST_PROP(LayerNorm, GradientsScaleWithGradY, ()) {
  Matrix x = any_matrix(20, 200, 8);
  Matrix grad_y = x;
  for (std::size_t i = 0; i < grad_y.values.size(); ++i)
    grad_y.values[i] = static_cast<float>((i * 37) % 101) / 64 - 0.75f;
  const auto gradients = [&](Matrix dy) {
    Matrix grad_x = x;
    std::vector<float> weight(x.cols), bias(x.cols);
    backward({.x = x.view(),
              .grad_y = dy.view(),
              .weight = {},
              .mean = {},
              .rstd = {},
              .grad_x = grad_x.view(),
              .grad_weight = view(weight),
              .grad_bias = view(bias)},
             simd::here(*rc::gen::inRange(1, 4)));
    grad_x.values.insert(grad_x.values.end(), weight.begin(), weight.end());
    grad_x.values.insert(grad_x.values.end(), bias.begin(), bias.end());
    return grad_x.values;
  };
  Matrix doubled = grad_y;
  for (float& value : doubled.values) value *= 2;
  std::vector<float> once = gradients(grad_y);
  for (float& value : once) value *= 2;
  RC_ASSERT(gradients(doubled) == once);
}

}  // namespace
}  // namespace isobit::layernorm
