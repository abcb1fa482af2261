// SPDX-License-Identifier: Apache-2.0
// The rows of a are read as they lie in memory, and columns of b as well where they are adjacent
// and few; others are packed first. Sums are results where nothing else is asked for.
#include "isobit/ops/matmul/cpu_panels.h"
#include "isobit/ops/matmul/cpu_regions.h"

namespace isobit::matmul {
namespace {

constexpr std::int64_t kRows = 8, kCols = 32;  // threads get whole tiles
// Of a transposed b, in bytes, and of the rows that it is multiplied by: 1000 products of 32^3 take
// half of the time of `packed` [AMD EPYC 25/17, one thread], those of 128^3 and more as much.
constexpr std::int64_t kMostTurned = 64 << 10, kMostTurnedRows = 128;
// For tiles as narrow as those of AVX2 rows of a are not worth packing, and columns of b only if
// there are many rows. Against `packed`, 12 x 768 x 768 takes 0.79 of the time, 32 x 768 x 768 with
// packed columns 0.84, 256^3 0.86 and 512^3 0.90, but 1024^3 1.08 [AMD EPYC 25/1, one thread].
constexpr std::int64_t kMostOfAvx2 = 3 << 20, kFewestRows = 32, kPackedBytes = 128 << 10;

// Why it cannot; "" where it can.
const char* obstacle(const Problem& problem) {
  if (problem.derived != Derived::none) return "reads matrices as they lie in memory";
  if (size_of(problem.dtype()) < 4) return "has no conversion of 16 bits";
  const Array& b = problem.first.b;
  if (b.col != 1 && b.row != 1 && problem.n > 1 && problem.k > 1)
    return "needs adjacent elements in rows or columns of b";
  return "";
}

bool is_turned(const Problem& problem) { return problem.first.b.col != 1 && problem.n > 1; }

std::int64_t bytes_of_b(const Problem& problem) {
  return problem.k * problem.n * size_of(problem.dtype());
}

// Whether columns of b are packed.
bool packs_columns(const Problem& problem, Isa isa) {
  return is_turned(problem) ||
         (isa == Isa::avx2 && problem.m >= kFewestRows && bytes_of_b(problem) > kPackedBytes);
}

std::string declines_direct(const Problem& problem, const Machine&) { return obstacle(problem); }

// Where b stays in the second cache, and its rows are not on a page each or are few, packing it
// saves nothing. (Of 2 MiB it saves a tenth, in a second cache of that size. 256 rows of 3136
// floats take twice the time of `packed`, and of 4096 bytes 1.7 times, since they fall on the same
// lines of the first cache; but 64 rows of 3136 floats take 0.84 of it [Intel Xeon 6/167].) One
// that is turned is packed anyway, but not a. A transposed a is read line after line for a few
// elements of each, and again for every few columns: that is worth less than packing unless it
// stays in the first cache (256^3 takes 1.06 of the time of `packed`, 3072 x 768 x 256 twice that
// time, and 64^3 0.79 [Intel Xeon 6/167, one thread]).
bool suits_direct(const Problem& problem, const Machine& machine) {
  constexpr std::int64_t kPage = 4096, kFewRows = 64, kMost = 1 << 20;
  if (*obstacle(problem) != '\0') return false;
  const std::int64_t size = size_of(problem.dtype()), bytes = bytes_of_b(problem);
  const Array& a = problem.first.a;
  const bool a_is_transposed = a.col != 1 && problem.k > 1 && problem.m > 1;
  if (a_is_transposed && problem.m * problem.k * size > kMostTurned) return false;
  const bool is_avx2 = machine.isa == Isa::avx2;
  if (packs_columns(problem, machine.isa))
    return is_avx2 ? bytes <= kMostOfAvx2 : bytes <= kMostTurned && problem.m <= kMostTurnedRows;
  return bytes <= (is_avx2 ? kMostOfAvx2 : std::min(machine.l2_bytes, kMost)) &&
         (problem.first.b.row * size < kPage || problem.k <= kFewRows);
}

// Nothing happens to sums but that they are stored.
bool sums_are_results(const Problem& problem) {
  const Arrays& first = problem.first;
  return problem.k <= order::kPanel && problem.alpha == 1 && !first.c && !first.bias &&
         !first.pre && !first.residual && problem.activation == Activation::none &&
         first.y.dtype == problem.real() && (first.y.col == 1 || problem.n == 1);
}

// Sums of a tile at a time.
constexpr std::int64_t kTileRows = 8 * kRows, kTileCols = 16 * kCols;

struct DirectMemory {
  std::int64_t columns, pitch, sums, buffers;

