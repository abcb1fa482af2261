// SPDX-License-Identifier: Apache-2.0
// What arrays hold, by their strides.
#include "isobit/dispatch/held.h"

#include <algorithm>
#include <ostream>

#include "isobit/core/check.h"
#include "isobit/core/error.h"

namespace isobit {
namespace {

// (2^33 elements in rows of 8 took the sums of a norm 30 s on one processor.)
constexpr std::int64_t kFewElements = std::int64_t{1} << 32, kMostRepeats = 1024;
constexpr double kFewOperations = 0x1p40;

std::int64_t elements_of(const TensorView& view) {
  std::int64_t count = 1;
  for (int i = 0; i < view.rank; ++i) count *= view.shape[i];
  return count;
}

// Places in memory, where they are fewer than elements.
std::int64_t held_by(const TensorView& view) {
  return std::min(elements_of(view), Checker::span(view).cols);
}

// Whether they are, in few instructions: each call asks. What is absent has one of each. Strides of
// a view without elements may be any, so that their sum may wrap.
bool repeats(const Argument& argument, void* args) {
  if (argument.role == Role::output) return false;
  const TensorView& view = argument.view(args);
  std::uint64_t count = 1, span = 1;
  for (int i = 0; i < view.rank; ++i) {
    const auto extent = static_cast<std::uint64_t>(view.shape[i]);
    count *= extent;
    span += (extent - 1) * static_cast<std::uint64_t>(view.strides[i]);
  }
  return count != 0 && span < count;
}

// The first of names that blanks divide, which it takes away.
std::string_view next(std::string_view& names) {
  const std::string_view name = names.substr(0, names.find(' '));
  names.remove_prefix(std::min(name.size() + 1, names.size()));
  return name;
}

bool has(std::string_view names, std::string_view name) {
  while (!names.empty())
    if (next(names) == name) return true;
  return false;
}

bool has_all(std::string_view names, std::string_view others) {
  while (!others.empty())
    if (!has(names, next(others))) return false;
  return true;
}

bool has_all_dims(const Argument& argument, std::span<const Argument> arguments) {
  return std::all_of(arguments.begin(), arguments.end(), [&](const Argument& other) {
    return other.role == Role::output || has_all(argument.dims, other.dims);
  });
}

std::int64_t held_by_all(std::span<const Argument> arguments, void* args) {
  std::int64_t held = 0;
  for (const Argument& argument : arguments)
    if (const TensorView& view = argument.view(args); view.given()) held += held_by(view);
  return held;
}

// How messages begin.
struct Called {
  std::string_view op, pass;

  friend std::ostream& operator<<(std::ostream& out, const Called& called) {
    return out << called.op << (called.pass == "bwd" ? " backward: " : ": ");
  }
};

}  // namespace

bool repeats_memory(std::span<const Argument> arguments, void* args) {
  return std::any_of(arguments.begin(), arguments.end(),
                     [&](const Argument& argument) { return repeats(argument, args); });
}

void require_few_elements(std::string_view op, std::string_view pass,
                          std::span<const Argument> arguments, void* args) {
  const std::int64_t held = held_by_all(arguments, args);
  for (const Argument& argument : arguments) {
    if (!repeats(argument, args)) continue;
    const TensorView& view = argument.view(args);
    const bool all = has_all_dims(argument, arguments);
    const std::int64_t count =
        all ? elements_of(view)
            : *std::max_element(view.shape.begin(), view.shape.begin() + view.rank);
    require(count <= std::max(kFewElements, kMostRepeats * held), Called{op, pass}, argument.name,
            ' ', shape_and_strides(view), " repeats memory: it has ", count, " elements",
            all ? "" : " along one dimension", "; the call's arrays hold ", held,
            ", of which beyond 2^32 elements 1024 times as many are allowed");
  }
}

void require_few_operations(std::string_view op, std::string_view pass,
                            std::span<const Argument> arguments, void* args, double operations) {
  if (operations <= kFewOperations) return;
  const std::int64_t held = held_by_all(arguments, args);
  if (operations <= static_cast<double>(held) * static_cast<double>(held)) return;
  const Argument& argument = *std::find_if(arguments.begin(), arguments.end(),
                                           [&](const Argument& one) { return repeats(one, args); });
  throw InvalidArgument(
      text(Called{op, pass}, argument.name, ' ', shape_and_strides(argument.view(args)),
           " repeats memory, and the call takes ", operations, " operations; its arrays hold ",
           held, " elements, of which beyond 2^40 operations the square is allowed"));
}

}  // namespace isobit
