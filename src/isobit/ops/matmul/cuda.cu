// SPDX-License-Identifier: Apache-2.0
// The variants for GPUs that keep the order: tiles in registers, one element a thread by way of
// shared memory, and one element a thread.
#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "isobit/core/order.h"
#include "isobit/ops/matmul/formula.h"
#include "isobit/ops/matmul/problem.h"
#include "isobit/simt/simt.h"
#include "isobit/tile/scalar.h"

namespace isobit::matmul {
namespace {

template <class T>
using RealOf = std::conditional_t<sizeof(T) == 8, double, float>;

constexpr std::int64_t kRunK = std::int64_t{order::kPanel} * order::kRun;

// One array of a call.
struct Operand {
  std::byte* data;
  DType dtype;
  std::int64_t row, col, steps[kMaxRank];

  ISOBIT_DEVICE std::int64_t at(std::int64_t i, std::int64_t j) const { return i * row + j * col; }
};

template <class Real>
ISOBIT_DEVICE Real read(const Operand& operand, std::int64_t at) {
  using C = simt::Conversions;
  if constexpr (sizeof(Real) == 8) {
    return reinterpret_cast<const double*>(operand.data)[at];
  } else {
    switch (operand.dtype) {
      case DType::f16:
        return C::template widen<Real>(reinterpret_cast<const f16*>(operand.data)[at]);
      case DType::bf16:
        return C::template widen<Real>(reinterpret_cast<const bf16*>(operand.data)[at]);
      default: return reinterpret_cast<const float*>(operand.data)[at];
    }
  }
}
template <class Real>
ISOBIT_DEVICE void write(const Operand& operand, std::int64_t at, Real value) {
  using C = simt::Conversions;
  if constexpr (sizeof(Real) == 8) {
    reinterpret_cast<double*>(operand.data)[at] = C::template narrow<double>(value);
  } else {
    switch (operand.dtype) {
      case DType::f16:
        reinterpret_cast<f16*>(operand.data)[at] = C::template narrow<f16>(value);
        break;
      case DType::bf16:
        reinterpret_cast<bf16*>(operand.data)[at] = C::template narrow<bf16>(value);
        break;
      default: reinterpret_cast<float*>(operand.data)[at] = C::template narrow<float>(value); break;
    }
  }
}

// All of a call whose elements of a and b are Ts.
template <class T>
struct Call {
  using Real = RealOf<T>;
  using S = tile::Scalar<Real>;

  Operand a, b, bias, c, residual, y, pre;
  std::int64_t extents[kMaxRank];
  int loops;
  std::int64_t products, m, n, k;
  Real alpha, beta;
  Activation activation;

  explicit Call(const Problem& problem)
      : loops(problem.loop_count),
        products(problem.products()),
        m(problem.m),
        n(problem.n),
        k(problem.k),
        alpha(static_cast<Real>(problem.alpha)),
        beta(static_cast<Real>(problem.beta)),
        activation(problem.activation) {
    Operand* const operands[] = {&a, &b, &bias, &c, &residual, &y, &pre};
    for (std::size_t i = 0; i < std::size(operands); ++i) {
      const Array& array = problem.first.*Arrays::kAll[i];
      *operands[i] = {array.data, array.dtype, array.row, array.col, {}};
      for (int loop = 0; loop < loops; ++loop)
        operands[i]->steps[loop] = problem.loops[static_cast<std::size_t>(loop)].steps[i];
    }
    for (int loop = 0; loop < loops; ++loop)
      extents[loop] = problem.loops[static_cast<std::size_t>(loop)].extent;
  }

  ISOBIT_EITHER std::int64_t runs() const { return k <= kRunK ? 1 : (k + kRunK - 1) / kRunK; }

  // Where a product's elements begin.
  ISOBIT_DEVICE std::int64_t start(const Operand& operand, std::int64_t product) const {
    std::int64_t at = 0;
#pragma unroll 1
    for (int i = loops - 1; i >= 0; --i) {
      const std::int64_t rest = product / extents[i];
      at += (product - rest * extents[i]) * operand.steps[i];
      product = rest;
    }
    return at;
  }
  ISOBIT_DEVICE const T* of_a(std::int64_t product) const {
    return reinterpret_cast<const T*>(a.data) + start(a, product);
  }
  ISOBIT_DEVICE const T* of_b(std::int64_t product) const {
    return reinterpret_cast<const T*>(b.data) + start(b, product);
  }

