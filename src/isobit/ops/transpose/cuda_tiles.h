// SPDX-License-Identifier: Apache-2.0
// What the kernels of transpose share: a call's arrays cut into tiles, pieces of them that move in
// one instruction, and a few such pieces turned in registers.
#pragma once

#include <cstdint>
#include <type_traits>

#include "isobit/ops/transpose/formula.h"
#include "isobit/ops/transpose/problem.h"
#include "isobit/simt/simt.h"

namespace isobit::transpose {

// Adjacent elements, moved at once.
template <class T, int kBytes = 16>
struct alignas(kBytes) Piece {
  static constexpr int kSize = kBytes / sizeof(T);
  T elements[kSize];
};
inline constexpr int kVector = 16;  // bytes, the most that a thread moves at once

// What keeps its type may be any bits, which no conversion may see.
template <class To, class From>
ISOBIT_DEVICE To converted(From value) {
  if constexpr (std::is_same_v<To, From>)
    return value;
  else
    return cast<simt::Conversions, To>(value);
}

// A part of one matrix: a row of x is a column of y.
template <class From, class To>
struct Tile {
  const From* x;
  To* y;
  int rows, cols;
};

// All tiles of a call, of at most `height` rows of x and `width` columns. Those beside each other
// in rows of x come one after the other.
template <class From, class To>
struct Tiles {
  const From* x;
  To* y;
  Axis rows, cols, outer[kMaxRank];
  int outer_count, height, width;
  std::int64_t matrices, down, across;

  Tiles(const Problem& problem, int height, int width)
      : x(reinterpret_cast<const From*>(problem.x)),
        y(reinterpret_cast<To*>(problem.y)),
        rows(problem.rows),
        cols(problem.cols),
        outer_count(problem.outer_count),
        height(height),
        width(width),
        matrices(problem.matrices()),
        down((rows.extent + height - 1) / height),
        across((cols.extent + width - 1) / width) {
    for (int i = 0; i < outer_count; ++i) outer[i] = problem.outer[static_cast<std::size_t>(i)];
  }

  ISOBIT_EITHER std::int64_t count() const { return matrices * down * across; }

  ISOBIT_DEVICE Tile<From, To> operator[](std::int64_t index) const {
    const std::int64_t line = index / across, first_col = (index - line * across) * width;
    std::int64_t matrix = line / down;
    const std::int64_t first_row = (line - matrix * down) * height;
    std::int64_t x_at = first_row * rows.x_stride + first_col * cols.x_stride;
    std::int64_t y_at = first_row * rows.y_stride + first_col * cols.y_stride;
#pragma unroll 1
    for (int i = outer_count - 1; i >= 0; --i) {
      const std::int64_t rest = matrix / outer[i].extent, turn = matrix - rest * outer[i].extent;
      x_at += turn * outer[i].x_stride;
      y_at += turn * outer[i].y_stride;
      matrix = rest;
    }
    const std::int64_t rows_left = rows.extent - first_row, cols_left = cols.extent - first_col;
    return {x + x_at, y + y_at, rows_left < height ? static_cast<int>(rows_left) : height,
            cols_left < width ? static_cast<int>(cols_left) : width};
  }
};

// The widest piece, in bytes, on whose multiples `lines` lines of `count` elements start and end.
template <class T>
ISOBIT_DEVICE int piece_bytes(const T* address, std::int64_t stride, int lines, int count) {
  const auto bytes_between = static_cast<std::uint64_t>(stride) * sizeof(T);
  const std::uint64_t bits = reinterpret_cast<std::uintptr_t>(address) |
                             (lines > 1 ? bytes_between : 0) |
                             static_cast<std::uint64_t>(count) * sizeof(T) | kVector;
  return static_cast<int>(bits & (~bits + 1));  // the lowest that is set
}

// Calls body(std::integral_constant<int, bytes>) for pieces of that size, from an element's up to
// `kMost`.
template <class T, int kMost, class Body>
ISOBIT_DEVICE void with_pieces(int bytes, const Body& body) {
  if constexpr (kMost > static_cast<int>(sizeof(T)))
    if (bytes != kMost) return with_pieces<T, kMost / 2>(bytes, body);
  body(std::integral_constant<int, kMost>{});
}

// A vector in registers.
struct Words {
  std::uint32_t words[4];
};
template <class P>
ISOBIT_DEVICE Words words_of(const P& piece) {
  static_assert(sizeof(P) == sizeof(Words));
  return __builtin_bit_cast(Words, piece);
}

// Rows of vectors of x become rows of vectors of y, as many elements high as one holds. Elements
// of less than a word are put together by hand: as elements they would each take a register.
template <class From, class To>
struct Turn {
  using X = Piece<From>;
  using Y = Piece<To>;
  static constexpr int kRows = Y::kSize, kCols = X::kSize;

