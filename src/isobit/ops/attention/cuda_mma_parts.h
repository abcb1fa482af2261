// SPDX-License-Identifier: Apache-2.0
// What the kernels by tensor cores share: a warp's 16 rows times the columns of a panel, along a
// part of a head; what becomes of those, times the panel; and how rows leave.
#pragma once

#include <cstdint>

#include "isobit/ops/attention/cuda_narrow.h"
#include "isobit/ops/attention/problem.h"
#include "isobit/simt/simt.h"
#include "isobit/tile/matrix_tile.h"
#include "isobit/tile/scalar.h"

namespace isobit::attention::mma {

constexpr int kPart = 64;  // elements of a head that pass through shared memory at once
constexpr int kPlaces = 3;
constexpr int kStep = 16;           // of a product's sum
constexpr int kOfPart = kPart / 8;  // eights of columns of a part

// A lane has two rows of a product, 8 below each other, and there the two columns 2 * (lane % 4) of
// every eight: as one product leaves them, and the next takes them.
using Sums = float[kOfPart][4];

ISOBIT_EITHER std::int64_t parts_of(std::int64_t dim) { return (dim + kPart - 1) / kPart; }
// One even where there is nothing to multiply.
ISOBIT_EITHER int turns_of(std::int64_t dim) {
  return dim == 0 ? 1 : static_cast<int>(parts_of(dim));
}
ISOBIT_DEVICE int inside(std::int64_t rest, int most) {
  return static_cast<int>(Problem::within(rest, most));
}
ISOBIT_DEVICE int warp() { return simt::thread() / simt::kWarpThreads; }
ISOBIT_DEVICE int row_of(int r) { return warp() * 16 + simt::lane() / 4 + r * 8; }
ISOBIT_DEVICE int column() { return simt::lane() % 4 * 2; }
// Whether a step from `at` on has any of the columns that are seen.
ISOBIT_DEVICE bool meets(const Range& seen, int at) {
  return seen.begin < at + kStep && at < seen.end;
}

// Whether ranges decide which keys are there, and scores are products but for a factor.
ISOBIT_EITHER bool is_plain(const Problem& p) {
  return !(p.softcap != 0 || p.bias || p.mask || p.slopes);
}

// Every row of every head begins at 16 bytes.
inline bool in_pieces(const Array& array) {
  return array.col == 1 && reinterpret_cast<std::uintptr_t>(array.data) % 16 == 0 &&
         array.batch % 8 == 0 && array.head % 8 == 0 && array.row % 8 == 0;
}

// Of a warp's rows and the columns of a panel, lines of operands; `depth` elements are there.
template <class T, class Rows, class Columns, int kEights>
ISOBIT_DEVICE void multiply_part(const Rows& rows, const Columns& columns, int depth,
                                 const Range& seen, float (&sums)[kEights][4]) {
#pragma unroll 1
  for (int d = 0; d < depth; d += kStep) {
    unsigned taken[4];
    rows.take(warp() * 16, d, taken);
#pragma unroll
    for (int j = 0; j < kEights / 2; ++j) {
      if (!meets(seen, j * kStep)) continue;
      unsigned words[4];
      columns.take(j * kStep, d, words);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const unsigned cols[2] = {words[half], words[half + 2]};
        simt::multiply_add<T>(sums[2 * j + half], taken, cols);
      }
    }
  }
}

// Whether a sum of any lane is not finite.
ISOBIT_DEVICE bool is_spoilt(const Sums& chain) {
  using S = tile::Scalar<float>;
  float spoilt = 0;
#pragma unroll
  for (const auto& each : chain)
#pragma unroll
    for (const float sum : each) spoilt = S::fma(sum, 0.0F, spoilt);
  return simt::ballot(spoilt != 0) != 0;  // NaN is not 0
}
ISOBIT_DEVICE void clear(Sums& chain) {
#pragma unroll
  for (auto& each : chain)
#pragma unroll
    for (float& sum : each) sum = 0;
}

