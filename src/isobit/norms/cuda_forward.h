// SPDX-License-Identifier: Apache-2.0
// The forward pass of any norm on a GPU: a group of threads takes a row, keeps it in registers from
// the first load to the last store, and goes on with the next one of its own.
#pragma once

#include <cmath>

#include "isobit/dispatch/variant.h"
#include "isobit/norms/cuda_arrays.h"
#include "isobit/norms/cuda_launch.h"
#include "isobit/norms/cuda_row.h"
#include "isobit/norms/problem.h"
#include "isobit/simt/simt.h"
#include "isobit/tile/octet.h"
#include "isobit/tile/row_group.h"

namespace isobit::norms {

// The row that is normalised: x, or the sum that takes its place, rounded as it is stored.
template <class Real, class T>
struct ForwardSource {
  ArrayRow<const T> x, residual;
  const DropoutMask<Real>* dropout = nullptr;
  std::int64_t row = 0;

  ISOBIT_DEVICE void load(const Place& place, Real (&octet)[kOctet]) const {
    x.load(place, octet);
    if (dropout == nullptr && !residual) return;
    if (dropout != nullptr) dropout->apply(row, place, octet);
    if (residual) {
      Real added[kOctet];
      residual.load(place, added);
#pragma unroll
      for (int i = 0; i < kOctet; ++i) octet[i] += added[i];
    }
#pragma unroll
    for (int i = 0; i < kOctet; ++i)
      octet[i] = simt::Conversions::widen<Real>(simt::Conversions::narrow<T>(octet[i]));
  }
};

template <class Group>
inline constexpr MostThreads kForwardThreads = {512, 256};
template <int kLanes>  // whole rows are in their registers
inline constexpr MostThreads kForwardThreads<tile::Lanes<kLanes>> = {256, 256};

// Rows of a norm by groups of threads. kBlocks: how many blocks of the order a worker keeps in
// registers; 0: none, the row is read anew for each sum.
template <class Formula, class T, class Group, int kBlocks>
struct ForwardKernel {
  using Real = RealOf<T>;
  using Weight = WeightArray<Real, T>;
  using Source = ForwardSource<Real, T>;
  using Scalar = tile::Scalar<Real>;
  using Memory = typename Group::template Memory<Real>;
  static constexpr int kMostThreads = kForwardThreads<Group>.template of<Real>();

  Array<const T> x, residual;
  Array<T> sum;
  AnyArray<Real, T> y;
  Weight weight, bias;
  Real *mean, *rstd;
  std::int64_t rows, cols;
  Real eps;
  DropoutMask<Real> dropout;
  int threads;

  ForwardKernel(const ForwardProblem& problem, int threads)
      : x(problem.x),
        residual(problem.residual),
        sum(problem.sum),
        y(problem.y, problem.y_dtype, problem.dtype),
        weight(Weight::weight(problem)),
        bias(Weight::bias(problem)),
        mean(static_cast<Real*>(problem.mean)),
        rstd(static_cast<Real*>(problem.rstd)),
        rows(problem.rows),
        cols(problem.cols),
        eps(static_cast<Real>(problem.eps)),
        dropout(problem.dropout),
        threads(threads) {}

  template <class Carver>
  ISOBIT_EITHER Memory memory(Carver& carver) const {
    return Group::template memory<Real>(carver, threads, blocks_of(cols));
  }

  ISOBIT_DEVICE void operator()(const Memory& memory) const {
    typename Group::template Adder<Real> adder(memory);
    for (std::int64_t row = Group::group(); row < rows; row += Group::groups()) {
      const Source source{x.row(row), residual.row(row), dropout.drops ? &dropout : nullptr, row};
      // A sum that was stored may lie where x or residual did.
      const Source again =
          sum.data == nullptr ? source : Source{{sum.row(row).data, sum.vectors}, {}};
      if constexpr (kBlocks > 0) {
        const RowInRegisters<Group, Real, kBlocks, Source> row_in(source, again, cols, adder,
                                                                  memory);
        store_sum(row, row_in);
        finish(row, row_in);
      } else {
        const RowInMemory<Group, Real, Source> composed(source, cols, memory);
        store_sum(row, composed);
        finish(row, RowInMemory<Group, Real, Source>(again, cols, memory));
      }
    }
  }

 private:
  template <class Row>
  ISOBIT_DEVICE void store_sum(std::int64_t row, const Row& row_in) const {
    if (sum.data == nullptr) return;
    const ArrayRow<T> to = sum.row(row);
    row_in.for_each_octet(
        [&](const Place& place, const Real(&octet)[kOctet]) { to.store(place, octet); });
  }

  // Rows that are not usual go the long way, out of line. row_in.rare() waits for all threads,
  // after the last sum of the long way: the next row may add.
  template <class Row>
  ISOBIT_DEVICE void finish(std::int64_t row, const Row& row_in) const {
    const Statistics<Real> statistics = statistics_of<Formula>(row_in, cols, eps);
    if (statistics.plain)
      write(row, row_in, typename Formula::template Normalise<Scalar>(statistics));
    else
      write_rare(row, row_in.rare(), statistics);
    if (Group::leads()) {
      if (mean != nullptr) mean[row] = narrow<Real>(statistics.saved_mean);
      if (rstd != nullptr) rstd[row] = narrow<Real>(statistics.saved_rstd);
    }
  }

  template <class Row>
  ISOBIT_DEVICE_NOINLINE void write_rare(std::int64_t row, const Row& row_in,
                                         const Statistics<Real>& statistics) const {
    write(row, row_in, typename Formula::template NormaliseAny<Scalar>(statistics));
  }

