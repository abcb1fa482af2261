// SPDX-License-Identifier: Apache-2.0
// Sums over rows on a GPU, in the tree of core/order.h. A thread adds runs of rows in registers and
// folds those of its own tile, an aligned subtree, through memory that no other thread sees; a
// second kernel folds the tiles.
#pragma once

#include <cmath>
#include <cstdint>

#include "isobit/core/order.h"
#include "isobit/core/pieces.h"
#include "isobit/norms/cuda_arrays.h"
#include "isobit/norms/problem.h"
#include "isobit/simt/simt.h"
#include "isobit/tile/pairs.h"

namespace isobit::norms {

// How the runs of all rows are dealt: tiles of adjacent runs to groups of threads, in turn.
struct Tiles {
  std::int64_t runs, size, count, groups;  // size: runs of a tile, a power of two

  Tiles(std::int64_t rows, std::int64_t size, std::int64_t groups = 0)
      : runs((rows + order::kRun - 1) / order::kRun),
        size(size),
        count((runs + size - 1) / size),
        groups(groups) {}

  ISOBIT_EITHER int levels() const {
    int levels = 0;
    while (size >> levels > 1) ++levels;
    return levels;
  }
  ISOBIT_DEVICE std::int64_t runs_of(std::int64_t tile) const {
    return runs - tile * size < size ? runs - tile * size : size;
  }
  // The row that a group has after this one.
  ISOBIT_DEVICE std::int64_t after(std::int64_t row, std::int64_t groups) const {
    const std::int64_t rows = size * order::kRun;  // of a tile
    return (row + 1) % rows != 0 ? row + 1 : row + 1 + (groups - 1) * rows;
  }
};

// The largest tile with which `groups` in turns are done soonest.
inline std::int64_t best_tile(std::int64_t rows, std::int64_t groups, std::int64_t most) {
  const auto time = [&](std::int64_t size) {
    const std::int64_t tiles = Tiles(rows, size).count;
    return (tiles + groups - 1) / groups * size;
  };
  std::int64_t best = 1;
  for (std::int64_t size = 2; size <= most; size *= 2)
    if (time(size) <= time(best)) best = size;
  return best;
}

// The memory of such sums: kKinds arrays of all columns for each tile, and for each level of a
// group's tile. A warp's part of an array lies as the warp moves it: the first vectors of all its
// lanes' pieces, then the second ones.
template <class Real, int kKinds>
struct TileSums {
  static constexpr int kVector = tile::kPieceBytes / static_cast<int>(sizeof(Real));

  Real *totals, *pending;
  int elements;       // of a piece
  std::int64_t half;  // elements of one kind: the columns, and what fills the last warp's part

  TileSums(const Tiles& tiles, std::int64_t cols, int elements, Pieces& pieces)
      : elements(elements), half((cols + warp(elements) - 1) / warp(elements) * warp(elements)) {
    const std::int64_t bytes = kKinds * half * static_cast<std::int64_t>(sizeof(Real));
    totals = reinterpret_cast<Real*>(pieces.take(tiles.count * bytes));
    pending = reinterpret_cast<Real*>(pieces.take(tiles.groups * tiles.levels() * bytes));
  }

  ISOBIT_DEVICE Real* total(std::int64_t tile) const { return totals + tile * kKinds * half; }
  ISOBIT_DEVICE Real* waiting(std::int64_t group, int level, int levels) const {
    return pending + (group * levels + level) * kKinds * half;
  }

  // Where the sum of a column lies in its array.
  ISOBIT_DEVICE static int place(int col, int elements) {
    const int in_warp = col % warp(elements);
    const int lane = in_warp / elements, in_piece = in_warp % elements;
    return col - in_warp + in_piece / kVector * warp(kVector) + lane * kVector + in_piece % kVector;
  }

 private:
  ISOBIT_EITHER static constexpr int warp(int elements) { return simt::kWarpThreads * elements; }
};

// The sums of the run that a thread is at, of its pieces.
template <class Real, int kKinds, int kElements, int kPieces>
class RunSums {
 public:
  ISOBIT_DEVICE void clear() {
#pragma unroll
    for (int kind = 0; kind < kKinds; ++kind)
#pragma unroll
      for (int p = 0; p < kPieces; ++p)
#pragma unroll
        for (int i = 0; i < kElements; ++i) of_[kind][p][i] = 0;
  }

  ISOBIT_DEVICE void add(const Place& place, const Real (&grad_y)[kElements],
                         const Real (&xhat)[kElements]) {
#pragma unroll
    for (int p = 0; p < kPieces; ++p) {
      if (p != place.index) continue;
#pragma unroll
      for (int i = 0; i < kElements; ++i) {
        of_[0][p][i] = std::fma(grad_y[i], xhat[i], of_[0][p][i]);
        if constexpr (kKinds == 2) of_[1][p][i] += grad_y[i];
      }
    }
  }

  // After the last row of a tile's run. place_at(p) tells where piece p stands.
  template <class PlaceAt>
  ISOBIT_DEVICE void end_run(const Tiles& tiles, const TileSums<Real, kKinds>& memory,
                             std::int64_t group, std::int64_t tile, std::int64_t run,
                             const PlaceAt& place_at) {
    const bool last = run + 1 == tiles.runs_of(tile);
    const int levels = tiles.levels();
    int level = 0;
    for (; run >> level != 0; ++level) {
      if (run >> level & 1)
        add(memory.waiting(group, level, levels), memory.half, place_at);
      else if (!last)
        break;
    }
    store(last ? memory.total(tile) : memory.waiting(group, level, levels), memory.half, place_at);
  }

