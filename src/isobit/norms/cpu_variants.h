// SPDX-License-Identifier: Apache-2.0
// The variants of any norm on the CPU.
#pragma once

#include "isobit/norms/cpu_backward.h"
#include "isobit/norms/cpu_forward.h"
#include "isobit/norms/cpu_scalar.h"
#include "isobit/norms/variants.h"

namespace isobit::norms {

namespace detail {

template <class Formula>
ForwardKernel forward_kernel(Isa isa, DType dtype, Schedule schedule) {
  ISOBIT_RETURN_FOR_ISA(isa, Kernels<Formula>::forward(dtype, schedule));
}

template <class Formula>
BackwardKernels backward_kernels(Isa isa, DType dtype, bool streaming) {
  ISOBIT_RETURN_FOR_ISA(isa, Kernels<Formula>::backward(dtype, streaming));
}

}  // namespace detail

template <class Norm>
ForwardVariants<Norm> cpu_forward_variants() {
  using Args = typename Norm::ForwardArgs;
  using Formula = typename Norm::Formula;
  static constexpr Variant<Args, ForwardProblem> kVariants[] = {
      {.name = "simd",
       .knobs = kForwardKnobs,
       .choose = choose_forward,
       .workspace = forward_workspace,
       .run =
           [](const Args&, const ForwardProblem& problem, const Plan& plan,
              const Execution& execution) {
             run_forward(detail::forward_kernel<Formula>, problem, plan, execution);
           }},
      {.name = "scalar",
       .run = [](const Args&, const ForwardProblem& problem, const Plan&,
                 const Execution& execution) { run_scalar_forward<Formula>(problem, execution); }},
  };
  return kVariants;
}

template <class Norm>
BackwardVariants<Norm> cpu_backward_variants() {
  using Args = typename Norm::BackwardArgs;
  using Formula = typename Norm::Formula;
  static constexpr Variant<Args, BackwardProblem> kVariants[] = {
      {.name = "simd.one_pass",
       .knobs = kBackwardKnobs,
       .suits = one_pass_suits,
       .choose = choose_backward,
       .workspace = one_pass_workspace,
       .run =
           [](const Args&, const BackwardProblem& problem, const Plan& plan,
              const Execution& execution) {
             run_one_pass(detail::backward_kernels<Formula>, problem, plan, execution);
           }},
      {.name = "simd.two_pass",
       .knobs = kBackwardKnobs,
       .declines = two_pass_declines,
       .choose = choose_backward,
       .workspace = two_pass_workspace,
       .run =
           [](const Args&, const BackwardProblem& problem, const Plan& plan,
              const Execution& execution) {
             run_two_pass(detail::backward_kernels<Formula>, problem, plan, execution);
           }},
      {.name = "scalar",
       .workspace = scalar_backward_workspace,
       .run = [](const Args&, const BackwardProblem& problem, const Plan&,
                 const Execution& execution) { run_scalar_backward<Formula>(problem, execution); }},
  };
  return kVariants;
}

}  // namespace isobit::norms
