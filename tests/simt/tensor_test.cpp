// SPDX-License-Identifier: Apache-2.0
// Products by tensor cores, as the emulator has them: the order that the README states, in every
// schedule, layout and plan; edges of tiles; what is not finite.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "isobit/core/error.h"
#include "isobit/core/tensor_core.h"
#include "isobit/ops/matmul/matmul.h"
#include "simt/where.h"
#include "workloads.h"

namespace isobit::lab {
namespace {

using matmul::Arithmetic;
using matmul::ForwardArgs;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

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
int mma() {
  attach_devices();
  const std::vector<VariantInfo> infos = matmul::forward_operation().variants();
  for (int i = 0; i < static_cast<int>(infos.size()); ++i)
    if (infos[i].device == kDevice && infos[i].name == "mma") return i;
  throw std::logic_error("no mma");
}

template <class T>
std::vector<float> product(Matrix<T>& a, Matrix<T>& b, int side) {
  std::vector<float> y(static_cast<std::size_t>(a.rows * b.cols), -1);
  const Operation& operation = matmul::forward_operation();
  const Arguments args = operation.make_arguments();
  auto& typed = *static_cast<ForwardArgs*>(args.get());
  typed.a = a.view();
  typed.b = b.view();
  typed.y = matrix_view(y.data(), static_cast<std::int64_t>(4 * y.size()), DType::f32, a.rows,
                        b.cols, b.cols);
  typed.arithmetic = Arithmetic::tensor;
  operation.check(args);
  Plan plan{};
  plan[0] = side;
  const int variant = mma();
  operation.run(variant, plan, args, execution_for(kDevice));
  return y;
}

template <class T>
void expect_defined(Matrix<T>& a, Matrix<T>& b, int side) {
  const std::vector<float> y = product(a, b, side);
  for (std::int64_t i = 0; i < a.rows; ++i)
    for (std::int64_t j = 0; j < b.cols; ++j)
      ASSERT_EQ(std::bit_cast<std::uint32_t>(y[static_cast<std::size_t>(i * b.cols + j)]),
                std::bit_cast<std::uint32_t>(defined(a, b, i, j)))
          << i << ", " << j << " of " << a.rows << " x " << b.cols << " x " << a.cols;
}

struct Shape {
  std::int64_t m, n, k;
};

// Whole tiles, parts of them, and more turns than the ring has places.
TEST(TensorKernels, FollowTheOrderInEverySchedule) {
  watch();
  std::uint32_t seed = 1;
  in_every_schedule([&](bool in_order) {
    for (const Shape& s : {Shape{16, 16, 16}, {64, 64, 64}, {70, 40, 200}, {33, 130, 37}}) {
      if (kDetectsRaces && s.m * s.n > 64 * 64) continue;
      for (const int layout : {0, 1, 2, 3}) {
        const bool pieces = seed % 3 != 0;
        Matrix<bf16> a(s.m, s.k, layout % 2 != 0, pieces ? -(layout % 2 ? s.m : s.k) & 7 : 1, 0,
                       ++seed);
        Matrix<bf16> b(s.k, s.n, layout / 2 != 0, pieces ? -(layout / 2 ? s.k : s.n) & 7 : 1, 0,
                       ++seed);
        expect_defined(a, b, seed % 4 < 2 && in_order ? 128 : 64);
        if (HasFatalFailure()) return;
      }
    }
  });
}

TEST(TensorKernels, OfF16AndMisalignedFollowTheOrder) {
  watch();
  for (const std::int64_t k : {1, 8, 15, 16, 17, 31, 32, 33, 95, 130})
    for (const int offset : {0, 1, 8}) {
      Matrix<f16> a(9, k, offset == 1, 8 - k % 8, offset, static_cast<std::uint32_t>(k));
      Matrix<f16> b(k, 10, offset == 8, 6, 8 - offset, static_cast<std::uint32_t>(k + 1));
      expect_defined(a, b, 64);
      if (HasFatalFailure()) return;
    }
}

// What lies beside a matrix is NaN and is not read; what is not finite stays in its row and column,
// at the edges of tiles and in the last turn of k too.
TEST(TensorKernels, WhatIsNotFiniteStaysInItsRowAndColumn) {
  watch();
  const std::int64_t m = 66, n = 65;
  for (const std::int64_t k : {1, 31, 33, 49})
    for (const auto& [row, col] : {std::pair<std::int64_t, std::int64_t>{0, 0}, {63, 64}, {65, 63}})
      for (const bool turned : {false, true}) {
        if (kDetectsRaces && (k > 1 || row != 63)) continue;
        Matrix<f16> a(m, k, turned, 7, 0, 1), b(k, n, turned, 7, 0, 2);
        for (f16& element : a.elements) element = from_float<f16>(kNan);
        for (f16& element : b.elements) element = from_float<f16>(kNan);
        for (std::int64_t i = 0; i < m; ++i)
          for (std::int64_t e = 0; e < k; ++e) a.at(i, e) = from_float<f16>(1.5F);
        for (std::int64_t e = 0; e < k; ++e)
          for (std::int64_t j = 0; j < n; ++j) b.at(e, j) = from_float<f16>(2.0F);
        a.at(row, k - 1) = from_float<f16>(kInfinity);
        b.at(k / 2, col) = from_float<f16>(kNan);
        const std::vector<float> y = product(a, b, turned ? 128 : 64);
        for (std::int64_t i = 0; i < m; ++i)
          for (std::int64_t j = 0; j < n; ++j) {
            const float value = y[static_cast<std::size_t>(i * n + j)];
            if (j == col)
              ASSERT_EQ(std::bit_cast<std::uint32_t>(value), kNanF32) << i << ", " << j;
            else
              ASSERT_EQ(value, i == row ? kInfinity : 3 * static_cast<float>(k)) << i << ", " << j;
          }
      }
}

// Against the reference, with all that is done to a product.
TEST(TensorKernels, AreRight) {
  watch();
  attach_devices();
  Flags flags;
  flags.device = {std::string(name_of(kDevice))};
  for (const char* grid : {"quick", "test"})
    for (Case c : cases_of(matmul::forward_operation(), {}, grid)) {
      if (is_canonical(c) || (kDetectsRaces && grid[0] == 't')) continue;
      Workload workload(c);
      workload.draw();
      std::vector<Configuration> all = configurations_of(workload, flags, Unnamed::all).able;
      ASSERT_EQ(all.size(), 1U);
      const std::vector<Configuration> others = other_plans(all[0]);
      if (!kDetectsRaces) all.insert(all.end(), others.begin(), others.end());
      expect_right(workload, all);
      if (HasFatalFailure()) return;
    }
}

// The bits of sm_90 by the model, written down.
TEST(TensorKernels, HaveTheBitsOfTheirGeneration) {
  watch();
  Matrix<bf16> a(20, 200, false, 0, 0, 7), b(200, 30, false, 2, 0, 8);
  std::uint64_t hash = 14695981039346656037u;
  for (const float value : product(a, b, 64))
    hash = (hash ^ std::bit_cast<std::uint32_t>(value)) * 1099511628211u;
  EXPECT_EQ(hash, 5148441279809557487u);
}

TEST(TensorKernels, AreWantedOnGpusThatHaveTensorCores) {
  attach_devices();
  Matrix<bf16> a(4, 8, false, 0, 0, 1), b(8, 4, false, 0, 0, 2);
  std::vector<float> y(16);
  const Operation& operation = matmul::forward_operation();
  const Arguments args = operation.make_arguments();
  auto& typed = *static_cast<ForwardArgs*>(args.get());
  typed.a = a.view();
  typed.b = b.view();
  typed.y = matrix_view(y.data(), 64, DType::f32, 4, 4, 4);
  Machine machine = execution_for(kDevice).machine;
  EXPECT_NE(operation.default_variant(args, machine), mma());
  EXPECT_NE(operation.declines(mma(), args, machine), "");
  typed.arithmetic = Arithmetic::tensor;
  EXPECT_EQ(operation.default_variant(args, machine), mma());
  const auto refusal = [&](const Machine& on) -> std::string {
    try {
      operation.default_variant(args, on);
    } catch (const Unsupported& error) { return error.what(); }
    return "nothing";
  };
  const std::string expected =
      "matmul: arithmetic tensor needs bf16 on a processor, or f16 or bf16 on a GPU with tensor "
      "cores (sm_80 and later); use canonical";
  EXPECT_EQ(refusal(Machine::here()), "nothing");
  machine.gpu.capability = 75;
  EXPECT_EQ(refusal(machine), expected);
  typed.a.dtype = typed.b.dtype = DType::f16;
  EXPECT_THROW(operation.call(args, execution_for(Machine::here().isa, 1)), Unsupported);
  std::vector<float> wide(32);
  typed.a = matrix_view(wide.data(), 128, DType::f32, 4, 8, 8);
  typed.b = matrix_view(wide.data(), 128, DType::f32, 8, 4, 4);
  EXPECT_EQ(refusal(execution_for(kDevice).machine), expected);
  typed.arithmetic = static_cast<Arithmetic>(2);
  EXPECT_THROW(operation.check(args), InvalidArgument);
}

}  // namespace
}  // namespace isobit::lab
