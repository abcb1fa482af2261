// SPDX-License-Identifier: Apache-2.0
// The packed variant: tiles of both matrices that stay in the caches, as panels that are read in
// order; and the table of all variants.
#include "isobit/ops/matmul/cpu_panels.h"
#include "isobit/ops/matmul/cpu_slopes.h"

namespace isobit::matmul {
namespace {

constexpr int kRowPanels[] = {1, 2, 4, 8, 16, 32, 64, 128};
constexpr int kTileCols[] = {64, 128, 256, 512, 1024, 2048};
constexpr Knob kPackedKnobs[] = {
    {"row_panels", kRowPanels, "panels of rows that are packed at a time"},
    {"cols", kTileCols, "columns whose sums are kept at a time"}};

// What is made is made a panel of rows, or a few panels of columns, at a time: it is packed out of
// the first or second cache.
constexpr std::int64_t kMadePanels = 8;
// Of columns that are packed before they are multiplied: so many panels at least, so many bytes.
constexpr std::int64_t kColPanels = 4, kColBytes = 256 << 10;
constexpr std::int64_t kDeepest = 4096;     // bytes of a row or column that are packed at a time
constexpr std::int64_t kStaying = 1 << 20;  // bytes of sums that wait in the second cache
constexpr std::int64_t kGap = 16;  // elements: lines a power of two apart would push each other out

std::int64_t made_bytes(const Problem& problem, const PackKernels& kernels, std::int64_t k) {
  const std::int64_t of_a = problem.made_a ? kernels.rows * (k + kGap) : 0;
  const std::int64_t of_b = problem.made_b ? k * (kMadePanels * kernels.cols + kGap) : 0;
  return parts_of(std::max(of_a, of_b) * size_of(problem.element), 64) * 64;
}

// How many k are packed at a time: of floats more than a panel, unless sums stay in the second
// cache anyway, since they pass through memory less often then.
std::int64_t depth_of(const Problem& problem) {
  const bool are_floats = problem.panels == nullptr && problem.derived == Derived::none &&
                          !problem.made_b && size_of(problem.dtype()) >= 4;
  const std::int64_t deepest = kDeepest / size_of(problem.real());
  const bool stay = problem.m * problem.n * size_of(problem.real()) <= kStaying;
  return are_floats && (problem.k <= deepest || (sums_are_in_y(problem) && !stay))
             ? std::max<std::int64_t>(deepest, order::kPanel)
             : std::int64_t{order::kPanel};
}

// What packs and multiplies: elements, and pairs where that is faster.
struct Kernels {
  const PackKernels& elements;
  const PairKernels* pairs;

  Kernels(const Problem& problem, Isa isa)
      : elements(pack_kernels_for(problem.dtype(), isa)),
        pairs(faster_pairs_for(problem.dtype(), isa)) {}
};

// Whether sums are finished as soon as a few panels of columns are multiplied: not of pairs, which
// are all looked at before any is multiplied.
bool sums_end_at_once(const Problem& problem, const Kernels& kernels) {
  return problem.panels == nullptr && problem.arithmetic == Arithmetic::canonical &&
         kernels.pairs == nullptr && problem.k > 0 && problem.k <= depth_of(problem);
}

// How many columns are packed before they are multiplied: where their sums need no memory, more of
// a short k.
std::int64_t cols_at_a_time(const Problem& problem, const PackKernels& kernels) {
  const std::int64_t k = std::clamp<std::int64_t>(problem.k, 1, depth_of(problem));
  const std::int64_t bytes = k * kernels.cols * size_of(problem.real());
  return kernels.cols *
         (sums_are_in_y(problem) ? std::max(kColPanels, kColBytes / bytes) : kColPanels);
}

// What a thread of the packed variant works in.
struct PackedMemory {
  std::int64_t a, b, derived, made, sums;  // bytes
  std::int64_t pitch;                      // elements
  std::int64_t buffers;
  std::int64_t depth, cols;  // k that are packed at a time; columns of a tile

