// SPDX-License-Identifier: Apache-2.0
// The CPU variants of any optimiser: whole vectors, and one element at a time. How a call is dealt
// to threads.
#pragma once

#include <algorithm>

#include "isobit/optimizers/cpu_kernels.h"
#include "isobit/optimizers/problem.h"
#include "isobit/simd/tasks.h"
#include "isobit/simd/vec.h"

namespace isobit::optimizers {

// Many rows are dealt out whole; fewer are cut, at whole cache lines, so that threads never share
// one. run(step, count) is called for adjacent elements.
template <class Run>
void deal(const Arrays& arrays, const Execution& execution, const Run& run) {
  constexpr std::int64_t kCut = 64;
  constexpr std::int64_t kWork = 3;  // an element takes as long as so many that are copied
  const std::int64_t size = size_of(arrays.dtype), grad_size = size_of(arrays.grad_dtype);
  const auto rectangle = [&](std::int64_t first_row, std::int64_t last_row, std::int64_t from,
                             std::int64_t to) {
    for (std::int64_t row = first_row; row < last_row && from < to; ++row) {
      const auto at = [&](const Matrix& matrix, std::int64_t element) {
        return matrix.data == nullptr ? nullptr
                                      : matrix.data + (row * matrix.stride + from) * element;
      };
      Step step{};
      step.param = at(arrays.param, size);
      step.grad = at(arrays.grad, grad_size);
      step.new_param = at(arrays.new_param, size);
      step.narrow = at(arrays.narrow, grad_size);
      for (int k = 0; k < kStates; ++k) {
        step.state[k] = at(arrays.state[k], size);
        step.new_state[k] = at(arrays.new_state[k], size);
      }
      run(step, to - from);
    }
  };
  const std::int64_t rows = arrays.param.rows, cols = arrays.param.cols;
  const std::int64_t tasks =
      simd::task_count(execution.machine, kWork * rows * cols, std::max(rows, cols / kCut));
  if (rows >= tasks)
    simd::in_parts(execution, tasks, rows, 1,
                   [&](std::int64_t begin, std::int64_t end) { rectangle(begin, end, 0, cols); });
  else
    simd::in_parts(execution, tasks, cols, kCut,
                   [&](std::int64_t begin, std::int64_t end) { rectangle(0, rows, begin, end); });
}

// The specification: what the rule says, element by element.
template <class Rule, class T, class G>
void run_elements(const Step& step, const typename Rule::template Constants<double>& given,
                  std::int64_t count) {
  using S = simd::ScalarOf<T>;
  using Real = typename S::Real;
  const auto constants = given.template as<Real>();
  const auto element = [](const std::byte* array, std::int64_t i) {
    return array == nullptr ? Real(0) : widen<Real>(reinterpret_cast<const T*>(array)[i]);
  };
  for (std::int64_t i = 0; i < count; ++i) {
    Real param = element(step.param, i);
    const Real grad = widen<Real>(reinterpret_cast<const G*>(step.grad)[i]);
    Real state[kStates];
    for (int k = 0; k < kStates; ++k) state[k] = element(step.state[k], i);
    Rule::template step<S>(constants, param, grad, state);
    reinterpret_cast<T*>(step.new_param)[i] = narrow<T>(param);
    if (step.narrow != nullptr) reinterpret_cast<G*>(step.narrow)[i] = narrow<G>(param);
    for (int k = 0; k < kStates; ++k)
      if (step.new_state[k] != nullptr)
        reinterpret_cast<T*>(step.new_state[k])[i] = narrow<T>(state[k]);
  }
}

template <class Rule>
Kernel<Rule> element_kernel(DType dtype, DType grad_dtype) {
  if (dtype == DType::f16) return run_elements<Rule, f16, f16>;
  if (dtype == DType::bf16) return run_elements<Rule, bf16, bf16>;
  if (dtype == DType::f64) return run_elements<Rule, double, double>;
  if (grad_dtype == DType::f16) return run_elements<Rule, float, f16>;
  if (grad_dtype == DType::bf16) return run_elements<Rule, float, bf16>;
  return run_elements<Rule, float, float>;
}

template <class Rule>
Kernel<Rule> vector_kernel(const Arrays& arrays, Isa isa) {
  ISOBIT_RETURN_FOR_ISA(isa, Kernels<Rule>::kernel(arrays.dtype, arrays.grad_dtype));
}

template <class Rule, class Args, class Problem>
inline constexpr Variant<Args, Problem> kCpuVariants[] = {
    {.name = "simd",
     .run =
         [](const Args&, const Problem& problem, const Plan&, const Execution& execution) {
           const Kernel<Rule> kernel = vector_kernel<Rule>(problem, execution.machine.isa);
           deal(problem, execution, [&](const Step& step, std::int64_t count) {
             kernel(step, problem.constants, count);
           });
         }},
    {.name = "scalar",
     .run =
         [](const Args&, const Problem& problem, const Plan&, const Execution& execution) {
           const Kernel<Rule> kernel = element_kernel<Rule>(problem.dtype, problem.grad_dtype);
           deal(problem, execution, [&](const Step& step, std::int64_t count) {
             kernel(step, problem.constants, count);
           });
         }},
};

}  // namespace isobit::optimizers
