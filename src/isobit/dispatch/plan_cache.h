// SPDX-License-Identifier: Apache-2.0
// The tuned plans of this process, for the way of every call: read once, then never changed.
#pragma once

#include <optional>

#include "isobit/dispatch/plan_table.h"

namespace isobit {

// Empty where none are stored, or none that can be trusted. The first call reads the file; no call
// takes a lock.
const PlanTable& tuned_plans() noexcept;

}  // namespace isobit
