// SPDX-License-Identifier: Apache-2.0
// Matrices transposed in registers, and rows copied, compiled once for each instruction set.
#include "isobit/ops/transpose/cpu_kernels.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "isobit/ops/transpose/cpu_narrow.h"
#include "isobit/ops/transpose/cpu_tiles.h"
#include "isobit/ops/transpose/formula.h"
#include "isobit/simd/copies.h"
#include "isobit/simd/lines.h"

namespace isobit::transpose::ISOBIT_ISA {
namespace {

using simd::F32;

// Rows ------------------------------------------------------------------------------------------

// One vector of F32 from x, as T into y.
template <Stores kStores, class X, class T>
ISOBIT_INLINE void cast_vector(const X* x, T* y) {
  const auto load = [x]() ISOBIT_INLINE_LAMBDA {
    if constexpr (kRoundsTwice<T, X>)
      return F32::load_odd(x);
    else if constexpr (std::is_same_v<X, double>)
      return F32::load_nearest(x);
    else
      return F32::load(x);
  };
  if constexpr (std::is_same_v<T, double>)
    F32::store_wide<kStores>(y, load());
  else
    F32::store<kStores>(y, load());
}

template <class X, class T>
ISOBIT_INLINE void cast_row(const X* x, T* y, std::int64_t count) {
  std::int64_t i = 0;
  for (; i + F32::kWidth <= count; i += F32::kWidth) cast_vector<Stores::cached>(x + i, y + i);
  if (i == count) return;
  if (count >= F32::kWidth) {
    const std::int64_t last = count - F32::kWidth;
    cast_vector<Stores::cached>(x + last, y + last);
  } else {
    for (; i < count; ++i) y[i] = cast<Conversions, T>(x[i]);
  }
}

template <class X, class T>
ISOBIT_INLINE void convert_row(const X* x, T* y, std::int64_t count) {
  if constexpr (std::is_same_v<X, T>)
    simd::copy_bytes(reinterpret_cast<const std::byte*>(x), reinterpret_cast<std::byte*>(y),
                     count * std::int64_t{sizeof(T)});
  else
    cast_row(x, y, count);
}

template <class X, class T>
void row(const void* from, void* to, std::int64_t count, bool streaming) {
  const auto* x = static_cast<const X*>(from);
  auto* y = static_cast<T*>(to);
  if (!streaming) return convert_row(x, y, count);
  if constexpr (std::is_same_v<X, T>) {
    simd::stream_bytes(static_cast<const std::byte*>(from), static_cast<std::byte*>(to),
                       count * std::int64_t{sizeof(T)});
  } else {
    constexpr int kTurn = 64;  // whole lines
    std::int64_t i = simd::before_lines(y, count);
    convert_row(x, y, i);
    for (; i + kTurn <= count; i += kTurn) {
#pragma GCC unroll 8
      for (int j = 0; j < kTurn; j += F32::kWidth)
        cast_vector<Stores::streaming>(x + i + j, y + i + j);
    }
    convert_row(x + i, y + i, count - i);
  }
  simd::fence();
}

// Blocks ----------------------------------------------------------------------------------------

// Where a block lies.
struct Part {
  std::int64_t row, col;
  int rows, cols;
};

// Transposes blocks of `all` with stores of one kind.
template <class X, class T, Stores kStores>
class Transposer {
  using S = Shape<T>;
  static constexpr int kSize = sizeof(T);
  static constexpr bool kStreams = kStores == Stores::streaming;
  static constexpr int kBlockCols = kStreams ? S::kStreamCols : S::kBlockCols;
  static constexpr int kBlockRows = kStreams ? S::kStreamRows : S::kBlockRows;

 public:
  ISOBIT_INLINE explicit Transposer(const Block& all)
      : all_(all),
        whole_lines_(kVector == kLine && reinterpret_cast<std::uintptr_t>(all.y) % kLine == 0 &&
                     all.y_stride * kSize % kLine == 0) {}

