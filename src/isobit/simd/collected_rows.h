// SPDX-License-Identifier: Apache-2.0
// Short rows that follow each other in memory, streamed past the caches.
#pragma once

#include <cstddef>
#include <cstdint>

#include "isobit/simd/copies.h"
#include "isobit/simd/row_loops.h"

namespace isobit::simd {

// Rows are written into a buffer, from which whole lines are streamed: a line that two rows share
// would else go by way of the caches, which read it first, and most lines of short rows are shared.
// A fence() must follow.
class CollectedRows {
 public:
  static constexpr std::int64_t kMostBytes = 4096;  // that are asked for at once

  // Where to write `count` elements, which then come to stand at `to`. It holds until the next
  // call.
  template <class T>
  ISOBIT_INLINE T* place(T* to, std::int64_t count) {
    return reinterpret_cast<T*>(
        place_bytes(reinterpret_cast<std::byte*>(to), count * std::int64_t{sizeof(T)}));
  }
  // Stores what was not stored yet.
  ISOBIT_INLINE void finish() {
    stream_bytes(buffer_ + begin_, line_ + begin_, end_ - begin_);
    line_ += end_ / kLine * kLine;
    begin_ = end_ = end_ % kLine;
  }

 private:
  static constexpr std::int64_t kLine = 64, kBytes = kMostBytes + kLine;
  // More lines at once would hold up what is read meanwhile.
  static constexpr std::int64_t kWait = 8 * kLine;

  ISOBIT_INLINE std::byte* place_bytes(std::byte* to, std::int64_t bytes) {
    if (to != line_ + end_) {
      finish();
      begin_ = end_ = reinterpret_cast<std::uintptr_t>(to) % kLine;
      line_ = to - end_;
    } else if (end_ >= kWait || end_ + bytes > kBytes) {
      stream_lines();
    }
    std::byte* const place = buffer_ + end_;
    end_ += bytes;
    return place;
  }

  ISOBIT_INLINE void stream_lines() {
    const std::int64_t whole = end_ / kLine * kLine;
    stream_bytes(buffer_ + begin_, line_ + begin_, whole - begin_);
    copy_bytes(buffer_ + whole, buffer_, end_ - whole);
    line_ += whole;
    end_ -= whole;
    begin_ = 0;
  }

  // Bytes [begin_, end_) wait, each at its place in a line; line_ is where the first line stands.
  alignas(64) std::byte buffer_[kBytes];
  std::byte* line_ = nullptr;
  std::int64_t begin_ = 0, end_ = 0;
};

// Whether to collect rows of `cols` elements that are asked to be stored past the caches: not those
// that are whole lines, nor so short ones that they are as fast by way of the caches, or so long
// ones that few of their lines are shared.
template <class T>
ISOBIT_INLINE bool collects_rows(const T* first, std::int64_t stride, std::int64_t cols) {
  constexpr std::int64_t kLine = 64 / sizeof(T);
  if (Bytes::kLanes == 1) return false;  // no streaming stores
  return stride == cols && 4 * kLine <= cols && cols <= 20 * kLine &&
         !are_whole_lines(first, cols) && reinterpret_cast<std::uintptr_t>(first) % sizeof(T) == 0;
}

// Stores rows past the caches where that is asked for and pays; a fence() must follow.
template <class T>
class StoredRows {
 public:
  ISOBIT_INLINE StoredRows(const T* first, std::int64_t stride, std::int64_t cols, bool streaming)
      : cols_(cols),
        streaming_(streaming),
        collects_(streaming && collects_rows(first, stride, cols)) {}

  // y[i] = value(i, part...), of one row.
  template <class S, class Value>
  ISOBIT_INLINE void store(T* y, const Value& value) {
    if (collects_) y = rows_.place(y, cols_);
    store_row<S>(y, cols_, streaming_ && !collects_, value);
  }
  // After the last row.
  ISOBIT_INLINE void finish() {
    if (collects_) rows_.finish();
  }

 private:
  std::int64_t cols_;
  bool streaming_, collects_;
  CollectedRows rows_;
};

}  // namespace isobit::simd
