// SPDX-License-Identifier: Apache-2.0
// Products by a warpgroup's tensor cores, as the emulator has them: the order that the README
// states, which is that of mma, in every schedule and layout; edges; what is declined.
#include <gtest/gtest.h>

#include <bit>
#include <string>
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

constexpr char kName[] = "wgmma";

// Of so many elements, the next that fill pieces of 16 bytes.
std::int64_t gap(std::int64_t elements) { return -elements & 7; }

struct Shape {
  std::int64_t m, n, k;
};

// A matrix whose rows or, turned, columns begin at 16 bytes.
template <class T>
Matrix<T> in_pieces(std::int64_t rows, std::int64_t cols, bool turned, std::uint32_t state) {
  return Matrix<T>(rows, cols, turned, gap(turned ? rows : cols), 0, state);
}

// Whole tiles, parts of them, several for a block, and more turns than there are places.
TEST(WarpgroupKernels, FollowTheOrderInEverySchedule) {
  watch();
  std::uint32_t seed = 1;
  in_every_schedule([&](bool in_order) {
    for (const Shape& s : {Shape{128, 128, 64}, {70, 40, 330}, {20, 300, 130}, {130, 9, 37}}) {
      if (kDetectsRaces && s.m * s.n > 64 * 64) continue;
      for (const int layout : {0, 1, 2, 3}) {
        if (!in_order && layout != static_cast<int>(seed % 4)) continue;
        Matrix<bf16> a = in_pieces<bf16>(s.m, s.k, layout % 2 != 0, ++seed);
        Matrix<bf16> b = in_pieces<bf16>(s.k, s.n, layout / 2 != 0, ++seed);
        expect_defined(a, b, kName);
        if (HasFatalFailure()) return;
      }
    }
  });
}

TEST(WarpgroupKernels, OfF16AndFewKFollowTheOrder) {
  watch();
  for (const std::int64_t k : {1, 8, 15, 16, 17, 63, 64, 65}) {
    const auto seed = static_cast<std::uint32_t>(k);
    Matrix<f16> a = in_pieces<f16>(9, k, k % 2 == 0, seed);
    Matrix<f16> b = in_pieces<f16>(k, 10, k % 3 == 0, seed + 1);
    expect_defined(a, b, kName);
    if (HasFatalFailure()) return;
  }
}

// Then nothing but the end of one tile stands before the end of a block's next one.
TEST(WarpgroupKernels, OfNoKAreZeros) {
  watch();
  Matrix<bf16> a(9, 0, false, 8, 0, 1), b(0, 520, false, 8, 0, 2);
  expect_defined(a, b, kName);
}

// What lies beside a matrix is NaN and is not read; what is not finite stays in its row and column.
TEST(WarpgroupKernels, WhatIsNotFiniteStaysInItsRowAndColumn) {
  watch();
  const std::int64_t m = 66, n = 65, k = 49;
  for (const auto& [row, col] : {std::pair<std::int64_t, std::int64_t>{0, 0}, {63, 64}, {65, 63}})
    for (const bool turned : {false, true}) {
      if (kDetectsRaces && row != 63) continue;
      Matrix<f16> a = in_pieces<f16>(m, k, turned, 1), b = in_pieces<f16>(k, n, turned, 2);
      tensor::expect_spoilt(a, b, row, col, kName);
      if (HasFatalFailure()) return;
    }
}

