// SPDX-License-Identifier: Apache-2.0
// Tiles of sums in registers, whose operands come to shared memory from wherever they are.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "isobit/core/order.h"
#include "isobit/ops/matmul/cuda_call.h"
#include "isobit/ops/matmul/problem.h"
#include "isobit/simt/simt.h"
#include "isobit/tile/register_tile.h"

namespace isobit::matmul {

// Lanes of an operand of a tile as they lie in memory.
template <class T>
struct Lanes {
  const T* from;
  std::int64_t lane_stride, k_stride, count;

  template <int kSide, int kDepth, int kPitch>
  ISOBIT_DEVICE void bring(std::int64_t k, std::int64_t depth, RealOf<T>* to) const {
    tile::bring<kSide, kDepth, kPitch>(from + k * k_stride, lane_stride, k_stride, count, depth,
                                       to);
  }
};
template <class T>
struct RowsOfA {
  ISOBIT_DEVICE static Lanes<T> of(const Call<T>& call, const Tile& tile) {
    return {call.of_a(tile.product) + tile.row * call.a.row, call.a.row, call.a.col,
            call.m - tile.row};
  }
};
template <class T>
struct ColumnsOfB {
  ISOBIT_DEVICE static Lanes<T> of(const Call<T>& call, const Tile& tile) {
    return {call.of_b(tile.product) + tile.col * call.b.col, call.b.col, call.b.row,
            call.n - tile.col};
  }
};

// How many sums of each element wait to be added, of a run or a panel each; 0: none.
ISOBIT_EITHER std::int64_t sums_of_product(std::int64_t k, int parts) {
  const std::int64_t of = parts > 1 ? order::kPanel : kRunK;
  return k <= of ? 0 : (k + of - 1) / of;
}

// A and B: where its operands come from, for each tile; C: what becomes of a sum. Shared memory
// holds kDepth of k of a tile; each of 16 x 16 threads has kEach x kEach sums, in pieces of 16
// bytes. A run of k a block; where there are several, their sums wait in `sums`. Or several blocks
// a run, to which its panels are dealt: then the sum of each panel waits.
template <class T, int kEach, class A = RowsOfA<T>, class B = ColumnsOfB<T>, class C = Call<T>>
struct RegisterTiled {
  static constexpr int kMostThreads = 256;
  static constexpr int kAcross = tile::kAcross, kDepth = 16, kSide = kAcross * kEach;
  using Real = RealOf<T>;
  static constexpr int kPitch = kSide + tile::Chunk<Real>::kCount;
  static_assert(kAcross <= kDepth, "put() leaves so many rows where operands were");
  C call;
  Tiles tiles;
  Real* sums;  // product, run or panel, row, column
  A a;
  B b;

  RegisterTiled(const C& call, std::byte* workspace, const A& a = {}, const B& b = {},
                int splits = 1)
      : call(call),
        tiles(call, kSide, splits),
        sums(reinterpret_cast<Real*>(workspace)),
        a(a),
        b(b) {}

  struct Memory {
    Real *a, *b;
  };
  template <class Carver>
  ISOBIT_EITHER Memory memory(Carver& carver) const {
    Real* const a = carver.template take<Real>(kDepth * kPitch);
    return {a, carver.template take<Real>(kDepth * kPitch)};
  }

  ISOBIT_DEVICE void operator()(const Memory& shared) const {
#pragma unroll 1
    for (std::int64_t index = simt::block(); index < tiles.count(); index += simt::blocks()) {
      const Tile tile = tiles[index];
      // Panels, counted from the beginning of k.
      int panel = static_cast<int>(tile.run) * order::kRun + tile.part * tiles.panels;
      const int end = tiles.end_of(tile, panel);
      if (panel >= end && panel > 0) continue;  // the last parts may be without
      Real sum[kEach][kEach] = {};
      do {
        add_panel(shared, tile, panel, sum);
        ++panel;
        if (tiles.parts == 1 && panel < end) continue;
        put(shared, tile, tiles.parts == 1 ? tile.run : panel - 1, sum);
#pragma unroll
        for (auto& line : sum)
#pragma unroll
          for (Real& element : line) element = 0;
      } while (panel < end);
    }
  }

