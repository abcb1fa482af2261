// SPDX-License-Identifier: Apache-2.0
// Gradients on the CPU: each product by a variant of forward, and one sweep over s for the others.
#include <algorithm>

#include "isobit/dispatch/step.h"
#include "isobit/ops/matmul/cpu_rows.h"
#include "isobit/ops/matmul/cpu_slopes.h"

namespace isobit::matmul {
namespace {

const ForwardVariant kFew = vector_variant(), kDirect = direct_variant(),
                     kPacked = packed_variant(), kAmx = amx_variant(), kNaive = naive_variant();

// How one of the products is computed.
using ProductStep = Step<ForwardArgs, Problem>;

template <const ForwardVariant& kBy>
ProductStep step_of(const Problem& problem, const Plan& plan, const Machine& machine) {
  if (&kBy == &kPacked) {
    if (!problem.empty() && kFew.suits(problem, machine))
      return {problem, kFew, kFew.choose(problem, machine)};
    if (kDirect.suits(problem, machine)) return {problem, kDirect, {}};
  }
  return {problem, kBy, plan};
}

template <const ForwardVariant& kBy>
Plan choose_by(const BackwardProblem& problem, const Machine& machine) {
  Plan plan = kBy.choose(problem.wants_a ? problem.to_a : problem.to_b, machine);
  if (!problem.wants_a || !problem.wants_b) return plan;
  const Plan b = kBy.choose(problem.to_b, machine);
  for (std::size_t i = 0; i < kBy.knobs.size(); ++i) plan[i] = std::min(plan[i], b[i]);
  return plan;
}

template <const ForwardVariant& kBy>
std::size_t workspace_by(const BackwardProblem& problem, const Plan& plan, const Machine& machine) {
  std::size_t bytes = problem.wants_rows() ? rows_workspace(problem.rows, machine) : 0;
  if (problem.wants_a)
    bytes = std::max(bytes, step_of<kBy>(problem.to_a, plan, machine).workspace(machine));
  if (problem.wants_b)
    bytes = std::max(bytes, step_of<kBy>(problem.to_b, plan, machine).workspace(machine));
  return bytes;
}

template <const ForwardVariant& kBy>
void run_by(const BackwardArgs&, const BackwardProblem& problem, const Plan& plan,
            const Execution& execution) {
  if (problem.wants_a)
    step_of<kBy>(problem.to_a, plan, execution.machine).run(execution, execution.workspace);
  if (problem.wants_b)
    step_of<kBy>(problem.to_b, plan, execution.machine).run(execution, execution.workspace);
  if (problem.wants_rows()) add_rows(problem.rows, execution);
}

// Both products are of what the rows are.
std::string declines_amx(const BackwardProblem& problem, const Machine& machine) {
  return kAmx.declines(problem.rows, machine);
}
bool suits_amx(const BackwardProblem& problem, const Machine& machine) {
  return kAmx.suits(problem.rows, machine);
}

std::size_t naive_workspace(const BackwardProblem& problem, const Plan& plan,
                            const Machine& machine) {
  std::size_t bytes = 0;
  if (problem.wants_a) bytes = kNaive.workspace(problem.to_a, plan, machine);
  if (problem.wants_b) bytes = std::max(bytes, kNaive.workspace(problem.to_b, plan, machine));
  return bytes;
}

// The specification: one element after the other.
void run_naive(const BackwardArgs&, const BackwardProblem& problem, const Plan& plan,
               const Execution& execution) {
  if (problem.wants_a) kNaive.run({}, problem.to_a, plan, execution);
  if (problem.wants_b) kNaive.run({}, problem.to_b, plan, execution);
  const Problem& rows = problem.rows;
  const std::int64_t count = rows.products() * rows.m;
  const Problem to_c = c_problem(rows), to_bias = bias_problem(rows);
  execution.parallel_for(1, [&](std::int64_t) {
    const simd::FloatMode mode;
    with_types(rows.real(), [&]<class T, class Real>(T, Real) {
      const auto s = [&](std::int64_t row, std::int64_t col) {
        const Arrays arrays = rows.arrays(row / rows.m);
        return slope_element<Real>(rows, arrays.a, arrays.slope, row % rows.m, col);
      };
      for (std::int64_t j = 0; j < rows.n; ++j) {
        if (rows.first.bias)
          finish_element<Real>(to_bias, to_bias.first, 0, j,
                               order::sum_rows<Real>(count, [&](Real sum, std::int64_t row) {
                                 return sum + s(row, j);
                               }));
        for (std::int64_t row = 0; rows.first.y && row < count; ++row)
          finish_element<Real>(to_c, to_c.arrays(row / rows.m), row % rows.m, j,
                               rows.alpha == 0 ? Real(0) : s(row, j) + Real(0));
      }
    });
  });
}

}  // namespace

std::span<const BackwardVariant> cpu_backward_variants() {
  static const BackwardVariant kVariants[] = {
      {.name = "amx",
       .knobs = kAmx.knobs,
       .each_isa = true,
       .declines = declines_amx,
       .suits = suits_amx,
       .choose = choose_by<kAmx>,
       .workspace = workspace_by<kAmx>,
       .run = run_by<kAmx>},
      {.name = "packed",
       .knobs = kPacked.knobs,
       .each_isa = true,
       .choose = choose_by<kPacked>,
       .workspace = workspace_by<kPacked>,
       .run = run_by<kPacked>},
      {.name = "naive", .workspace = naive_workspace, .run = run_naive},
  };
  return kVariants;
}

}  // namespace isobit::matmul
