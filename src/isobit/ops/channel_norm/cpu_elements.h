// SPDX-License-Identifier: Apache-2.0
// Rows of any strides as kernels want them: in pieces whose elements are adjacent.
#pragma once

#include <cstdint>
#include <cstring>

#include "isobit/core/order.h"
#include "isobit/ops/channel_norm/problem.h"
#include "isobit/simd/vec.h"

namespace isobit::channel_norm::ISOBIT_ISA {

// Elements of one segment of a row, at most a block of the order.
struct Piece {
  std::int64_t at;  // after the first of the part
  std::int64_t segment, l, count;
};

// Calls body(piece) for elements [begin, end) of a row.
template <class Body>
ISOBIT_INLINE void for_each_piece(const Row& row, std::int64_t begin, std::int64_t end,
                                  const Body& body) {
  if (begin >= end) return;
  std::int64_t segment = begin / row.extent, l = begin % row.extent;
  for (std::int64_t i = begin; i < end;) {
    std::int64_t count = row.extent - l;
    if (count > end - i) count = end - i;
    if (count > order::kBlock) count = order::kBlock;
    body(Piece{i - begin, segment, l, count});
    i += count;
    l += count;
    if (l == row.extent) l = 0, ++segment;
  }
}

template <class T>
ISOBIT_INLINE void copy_from(const Images& array, const Row& row, const Piece& piece, T* to) {
  const T* from = reinterpret_cast<const T*>(array.data) + row.place(array, piece.segment, piece.l);
  if (array.l == 1)
    std::memcpy(to, from, piece.count * sizeof(T));
  else
    for (std::int64_t i = 0; i < piece.count; ++i) to[i] = from[i * array.l];
}

// The elements of a piece, in their place or copied.
template <class T>
ISOBIT_INLINE const T* elements(const Images& array, const Row& row, const Piece& piece,
                                T* buffer) {
  if (array.l == 1)
    return reinterpret_cast<const T*>(array.data) + row.place(array, piece.segment, piece.l);
  copy_from(array, row, piece, buffer);
  return buffer;
}

// Where results of a piece go, and how they come to their place.
template <class T>
class Results {
 public:
  ISOBIT_INLINE Results(const Images& array, const Row& row, const Piece& piece, T* buffer)
      : place_(reinterpret_cast<T*>(array.data) + row.place(array, piece.segment, piece.l)),
        buffer_(buffer),
        step_(array.l),
        count_(piece.count) {}
  ISOBIT_INLINE T* data() const { return step_ == 1 ? place_ : buffer_; }
  ISOBIT_INLINE void done() const {
    if (step_ != 1)
      for (std::int64_t i = 0; i < count_; ++i) place_[i * step_] = buffer_[i];
  }

 private:
  T *place_, *buffer_;
  std::int64_t step_, count_;
};

// Elements [begin, begin + count) of a row, no more than a block: in their place or copied.
template <class T>
ISOBIT_INLINE const T* block(const Images& array, const Row& row, std::int64_t begin,
                             std::int64_t count, T* buffer) {
  if (array.l == 1) {
    const std::int64_t segment = begin / row.extent, l = begin % row.extent;
    if (row.segments == 1 || row.step(array) == row.extent || count <= row.extent - l)
      return reinterpret_cast<const T*>(array.data) + row.place(array, segment, l);
  }
  for_each_piece(row, begin, begin + count, [&](const Piece& piece) ISOBIT_INLINE_LAMBDA {
    copy_from(array, row, piece, buffer + piece.at);
  });
  return buffer;
}

// Asks for adjacent elements ahead of their turn: of pixels that are far apart few lie on one page,
// beyond which processors' own prefetching does not go.
template <bool kWritten = false, class T>
ISOBIT_INLINE void fetch(const T* from, std::int64_t count) {
  constexpr std::int64_t kLine = 64 / sizeof(T);
  for (std::int64_t i = 0; i < count; i += kLine) __builtin_prefetch(from + i, kWritten);
}

}  // namespace isobit::channel_norm::ISOBIT_ISA
