// SPDX-License-Identifier: Apache-2.0
// How work is dealt to threads: equal parts, each in the pinned float mode.
#pragma once

#include <algorithm>
#include <cstdint>

#include "isobit/core/execution.h"
#include "isobit/simd/float_mode.h"

namespace isobit::simd {

// How many tasks a call is worth that treats `elements` elements and can be cut into `units`.
inline std::int64_t task_count(const Machine& machine, std::int64_t elements, std::int64_t units) {
  // Below this a second thread costs more than it brings: a cold helper takes 50 us to wake.
  constexpr std::int64_t kSerialElements = 64 << 10;
  if (elements < kSerialElements) return 1;
  return std::clamp<std::int64_t>(machine.threads, 1, std::max<std::int64_t>(1, units));
}

// Runs body(begin, end) over `tasks` equal parts of [0, count), each a multiple of `step`.
template <class Body>
void in_parts(const Execution& execution, std::int64_t tasks, std::int64_t count, std::int64_t step,
              const Body& body) {
  const std::int64_t steps = (count + step - 1) / step;
  execution.parallel_for(tasks, [&](std::int64_t task) {
    const FloatMode mode;
    body(std::min(count, steps * task / tasks * step),
         std::min(count, steps * (task + 1) / tasks * step));
  });
}

}  // namespace isobit::simd
