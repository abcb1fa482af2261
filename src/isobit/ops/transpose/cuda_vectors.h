// SPDX-License-Identifier: Apache-2.0
// Tiles that move in vectors of 16 bytes on both sides, or in the widest pieces that their lines
// lie on, by way of shared memory; and rows that keep their direction.
#pragma once

#include <bit>
#include <cstdint>

#include "isobit/ops/transpose/cuda_tiles.h"
#include "isobit/simt/simt.h"

namespace isobit::transpose {

// A thread turns a few vectors of x in registers: then whole vectors go to shared memory, and come
// from it in the order of y's rows. There a row's vectors are exchanged, so that eight threads
// which write to eight rows, or read eight vectors of one, find eight different groups of banks.
// `kWhole`: all lines of both arrays are whole vectors.
template <class From, class To, bool kWhole>
struct Vectors {
  using Turn = transpose::Turn<From, To>;
  using X = typename Turn::X;
  using Y = typename Turn::Y;
  static constexpr int kRows = Turn::kRows, kCols = Turn::kCols;
  // Blocks have 256 at most; the bound leaves registers for several of them.
  static constexpr int kMostThreads = !kWhole      ? (kRows * kCols < 256 ? 512 : 256)
                                      : kRows <= 4 ? 1024
                                      : kRows <= 8 ? 768
                                                   : 512;

  // Vectors from row to row in shared memory, known here so that addresses take no registers.
  static constexpr int kPitch = 16;

  Tiles<From, To> tiles;
  int threads, across_log, down_log;  // threads beside each other in a row of x, and in one of y

  Vectors(const Problem& problem, int across_log, int down_log)
      : tiles(problem, kRows << down_log, kCols << across_log),
        threads(1 << (across_log + down_log)),
        across_log(across_log),
        down_log(down_log) {}

  template <class Carver>
  ISOBIT_EITHER std::byte* memory(Carver& carver) const {
    const int rows = tiles.height > tiles.width ? tiles.height : tiles.width;  // of x, or of y
    return carver.template take<std::byte>(std::int64_t{rows} * kPitch * kVector, 128);
  }

  ISOBIT_DEVICE void operator()(std::byte* shared) const {
    const int col = simt::thread() & ((1 << across_log) - 1), row = simt::thread() >> across_log;
#pragma unroll 1
    for (std::int64_t index = simt::block(); index < tiles.count(); index += simt::blocks()) {
      if (index != simt::block()) simt::sync_block();  // the last tile has been read
      const Tile<From, To> tile = tiles[index];
      Words x[kRows] = {};
      load(tile, row * kRows, col, shared, x);
      Y* to = reinterpret_cast<Y*>(shared) + place(col * kCols, row);
      Turn::run(x, [&](int k, const Y& y) { simt::store_shared(to + k * kPitch, y); });
      simt::sync_block();
      if constexpr (kWhole) {
        scatter<kVector>(tile, shared);
      } else {
        const int bytes = piece_bytes(tile.y, tiles.cols.y_stride, tile.cols, tile.rows);
        with_pieces<To, kVector>(bytes, [&](auto size) { scatter<size()>(tile, shared); });
      }
    }
  }

 private:
  // Where shared memory has a vector of a row of y.
  ISOBIT_DEVICE static int place(int y_row, int vector) {
    return y_row * kPitch + (vector ^ (y_row / kCols & 7));
  }

  ISOBIT_DEVICE void load(const Tile<From, To>& tile, int first_row, int vector, std::byte* shared,
                          Words (&x)[kRows]) const {
    const std::int64_t stride = tiles.rows.x_stride;
    const int bytes = kWhole ? kVector : piece_bytes(tile.x, stride, tile.rows, tile.cols);
    if (kWhole || bytes == kVector) {
      const From* from = tile.x + first_row * stride + vector * kCols;
      const int rows = vector * kCols < tile.cols ? tile.rows - first_row : 0;
#pragma unroll
      for (int k = 0; k < kRows; ++k) {
        if (k < rows) x[k] = words_of(simt::load_once(reinterpret_cast<const X*>(from)));
        from += stride;
      }
      return;
    }
    // Threads that lie side by side read side by side, and take their vectors from shared memory.
    with_pieces<From, kVector / 2>(bytes, [&](auto size) { gather<size()>(tile, shared); });
    simt::sync_block();
    const auto* from = reinterpret_cast<const X*>(shared) + first_row * kPitch + vector;
#pragma unroll
    for (int k = 0; k < kRows; ++k) x[k] = words_of(simt::load_shared(from + k * kPitch));
    simt::sync_block();
  }

  // A tile of x to shared memory, row by row.
  template <int kBytes>
  ISOBIT_DEVICE void gather(const Tile<From, To>& tile, std::byte* shared) const {
    using P = Piece<From, kBytes>;
    constexpr int kInVector = kVector / kBytes, kAtOnce = 8;
    const int in_row_log = across_log + std::countr_zero(unsigned{kInVector});
    const int pieces = tile.rows << in_row_log, whole = tile.cols / P::kSize;
    const auto each = [&](int i, const auto& visit) {
      const int row = i >> in_row_log, piece = i & ((1 << in_row_log) - 1);
      if (i < pieces && piece < whole) visit(row, piece);
    };
#pragma unroll 1
    for (int first = simt::thread(); first < pieces; first += kAtOnce * simt::threads()) {
      P read[kAtOnce];
#pragma unroll
      for (int k = 0; k < kAtOnce; ++k)
        each(first + k * simt::threads(), [&](int row, int piece) {
          const From* from = tile.x + row * tiles.rows.x_stride;
          read[k] = simt::load_once(reinterpret_cast<const P*>(from) + piece);
        });
#pragma unroll
      for (int k = 0; k < kAtOnce; ++k)
        each(first + k * simt::threads(), [&](int row, int piece) {
          simt::store_shared(reinterpret_cast<P*>(shared) + row * kPitch * kInVector + piece,
                             read[k]);
        });
    }
  }

