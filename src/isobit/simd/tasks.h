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
  const std::int64_t most = std::min<std::int64_t>(machine.threads, units);
  return std::max<std::int64_t>(1, std::min(most, elements / machine.elements_a_thread));
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
