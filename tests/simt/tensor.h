// SPDX-License-Identifier: Apache-2.0
// Matrices for the tests of products by tensor cores, and what those are defined to be.
#pragma once

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "isobit/core/error.h"
#include "isobit/core/tensor_core.h"
#include "isobit/ops/matmul/matmul.h"
#include "simt/where.h"
#include "workloads.h"

namespace isobit::lab::tensor {

// Elements of 16 bits, (rows, cols), with strides; numbers of all sizes, so that sums are cut.
template <class T>
struct Matrix {
  std::vector<T> elements;
  std::int64_t rows, cols, row, col, offset;

  Matrix(std::int64_t rows, std::int64_t cols, bool turned, std::int64_t gap, std::int64_t offset,
         std::uint32_t state)
      : rows(rows),
        cols(cols),
        row(turned ? 1 : cols + gap),
        col(turned ? rows + gap : 1),
        offset(offset) {
    elements.resize(static_cast<std::size_t>(offset + (rows + gap) * (cols + gap)));
    const auto next = [&] { return (state = state * 1664525u + 1013904223u) >> 8; };
    for (T& element : elements) {
      const float size = std::ldexp(1.0F, -static_cast<int>(next() % 9));
      element = from_float<T>((static_cast<float>(next()) * 0x1p-23F - 1) * size);
    }
  }
  T& at(std::int64_t i, std::int64_t j) {
    return elements[static_cast<std::size_t>(offset + i * row + j * col)];
  }
  TensorView view() {
    const auto bytes =
        static_cast<std::int64_t>(elements.size() - static_cast<std::size_t>(offset));
    TensorView view{elements.data() + offset, 2 * bytes, kType, 2};
    view.shape[0] = rows;
    view.shape[1] = cols;
    view.strides[0] = row;
    view.strides[1] = col;
    return view;
  }
  static constexpr DType kType = std::is_same_v<T, bf16> ? DType::bf16 : DType::f16;
};

// An element as the README defines it: one sum over k, 16 at a time, the last ones zeros.
template <class T>
float defined(Matrix<T>& a, Matrix<T>& b, std::int64_t i, std::int64_t j) {
  const tensor_core::Format format =
      std::is_same_v<T, bf16> ? tensor_core::kBf16 : tensor_core::kF16;
  float sum = 0;
  for (std::int64_t k = 0; k < a.cols; k += 16) {
    tensor_core::Number left[16], right[16];
    for (std::int64_t e = 0; e < 16; ++e) {
      const bool there = k + e < a.cols;
      left[e] = tensor_core::taken_apart(there ? a.at(i, k + e).bits : 0, format);
      right[e] = tensor_core::taken_apart(there ? b.at(k + e, j).bits : 0, format);
    }
    sum = tensor_core::multiply_add(left, right, sum, format, tensor_core::generation_of(90));
  }
  return sum + 0.0F;
}

// The index of the variant among all.
inline int variant_named(std::string_view name) {
  attach_devices();
  const std::vector<VariantInfo> infos = matmul::forward_operation().variants();
  for (int i = 0; i < static_cast<int>(infos.size()); ++i)
    if (infos[i].device == kDevice && infos[i].name == name) return i;
  throw std::logic_error("no such variant");
}

template <class T>
std::vector<float> product(Matrix<T>& a, Matrix<T>& b, std::string_view variant, int side) {
  std::vector<float> y(static_cast<std::size_t>(a.rows * b.cols), -1);
  const Operation& operation = matmul::forward_operation();
  const Arguments args = operation.make_arguments();
  auto& typed = *static_cast<matmul::ForwardArgs*>(args.get());
  typed.a = a.view();
  typed.b = b.view();
  typed.y = matrix_view(y.data(), static_cast<std::int64_t>(4 * y.size()), DType::f32, a.rows,
                        b.cols, b.cols);
  typed.arithmetic = matmul::Arithmetic::tensor;
  operation.check(args);
  Plan plan{};
  plan[0] = side;
  const int index = variant_named(variant);
  operation.run(index, plan, args, execution_for(kDevice));
  return y;
}

template <class T>
void expect_defined(Matrix<T>& a, Matrix<T>& b, std::string_view variant, int side = 0) {
  const std::vector<float> y = product(a, b, variant, side);
  for (std::int64_t i = 0; i < a.rows; ++i)
    for (std::int64_t j = 0; j < b.cols; ++j)
      ASSERT_EQ(std::bit_cast<std::uint32_t>(y[static_cast<std::size_t>(i * b.cols + j)]),
                std::bit_cast<std::uint32_t>(defined(a, b, i, j)))
          << i << ", " << j << " of " << a.rows << " x " << b.cols << " x " << a.cols;
}

// An infinity in a row of a, and NaN in a column of b, at two places of k: the row becomes infinite
// and the column NaN, and nothing else; what lies beside the matrices is NaN.
inline void expect_spoilt(Matrix<f16>& a, Matrix<f16>& b, std::int64_t row, std::int64_t col,
                          std::string_view variant, int side = 0) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const f16 nan = from_float<f16>(std::numeric_limits<float>::quiet_NaN());
  for (Matrix<f16>* each : {&a, &b}) {
    for (f16& element : each->elements) element = nan;
    for (std::int64_t i = 0; i < each->rows; ++i)
      for (std::int64_t j = 0; j < each->cols; ++j)
        each->at(i, j) = from_float<f16>(each == &a ? 1.5F : 2.0F);
  }
  a.at(row, a.cols - 1) = from_float<f16>(kInfinity);
  b.at(a.cols / 2, col) = nan;
  const std::vector<float> y = product(a, b, variant, side);
  for (std::int64_t i = 0; i < a.rows; ++i)
    for (std::int64_t j = 0; j < b.cols; ++j) {
      const float value = y[static_cast<std::size_t>(i * b.cols + j)];
      if (j == col)
        ASSERT_EQ(std::bit_cast<std::uint32_t>(value), kNanF32) << i << ", " << j;
      else
        ASSERT_EQ(value, i == row ? kInfinity : 3 * static_cast<float>(a.cols)) << i << ", " << j;
    }
}

// Why no variant takes a call there.
inline std::string refusal(const Operation& operation, const Arguments& args,
                           const Machine& machine) {
  try {
    operation.default_variant(args, machine);
  } catch (const Unsupported& error) { return error.what(); }
  return "nothing";
}

}  // namespace isobit::lab::tensor
