// SPDX-License-Identifier: Apache-2.0
// The variants for GPUs that keep the order: tiles in registers, one element a thread by way of
// shared memory, and one element a thread.
#include <cstdint>

#include "isobit/core/order.h"
#include "isobit/dispatch/threads.h"
#include "isobit/ops/matmul/cuda_tiles.h"
#include "isobit/ops/matmul/problem.h"
#include "isobit/simt/simt.h"

namespace isobit::matmul {
namespace {

// One element a thread, straight from memory.
template <class T>
struct Naive {
  static constexpr int kMostThreads = 1024;
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
        tile::bring<kSide, kSide, kPitch>(a + k * call.a.col, call.a.row, call.a.col,
                                          call.m - tile.row, end - k, shared.a);
        tile::bring<kSide, kSide, kPitch>(b + k * call.b.row, call.b.col, call.b.row,
                                          call.n - tile.col, end - k, shared.b);
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

constexpr Knob kNaiveKnobs[] = {threads_knob(Naive<float>::kMostThreads)};

void run_register_tiled(const ForwardArgs&, const Problem& problem, const Plan& plan,
                        const Execution& execution) {
  run_in_registers(
      problem, plan, execution, []<class T>(T) { return RowsOfA<T>(); },
      []<class T>(T) { return ColumnsOfB<T>(); }, plan[1]);
}
std::size_t register_tiled_workspace(const Problem& problem, const Plan& plan, const Machine&) {
  return room_for_runs(problem, plan[1]);
}

void run_tiled(const ForwardArgs&, const Problem& problem, const Plan&,
               const Execution& execution) {
  with_type(problem,
            [&]<class T>(T) { launch_tiles(Tiled<T>(problem, execution.workspace), execution); });
}

std::size_t tiles_workspace(const Problem& problem, const Plan&, const Machine&) {
  return room_for_runs(problem);
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
       .knobs = kSplitKnobs,
       .declines = declines_tensor,
       .choose = choose_tile_and_splits,
       .workspace = register_tiled_workspace,
       .run = run_register_tiled},
      {.name = "tiled",
       .declines = declines_tensor,
       .workspace = tiles_workspace,
       .run = run_tiled},
      {.name = "naive",
       .knobs = kNaiveKnobs,
       .declines = declines_tensor,
       .choose = [](const Problem&, const Machine&) -> Plan { return {256}; },
       .run = run_naive},
      cuda_tensor_variant(),
      cuda_wgmma_variant(),
      cuda_cublaslt_variant(),
  };
  return kVariants;
}

}  // namespace isobit::matmul
