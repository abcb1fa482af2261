// SPDX-License-Identifier: Apache-2.0
// Runs an operation's reference over a workload a part of the batch at a time, so that memory stays
// bounded.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "isobit/lab/workload.h"
#include "isobit/lab/yardstick.h"

namespace isobit::lab {

struct Comparison {
  const Argument* argument = nullptr;
  Deviation deviation;
};

// How far each output of the workload lies from the reference.
std::vector<Comparison> compare(const Workload& workload);

// Fills inputs that another pass produces with what it would return, rounded.
void draw_produced(const Workload& workload);

// Calls the reference for its intermediates.
void emit_intermediates(const Workload& workload, const EmitArray& emit);

}  // namespace isobit::lab
