// SPDX-License-Identifier: Apache-2.0
// The variant that multiplies bf16 by AMX, where arithmetic tensor is asked for. Its order of sums
// is that of core/amx.h.
#include "isobit/core/amx.h"
#include "isobit/ops/matmul/cpu_panels.h"
#include "isobit/ops/matmul/cpu_slopes.h"

namespace isobit::matmul {

const TileKernels* tile_kernels_for(Isa isa) { ISOBIT_RETURN_FOR_ISA(isa, tile_kernels()); }

// Asked once, as long as nothing asks for tensor not at all.
std::string declines_tiles(const Machine& machine) {
  if (tile_kernels_for(machine.isa) == nullptr) return "needs avx512 besides AMX";
  static const std::string reason = [] {
    std::string none = amx::why_not();
    if (none.empty() && !tile_kernels_for(Isa::avx512)->works())
      none = "the processor's AMX does not add as Intel documents it";
    return none;
  }();
  return reason;
}

namespace {

constexpr int kRows[] = {64, 128, 256, 512, 1024, 2048}, kCols[] = {64, 128, 256, 512, 1024, 2048},
              kDepths[] = {512, 1024, 2048};
constexpr Knob kKnobs[] = {{"rows", kRows, "rows whose sums are kept at a time"},
                           {"cols", kCols, "columns that are packed at a time"},
                           {"depth", kDepths, "k that are packed at a time"}};

constexpr std::int64_t kLanes = TileKernels::kLanes;
constexpr std::int64_t kCut = 2 * kLanes;  // regions and tiles are whole pairs of panels
// Of a, that are packed at a time: with 256, products of 512^3 take an eighth longer, larger ones
// as long [Xeon, family 6, model 167, one thread of a busy machine].
constexpr std::int64_t kMostRows = 128;
static_assert(amx::kRun == kRunK && kRunK % 2048 == 0);

std::int64_t whole_lanes(std::int64_t count) { return parts_of(count, kLanes) * kLanes; }

// What a thread works in.
struct Memory {
  std::int64_t depth, block, rows;                   // k, rows of a, and rows of sums
  std::int64_t a_pitch, b_pitch;                     // bytes of a panel
  std::int64_t a, b, derived, sums, buffers, pitch;  // bytes, but for the last two

