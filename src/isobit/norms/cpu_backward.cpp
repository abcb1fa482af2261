// SPDX-License-Identifier: Apache-2.0
// Deals the backward pass to threads: what both ways through it share.
#include "isobit/norms/cpu_backward.h"

#include <algorithm>

#include "isobit/norms/cpu_backward_parts.h"

namespace isobit::norms {
Plan choose_backward(const BackwardProblem& problem, const Machine& machine) {
  const std::int64_t arrays = problem.grad_sum ? 4 : 3;
  return {machine.leaves_caches(arrays * problem.rows * problem.cols * size_of(problem.dtype))};
}

void finish(const BackwardProblem& problem, const Tools& tools, const std::byte* weight_sums,
            const std::byte* bias_sums, std::int64_t begin, std::int64_t end) {
  const std::int64_t size = size_of(problem.weight_dtype);
  const auto write = [&](void* to, const std::byte* sums) {
    if (to == nullptr) return;
    std::byte* from_begin = static_cast<std::byte*>(to) + begin * size;
    if (sums != nullptr)
      tools.finish(real_of(problem.dtype), sums, problem.weight_dtype, from_begin, end - begin);
    else
      std::fill(from_begin, from_begin + (end - begin) * size, std::byte{0});
  };
  write(problem.grad_weight, weight_sums);
  write(problem.grad_bias, bias_sums);
}

std::int64_t task_count(const BackwardProblem& problem, const Machine& machine,
                        std::int64_t units) {
  return simd::task_count(machine, problem.rows * problem.cols, units);
}

std::int64_t runs_of(const BackwardProblem& problem) {
  return (problem.rows + order::kRun - 1) / order::kRun;
}

}  // namespace isobit::norms
