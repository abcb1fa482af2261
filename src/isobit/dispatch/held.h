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

// Throw InvalidArgument where such a call asks for more work than its arrays account for.

// Beyond 2^32 elements, 1024 times those that they hold: of an input that has all dims of the
// inputs, so that nothing else bounds them; of another along each of its dims alone.
void require_few_elements(std::string_view op, std::string_view pass,
                          std::span<const Argument> arguments, void* args);
// Beyond 2^40 operations, the square of the elements that they hold, which no call exceeds whose
// arrays repeat nothing.
void require_few_operations(std::string_view op, std::string_view pass,
                            std::span<const Argument> arguments, void* args, double operations);

}  // namespace isobit
