// SPDX-License-Identifier: Apache-2.0
// What only dropout promises: the masks of norms with dropout, infinities that are dropped, a
// gradient that is the same call, and all or nothing.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "isobit/core/error.h"
#include "isobit/ops/dropout/dropout.h"
#include "isobit/ops/rmsnorm/rmsnorm.h"
#include "isobit/simd/parallel_for.h"

namespace isobit::dropout {
namespace {

constexpr std::int64_t kRows = 37, kCols = 301;
using Floats = std::vector<float>;

TensorView view(Floats& values) {
  return matrix_view(values.data(), std::ssize(values) * 4, DType::f32, kRows, kCols, kCols);
}

// On every instruction set, with the same bits.
Floats dropped(Floats x, double p, std::uint64_t seed, int threads = 2) {
  Floats found;
  for (const Isa isa : Machine::isas_here()) {
    Floats y(x.size());
    Execution execution = simd::here(threads);
    execution.machine.isa = isa;
    run({.x = view(x), .y = view(y), .p = p, .dropout_seed = seed}, execution);
    EXPECT_TRUE(found.empty() || std::memcmp(y.data(), found.data(), 4 * y.size()) == 0)
        << name_of(isa);
    found = y;
  }
  return found;
}

TEST(DropoutAlone, MasksAreThoseOfNorms) {
  Floats x(kRows * kCols), sum(x.size()), y(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = 1 + static_cast<float>(i);
  for (const double p : {0.1, 0.5, 0.9})
    for (const std::uint64_t seed : {std::uint64_t{0}, ~std::uint64_t{5}}) {
      rmsnorm::forward(
          {.x = view(x), .y = view(y), .sum = view(sum), .dropout = p, .dropout_seed = seed},
          simd::here(1));
      EXPECT_EQ(dropped(x, p, seed), sum);
      EXPECT_EQ(dropped(x, p, seed, 7), sum);
    }
}

TEST(DropoutAlone, WhatIsDroppedIsZeroWhateverItWas) {
  const float infinity = std::numeric_limits<float>::infinity();
  for (const float x : {infinity, -infinity, std::nanf(""), -3.0f}) {
    const Floats y = dropped(Floats(kRows * kCols, x), 0.5, 3);
    int zeros = 0;
    for (const float value : y) {
      if (value != 0) continue;
      ++zeros;
      ASSERT_FALSE(std::signbit(value));
    }
    EXPECT_NEAR(zeros, kRows * kCols / 2, 300);
  }
}

TEST(DropoutAlone, AllOrNothingIsDropped) {
  Floats x(kRows * kCols, -1.5f);
  EXPECT_EQ(dropped(x, 0, 9), x);
  EXPECT_EQ(dropped(x, 1, 9), Floats(x.size(), 0.0f));
  Floats in_place = x;
  run({.x = view(in_place), .y = view(in_place), .p = 0.25, .dropout_seed = 9}, simd::here(2));
  EXPECT_EQ(in_place, dropped(x, 0.25, 9));
}

TEST(DropoutAlone, TellsWhatPMayBe) {
  for (const double p : {-0.5, 1.5, std::nan("")}) {
    try {
      dropped(Floats(kRows * kCols), p, 0);
      ADD_FAILURE() << p << " was taken";
    } catch (const InvalidArgument& error) {
      EXPECT_NE(std::string(error.what()).find("; allowed: 0 to 1"), std::string::npos);
    }
  }
}

}  // namespace
}  // namespace isobit::dropout
