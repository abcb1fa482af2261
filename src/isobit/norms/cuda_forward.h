// SPDX-License-Identifier: Apache-2.0
// The forward pass of any norm on a GPU: a group of threads takes a row, keeps it in registers from
// the first load to the last store, and goes on with the next one of its own.
#pragma once

#include "isobit/dispatch/threads.h"
#include "isobit/dispatch/variant.h"
#include "isobit/norms/cuda_forward_rows.h"
#include "isobit/norms/cuda_launch.h"
#include "isobit/norms/cuda_pipelined_forward.h"
#include "isobit/norms/problem.h"
#include "isobit/norms/variants.h"
#include "isobit/simt/simt.h"
#include "isobit/tile/row_group.h"

namespace isobit::norms {

template <class Rows>
struct ForwardKernel {
  using Real = typename Rows::Real;
  using Group = typename Rows::Group;
  static constexpr int kMostThreads = kForwardThreads<Group, Rows::kBlocks>.template of<Real>();

  Rows rows;

  template <class Carver>
  ISOBIT_EITHER typename Rows::Memory memory(Carver& carver) const {
    return rows.memory(carver);
  }

  ISOBIT_DEVICE void operator()(const typename Rows::Memory& memory) const {
    typename Rows::Adder adder(memory);
    for (std::int64_t row = Group::group(); row < rows.rows; row += Group::groups())
      rows.row(row, adder, memory);
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
         .knobs = kNarrowKnobs<tile::Lanes<16>>,
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
        {.name = "pipelined",
         .knobs = kPipelinedKnobs,
         .declines = not_pipelined,
         .suits = blocks_stay,
         .choose = pipelined_plan,
         .run =
             [](const Args&, const ForwardProblem& problem, const Plan& plan,
                const Execution& execution) {
               const GroupShape shape = shape_of(problem, plan[1]);
               if (shape.cluster == 1)
                 pipelined<tile::BlockOfWarps>(problem, plan, shape, execution);
               else
                 pipelined<tile::ClusterOfBlocks>(problem, plan, shape, execution);
             }},
        {.name = "warp_per_row",
         .knobs = kNarrowKnobs<tile::Lanes<32>>,
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
         .knobs = kBlockKnobs,
         .declines =
             [](const ForwardProblem& problem, const Machine&) {
               return wider_than(
                   most_cols(kForwardThreads<tile::BlockOfWarps>.of(problem.dtype), 1),
                   problem.cols, "a block");
             },
         .choose = [](const ForwardProblem&, const Machine&) -> Plan { return {0, 1}; },
         .run =
             [](const Args&, const ForwardProblem& problem, const Plan& plan,
                const Execution& execution) {
               const GroupShape shape = shape_of(problem, 1, plan[1]);
               if (plan[1] == 1)
                 launch<tile::BlockOfWarps, 1>(problem, plan, shape, execution);
               else
                 launch<tile::BlockOfWarps, 2>(problem, plan, shape, execution);
             }},
        {.name = "cluster_per_row",
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
         .knobs = kStreamedKnobs,
         .declines =
             [](const ForwardProblem& problem, const Machine& machine) {
               return wider_than_streams(problem.cols, problem.dtype, machine);
             },
         .choose = [](const ForwardProblem& problem, const Machine&) -> Plan {
           return {0, kForwardThreads<tile::BlockOfWarps>.of(problem.dtype)};
         },
         .run =
             [](const Args&, const ForwardProblem& problem, const Plan& plan,
                const Execution& execution) {
               const int most = kForwardThreads<tile::BlockOfWarps>.of(problem.dtype);
               launch<tile::BlockOfWarps, 0>(problem, plan, {std::min(plan[1], most), 1},
                                             execution);
             }},
    };
    return kVariants;
  }

 private:
  static constexpr int kTurns[] = {0, 1, 2, 4, 8};
  static constexpr int kClusters[] = {2, 4, 8};
  static constexpr Knob kTurnsKnob = {
      "blocks", kTurns,
      "blocks per multiprocessor, which take rows in turn; 0: one turn per block"};
  static constexpr int kEach[] = {1, 2};
  static constexpr Knob kBlockKnobs[] = {
      kTurnsKnob, {"each", kEach, "blocks of 512 columns per warp, and so the threads per block"}};
  template <class Group>
  static constexpr Knob kNarrowKnobs[] = {kTurnsKnob,
                                          threads_knob(kForwardThreads<Group>.with_doubles)};
  static constexpr Knob kStreamedKnobs[] = {
      kTurnsKnob, threads_knob(kForwardThreads<tile::BlockOfWarps>.with_floats,
                               "threads per block; of f64 256, for which there are registers")};
  static constexpr Knob kClusterKnobs[] = {
      kTurnsKnob, {"cluster", kClusters, "blocks per row; raised to what the row needs"}};

