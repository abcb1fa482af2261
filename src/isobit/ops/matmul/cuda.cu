// SPDX-License-Identifier: Apache-2.0
// The variants for GPUs that keep the order: tiles in registers, one element a thread by way of
// shared memory, and one element a thread.
#include <cstdint>

#include "isobit/core/order.h"
#include "isobit/ops/matmul/cuda_call.h"
#include "isobit/ops/matmul/problem.h"
#include "isobit/simt/simt.h"

namespace isobit::matmul {
namespace {

// One element a thread, straight from memory.
template <class T>
struct Naive {
  static constexpr int kMostThreads = 256;
  using Real = RealOf<T>;
  Call<T> call;
  int threads;

  ISOBIT_EITHER std::int64_t blocks() const {
    return (call.products * call.m * call.n + threads - 1) / threads;
  }

  ISOBIT_DEVICE void operator()() const {
    const std::int64_t step = simt::blocks() * simt::threads(), in_product = call.m * call.n;
    for (std::int64_t at = simt::block() * simt::threads() + simt::thread();
         at < call.products * in_product; at += step) {
      const std::int64_t product = at / in_product, place = at - product * in_product;
      const std::int64_t i = place / call.n, j = place - i * call.n;
      const T *a = call.of_a(product) + i * call.a.row, *b = call.of_b(product) + j * call.b.col;
      order::PairTree<Real> runs;
#pragma unroll 1
      for (std::int64_t start = 0; start < call.k; start += kRunK) {
        Real run = 0;
#pragma unroll 1
        for (std::int64_t panel = start; panel < call.k && panel < start + kRunK;
             panel += order::kPanel) {
          Real chain = 0;
#pragma unroll 1
          for (std::int64_t k = panel; k < call.k && k < panel + order::kPanel; ++k)
            chain = Call<T>::S::fma(wide<Real>(a[k * call.a.col]), wide<Real>(b[k * call.b.row]),
                                    chain);
          run = run + chain;
        }
        runs.push(run);
      }
      call.finish(product, i, j, runs.total());
    }
  }
};

// Brings kSide lanes of a matrix by kDepth of k to shared memory, k after k, with zeros beyond its
// edges. Threads read side by side along whichever is adjacent.
template <int kSide, int kDepth, int kPitch, class T, class Real>
ISOBIT_DEVICE void bring(const T* from, std::int64_t lane_stride, std::int64_t k_stride,
                         std::int64_t lanes, std::int64_t k, Real* to) {
  const bool along_k = k_stride == 1 && lane_stride != 1;
#pragma unroll 4
  for (int i = simt::thread(); i < kSide * kDepth; i += simt::threads()) {
    const int lane = along_k ? i / kDepth : i % kSide, at = along_k ? i % kDepth : i / kSide;
    Real value = 0;
    if (lane < lanes && at < k) value = wide<Real>(from[lane * lane_stride + at * k_stride]);
    to[at * kPitch + lane] = value;
  }
}

// Shared memory holds kDepth of k of a tile; each of 16 x 16 threads has kEach x kEach sums, in
// pieces of 16 bytes. A run of k a block; where there are several, their sums wait in `sums`.
template <class T, int kEach>
struct RegisterTiled {
  static constexpr int kMostThreads = 256;
  static constexpr int kAcross = 16, kDepth = 16, kSide = kAcross * kEach;
  using Real = RealOf<T>;
  static constexpr int kInPiece = 16 / sizeof(Real), kPitch = kSide + kInPiece;
  struct alignas(16) Piece {
    Real elements[kInPiece];
  };
  Call<T> call;
  Tiles tiles;
  Real* sums;  // product, run, row, column

  RegisterTiled(const Problem& problem, std::byte* workspace)
      : call(problem), tiles(call, kSide), sums(reinterpret_cast<Real*>(workspace)) {}

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
  // The lane of a thread's i-th sum.
  ISOBIT_DEVICE static int lane_of(int thread, int i) {
    return (i / kInPiece * kAcross + thread) * kInPiece + i % kInPiece;
  }

