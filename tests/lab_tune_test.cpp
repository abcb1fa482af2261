// SPDX-License-Identifier: Apache-2.0
// The command line's plans: what tune stores and forgets, and what bench uses of it.
#include <array>
#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include "command_line.h"
#include "isobit/dispatch/plan_file.h"
#include "isobit/lab/settings.h"
#include "isobit/lab/workload.h"

namespace isobit::lab {
namespace {

// The plans that one test stores, for the commands that it starts.
class LabTune : public Lab {
 protected:
  LabTune() { setenv("XDG_CACHE_HOME", path("cache").c_str(), 1); }
  ~LabTune() override { setenv("XDG_CACHE_HOME", ISOBIT_EMPTY_CACHE, 1); }

  static PlanTable stored() { return read_plans(plan_file()).table; }

  // For elementwise, 64 x 1000: a plan that no race would choose.
  static void store_the_slowest() {
    Flags flags;
    flags.ops = {"elementwise"};
    flags.dims["rows"] = {64};
    flags.dims["cols"] = {1000};
    const Case c = cases_of(*operations_of(flags).front(), flags, "quick").front();
    const Workload workload(c);
    const PlanKey key = plan_key(workload.operation(), workload.args(), Machine::here());
    update_plans(plan_file(), [&](PlanTable& plans) { plans.set(key, {"scalar", {}}); });
  }

  static constexpr const char* kCase = " elementwise --quick --rows 64 --cols 1000 --json ";
};

TEST_F(LabTune, BenchTellsWhereItsPlanIsFrom) {
  store_the_slowest();
  for (const auto& [flags, from, variant] :
       std::vector<std::array<const char*, 3>>{{"", "cache", "scalar"},
                                               {"--rows 70", "cache", "scalar"},
                                               {"--plan default", "default", "simd"},
                                               {"--variant simd", "default", "simd"},
                                               {"--plan stream=1", "flag", "simd"},
                                               {"--dtype f64", "default", "simd"}}) {
    const std::vector<Json> lines = isobit(std::string("bench") + kCase + flags).lines();
    EXPECT_FALSE(lines.empty()) << flags;
    for (const Json& line : lines) {
      EXPECT_EQ(line.at("plan_from"), from) << flags;
      EXPECT_EQ(line.at("variant"), variant) << flags;
    }
  }
  EXPECT_EQ(isobit("info --json").lines().at(0).at("plans").get<std::string>().find("1 tuned"), 0u);
  EXPECT_NE(isobit("doctor").text.find("plans: 1 tuned"), std::string::npos);
}

TEST_F(LabTune, ForgetsWhatTheDefaultBeats) {
  store_the_slowest();
  const std::string call = std::string("tune") + kCase + "--variant scalar ";
  EXPECT_FALSE(isobit(call + "--dry-run").lines().at(0).at("stored"));
  EXPECT_EQ(stored().size(), 1u);
  const Json line = isobit(call).lines().at(0);
  EXPECT_FALSE(line.at("stored"));
  EXPECT_EQ(line.at("variant"), "simd");
  EXPECT_EQ(line.at("default").at("variant"), "simd");
  EXPECT_GT(line.at("default").at("median_us"), 0);
  EXPECT_TRUE(stored().empty());
}

TEST_F(LabTune, StoresWhatItSays) {
  const Outcome outcome =
      isobit("tune elementwise,layernorm --quick --rows 9 --cols 300,70000 --threads 1,2 --json");
  EXPECT_EQ(outcome.status, 0);
  const std::vector<Json> lines = outcome.lines();
  EXPECT_EQ(lines.size(), (1u + 2u) * 2 * 2);
  std::size_t kept = 0;
  for (const Json& line : lines) {
    if (!line.at("stored")) continue;
    EXPECT_GE(line.at("ratio"), 1.03);
    ++kept;
  }
  EXPECT_EQ(stored().size(), kept);
}

TEST_F(LabTune, ClearForgetsAnOperatorOrAll) {
  store_the_slowest();
  EXPECT_EQ(isobit("tune layernorm --clear").status, 0);
  EXPECT_NE(complaint("tune layernrm --clear").find("did you mean"), std::string::npos);
  EXPECT_EQ(stored().size(), 1u);
  EXPECT_EQ(isobit("tune elementwise --clear").text, "plans deleted: 1, remaining: 0\n");
  EXPECT_TRUE(stored().empty());
  std::ofstream(plan_file()) << "damaged";
  EXPECT_EQ(isobit("tune --clear").status, 0);
  EXPECT_FALSE(std::filesystem::exists(plan_file()));
}

TEST_F(LabTune, MeasuresCallsWithoutOptionalArguments) {
  const std::string call =
      "tune layernorm --pass bwd --quick --rows 4 --cols 100 --json --without ";
  EXPECT_EQ(isobit(call + "mean,rstd,grad_weight").status, 0);
  EXPECT_NE(complaint(call + "rstd").find("mean is given without rstd"), std::string::npos);
  EXPECT_NE(complaint(call + "x").find("no optional argument 'x'"), std::string::npos);
}

TEST_F(LabTune, SaysWhatItCannotDo) {
  EXPECT_NE(complaint("tune").find("needs an operator"), std::string::npos);
  setenv("XDG_CACHE_HOME", "/dev/null", 1);
  EXPECT_NE(complaint(std::string("tune") + kCase, 1).find("cannot store plans: /dev/null"),
            std::string::npos);
  EXPECT_EQ(isobit(std::string("tune") + kCase + "--dry-run").status, 0);
  EXPECT_EQ(isobit(std::string("bench") + kCase).lines().at(0).at("plan_from"), "default");
  EXPECT_EQ(isobit("doctor").status, 0);
}

}  // namespace
}  // namespace isobit::lab
