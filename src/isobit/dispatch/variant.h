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

namespace detail {

// What a variant does that does not say otherwise. Functions with names: lambdas in a template's
// default initialisers have the same symbols in different files, but clang 14 counts them in the
// order of their use there, and the linker then takes one for another.
template <class Problem>
struct VariantDefaults {
  static std::string declines(const Problem&, const Machine&) { return {}; }
  static bool suits(const Problem&, const Machine&) { return true; }
  static Plan choose(const Problem&, const Machine&) { return {}; }
  static std::size_t workspace(const Problem&, const Plan&, const Machine&) { return 0; }
};

}  // namespace detail

// What is promised of a variant's bits. canonical: they are the operator's. own: always the same,
// but others than the operator's. unordered: they may change from run to run. Only canonical
// variants are chosen, tuned and compared; the others are there for those who call them by name.
enum class Bits { canonical, own, unordered };

template <class Args, class Problem>
struct Variant {
  using Defaults = detail::VariantDefaults<Problem>;

  std::string_view name;  // parts joined by dots, the wider one first: "simd.one_pass"
  std::span<const Knob> knobs = {};
  Bits bits = Bits::canonical;
  bool each_isa = false;  // its kernels are compiled for each instruction set; "simd" says so too
  // Why it cannot run this problem on this machine; empty where it can.
  std::string (*declines)(const Problem&, const Machine&) = Defaults::declines;
  // Whether it is the best choice; the first of the table that suits and does not decline is the
  // default.
  bool (*suits)(const Problem&, const Machine&) = Defaults::suits;
  Plan (*choose)(const Problem&, const Machine&) = Defaults::choose;
  // Bytes that run() is to find in execution.workspace.
  std::size_t (*workspace)(const Problem&, const Plan&, const Machine&) = Defaults::workspace;
  void (*run)(const Args&, const Problem&, const Plan&, const Execution&);
};

}  // namespace isobit
