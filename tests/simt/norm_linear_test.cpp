// SPDX-License-Identifier: Apache-2.0
// The kernels of norms with linear layers that are nobody's default, in every schedule: `fused`
// with the bits of the processor, `atomic`, whose bits nobody promises, within the limit of errors.
#include <gtest/gtest.h>

#include "isobit/lab/verdict.h"
#include "isobit/ops/layernorm_linear/layernorm_linear.h"
#include "isobit/ops/rmsnorm_linear/rmsnorm_linear.h"
#include "simt/where.h"
#include "workloads.h"

namespace isobit::lab {
namespace {

// Few blocks, so that each goes on to another row.
std::vector<Configuration> ways(const Workload& workload, const char* variant) {
  Flags flags;
  flags.device = {std::string(name_of(kDevice))};
  flags.variant = {variant};
  std::vector<Configuration> able = configurations_of(workload, flags, Unnamed::all).able;
  for (Configuration& each : able)
    if (each.info.knobs[0].name == "blocks") each.plan[0] = each.info.knobs[0].values[0];
  return able;
}

void visit_cases(const Operation& operation, const char* variant, const auto& visit) {
  watch();
  attach_devices();
  int visited = 0;
  in_every_schedule([&](bool) {
    for (const Case& c : cases_of_every_type(operation, 3, 40, 2'000)) {
      Workload workload(c);
      workload.draw();
      const std::vector<Configuration> able = ways(workload, variant);
      visited += static_cast<int>(able.size());
      visit(workload, able);
      if (testing::Test::HasFatalFailure()) return;
    }
  });
  EXPECT_GT(visited, 0);
}

TEST(NormLinearKernels, RowsInTilesHaveTheProcessorsBitsInEverySchedule) {
  for (const Operation* operation :
       {&layernorm_linear::forward_operation(), &layernorm_linear::backward_operation(),
        &rmsnorm_linear::forward_operation()})
    visit_cases(*operation, "fused", [](const Workload& workload, std::vector<Configuration> able) {
      Flags flags;
      flags.device = {"cpu"};
      able.insert(able.begin(), configurations_of(workload, flags, Unnamed::best).able.at(0));
      expect_right(workload, able);
    });
}

TEST(NormLinearKernels, AtomicSumsAreRightInEverySchedule) {
  for (const Operation* operation :
       {&layernorm_linear::backward_operation(), &rmsnorm_linear::backward_operation()})
    visit_cases(*operation, "atomic", [](const Workload& workload, const auto& able) {
      for (const Configuration& each : able) {
        run(workload, each);
        const Verdict verdict = Judge(workload)();
        ASSERT_TRUE(verdict.passed()) << verdict.complaints();
      }
    });
}

}  // namespace
}  // namespace isobit::lab
