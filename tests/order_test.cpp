// SPDX-License-Identifier: Apache-2.0
// The specification in core/order.h, against the definition in its comment.
#include "isobit/core/order.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <vector>

namespace isobit {
namespace {

std::uint32_t bits(float value) { return std::bit_cast<std::uint32_t>(value); }

// Adjacent pairs, level by level, as the comment says it.
float pairwise(std::vector<float> sums) {
  while (sums.size() > 1) {
    std::vector<float> next;
    for (std::size_t i = 0; i < sums.size(); i += 2)
      next.push_back(i + 1 < sums.size() ? sums[i] + sums[i + 1] : sums[i]);
    sums = next;
  }
  return sums.empty() ? 0.0f : 0.0f + sums[0];
}

float block_sum(const std::vector<float>& x, std::size_t start) {
  std::vector<float> values(order::kBlock, 0.0f);
  for (int i = 0; i < order::kBlock && start + i < x.size(); ++i) values[i] = x[start + i];
  for (int half = order::kBlock / 2; half >= 1; half /= 2)
    for (int i = 0; i < half; ++i) values[i] += values[i + half];
  return values[0];
}

TEST(Order, PairTreeAddsAdjacentPairs) {
  order::PairTree<float> tree;
  std::vector<float> values;
  for (int count = 0; count <= 600; ++count) {
    EXPECT_EQ(bits(tree.total()), bits(pairwise(values))) << count;
    values.push_back(std::sin(0.7f * static_cast<float>(count)) * 1e3f);
    tree.push(values.back());
  }
}

// Folding 8 rows and then 64 lanes by halves is folding 512 elements by halves.
TEST(Order, SumIsHalvingInBlocksAndPairsOfBlocks) {
  for (int count : {0, 1, 63, 64, 65, 511, 512, 513, 1024, 1536, 1537, 5000}) {
    std::vector<float> x(count), blocks;
    for (int i = 0; i < count; ++i) x[i] = std::sin(0.1f * static_cast<float>(i)) * 1e3f;
    for (int start = 0; start < count; start += order::kBlock)
      blocks.push_back(block_sum(x, start));
    EXPECT_EQ(bits(order::sum<float>(count, [&](std::int64_t i) { return x[i]; })),
              bits(pairwise(blocks)))
        << count;
  }
}

TEST(Order, RowsAreAddedInRunsOfSixteen) {
  std::vector<float> x(100);
  for (int i = 0; i < 100; ++i) x[i] = std::sin(static_cast<float>(i));
  std::vector<float> runs;
  for (int start = 0; start < 100; start += order::kRun) {
    float sum = 0;
    for (int i = start; i < std::min(100, start + order::kRun); ++i) sum += x[i];
    runs.push_back(sum);
  }
  const auto step = [&](float sum, std::int64_t row) { return sum + x[row]; };
  EXPECT_EQ(bits(order::sum_rows<float>(100, step)), bits(pairwise(runs)));
}

TEST(Order, MinusZerosSumToPlusZero) {
  const auto minus_zero = [](std::int64_t) { return -0.0f; };
  EXPECT_EQ(bits(order::sum<float>(1024, minus_zero)), bits(0.0f));
}

}  // namespace
}  // namespace isobit
