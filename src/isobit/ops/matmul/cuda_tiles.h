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

// A and B: where its operands come from, for each tile; C: what becomes of a sum. Shared memory
// holds kDepth of k of a tile; each of 16 x 16 threads has kEach x kEach sums, in pieces of 16
// bytes. A run of k a block; where there are several, their sums wait in `sums`.
template <class T, int kEach, class A = RowsOfA<T>, class B = ColumnsOfB<T>, class C = Call<T>>
struct RegisterTiled {
  static constexpr int kMostThreads = 256;
  static constexpr int kAcross = tile::kAcross, kDepth = 16, kSide = kAcross * kEach;
  using Real = RealOf<T>;
  static constexpr int kPitch = kSide + tile::Chunk<Real>::kCount;
  C call;
  Tiles tiles;
  Real* sums;  // product, run, row, column
  A a;
  B b;

  RegisterTiled(const C& call, std::byte* workspace, const A& a = {}, const B& b = {})
      : call(call), tiles(call, kSide), sums(reinterpret_cast<Real*>(workspace)), a(a), b(b) {}

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
      Real run[kEach][kEach] = {};
      const std::int64_t begin = tile.run * kRunK;
      const std::int64_t end = begin + kRunK < call.k ? begin + kRunK : call.k;
#pragma unroll 1
      for (std::int64_t panel = begin; panel < end; panel += order::kPanel) {
        const std::int64_t stop = panel + order::kPanel < end ? panel + order::kPanel : end;
        add_panel(shared, tile, panel, stop, run);
      }
      put(tile, run);
    }
  }

 private:
  ISOBIT_DEVICE void add_panel(const Memory& shared, const Tile& tile, std::int64_t panel,
                               std::int64_t stop, Real (&run)[kEach][kEach]) const {
    const int across = simt::thread() % kAcross, down = simt::thread() / kAcross;
    const auto rows_of_a = a.of(call, tile);
    const auto columns_of_b = b.of(call, tile);
    Real chain[kEach][kEach] = {};
#pragma unroll 1
    for (std::int64_t k = panel; k < stop; k += kDepth) {
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

  ISOBIT_DEVICE void put(const Tile& tile, const Real (&run)[kEach][kEach]) const {
    const int across = simt::thread() % kAcross, down = simt::thread() / kAcross;
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const std::int64_t row = tile.row + tile::lane_of<Real>(down, i);
#pragma unroll
      for (int j = 0; j < kEach; ++j) {
        const std::int64_t col = tile.col + tile::lane_of<Real>(across, j);
        if (row >= call.m || col >= call.n) continue;
        if (tiles.runs == 1)
          call.finish(tile.product, row, col, run[i][j] + Real(0));
        else
          sums[((tile.product * tiles.runs + tile.run) * call.m + row) * call.n + col] = run[i][j];
      }
    }
  }
};

// The sums of runs, added by adjacent pairs; and what becomes of them.
template <class C>
struct AddRuns {
  static constexpr int kMostThreads = 256;
  using Real = typename C::Real;
  C call;
  const Real* sums;

  ISOBIT_DEVICE void operator()() const {
    const std::int64_t step = simt::blocks() * simt::threads(), in_product = call.m * call.n;
    for (std::int64_t at = simt::block() * simt::threads() + simt::thread();
         at < call.products * in_product; at += step) {
      const std::int64_t product = at / in_product, place = at - product * in_product;
      order::PairTree<Real> runs;
#pragma unroll 1
      for (std::int64_t run = 0; run < call.runs(); ++run)
        runs.push(sums[(product * call.runs() + run) * in_product + place]);
      const std::int64_t i = place / call.n;
      call.finish(product, i, place - i * call.n, runs.total());
    }
  }
};

// The kernel, and what adds its runs where there are several.
template <class Kernel>
void launch_tiles(const Kernel& kernel, const Execution& execution) {
  launch(kernel, kernel.tiles.count(), Kernel::kMostThreads, execution);
  if (kernel.tiles.runs == 1) return;
  const auto& call = kernel.call;
  const AddRuns<std::remove_cvref_t<decltype(call)>> add{call, kernel.sums};
  launch(add, (call.products * call.m * call.n + 255) / 256, 256, execution);
}

inline std::size_t room_for_runs(const Problem& problem) {
  if (problem.empty() || problem.k <= kRunK) return 0;
  const std::int64_t runs = (problem.k + kRunK - 1) / kRunK;
  return static_cast<std::size_t>(problem.products() * runs * problem.m * problem.n *
                                  size_of(problem.real()));
}

inline constexpr int kEach[] = {4, 8};
inline constexpr Knob kTileKnobs[] = {
    {"each", kEach,
     "rows and columns of sums of a thread; of f64 4, for which there are registers"}};

// Large tiles read less, where there are enough of them for all multiprocessors.
inline Plan choose_tile(const Problem& problem, const Machine& machine) {
  const std::int64_t tiles = (problem.m + 127) / 128 * ((problem.n + 127) / 128);
  const bool many = problem.products() * tiles >= machine.gpu.multiprocessors;
  return {problem.dtype() != DType::f64 && many ? 8 : 4};
}

// A product by a plan of choose_tile, of operands that a_of(T{}) and b_of(T{}) give.
template <class A, class B>
void run_in_registers(const Problem& problem, const Plan& plan, const Execution& execution,
                      const A& a_of, const B& b_of) {
  with_type(problem, [&]<class T>(T type) {
    const auto run = [&]<int kSums>(std::integral_constant<int, kSums>) {
      using Kernel = RegisterTiled<T, kSums, decltype(a_of(type)), decltype(b_of(type))>;
      launch_tiles(Kernel(Call<T>(problem), execution.workspace, a_of(type), b_of(type)),
                   execution);
    };
    if constexpr (sizeof(T) < sizeof(double))
      if (plan[0] == 8) return run(std::integral_constant<int, 8>{});
    run(std::integral_constant<int, 4>{});
  });
}

}  // namespace isobit::matmul
