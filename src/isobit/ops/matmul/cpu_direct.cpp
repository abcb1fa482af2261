// SPDX-License-Identifier: Apache-2.0
// The rows of a are read as they lie in memory, and columns of b as well where they are adjacent
// and few; others are packed first. Sums are results where nothing else is asked for.
#include "isobit/ops/matmul/cpu_panels.h"
#include "isobit/ops/matmul/cpu_regions.h"

namespace isobit::matmul {
namespace {

constexpr std::int64_t kRows = 8, kCols = 32;  // threads get whole tiles
// Of a b whose columns are packed, in bytes, and of the rows that it is multiplied by: 1000
// products of 32^3 take half of the time of `packed` [AMD EPYC 25/17, one thread], those of 128^3
// and more as much.
constexpr std::int64_t kMostTurned = 64 << 10, kMostTurnedRows = 128;
// For tiles as narrow as those of AVX2 rows of a are not worth packing, and columns of b only if
// there are many rows. Against `packed`, 12 x 768 x 768 takes 0.79 of the time, 32 x 768 x 768 with
// packed columns 0.84, 256^3 0.86, 512^3 0.90 and 128 x 4096 x 4096 0.93, but 1024^3 1.05 [AMD EPYC
// 25/1, one thread].
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
  if (packs_columns(problem, machine.isa)) {
    const bool few = problem.m <= kMostTurnedRows;
    return is_avx2 ? few || bytes <= kMostOfAvx2 : few && bytes <= kMostTurned;
  }
  return bytes <= (is_avx2 ? kMostOfAvx2 : std::min(machine.l2_bytes, kMost)) &&
         (problem.first.b.row * size < kPage || problem.k <= kFewRows);
}

// Sums of a tile at a time.
constexpr std::int64_t kTileRows = 8 * kRows, kTileCols = 16 * kCols;
constexpr std::int64_t kTileRowsOfPacked = 32 * kRows;  // columns are packed for each

struct DirectMemory {
  std::int64_t columns, rows, pitch, sums, buffers;

  DirectMemory(const Problem& problem, Isa isa)
      : columns(packs_columns(problem, isa)
                    ? parts_of(std::min(problem.n, kTileCols) +
                                   pack_kernels_for(problem.dtype(), isa).cols,
                               16) *
                          16 * std::min<std::int64_t>(problem.k, order::kPanel) *
                          size_of(problem.real())
                    : 0),
        rows(std::min(problem.m, packs_columns(problem, isa) ? kTileRowsOfPacked : kTileRows)),
        pitch(std::min(parts_of(problem.n, kCols) * kCols, kTileCols) +
              64 / size_of(problem.real())),
        sums(rows * pitch * size_of(problem.real())),
        buffers(sums_are_in_y(problem) ? 0 : Runs::buffers(problem.k)) {}
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
  const bool in_y = sums_are_in_y(problem);
  // A panel of k, to where `to` says. Columns of b lie in `room` where they are packed, and meet as
  // many rows of a as stay in the second cache.
  const auto multiplied = [&](std::byte* room, const Arrays& arrays, const Region& tile,
                              std::int64_t k, std::int64_t count, Direct to) {
    const Array a = arrays.a.moved(tile.row, k), b = arrays.b.moved(k, tile.col);
    to.a_row = a.row;
    to.a_k = a.col;
    to.k = count;
    to.adds = k % kRunK != 0;
    const auto by = [&](std::int64_t row, std::int64_t rows, const std::byte* columns,
                        std::int64_t b_k, std::int64_t col, std::int64_t cols) {
      Direct some = to;
      some.a = a.moved(row, 0).data;
      some.b = columns;
      some.b_k = b_k;
      some.c = static_cast<std::byte*>(to.c) + (row * to.c_row + col) * size;
      some.m = rows;
      some.n = cols;
      if (to.bias != nullptr) some.bias = static_cast<const std::byte*>(to.bias) + col * size;
      multiply(some);
    };
    if (!packs) return by(0, tile.rows, b.data, b.row, 0, tile.cols);
    pack.pack_b({b.data, b.col, b.row, tile.cols}, count, room);
    const std::int64_t most = std::max(kRows, execution.machine.l2_bytes / 2 / (count * size));
    const std::int64_t blocks = parts_of(tile.rows, most);
    for (std::int64_t block = 0; block < blocks; ++block) {
      const std::int64_t row = tile.rows * block / blocks;
      const std::int64_t rows = tile.rows * (block + 1) / blocks - row;
      for (std::int64_t col = 0; col < tile.cols; col += pack.cols) {
        const std::int64_t cols = std::min(pack.cols, tile.cols - col);
        by(row, rows, room + col * count * size, cols <= pack.width ? pack.width : pack.cols, col,
           cols);
      }
    }
  };
  const auto in_results = [&](std::byte* room, const Arrays& arrays, const Region& tile) {
    const Array y = arrays.y.moved(tile.row, tile.col), bias = arrays.bias.moved(0, tile.col);
    for (std::int64_t k = 0; k < problem.k; k += order::kPanel) {
      const std::int64_t count = std::min<std::int64_t>(order::kPanel, problem.k - k);
      const bool ends = k + count == problem.k;
      multiplied(
          room, arrays, tile, k, count,
          {.c = y.data, .c_row = y.row, .are_results = ends, .bias = ends ? bias.data : nullptr});
    }
  };
  const auto finished = [&](std::byte* room, const Arrays& arrays, const Region& tile) {
    Runs runs(room + memory.columns, memory.sums, tile.rows * memory.pitch, add);
    runs.for_each_panel(problem.k, [&](std::int64_t k, std::int64_t count) {
      multiplied(room, arrays, tile, k, count, {.c = runs.now(), .c_row = memory.pitch});
    });
    finish(arrays, tile.row, tile.col, runs.total(), memory.pitch, tile.rows, tile.cols);
  };
  const std::int64_t most_rows = in_y ? problem.m : memory.rows;
  const std::int64_t most_cols = in_y && !packs ? problem.n : kTileCols;
  for_each_region(problem, execution, grid, kRows, kCols,
                  [&](std::int64_t task, const Region& region) {
                    const Arrays arrays = problem.arrays(region.product);
                    std::byte* room = execution.workspace + task * memory.bytes();
                    for (std::int64_t j = 0; j < region.cols; j += most_cols)
                      for (std::int64_t i = 0; i < region.rows; i += most_rows) {
                        const Region tile{region.product, region.row + i, region.col + j,
                                          std::min(most_rows, region.rows - i),
                                          std::min(most_cols, region.cols - j)};
                        if (in_y)
                          in_results(room, arrays, tile);
                        else
                          finished(room, arrays, tile);
                      }
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
