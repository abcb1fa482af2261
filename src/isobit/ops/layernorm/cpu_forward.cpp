// SPDX-License-Identifier: Apache-2.0
// The forward variants on the CPU: which there are, when each suits, and how rows are dealt to
// threads.
#include "isobit/ops/layernorm/cpu_kernels.h"
#include "isobit/ops/layernorm/cpu_scalar.h"
#include "isobit/simd/tasks.h"

namespace isobit::layernorm {
namespace {

constexpr int kBooleans[] = {0, 1};
constexpr Knob kKnobs[] = {
    {"stream", kBooleans, "stores that bypass the caches, and the next rows fetched ahead"}};

Plan choose(const ForwardProblem& problem, const Machine& machine) {
  return {machine.leaves_caches(problem.rows * problem.cols * size_of(problem.dtype))};
}

ForwardKernel kernel(Isa isa, const ForwardProblem& problem, const Plan& plan) {
  const bool streaming = plan[0] != 0;
#if defined(__x86_64__)
  if (isa == Isa::avx512)
    return avx512::forward_kernel(problem.dtype, problem.weight_dtype, streaming);
  if (isa == Isa::avx2) return avx2::forward_kernel(problem.dtype, problem.weight_dtype, streaming);
#endif
  return scalar::forward_kernel(problem.dtype, problem.weight_dtype, streaming);
}

void run_rows(ForwardKernel kernel, const ForwardProblem& problem, const Execution& execution) {
  const std::int64_t tasks =
      simd::task_count(execution.machine, problem.rows * problem.cols, problem.rows);
  simd::in_parts(execution, tasks, problem.rows, 1,
                 [&](std::int64_t begin, std::int64_t end) { kernel(problem, begin, end); });
}

constexpr ForwardVariant kVariants[] = {
    {.name = "simd",
     .knobs = kKnobs,
     .choose = choose,
     .run =
         [](const ForwardArgs&, const ForwardProblem& problem, const Plan& plan,
            const Execution& execution) {
           run_rows(kernel(execution.machine.isa, problem, plan), problem, execution);
         }},
    {.name = "scalar",
     .run = [](const ForwardArgs&, const ForwardProblem& problem, const Plan&,
               const Execution& execution) { run_rows(scalar_forward_rows, problem, execution); }},
};

}  // namespace

std::span<const ForwardVariant> cpu_forward_variants() { return kVariants; }

}  // namespace isobit::layernorm
