// SPDX-License-Identifier: Apache-2.0
// The variants for GPUs: which kernels they launch, for what, in how much memory.
#include <algorithm>
#include <bit>
#include <string>

#include "isobit/core/pieces.h"
#include "isobit/dispatch/threads.h"
#include "isobit/ops/scan/cuda_kernels.h"
#include "isobit/ops/scan/cuda_textbook.h"
#include "isobit/ops/scan/formula_elements.h"
#include "isobit/ops/scan/formula_monoids.h"

namespace isobit::scan {
namespace {

// What a variant is, given the monoid and the types of the arrays.
template <class Visit>
void with_types(const Problem& problem, const Visit& visit) {
  visit_types(problem.x_dtype, problem.y_dtype, [&]<class X, class Y>(Type<X>, Type<Y>) {
    with_monoid<tile::Scalar, Y, true>(problem.kind,
                                       [&]<class M>(M) { visit.template operator()<M, X, Y>(); });
  });
}

template <class Kernel>
void launch(const Execution& execution, std::int64_t blocks, int threads, const Kernel& kernel) {
  simt::launch(
      static_cast<simt::Stream>(execution.stream),
      {.blocks = std::clamp<std::int64_t>(blocks, 1, simt::kMostBlocks), .threads = threads},
      kernel);
}

constexpr int kChosenThreads = 256, kChosenForRows = 128;

constexpr int warps_of(int threads) { return threads / simt::kWarpThreads; }
// The elements that a block of so many threads takes at once.
constexpr std::int64_t tile_of(int threads) { return std::int64_t{kBlock} * warps_of(threads); }

std::int64_t pieces(const Problem& problem, std::int64_t size) {
  return (problem.along.extent + size - 1) / size;
}
// As large as any monoid's.
constexpr std::int64_t kCarryBytes = 32;

std::string keeps_segments(const Problem& problem, const Machine&) {
  if (problem.first.reset != nullptr) return "segments are scanned by row_scan only";
  if (problem.exclusive && problem.in_place())
    return "an exclusive scan in place needs row_scan: others write where a neighbour reads";
  return "";
}
std::string keeps_tickets(const Problem& problem, const Machine& machine) {
  if (pieces(problem, tile_of(kThreadCounts[0])) >=
      simt::kMostBlocks / std::max<std::int64_t>(problem.rows(), 1))
    return "there are more tiles than blocks of a launch";
  return keeps_segments(problem, machine);
}

bool few_long_rows(const Problem& problem, const Machine& machine) {
  return problem.along.extent > 2 * tile_of(kChosenThreads) &&
         problem.rows() < 4 * machine.gpu.multiprocessors;
}
bool rows_for_warps(const Problem& problem, const Machine&) {
  return problem.inner.y != 1 || problem.rows() < 1024;
}

std::size_t lookback_workspace(const Problem& problem, const Plan& plan, const Machine&) {
  const std::int64_t tiles = problem.rows() * pieces(problem, tile_of(plan[0]));
  Pieces memory;
  memory.take(tiles * kCarryBytes);
  memory.take((tiles + 1) * static_cast<std::int64_t>(sizeof(unsigned)));
  return memory.taken();
}
void run_lookback(const Args&, const Problem& problem, const Plan& plan,
                  const Execution& execution) {
  if (problem.elements() == 0) return;
  const std::int64_t in_row = pieces(problem, tile_of(plan[0])), tiles = problem.rows() * in_row;
  Pieces memory(execution.workspace);
  std::byte* const nodes = memory.take(tiles * kCarryBytes);
  auto* const words = reinterpret_cast<unsigned*>(
      memory.take((tiles + 1) * static_cast<std::int64_t>(sizeof(unsigned))));
  launch(execution, std::min<std::int64_t>((tiles + 256) / 256, 64), 256, Clear{words, tiles + 1});
  with_types(problem, [&]<class M, class X, class Y>() {
    using Carry = typename M::Carry;
    static_assert(sizeof(Carry) <= kCarryBytes);
    launch(execution, tiles, plan[0],
           Lookback<M, X, Y>{Rows<M, X, Y>(problem), in_row, reinterpret_cast<Carry*>(nodes),
                             words + 1, words,
                             std::countr_zero(static_cast<unsigned>(warps_of(plan[0])))});
  });
}

std::size_t reduce_workspace(const Problem& problem, const Plan&, const Machine&) {
  return static_cast<std::size_t>(problem.rows() * pieces(problem, kBlock) * kCarryBytes);
}
void run_reduce_then_scan(const Args&, const Problem& problem, const Plan& plan,
                          const Execution& execution) {
  if (problem.elements() == 0) return;
  const std::int64_t in_row = pieces(problem, kBlock), blocks = problem.rows() * in_row;
  const std::int64_t launched = (blocks + warps_of(plan[0]) - 1) / warps_of(plan[0]);
  with_types(problem, [&]<class M, class X, class Y>() {
    using Carry = typename M::Carry;
    auto* const totals = reinterpret_cast<Carry*>(execution.workspace);
    const Rows<M, X, Y> rows(problem);
    const Blocks<M, X, Y> block_totals{rows, in_row, totals, warps_of(plan[0]), false};
    launch(execution, launched, plan[0], block_totals);
    launch(execution, (problem.rows() + 127) / 128, 128,
           BlockCarries<M>{problem.rows(), in_row, totals});
    const Blocks<M, X, Y> results{rows, in_row, totals, warps_of(plan[0]), true};
    launch(execution, launched, plan[0], results);
  });
}

void run_one_block(const Args&, const Problem& problem, const Plan& plan,
                   const Execution& execution) {
  if (problem.elements() == 0) return;
  with_types(problem, [&]<class M, class X, class Y>() {
    launch(execution, problem.rows(), plan[0],
           OneBlock<M, X, Y>{Rows<M, X, Y>(problem), warps_of(plan[0])});
  });
}

void run_row_scan(const Args&, const Problem& problem, const Plan& plan,
                  const Execution& execution) {
  if (problem.elements() == 0) return;
  with_types(problem, [&]<class M, class X, class Y>() {
    launch(execution, (problem.rows() + plan[0] - 1) / plan[0], plan[0],
           RowScan<M, X, Y>{Rows<M, X, Y>(problem), warps_of(plan[0])});
  });
}

template <Steps kSteps>
void run_textbook(const Args&, const Problem& problem, const Plan&, const Execution& execution) {
  if (problem.elements() == 0) return;
  with_types(problem, [&]<class M, class X, class Y>() {
    launch(execution, problem.rows(), kTextbookThreads,
           Textbook<M, X, Y>{Rows<M, X, Y>(problem), kSteps});
  });
}

constexpr Knob kTileKnobs[] = {
    threads_knob(kWidest, "threads per block, each warp of which has 512 elements at a time")};
constexpr Knob kRowKnobs[] = {threads_knob(kWidest)};

Plan choose_threads(const Problem&, const Machine&) { return {kChosenThreads}; }

constexpr ScanVariant kVariants[] = {
    {.name = "lookback",
     .knobs = kTileKnobs,
     .declines = keeps_tickets,
     .suits = few_long_rows,
     .choose = choose_threads,
     .workspace = lookback_workspace,
     .run = run_lookback},
    {.name = "one_block",
     .knobs = kTileKnobs,
     .declines = keeps_segments,
     .suits = rows_for_warps,
     .choose = choose_threads,
     .run = run_one_block},
    {.name = "reduce_then_scan",
     .knobs = kTileKnobs,
     .declines = keeps_segments,
     .suits = few_long_rows,
     .choose = choose_threads,
     .workspace = reduce_workspace,
     .run = run_reduce_then_scan},
    {.name = "row_scan",
     .knobs = kRowKnobs,
     .choose = [](const Problem&, const Machine&) -> Plan { return {kChosenForRows}; },
     .run = run_row_scan},
    {.name = "hillis_steele",
     .bits = Bits::own,
     .declines = keeps_segments,
     .run = run_textbook<Steps::hillis_steele>},
    {.name = "blelloch",
     .bits = Bits::own,
     .declines = keeps_segments,
     .run = run_textbook<Steps::blelloch>},
};

}  // namespace

std::span<const ScanVariant> cuda_variants() { return kVariants; }

}  // namespace isobit::scan
