// SPDX-License-Identifier: Apache-2.0
// Every operator of the library, in one explicit list.
#pragma once

#include <span>

#include "isobit/dispatch/operation.h"

namespace isobit {

// Passes of the same operator stand together, forward first.
std::span<const Operation* const> catalog();

}  // namespace isobit
