// SPDX-License-Identifier: Apache-2.0
// The CPU variants: whole vectors, and the specification. How rows are dealt to threads.
#include <algorithm>
#include <limits>
#include <type_traits>

#include "isobit/core/order.h"
#include "isobit/ops/cross_entropy/cpu_kernels.h"
#include "isobit/ops/cross_entropy/cpu_totals.h"
#include "isobit/ops/cross_entropy/formula.h"
#include "isobit/ops/cross_entropy/problem.h"
#include "isobit/simd/fence.h"
#include "isobit/simd/tasks.h"
#include "isobit/simd/vec.h"

namespace isobit::cross_entropy {
namespace {

template <class Number>
using ScalarsOf = std::conditional_t<sizeof(Number) == 8, simd::scalar::F64, simd::scalar::F32>;

const std::byte* row_of(const Matrix& matrix, std::int64_t row, DType dtype) {
  return matrix.data + row * matrix.stride * size_of(dtype);
}

// What a call knows before its rows, in the type that it computes in.
template <class Real>
struct Call {
  const Given& given;
  const Real* weight;
  Shares<Real> shares;
  Real weights = 0;  // their sum, where each class has a share

  // In the pinned float mode.
  explicit Call(const Given& given)
      : given(given),
        weight(reinterpret_cast<const Real*>(given.weight)),
        shares(Shares<Real>::of(given.label_smoothing, given.z_loss, given.cols)) {
    if (!shares.smooth) return;
    weights = weight == nullptr
                  ? static_cast<Real>(given.cols)
                  : order::sum<Real>(given.cols, [&](std::int64_t i) { return weight[i]; });
  }