  ISOBIT_DEVICE void add_panel(const Memory& shared, const Tile& tile, std::int64_t panel,
                               std::int64_t stop, Real (&run)[kEach][kEach]) const {
    const int across = simt::thread() % kAcross, down = simt::thread() / kAcross;
    const T* a = call.of_a(tile.product) + tile.row * call.a.row;
    const T* b = call.of_b(tile.product) + tile.col * call.b.col;
    Real chain[kEach][kEach] = {};
#pragma unroll 1
    for (std::int64_t k = panel; k < stop; k += kDepth) {
      simt::sync_block();  // what was there has been read
      bring<kSide, kDepth, kPitch>(a + k * call.a.col, call.a.row, call.a.col, call.m - tile.row,
                                   stop - k, shared.a);
      bring<kSide, kDepth, kPitch>(b + k * call.b.row, call.b.col, call.b.row, call.n - tile.col,
                                   stop - k, shared.b);
      simt::sync_block();
#pragma unroll
      for (int at = 0; at < kDepth; ++at) {
        Real rows[kEach], cols[kEach];
        take(shared.a + at * kPitch, down, rows);
        take(shared.b + at * kPitch, across, cols);
#pragma unroll
        for (int i = 0; i < kEach; ++i)
#pragma unroll
          for (int j = 0; j < kEach; ++j)
            chain[i][j] = Call<T>::S::fma(rows[i], cols[j], chain[i][j]);
      }
    }
#pragma unroll
    for (int i = 0; i < kEach; ++i)
#pragma unroll
      for (int j = 0; j < kEach; ++j) run[i][j] = run[i][j] + chain[i][j];
  }

  ISOBIT_DEVICE static void take(const Real* from, int thread, Real (&to)[kEach]) {
#pragma unroll
    for (int i = 0; i < kEach; i += kInPiece) {
      const Piece piece =
          simt::load_shared(reinterpret_cast<const Piece*>(from + lane_of(thread, i)));
#pragma unroll
      for (int e = 0; e < kInPiece; ++e) to[i + e] = piece.elements[e];
    }
  }

