// SPDX-License-Identifier: Apache-2.0
// The variants for GPUs: which kernels they launch, for what, in how much memory.
#include <algorithm>
#include <string>

#include "isobit/core/pieces.h"
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
    with_monoid<tile::Scalar, Y>(problem.kind,
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

constexpr std::int64_t kTile = kBlock * kWarps;

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
  if (pieces(problem, kTile) >= simt::kMostBlocks / std::max<std::int64_t>(problem.rows(), 1))
    return "there are more tiles than blocks of a launch";
  return keeps_segments(problem, machine);
}

bool few_long_rows(const Problem& problem, const Machine& machine) {
  return problem.along.extent > 2 * kTile && problem.rows() < 4 * machine.gpu.multiprocessors;
}
bool rows_for_warps(const Problem& problem, const Machine&) {
  return problem.inner.y != 1 || problem.rows() < 1024;
}

std::size_t lookback_workspace(const Problem& problem, const Plan&, const Machine&) {
  const std::int64_t tiles = problem.rows() * pieces(problem, kTile);
  Pieces memory;
  memory.take(tiles * kCarryBytes);
  memory.take((tiles + 1) * static_cast<std::int64_t>(sizeof(unsigned)));
  return memory.taken();
}
void run_lookback(const Args&, const Problem& problem, const Plan&, const Execution& execution) {
  if (problem.elements() == 0) return;
  const std::int64_t in_row = pieces(problem, kTile), tiles = problem.rows() * in_row;
  Pieces memory(execution.workspace);
  std::byte* const nodes = memory.take(tiles * kCarryBytes);
  auto* const words = reinterpret_cast<unsigned*>(
      memory.take((tiles + 1) * static_cast<std::int64_t>(sizeof(unsigned))));
  launch(execution, std::min<std::int64_t>((tiles + 256) / 256, 64), 256, Clear{words, tiles + 1});
  with_types(problem, [&]<class M, class X, class Y>() {
    using Carry = typename M::Carry;
    static_assert(sizeof(Carry) <= kCarryBytes);
    launch(execution, tiles, kTileThreads,
           Lookback<M, X, Y>{Rows<M, X, Y>(problem), in_row, reinterpret_cast<Carry*>(nodes),
                             words + 1, words});
  });
}

std::size_t reduce_workspace(const Problem& problem, const Plan&, const Machine&) {
  return static_cast<std::size_t>(problem.rows() * pieces(problem, kBlock) * kCarryBytes);
}
void run_reduce_then_scan(const Args&, const Problem& problem, const Plan&,
                          const Execution& execution) {
  if (problem.elements() == 0) return;
  const std::int64_t in_row = pieces(problem, kBlock), blocks = problem.rows() * in_row;
  with_types(problem, [&]<class M, class X, class Y>() {
    using Carry = typename M::Carry;
    auto* const totals = reinterpret_cast<Carry*>(execution.workspace);
    const Rows<M, X, Y> rows(problem);
    launch(execution, (blocks + kWarps - 1) / kWarps, kTileThreads,
           BlockTotals<M, X, Y>{rows, in_row, totals});
    launch(execution, (problem.rows() + 127) / 128, 128,
           BlockCarries<M>{problem.rows(), in_row, totals});
    launch(execution, (blocks + kWarps - 1) / kWarps, kTileThreads,
           BlockResults<M, X, Y>{rows, in_row, totals});
  });
}

void run_one_block(const Args&, const Problem& problem, const Plan&, const Execution& execution) {
  if (problem.elements() == 0) return;
  with_types(problem, [&]<class M, class X, class Y>() {
    launch(execution, problem.rows(), kTileThreads, OneBlock<M, X, Y>{Rows<M, X, Y>(problem)});
  });
}

void run_row_scan(const Args&, const Problem& problem, const Plan&, const Execution& execution) {
  if (problem.elements() == 0) return;
  with_types(problem, [&]<class M, class X, class Y>() {
    launch(execution, (problem.rows() + 127) / 128, 128, RowScan<M, X, Y>{Rows<M, X, Y>(problem)});
  });
}

template <template <class> class Steps>
void run_textbook(const Args&, const Problem& problem, const Plan&, const Execution& execution) {
  if (problem.elements() == 0) return;
  with_types(problem, [&]<class M, class X, class Y>() {
    launch(execution, problem.rows(), kTextbookThreads,
           Textbook<M, X, Y, Steps>{Rows<M, X, Y>(problem)});
  });
}

constexpr ScanVariant kVariants[] = {
    {.name = "lookback",
     .declines = keeps_tickets,
     .suits = few_long_rows,
     .workspace = lookback_workspace,
     .run = run_lookback},
    {.name = "one_block",
     .declines = keeps_segments,
     .suits = rows_for_warps,
     .run = run_one_block},
    {.name = "reduce_then_scan",
     .declines = keeps_segments,
     .suits = few_long_rows,
     .workspace = reduce_workspace,
     .run = run_reduce_then_scan},
    {.name = "row_scan", .run = run_row_scan},
    {.name = "hillis_steele",
     .bits = Bits::own,
     .declines = keeps_segments,
     .run = run_textbook<HillisSteele>},
    {.name = "blelloch",
     .bits = Bits::own,
     .declines = keeps_segments,
     .run = run_textbook<Blelloch>},
};

}  // namespace

std::span<const ScanVariant> cuda_variants() { return kVariants; }

}  // namespace isobit::scan
