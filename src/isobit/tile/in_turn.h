// SPDX-License-Identifier: Apache-2.0
// Kernels whose threads take the elements of a call in turn, each by itself: their loop, and how
// they and others that take turns are launched.
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "isobit/core/dtype.h"
#include "isobit/core/execution.h"
#include "isobit/simt/simt.h"

namespace isobit::tile {

// What a type is computed in.
template <class T>
using RealOf = std::conditional_t<std::is_same_v<std::remove_const_t<T>, double>, double, float>;

// Calls body(Type<T>) with x's type.
template <class Body>
auto with_type(DType dtype, const Body& body) {
  switch (dtype) {
    case DType::f16:  return body(Type<f16>{});
    case DType::bf16: return body(Type<bf16>{});
    case DType::f64:  return body(Type<double>{});
    default:          return body(Type<float>{});
  }
}

// The blocks of a launch: as many as `groups` need at `at_once` to a block, or `turns` a
// multiprocessor, which then take turns.
inline std::int64_t blocks_for(std::int64_t groups, std::int64_t at_once, int cluster, int turns,
                               const Machine& machine) {
  const std::int64_t needed = (groups + at_once - 1) / at_once;
  const std::int64_t resident = std::int64_t{turns} * machine.gpu.multiprocessors / cluster;
  const std::int64_t most =
      turns == 0 ? simt::kMostBlocks / cluster : std::max<std::int64_t>(1, resident);
  return std::min(needed, most) * cluster;
}

// Calls body(at) for those of `count` elements that are this thread's.
template <class Body>
ISOBIT_DEVICE void in_turn(std::int64_t count, const Body& body) {
  const std::int64_t step = simt::blocks() * simt::threads();
  for (std::int64_t at = simt::block() * simt::threads() + simt::thread(); at < count; at += step)
    body(at);
}

// Launches a kernel whose threads take kernel.count() elements in turn.
template <class Kernel>
void launch_in_turn(const Kernel& kernel, int threads, int turns, const Execution& execution) {
  const std::int64_t count = kernel.count();
  if (count == 0) return;
  simt::launch(
      static_cast<simt::Stream>(execution.stream),
      {.blocks = blocks_for(count, threads, 1, turns, execution.machine), .threads = threads},
      kernel);
}

}  // namespace isobit::tile
