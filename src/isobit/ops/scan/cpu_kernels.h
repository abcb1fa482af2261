// SPDX-License-Identifier: Apache-2.0
// What cpu_kernels.cpp offers once for each instruction set.
#pragma once

#include <cstddef>
#include <cstdint>

#include "isobit/core/dtype.h"
#include "isobit/core/isas.h"
#include "isobit/ops/scan/problem.h"

namespace isobit::scan {

// Elements that are scanned from the first on; strides are negative in reverse.
struct Segment {
  Place at;
  std::int64_t x, y, index;  // strides, in elements
  std::int64_t length;
  std::int64_t first, step;  // what index calls an element
  bool exclusive;
};

// Segments of one length side by side, whose x and y are adjacent.
struct Columns {
  Segment segment;                  // the first column
  std::int64_t count, init, index;  // from column to column
};

// A tree of what came before, in memory of so many bytes that begins at a cache line.
inline constexpr std::int64_t kTreeBytes = 13 << 10;
inline constexpr std::int64_t kStrip = 512;  // columns at a time

struct Kernel {
  void (*start)(void* tree);
  void (*copy)(void* tree, const void* other);
  // After 2^level blocks whose total is `node`, a tree of nothing else.
  void (*push)(void* tree, const void* node, int level);
  // The total of [begin, end), which are 2^level blocks, into the tree `node`.
  void (*total)(const Segment& segment, std::int64_t begin, std::int64_t end, void* node);
  // The results of [begin, end); begin is a multiple of a block. Without a tree, of the first.
  void (*scan)(const Segment& segment, std::int64_t begin, std::int64_t end, const void* tree,
               bool streaming);
  // All of kStrip columns at most; `state` has state_bytes of its length.
  void (*columns)(const Columns& columns, std::byte* state, bool streaming);
  std::int64_t (*state_bytes)(std::int64_t length);
};

ISOBIT_IN_EACH_ISA(Kernel kernel(Kind kind, DType x, DType y);)

}  // namespace isobit::scan