 private:
  ISOBIT_DEVICE void add_panel(const Memory& shared, const Tile& tile, int panel,
                               Real (&run)[kEach][kEach]) const {
    const std::int64_t begin = std::int64_t{panel} * order::kPanel;
    const std::int64_t stop = begin + order::kPanel < call.k ? begin + order::kPanel : call.k;
    const int across = simt::thread() % kAcross, down = simt::thread() / kAcross;
    const auto rows_of_a = a.of(call, tile);
    const auto columns_of_b = b.of(call, tile);
    Real chain[kEach][kEach] = {};
#pragma unroll 1
    for (std::int64_t k = begin; k < stop; k += kDepth) {
      simt::sync_block();  // what was there has been read
      rows_of_a.template bring<kSide, kDepth, kPitch>(k, stop - k, shared.a);
      columns_of_b.template bring<kSide, kDepth, kPitch>(k, stop - k, shared.b);
      simt::sync_block();
#pragma unroll
      for (int at = 0; at < kDepth; ++at) {
        Real rows[kEach], cols[kEach];
        tile::take(shared.a + at * kPitch, down, rows);
        tile::take(shared.b + at * kPitch, across, cols);
        tile::multiply_add(rows, cols, chain);
      }
    }
#pragma unroll
    for (int i = 0; i < kEach; ++i)
#pragma unroll
      for (int j = 0; j < kEach; ++j) run[i][j] = run[i][j] + chain[i][j];
  }

  // `which`: the run or panel that this is the sum of. Sums pass through shared memory, 16 rows at
  // a time: what becomes of one is code once, not for each, and neighbours write side by side.
  ISOBIT_DEVICE void put(const Memory& shared, const Tile& tile, std::int64_t which,
                         const Real (&sum)[kEach][kEach]) const {
    const std::int64_t waiting = sums_of_product(call.k, tiles.parts);
    const int across = simt::thread() % kAcross, down = simt::thread() / kAcross;
#pragma unroll 1
    for (int i = 0; i < kEach; ++i) {
      simt::sync_block();  // what was there has been read
#pragma unroll
      for (int own = 0; own < kEach; ++own)
        if (own == i) tile::leave(sum[own], across, shared.a + down * kPitch);
      simt::sync_block();
#pragma unroll 1
      for (int at = simt::thread(); at < kAcross * kSide; at += simt::threads()) {
        const int line = at / kSide, lane = at % kSide;
        const std::int64_t row = tile.row + tile::lane_of<Real>(line, i), col = tile.col + lane;
        if (row >= call.m || col >= call.n) continue;
        const Real value = shared.a[line * kPitch + lane];
        if (waiting == 0)
          call.finish(tile.product, row, col, value + Real(0));
        else
          sums[((tile.product * waiting + which) * call.m + row) * call.n + col] = value;
      }
    }
  }
};

// The sums of runs, or of panels of which `in_run` in their order are a run, added by adjacent
// pairs; and what becomes of them.
template <class C>
struct AddRuns {
  static constexpr int kMostThreads = 256;
  using Real = typename C::Real;
  C call;
  const Real* sums;
  std::int64_t count, in_run;