  bool ignored(std::int64_t row) const { return given.target[row] == given.ignore_index; }
  // Of the target of a row: 0 where it is ignored, NaN without classes.
  Real weight_of_row(std::int64_t row) const {
    if (ignored(row)) return 0;
    if (given.cols == 0) return std::numeric_limits<Real>::quiet_NaN();
    return weight == nullptr ? Real(1) : weight[given.target[row]];
  }
};

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

// sums_of(row) gives RowSums; x_at(row, col) an element.
template <class T, class SumsOf>
void forward_in(const ForwardProblem& problem, const Execution& execution, const SumsOf& sums_of) {
  using Real = std::conditional_t<sizeof(T) == 8, double, float>;
  using S = ScalarsOf<Real>;
  const simd::FloatMode mode;
  const Call<Real> call(problem);
  simd::in_parts(
      execution, tasks_of(problem, execution.machine), problem.rows, 1,
      [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t row = begin; row < end; ++row) {
          auto known = Known<Real>::of_ignored();
          Real loss = 0;
          if (!call.ignored(row) && problem.cols == 0) {
            known = Known<Real>::of_none();
            loss = known.sum;
          } else if (!call.ignored(row)) {
            const RowSums sums = sums_of(row);
            known = Known<Real>::of(static_cast<Real>(sums.largest), static_cast<Real>(sums.sum));
            const T* const x = reinterpret_cast<const T*>(row_of(problem.x, row, problem.dtype));
            loss = loss_of<S>(call.shares, known, widen<Real>(x[problem.target[row]]),
                              call.weight_of_row(row), call.weights,
                              static_cast<Real>(sums.differences));
          }
          put(problem.loss, row, loss);
          put(problem.largest, row, known.largest);
          put(problem.sum, row, known.sum);
          if (problem.lse != nullptr) put(problem.lse, row, lse_of<S>(known));
        }
      });
  add_totals(problem);
}

// make(row, largest, factors) writes the gradients of a row that is not ignored.
template <class T, class Make>
void backward_in(const BackwardProblem& problem, const Execution& execution, const Make& make) {
  using Real = std::conditional_t<sizeof(T) == 8, double, float>;
  using S = ScalarsOf<Real>;
  if (problem.cols == 0) return;
  const simd::FloatMode mode;
  const Call<Real> call(problem);
  const auto at = [](const std::byte* numbers, std::int64_t row) {
    return reinterpret_cast<const Real*>(numbers)[row];
  };
  simd::in_parts(
      execution, tasks_of(problem, execution.machine), problem.rows, 1,
      [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t row = begin; row < end; ++row) {
          T* const grad_x = reinterpret_cast<T*>(problem.grad_x.data) + row * problem.grad_x.stride;
          if (call.ignored(row)) {
            std::fill(grad_x, grad_x + problem.cols, narrow<T>(Real(0)));
            continue;
          }
          const Known<Real> known{at(problem.largest, row), at(problem.sum, row)};
          make(row, grad_x, known.largest,
               Factors<Real>::template of<S>(call.shares, known, at(problem.grad_loss, row),
                                             call.weight_of_row(row), call.weights));
        }
        simd::fence();
      });
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

void run_simd(const ForwardArgs&, const ForwardProblem& problem, const Plan&,
              const Execution& execution) {
  const ForwardKernel kernel = forward_kernel_for(problem, execution.machine.isa);
  with_type(problem.dtype, [&]<class T>(T) {
    forward_in<T>(problem, execution, [&](std::int64_t row) {
      return kernel({row_of(problem.x, row, problem.dtype), problem.weight, problem.cols});
    });
  });
}
void run_simd(const BackwardArgs&, const BackwardProblem& problem, const Plan& plan,
              const Execution& execution) {
  const BackwardKernel kernel = backward_kernel_for(problem, execution.machine.isa);
  with_type(problem.dtype, [&]<class T>(T) {
    backward_in<T>(
        problem, execution, [&](std::int64_t row, T* grad_x, auto largest, const auto& factors) {
          kernel({row_of(problem.x, row, problem.dtype), problem.weight,
                  reinterpret_cast<std::byte*>(grad_x), problem.cols, problem.target[row], largest,
                  factors.by_weight, factors.by_class, factors.at_target, plan[0] != 0});
        });
  });
}

// The specification: each element by the formula, sums as core/order.h has them.
void run_scalar(const ForwardArgs&, const ForwardProblem& problem, const Plan&,
                const Execution& execution) {
  with_type(problem.dtype, [&]<class T>(T) {
    using Real = std::conditional_t<sizeof(T) == 8, double, float>;
    using S = ScalarsOf<Real>;
    const Real* const weight = reinterpret_cast<const Real*>(problem.weight);
    forward_in<T>(problem, execution, [&](std::int64_t row) -> RowSums {
      const T* const x = reinterpret_cast<const T*>(row_of(problem.x, row, problem.dtype));
      const auto element = [&](std::int64_t i) { return widen<Real>(x[i]); };
      Real largest = -std::numeric_limits<Real>::infinity();
      for (std::int64_t i = 0; i < problem.cols; ++i) largest = std::max(largest, element(i));
      largest += 0;  // never -0
      const Real sum = order::sum<Real>(
          problem.cols, [&](std::int64_t i) { return weight_of<S>(element(i), largest); });
      const Real differences = order::dot<Real>(
          problem.label_smoothing != 0 ? problem.cols : 0,
          [&](std::int64_t i) { return weight == nullptr ? Real(1) : weight[i]; },
          [&](std::int64_t i) { return element(i) - largest; });
      return {largest, sum, differences};
    });
  });
}
void run_scalar(const BackwardArgs&, const BackwardProblem& problem, const Plan&,
                const Execution& execution) {
  with_type(problem.dtype, [&]<class T>(T) {
    using Real = std::conditional_t<sizeof(T) == 8, double, float>;
    using S = ScalarsOf<Real>;
    const Real* const weight = reinterpret_cast<const Real*>(problem.weight);
    backward_in<T>(
        problem, execution,
        [&](std::int64_t row, T* grad_x, Real largest, const Factors<Real>& factors) {
          const T* const x = reinterpret_cast<const T*>(row_of(problem.x, row, problem.dtype));
          for (std::int64_t i = 0; i < problem.cols; ++i) {
            const Real element = widen<Real>(x[i]), own = weight == nullptr ? Real(1) : weight[i];
            const Real value =
                problem.label_smoothing != 0
                    ? gradient<S, true>(factors.by_weight, factors.by_class, element, largest, own)
                    : gradient<S, false>(factors.by_weight, factors.by_class, element, largest,
                                         own);
            grad_x[i] = narrow<T>(i == problem.target[row] ? value - factors.at_target : value);
          }
        });
  });
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
  const auto add = [&]<class Real>(Type<Real>) {
    const Call<Real> call(problem);
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
