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

// Extents are exact: models have few widths, and how many rows fit a cache depends on them. The
// batch changes from call to call, so the nearest power of two stands for it: what a plan weighs
// (bytes against caches, rows against threads) changes little within a factor of 1.4. Where arrays
// lie (alignment, gaps between rows, in place) is left out.
struct PlanKey {
  // Operator, pass, instruction set or GPU with its capability or gfx, then a character for all
  // that changes the work:
  //   each array with the batch dim and others   '-' absent, else the digit of its type
  //   each input with the batch dim alone        '-' to be computed, '+' given
  //   inputs without the batch dim               the digit of their type, x's where none is given
  //   outputs without it, sums over it           '-' not wanted, '+' any of them
  //   each option, as it says                    '-' it is 0, '+' it is not; or its value
  // Inputs without the batch dim and outputs with nothing else are little beside the others. Of an
  // operator without a batch each array has the digit of its type.
  std::array<char, 64> call{};
  Extents extents{};
  std::int64_t dims = 0;     // how many of them count
  std::int64_t threads = 0;  // a GPU's multiprocessors

  bool operator==(const PlanKey&) const = default;
  std::string_view text() const;  // of `call`
};

struct PlanKeyHash {
  std::size_t operator()(const PlanKey& key) const;
};

std::int64_t nearest_power_of_two(std::int64_t count);

// The arguments have passed their check; extents are theirs.
PlanKey plan_key(std::string_view op, std::string_view pass, std::span<const Dim> dims,
                 std::span<const Argument> arguments, std::span<const Option> options,
                 const Extents& extents, const void* args, const Machine& machine);

inline PlanKey plan_key(const Operation& operation, const Arguments& args, const Machine& machine) {
  return plan_key(operation.op, operation.pass, operation.dims, operation.arguments,
                  operation.options, operation.extents(args), args.get(), machine);
}

}  // namespace isobit