  PackedMemory(const Problem& problem, const Kernels& all, std::int64_t panels,
               std::int64_t most_cols)
      : depth(depth_of(problem)) {
    const PackKernels& kernels = all.elements;
    const bool in_y = sums_are_in_y(problem), at_once = sums_end_at_once(problem, all);
    const std::int64_t size = size_of(problem.real()), line = 64 / size;
    const std::int64_t k = std::min(problem.k, depth);
    const std::int64_t rows = std::min(panels * kernels.rows, problem.m);
    panels = parts_of(rows, kernels.rows);
    // Where nothing is kept of columns, a tile has all of them.
    cols = (in_y || at_once) && problem.derived != Derived::b ? problem.n
                                                              : std::min(most_cols, problem.n);
    const std::int64_t whole = parts_of(cols, kernels.cols) * kernels.cols;
    a = parts_of(panels * kernels.row_pitch * k, line) * 64;
    b = parts_of(own_cols(problem, all, whole) * k, line) * 64;
    // Rows that lie a power of two apart would push each other out of caches.
    pitch = (at_once ? std::min(whole, cols_at_a_time(problem, kernels)) : whole) + line;
    sums = in_y ? 0 : parts_of(rows * pitch, line) * 64;
    buffers = Runs::buffers(problem.k);
    derived = problem.derived == Derived::b ? Slopes::room(problem, k, cols)
                                            : Slopes::room(problem, rows, k);
    made = made_bytes(problem, kernels, k);
  }
  std::int64_t bytes() const { return a + b + derived + made + buffers * sums; }
  // Threads that there is memory for.
  std::int64_t most_tasks() const { return std::max<std::int64_t>(1, kMostMemory / bytes()); }

