// SPDX-License-Identifier: Apache-2.0
// What only Lion promises: steps of one length, and none where its average is 0.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "isobit/ops/lion/lion.h"
#include "isobit/simd/parallel_for.h"

namespace isobit::lion {
namespace {

TEST(Lion, StepsAreAsLongAsTheLearningRateOrNone) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  for (const Isa isa : Machine::isas_here()) {
    std::vector<float> param(20, 1), grad(20), average(20);
    grad[0] = 1e-30f;
    grad[1] = -1e30f;
    average[3] = -kInf;
    grad[4] = std::nanf("");
    const auto view = [](std::vector<float>& values) {
      return vector_view(values.data(), std::ssize(values) * 4, DType::f32, std::ssize(values));
    };
    Execution execution = simd::here(1);
    execution.machine.isa = isa;
    run({.param = view(param),
         .grad = view(grad),
         .exp_avg = view(average),
         .new_param = view(param),
         .new_exp_avg = view(average),
         .lr = 0.25},
        execution);
    EXPECT_EQ(param[0], 0.75f) << name_of(isa);
    EXPECT_EQ(param[1], 1.25f) << name_of(isa);
    EXPECT_EQ(param[2], 1) << name_of(isa);
    EXPECT_EQ(param[3], 1.25f) << name_of(isa);
    EXPECT_TRUE(std::isnan(param[4]) && std::isnan(average[4])) << name_of(isa);
    EXPECT_EQ(average[3], -kInf) << name_of(isa);
  }
}

}  // namespace
}  // namespace isobit::lion
