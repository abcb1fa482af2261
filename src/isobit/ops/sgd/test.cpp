// SPDX-License-Identifier: Apache-2.0
// What only SGD promises: a buffer that the first step makes, and results in the places of what
// they are made of.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "isobit/core/error.h"
#include "isobit/ops/sgd/sgd.h"
#include "isobit/simd/parallel_for.h"

namespace isobit::sgd {
namespace {

TensorView view(std::vector<float>& values) {
  return vector_view(values.data(), std::ssize(values) * 4, DType::f32, std::ssize(values));
}

class Sgd : public testing::TestWithParam<Isa> {};

TEST_P(Sgd, TheFirstStepMakesTheBufferOfTheGradientWhateverTheDampening) {
  Execution execution = simd::here(1);
  execution.machine.isa = GetParam();
  for (const bool nesterov : {false, true}) {
    std::vector<float> param = {1, 2, 3}, grad = {4, -8, 16}, buffer(3), moved(3);
    Args args = {.param = view(param),
                 .grad = view(grad),
                 .new_param = view(moved),
                 .new_momentum_buffer = view(buffer),
                 .lr = 0.5,
                 .momentum = 0.25,
                 .dampening = 0.75,
                 .nesterov = nesterov};
    run(args, execution);
    EXPECT_EQ(buffer, grad);
    EXPECT_EQ(moved, nesterov ? (std::vector<float>{1 - 2.5f, 2 + 5, 3 - 10})
                              : (std::vector<float>{1 - 2, 2 + 4, 3 - 8}));
    // The second one averages: 0.25 * 4 + 0.25 * 4.
    args.param = args.new_param;
    args.momentum_buffer = args.new_momentum_buffer;
    run(args, execution);
    EXPECT_EQ(buffer, (std::vector<float>{2, -4, 8}));
    const float step = nesterov ? 0.5f * (4 + 0.25f * 2) : 1;
    EXPECT_EQ(moved[0], (nesterov ? -1.5f : -1) - step);
  }
}

INSTANTIATE_TEST_SUITE_P(InstructionSets, Sgd, testing::ValuesIn(Machine::isas_here()),
                         [](const auto& info) { return std::string(name_of(info.param)); });

TEST(SgdRules, ABufferBelongsToMomentum) {
  std::vector<float> param(3), grad(3), buffer(3);
  const auto refused = [&](const Args& args) -> std::string {
    try {
      run(args, simd::here(1));
    } catch (const InvalidArgument& error) { return error.what(); }
    return "accepted";
  };
  Args args = {.param = view(param), .grad = view(grad), .new_param = view(param)};
  EXPECT_EQ(refused(args), "accepted");
  args.momentum = 0.5;
  EXPECT_EQ(refused(args), "sgd: new_momentum_buffer is missing");
  args.momentum = 0;
  args.new_momentum_buffer = view(buffer);
  EXPECT_EQ(refused(args), "sgd: new_momentum_buffer is given, but there is no momentum");
}

}  // namespace
}  // namespace isobit::sgd
