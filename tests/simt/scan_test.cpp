// SPDX-License-Identifier: Apache-2.0
// scan's kernels in every schedule, on rows of many tiles: whoever is first, whoever waits, the
// bits are the processor's.
#include <gtest/gtest.h>

#include "isobit/ops/scan/scan.h"
#include "simt/where.h"
#include "workloads.h"

namespace isobit::lab {
namespace {

Case case_of(std::vector<std::int64_t> extents, double kind, std::string with, bool exclusive) {
  Case c = cases_of(scan::operation(), Flags{}, "quick").at(0);
  std::ranges::copy(extents, c.extents.begin());
  c.options = {{"kind", kind}, {"exclusive", exclusive ? 1.0 : 0.0}, {"reverse", 0}};
  c.types = {DType::f32, DType::f32};
  c.with = std::move(with);
  return c;
}

std::vector<Configuration> ways(const Workload& workload) {
  Flags flags;
  flags.device = {"cpu"};
  std::vector<Configuration> all = configurations_of(workload, flags, Unnamed::best).able;
  flags.device = {std::string(name_of(kDevice))};
  for (const Configuration& each : configurations_of(workload, flags, Unnamed::all).able)
    all.push_back(each);
  return all;
}

TEST(ScanKernels, CarriesOfManyTilesAreRightInEverySchedule) {
  watch();
  attach_devices();
  const std::int64_t tile = 4096;
  in_every_schedule([&](bool in_order) {
    for (const std::int64_t length : {tile, tile + 1, 5 * tile - 7, 13 * tile}) {
      if (kDetectsRaces && length > 5 * tile) continue;
      for (const double kind : {0.0, 1.0, 2.0, 4.0}) {
        if ((kDetectsRaces || !in_order) && kind != 0) continue;
        Workload workload(case_of({2, length, 1}, kind, kind == 2 ? "index" : "init", kind == 4));
        workload.draw();
        expect_right(workload, ways(workload));
        if (HasFatalFailure()) return;
      }
    }
  });
}

TEST(ScanKernels, SegmentsAndColumnsAreRight) {
  watch();
  attach_devices();
  for (const double reverse : {0.0, 1.0}) {
    Case c = case_of({1, 1100, 7}, 0, "init+reset", reverse != 0);
    c.options["reverse"] = reverse;
    Workload workload(c);
    workload.draw();
    // Few segments, some of them of many blocks.
    const Array& reset = *workload.find("reset");
    std::vector<double> flags(7);
    for (std::int64_t line = 0; line < 1100; ++line) {
      flags[3] = line == 540 ? 1 : 0;
      flags[5] = line % 37 == 0 ? 1 : 0;
      reset.store(line, 0, flags);
    }
    workload.seal();
    expect_right(workload, ways(workload));
  }
}

// The scans of textbooks: for floats other bits, which are right all the same.
TEST(ScanKernels, ScansOfTextbooksAreRightByName) {
  watch();
  attach_devices();
  in_every_schedule([&](bool) {
    for (const double kind : {0.0, 1.0, 4.0}) {
      Workload workload(case_of({2, 700, 1}, kind, "", false));
      workload.draw();
      Flags flags;
      flags.device = {std::string(name_of(kDevice))};
      flags.variant = {"hillis_steele", "blelloch"};
      const std::vector<Configuration> all = configurations_of(workload, flags, Unnamed::all).able;
      ASSERT_EQ(all.size(), 2u);
      for (const Configuration& configuration : all) {
        expect_right(workload, {configuration});
        if (HasFatalFailure()) return;
      }
    }
  });
}

}  // namespace
}  // namespace isobit::lab
