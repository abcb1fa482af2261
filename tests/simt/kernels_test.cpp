// SPDX-License-Identifier: Apache-2.0
// Every kernel in every schedule of threads: right, and the same bits as the processor's. Built
// twice: plain, and with every access told to the detector of races.
#include <gtest/gtest.h>

#include "isobit/simt/host/emulator.h"
#if defined(ISOBIT_RACES)
#include "isobit/simt/host/race.h"
#endif
#include "workloads.h"

namespace isobit::lab {
namespace {

using simt::host::Order;
using simt::host::Schedule;

#if defined(ISOBIT_RACES)
constexpr bool kDetectsRaces = true;
void watch() { simt::host::detect_races(); }
#else
constexpr bool kDetectsRaces = false;
void watch() {}
#endif

class Kernels : public testing::TestWithParam<const Operation*> {
 protected:
  void SetUp() override {
    watch();
    attach_devices();
    const auto infos = GetParam()->variants();
    if (std::none_of(infos.begin(), infos.end(),
                     [](const VariantInfo& info) { return info.device == Device::emu; }))
      GTEST_SKIP() << "no kernel is written yet";
  }
  void TearDown() override { simt::host::set_schedule({}); }

  // The processor's best way, then all of the emulator's.
  static std::vector<Way> ways(const Workload& workload, bool all_plans) {
    Flags flags;
    flags.device = {"cpu"};
    std::vector<Way> ways = ways_of(workload, flags, Unnamed::best).able;
    flags.device = {"emu"};
    for (const Way& way : ways_of(workload, flags, Unnamed::all).able) {
      ways.push_back(way);
      if (!all_plans) continue;
      const std::vector<Way> others = other_plans(way);
      ways.insert(ways.end(), others.begin(), others.end());
    }
    return ways;
  }
};

TEST_P(Kernels, AreRightInEverySchedule) {
  for (const Schedule& schedule :
       {Schedule{}, Schedule{.order = Order::reversed},
        Schedule{.order = Order::random, .seed = 1, .resident = 3, .shuffled_blocks = true},
        Schedule{.order = Order::starving, .seed = 1, .resident = 4}}) {
    simt::host::set_schedule(schedule);
    for (const auto& [rows, cols] :
         {std::pair{5, 3}, {9, 64}, {7, 121}, {5, 513}, {3, 1024}, {2, 2100}, {2, 8192}}) {
      if (kDetectsRaces && cols > 2100) continue;
      const std::vector<Case> cases = cases_of_every_type(*GetParam(), rows, cols);
      // Types differ in what they convert, not in who waits for whom.
      for (std::size_t i = static_cast<std::size_t>(cols) % 3; i < cases.size();
           i += kDetectsRaces || schedule.order != Order::in_order ? 5 : 1) {
        Workload workload(cases[i]);
        workload.draw();
        expect_right(workload, ways(workload, !kDetectsRaces && schedule.order == Order::in_order));
        if (HasFatalFailure()) return;
      }
    }
  }
}

// The sums of so many blocks of the order do not fit a warp.
TEST_P(Kernels, WideRowsAreRight) {
  if (kDetectsRaces) GTEST_SKIP() << "they race no more than others";
  for (const std::int64_t cols : {33'000, 66'001, 200'000}) {
    Case c = cases_of_every_type(*GetParam(), 1, cols).front();
    Workload workload(c);
    workload.draw();
    expect_right(workload, ways(workload, false));
    if (HasFatalFailure()) return;
  }
}

INSTANTIATE_TEST_SUITE_P(Operations, Kernels, testing::ValuesIn(catalog().begin(), catalog().end()),
                         name_of_pass);

}  // namespace
}  // namespace isobit::lab