 private:
  static constexpr int kVector = TileSums<Real, kKinds>::kVector;

  template <class PlaceAt>
  ISOBIT_DEVICE void add(const Real* earlier, std::int64_t half, const PlaceAt& place_at) {
    for_each_vector(half, place_at, [&](std::int64_t at, Real* sums) {
      Real before[kVector];
      tile::load_piece(earlier + at, kVector, true, before);
#pragma unroll
      for (int i = 0; i < kVector; ++i) sums[i] = before[i] + sums[i];
    });
  }
  template <class PlaceAt>
  ISOBIT_DEVICE void store(Real* to, std::int64_t half, const PlaceAt& place_at) {
    for_each_vector(half, place_at, [&](std::int64_t at, const Real* sums) {
      Real vector[kVector];
#pragma unroll
      for (int i = 0; i < kVector; ++i) vector[i] = sums[i];
      tile::store_piece(to + at, kVector, true, vector);
    });
  }
  template <class PlaceAt, class Body>
  ISOBIT_DEVICE void for_each_vector(std::int64_t half, const PlaceAt& place_at, const Body& body) {
#pragma unroll
    for (int p = 0; p < kPieces; ++p)
      if (const Place place = place_at(p); place.left > 0)
#pragma unroll
        for (int kind = 0; kind < kKinds; ++kind)
#pragma unroll
          for (int i = 0; i < kElements; i += kVector)
            body(kind * half + TileSums<Real, kKinds>::place(place.col + i, kElements),
                 &of_[kind][p][i]);
  }

  Real of_[kKinds][kPieces][kElements];
};

// Folds the tiles' sums and writes the gradients of weight and bias. A block takes 32 columns of
// one kind, each of its warps an aligned part of the tiles.
template <class Real, int kKinds>
struct FoldTiles {
  static constexpr int kMostWarps = 32, kMostThreads = kMostWarps * simt::kWarpThreads;
  static constexpr int kTogether = 16;  // tiles whose sums are fetched at once
  using Memory = Real*;

  TileSums<Real, kKinds> sums;
  std::int64_t tiles, cols;
  void* gradients[2];  // of weight and bias; null where nobody wants them
  DType dtype;
  int warps;

  FoldTiles(const TileSums<Real, kKinds>& sums, const Tiles& tiles, const BackwardProblem& problem)
      : sums(sums),
        tiles(tiles.count),
        cols(problem.cols),
        gradients{problem.grad_weight, problem.grad_bias},
        dtype(problem.weight_dtype),
        warps(1) {
    while (warps < kMostWarps && warps * kTogether < tiles.count) warps *= 2;
  }

  simt::LaunchShape shape() const {
    return {.blocks = kKinds * ((cols + simt::kWarpThreads - 1) / simt::kWarpThreads),
            .threads = warps * simt::kWarpThreads};
  }

  template <class Carver>
  ISOBIT_EITHER Memory memory(Carver& carver) const {
    return carver.template take<Real>(warps * simt::kWarpThreads);
  }

  ISOBIT_DEVICE void operator()(Memory parts) const {
    const auto kind = static_cast<int>(simt::block() % kKinds);
    const std::int64_t col = simt::block() / kKinds * simt::kWarpThreads + simt::lane();
    const int warp = simt::thread() / simt::kWarpThreads;
    std::int64_t share = 1;
    while (share * warps < tiles) share *= 2;
    parts[simt::thread()] = col < cols ? sum(sums.total(0) + kind * sums.half +
                                                 sums.place(static_cast<int>(col), sums.elements),
                                             warp * share, share)
                                       : Real(0);
    simt::sync_block();
    if (warp != 0 || col >= cols) return;
    Real level[kMostWarps];
#pragma unroll
    for (int i = 0; i < kMostWarps; ++i)
      level[i] = i < warps ? parts[i * simt::kWarpThreads + simt::lane()] : Real(0);
    write(gradients[kind], col, tile::pairs(level));
  }

 private:
  // Of tiles from `begin` on. Zeros in the place of what is not there change no more than the sign
  // of a zero.
  ISOBIT_DEVICE Real sum(const Real* column, std::int64_t begin, std::int64_t share) const {
    Real waiting[tile::kMostWaiting];
    tile::PairTree<Real> tree(waiting);
    for (std::int64_t first = begin; first < begin + share && first < tiles; first += kTogether) {
      Real level[kTogether];
#pragma unroll
      for (int i = 0; i < kTogether; ++i) {
        const std::int64_t tile = first + i;
        level[i] = tile < tiles && i < share ? column[tile * kKinds * sums.half] : Real(0);
      }
      tree.push(tile::pairs(level));
    }
    return tree.total();
  }

  ISOBIT_DEVICE void write(void* to, std::int64_t col, Real value) const {
    const auto set = [&]<class T>(T* gradient) {
      gradient[col] = simt::Conversions::narrow<T>(value);
    };
    if (to == nullptr) return;
    if (dtype == DType::f32) return set(static_cast<float*>(to));
    if constexpr (std::is_same_v<Real, double>)
      set(static_cast<double*>(to));
    else if (dtype == DType::bf16)
      set(static_cast<bf16*>(to));
    else
      set(static_cast<f16*>(to));
  }
};

}  // namespace isobit::norms