  ISOBIT_DEVICE void put(const Tile& tile, const Real (&run)[kEach][kEach]) const {
    const int across = simt::thread() % kAcross, down = simt::thread() / kAcross;
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const std::int64_t row = tile.row + lane_of(down, i);
#pragma unroll
      for (int j = 0; j < kEach; ++j) {
        const std::int64_t col = tile.col + lane_of(across, j);
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
template <class T>
struct AddRuns {
  static constexpr int kMostThreads = 256;
  using Real = RealOf<T>;
  Call<T> call;
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

// One element a thread; tiles of 16 x 16 of a and b pass through shared memory.
template <class T>
struct Tiled {
  static constexpr int kMostThreads = 256;
  static constexpr int kSide = 16, kPitch = kSide + 1;
  using Real = RealOf<T>;
  Call<T> call;
  Tiles tiles;
  Real* sums;

  Tiled(const Problem& problem, std::byte* workspace)
      : call(problem), tiles(call, kSide), sums(reinterpret_cast<Real*>(workspace)) {}

  struct Memory {
    Real *a, *b;
  };
  template <class Carver>
  ISOBIT_EITHER Memory memory(Carver& carver) const {
    Real* const a = carver.template take<Real>(kSide * kPitch);
    return {a, carver.template take<Real>(kSide * kPitch)};
  }

  ISOBIT_DEVICE void operator()(const Memory& shared) const {
    const int across = simt::thread() % kSide, down = simt::thread() / kSide;
#pragma unroll 1
    for (std::int64_t index = simt::block(); index < tiles.count(); index += simt::blocks()) {
      const Tile tile = tiles[index];
      const T* a = call.of_a(tile.product) + tile.row * call.a.row;
      const T* b = call.of_b(tile.product) + tile.col * call.b.col;
      Real run = 0, chain = 0;
      const std::int64_t begin = tile.run * kRunK;
      const std::int64_t end = begin + kRunK < call.k ? begin + kRunK : call.k;
#pragma unroll 1
      for (std::int64_t k = begin; k < end; k += kSide) {
        simt::sync_block();  // what was there has been read
        bring<kSide, kSide, kPitch>(a + k * call.a.col, call.a.row, call.a.col, call.m - tile.row,
                                    end - k, shared.a);
        bring<kSide, kSide, kPitch>(b + k * call.b.row, call.b.col, call.b.row, call.n - tile.col,
                                    end - k, shared.b);
        simt::sync_block();
#pragma unroll
        for (int at = 0; at < kSide; ++at)
          chain =
              Call<T>::S::fma(shared.a[at * kPitch + down], shared.b[at * kPitch + across], chain);
        if ((k + kSide) % order::kPanel != 0 && k + kSide < end) continue;
        run = run + chain;
        chain = 0;
      }
      const std::int64_t row = tile.row + down, col = tile.col + across;
      if (row >= call.m || col >= call.n) continue;
      if (tiles.runs == 1)
        call.finish(tile.product, row, col, run + Real(0));
      else
        sums[((tile.product * tiles.runs + tile.run) * call.m + row) * call.n + col] = run;
    }
  }
};

// The kernel, and what adds its runs where there are several.
template <class T, class Kernel>
void launch_tiles(const Problem& problem, const Execution& execution) {
  const Kernel kernel(problem, execution.workspace);
  launch(kernel, kernel.tiles.count(), Kernel::kMostThreads, execution);
  if (kernel.tiles.runs == 1) return;
  const AddRuns<T> add{kernel.call, kernel.sums};
  launch(add, (problem.products() * problem.m * problem.n + 255) / 256, 256, execution);
}

std::size_t room_for_runs(const Problem& problem, const Plan&, const Machine&) {
  if (problem.empty() || problem.k <= kRunK) return 0;
  const std::int64_t runs = (problem.k + kRunK - 1) / kRunK;
  return static_cast<std::size_t>(problem.products() * runs * problem.m * problem.n *
                                  size_of(problem.real()));
}

constexpr int kEach[] = {4, 8};
constexpr Knob kTileKnobs[] = {
    {"each", kEach,
     "rows and columns of sums of a thread; of f64 4, for which there are registers"}};
constexpr int kThreads[] = {64, 128, 256};
constexpr Knob kNaiveKnobs[] = {{"threads", kThreads, "threads per block"}};

// Large tiles read less, where there are enough of them for all multiprocessors.
Plan choose_tile(const Problem& problem, const Machine& machine) {
  const std::int64_t tiles = (problem.m + 127) / 128 * ((problem.n + 127) / 128);
  const bool many = problem.products() * tiles >= machine.gpu.multiprocessors;
  return {problem.dtype() != DType::f64 && many ? 8 : 4};
}

void run_register_tiled(const ForwardArgs&, const Problem& problem, const Plan& plan,
                        const Execution& execution) {
  with_type(problem, [&]<class T>(T) {
    if constexpr (sizeof(T) < sizeof(double))
      if (plan[0] == 8) return launch_tiles<T, RegisterTiled<T, 8>>(problem, execution);
    launch_tiles<T, RegisterTiled<T, 4>>(problem, execution);
  });
}

void run_tiled(const ForwardArgs&, const Problem& problem, const Plan&,
               const Execution& execution) {
  with_type(problem, [&]<class T>(T) { launch_tiles<T, Tiled<T>>(problem, execution); });
}

void run_naive(const ForwardArgs&, const Problem& problem, const Plan& plan,
               const Execution& execution) {
  with_type(problem, [&]<class T>(T) {
    const Naive<T> kernel{Call<T>(problem), plan[0]};
    launch(kernel, kernel.blocks(), plan[0], execution);
  });
}

std::string declines_tensor(const Problem& problem, const Machine&) {
  return problem.arithmetic == Arithmetic::tensor ? "has no tensor arithmetic" : "";
}

}  // namespace

std::span<const ForwardVariant> cuda_forward_variants() {
  static const ForwardVariant kVariants[] = {
      {.name = "register_tiled",
       .knobs = kTileKnobs,
       .declines = declines_tensor,
       .choose = choose_tile,
       .workspace = room_for_runs,
       .run = run_register_tiled},
      {.name = "tiled", .declines = declines_tensor, .workspace = room_for_runs, .run = run_tiled},
      {.name = "naive",
       .knobs = kNaiveKnobs,
       .declines = declines_tensor,
       .choose = [](const Problem&, const Machine&) -> Plan { return {256}; },
       .run = run_naive},
      cuda_tensor_variant(),
  };
  return kVariants;
}

}  // namespace isobit::matmul