  // Block after block down the rows of x.
  ISOBIT_INLINE void run_cached() {
    for (std::int64_t col = 0; col < all_.cols; col += kBlockCols)
      for (std::int64_t row = 0; row < all_.rows; row += kBlockRows) {
        const Part part = part_at(row, col, all_.rows, all_.cols);
        const bool last = row + part.rows == all_.rows;
        const Ahead<X, T> ahead(all_, last ? 0 : row + part.rows, last ? col + part.cols : col);
        transpose(part, [&](int r) ISOBIT_INLINE_LAMBDA { ahead.fetch(r, r + S::kRows); });
        const int whole_rows = part.rows / S::kRows * S::kRows;
        const int whole_cols = part.cols / S::kCols * S::kCols;
        for (int c = 0; c < part.cols; ++c)
          lines_.store(c, y_of(part, c), (c < whole_cols ? whole_rows : 0) * kSize,
                       part.rows * kSize);
      }
  }

  // Field after field down the rows of x, the next one always being fetched.
  ISOBIT_INLINE void run_streaming() {
    bool staged = false;
    for (std::int64_t left = 0; left < all_.cols; left += S::kFieldCols) {
      const std::int64_t right = std::min(all_.cols, left + S::kFieldCols);
      for (std::int64_t row = 0; row < all_.rows; row += kBlockRows) {
        NextField<X> next = field_after(row, left);
        for (std::int64_t col = left; col < right; col += kBlockCols) {
          const Part part = part_at(row, col, all_.rows, right);
          if (is_lines(part)) {
            const Part after = part_after(part, left, right);
            if (!staged) stage(part, staged_[turn_], 0, kBlockRows);
            stream_block(part, next, after);
            staged = S::kStagesAhead && is_lines(after);
          } else {
            transpose(part, [&](int) ISOBIT_INLINE_LAMBDA { next.fetch(kBlockCols * S::kRows); });
            for (int c = 0; c < part.cols; ++c)
              lines_.stream(c, rests_[col - left + c], y_of(part, c), row == 0,
                            row + part.rows == all_.rows, part.rows * kSize);
            staged = false;
          }
        }
      }
    }
    simd::fence();
  }

 private:
  ISOBIT_INLINE static Part part_at(std::int64_t row, std::int64_t col, std::int64_t bottom,
                                    std::int64_t right) {
    return {row, col, static_cast<int>(std::min<std::int64_t>(kBlockRows, bottom - row)),
            static_cast<int>(std::min<std::int64_t>(kBlockCols, right - col))};
  }
  ISOBIT_INLINE const std::byte* x_of(std::int64_t row, std::int64_t col) const {
    return all_.x + (row * all_.x_stride + col) * std::int64_t{sizeof(X)};
  }
  ISOBIT_INLINE std::byte* y_of(const Part& part, int c) const {
    return all_.y + ((part.col + c) * all_.y_stride + part.row) * kSize;
  }

  // The field below the one at (row, left), or the first of the next columns or of the next part.
  ISOBIT_INLINE NextField<X> field_after(std::int64_t row, std::int64_t left) const {
    const std::int64_t step = all_.x_stride * std::int64_t{sizeof(X)};
    const std::byte* x = nullptr;
    row += kBlockRows;
    if (row >= all_.rows) {
      row = 0;
      left += S::kFieldCols;
    }
    if (left < all_.cols) {
      x = x_of(row, left);
    } else if (all_.next_x != nullptr) {
      left = 0;
      x = all_.next_x;
    }
    return {x, step, x == nullptr ? 0 : std::min<std::int64_t>(kBlockRows, all_.rows - row),
            std::min<std::int64_t>(S::kFieldCols, all_.cols - left)};
  }

  // Is a block of whole lines of y, in whole tiles?
  ISOBIT_INLINE bool is_lines(const Part& part) const {
    return whole_lines_ && part.rows == kBlockRows && part.cols == kBlockCols;
  }
  // The block after one of a field [left, right); an empty one after the last.
  ISOBIT_INLINE Part part_after(const Part& part, std::int64_t left, std::int64_t right) const {
    if (part.col + kBlockCols < right)
      return part_at(part.row, part.col + kBlockCols, all_.rows, right);
    if (part.row + kBlockRows < all_.rows)
      return part_at(part.row + kBlockRows, left, all_.rows, right);
    if (right == all_.cols) return {};
    return part_at(0, right, all_.rows, std::min(all_.cols, right + S::kFieldCols));
  }