  Memory(const Problem& problem, const Plan& plan) {
    depth = std::min<std::int64_t>(plan[2], problem.k);
    const std::int64_t cols = std::min<std::int64_t>(plan[1], problem.n);
    block = std::min({std::int64_t{plan[0]}, kMostRows, problem.m});
    // Where all of k is packed at once, sums are finished block by block.
    rows = depth == problem.k ? block : std::min<std::int64_t>(plan[0], problem.m);
    a_pitch = b_pitch = parts_of(depth, amx::kStep) * TileKernels::kBytes;
    a = parts_of(block, kLanes) * a_pitch;
    b = parts_of(cols, kLanes) * b_pitch;
    pitch = whole_lanes(cols) + kLanes;  // rows a power of two apart would push each other out
    sums = whole_lanes(rows) * pitch * size_of(DType::f32);
    buffers = Runs::buffers(problem.k);
    const std::int64_t some = std::min<std::int64_t>(depth, order::kPanel);
    derived = problem.derived == Derived::b ? Slopes::room(problem, some, cols)
                                            : Slopes::room(problem, block, some);
  }
  std::int64_t bytes() const { return a + b + derived + buffers * sums; }
  std::int64_t most_tasks() const { return std::max<std::int64_t>(1, kMostMemory / bytes()); }
};

std::string declines_amx(const Problem& problem, const Machine& machine) {
  if (problem.arithmetic != Arithmetic::tensor) return "has no arithmetic but tensor";
  if (problem.made_a || problem.made_b || problem.panels != nullptr)
    return "needs matrices that are arrays";
  return declines_tiles(machine);
}

bool suits_amx(const Problem& problem, const Machine&) {
  return problem.arithmetic == Arithmetic::tensor;
}

// Panels of a stay in the second cache, those of b come from the third. Few rows are limited by
// memory, and b is then packed where it is still in a cache.
Plan choose_amx(const Problem& problem, const Machine& machine) {
  Plan plan = {2048, 2048, problem.m <= 64 ? 512 : 2048};
  const std::int64_t most = kMostMemory / std::max(1, machine.threads);
  while (Memory(problem, plan).bytes() > most) {
    if (plan[2] > 512 && plan[0] <= 256 && plan[1] <= 256)
      plan[2] /= 2;
    else if (plan[1] > 64 && plan[1] >= plan[0])
      plan[1] /= 2;
    else if (plan[0] > 64)
      plan[0] /= 2;
    else
      break;
  }
  return plan;
}

Grid grid_of_tiles(const Problem& problem, const Plan& plan, const Machine& machine) {
  return grid_of(problem, machine, kCut, kCut, Memory(problem, plan).most_tasks());
}

std::size_t amx_workspace(const Problem& problem, const Plan& plan, const Machine& machine) {
  if (problem.empty()) return 0;
  return static_cast<std::size_t>(grid_of_tiles(problem, plan, machine).tasks *
                                  Memory(problem, plan).bytes());
}

void run_amx(const ForwardArgs&, const Problem& problem, const Plan& plan,
             const Execution& execution) {
  if (problem.empty()) return;
  const Isa isa = execution.machine.isa;
  const TileKernels& kernels = *tile_kernels_for(isa);
  const Memory memory(problem, plan);
  const Finish finish(problem, isa);
  const AddKernel add = add_kernel_for(problem.real(), isa);
  const Slopes slopes(problem, isa);

  // Parts of an operand, so many k at a time as a derived one has room for.
  const auto pack_a = [&](const Arrays& arrays, std::int64_t row, std::int64_t k, std::int64_t rows,
                          std::int64_t depth, std::byte* to, std::byte* derived) {
    for (std::int64_t at = 0; at < depth; at += order::kPanel) {
      const std::int64_t some = std::min<std::int64_t>(order::kPanel, depth - at);
      Array from = arrays.a.moved(row, k + at);
      if (problem.derived == Derived::a)
        from = slopes.part(from, arrays.slope.moved(row, k + at), rows, some, derived);
      kernels.pack_a({from.data, from.row, from.col, rows}, some,
                     to + at / amx::kStep * TileKernels::kBytes, memory.a_pitch);
    }
  };
  const auto pack_b = [&](const Arrays& arrays, std::int64_t k, std::int64_t col,
                          std::int64_t depth, std::int64_t cols, std::byte* to,
                          std::byte* derived) {
    for (std::int64_t at = 0; at < depth; at += order::kPanel) {
      const std::int64_t some = std::min<std::int64_t>(order::kPanel, depth - at);
      Array from = arrays.b.moved(k + at, col);
      if (problem.derived == Derived::b)
        from = slopes.part(from, arrays.slope.moved(k + at, col), some, cols, derived);
      kernels.pack_b({from.data, from.col, from.row, cols}, some,
                     to + at / amx::kStep * TileKernels::kBytes, memory.b_pitch);
    }
  };
  const auto tile = [&](std::byte* room, const Arrays& arrays, std::int64_t row, std::int64_t col,
                        std::int64_t rows, std::int64_t cols) {
    std::byte *a = room, *b = a + memory.a, *derived = b + memory.b;
    for (std::int64_t begin = 0; begin < rows; begin += memory.rows) {
      const std::int64_t end = std::min(rows, begin + memory.rows);
      Runs runs(derived + memory.derived, memory.sums, (end - begin) * memory.pitch, add);
      if (problem.k == 0) {
        std::memset(runs.now(), 0, static_cast<std::size_t>(memory.sums));
        runs.next();
      }
      for (std::int64_t k = 0; k < problem.k; k += memory.depth) {
        const std::int64_t depth = std::min(memory.depth, problem.k - k);
        if (begin == 0 || depth < problem.k) pack_b(arrays, k, col, depth, cols, b, derived);
        for (std::int64_t i = begin; i < end; i += memory.block) {
          const std::int64_t some = std::min(memory.block, end - i);
          pack_a(arrays, row + i, k, some, depth, a, derived);
          auto* const sums = reinterpret_cast<float*>(runs.now()) + (i - begin) * memory.pitch;
          kernels.multiply({a, b, memory.a_pitch, memory.b_pitch, sums, memory.pitch, some, cols,
                            parts_of(depth, amx::kStep), k % kRunK != 0});
        }
        if ((k + depth) % kRunK == 0 || k + depth == problem.k) runs.next();
      }
      finish(arrays, row + begin, col, runs.total(), memory.pitch, end - begin, cols);
    }
  };
  for_each_region(problem, execution, grid_of_tiles(problem, plan, execution.machine), kCut, kCut,
                  [&](std::int64_t task, const Region& region) {
                    std::byte* const room = execution.workspace + task * memory.bytes();
                    const Arrays arrays = problem.arrays(region.product);
                    const std::int64_t across = parts_of(region.cols, plan[1]);
                    for (std::int64_t j = 0; j < across; ++j) {
                      const Part cols(region.cols, kCut, across, j);
                      if (cols.count() > 0)
                        tile(room, arrays, region.row, region.col + cols.begin, region.rows,
                             cols.count());
                    }
                  });
}

}  // namespace

ForwardVariant amx_variant() {
  return {.name = "amx",
          .knobs = kKnobs,
          .each_isa = true,
          .declines = declines_amx,
          .suits = suits_amx,
          .choose = choose_amx,
          .workspace = amx_workspace,
          .run = run_amx};
}

}  // namespace isobit::matmul
