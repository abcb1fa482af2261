// SPDX-License-Identifier: Apache-2.0
// Matrices in the fragments of a warp.
#include "simt/product.h"

#include <gtest/gtest.h>

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
