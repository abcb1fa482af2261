// SPDX-License-Identifier: Apache-2.0
// What cpu_kernels.cpp and cpu_kernels_backward.cpp offer once for each instruction set.
#pragma once

#include <cstddef>
#include <cstdint>

#include "isobit/core/isas.h"
#include "isobit/ops/interpolate/problem.h"

namespace isobit::interpolate {

inline constexpr std::int64_t kBlock = 16;  // channels at a time, and a whole number of vectors

ISOBIT_INLINE std::int64_t whole_blocks(std::int64_t count) {
  return (count + kBlock - 1) / kBlock * kBlock;
}

// The taps of all results of each side, of Taps<Real>, and those of a row once more for vectors:
// of each tap the elements' places and weights in all columns, to whole blocks. A tap that is
// missing has the place behind the last element, which holds +0, and the weight -0: it adds -0.
struct Tables {
  const void *down, *across;
  const std::int64_t* places = nullptr;  // where rows are computed
  const void* weights = nullptr;
  std::int64_t line = 0;  // columns, to whole blocks
};

// A part of a call: of one image, some channels and some rows, of results or of gradients of x. The
// scratch begins at a cache line.
struct Part {
  const Problem& problem;
  const Tables& tables;
  std::int64_t image, channel, channels;
  Range rows;
  std::byte* scratch;
};
using Kernel = void (*)(const Part& part);

// rows: results side by side. channels: those of adjacent channels.
ISOBIT_IN_EACH_ISA(Kernel forward_rows(DType dtype); Kernel forward_channels(DType dtype);
                   Kernel backward_rows(DType dtype); Kernel backward_channels(DType dtype);)

}  // namespace isobit::interpolate