// Both passes against the reference, with all that is done to a product, and bit by bit against
// mma: batches, epilogues, families of numbers.
TEST(WarpgroupKernels, AreRightAndHaveTheBitsOfMma) {
  watch();
  attach_devices();
  Flags flags;
  flags.device = {std::string(name_of(kDevice))};
  flags.variant = {"mma", kName};
  flags.dtype = {"f16", "bf16"};
  flags.options = {{"arithmetic", {"tensor"}}};
  const auto expect = [&](const Operation& operation, std::size_t cases) {
    const std::vector<Case> all = cases_of(operation, flags, "test");
    EXPECT_EQ(all.size(), cases);
    for (const Case& c : all) {
      Workload workload(c);
      workload.draw();
      const std::vector<Configuration> ways = configurations_of(workload, flags, Unnamed::all).able;
      ASSERT_EQ(ways.size(), 2U);
      expect_right(workload, ways);
      if (HasFatalFailure()) return;
    }
  };
  flags.dims = {{"batch", {2}}, {"m", {9}}, {"n", {40}}, {"k", {24}}};
  flags.options["activation"] = {"none", "silu"};
  expect(matmul::forward_operation(), 4);
  flags.with = {"pre+grad_bias+grad_c"};
  expect(matmul::backward_operation(), 4);
  flags.with.clear();
  if (kDetectsRaces) return;
  flags.dims = {{"batch", {1}}, {"m", {130}}, {"n", {16}}, {"k", {72}}};
  flags.options.erase("activation");
  flags.input = {"randn", "uniform", "integers", "alternating", "fltmax", "denormal"};
  expect(matmul::forward_operation(), 12);
  flags.input = {"randn"};
  expect(matmul::backward_operation(), 2);
}

class Call {
 public:
  Call() : args_(operation().make_arguments()) {
    typed().a = a_.view();
    typed().b = b_.view();
    typed().y = matrix_view(y_.data(), 64, DType::f32, 4, 4, 4);
    typed().arithmetic = Arithmetic::tensor;
  }
  static const Operation& operation() { return matmul::forward_operation(); }
  ForwardArgs& typed() { return *static_cast<ForwardArgs*>(args_.get()); }
  std::string reason(const Machine& machine) const {
    return operation().declines(tensor::variant_named(kName), args_, machine);
  }
  const Arguments& args() const { return args_; }

 private:
  Matrix<bf16> a_ = in_pieces<bf16>(4, 8, false, 1), b_ = in_pieces<bf16>(8, 4, false, 2);
  std::vector<float> y_ = std::vector<float>(16);
  Arguments args_;
};

TEST(WarpgroupKernels, AreNobodysDefaultAndSayWhatTheyDecline) {
  attach_devices();
  Call call;
  Machine machine = execution_for(kDevice).machine;
  EXPECT_EQ(call.reason(machine), "");
  EXPECT_EQ(call.operation().default_variant(call.args(), machine), tensor::variant_named("mma"));
  for (const int other : {80, 89, 100, 120}) {
    machine.gpu.capability = other;
    EXPECT_EQ(call.reason(machine), "only GPUs of sm_90 have its instructions");
  }
  machine.gpu.capability = 90;
  call.typed().arithmetic = Arithmetic::canonical;
  EXPECT_EQ(call.reason(machine), "has no arithmetic but tensor");
  call.typed().arithmetic = Arithmetic::tensor;
  const TensorView a = call.typed().a;
  call.typed().a.shape[1] = call.typed().b.shape[0] = 7;
  call.typed().a.strides[0] = 7;
  EXPECT_EQ(call.reason(machine),
            "it takes a and b whose rows (or columns, if those are adjacent) begin at 16 bytes");
  call.typed().a = a;
  call.typed().a.shape[0] = call.typed().y.shape[0] = 2;
  call.typed().a.shape[1] = call.typed().b.shape[0] = 4;
  call.typed().a.strides[1] = 2;
  EXPECT_EQ(call.reason(machine), "it takes a and b whose rows or columns are adjacent elements");
}

// The bits of sm_90 by the model, written down: those of mma.
TEST(WarpgroupKernels, HaveTheBitsOfTheirGeneration) {
  watch();
  Matrix<bf16> a(20, 200, false, 0, 0, 7), b(200, 30, false, 2, 0, 8);
  std::uint64_t hash = 14695981039346656037u;
  for (const float value : product(a, b, kName, 0))
    hash = (hash ^ std::bit_cast<std::uint32_t>(value)) * 1099511628211u;
  EXPECT_EQ(hash, 5148441279809557487u);
}

}  // namespace
}  // namespace isobit::lab