 private:
  // Of b, that are packed here: of panels that there are already, those of one that is widened in
  // memory; all where they may be pairs.
  static std::int64_t own_cols(const Problem& problem, const Kernels& kernels, std::int64_t cols) {
    if (problem.panels != nullptr) {
      const bool widens = problem.panels->in_pairs() && problem.arithmetic == Arithmetic::tensor;
      return widens ? kernels.elements.cols : 0;
    }
    return kernels.pairs != nullptr ? cols
                                    : std::min(cols, cols_at_a_time(problem, kernels.elements));
  }
};

// Both come from the third cache at the speed of the second, where there is enough to do between:
// the more rows there are, the less often columns are packed.
Plan choose_packed(const Problem& problem, const Machine& machine) {
  const Kernels kernels(problem, machine.isa);
  int panels = 128, cols = 1024;
  const std::int64_t most = kMostMemory / std::max(1, machine.threads);
  while (PackedMemory(problem, kernels, panels, cols).bytes() > most && (panels > 1 || cols > 64)) {
    if (cols > 64 && (panels == 1 || cols >= panels * kernels.elements.rows))
      cols /= 2;
    else
      panels /= 2;
  }
  return {panels, cols};
}

std::size_t packed_workspace(const Problem& problem, const Plan& plan, const Machine& machine) {
  if (problem.empty()) return 0;
  const Kernels kernels(problem, machine.isa);
  const PackedMemory memory(problem, kernels, plan[0], plan[1]);
  const Grid grid =
      grid_of(problem, machine, kernels.elements.rows, kernels.elements.cols, memory.most_tasks());
  return static_cast<std::size_t>(grid.tasks * memory.bytes());
}

// Rows or columns of an operand: as they lie in memory, or as they are made.
struct Source {
  Lanes lanes;
  const Made& made;
  std::int64_t first, k;  // the first of them, and the first of their elements
  std::byte* room;        // for parts that are made
};

// Packs rows; pack(lanes, to) packs some, whose panels take `bytes` each.
template <class Pack>
void pack_rows(const Source& rows, const PackKernels& kernels, std::int64_t k, void* to,
               std::int64_t bytes, const Pack& pack) {
  if (!rows.made) return pack(rows.lanes, to);
  const std::int64_t panels = parts_of(rows.lanes.count, kernels.rows), pitch = k + kGap;
  for (std::int64_t panel = 0; panel < panels; ++panel) {
    const std::int64_t begin = rows.lanes.count * panel / panels;
    const std::int64_t count = rows.lanes.count * (panel + 1) / panels - begin;
    rows.made.part(rows.made.self, rows.first + begin, rows.k, count, k, rows.room, pitch);
    pack({rows.room, pitch, 1, count}, static_cast<std::byte*>(to) + panel * bytes);
  }
}

// Packs columns; each column of a panel takes `bytes`.
template <class Pack>
void pack_cols(const Source& cols, const PackKernels& kernels, std::int64_t k, void* to,
               std::int64_t bytes, const Pack& pack) {
  if (!cols.made) return pack(cols.lanes, to);
  const std::int64_t some = kMadePanels * kernels.cols, pitch = some + kGap;
  for (std::int64_t begin = 0; begin < cols.lanes.count; begin += some) {
    const std::int64_t count = std::min(some, cols.lanes.count - begin);
    cols.made.part(cols.made.self, cols.k, cols.first + begin, k, count, cols.room, pitch);
    pack({cols.room, 1, pitch, count}, static_cast<std::byte*>(to) + begin * bytes);
  }
}

using Multiply = void (*)(const Block& block);

// Packs and multiplies elements: a few panels of columns at a time, which are in the second cache
// when they are multiplied. finish(block, first column) follows each where sums end at once; they
// are then in the same place for all columns.
template <class Ended>
void multiply_elements(const Problem& problem, const PackKernels& kernels, Multiply multiply,
                       const Source& rows, const Source& cols, Block block, bool at_once,
                       const Ended& finish) {
  const std::int64_t k = block.k, size = size_of(problem.real()), bytes = k * size;
  pack_rows(rows, kernels, k, const_cast<void*>(block.a), kernels.row_pitch * bytes,
            [&](const Lanes& lanes, void* to) { kernels.pack_a(lanes, k, to); });
  const std::int64_t all = block.n, some = cols_at_a_time(problem, kernels);
  std::byte* const c = static_cast<std::byte*>(block.c);
  const auto* const bias = static_cast<const std::byte*>(block.bias);
  Source now = cols;
  for (std::int64_t begin = 0; begin < all; begin += some) {
    block.n = now.lanes.count = std::min(some, all - begin);
    pack_cols(now, kernels, k, const_cast<void*>(block.b), bytes,
              [&](const Lanes& lanes, void* to) { kernels.pack_b(lanes, k, to); });
    if (!at_once) block.c = c + begin * size;
    if (bias != nullptr) block.bias = bias + begin * size;
    multiply(block);
    if (at_once) finish(block, begin);
    now.first += some;
    now.lanes.data += some * cols.lanes.stride * size_of(problem.element);
  }
}

// Whether no sum of pairs can be subnormal, by the smallest exponents of their parts.
bool sums_are_normal(int of_a, int of_b) {
  return of_a != 0 && of_b != 0 && of_a + of_b >= PairKernels::kLeastExponents;
}

// Packs and multiplies pairs, if that can be done with the same bits.
bool multiply_pairs(const Kernels& all, const Source& rows, const Source& cols,
                    const Block& block) {
  const PackKernels& kernels = all.elements;
  const PairKernels* const pairs = all.pairs;
  if (pairs == nullptr) return false;
  const std::int64_t k = block.k, bytes = (k + 1) / 2 * 4;
  int of_a = 255, of_b = 255;
  pack_rows(
      rows, kernels, k, const_cast<void*>(block.a), kernels.row_pitch * bytes,
      [&](const Lanes& lanes, void* to) { of_a = std::min(of_a, pairs->pack_a(lanes, k, to)); });
  if (of_a == 0) return false;
  pack_cols(cols, kernels, k, const_cast<void*>(block.b), bytes, [&](const Lanes& lanes, void* to) {
    of_b = std::min(of_b, pairs->pack_b(lanes, k, to));
  });
  if (!sums_are_normal(of_a, of_b)) return false;
  pairs->multiply(block);
  return true;
}

// Packs rows and multiplies them by panels from (k, col) on. Pairs that would have other bits, or
// are slower, are widened as they are read; in steps, a panel at a time is widened to block.b.
void multiply_panels(const Kernels& all, Multiply multiply, const Lanes& rows, const Panels& panels,
                     std::int64_t k, std::int64_t col, Block block) {
  const PackKernels& kernels = all.elements;
  void *const a = const_cast<void*>(block.a), *const widened = const_cast<void*>(block.b);
  block.b = panels.at(k, col);
  if (!panels.in_pairs()) {
    kernels.pack_a(rows, block.k, a);
    return multiply(block);
  }
  const PairKernels* const pairs = panels.pairs();
  const bool in_steps = multiply != kernels.multiply;
  const int of_a = all.pairs != nullptr && !in_steps ? pairs->pack_a(rows, block.k, a) : 0;
  if (sums_are_normal(of_a, panels.least_exponent(k, col, block.n))) return pairs->multiply(block);
  kernels.pack_a(rows, block.k, a);
  if (!in_steps) return pairs->multiply_widened(block);
  block.b = widened;
  const std::int64_t end = block.n;
  for (std::int64_t done = 0; done < end; done += block.n) {
    block.n = std::min(kernels.cols, end - done);
    pairs->widen_b(panels.at(k, col + done), block.n, block.k, widened);
    multiply(block);
    block.c = static_cast<float*>(block.c) + block.n;
  }
}

void run_packed(const ForwardArgs&, const Problem& problem, const Plan& plan,
                const Execution& execution) {
  if (problem.empty()) return;
  const Isa isa = execution.machine.isa;
  const Kernels all(problem, isa);
  const PackKernels& kernels = all.elements;
  const bool in_steps = problem.arithmetic == Arithmetic::tensor;
  const Multiply multiply = in_steps ? kernels.multiply_in_steps : kernels.multiply;
  const PackedMemory memory(problem, all, plan[0], plan[1]);
  const Grid grid =
      grid_of(problem, execution.machine, kernels.rows, kernels.cols, memory.most_tasks());
  const Finish finish(problem, isa);
  const AddKernel add = add_kernel_for(problem.real(), isa);
  const Slopes slopes(problem, isa);
  const bool in_y = sums_are_in_y(problem), at_once = !in_y && sums_end_at_once(problem, all);
  const auto tile = [&](std::byte* room, const Arrays& arrays, std::int64_t row, std::int64_t col,
                        std::int64_t rows, std::int64_t cols) {
    std::byte *a = room, *b = a + memory.a, *derived = b + memory.b;
    std::byte* const made = derived + memory.derived;
    Runs runs(made + memory.made, memory.sums, rows * memory.pitch, add);
    const Array y = arrays.y.moved(row, col), bias = arrays.bias.moved(0, col);
    runs.for_each_part(problem.k, memory.depth, [&](std::int64_t k, std::int64_t count) {
      Array from_a = arrays.a.moved(row, k), from_b = arrays.b.moved(k, col);
      if (problem.derived == Derived::a)
        from_a = slopes.part(from_a, arrays.slope.moved(row, k), rows, count, derived);
      if (problem.derived == Derived::b)
        from_b = slopes.part(from_b, arrays.slope.moved(k, col), count, cols, derived);
      const Lanes rows_of_a{from_a.data, from_a.row, from_a.col, rows};
      const Lanes cols_of_b{from_b.data, from_b.col, from_b.row, cols};
      Block block{a, b, runs.now(), memory.pitch, rows, cols, count, k % kRunK != 0, order::kPanel};
      if (in_y) {
        block.c = y.data;
        block.c_pitch = y.row;
        block.in_results = true;
        block.ends = k + count == problem.k;
        block.bias = bias.data;
      }
      if (problem.panels != nullptr) {
        multiply_panels(all, multiply, rows_of_a, *problem.panels, k, col, block);
      } else {
        const Source from_rows{rows_of_a, problem.made_a, row, k, made};
        const Source from_cols{cols_of_b, problem.made_b, col, k, made};
        if (in_steps || !multiply_pairs(all, from_rows, from_cols, block))
          multiply_elements(problem, kernels, multiply, from_rows, from_cols, block, at_once,
                            [&](const Block& sums, std::int64_t begin) {
                              finish(arrays, row, col + begin, sums.c, sums.c_pitch, rows, sums.n);
                            });
      }
    });
    if (!in_y && !at_once) finish(arrays, row, col, runs.total(), memory.pitch, rows, cols);
  };
  for_each_region(problem, execution, grid, kernels.rows, kernels.cols,
                  [&](std::int64_t task, const Region& region) {
                    std::byte* room = execution.workspace + task * memory.bytes();
                    const Arrays arrays = problem.arrays(region.product);
                    // Tiles of whole panels, as equal as they can be.
                    const std::int64_t panels = parts_of(region.rows, kernels.rows);
                    const std::int64_t down = parts_of(panels, plan[0]),
                                       across = parts_of(region.cols, memory.cols);
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

ForwardVariant packed_variant() {
  return {.name = "packed",
          .knobs = kPackedKnobs,
          .each_isa = true,
          .choose = choose_packed,
          .workspace = packed_workspace,
          .run = run_packed};
}

std::span<const ForwardVariant> cpu_forward_variants() {
  static const ForwardVariant kVariants[] = {amx_variant(),    vector_variant(),  direct_variant(),
                                             packed_variant(), blocked_variant(), naive_variant()};
  return kVariants;
}

}  // namespace isobit::matmul
