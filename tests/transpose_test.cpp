// SPDX-License-Identifier: Apache-2.0
// What is peculiar to transpose: results that leave the caches in whole lines.
#include "isobit/ops/transpose/transpose.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "workloads.h"

namespace isobit::lab {
namespace {

// Rows of y of whole lines, rows that end within one, and columns that are left over by blocks; of
// each size of element, and converted.
TEST(Transpose, WholeLinesAndTheirRestsAreRight) {
  const std::vector<Types> types = {{DType::u8, DType::u8},    {DType::bf16, DType::bf16},
                                    {DType::f32, DType::f32},  {DType::f64, DType::f64},
                                    {DType::f32, DType::bf16}, {DType::f64, DType::f32}};
  Case c = cases_of(transpose::operation(), Flags{}, "quick").at(0);
  for (const Types& of : types)
    for (const std::vector<std::int64_t>& extents :
         {std::vector<std::int64_t>{2, 320, 600}, {3, 1088, 64}, {1, 256, 1155}, {2, 333, 130}}) {
      std::ranges::copy(extents, c.extents.begin());
      c.types = of;
      Workload workload(c);
      workload.draw();
      expect_right(workload, every_configuration(workload, {1, 3}));
      if (HasFatalFailure()) return;
    }
}

}  // namespace
}  // namespace isobit::lab
