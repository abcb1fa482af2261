// SPDX-License-Identifier: Apache-2.0
// Times twice; and compares the bits, which no configuration may change.
#include "isobit/lab/fastest.h"

#include <fmt/format.h>

#include <algorithm>

#include "isobit/lab/verdict.h"

namespace isobit::lab {
namespace {

// How much faster than the usual configuration another must be.
constexpr double kMargin = 1.03;

std::vector<Times> time_interleaved(const Workload& workload,
                                    const std::vector<Configuration>& configurations,
                                    TimingLength length) {
  std::vector<TimedCall> timed_calls;
  for (const Configuration& configuration : configurations)
    timed_calls.push_back(timed_call(workload, configuration));
  return time_interleaved(timed_calls, length);
}

}  // namespace

// Beside the margin: four of five turns beat the usual median, or a busy machine would
// choose.
bool Fastest::is_faster() const {
  return ratio() >= kMargin && best.times.p80 < usual.times.median;
}

Fastest find_fastest(const Workload& workload, const std::vector<Configuration>& configurations,
                     const SearchLength& length) {
  const std::vector<Times> heat = time_interleaved(workload, configurations, length.heat);
  const auto fastest = std::min_element(heat.begin(), heat.end(),
                                        [](auto& a, auto& b) { return a.median < b.median; });
  const auto best = static_cast<std::size_t>(fastest - heat.begin());
  if (best == 0) return {{configurations[0], heat[0]}, {configurations[0], heat[0]}};
  const std::vector<Times> final =
      time_interleaved(workload, {configurations[0], configurations[best]}, length.final);
  if (final[0].median <= final[1].median)
    return {{configurations[0], final[0]}, {configurations[0], final[0]}};
  return {{configurations[0], final[0]}, {configurations[best], final[1]}};
}

std::string difference(const Workload& workload, const std::vector<Configuration>& configurations) {
  std::vector<std::string> expected;
  for (const Configuration& configuration : configurations) {
    run(workload, configuration);
    const std::vector<std::string> bits = output_bits(workload);
    if (expected.empty()) expected = bits;
    std::string damage = workload.damage();
    if (damage.empty() && bits != expected)
      damage = "bits differ from those of " + label(configurations[0]);
    if (!damage.empty())
      return fmt::format("{}\n  {}", command("verify", workload.the_case(), configuration), damage);
  }
  return "";
}

}  // namespace isobit::lab