  ISOBIT_DEVICE void operator()() const {
    const std::int64_t step = simt::blocks() * simt::threads(), in_product = call.m * call.n;
    for (std::int64_t at = simt::block() * simt::threads() + simt::thread();
         at < call.products * in_product; at += step) {
      const std::int64_t product = at / in_product, place = at - product * in_product;
      order::PairTree<Real> runs;
#pragma unroll 1
      for (std::int64_t first = 0; first < count; first += in_run) {
        const Real* const own = sums + (product * count + first) * in_product + place;
        Real run = *own;
#pragma unroll 4
        for (std::int64_t i = 1; i < in_run && first + i < count; ++i)
          run = run + own[i * in_product];
        runs.push(run);
      }
      const std::int64_t i = place / call.n;
      call.finish(product, i, place - i * call.n, runs.total());
    }
  }
};

// The kernel, and what adds its runs where there are several.
template <class Kernel>
void launch_tiles(const Kernel& kernel, const Execution& execution) {
  launch(kernel, kernel.tiles.count(), Kernel::kMostThreads, execution);
  const auto& call = kernel.call;
  const std::int64_t waiting = sums_of_product(call.k, kernel.tiles.parts);
  if (waiting == 0) return;
  const AddRuns<std::remove_cvref_t<decltype(call)>> add{call, kernel.sums, waiting,
                                                         kernel.tiles.parts == 1 ? 1 : order::kRun};
  launch(add, (call.products * call.m * call.n + 255) / 256, 256, execution);
}

inline std::size_t room_for_runs(const Problem& problem, int splits = 1) {
  if (problem.empty()) return 0;
  const std::int64_t waiting = sums_of_product(problem.k, Tiles::parts_of(problem.k, splits));
  return static_cast<std::size_t>(problem.products() * waiting * problem.m * problem.n *
                                  size_of(problem.real()));
}

inline constexpr int kEach[] = {4, 8};
inline constexpr Knob kTileKnobs[] = {
    {"each", kEach,
     "rows and columns of sums of a thread; of f64 4, for which there are registers"}};
inline constexpr int kSplits[] = {1, 2, 4, 8, 16};
inline constexpr Knob kSplitKnobs[] = {
    kTileKnobs[0],
    {"splits", kSplits,
     "blocks that share the panels of 512 of a run of k; no more than it has panels"}};

// Large tiles read less, where there are enough of them for all multiprocessors.
inline Plan choose_tile(const Problem& problem, const Machine& machine) {
  const std::int64_t tiles = (problem.m + 127) / 128 * ((problem.n + 127) / 128);
  const bool many = problem.products() * tiles >= machine.gpu.multiprocessors;
  return {problem.dtype() != DType::f64 && many ? 8 : 4};
}

// As many parts of a run as give each multiprocessor a block, if it has as many panels.
inline Plan choose_tile_and_splits(const Problem& problem, const Machine& machine) {
  Plan plan = choose_tile(problem, machine);
  const std::int64_t side = 16 * plan[0];
  const std::int64_t tiles = (problem.m + side - 1) / side * ((problem.n + side - 1) / side);
  const std::int64_t blocks = problem.products() * tiles * ((problem.k + kRunK - 1) / kRunK);
  int splits = 1;
  while (2 * splits <= panels_of_run(problem.k) && blocks * splits < machine.gpu.multiprocessors)
    splits *= 2;
  plan[1] = splits;
  return plan;
}

// A product by a plan of choose_tile, of operands that a_of(T{}) and b_of(T{}) give.
template <class A, class B>
void run_in_registers(const Problem& problem, const Plan& plan, const Execution& execution,
                      const A& a_of, const B& b_of, int splits = 1) {
  with_type(problem, [&]<class T>(T type) {
    const auto run = [&]<int kSums>(std::integral_constant<int, kSums>) {
      using Kernel = RegisterTiled<T, kSums, decltype(a_of(type)), decltype(b_of(type))>;
      launch_tiles(Kernel(Call<T>(problem), execution.workspace, a_of(type), b_of(type), splits),
                   execution);
    };
    if constexpr (sizeof(T) < sizeof(double))
      if (plan[0] == 8) return run(std::integral_constant<int, 8>{});
    run(std::integral_constant<int, 4>{});
  });
}

}  // namespace isobit::matmul
