// SPDX-License-Identifier: Apache-2.0
// What blocks are transposed with, for each instruction set: tiles in registers, columns on their
// way to y, and what is fetched ahead.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "isobit/core/inline.h"
#include "isobit/ops/transpose/cpu_kernels.h"
#include "isobit/simd/copies.h"
#include "isobit/simd/prefetch.h"
#include "isobit/simd/stores.h"
#include "isobit/simd/vec.h"

namespace isobit::transpose::ISOBIT_ISA {

using simd::Bytes;
using simd::Stores;

inline constexpr int kLine = 64;  // bytes
inline constexpr int kVector = 16 * Bytes::kLanes;

// What is transposed at a time, for elements of T.
template <class T>
struct Shape {
  static constexpr int kCols = 16 / sizeof(T);         // of a tile: the elements of a lane
  static constexpr int kRows = kCols * Bytes::kLanes;  // of a tile: a vector of y
  // Of a block. Of 4096 x 4096 f32, two lines of x in a row reached half of what four did, one
  // line of y three quarters of what two did; more of either gained nothing.
  static constexpr int kBlockCols = sizeof(T) == 1 ? 128 : 256 / sizeof(T);
  static constexpr int kBlockRows = 128 / sizeof(T);
  // Of a block for streaming: longer pieces of y. It may be staged first, and the copy must leave
  // room in the first-level cache: of 192 x 512 x 512 bf16, 16 KB reached 0.65 to 0.7 of a copy,
  // 8 KB 0.8. Small elements gain a tenth more if the next block is staged while one is transposed.
  // By vectors of 32 bytes, two lines of a column of u8 were a fifth slower than four.
  static constexpr int kStreamCols = sizeof(T) == 1 && kVector == kLine ? 64 : 32;
  static constexpr int kStreamRows = (8 << 10) / sizeof(T) / kStreamCols;
  static constexpr bool kStagesAhead = sizeof(T) < 4;
  // Of blocks beside each other whose rows are fetched together into a second-level cache. Each
  // column is another page of y, and no more of them are remembered.
  static constexpr int kFieldCols = std::min<int>(512, 2048 / sizeof(T));
};

// A tile as it is loaded: lane l of vector r holds a piece of row l * kCols + r.
template <class T, class Vector>
using Tile = typename Vector::V[Shape<T>::kCols];

// Hides a distance, lest the compiler keep an address in memory for each row of all tiles: 1000 x
// 3001 u8 took a third longer.
ISOBIT_INLINE void hide(std::int64_t& step) { asm("" : "+r"(step)); }

// Loads a tile whose rows are `step` bytes apart.
template <class T, class Vector = Bytes>
ISOBIT_INLINE void load_tile(const std::byte* x, std::int64_t step, Tile<T, Vector>& v) {
  constexpr int kCount = Shape<T>::kCols;
  hide(step);
  const std::int64_t apart = step * kCount;
#pragma GCC unroll 16
  for (int r = 0; r < kCount; ++r) {
    v[r] = Vector::load_lanes([&](int lane) ISOBIT_INLINE_LAMBDA { return x + lane * apart; });
    x += step;
  }
}

// Loads a tile of `rows` rows; those that are not there are read as the last one.
template <class T>
ISOBIT_INLINE void load_tile(const std::byte* x, std::int64_t step, int rows, Tile<T, Bytes>& v) {
  constexpr int kCount = Shape<T>::kCols;
  hide(step);
#pragma GCC unroll 16
  for (int r = 0; r < kCount; ++r)
    v[r] = Bytes::load_lanes([&](int lane) ISOBIT_INLINE_LAMBDA {
      return x + std::min(lane * kCount + r, rows - 1) * step;
    });
}

// Transposes a tile. Every turn zips vectors that are half of them apart, until each holds a
// column.
template <class T, class Vector = Bytes, Stores kStores = Stores::cached>
ISOBIT_INLINE void store_transposed(Tile<T, Vector>& v, std::byte* y, std::int64_t y_step) {
  constexpr int kCount = Shape<T>::kCols;
  hide(y_step);
#pragma GCC unroll 4
  for (int turn = 1; turn < kCount; turn *= 2) {
    typename Vector::V zipped[kCount];
#pragma GCC unroll 8
    for (int i = 0; i < kCount / 2; ++i) {
      zipped[2 * i] = Vector::template zip_low<T>(v[i], v[i + kCount / 2]);
      zipped[2 * i + 1] = Vector::template zip_high<T>(v[i], v[i + kCount / 2]);
    }
#pragma GCC unroll 16
    for (int i = 0; i < kCount; ++i) v[i] = zipped[i];
  }
#pragma GCC unroll 16
  for (int c = 0; c < kCount; ++c) {
    if constexpr (kStores == Stores::cached)
      Vector::store(y, v[c]);
    else
      Vector::template store<kStores>(y, v[c]);
    y += y_step;
  }
}

// Columns of a block on their way to y: what was transposed lies behind what did not fill a line.
template <int kBytes, int kCols>
struct Lines {
  static constexpr int kStep = kLine + kBytes;
  alignas(kLine) std::byte columns[kCols][kStep];