  // Calls give(column, vector of y) for each column, once there is all of it: so that few of them
  // take registers beside x.
  template <class Give>
  ISOBIT_DEVICE static void run(const Words (&x)[kRows], const Give& give) {
    if constexpr (std::is_same_v<From, To> && sizeof(From) == 1)
      run_bytes(x, give);
    else if constexpr (std::is_same_v<From, To> && sizeof(From) == 2)
      run_halves(x, give);
    else
      run_elements(x, give);
  }

 private:
  static constexpr unsigned kLowHalves = 0x5410, kHighHalves = 0x7632;
  static constexpr unsigned kLeftBytes = 0x5140, kRightBytes = 0x7362;

  template <class Give>
  ISOBIT_DEVICE static void run_halves(const Words (&x)[kRows], const Give& give) {
#pragma unroll
    for (int word = 0; word < 4; ++word) {
      Words y[2];
#pragma unroll
      for (int row = 0; row < kRows; row += 2) {
        const std::uint32_t a = x[row].words[word], b = x[row + 1].words[word];
        y[0].words[row / 2] = simt::pick_bytes(a, b, kLowHalves);
        y[1].words[row / 2] = simt::pick_bytes(a, b, kHighHalves);
      }
#pragma unroll
      for (int i = 0; i < 2; ++i) give(2 * word + i, __builtin_bit_cast(Y, y[i]));
    }
  }

  // Squares of four rows and four columns: first bytes change sides, then halves.
  template <class Give>
  ISOBIT_DEVICE static void run_bytes(const Words (&x)[kRows], const Give& give) {
#pragma unroll
    for (int word = 0; word < 4; ++word) {
      Words y[4];
#pragma unroll
      for (int row = 0; row < kRows; row += 4) {
        const std::uint32_t a = x[row].words[word], b = x[row + 1].words[word];
        const std::uint32_t c = x[row + 2].words[word], d = x[row + 3].words[word];
        const std::uint32_t left_ab = simt::pick_bytes(a, b, kLeftBytes);
        const std::uint32_t left_cd = simt::pick_bytes(c, d, kLeftBytes);
        const std::uint32_t right_ab = simt::pick_bytes(a, b, kRightBytes);
        const std::uint32_t right_cd = simt::pick_bytes(c, d, kRightBytes);
        y[0].words[row / 4] = simt::pick_bytes(left_ab, left_cd, kLowHalves);
        y[1].words[row / 4] = simt::pick_bytes(left_ab, left_cd, kHighHalves);
        y[2].words[row / 4] = simt::pick_bytes(right_ab, right_cd, kLowHalves);
        y[3].words[row / 4] = simt::pick_bytes(right_ab, right_cd, kHighHalves);
      }
#pragma unroll
      for (int i = 0; i < 4; ++i) give(4 * word + i, __builtin_bit_cast(Y, y[i]));
    }
  }

  template <class Give>
  ISOBIT_DEVICE static void run_elements(const Words (&x)[kRows], const Give& give) {
#pragma unroll
    for (int col = 0; col < kCols; ++col) {
      Y y;
#pragma unroll
      for (int row = 0; row < kRows; ++row)
        y.elements[row] = converted<To>(__builtin_bit_cast(X, x[row]).elements[col]);
      give(col, y);
    }
  }
};

}  // namespace isobit::transpose
