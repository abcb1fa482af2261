// SPDX-License-Identifier: Apache-2.0
// What is peculiar to transpose: results that leave the caches in whole lines, and matrices of a
// few rows or columns, as pixels and their channels are.
#include "isobit/ops/transpose/transpose.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "workloads.h"

namespace isobit::lab {
namespace {

const std::vector<Types> kTypes = {{DType::u8, DType::u8},    {DType::bf16, DType::bf16},
                                   {DType::f32, DType::f32},  {DType::f64, DType::f64},
                                   {DType::f32, DType::bf16}, {DType::f64, DType::f32}};

void expect_right_of(const std::vector<std::vector<std::int64_t>>& all_extents) {
  Case c = cases_of(transpose::operation(), Flags{}, "quick").at(0);
  for (const Types& of : kTypes)
    for (const std::vector<std::int64_t>& extents : all_extents) {
      std::ranges::copy(extents, c.extents.begin());
      c.types = of;
      Workload workload(c);
      workload.draw();
      expect_right(workload, every_configuration(workload, {1, 3}));
      if (testing::Test::HasFatalFailure()) return;
    }
}

// Rows of y of whole lines, rows that end within one, and columns that are left over by blocks; of
// each size of element, and converted.
TEST(Transpose, WholeLinesAndTheirRestsAreRight) {
  expect_right_of({{2, 320, 600}, {3, 1088, 64}, {1, 256, 1155}, {2, 333, 130}});
}

TEST(Transpose, MatricesOfFewRowsOrColumnsAreRight) {
  for (const std::int64_t few : {1, 2, 3, 4, 5, 7})
    for (const std::int64_t many : {3, 16, 33, 1030}) {
      expect_right_of({{3, few, many}, {3, many, few}});
      if (HasFatalFailure()) return;
    }
}

}  // namespace
}  // namespace isobit::lab
