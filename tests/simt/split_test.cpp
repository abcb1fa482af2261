// SPDX-License-Identifier: Apache-2.0
// Products whose k several blocks share, in every schedule: the bits of the processor, by whatever
// number of blocks, with all that becomes of a sum.
#include <gtest/gtest.h>

#include <algorithm>

#include "isobit/ops/matmul/matmul.h"
#include "simt/where.h"
#include "workloads.h"

namespace isobit::lab {
namespace {

constexpr int kSplits[] = {1, 2, 4, 16};

struct Shape {
  std::int64_t batch, m, n, k;
};

// The processor's best way, then register_tiled by each number of splits, of both products in
// backward.
std::vector<Configuration> ways(const Workload& workload) {
  Flags flags;
  flags.device = {"cpu"};
  std::vector<Configuration> all = configurations_of(workload, flags, Unnamed::best).able;
  flags.device = {std::string(name_of(kDevice))};
  flags.variant = {"register_tiled"};
  for (const Configuration& own : configurations_of(workload, flags, Unnamed::all).able)
    for (const int splits : kSplits) {
      all.push_back(own);
      for (std::size_t i = 0; i < own.info.knobs.size(); ++i)
        if (own.info.knobs[i].name.starts_with("splits")) all.back().plan[i] = splits;
    }
  return all;
}

void expect_right(const Operation& operation, const Shape& of, DType type, std::string with,
                  const std::map<std::string_view, double>& options) {
  Case c = cases_of(operation, Flags{}, "quick").at(0);
  c.extents = {of.batch, of.m, of.n, of.k};
  c.types = {type, type};
  c.with = std::move(with);
  for (const auto& [name, value] : options) c.options[name] = value;
  Workload workload(c);
  workload.draw();
  const std::vector<Configuration> all = ways(workload);
  ASSERT_EQ(all.size(), 1 + std::size(kSplits));
  expect_right(workload, all);
}

// Panels that fill the parts unevenly, fewer panels than parts, one panel, none, and two runs of k,
// the last of which ends inside a part.
constexpr Shape kForward[] = {{1, 5, 7, 1100}, {2, 3, 9, 4097}, {1, 65, 6, 1536},
                              {1, 4, 33, 512}, {1, 3, 4, 0},    {1, 2, 5, 8192 + 700}};

TEST(SplitKernels, ProductsHaveTheProcessorsBitsInEverySchedule) {
  watch();
  attach_devices();
  in_every_schedule([](bool in_order) {
    for (const Shape& shape : kForward)
      for (const DType type : {DType::f32, DType::bf16, DType::f64}) {
        const bool few = kDetectsRaces || !in_order;
        // Nor do more panels race otherwise.
        if (few && (shape.k > (kDetectsRaces ? 2000 : 5000) || shape.m > 5)) continue;
        if (type != DType::f32 && (few || shape.k != 1100)) continue;
        expect_right(matmul::forward_operation(), shape, type, "", {});
        if (testing::Test::HasFatalFailure()) return;
      }
  });
}

TEST(SplitKernels, WhatBecomesOfASumIsDoneOnce) {
  watch();
  attach_devices();
  for (const double activation : {0.0, 2.0}) {
    if (kDetectsRaces && activation == 0) continue;  // it does less beside the same sums
    expect_right(matmul::forward_operation(), {2, 5, 9, 1300}, DType::f32, "bias+c+residual+pre",
                 {{"alpha", 0.5}, {"beta", 2}, {"activation", activation}});
  }
}

// grad_b of few features and many rows is why.
TEST(SplitKernels, GradientsHaveTheProcessorsBits) {
  watch();
  attach_devices();
  for (const DType type : {DType::f32, DType::f16, DType::f64})
    for (const Shape& extents : {Shape{1, 1300, 9, 11}, Shape{1, 6, 2100, 5}}) {
      if (kDetectsRaces && type != DType::f32) continue;
      expect_right(matmul::backward_operation(), extents, type, "bias", {{"alpha", 0.5}});
      if (testing::Test::HasFatalFailure()) return;
    }
}

// A device of many multiprocessors and a product of few tiles.
TEST(SplitKernels, AreChosenWhereTilesAreFew) {
  attach_devices();
  const auto plan_of = [](const Operation& operation, const Shape& of) {
    Case c = cases_of(operation, Flags{}, "quick").at(0);
    c.extents = {of.batch, of.m, of.n, of.k};
    c.types = {DType::f32, DType::f32};
    c.with = "";
    const Arguments args = untouchable(c);
    Machine machine = execution_for(kDevice).machine;
    machine.gpu.multiprocessors = 132;
    const auto infos = operation.variants();
    for (int i = 0; i < static_cast<int>(infos.size()); ++i)
      if (infos[i].device == kDevice && infos[i].name == "register_tiled")
        return operation.choose(i, args, machine);
    ADD_FAILURE();
    return Plan{};
  };
  const Operation& forward = matmul::forward_operation();
  EXPECT_EQ(plan_of(forward, {1, 64, 64, 8192})[1], 16);
  EXPECT_EQ(plan_of(forward, {1, 512, 512, 8192})[1], 4);    // 64 tiles
  EXPECT_EQ(plan_of(forward, {1, 64, 64, 512})[1], 1);       // one panel
  EXPECT_EQ(plan_of(forward, {1, 64, 64, 1100})[1], 2);      // three
  EXPECT_EQ(plan_of(forward, {1, 4096, 4096, 8192})[1], 1);  // tiles enough
  const Plan gradients = plan_of(matmul::backward_operation(), {1, 100'000, 64, 64});
  EXPECT_EQ(gradients[1], 1);
  EXPECT_EQ(gradients[2], 16);  // 13 runs of one tile
}

}  // namespace
}  // namespace isobit::lab