  // What becomes of one sum.
  ISOBIT_DEVICE void finish(std::int64_t product, std::int64_t i, std::int64_t j, Real sum) const {
    if (alpha != Real(1)) sum = S::mul(alpha, sum);
    if (c.data != nullptr) sum = S::fma(beta, read<Real>(c, start(c, product) + c.at(i, j)), sum);
    if (bias.data != nullptr) sum = S::add(sum, read<Real>(bias, bias.at(i, j)));
    if (pre.data != nullptr) write(pre, start(pre, product) + pre.at(i, j), sum);
    Real value = activated<S>(activation, sum);
    if (residual.data != nullptr)
      value = S::add(value, read<Real>(residual, start(residual, product) + residual.at(i, j)));
    write(y, start(y, product) + y.at(i, j), value);
  }
};

template <class Real, class T>
ISOBIT_DEVICE Real wide(T value) {
  return simt::Conversions::template widen<Real>(value);
}

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

// A tile of one product, and a run of its k.
struct Tile {
  std::int64_t product, run, row, col;
};

// All tiles of a call, of `side` rows and columns: those of one run beside each other, along rows
// of y.
struct Tiles {
  std::int64_t products, runs, down, across;
  int side;

  template <class T>
  Tiles(const Call<T>& call, int side)
      : products(call.products),
        runs(call.runs()),
        down((call.m + side - 1) / side),
        across((call.n + side - 1) / side),
        side(side) {}
  ISOBIT_EITHER std::int64_t count() const { return products * runs * down * across; }
  ISOBIT_DEVICE Tile operator[](std::int64_t index) const {
    const std::int64_t line = index / across, of_run = line / down, product = of_run / runs;
    return {product, of_run - product * runs, (line - of_run * down) * side,
            (index - line * across) * side};
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

// Calls run(T{}) with the type of a's elements, where there is anything to do.
template <class Run>
void with_type(const Problem& problem, const Run& run) {
  if (problem.empty()) return;
  switch (problem.dtype()) {
    case DType::f16:  return run(f16{});
    case DType::bf16: return run(bf16{});
    case DType::f64:  return run(double{});
    default:          return run(float{});
  }
}

template <class Kernel>
void launch(const Kernel& kernel, std::int64_t blocks, int threads, const Execution& execution) {
  simt::launch(static_cast<simt::Stream>(execution.stream),
               {.blocks = std::min(blocks, simt::kMostBlocks), .threads = threads}, kernel);
}

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

void run_register_tiled(const Args&, const Problem& problem, const Plan& plan,
                        const Execution& execution) {
  with_type(problem, [&]<class T>(T) {
    if constexpr (sizeof(T) < sizeof(double))
      if (plan[0] == 8) return launch_tiles<T, RegisterTiled<T, 8>>(problem, execution);
    launch_tiles<T, RegisterTiled<T, 4>>(problem, execution);
  });
}

void run_tiled(const Args&, const Problem& problem, const Plan&, const Execution& execution) {
  with_type(problem, [&]<class T>(T) { launch_tiles<T, Tiled<T>>(problem, execution); });
}

void run_naive(const Args&, const Problem& problem, const Plan& plan, const Execution& execution) {
  with_type(problem, [&]<class T>(T) {
    const Naive<T> kernel{Call<T>(problem), plan[0]};
    launch(kernel, kernel.blocks(), plan[0], execution);
  });
}

constexpr MatmulVariant kVariants[] = {
    {.name = "register_tiled",
     .knobs = kTileKnobs,
     .choose = choose_tile,
     .workspace = room_for_runs,
     .run = run_register_tiled},
    {.name = "tiled", .workspace = room_for_runs, .run = run_tiled},
    {.name = "naive",
     .knobs = kNaiveKnobs,
     .choose = [](const Problem&, const Machine&) -> Plan { return {256}; },
     .run = run_naive},
};

}  // namespace

std::span<const MatmulVariant> cuda_variants() { return kVariants; }

}  // namespace isobit::matmul
