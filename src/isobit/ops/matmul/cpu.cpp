// SPDX-License-Identifier: Apache-2.0
// The packed variant: tiles of both matrices that stay in the caches, as panels that are read in
// order; and the table of all variants.
#include <cstring>

#include "isobit/ops/matmul/cpu_regions.h"

namespace isobit::matmul {
namespace {

constexpr std::int64_t kMostMemory = 16 << 20;  // of all threads, beside the arrays

const PackKernels& pack_kernels_for(const Problem& problem, Isa isa) {
  ISOBIT_RETURN_FOR_ISA(isa, pack_kernels(problem.dtype()));
}

constexpr int kRowPanels[] = {1, 2, 4, 8, 16, 32, 64};
constexpr int kTileCols[] = {64, 128, 256, 512, 1024, 2048};
constexpr Knob kPackedKnobs[] = {
    {"row_panels", kRowPanels, "panels of rows that are packed at a time"},
    {"cols", kTileCols, "columns that are packed at a time"}};

// What a thread of the packed variant works in.
struct PackedMemory {
  std::int64_t a, b, sums, pitch;  // bytes; pitch: elements
  std::int64_t buffers;

  PackedMemory(const Problem& problem, const PackKernels& kernels, std::int64_t panels,
               std::int64_t cols) {
    const std::int64_t size = size_of(problem.real()), line = 64 / size;
    const std::int64_t k = std::min<std::int64_t>(problem.k, order::kPanel);
    const std::int64_t rows = std::min(panels * kernels.rows, problem.m);
    panels = parts_of(rows, kernels.rows);
    cols = parts_of(std::min(cols, problem.n), kernels.cols) * kernels.cols;
    a = parts_of(panels * kernels.row_pitch * k, line) * 64;
    b = parts_of(cols * k, line) * 64;
    pitch = cols + line;  // rows that lie a power of two apart would push each other out of caches
    sums = parts_of(rows * pitch, line) * 64;
    buffers = Runs::buffers(problem.k);
  }
  std::int64_t bytes() const { return a + b + buffers * sums; }
};

// Both come from the third cache at the speed of the second, where there is enough to do between:
// the more rows there are, the less often columns are packed.
Plan choose_packed(const Problem& problem, const Machine& machine) {
  const PackKernels& kernels = pack_kernels_for(problem, machine.isa);
  int panels = 64, cols = 1024;
  const std::int64_t most = kMostMemory / std::max(1, machine.threads);
  while (PackedMemory(problem, kernels, panels, cols).bytes() > most && (panels > 1 || cols > 64)) {
    if (cols > 64 && (panels == 1 || cols >= panels * kernels.rows))
      cols /= 2;
    else
      panels /= 2;
  }
  return {panels, cols};
}

std::size_t packed_workspace(const Problem& problem, const Plan& plan, const Machine& machine) {
  if (problem.empty()) return 0;
  const PackKernels& kernels = pack_kernels_for(problem, machine.isa);
  const Grid grid = grid_of(problem, machine, kernels.rows, kernels.cols);
  return static_cast<std::size_t>(grid.tasks *
                                  PackedMemory(problem, kernels, plan[0], plan[1]).bytes());
}

const PairKernels* pair_kernels_for(const Problem& problem, Isa isa) {
  ISOBIT_RETURN_FOR_ISA(isa, pair_kernels(problem.dtype()));
}

// Packs and multiplies pairs, if that can be done with the same bits.
bool multiply_pairs(const PairKernels* pairs, const Lanes& rows, const Lanes& cols,
                    const Block& block) {
  if (pairs == nullptr) return false;
  const int of_a = pairs->pack_a(rows, block.k, const_cast<void*>(block.a));
  if (of_a == 0) return false;
  const int of_b = pairs->pack_b(cols, block.k, const_cast<void*>(block.b));
  if (of_b == 0 || of_a + of_b < PairKernels::kLeastExponents) return false;
  pairs->multiply(block);
  return true;
}

void run_packed(const Args&, const Problem& problem, const Plan& plan, const Execution& execution) {
  if (problem.empty()) return;
  const Isa isa = execution.machine.isa;
  const PackKernels& kernels = pack_kernels_for(problem, isa);
  const PairKernels* const pairs = pair_kernels_for(problem, isa);
  const Grid grid = grid_of(problem, execution.machine, kernels.rows, kernels.cols);
  const PackedMemory memory(problem, kernels, plan[0], plan[1]);
  const Finish finish(problem, isa);
  const AddKernel add = add_kernel_for(problem, isa);
  const auto tile = [&](std::byte* room, const Arrays& arrays, std::int64_t row, std::int64_t col,
                        std::int64_t rows, std::int64_t cols) {
    std::byte *a = room, *b = a + memory.a;
    Runs runs(b + memory.b, memory.sums, rows * memory.pitch, add);
    if (problem.k == 0) std::memset(runs.now(), 0, static_cast<std::size_t>(memory.sums));
    for (std::int64_t k = 0; k < problem.k; k += order::kPanel) {
      const std::int64_t count = std::min<std::int64_t>(order::kPanel, problem.k - k);
      const Array from_a = arrays.a.moved(row, k), from_b = arrays.b.moved(k, col);
      const Lanes rows_of_a{from_a.data, from_a.row, from_a.col, rows};
      const Lanes cols_of_b{from_b.data, from_b.col, from_b.row, cols};
      const Block block{a, b, runs.now(), memory.pitch, rows, cols, count, k % kRunK != 0};
      if (!multiply_pairs(pairs, rows_of_a, cols_of_b, block)) {
        kernels.pack_a(rows_of_a, count, a);
        kernels.pack_b(cols_of_b, count, b);
        kernels.multiply(block);
      }
      if ((k + count) % kRunK == 0 || k + count == problem.k) runs.next();
    }
    if (problem.k == 0) runs.next();
    finish(arrays, row, col, runs.total(), memory.pitch, rows, cols);
  };
  for_each_region(problem, execution, grid, kernels.rows, kernels.cols,
                  [&](std::int64_t task, const Region& region) {
                    std::byte* room = execution.workspace + task * memory.bytes();
                    const Arrays arrays = problem.arrays(region.product);
                    // Tiles of whole panels, as equal as they can be.
                    const std::int64_t panels = parts_of(region.rows, kernels.rows);
                    const std::int64_t down = parts_of(panels, plan[0]),
                                       across = parts_of(region.cols, plan[1]);
                    for (std::int64_t j = 0; j < across; ++j) {
                      const Part cols(region.cols, kernels.cols, across, j);
                      for (std::int64_t i = 0; i < down; ++i) {
                        const std::int64_t begin = region.rows * (panels * i / down) / panels;
                        const std::int64_t end = region.rows * (panels * (i + 1) / down) / panels;
                        tile(room, arrays, region.row + begin, region.col + cols.begin, end - begin,
                             cols.count());
                      }
                    }
                  });
}

}  // namespace

std::span<const MatmulVariant> cpu_variants() {
  static const MatmulVariant kVariants[] = {vector_variant(),
                                            {.name = "packed",
                                             .knobs = kPackedKnobs,
                                             .choose = choose_packed,
                                             .workspace = packed_workspace,
                                             .run = run_packed},
                                            blocked_variant(),
                                            naive_variant()};
  return kVariants;
}

}  // namespace isobit::matmul