  using Columns = Lines<kBlockRows * kSize, kBlockCols>;
  using Staged = T[kBlockRows][kBlockCols];
  // Stages a block, that is, copies its rows [from, to), converted.
  ISOBIT_INLINE void stage(const Part& part, Staged& staged, int from, int to) const {
    for (int r = from; r < to; ++r) {
      const std::byte* const x = x_of(part.row + r, part.col);
      auto* const to_row = reinterpret_cast<std::byte*>(staged[r]);
      if (std::is_same_v<X, T> && part.cols == kBlockCols) {
#pragma GCC unroll 16
        for (int i = 0; i < kBlockCols * kSize; i += kVector)
          Bytes::store(to_row + i, Bytes::load(x + i));
      } else {
        convert_row(reinterpret_cast<const X*>(x), staged[r], part.cols);
      }
    }
  }

  // A staged block whose columns are whole lines of y. Those of a column follow each other: across
  // all columns first they reached a twentieth less. The block after it is staged meanwhile, so
  // that no tile waits for a store behind those that stream.
  ISOBIT_INLINE void stream_block(const Part& part, NextField<X>& next, const Part& after) {
    constexpr int kStage = kBlockRows * S::kCols / kBlockCols;
    const bool stages = S::kStagesAhead && is_lines(after);
    const auto* const source = reinterpret_cast<const std::byte*>(staged_[turn_]);
    if (S::kStagesAhead) turn_ ^= 1;
    for (int i = 0; i < kBlockCols / S::kCols; ++i) {
      next.fetch(kBlockRows * S::kCols);
      if (stages) stage(after, staged_[turn_], i * kStage, (i + 1) * kStage);
      for (int r = 0; r < kBlockRows; r += S::kRows) {
        Tile<T, Bytes> tile;
        load_tile<T>(source + r * sizeof staged_[0][0] + i * 16, sizeof staged_[0][0], tile);
        store_transposed<T, Bytes, kStores>(tile, y_of(part, i * S::kCols) + r * kSize,
                                            all_.y_stride * kSize);
      }
    }
  }

  // Into lines_; but what is stored at once, and whole, into y. Calls before(r) at every row of
  // tiles.
  template <class Before>
  ISOBIT_INLINE void transpose(const Part& part, const Before& before) {
    const std::byte* source = x_of(part.row, part.col);
    std::int64_t step = all_.x_stride * kSize;
    // Tiles read whole lanes, which must be there, and elements of T; and rows many times, while
    // the first-level cache keeps few that are multiples of half a page apart.
    if (!std::is_same_v<X, T> || part.cols % S::kCols != 0 || (kSize <= 2 && step % 2048 == 0)) {
      stage(part, staged_[turn_], 0, part.rows);
      source = reinterpret_cast<const std::byte*>(staged_[turn_]);
      step = sizeof staged_[0][0];
    }
    for (int r = 0; r < part.rows; r += S::kRows) {
      before(r);
      for (int c = 0; c < part.cols; c += S::kCols) {
        const std::byte* const x = source + r * step + c * kSize;
        std::byte* const line = lines_.columns[c] + kLine + r * kSize;
        Tile<T, Bytes> tile;
        if (r + S::kRows > part.rows) {
          load_tile<T>(x, step, part.rows - r, tile);
          store_transposed<T>(tile, line, Columns::kStep);
        } else {
          load_tile<T>(x, step, tile);
          const bool direct = kStores == Stores::cached && c + S::kCols <= part.cols;
          store_transposed<T>(tile, direct ? y_of(part, c) + r * kSize : line,
                              direct ? all_.y_stride * kSize : Columns::kStep);
        }
      }
    }
  }

