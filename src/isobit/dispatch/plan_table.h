// SPDX-License-Identifier: Apache-2.0
// Tuned plans in memory and as text. The text can be read by people and can be proved whole.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "isobit/dispatch/plan_key.h"

namespace isobit {

// A variant and the values of its knobs, by name: the library that reads them may be another one
// than the one that wrote them.
struct TunedPlan {
  std::string variant;
  std::vector<std::pair<std::string, int>> knobs;

  bool operator==(const TunedPlan&) const = default;
};

TunedPlan tuned_plan(const VariantInfo& variant, const Plan& plan);

// The plan for a variant with these knobs. Nothing unless every knob has a value, and that value is
// among those that the knob allows.
std::optional<Plan> allowed_plan(const TunedPlan& tuned, std::span<const Knob> knobs);

class PlanTable {
 public:
  bool empty() const { return plans_.empty(); }
  std::size_t size() const { return plans_.size(); }
  // Null where nothing is known.
  const TunedPlan* find(const PlanKey& key) const;

  void set(const PlanKey& key, TunedPlan plan) { plans_[key] = std::move(plan); }
  void forget(const PlanKey& key) { plans_.erase(key); }
  void forget_operator(std::string_view op);

  bool operator==(const PlanTable&) const = default;

  // The lines of `header`, a line for each plan, and a checksum over all of them.
  std::string text(std::string_view header) const;
  // The table whose text this is; nothing where it is anything else, be it by a single bit.
  static std::optional<PlanTable> parse(std::string_view text, std::string_view header);

 private:
  std::unordered_map<PlanKey, TunedPlan, PlanKeyHash> plans_;
};

// FNV-1a. Texts of one length that differ in one byte never share a checksum: each step is a
// bijection.
std::uint64_t checksum(std::string_view text);

// 16 digits.
std::string hex(std::uint64_t value);

}  // namespace isobit
