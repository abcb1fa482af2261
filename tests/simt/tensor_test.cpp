// SPDX-License-Identifier: Apache-2.0
// Products by tensor cores, as the emulator has them: the order that the README states, in every
// schedule, layout and plan; edges of tiles; what is not finite.
#include <gtest/gtest.h>

#include <bit>
#include <vector>

#include "isobit/core/error.h"
#include "simt/tensor.h"

namespace isobit::lab {
namespace {

using matmul::Arithmetic;
using matmul::ForwardArgs;
using tensor::expect_defined;
using tensor::Matrix;
using tensor::product;

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
        expect_defined(a, b, "mma", seed % 4 < 2 && in_order ? 128 : 64);
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
      expect_defined(a, b, "mma", 64);
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
        tensor::expect_spoilt(a, b, row, col, "mma", turned ? 128 : 64);
        if (HasFatalFailure()) return;
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
  for (const float value : product(a, b, "mma", 64))
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
  EXPECT_NE(operation.default_variant(args, machine), tensor::variant_named("mma"));
  EXPECT_NE(operation.declines(tensor::variant_named("mma"), args, machine), "");
  typed.arithmetic = Arithmetic::tensor;
  EXPECT_EQ(operation.default_variant(args, machine), tensor::variant_named("mma"));
  const auto refusal = [&](const Machine& on) { return tensor::refusal(operation, args, on); };
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
