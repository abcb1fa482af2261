// SPDX-License-Identifier: Apache-2.0
// What cpu_kernels.cpp offers once for each instruction set.
#pragma once

#include <cstddef>
#include <cstdint>

#include "isobit/core/dtype.h"
#include "isobit/core/isas.h"
#include "isobit/ops/scan/problem.h"

namespace isobit::scan {

// How kernels that compute in one type read and write elements of another: lines of adjacent
// elements, so many elements apart.
struct Elements {
  std::int64_t bytes;  // of an element
  bool computed_in;    // nothing has to be converted
  void (*read)(const std::byte* from, std::int64_t from_stride, std::int64_t lines,
               std::int64_t length, void* to, std::int64_t to_stride);
  // Null where they are only read.
  void (*write)(const void* from, std::int64_t from_stride, std::int64_t lines, std::int64_t length,
                std::byte* to, std::int64_t to_stride);
};
struct Types {
  Elements x, y;
};

// Elements that are scanned from the first on; strides are negative in reverse.
struct Segment {
  Place at;
  std::int64_t x, y, index;  // strides, in elements
  std::int64_t length;
  std::int64_t first, step;  // what index calls an element
  bool exclusive;
  const Types* types = nullptr;  // the kernel's
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
  const Types* types;  // null where a kernel knows the types itself
  void (*start)(void* tree);
  void (*copy)(void* tree, const void* other);
  // After 2^level blocks whose total is `node`, a tree of nothing else.
  void (*push)(void* tree, const void* node, int level);
  // The total of [begin, end), which are 2^level blocks, into the tree `node`. A part of what lies
  // `ahead` elements behind an element is fetched with it.
  void (*total)(const Segment& segment, std::int64_t begin, std::int64_t end, void* node,
                std::int64_t ahead);
  // The results of [begin, end); begin is a multiple of a block. Without a tree, of the first. What
  // lies `ahead` elements behind an element is fetched with it; with a tree, what `total` left.
  void (*scan)(const Segment& segment, std::int64_t begin, std::int64_t end, const void* tree,
               bool streaming, std::int64_t ahead);
  // All of kStrip columns at most; `state` has state_bytes of its length.
  void (*columns)(const Columns& columns, std::byte* state, bool streaming);
  std::int64_t (*state_bytes)(std::int64_t length);
};

ISOBIT_IN_EACH_ISA(Kernel kernel(Kind kind, DType x, DType y);)

}  // namespace isobit::scan
