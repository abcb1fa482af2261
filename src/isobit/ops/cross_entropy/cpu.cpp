// SPDX-License-Identifier: Apache-2.0
// The CPU variants: whole vectors, and the specification. How rows are dealt to threads.
#include <algorithm>
#include <limits>
#include <type_traits>

#include "isobit/core/order.h"
#include "isobit/ops/cross_entropy/cpu_call.h"
#include "isobit/ops/cross_entropy/cpu_kernels.h"
#include "isobit/ops/cross_entropy/cpu_totals.h"
#include "isobit/ops/cross_entropy/formula.h"
#include "isobit/ops/cross_entropy/problem.h"
#include "isobit/simd/fence.h"
#include "isobit/simd/tasks.h"
#include "isobit/simd/vec.h"

namespace isobit::cross_entropy {
namespace {

// In the pinned float mode.
template <class Real>
Call<Real> call_of(const Given& given) {
  const Real* const weight = reinterpret_cast<const Real*>(given.weight);
  if (given.label_smoothing == 0) return {given, 0};
  if (weight == nullptr) return {given, static_cast<Real>(given.cols)};
  return {given, order::sum<Real>(given.cols, [&](std::int64_t i) { return weight[i]; })};
}

template <class Real>
void put(std::byte* to, std::int64_t i, Real value) {
  if (to != nullptr) reinterpret_cast<Real*>(to)[i] = narrow<Real>(value);
}

template <class Problem>
std::int64_t tasks_of(const Problem& problem, const Machine& machine) {
  constexpr std::int64_t kWork = 8;  // an element takes as long as so many that are copied
  return simd::task_count(machine, kWork * problem.rows * problem.cols,
                          std::max<std::int64_t>(1, problem.rows));
}

// Calls body(T{}) with the type of x.
template <class Body>
void with_type(DType dtype, const Body& body) {
  switch (dtype) {
    case DType::f16:  return body(f16{});
    case DType::bf16: return body(bf16{});
    case DType::f64:  return body(double{});
    default:          return body(float{});
  }
}

ForwardKernel forward_kernel_for(const ForwardProblem& problem, Isa isa) {
  ISOBIT_RETURN_FOR_ISA(isa, forward_kernel(problem.dtype, problem.label_smoothing != 0));
}
BackwardKernel backward_kernel_for(const BackwardProblem& problem, Isa isa) {
  ISOBIT_RETURN_FOR_ISA(isa, backward_kernel(problem.dtype, problem.label_smoothing != 0));
}

// Calls body(call, begin, end) for the rows of each task, in the pinned float mode.
template <class Real, class Problem, class Body>
void in_tasks(const Problem& problem, const Execution& execution, const Body& body) {
  const simd::FloatMode mode;
  const Call<Real> call = call_of<Real>(problem);
  simd::in_parts(execution, tasks_of(problem, execution.machine), problem.rows, 1,
                 [&](std::int64_t begin, std::int64_t end) { body(call, begin, end); });
}

template <class Problem, class Kernel>
void run_kernel(const Problem& problem, const Execution& execution, const Kernel& kernel) {
  const auto body = [&](const auto& call, std::int64_t begin, std::int64_t end) {
    kernel(static_cast<double>(call.weights), begin, end);
  };
  if (problem.real() == DType::f64)
    in_tasks<double>(problem, execution, body);
  else
    in_tasks<float>(problem, execution, body);
}

void run_simd(const ForwardArgs&, const ForwardProblem& problem, const Plan&,
              const Execution& execution) {
  const ForwardKernel kernel = forward_kernel_for(problem, execution.machine.isa);
  run_kernel(problem, execution, [&](double weights, std::int64_t begin, std::int64_t end) {
    kernel(problem, weights, begin, end);
  });
  add_totals(problem);
}
void run_simd(const BackwardArgs&, const BackwardProblem& problem, const Plan& plan,
              const Execution& execution) {
  if (problem.cols == 0) return;
  const BackwardKernel kernel = backward_kernel_for(problem, execution.machine.isa);
  run_kernel(problem, execution, [&](double weights, std::int64_t begin, std::int64_t end) {
    kernel(problem, weights, begin, end, plan[0] != 0);
    simd::fence();
  });
}

// The specification: each element by the formula, sums as core/order.h has them.
template <class T, class Real, class S = simd::ScalarOf<Real>>
void specified_row(const ForwardProblem& problem, const Call<Real>& call, std::int64_t row) {
  auto known = Known<S>::of_ignored();
  Real loss = 0;
  if (!call.ignored(row) && problem.cols == 0) {
    known = Known<S>::of_none();
    loss = known.sum;
  } else if (!call.ignored(row)) {
    const T* const x = row_of<const T>(problem.x, row);
    const auto element = [&](std::int64_t i) { return widen<Real>(x[i]); };
    Real largest = -std::numeric_limits<Real>::infinity();
    for (std::int64_t i = 0; i < problem.cols; ++i) largest = std::max(largest, element(i));
    largest += 0;  // never -0
    known = Known<S>::of(largest, order::sum<Real>(problem.cols, [&](std::int64_t i) {
                           return weight_of<S>(element(i), largest);
                         }));
    const Real differences = order::dot<Real>(
        call.shares.smooth ? problem.cols : 0,
        [&](std::int64_t i) { return call.weight == nullptr ? Real(1) : call.weight[i]; },
        [&](std::int64_t i) { return element(i) - largest; });
    loss = loss_of<S>(call.shares, known, element(problem.target[row]), call.weight_of_row(row),
                      call.weights, differences);
  }
  put(problem.loss, row, loss);
  put(problem.largest, row, known.largest);
  put(problem.sum, row, known.sum);
  if (problem.lse != nullptr) put(problem.lse, row, known.lse());
}
template <class T, class Real, class S = simd::ScalarOf<Real>>
void specified_row(const BackwardProblem& problem, const Call<Real>& call, std::int64_t row) {
  T* const grad_x = row_of<T>(problem.grad_x, row);
  if (call.ignored(row)) {
    std::fill(grad_x, grad_x + problem.cols, narrow<T>(Real(0)));
    return;
  }
  const auto at = [&](const std::byte* numbers) {
    return reinterpret_cast<const Real*>(numbers)[row];
  };
  const Known<S> known{at(problem.largest), at(problem.sum)};
  const auto factors = Factors<S>::of(call.shares, known, at(problem.grad_loss),
                                      call.weight_of_row(row), call.weights);
  const T* const x = row_of<const T>(problem.x, row);
  for (std::int64_t i = 0; i < problem.cols; ++i) {
    const Real element = widen<Real>(x[i]), own = call.weight == nullptr ? Real(1) : call.weight[i];
    const Real value =
        call.shares.smooth
            ? gradient<S, true>(factors.by_weight, factors.by_class, element, known.largest, own)
            : gradient<S, false>(factors.by_weight, factors.by_class, element, known.largest, own);
    grad_x[i] = narrow<T>(i == problem.target[row] ? value - factors.at_target : value);
  }
}

template <class Problem>
void run_specified(const Problem& problem, const Execution& execution) {
  with_type(problem.dtype, [&]<class T>(T) {
    using Real = std::conditional_t<sizeof(T) == 8, double, float>;
    in_tasks<Real>(problem, execution, [&](const auto& call, std::int64_t begin, std::int64_t end) {
      for (std::int64_t row = begin; row < end; ++row) specified_row<T>(problem, call, row);
    });
  });
}

void run_scalar(const ForwardArgs&, const ForwardProblem& problem, const Plan&,
                const Execution& execution) {
  run_specified(problem, execution);
  add_totals(problem);
}
void run_scalar(const BackwardArgs&, const BackwardProblem& problem, const Plan&,
                const Execution& execution) {
  run_specified(problem, execution);
}

constexpr int kBooleans[] = {0, 1};
constexpr Knob kBackwardKnobs[] = {
    {"stream", kBooleans, "streaming stores, which bypass the caches"}};

Plan choose_backward(const BackwardProblem& problem, const Machine& machine) {
  return {machine.leaves_caches(2 * problem.rows * problem.cols * size_of(problem.dtype))};
}

constexpr ForwardVariant kForwardVariants[] = {
    {.name = "simd",
     .each_isa = true,
     .run = [](const ForwardArgs& args, const ForwardProblem& problem, const Plan& plan,
               const Execution& execution) { run_simd(args, problem, plan, execution); }},
    {.name = "scalar",
     .run = [](const ForwardArgs& args, const ForwardProblem& problem, const Plan& plan,
               const Execution& execution) { run_scalar(args, problem, plan, execution); }},
};
constexpr BackwardVariant kBackwardVariants[] = {
    {.name = "simd",
     .knobs = kBackwardKnobs,
     .each_isa = true,
     .choose = choose_backward,
     .run = [](const BackwardArgs& args, const BackwardProblem& problem, const Plan& plan,
               const Execution& execution) { run_simd(args, problem, plan, execution); }},
    {.name = "scalar",
     .run = [](const BackwardArgs& args, const BackwardProblem& problem, const Plan& plan,
               const Execution& execution) { run_scalar(args, problem, plan, execution); }},
};

}  // namespace

void add_totals(const ForwardProblem& problem) {
  const simd::FloatMode mode;
  const auto add = [&]<class Real>(Type<Real>) {
    const Call<Real> call(problem, 0);
    const auto put_sum = [&](std::byte* to, const auto& value) {
      if (to == nullptr) return;
      put(to, 0, order::sum_rows<Real>(problem.rows, [&](Real sum, std::int64_t row) {
            return sum + value(row);
          }));
    };
    const Real* const loss = reinterpret_cast<const Real*>(problem.loss);
    put_sum(problem.total, [&](std::int64_t row) { return loss[row]; });
    put_sum(problem.count, [&](std::int64_t row) { return call.weight_of_row(row); });
  };
  problem.real() == DType::f64 ? add(Type<double>{}) : add(Type<float>{});
}

std::span<const ForwardVariant> cpu_forward_variants() { return kForwardVariants; }
std::span<const BackwardVariant> cpu_backward_variants() { return kBackwardVariants; }

}  // namespace isobit::cross_entropy