  // Stores the bytes [from, bytes) of column c.
  ISOBIT_INLINE void store(int c, std::byte* y, std::int64_t from, std::int64_t bytes) const {
    if (from < bytes) simd::copy_bytes(columns[c] + kLine + from, y + from, bytes - from);
  }

  // Streams what lines of y are whole, and keeps the rest for the block below. Of the first and the
  // last block all is stored.
  ISOBIT_INLINE void stream(int c, std::byte* rest, std::byte* y, bool first, bool last,
                            std::int64_t bytes) {
    std::byte* const at = columns[c] + kLine;
    const auto past = static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(y) % kLine);
    std::int64_t i = -past;
    if (first && past != 0) {
      i = std::min(bytes, kLine - past);
      simd::copy_bytes(at, y, i);
    } else if (past != 0) {
      copy_line<Stores::cached>(rest, columns[c]);
    }
    for (; i + kLine <= bytes; i += kLine) copy_line<Stores::streaming>(at + i, y + i);
    if (last) {
      if (i < bytes) simd::copy_bytes(at + i, y + i, bytes - i);
    } else if (past != 0) {
      copy_line<Stores::cached>(columns[c] + kBytes, rest);
    }
  }

 private:
  template <Stores kStores>
  ISOBIT_INLINE static void copy_line(const std::byte* x, std::byte* y) {
#pragma GCC unroll 4
    for (int j = 0; j < kLine; j += kVector) Bytes::store<kStores>(y + j, Bytes::load(x + j));
  }
};

// The block that is transposed next, brought nearer while this one is. What counts is y, whose
// lines are read before they are written: 1000 x 3001 f32 rose from below 0.4 of a copy to 0.7.
// Two blocks may leave no room in a first-level cache: fetched there, 64 x 128 x 768 f32 took half
// as long again on a Zen 4.
template <class X, class T>
class Ahead {
 public:
  ISOBIT_INLINE Ahead(const Block& block, std::int64_t row, std::int64_t col)
      : x_(block.x + (row * block.x_stride + col) * std::int64_t{sizeof(X)}),
        y_(block.y + (col * block.y_stride + row) * std::int64_t{sizeof(T)}),
        x_step_(block.x_stride * std::int64_t{sizeof(X)}),
        y_step_(block.y_stride * std::int64_t{sizeof(T)}),
        rows_(std::min<std::int64_t>(Shape<T>::kBlockRows, block.rows - row)),
        cols_(std::min<std::int64_t>(Shape<T>::kBlockCols, block.cols - col)) {}

  // Its rows [from, to) in x, and as large a part of its columns in y.
  ISOBIT_INLINE void fetch(int from, int to) const {
    using S = Shape<T>;
    for (std::int64_t row = from; row < std::min<std::int64_t>(to, rows_); ++row)
      fetch_line(x_ + row * x_step_, cols_ * std::int64_t{sizeof(X)});
    constexpr int kPart = S::kBlockCols / S::kBlockRows;
    static_assert(kPart * S::kBlockRows == S::kBlockCols);
    for (std::int64_t col = from * kPart; col < std::min<std::int64_t>(to * kPart, cols_); ++col)
      fetch_line(y_ + col * y_step_, rows_ * std::int64_t{sizeof(T)});
  }

 private:
  ISOBIT_INLINE static void fetch_line(const std::byte* at, std::int64_t bytes) {
    for (std::int64_t i = 0; i < bytes; i += kLine) simd::fetch_to_second_cache(at + i);
  }

  const std::byte *x_, *y_;
  std::int64_t x_step_, y_step_, rows_, cols_;
};

// The rows of x that the next field will read, brought into a second-level cache in pieces.
template <class X>
class NextField {
 public:
  // Starts with a line of every row, whose pages are then looked for side by side.
  ISOBIT_INLINE NextField(const std::byte* x, std::int64_t step, std::int64_t rows,
                          std::int64_t cols)
      : row_(x), step_(step), rows_(rows), bytes_(cols * std::int64_t{sizeof(X)}) {
    for (std::int64_t row = 0; row < rows; ++row) simd::fetch_to_second_cache(x + row * step);
  }

  // As many lines as hold `elements`.
  ISOBIT_INLINE void fetch(int elements) {
    for (int left = elements * static_cast<int>(sizeof(X)); left > 0 && rows_ > 0; left -= kLine) {
      simd::fetch_to_second_cache(row_ + at_);
      at_ += kLine;
      if (at_ < bytes_) continue;
      at_ = 0;
      row_ += step_;
      --rows_;
    }
  }

 private:
  const std::byte* row_;
  std::int64_t step_, rows_, bytes_, at_ = 0;
};

}  // namespace isobit::transpose::ISOBIT_ISA
