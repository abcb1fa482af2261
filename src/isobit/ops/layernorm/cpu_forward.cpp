// SPDX-License-Identifier: Apache-2.0
// The forward variants on the CPU: which there are, when each suits, and how rows are dealt to
// threads.
#include <algorithm>

#include "isobit/ops/layernorm/cpu_kernels.h"
#include "isobit/ops/layernorm/cpu_scalar.h"
#include "isobit/simd/float_mode.h"

namespace isobit::layernorm {
namespace {

// Below this a second thread costs more than it brings (a cold helper takes 50 us to wake).
constexpr std::int64_t kSerialElements = 64 << 10;

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
  const std::int64_t tasks = problem.rows * problem.cols < kSerialElements
                                 ? 1
                                 : std::min<std::int64_t>(problem.rows, execution.machine.threads);
  execution.parallel_for(tasks, [&](std::int64_t task) {
    const simd::FloatMode mode;
    kernel(problem, problem.rows * task / tasks, problem.rows * (task + 1) / tasks);
  });
}

std::string never_declines(const ForwardProblem&, const Machine&) { return {}; }
bool always_suits(const ForwardProblem&, const Machine&) { return true; }
std::size_t no_workspace(const ForwardProblem&, const Plan&, const Machine&) { return 0; }

constexpr ForwardVariant kVariants[] = {
    {"simd", Device::cpu, kKnobs, never_declines, always_suits, choose, no_workspace,
     [](const ForwardArgs&, const ForwardProblem& problem, const Plan& plan,
        const Execution& execution) {
       run_rows(kernel(execution.machine.isa, problem, plan), problem, execution);
     }},
    {"scalar",
     Device::cpu,
     {},
     never_declines,
     always_suits,
     [](const ForwardProblem&, const Machine&) { return Plan{}; },
     no_workspace,
     [](const ForwardArgs&, const ForwardProblem& problem, const Plan&,
        const Execution& execution) { run_rows(scalar_forward_rows, problem, execution); }},
};

}  // namespace

std::span<const ForwardVariant> cpu_forward_variants() { return kVariants; }

}  // namespace isobit::layernorm
