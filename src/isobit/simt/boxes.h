// SPDX-License-Identifier: Apache-2.0
// Matrices that copies cut into boxes, in the words of all back ends.
#pragma once

#include <cstdint>

namespace isobit::simt {

// A box is 64 lines of 64 adjacent elements of 16 bits.
inline constexpr int kBoxSide = 64, kBoxElements = kBoxSide * kBoxSide,
                     kBoxBytes = 2 * kBoxElements, kBoxAlignment = 1024;

// Matrices in global memory, all counts and strides in elements: `length` adjacent ones in each of
// `lines` lines, in each of `count` matrices. Of the two strides the larger one is a multiple of
// the other: lines lie in their matrix, or where they are `woven` each matrix has a part of the
// line that all have together.
struct Matrices {
  const void* data;
  std::int64_t length, lines, count, line_stride, stride;
  bool woven = false;
};

}  // namespace isobit::simt
