// SPDX-License-Identifier: Apache-2.0
// The work of one call is bounded by what its arrays hold. An input of stride 0 has as many
// elements as its shape says, whatever its memory: a few bytes could ask for months of work
// (decision 49).
#pragma once

#include <span>
#include <string_view>

#include "isobit/dispatch/description.h"

namespace isobit {

// Whether an input of a checked call has elements that share places; args are the operator's own.
bool repeats_memory(std::span<const Argument> arguments, void* args);

// Of such a call, which takes so many operations. Throws InvalidArgument where it asks for more
// work than its arrays account for:
// - beyond 2^40 operations, the square of the elements that they hold, which no call exceeds whose
//   arrays repeat nothing;
// - beyond 2^32 elements of an input that has all dims of the inputs, so that nothing else bounds
//   them, 1024 times the elements that they hold.
void require_held(std::string_view op, std::string_view pass, std::span<const Argument> arguments,
                  void* args, double operations);

}  // namespace isobit
