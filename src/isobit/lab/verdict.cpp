// SPDX-License-Identifier: Apache-2.0
// Verdicts, and how they are told.
#include "isobit/lab/verdict.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>

#include "isobit/lab/configurations.h"

namespace isobit::lab {
namespace {

// Where the worst element stands: "3, 5".
std::string index_of(const Verdict::Output& output) {
  std::vector<std::int64_t> index(output.extents.size());
  index.back() = output.deviation.place;
  std::int64_t line = output.deviation.line;
  for (std::size_t i = index.size() - 1; i-- > 0; line /= output.extents[i])
    index[i] = line % output.extents[i];
  return fmt::format("{}", fmt::join(index, ", "));
}

}  // namespace

bool Verdict::passed() const {
  return damage.empty() && std::all_of(outputs.begin(), outputs.end(), [&](const Output& output) {
           return output.deviation.c <= limit;
         });
}

Json Verdict::outputs_json() const {
  Json json = Json::object();
  for (const Output& output : outputs)
    json[std::string(output.argument->name)] = {{"C", output.deviation.c},
                                                {"max_abs", output.deviation.max_abs},
                                                {"max_ulp", output.deviation.max_ulp},
                                                {"bits", output.bits}};
  return json;
}

std::string Verdict::complaints() const {
  std::string text;
  for (const Output& output : outputs) {
    const Deviation& worst = output.deviation;
    if (worst.c <= limit) continue;
    text += fmt::format(
        "  {}[{}]: expected {:.9g}, actual {:.9g}, {:.3g} ulps apart; C = {:.3g}, limit {}\n",
        output.argument->name, index_of(output), worst.expected, worst.actual, worst.ulp, worst.c,
        limit);
  }
  if (!damage.empty()) text += fmt::format("  {}\n", damage);
  return text;
}

Verdict Judge::operator()() {
  Verdict verdict;
  verdict.damage = workload_.damage();
  verdict.limit = workload_.operation().limit(workload_.args());
  const std::vector<std::string> all_bits = output_bits(workload_);
  auto found = known_.find(all_bits);
  if (found == known_.end()) found = known_.emplace(all_bits, compare(workload_)).first;
  for (std::size_t i = 0; i < all_bits.size(); ++i)
    verdict.outputs.push_back({found->second[i].argument, found->second[i].deviation, all_bits[i],
                               workload_.find(found->second[i].argument->name)->form().extents});
  return verdict;
}

std::vector<std::string> output_bits(const Workload& workload) {
  std::vector<std::string> all;
  for (const Argument* output : workload.outputs())
    all.push_back(bits(*workload.find(output->name)));
  return all;
}

std::vector<std::string> canonical_bits(const Workload& workload) {
  Flags flags;
  flags.device = {std::string(name_of(Device::cpu))};
  run(workload, configurations_of(workload, flags, Unnamed::best).able.at(0));
  return output_bits(workload);
}

}  // namespace isobit::lab
