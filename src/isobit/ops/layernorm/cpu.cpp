// SPDX-License-Identifier: Apache-2.0
// LayerNorm's variants on the CPU.
#include "isobit/norms/cpu_backward.h"
#include "isobit/norms/cpu_forward.h"
#include "isobit/norms/cpu_scalar.h"
#include "isobit/ops/layernorm/cpu_kernels.h"
#include "isobit/ops/layernorm/formula.h"
#include "isobit/ops/layernorm/problem.h"

namespace isobit::layernorm {
namespace {

using norms::BackwardProblem;
using norms::ForwardProblem;

norms::ForwardKernel forward_kernel(Isa isa, DType dtype, norms::Schedule schedule) {
  ISOBIT_RETURN_FOR_ISA(isa, forward_kernel(dtype, schedule));
}

norms::BackwardKernels backward_kernels(Isa isa, DType dtype, bool streaming) {
  ISOBIT_RETURN_FOR_ISA(isa, backward_kernels(dtype, streaming));
}

constexpr ForwardVariant kForward[] = {
    {.name = "simd",
     .knobs = norms::kForwardKnobs,
     .choose = norms::choose_forward,
     .workspace = norms::forward_workspace,
     .run =
         [](const ForwardArgs&, const ForwardProblem& problem, const Plan& plan,
            const Execution& execution) {
           norms::run_forward(forward_kernel, problem, plan, execution);
         }},
    {.name = "scalar",
     .run =
         [](const ForwardArgs&, const ForwardProblem& problem, const Plan&,
            const Execution& execution) {
           norms::run_scalar_forward<Formula>(problem, execution);
         }},
};

constexpr BackwardVariant kBackward[] = {
    {.name = "simd.one_pass",
     .knobs = norms::kBackwardKnobs,
     .suits = norms::one_pass_suits,
     .choose = norms::choose_backward,
     .workspace = norms::one_pass_workspace,
     .run =
         [](const BackwardArgs&, const BackwardProblem& problem, const Plan& plan,
            const Execution& execution) {
           norms::run_one_pass(backward_kernels, problem, plan, execution);
         }},
    {.name = "simd.two_pass",
     .knobs = norms::kBackwardKnobs,
     .declines = norms::two_pass_declines,
     .choose = norms::choose_backward,
     .workspace = norms::two_pass_workspace,
     .run =
         [](const BackwardArgs&, const BackwardProblem& problem, const Plan& plan,
            const Execution& execution) {
           norms::run_two_pass(backward_kernels, problem, plan, execution);
         }},
    {.name = "scalar",
     .workspace = norms::scalar_backward_workspace,
     .run =
         [](const BackwardArgs&, const BackwardProblem& problem, const Plan&,
            const Execution& execution) {
           norms::run_scalar_backward<Formula>(problem, execution);
         }},
};

}  // namespace

std::span<const ForwardVariant> cpu_forward_variants() { return kForward; }
std::span<const BackwardVariant> cpu_backward_variants() { return kBackward; }

}  // namespace isobit::layernorm