  template <class Row, class Normalise>
  ISOBIT_DEVICE void write(std::int64_t row, const Row& row_in, const Normalise& normalise) const {
    row_in.for_each_octet([&](const Place& place, const Real(&octet)[kOctet]) {
      Real w[kOctet], b[kOctet], result[kOctet];
      weight.load(place, w);
      bias.load(place, b);
#pragma unroll
      for (int i = 0; i < kOctet; ++i) result[i] = std::fma(normalise(octet[i]), w[i], b[i]);
      y.store(row, place, result);
    });
  }
};

// The variants of one norm, by its formula.
template <class Formula, class Args>
class CudaForward {
 public:
  using ForwardVariant = Variant<Args, ForwardProblem>;

  static std::span<const ForwardVariant> variants() {
    static constexpr ForwardVariant kVariants[] = {
        {.name = "rows_per_warp",
         .device = simt::kDevice,
         .knobs = kNarrowKnobs,
         .declines = [](const ForwardProblem& problem,
                        const Machine&) { return wider_than(128, problem.cols, "half a warp"); },
         .choose = [](const ForwardProblem&, const Machine&) -> Plan { return {0, 128}; },
         .run =
             [](const Args&, const ForwardProblem& problem, const Plan& plan,
                const Execution& execution) {
               if (problem.cols <= 64)
                 launch<tile::Lanes<8>, 1>(problem, plan, {plan[1], 1}, execution);
               else
                 launch<tile::Lanes<16>, 1>(problem, plan, {plan[1], 1}, execution);
             }},
        {.name = "warp_per_row",
         .device = simt::kDevice,
         .knobs = kNarrowKnobs,
         .declines = [](const ForwardProblem& problem,
                        const Machine&) { return wider_than(1024, problem.cols, "a warp"); },
         .choose = [](const ForwardProblem&, const Machine&) -> Plan { return {0, 128}; },
         .run =
             [](const Args&, const ForwardProblem& problem, const Plan& plan,
                const Execution& execution) {
               if (problem.cols <= order::kBlock)
                 launch<tile::Lanes<32>, 1>(problem, plan, {plan[1], 1}, execution);
               else
                 launch<tile::Lanes<32>, 2>(problem, plan, {plan[1], 1}, execution);
             }},
        {.name = "block_per_row",
         .device = simt::kDevice,
         .knobs = kKnobs,
         .declines =
             [](const ForwardProblem& problem, const Machine&) {
               return wider_than(
                   most_cols(kForwardThreads<tile::BlockOfWarps>.of(problem.dtype), 1),
                   problem.cols, "a block");
             },
         .run =
             [](const Args&, const ForwardProblem& problem, const Plan& plan,
                const Execution& execution) {
               launch<tile::BlockOfWarps, 1>(problem, plan, shape_of(problem, 1), execution);
             }},
        {.name = "cluster_per_row",
         .device = simt::kDevice,
         .knobs = kClusterKnobs,
         .declines =
             [](const ForwardProblem& problem, const Machine& machine) {
               if (machine.gpu.capability < 90) return std::string("clusters need sm_90 or later");
               return wider_than(most_cols(kForwardThreads<tile::BlockOfWarps>.of(problem.dtype),
                                           tile::kMostCluster),
                                 problem.cols, "a cluster");
             },
         .choose = [](const ForwardProblem& problem, const Machine&) -> Plan {
           return {0, shape_of(problem, 2).cluster};
         },
         .run =
             [](const Args&, const ForwardProblem& problem, const Plan& plan,
                const Execution& execution) {
               launch<tile::ClusterOfBlocks, 1>(problem, plan, shape_of(problem, plan[1]),
                                                execution);
             }},
        {.name = "streamed",
         .device = simt::kDevice,
         .knobs = kKnobs,
         .declines =
             [](const ForwardProblem& problem, const Machine& machine) {
               return wider_than_streams(problem.cols, problem.dtype, machine);
             },
         .run =
             [](const Args&, const ForwardProblem& problem, const Plan& plan,
                const Execution& execution) {
               launch<tile::BlockOfWarps, 0>(
                   problem, plan, {kForwardThreads<tile::BlockOfWarps>.of(problem.dtype), 1},
                   execution);
             }},
    };
    return kVariants;
  }

 private:
  static constexpr int kTurns[] = {0, 1, 2, 4, 8};
  static constexpr int kThreads[] = {64, 128, 256};
  static constexpr int kClusters[] = {2, 4, 8};
  static constexpr Knob kTurnsKnob = {
      "blocks", kTurns, "blocks a multiprocessor, which take rows in turn; 0: one turn each"};
  static constexpr Knob kKnobs[] = {kTurnsKnob};
  static constexpr Knob kNarrowKnobs[] = {kTurnsKnob, {"threads", kThreads, "threads of a block"}};
  static constexpr Knob kClusterKnobs[] = {
      kTurnsKnob, {"cluster", kClusters, "blocks that share a row, or as many as hold it"}};

  static GroupShape shape_of(const ForwardProblem& problem, int cluster) {
    return shape_for(problem.cols, kForwardThreads<tile::BlockOfWarps>.of(problem.dtype), cluster);
  }

  // kBlocks: how many blocks of the order a worker keeps in registers.
  template <class Group, int kBlocks>
  static void launch(const ForwardProblem& problem, const Plan& plan, const GroupShape& shape,
                     const Execution& execution) {
    if (problem.rows == 0) return;
    with_type(problem.dtype, [&]<class T>(Type<T>) {
      simt::launch(static_cast<simt::Stream>(execution.stream),
                   {.blocks = blocks_for(problem.rows, Group::groups_of_block(shape.threads),
                                         shape.cluster, plan[0], execution.machine),
                    .threads = shape.threads,
                    .cluster = shape.cluster},
                   ForwardKernel<Formula, T, Group, kBlocks>(problem, shape.threads));
    });
  }
};

}  // namespace isobit::norms
