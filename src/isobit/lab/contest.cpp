// SPDX-License-Identifier: Apache-2.0
// Two races for each contest; and a look at the bits, which no way may change.
#include "isobit/lab/contest.h"

#include <fmt/format.h>

#include <algorithm>

#include "isobit/lab/verdict.h"

namespace isobit::lab {
namespace {

// How much faster than the usual way another must be.
constexpr double kMargin = 1.03;

std::vector<Times> race(const Workload& workload, const std::vector<Way>& ways, RaceLength length) {
  std::vector<Runner> runners;
  for (const Way& way : ways) runners.push_back(runner(workload, way));
  return race(runners, length);
}

}  // namespace

// Beside the margin: four of five turns beat the usual way's median, or a busy machine would
// choose.
bool Contest::won() const { return ratio() >= kMargin && best.times.p80 < usual.times.median; }

Contest compete(const Workload& workload, const std::vector<Way>& ways,
                const ContestLength& length) {
  const std::vector<Times> heat = race(workload, ways, length.heat);
  const auto fastest = std::min_element(heat.begin(), heat.end(),
                                        [](auto& a, auto& b) { return a.median < b.median; });
  const auto best = static_cast<std::size_t>(fastest - heat.begin());
  if (best == 0) return {{ways[0], heat[0]}, {ways[0], heat[0]}};
  const std::vector<Times> final = race(workload, {ways[0], ways[best]}, length.final);
  if (final[0].median <= final[1].median) return {{ways[0], final[0]}, {ways[0], final[0]}};
  return {{ways[0], final[0]}, {ways[best], final[1]}};
}

std::string difference(const Workload& workload, const std::vector<Way>& ways) {
  std::vector<std::string> expected;
  for (const Way& way : ways) {
    run(workload, way);
    const std::vector<std::string> bits = output_bits(workload);
    if (expected.empty()) expected = bits;
    std::string damage = workload.damage();
    if (damage.empty() && bits != expected) damage = "other bits than " + label(ways[0]);
    if (!damage.empty())
      return fmt::format("{}\n  {}", command("verify", workload.the_case(), way), damage);
  }
  return "";
}

}  // namespace isobit::lab
