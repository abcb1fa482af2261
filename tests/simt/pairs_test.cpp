// SPDX-License-Identifier: Apache-2.0
// The trees in which kernels add have the bits of those in core/order.h.
#include "isobit/tile/pairs.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>

#include "isobit/core/order.h"

namespace isobit::tile {
namespace {

TEST(Pairs, ATreeWhoseSumsWaitInAnArrayAddsAsTheOrderDoes) {
  float waiting[kMostWaiting];
  PairTree<float> tree(waiting);
  order::PairTree<float> expected;
  for (int count = 0; count <= 600; ++count) {
    EXPECT_EQ(std::bit_cast<std::uint32_t>(tree.total()),
              std::bit_cast<std::uint32_t>(expected.total()))
        << count;
    const float sum = count < 3 ? -0.0f : std::sin(0.7f * static_cast<float>(count)) * 1e3f;
    tree.push(sum);
    expected.push(sum);
  }
}

}  // namespace
}  // namespace isobit::tile