  static constexpr int kStays[] = {1, 2, 3, 4, 8, 16};
  static constexpr int kAnyClusters[] = {1, 2, 4, 8};
  static constexpr Knob kPipelinedKnobs[] = {
      {"blocks", kStays, "blocks per multiprocessor, which take rows in turn"},
      {"cluster", kAnyClusters, "blocks per row; raised to what the row needs"},
      kPlacesKnob};

  static GroupShape shape_of(const ForwardProblem& problem, int cluster, int each = 1) {
    return shape_for(problem.cols, kForwardThreads<tile::BlockOfWarps>.of(problem.dtype), cluster,
                     each);
  }

  // kBlocks: how many blocks of the order a worker keeps in registers.
  template <class Group, int kBlocks>
  static void launch(const ForwardProblem& problem, const Plan& plan, const GroupShape& shape,
                     const Execution& execution) {
    if (problem.rows == 0) return;
    with_type(problem.dtype, [&]<class T>(Type<T>) {
      using Rows = ForwardRows<Formula, T, Group, kBlocks>;
      simt::launch(static_cast<simt::Stream>(execution.stream),
                   {.blocks = blocks_for(problem.rows, Group::groups_of_block(shape.threads),
                                         shape.cluster, plan[0], execution.machine),
                    .threads = shape.threads,
                    .cluster = shape.cluster},
                   ForwardKernel<Rows>{Rows(problem, shape.threads)});
    });
  }

  template <class Group, class T>
  static auto pipelined_kernel(const ForwardProblem& problem, int threads, int places) {
    using Rows = ForwardRows<Formula, T, Group, 1>;
    return PipelinedForwardKernel<Rows>{Rows(problem, threads), places};
  }

  static Plan pipelined_plan(const ForwardProblem& problem, const Machine&) {
    const GroupShape shape = shape_of(problem, 1);
    const int threads = kForwardThreads<tile::BlockOfWarps>.of(problem.dtype);
    return {largest_within(kStays, threads / shape.threads), shape.cluster, 4};
  }

  // Whether some block has a row to fetch while it works on another.
  static bool blocks_stay(const ForwardProblem& problem, const Machine& machine) {
    const Plan plan = pipelined_plan(problem, machine);
    return problem.rows * plan[1] > std::int64_t{plan[0]} * machine.gpu.multiprocessors;
  }

  static std::string not_pipelined(const ForwardProblem& problem, const Machine& machine) {
    std::string why =
        not_in_bulk({problem.x, problem.residual}, problem.dtype, problem.cols, machine);
    const int threads = kForwardThreads<tile::BlockOfWarps>.of(problem.dtype);
    if (why.empty())
      why = wider_than(most_cols(threads, tile::kMostCluster), problem.cols, "a cluster");
    if (!why.empty()) return why;
    const GroupShape shape = shape_of(problem, 1);
    with_type(problem.dtype, [&]<class T>(Type<T>) {
      why = not_held(pipelined_kernel<tile::BlockOfWarps, T>(problem, shape.threads, kPlaces[0]),
                     machine);
    });
    return why;
  }

  template <class Group>
  static void pipelined(const ForwardProblem& problem, const Plan& plan, const GroupShape& shape,
                        const Execution& execution) {
    if (problem.rows == 0) return;
    with_type(problem.dtype, [&]<class T>(Type<T>) {
      simt::launch(
          static_cast<simt::Stream>(execution.stream),
          {.blocks = blocks_for(problem.rows, 1, shape.cluster, plan[0], execution.machine),
           .threads = shape.threads,
           .cluster = shape.cluster},
          with_places_that_fit(pipelined_kernel<Group, T>(problem, shape.threads, plan[2]),
                               execution.machine));
    });
  }
};

template <class Norm>
ForwardVariants<Norm> cuda_forward_variants() {
  return CudaForward<typename Norm::Formula, typename Norm::ForwardArgs>::variants();
}

}  // namespace isobit::norms
