// SPDX-License-Identifier: Apache-2.0
// What only Adam promises: results in the places of what they are made of, the correction for the
// start of its averages, and its rules.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "isobit/core/error.h"
#include "isobit/ops/adam/adam.h"
#include "isobit/optimizers/constants.h"
#include "isobit/simd/parallel_for.h"

namespace isobit::adam {
namespace {

constexpr std::int64_t kCount = 150;  // whole vectors, and a tail

struct Vector {
  explicit Vector(float first, float step = 0.01f) : values(kCount) {
    for (float& value : values) value = first += step;
  }
  TensorView view() {
    return vector_view(values.data(), std::ssize(values) * 4, DType::f32, std::ssize(values));
  }
  std::vector<float> values;
};

struct World {
  Vector param{-1}, grad{-0.5f}, average{0.25f}, square{0.5f}, largest{0.1f, 0.02f};
  Vector new_param{0}, new_average{0}, new_square{0}, new_largest{0};

  Args args(bool in_place) {
    Args result;
    result.param = param.view();
    result.grad = grad.view();
    result.exp_avg = average.view();
    result.exp_avg_sq = square.view();
    result.max_exp_avg_sq = largest.view();
    result.new_param = (in_place ? param : new_param).view();
    result.new_exp_avg = (in_place ? average : new_average).view();
    result.new_exp_avg_sq = (in_place ? square : new_square).view();
    result.new_max_exp_avg_sq = (in_place ? largest : new_largest).view();
    result.weight_decay = 0.125;
    result.step = 3;
    return result;
  }
};

Execution with(Isa isa) {
  Execution execution = simd::here(1);
  execution.machine.isa = isa;
  return execution;
}

TEST(Adam, ResultsMayTakeThePlacesOfWhatTheyAreMadeOf) {
  for (const Isa isa : Machine::isas_here()) {
    World apart, in_place;
    run(apart.args(false), with(isa));
    run(in_place.args(true), with(isa));
    EXPECT_EQ(in_place.param.values, apart.new_param.values) << name_of(isa);
    EXPECT_EQ(in_place.average.values, apart.new_average.values) << name_of(isa);
    EXPECT_EQ(in_place.square.values, apart.new_square.values) << name_of(isa);
    EXPECT_EQ(in_place.largest.values, apart.new_largest.values) << name_of(isa);
  }
}

TEST(Adam, TheFirstStepIsAsLongAsTheLearningRate) {
  World world;
  for (Vector* state : {&world.average, &world.square, &world.largest})
    state->values.assign(kCount, 0);
  Args args = world.args(false);
  args.step = 1;
  args.weight_decay = 0;
  args.lr = 0.5;
  args.eps = 0;
  run(args, with(Isa::scalar));
  for (std::size_t i = 0; i < kCount; ++i) {
    if (std::fabs(world.grad.values[i]) < 1e-3f) continue;
    const float moved = world.new_param.values[i] - world.param.values[i];
    EXPECT_NEAR(moved, world.grad.values[i] < 0 ? 0.5f : -0.5f, 1e-5f) << i;
  }
}

TEST(Adam, AComplementOfAPowerHasAllItsDigits) {
  using optimizers::complement_of_power;
  for (const double beta : {0.0, 0.3, 0.5, 0.9, 0.999, 0.9999999, 1 - 0x1p-53})
    for (const std::int64_t step : {1, 2, 3, 7, 10, 1000, 1'000'000}) {
      const long double exact = -std::expm1(static_cast<long double>(step) *
                                            std::log1p(static_cast<long double>(beta) - 1));
      EXPECT_NEAR(complement_of_power(beta, step) / static_cast<double>(exact), 1, 1e-14)
          << beta << " " << step;
    }
  EXPECT_EQ(complement_of_power(0.75, 2), 1 - 0.5625);
  EXPECT_EQ(complement_of_power(0, 5), 1);
}

TEST(Adam, TheLargestAverageKeepsNan) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  constexpr float kInf = std::numeric_limits<float>::infinity();
  for (const Isa isa : Machine::isas_here()) {
    World world;
    world.largest.values[0] = world.square.values[1] = kNan;
    world.largest.values[2] = kInf;
    run(world.args(false), with(isa));
    EXPECT_TRUE(std::isnan(world.new_largest.values[0]) && std::isnan(world.new_param.values[0]));
    EXPECT_TRUE(std::isnan(world.new_largest.values[1]) && std::isnan(world.new_param.values[1]));
    EXPECT_EQ(world.new_largest.values[2], kInf);
    EXPECT_EQ(world.new_param.values[2], world.param.values[2]);
    EXPECT_FALSE(std::isnan(world.new_param.values[3]));
  }
}

std::string refused(const Args& args) {
  try {
    run(args, with(Isa::scalar));
  } catch (const InvalidArgument& error) { return error.what(); }
  return "accepted";
}

TEST(Adam, RulesAreToldByName) {
  World world;
  const auto changed = [&](const auto& change) {
    Args args = world.args(false);
    change(args);
    return refused(args);
  };
  const std::vector<std::pair<std::string, std::string>> told = {
      {changed([](Args& args) { args.step = 0; }), "adam: step is 0; must be at least 1"},
      {changed([](Args& args) { args.beta1 = 1; }),
       "adam: beta1 is 1; must be at least 0 and below 1"},
      {changed([](Args& args) { args.beta2 = -0.5; }),
       "adam: beta2 is -0.5; must be at least 0 and below 1"},
      {changed([](Args& args) { args.lr = -1; }), "adam: lr is -1; must be at least 0"},
      {changed([](Args& args) { args.eps = std::nan(""); }), "adam: eps is nan; must be finite"},
      {changed([](Args& args) { args.new_max_exp_avg_sq = {}; }),
       "adam: new_max_exp_avg_sq is missing"},
      {changed([](Args& args) { args.max_exp_avg_sq = {}; }), "adam: max_exp_avg_sq is missing"},
      {changed([](Args& args) { args.exp_avg = {}; }), "adam: exp_avg is missing"},
      {changed([&](Args& args) { args.new_param = args.grad; }), "adam: new_param overlaps grad"},
  };
  for (const auto& [message, expected] : told)
    EXPECT_EQ(message.substr(0, expected.size()), expected);
}

}  // namespace
}  // namespace isobit::adam
