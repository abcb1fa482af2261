// SPDX-License-Identifier: Apache-2.0
// A variant: one algorithm for one pass of an operator, as a value.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "isobit/core/execution.h"
#include "isobit/dispatch/plan.h"

namespace isobit {

template <class Args, class Problem>
struct Variant {
  std::string_view name;  // parts joined by dots, the wider one first: "simd.one_pass"
  Device device = Device::cpu;
  std::span<const Knob> knobs = {};
  // Why it cannot run this problem on this machine; empty where it can.
  std::string (*declines)(const Problem&, const Machine&) = [](const Problem&, const Machine&) {
    return std::string();
  };
  // Whether it is the best choice; the first of the table that suits and does not decline is the
  // default.
  bool (*suits)(const Problem&, const Machine&) = [](const Problem&, const Machine&) {
    return true;
  };
  Plan (*choose)(const Problem&, const Machine&) = [](const Problem&, const Machine&) {
    return Plan{};
  };
  // Bytes that run() is to find in execution.workspace.
  std::size_t (*workspace)(const Problem&, const Plan&, const Machine&) =
      [](const Problem&, const Plan&, const Machine&) { return std::size_t{0}; };
  void (*run)(const Args&, const Problem&, const Plan&, const Execution&);
};

}  // namespace isobit