  // A tile of y from shared memory, row by row.
  template <int kBytes>
  ISOBIT_DEVICE void scatter(const Tile<From, To>& tile, const std::byte* shared) const {
    using P = Piece<To, kBytes>;
    constexpr int kInVector = kVector / kBytes;
    const int in_row_log = down_log + std::countr_zero(unsigned{kInVector});
    const int pieces = tile.cols << in_row_log, whole = tile.rows / P::kSize;
#pragma unroll 4
    for (int i = simt::thread(); i < pieces; i += simt::threads()) {
      const int row = i >> in_row_log, piece = i & ((1 << in_row_log) - 1);
      if (piece >= whole) continue;
      const int at = place(row, piece / kInVector) * kInVector + piece % kInVector;
      const P value = simt::load_shared(reinterpret_cast<const P*>(shared) + at);
      simt::store_once(reinterpret_cast<P*>(tile.y + row * tiles.cols.y_stride) + piece, value);
    }
  }
};

// Where both arrays are adjacent along rows of x nothing is turned. Lanes lie along a row, as many
// as it has vectors; what a thread has more than one of lies further along it, or in other rows.
template <class From, class To>
struct Rows {
  static constexpr int kMostThreads = sizeof(From) + sizeof(To) == 2 ? 512 : 1024;  // as above
  static constexpr int kPieces = 4;                                                 // of a thread
  // The wider type fills a vector.
  static constexpr int kSize = kVector / (sizeof(From) > sizeof(To) ? sizeof(From) : sizeof(To));
  using X = Piece<From, kSize * sizeof(From)>;
  using Y = Piece<To, kSize * sizeof(To)>;

  Tiles<From, To> tiles;
  int threads, across_log;
  bool along;  // a row has more vectors than a block has threads

  Rows(const Problem& problem, int threads)
      : Rows(problem, threads, log_of_vectors(problem, threads)) {}

  ISOBIT_DEVICE void operator()() const {
    const int col = simt::thread() & ((1 << across_log) - 1), row = simt::thread() >> across_log;
    const int next_col = along ? simt::threads() : 0;
    const int next_row = along ? 0 : simt::threads() >> across_log;
#pragma unroll 1
    for (std::int64_t index = simt::block(); index < tiles.count(); index += simt::blocks()) {
      const Tile<From, To> tile = tiles[index];
      const int x_bytes = piece_bytes(tile.x, tiles.rows.x_stride, tile.rows, tile.cols);
      const int y_bytes = piece_bytes(tile.y, tiles.rows.y_stride, tile.rows, tile.cols);
      const bool vectors =
          x_bytes >= static_cast<int>(sizeof(X)) && y_bytes >= static_cast<int>(sizeof(Y));
      if (!vectors) {
        copy_elements(tile);
        continue;
      }
      X x[kPieces];
#pragma unroll
      for (int k = 0; k < kPieces; ++k) {
        const int i = row + k * next_row, j = (col + k * next_col) * kSize;
        if (i < tile.rows && j < tile.cols)
          x[k] = simt::load_once(reinterpret_cast<const X*>(tile.x + i * tiles.rows.x_stride + j));
      }
#pragma unroll
      for (int k = 0; k < kPieces; ++k) {
        const int i = row + k * next_row, j = (col + k * next_col) * kSize;
        if (i < tile.rows && j < tile.cols)
          simt::store_once(reinterpret_cast<Y*>(tile.y + i * tiles.rows.y_stride + j), as_y(x[k]));
      }
    }
  }

 private:
  Rows(const Problem& problem, int threads, int across_log)
      : tiles(problem, is_along(problem, threads) ? 1 : kPieces * (threads >> across_log),
              (is_along(problem, threads) ? kPieces : 1) * (kSize << across_log)),
        threads(threads),
        across_log(across_log),
        along(is_along(problem, threads)) {}

  static int log_of_vectors(const Problem& problem, int threads) {
    int log = 0;
    while ((2 << log) <= threads && (std::int64_t{kSize} << log) < problem.cols.extent) ++log;
    return log;
  }
  static bool is_along(const Problem& problem, int threads) {
    return problem.cols.extent > std::int64_t{threads} * kSize;
  }

  ISOBIT_DEVICE static Y as_y(const X& x) {
    Y y;
#pragma unroll
    for (int i = 0; i < kSize; ++i) y.elements[i] = converted<To>(x.elements[i]);
    return y;
  }

  // Lanes side by side on adjacent elements.
  ISOBIT_DEVICE void copy_elements(const Tile<From, To>& tile) const {
    const int lanes = 1 << across_log;
#pragma unroll 1
    for (int i = simt::thread() >> across_log; i < tile.rows; i += simt::threads() >> across_log)
#pragma unroll 4
      for (int j = simt::thread() & (lanes - 1); j < tile.cols; j += lanes)
        tile.y[i * tiles.rows.y_stride + j] = converted<To>(tile.x[i * tiles.rows.x_stride + j]);
  }
};

}  // namespace isobit::transpose