  DirectMemory(const Problem& problem, Isa isa)
      : columns(packs_columns(problem, isa)
                    ? parts_of(std::min(problem.n, kTileCols) +
                                   pack_kernels_for(problem.dtype(), isa).cols,
                               16) *
                          16 * std::min<std::int64_t>(problem.k, order::kPanel) *
                          size_of(problem.real())
                    : 0),
        pitch(std::min(parts_of(problem.n, kCols) * kCols, kTileCols) +
              64 / size_of(problem.real())),
        sums(std::min(problem.m, kTileRows) * pitch * size_of(problem.real())),
        buffers(sums_are_results(problem) ? 0 : Runs::buffers(problem.k)) {}
  std::int64_t bytes() const { return columns + parts_of(buffers * sums, 64) * 64; }
};

Grid direct_grid(const Problem& problem, const DirectMemory& memory, const Machine& machine) {
  const std::int64_t bytes = std::max<std::int64_t>(1, memory.bytes());
  return grid_of(problem, machine, kRows, kCols, std::max<std::int64_t>(1, kMostMemory / bytes));
}

DirectKernel direct_kernel_for(const Problem& problem, Isa isa) {
  ISOBIT_RETURN_FOR_ISA(isa, direct_kernel(problem.dtype()));
}

std::size_t direct_workspace(const Problem& problem, const Plan&, const Machine& machine) {
  if (problem.empty()) return 0;
  const DirectMemory memory(problem, machine.isa);
  return static_cast<std::size_t>(direct_grid(problem, memory, machine).tasks * memory.bytes());
}

void run_direct(const ForwardArgs&, const Problem& problem, const Plan&,
                const Execution& execution) {
  if (problem.empty()) return;
  const Isa isa = execution.machine.isa;
  const DirectKernel multiply = direct_kernel_for(problem, isa);
  const DirectMemory memory(problem, isa);
  const PackKernels& pack = pack_kernels_for(problem.dtype(), isa);
  const std::int64_t size = size_of(problem.dtype());
  const bool packs = packs_columns(problem, isa);
  const Grid grid = direct_grid(problem, memory, execution.machine);
  const Finish finish(problem, isa);
  const AddKernel add = add_kernel_for(problem.real(), isa);
  const bool are_results = sums_are_results(problem);
  // By panels of columns, which lie in `room`, where they are packed.
  const auto multiplied = [&](std::byte* room, const Arrays& arrays, const Region& tile,
                              std::int64_t k, std::byte* to, std::int64_t count,
                              std::int64_t pitch) {
    const Array a = arrays.a.moved(tile.row, k), b = arrays.b.moved(k, tile.col);
    const auto by = [&](const std::byte* columns, std::int64_t b_k, std::int64_t col,
                        std::int64_t cols) {
      multiply({a.data, columns, to + col * size, a.row, a.col, b_k, pitch, tile.rows, cols, count,
                k % kRunK != 0, are_results});
    };
    if (!packs) return by(b.data, b.row, 0, tile.cols);
    pack.pack_b({b.data, b.col, b.row, tile.cols}, count, room);
    for (std::int64_t col = 0; col < tile.cols; col += pack.cols) {
      const std::int64_t cols = std::min(pack.cols, tile.cols - col);
      by(room + col * count * size, cols <= pack.width ? pack.width : pack.cols, col, cols);
    }
  };
  const auto finished = [&](std::byte* room, const Arrays& arrays, const Region& tile) {
    Runs runs(room + memory.columns, memory.sums, tile.rows * memory.pitch, add);
    runs.for_each_panel(problem.k, [&](std::int64_t k, std::int64_t count) {
      multiplied(room, arrays, tile, k, runs.now(), count, memory.pitch);
    });
    finish(arrays, tile.row, tile.col, runs.total(), memory.pitch, tile.rows, tile.cols);
  };
  for_each_region(
      problem, execution, grid, kRows, kCols, [&](std::int64_t task, const Region& region) {
        const Arrays arrays = problem.arrays(region.product);
        std::byte* room = execution.workspace + task * memory.bytes();
        if (are_results) {
          const std::int64_t most = packs ? kTileCols : region.cols;
          for (std::int64_t j = 0; j < region.cols; j += most) {
            const Array y = arrays.y.moved(region.row, region.col + j);
            multiplied(room, arrays,
                       {region.product, region.row, region.col + j, region.rows,
                        std::min(most, region.cols - j)},
                       0, y.data, problem.k, y.row);
          }
          return;
        }
        for (std::int64_t j = 0; j < region.cols; j += kTileCols)
          for (std::int64_t i = 0; i < region.rows; i += kTileRows)
            finished(room, arrays,
                     {region.product, region.row + i, region.col + j,
                      std::min(kTileRows, region.rows - i), std::min(kTileCols, region.cols - j)});
      });
}

}  // namespace

ForwardVariant direct_variant() {
  return {.name = "direct",
          .each_isa = true,
          .declines = declines_direct,
          .suits = suits_direct,
          .workspace = direct_workspace,
          .run = run_direct};
}

}  // namespace isobit::matmul
