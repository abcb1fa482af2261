// SPDX-License-Identifier: Apache-2.0
// The tables of variants; gradients by those of forward.
#include <algorithm>

#include "isobit/ops/convolution/cpu_parts.h"
#include "isobit/ops/matmul/cpu_rows.h"

namespace isobit::convolution {
namespace {

const AnyVariant<Problem>& step_of(const Problem& problem, const Machine& machine) {
  for (const AnyVariant<Problem>* variant :
       {&kDepthwise, &kOneFilter, &kPointwise, &kSmallImages, &kImplicit})
    if (variant->suits(problem, machine) && variant->declines(problem, machine).empty())
      return *variant;
  return kDirect;
}

std::size_t implicit_workspace(const BackwardProblem& problem, const Machine& machine) {
  std::size_t bytes = 0;
  if (problem.wants_x) {
    const AnyVariant<Problem>& step = step_of(problem.to_x, machine);
    if (step.workspace != nullptr) bytes = step.workspace(problem.to_x, machine);
  }
  if (problem.wants_weight) bytes = std::max(bytes, weights_workspace(problem.to_weight, machine));
  if (problem.wants_bias) bytes = std::max(bytes, matmul::rows_workspace(problem.to_bias, machine));
  return bytes;
}

void run_implicit(const BackwardProblem& problem, const Execution& execution) {
  if (problem.wants_x) step_of(problem.to_x, execution.machine).run(problem.to_x, execution);
  if (problem.wants_weight) add_weights(problem.to_weight, execution);
  if (problem.wants_bias) matmul::add_rows(problem.to_bias, execution);
}

// The specification.
void run_direct(const BackwardProblem& problem, const Execution& execution) {
  if (problem.wants_x) compute_directly(problem.to_x, execution);
  if (problem.wants_weight) add_weights_directly(problem.to_weight, execution);
  if (!problem.wants_bias) return;
  const Problem& p = problem.to_weight;
  const matmul::Array& bias = problem.to_bias.first.bias;
  execution.parallel_for(1, [&](std::int64_t) {
    const simd::FloatMode mode;
    matmul::with_types(p.element, [&]<class T, class Real>(T, Real) {
      for (std::int64_t filter = 0; filter < p.groups * p.outs; ++filter) {
        const Real sum =
            order::sum_rows<Real>(p.batch * p.positions(), [&](Real before, std::int64_t k) {
              return before + element<T, Real>(p.result, k / p.positions(), filter,
                                               k / p.w.results % p.h.results, k % p.w.results);
            });
        matmul::write(bias, 0, filter, sum);
      }
    });
  });
}

constexpr AnyVariant<BackwardProblem> kImplicitGradients = {
    .name = "implicit", .each_isa = true, .workspace = implicit_workspace, .run = run_implicit};
constexpr AnyVariant<BackwardProblem> kDirectGradients = {.name = "direct", .run = run_direct};

}  // namespace

template <class Args>
std::span<const Variant<Args, Problem>> cpu_forward_variants() {
  static const Variant<Args, Problem> kVariants[] = {
      of_args<Args, Problem, kDepthwise>(), of_args<Args, Problem, kOneFilter>(),
      of_args<Args, Problem, kPointwise>(), of_args<Args, Problem, kSmallImages>(),
      of_args<Args, Problem, kImplicit>(),  of_args<Args, Problem, kDirect>()};
  return kVariants;
}
template std::span<const Variant<ForwardArgs, Problem>> cpu_forward_variants();
template std::span<const Variant<ForwardArgs1d, Problem>> cpu_forward_variants();

template <class Args>
std::span<const Variant<Args, BackwardProblem>> cpu_backward_variants() {
  static const Variant<Args, BackwardProblem> kVariants[] = {
      of_args<Args, BackwardProblem, kImplicitGradients>(),
      of_args<Args, BackwardProblem, kDirectGradients>()};
  return kVariants;
}
template std::span<const Variant<BackwardArgs, BackwardProblem>> cpu_backward_variants();
template std::span<const Variant<BackwardArgs1d, BackwardProblem>> cpu_backward_variants();

}  // namespace isobit::convolution