  const Block all_;
  // Rows of y are whole lines, and so are the columns of a tile. Where they are half of one, lines
  // are put together in lines_: streamed in halves, 4096 x 4096 f32 took twice as long on a Zen 3.
  const bool whole_lines_;
  alignas(kLine) Staged staged_[kStreams && S::kStagesAhead ? 2 : 1];
  int turn_ = 0;
  Columns lines_;
  alignas(kLine) std::byte rests_[kStreams ? S::kFieldCols : 1][kLine];
};

// A matrix of few rows, in tiles of single lanes; the last in a row or column lie over others.
template <class T>
ISOBIT_INLINE void transpose_small(const Block& block) {
  constexpr int kSide = Shape<T>::kCols, kSize = sizeof(T);
  for (std::int64_t col = 0; col < block.cols; col += kSide) {
    const std::int64_t left = std::min(col, block.cols - kSide);
    for (std::int64_t row = 0; row < block.rows; row += kSide) {
      const std::int64_t top = std::min(row, block.rows - kSide);
      const std::byte* const x = block.x + (top * block.x_stride + left) * kSize;
      Tile<T, simd::Lane> tile;
      load_tile<T, simd::Lane>(x, block.x_stride * kSize, tile);
      store_transposed<T, simd::Lane>(tile, block.y + (left * block.y_stride + top) * kSize,
                                      block.y_stride * kSize);
    }
  }
}

// Out of line, so that small matrices do not pay for its stack.
template <class X, class T>
[[gnu::noinline]] void transpose_large(const Block& block, bool streaming) {
  if (streaming)
    Transposer<X, T, Stores::streaming>(block).run_streaming();
  else
    Transposer<X, T, Stores::cached>(block).run_cached();
}

template <class X, class T>
void block_of(const Block& block, bool streaming) {
  using S = Shape<T>;
  if constexpr (std::is_unsigned_v<T> && sizeof(T) <= 4)  // as elements are that only move
    if (transpose_narrow<T>(block)) return;
  if (block.rows < S::kCols || block.cols < S::kCols) {  // most of a tile would be thrown away
    const auto* x = reinterpret_cast<const X*>(block.x);
    auto* y = reinterpret_cast<T*>(block.y);
    const auto move = [&](std::int64_t i, std::int64_t j) ISOBIT_INLINE_LAMBDA {
      if constexpr (std::is_same_v<X, T>)
        y[j * block.y_stride + i] = x[i * block.x_stride + j];
      else
        y[j * block.y_stride + i] = cast<Conversions, T>(x[i * block.x_stride + j]);
    };
    if (block.rows < block.cols)
      for (std::int64_t j = 0; j < block.cols; ++j)
        for (std::int64_t i = 0; i < block.rows; ++i) move(i, j);
    else
      for (std::int64_t i = 0; i < block.rows; ++i)
        for (std::int64_t j = 0; j < block.cols; ++j) move(i, j);
  } else if (std::is_same_v<X, T> && block.rows < (streaming ? 1 : 2) * S::kRows) {
    transpose_small<T>(block);
  } else {
    transpose_large<X, T>(block, streaming);
  }
}

// Calls choose(Type<X>{}, Type<T>{}); elements that keep their type move as unsigned integers.
template <class Choose>
ISOBIT_INLINE auto with_types(DType x, DType y, const Choose& choose) {
  if (x == y) switch (size_of(x)) {
      case 1:  return choose(Type<std::uint8_t>{}, Type<std::uint8_t>{});
      case 2:  return choose(Type<std::uint16_t>{}, Type<std::uint16_t>{});
      case 4:  return choose(Type<std::uint32_t>{}, Type<std::uint32_t>{});
      default: return choose(Type<std::uint64_t>{}, Type<std::uint64_t>{});
    }
  const auto floating = [](DType dtype, const auto& next) ISOBIT_INLINE_LAMBDA {
    switch (dtype) {
      case DType::f16:  return next(Type<f16>{});
      case DType::bf16: return next(Type<bf16>{});
      case DType::f64:  return next(Type<double>{});
      default:          return next(Type<float>{});
    }
  };
  return floating(x, [&](auto from) ISOBIT_INLINE_LAMBDA {
    return floating(y, [&](auto to) ISOBIT_INLINE_LAMBDA { return choose(from, to); });
  });
}

}  // namespace

BlockKernel block_kernel(DType x, DType y) {
  return with_types(x, y,
                    []<class X, class T>(Type<X>, Type<T>)
                        ISOBIT_INLINE_LAMBDA -> BlockKernel { return block_of<X, T>; });
}

RowKernel row_kernel(DType x, DType y) {
  return with_types(x, y, []<class X, class T>(Type<X>, Type<T>) ISOBIT_INLINE_LAMBDA -> RowKernel {
    return row<X, T>;
  });
}

}  // namespace isobit::transpose::ISOBIT_ISA
