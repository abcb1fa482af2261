// SPDX-License-Identifier: Apache-2.0
// The kernels that move one element a thread: tiles by way of shared memory, and straight on. They
// take any strides.
#pragma once

#include <cstdint>
#include <utility>

#include "isobit/ops/transpose/cuda_tiles.h"
#include "isobit/simt/simt.h"

namespace isobit::transpose {

// Tiles of 32 x 32. A row of shared memory has one element more, so that a column of it lies in
// different banks.
template <class From, class To>
struct Elements {
  static constexpr int kMostThreads = 512;
  static constexpr int kSide = simt::kWarpThreads, kPitch = kSide + 1;
  Tiles<From, To> tiles;
  int threads;  // whole warps, each of which has a row at a time

  Elements(const Problem& problem, int threads) : tiles(problem, kSide, kSide), threads(threads) {}

  template <class Carver>
  ISOBIT_EITHER To* memory(Carver& carver) const {
    return carver.template take<To>(kSide * kPitch);
  }

  ISOBIT_DEVICE void operator()(To* shared) const {
    const int lane = simt::lane(), warp = simt::thread() / kSide, warps = simt::threads() / kSide;
    const std::int64_t x_row = tiles.rows.x_stride, x_col = tiles.cols.x_stride;
    const std::int64_t y_row = tiles.rows.y_stride, y_col = tiles.cols.y_stride;
    for (std::int64_t index = simt::block(); index < tiles.count(); index += simt::blocks()) {
      if (index != simt::block()) simt::sync_block();  // the last tile has been read
      const Tile<From, To> tile = tiles[index];
#pragma unroll 4
      for (int i = warp; i < tile.rows; i += warps)
        if (lane < tile.cols)
          shared[i * kPitch + lane] = converted<To>(tile.x[i * x_row + lane * x_col]);
      simt::sync_block();
#pragma unroll 4
      for (int j = warp; j < tile.cols; j += warps)
        if (lane < tile.rows) tile.y[j * y_col + lane * y_row] = shared[lane * kPitch + j];
    }
  }
};

// Each thread goes straight from x to y, beside others that are beside it in y.
template <class From, class To>
struct Naive {
  static constexpr int kMostThreads = 512;
  Tiles<From, To> tiles;  // of one element
  int threads;

  Naive(const Problem& problem, int threads) : tiles(along_y(problem), 1, 1), threads(threads) {}

  ISOBIT_EITHER std::int64_t blocks() const { return (tiles.count() + threads - 1) / threads; }

  ISOBIT_DEVICE void operator()() const {
    const std::int64_t step = simt::blocks() * simt::threads();
    for (std::int64_t index = simt::block() * simt::threads() + simt::thread();
         index < tiles.count(); index += step) {
      const Tile<From, To> tile = tiles[index];
      *tile.y = converted<To>(*tile.x);
    }
  }

 private:
  // Elements are counted along cols.
  static Problem along_y(Problem problem) {
    if (!problem.copies()) std::swap(problem.rows, problem.cols);
    return problem;
  }
};

}  // namespace isobit::transpose