// Adds the weights of a warp's rows times a part of the panel's lines; only_finite: with zeros
// in the place of what is not finite there.
template <class T, int kSteps>
ISOBIT_DEVICE void add_panel(T* place, const Range& seen, const unsigned (&weights)[kSteps][4],
                             bool only_finite, Sums& chain) {
  const tile::OperandTile<T, kPart, kSteps * kStep, false> values(place);
#pragma unroll
  for (int step = 0; step < kSteps; ++step) {
    if (!meets(seen, step * kStep)) continue;
#pragma unroll
    for (int j = 0; j < kOfPart / 2; ++j) {
      unsigned words[4];
      values.take(16 * j, step * kStep, words);
      if (only_finite) {
#pragma unroll
        for (unsigned& word : words) word = finite<T>(word);
      }
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const unsigned cols[2] = {words[half], words[half + 2]};
        simt::multiply_add<T>(chain[2 * j + half], weights[step], cols);
      }
    }
  }
}
// The sums begin again, with what is not finite in a panel: it reaches the rows that see it alone.
template <class T, int kSteps>
ISOBIT_DEVICE void begin_again(T* place, const unsigned (&weights)[kSteps][4], Sums& chain) {
  clear(chain);
  begin_with_what_is_not_finite<T>(tile::MatrixTile<T, kSteps * kStep, kPart>(place), weights,
                                   chain);
}

// The weights of a warp's rows times a part of the panel's lines, whatever these hold.
template <class T, int kSteps>
ISOBIT_DEVICE void multiply_panel(T* place, const Range& seen, const unsigned (&weights)[kSteps][4],
                                  Sums& chain) {
  clear(chain);
  bool endless = false;
#pragma unroll 1
  for (int turn = 0; turn < 2; ++turn) {
    add_panel<T>(place, seen, weights, endless, chain);
    if (endless) break;
    endless = is_spoilt(chain);
    if (!endless) break;
    begin_again<T>(place, weights, chain);
  }
}

// A part of a warp's rows of results by way of shared memory, `own` rows of a part, so that
// neighbours in a row are neighbours in a warp. words(j, pair) gives two words, of a lane's two
// rows; `to` is the first row, of which `rows` are there.
template <class T, class Words>
ISOBIT_DEVICE void put_part(T* own, const Array& array, std::byte* to, int rows, std::int64_t cols,
                            bool in_pieces, int part, const Words& words) {
  const tile::MatrixTile<T, 16, kPart> lines(own);
#pragma unroll
  for (int j = 0; j < kOfPart; ++j) {
    unsigned pair[2];
    words(j, pair);
#pragma unroll
    for (int r = 0; r < 2; ++r)
      simt::store_shared(
          reinterpret_cast<unsigned*>(lines.piece(8 * r, simt::lane() / 4, j) + column()), pair[r]);
  }
  simt::sync_warp();
#pragma unroll 1
  for (int i = simt::lane(); i < 16 * kOfPart; i += simt::kWarpThreads) {
    const int line = i / kOfPart, piece = i % kOfPart;
    const std::int64_t col = part * kPart + piece * tile::kPiece<T>;
    if (line >= rows || col >= cols) continue;
    // No simt::load_shared: of its promise nvcc makes that nobody comes here.
    const tile::RawPiece<T> found =
        *reinterpret_cast<const tile::RawPiece<T>*>(lines.piece(line / 8 * 8, line % 8, piece));
    T* const at = reinterpret_cast<T*>(to) + line * array.row + col * array.col;
    if (in_pieces && col + tile::kPiece<T> <= cols) {
      simt::store(reinterpret_cast<tile::RawPiece<T>*>(at), found);
    } else {
#pragma unroll
      for (int e = 0; e < tile::kPiece<T>; ++e)
        if (col + e < cols) at[e * array.col] = found.elements[e];
    }
  }
  simt::sync_warp();
}

}  // namespace isobit::attention::mma
