// SPDX-License-Identifier: Apache-2.0
// The variants on the CPU.
#pragma once

#include "isobit/norm_linear/cpu_backward.h"
#include "isobit/norm_linear/cpu_forward.h"
#include "isobit/norm_linear/cpu_row_blocks.h"
#include "isobit/norm_linear/unfused.h"
#include "isobit/norm_linear/variants.h"
#include "isobit/norms/cpu_variants.h"

namespace isobit::norm_linear {

namespace detail {

template <class Formula>
PartKernels part_kernels(Isa isa, DType x, DType y) {
  ISOBIT_RETURN_FOR_ISA(isa, Parts<Formula>::kernels(x, y));
}

template <class Formula>
constexpr NormKernels kNormKernels = {norms::detail::backward_kernels<Formula>,
                                      part_kernels<Formula>};

// What both operations have on the CPU, each by its default or, the specification, by its simplest.
template <class NormOf, bool kSimplest>
struct CpuTables {
  using Norm = NormOf;
  static auto norm_forward() { return norms::cpu_forward_variants<Norm>(); }
  static auto norm_backward() { return norms::cpu_backward_variants<Norm>(); }
  static auto product_forward() { return matmul::cpu_forward_variants(); }
  static auto product_backward() { return matmul::cpu_backward_variants(); }

  template <class Variants, class Problem>
  static auto step_of(Variants variants, const Problem& problem, const Machine& machine) {
    if constexpr (kSimplest)
      return simplest_step(variants, problem, machine);
    else
      return default_step(variants, problem, machine);
  }
};

// Which is matmul's own variant's to compute, of arrays.
template <class Problem>
bool is_tensor(const Problem& problem) {
  return problem.product.arithmetic == matmul::Arithmetic::tensor;
}

}  // namespace detail

template <class Fused>
ForwardVariants<Fused> cpu_forward_variants() {
  using Args = typename Fused::ForwardArgs;
  using Norm = typename Fused::Norm;
  using Formula = typename Norm::Formula;
  using Unfused = UnfusedForward<detail::CpuTables<Norm, false>>;
  using Naive = UnfusedForward<detail::CpuTables<Norm, true>>;
  using Blocks = RowBlocks<detail::CpuTables<Norm, false>>;
  static const Variant<Args, ForwardProblem> kVariants[] = {
      {.name = "row_blocks",
       .knobs = kRowBlockKnobs,
       .each_isa = true,
       .declines = fused_forward_declines,
       .suits = row_blocks_suit,
       .choose = choose_row_blocks,
       .workspace =
           [](const ForwardProblem& problem, const Plan& plan, const Machine& machine) {
             Pieces pieces;
             const Blocks blocks(problem, plan, machine, pieces);
             return pieces.taken();
           },
       .run =
           [](const Args&, const ForwardProblem& problem, const Plan& plan,
              const Execution& execution) {
             Pieces pieces(execution.workspace);
             Blocks(problem, plan, execution.machine, pieces).run(execution);
           }},
      {.name = "fused",
       .knobs = matmul::packed_variant().knobs,
       .each_isa = true,
       .declines =
           [](const ForwardProblem& problem, const Machine& machine) {
             return detail::is_tensor(problem) ? std::string("has no tensor arithmetic")
                                               : fused_forward_declines(problem, machine);
           },
       .suits = fused_forward_suits,
       .choose = choose_fused_forward,
       .workspace =
           [](const ForwardProblem& problem, const Plan& plan, const Machine& machine) {
             return fused_forward_workspace(detail::kNormKernels<Formula>, problem, plan, machine);
           },
       .run =
           [](const Args&, const ForwardProblem& problem, const Plan& plan,
              const Execution& execution) {
             run_fused_forward(detail::kNormKernels<Formula>, problem, plan, execution);
           }},
      {.name = "unfused",
       .each_isa = true,
       .workspace = unfused_workspace<Unfused, ForwardProblem>,
       .run = run_unfused<Unfused, Args, ForwardProblem>},
      {.name = "prefolded",
       .bits = Bits::own,
       .each_isa = true,
       .declines = prefolded_declines,
       .workspace =
           [](const ForwardProblem& problem, const Plan&, const Machine& machine) {
             return prefolded_workspace(detail::kNormKernels<Formula>, problem, machine);
           },
       .run =
           [](const Args&, const ForwardProblem& problem, const Plan&, const Execution& execution) {
             run_prefolded(detail::kNormKernels<Formula>, problem, execution);
           }},
      {.name = "naive",
       .workspace = unfused_workspace<Naive, ForwardProblem>,
       .run = run_unfused<Naive, Args, ForwardProblem>},
  };
  return kVariants;
}

template <class Fused>
BackwardVariants<Fused> cpu_backward_variants() {
  using Args = typename Fused::BackwardArgs;
  using Norm = typename Fused::Norm;
  using Formula = typename Norm::Formula;
  using Unfused = UnfusedBackward<detail::CpuTables<Norm, false>>;
  using Naive = UnfusedBackward<detail::CpuTables<Norm, true>>;
  using Blocks = FusedBackward<detail::CpuTables<Norm, false>>;
  static const Variant<Args, BackwardProblem> kVariants[] = {
      {.name = "fused",
       .knobs = kBlockKnobs,
       .each_isa = true,
       .declines = [](const BackwardProblem& problem, const Machine&) -> std::string {
         return detail::is_tensor(problem) ? "has no tensor arithmetic" : "";
       },
       .choose = choose_block,
       .workspace =
           [](const BackwardProblem& problem, const Plan& plan, const Machine& machine) {
             Pieces pieces;
             const Blocks blocks(detail::kNormKernels<Formula>, problem, plan, machine, pieces);
             return pieces.taken();
           },
       .run =
           [](const Args&, const BackwardProblem& problem, const Plan& plan,
              const Execution& execution) {
             Pieces pieces(execution.workspace);
             Blocks(detail::kNormKernels<Formula>, problem, plan, execution.machine, pieces)
                 .run(execution);
           }},
      {.name = "unfused",
       .each_isa = true,
       .workspace = unfused_workspace<Unfused, BackwardProblem>,
       .run = run_unfused<Unfused, Args, BackwardProblem>},
      {.name = "naive",
       .workspace = unfused_workspace<Naive, BackwardProblem>,
       .run = run_unfused<Naive, Args, BackwardProblem>},
  };
  return kVariants;
}

}  // namespace isobit::norm_linear
