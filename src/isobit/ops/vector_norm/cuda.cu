// SPDX-License-Identifier: Apache-2.0
// The variants for GPUs: a warp or a block takes a row. Sums are in the order of core/order.h.
#include <algorithm>
#include <cstdint>

#include "isobit/dispatch/threads.h"
#include "isobit/norms/cuda_arrays.h"
#include "isobit/norms/cuda_launch.h"
#include "isobit/norms/cuda_row.h"
#include "isobit/ops/vector_norm/formula.h"
#include "isobit/ops/vector_norm/problem.h"
#include "isobit/simt/simt.h"
#include "isobit/tile/row_group.h"

namespace isobit::vector_norm {
namespace {

using norms::Array;
using norms::ArrayRow;
using norms::RealOf;
using tile::kPiece;
using tile::Place;

constexpr int kMostThreads = 512;

template <class Real, class T>
struct Source {
  static constexpr int kElements = kPiece<T>;
  ArrayRow<const T> array;

  ISOBIT_DEVICE void load(const Place& place, Real (&piece)[kElements]) const {
    array.load(place, piece);
  }
};

template <class T, class Group>
struct Kernel {
  using Real = RealOf<T>;
  using Memory = typename Group::template Memory<Real>;
  static constexpr int kMostThreads = vector_norm::kMostThreads;

  Array<const T> x;
  Real* norm;
  std::int64_t rows;
  int cols, threads;
  Order order;

  Kernel(const Problem& problem, int threads)
      : x(problem.x),
        norm(reinterpret_cast<Real*>(problem.norm)),
        rows(problem.rows),
        cols(static_cast<int>(problem.cols)),
        threads(threads),
        order(problem.order) {}

  template <class Carver>
  ISOBIT_EITHER Memory memory(Carver& carver) const {
    return Group::template memory<Real>(carver, threads, norms::blocks_of(cols));
  }

  ISOBIT_DEVICE void operator()(const Memory& memory) const {
    for (std::int64_t row = Group::group(); row < rows; row += Group::groups()) {
      const Real found = norm_of(row, memory);
      if (Group::leads()) norm[row] = simt::Conversions::narrow<Real>(found);
    }
  }

 private:
  ISOBIT_DEVICE Real norm_of(std::int64_t index, const Memory& memory) const {
    const Source<Real, T> source{x.row(index)};
    const norms::RowInMemory<Group, Real, Source<Real, T>> row(source, cols, memory);
    if (order == Order::max) return largest_of(row.extremes());
    if (order == Order::l1) return row.sum([](Real value) { return std::fabs(value); });
    return root_of(
        row.squares(), [&] { return largest_of(row.extremes()); },
        [&](const Factors<Real>& factors) {
          return row.moments([&](Real value) { return factors.times(value); }).squares;
        });
  }
};

constexpr int kTurns[] = {0, 1, 2, 4, 8};
constexpr Knob kKnobs[] = {
    threads_knob(kMostThreads),
    {"blocks", kTurns, "blocks per multiprocessor, which take rows in turn; 0: one turn per block"},
};

template <class Group>
void run_in(const Args&, const Problem& problem, const Plan& plan, const Execution& execution) {
  if (problem.rows == 0) return;
  norms::with_type(problem.dtype, [&]<class T>(Type<T>) {
    simt::launch(static_cast<simt::Stream>(execution.stream),
                 {.blocks = norms::blocks_for(problem.rows, Group::groups_of_block(plan[0]), 1,
                                              plan[1], execution.machine),
                  .threads = plan[0]},
                 Kernel<T, Group>(problem, plan[0]));
  });
}

constexpr NormVariant kVariants[] = {
    {.name = "row_per_warp",
     .knobs = kKnobs,
     .declines =
         [](const Problem& problem, const Machine&) {
           return norms::wider_than(1 << 30, problem.cols, "a count of 32 bits");
         },
     .suits = [](const Problem& problem, const Machine&) { return problem.cols <= 1024; },
     .choose = [](const Problem&, const Machine&) -> Plan { return {128, 0}; },
     .run = run_in<tile::Lanes<simt::kWarpThreads>>},
    {.name = "row_per_block",
     .knobs = kKnobs,
     .declines =
         [](const Problem& problem, const Machine& machine) {
           return norms::wider_than_streams(problem.cols, problem.dtype, machine);
         },
     .choose = [](const Problem&, const Machine&) -> Plan { return {256, 0}; },
     .run = run_in<tile::BlockOfWarps>},
};

}  // namespace

std::span<const NormVariant> cuda_variants() { return kVariants; }

}  // namespace isobit::vector_norm
