// SPDX-License-Identifier: Apache-2.0
// The CPU variants: whole vectors, and the specification. How rows are dealt to threads.
#include <algorithm>
#include <limits>
#include <type_traits>

#include "isobit/core/order.h"
#include "isobit/ops/softmax/cpu_kernels.h"
#include "isobit/ops/softmax/formula.h"
#include "isobit/ops/softmax/problem.h"
#include "isobit/simd/fence.h"
#include "isobit/simd/tasks.h"
#include "isobit/simd/vec.h"

namespace isobit::softmax {
namespace {

template <class Problem>
std::int64_t tasks_of(const Problem& problem, const Machine& machine) {
  constexpr std::int64_t kWork = 8;  // an element takes as long as so many that are copied
  return simd::task_count(machine, kWork * problem.rows * problem.cols,
                          std::max<std::int64_t>(1, problem.rows));
}

// Rows of what is computed in that a task needs.
std::int64_t scratch_rows(const ForwardProblem&) { return 1; }
std::int64_t scratch_rows(const BackwardProblem& problem) {
  return problem.mask.data == nullptr ? 0 : 2;
}
template <class Problem>
std::int64_t scratch_bytes(const Problem& problem) {
  const std::int64_t bytes =
      scratch_rows(problem) * problem.cols * size_of(real_of(problem.x_dtype));
  return (bytes + 63) / 64 * 64;
}
template <class Problem>
std::size_t workspace(const Problem& problem, const Plan&, const Machine& machine) {
  return static_cast<std::size_t>(tasks_of(problem, machine) * scratch_bytes(problem));
}

// Calls body(begin, end, scratch) for all rows.
template <class Problem, class Body>
void in_rows(const Problem& problem, const Execution& execution, const Body& body) {
  const std::int64_t tasks = tasks_of(problem, execution.machine);
  execution.parallel_for(tasks, [&](std::int64_t task) {
    const simd::FloatMode mode;
    body(problem.rows * task / tasks, problem.rows * (task + 1) / tasks,
         execution.workspace + task * scratch_bytes(problem));
    simd::fence();
  });
}

// Of the mask, null where all elements are there.
const std::byte* mask_of(const Matrix& mask, std::int64_t row) {
  return mask ? row_of<const std::byte>(mask, row) : nullptr;
}

ForwardKernel kernel_for(const ForwardProblem& problem, Isa isa) {
  ISOBIT_RETURN_FOR_ISA(isa, forward_kernel(problem.x_dtype, problem.y_dtype, problem.log));
}
BackwardKernel kernel_for(const BackwardProblem& problem, Isa isa) {
  ISOBIT_RETURN_FOR_ISA(isa, backward_kernel(problem.x_dtype, problem.y_dtype, problem.log));
}

template <class Args, class Problem>
void run_simd(const Args&, const Problem& problem, const Plan& plan, const Execution& execution) {
  const auto kernel = kernel_for(problem, execution.machine.isa);
  in_rows(problem, execution, [&](std::int64_t begin, std::int64_t end, std::byte* scratch) {
    kernel(problem, begin, end, scratch, plan[0] != 0);
  });
}

// The specification: each element by the formula, sums as core/order.h has them.
template <class T, class Y>
void specified(const ForwardProblem& problem, std::int64_t row) {
  using S = simd::ScalarOf<T>;
  using Real = typename S::Real;
  constexpr Real kInfinity = std::numeric_limits<Real>::infinity();
  const T* const x = row_of<const T>(problem.x, row);
  const std::byte* const mask = mask_of(problem.mask, row);
  Y* const y = row_of<Y>(problem.y, row);
  const auto scale = Scale<Real>::of(problem.scale);
  const auto there = [&](std::int64_t i) { return mask == nullptr || mask[i] != std::byte{0}; };
  const auto element = [&](std::int64_t i) {
    return there(i) ? widen<Real>(x[i]) : -scale.sign * kInfinity;
  };
  Real largest = -kInfinity;
  bool any = mask == nullptr;
  for (std::int64_t i = 0; i < problem.cols; ++i) {
    any = any || there(i);
    largest = std::max(largest, element(i) * scale.sign);
  }
  const auto exponent = [&](std::int64_t i) { return exponent_of<S>(scale, element(i), largest); };
  const Real sum = order::sum<Real>(any ? problem.cols : 0,
                                    [&](std::int64_t i) { return weight_of<S>(exponent(i)); });
  const Real log_of_sum = functions::log<S>(sum), inverse = Real(1) / sum;
  for (std::int64_t i = 0; i < problem.cols; ++i) {
    Real value = problem.log ? -kInfinity : Real(0);
    if (any)
      value = problem.log ? log_of<S>(exponent(i), log_of_sum)
                          : S::mul(weight_of<S>(exponent(i)), inverse);
    y[i] = narrow<Y>(value);
  }
}

template <class T, class Y>
void specified(const BackwardProblem& problem, std::int64_t row) {
  using S = simd::ScalarOf<T>;
  using Real = typename S::Real;
  const Y* const y = row_of<const Y>(problem.y, row);
  const Y* const grad_y = row_of<const Y>(problem.grad_y, row);
  const std::byte* const mask = mask_of(problem.mask, row);
  T* const grad_x = row_of<T>(problem.grad_x, row);
  const auto there = [&](std::int64_t i) { return mask == nullptr || mask[i] != std::byte{0}; };
  const auto grad_at = [&](std::int64_t i) { return there(i) ? widen<Real>(grad_y[i]) : Real(0); };
  const auto y_at = [&](std::int64_t i) { return there(i) ? widen<Real>(y[i]) : Real(0); };
  const Real sum = problem.log ? order::sum<Real>(problem.cols, grad_at)
                               : order::dot<Real>(problem.cols, grad_at, y_at);
  const Real scale = static_cast<Real>(problem.scale);
  for (std::int64_t i = 0; i < problem.cols; ++i) {
    Real value = 0;
    if (there(i))
      value = problem.log ? gradient<S, true>(scale, y_at(i), grad_at(i), sum)
                          : gradient<S, false>(scale, y_at(i), grad_at(i), sum);
    grad_x[i] = narrow<T>(value);
  }
}

template <class Args, class Problem>
void run_scalar(const Args&, const Problem& problem, const Plan&, const Execution& execution) {
  const bool wide = problem.y_dtype == DType::f32;
  const auto specified_row = [&](std::int64_t row) {
    switch (problem.x_dtype) {
      case DType::f16:
        return wide ? specified<f16, float>(problem, row) : specified<f16, f16>(problem, row);
      case DType::bf16:
        return wide ? specified<bf16, float>(problem, row) : specified<bf16, bf16>(problem, row);
      case DType::f64: return specified<double, double>(problem, row);
      default:         return specified<float, float>(problem, row);
    }
  };
  in_rows(problem, execution, [&](std::int64_t begin, std::int64_t end, std::byte*) {
    for (std::int64_t row = begin; row < end; ++row) specified_row(row);
  });
}

constexpr int kBooleans[] = {0, 1};
constexpr Knob kSimdKnobs[] = {{"stream", kBooleans, "streaming stores, which bypass the caches"}};

template <class Problem>
Plan choose_simd(const Problem& problem, const Machine& machine) {
  const std::int64_t arrays = std::is_same_v<Problem, ForwardProblem> ? 2 : 3;
  return {machine.leaves_caches(arrays * problem.rows * problem.cols * size_of(problem.x_dtype))};
}

template <class Args, class Problem>
constexpr Variant<Args, Problem> kVariants[] = {
    {.name = "simd",
     .knobs = kSimdKnobs,
     .each_isa = true,
     .choose = choose_simd<Problem>,
     .workspace = workspace<Problem>,
     .run = run_simd<Args, Problem>},
    {.name = "scalar", .workspace = workspace<Problem>, .run = run_scalar<Args, Problem>},
};

}  // namespace

std::span<const ForwardVariant> cpu_forward_variants() {
  return kVariants<ForwardArgs, ForwardProblem>;
}
std::span<const BackwardVariant> cpu_backward_variants() {
  return kVariants<BackwardArgs, BackwardProblem>;
}

}  // namespace isobit::softmax
