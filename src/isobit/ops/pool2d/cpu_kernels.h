// SPDX-License-Identifier: Apache-2.0
// What cpu_kernels.cpp and cpu_kernels_backward.cpp offer once for each instruction set.
#pragma once

#include <cstddef>
#include <cstdint>

#include "isobit/core/isas.h"
#include "isobit/ops/pool2d/problem.h"

namespace isobit::pool2d {

inline constexpr std::int64_t kBlock = 16;  // channels at a time, and a whole number of vectors

// A part of a call: of one image, some channels and some rows, of results or of gradients of x. The
// scratch begins at a cache line.
struct Part {
  const Problem& problem;
  std::int64_t image, channel, channels;
  Range rows;
  std::byte* scratch;
};
using Kernel = void (*)(const Part& part);

// How rows of x are staged for windows side by side: of each phase, which is what is left of a
// column over the stride, the elements one after the other, with the padding. A ring of slots has
// the rows that windows of one row of results see.
struct Staging {
  std::int64_t line;           // results, to whole vectors
  std::int64_t phases, phase;  // and how long one is
  std::int64_t slots;

  ISOBIT_INLINE explicit Staging(const Problem& p) {
    line = (p.w.results + kBlock - 1) / kBlock * kBlock;
    const std::int64_t reach = (p.w.taps - 1) * p.w.dilation;
    phases = p.w.stride < reach + 1 ? p.w.stride : reach + 1;
    phase = (line + reach / p.w.stride + kBlock - 1) / kBlock * kBlock;
    const std::int64_t rows =
        p.h.bins ? ceil_of(p.h.sources, p.h.results) + 1 : (p.h.taps - 1) * p.h.dilation + 1;
    slots = rows < p.h.sources ? rows : p.h.sources;
  }
  ISOBIT_INLINE std::int64_t slot() const { return phases * phase; }
};

// Channels that are not adjacent in memory are staged so: all rows that one row of results sees.
ISOBIT_INLINE std::int64_t staged_rows(const Axis& h) {
  const std::int64_t rows =
      h.bins ? ceil_of(h.sources, h.results) + 1 : (h.taps - 1) * h.dilation + 1;
  return rows < h.sources ? rows : h.sources;
}

// rows: windows side by side. channels: those of adjacent channels, or staged ones.
ISOBIT_IN_EACH_ISA(Kernel forward_rows(DType dtype, Reduction reduction);
                   Kernel forward_channels(DType dtype, Reduction reduction);
                   Kernel backward_rows(DType dtype, Reduction reduction);
                   Kernel backward_channels(DType dtype, Reduction reduction);)

}  // namespace isobit::pool2d
