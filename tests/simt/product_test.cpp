// SPDX-License-Identifier: Apache-2.0
// Matrices in the fragments of a warp.
#include "simt/product.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "isobit/core/tensor_core.h"
#include "isobit/simt/simt.h"
#include "with_array.h"

namespace isobit::simt {
namespace {

template <class T>
void expect_product() {
  constexpr int kSize = 16;
  T a[kSize][kSize], b[kSize][kSize];
  float c[kSize][kSize];
  const auto left = [](int i, int k) { return static_cast<float>((7 * i + 3 * k) % 11 - 5); };
  const auto right = [](int k, int j) { return static_cast<float>((5 * k + 2 * j) % 13 - 6); };
  for (int i = 0; i < kSize; ++i)
    for (int j = 0; j < kSize; ++j) {
      a[i][j] = from_float<T>(left(i, j));
      b[i][j] = from_float<T>(right(i, j));
      c[i][j] = -1e9F;
    }
  product(&a[0][0], &b[0][0], &c[0][0]);
  for (int i = 0; i < kSize; ++i)
    for (int j = 0; j < kSize; ++j) {
      float expected = 0;
      for (int k = 0; k < kSize; ++k) expected += left(i, k) * right(k, j);
      EXPECT_EQ(c[i][j], expected) << i << ", " << j;
    }
}

TEST(Matrices, OfBf16AreMultiplied) { expect_product<bf16>(); }
TEST(Matrices, OfF16AreMultiplied) { expect_product<f16>(); }

// c plus sixteen products of bf16: of x and y, or of the first pair and then of zeros.
float summed(float c, float x, float y, int capability, float first = 0, float other = 0) {
  namespace core = tensor_core;
  core::Number a[16], b[16];
  for (int k = 0; k < 16; ++k) {
    const bool own = first != 0 && k == 0;
    a[k] = core::taken_apart(from_float<bf16>(own ? first : x).bits, core::kBf16);
    b[k] = core::taken_apart(from_float<bf16>(own ? other : y).bits, core::kBf16);
  }
  return core::multiply_add(a, b, c, core::kBf16, core::generation_of(capability));
}

TEST(Matrices, AreAddedAsTheModelOfAGenerationSays) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  constexpr float kLargest = std::numeric_limits<float>::max();
  for (const int capability : {80, 90}) {
    EXPECT_EQ(summed(0.5F, 1, 1, capability), 16.5F);
    EXPECT_EQ(summed(-16, 1, 1, capability), 0);
    // Toward zero: half a unit in the last place and more is lost, on both sides.
    EXPECT_EQ(summed(0, 0, 0, capability, 1, 1), 1);
    EXPECT_EQ(summed(0x1p24F, 0, 0, capability, 1.5F, 1), 0x1p24F);
    EXPECT_EQ(summed(-0x1p24F, 0, 0, capability, -1.5F, 1), -0x1p24F);
    // What is too large is infinite; infinities cancel to NaN, and so does 0 times infinity.
    EXPECT_EQ(summed(kLargest, 0, 0, capability, 0x1p120F, 0x1p7F), kInfinity);
    EXPECT_EQ(summed(0, 0x1p127F, -0x1p127F, capability), -kInfinity);
    EXPECT_TRUE(std::isnan(summed(kInfinity, 1, 1, capability, -kInfinity, 1)));
    EXPECT_TRUE(std::isnan(summed(0, 0, 0, capability, 0, kInfinity) +
                           summed(0, kInfinity, 0, capability)));
    // Subnormal sums are kept, toward zero.
    EXPECT_EQ(summed(0, 0, 0, capability, 0x1p-100F, 0x1.8p-49F), 0x1p-149F);
    EXPECT_EQ(summed(0x1p-126F, 0, 0, capability, 0x1p-74F, -0x1p-74F), 0x1.fffff8p-127F);
    EXPECT_EQ(summed(0, 0, 0, capability, 0x1p-100F, 0x1p-50F), 0);
  }
  // What lies 25 bits behind the largest term is kept by sm_90; sm_80 adds eight and eight.
  EXPECT_EQ(summed(1, 0x1p-25F, 1, 80), 1);
  EXPECT_EQ(summed(1, 0x1p-25F, 1, 90), 1 + 0x1p-21F);
  EXPECT_EQ(summed(1, 0x1p-24F, 1, 80), 1 + 0x1p-20F);
  EXPECT_EQ(summed(1, 0x1.8p-25F, 1, 90), 1 + 0x1p-21F);
}

TEST(Matrices, RowsLieOn16Bytes) {
  const auto body = [](float* shared) {
    unsigned words[4];
    load_matrices<false>(words, shared + lane() * 4 + 1);
  };
  EXPECT_THROW(launch(nullptr, {.threads = 32}, WithArray<decltype(body)>{200, body}), DeviceError);
}

TEST(Matrices, AllLanesLoadTogether) {
  const auto body = [](float* shared) {
    unsigned words[4];
    if (lane() != 5) load_matrices<false>(words, shared + lane() * 4);
  };
  EXPECT_THROW(launch(nullptr, {.threads = 32}, WithArray<decltype(body)>{200, body}), DeviceError);
}

}  // namespace
}  // namespace isobit::simt
