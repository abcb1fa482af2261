// SPDX-License-Identifier: Apache-2.0
// What a tuned plan was measured for. Calls that want the same plan share a key, so that few
// measurements serve many calls.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "isobit/dispatch/operation.h"

namespace isobit {

// Columns are exact: models have few widths, and how many rows fit a cache depends on them. Rows
// change from call to call, so the nearest power of two stands for them: what a plan weighs (bytes
// against caches, rows against threads) changes little within a factor of 1.4. Where arrays lie
// (alignment, gaps between rows, in place) is left out.
struct PlanKey {
  // Operator, pass, instruction set or GPU with its capability, then a character for all that
  // changes the work:
  //   each matrix              '-' absent, else the digit of its type
  //   each statistic read      '-' to be computed, '+' given
  //   the weights              the digit of their type, x's where none is given
  //   sums over rows           '-' not wanted, '+' any of them
  //   each choice              its index
  //   each number that adds work where it is not 0: '-' it is 0, '+' it is not
  // Weights that are read and statistics that are written are little beside a row.
  std::array<char, 64> call{};
  std::int64_t rows = 0, cols = 0, threads = 0;  // threads: a GPU's multiprocessors

  bool operator==(const PlanKey&) const = default;
  std::string_view text() const;  // of `call`
};

struct PlanKeyHash {
  std::size_t operator()(const PlanKey& key) const;
};

std::int64_t nearest_power_of_two(std::int64_t count);

// The arguments have passed their check.
PlanKey plan_key(std::string_view op, std::string_view pass, std::span<const Argument> arguments,
                 std::span<const Option> options, const void* args, const Machine& machine);

inline PlanKey plan_key(const Operation& operation, const Arguments& args, const Machine& machine) {
  return plan_key(operation.op, operation.pass, operation.arguments, operation.options, args.get(),
                  machine);
}

}  // namespace isobit
