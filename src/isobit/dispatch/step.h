// SPDX-License-Identifier: Apache-2.0
// A pass of an operator as a step of another's variant: with the variant that it has by default.
#pragma once

#include <span>
#include <string>

#include "isobit/dispatch/variant.h"

namespace isobit {

// What a variant is asked to do. Its workspace is the caller's to provide.
template <class Args, class Problem>
struct Step {
  const Problem& problem;
  const Variant<Args, Problem>& variant;
  Plan plan;

  std::size_t workspace(const Machine& machine) const {
    return variant.workspace(problem, plan, machine);
  }
  void run(const Execution& execution, std::byte* workspace) const {
    Execution own = execution;
    own.workspace = workspace;
    variant.run({}, problem, plan, own);
  }
};

// The first canonical variant of a table that suits and does not decline; the last one where none
// does.
template <class Args, class Problem>
Step<Args, Problem> default_step(std::span<const Variant<Args, Problem>> variants,
                                 const Problem& problem, const Machine& machine) {
  const Variant<Args, Problem>* chosen = &variants.back();
  for (const auto& variant : variants)
    if (variant.bits == Bits::canonical && variant.suits(problem, machine) &&
        variant.declines(problem, machine).empty()) {
      chosen = &variant;
      break;
    }
  return {problem, *chosen, chosen->choose(problem, machine)};
}

// The last one, which tables keep for the specification.
template <class Args, class Problem>
Step<Args, Problem> simplest_step(std::span<const Variant<Args, Problem>> variants,
                                  const Problem& problem, const Machine& machine) {
  return {problem, variants.back(), variants.back().choose(problem, machine)};
}

}  // namespace isobit
