// SPDX-License-Identifier: Apache-2.0
// The knob of GPU kernels whose blocks may have any number of warps.
#pragma once

#include <algorithm>
#include <iterator>

#include "isobit/dispatch/plan.h"

namespace isobit {

inline constexpr int kThreadCounts[] = {64, 128, 256, 512, 1024};

// `most`: what leaves a thread the registers that the kernel needs.
constexpr Knob threads_knob(int most, std::string_view meaning = "threads per block") {
  const int* const end = std::upper_bound(std::begin(kThreadCounts), std::end(kThreadCounts), most);
  return {"threads", {std::begin(kThreadCounts), end}, meaning};
}

}  // namespace isobit
