// SPDX-License-Identifier: Apache-2.0
// The scalar variants of a norm: the specification to the letter, one element after the other. A
// reader who wants to know what Isobit computes should start here.
#pragma once

#include "isobit/dispatch/plan.h"
#include "isobit/norms/cpu_row.h"
#include "isobit/norms/philox.h"
#include "isobit/norms/problem.h"
#include "isobit/simd/tasks.h"

namespace isobit::norms {

// Arrays whose element types are known at run time, element by element.
template <class Real>
class ScalarArrays {
 public:
  static Real get(DType dtype, const void* data, std::int64_t i) {
    switch (dtype) {
      case DType::f16:  return widen<float>(static_cast<const f16*>(data)[i]);
      case DType::bf16: return widen<float>(static_cast<const bf16*>(data)[i]);
      case DType::f64:  return static_cast<Real>(static_cast<const double*>(data)[i]);
      default:          return static_cast<const float*>(data)[i];
    }
  }
  static void set(DType dtype, void* data, std::int64_t i, Real value) {
    switch (dtype) {
      case DType::f16:  static_cast<f16*>(data)[i] = narrow<f16>(value); break;
      case DType::bf16: static_cast<bf16*>(data)[i] = narrow<bf16>(value); break;
      case DType::f64:  static_cast<double*>(data)[i] = narrow<double>(double{value}); break;
      default:          static_cast<float*>(data)[i] = narrow<float>(value);
    }
  }
  // An element of an optional weight, or its neutral value.
  static Real weight(DType dtype, const void* data, std::int64_t i, bool zero_centered) {
    if (data == nullptr) return 1;
    return zero_centered ? get(dtype, data, i) + 1 : get(dtype, data, i);
  }
  static Real bias(DType dtype, const void* data, std::int64_t i) {
    return data == nullptr ? Real(-0.0) : get(dtype, data, i);  // -0 is what no addition notices
  }
  static Real dropped(const Dropout& dropout, std::int64_t row, std::int64_t col, Real value) {
    if (!dropout.drops()) return value;
    const bool kept = dropout_words(dropout.seed, dropout.first_row + row, col / 4)[col % 4] >=
                      dropout_threshold(dropout.p);
    return kept ? value * dropout_scale<Real>(dropout.p) : Real(0);
  }
};

template <class Formula, class S>
class ScalarForward : ScalarArrays<typename S::Real> {
 public:
  using Real = typename S::Real;
  explicit ScalarForward(const ForwardProblem& problem) : problem_(problem) {}

  void row(std::int64_t row) const {
    const auto x = [&](std::int64_t i) { return normalised_element(row, i); };
    const SpecifiedRow<S, decltype(x)> summed(problem_.cols, x);
    const Statistics<Real> statistics =
        statistics_of<Formula>(summed, problem_.cols, static_cast<Real>(problem_.eps));
    const typename Formula::template NormaliseAny<S> normalise(statistics);
    for (std::int64_t i = 0; i < problem_.cols; ++i) {
      const Real value = x(i);  // y may be x
      if (problem_.sum)
        this->set(problem_.dtype, row_of(problem_.sum, row, problem_.dtype), i, value);
      this->set(
          problem_.y_dtype, row_of(problem_.y, row, problem_.y_dtype), i,
          std::fma(normalise(value),
                   this->weight(problem_.weight_dtype, problem_.weight, i, problem_.zero_centered),
                   this->bias(problem_.weight_dtype, problem_.bias, i)));
    }
    if (problem_.mean != nullptr)
      static_cast<Real*>(problem_.mean)[row] = narrow<Real>(statistics.saved_mean);
    if (problem_.rstd != nullptr)
      static_cast<Real*>(problem_.rstd)[row] = narrow<Real>(statistics.saved_rstd);
  }

 private:
  // x, or the sum that is normalised in its place, rounded as it is stored.
  Real normalised_element(std::int64_t row, std::int64_t i) const {
    Real value = this->get(problem_.dtype, row_of(problem_.x, row, problem_.dtype), i);
    if (!problem_.composes()) return value;
    value = this->dropped(problem_.dropout, row, i, value);
    if (problem_.residual)
      value += this->get(problem_.dtype, row_of(problem_.residual, row, problem_.dtype), i);
    alignas(double) std::byte stored[sizeof(double)];  // of any type
    this->set(problem_.dtype, stored, 0, value);
    return this->get(problem_.dtype, stored, 0);
  }

  const ForwardProblem& problem_;
};

template <class Formula, class S>
class ScalarBackward : ScalarArrays<typename S::Real> {
 public:
  using Real = typename S::Real;
  using NormaliseAny = typename Formula::template NormaliseAny<S>;
  ScalarBackward(const BackwardProblem& problem, Statistics<Real>* statistics)
      : problem_(problem), statistics_(statistics) {}

  void statistics(std::int64_t row) const {
    const auto x = [&](std::int64_t i) { return this->x(row, i); };
    const SpecifiedRow<S, decltype(x)> summed(problem_.cols, x);
    const auto given = [&](const void* data) {
      return data != nullptr ? static_cast<const Real*>(data)[row] : Real(0);
    };
    statistics_[row] =
        problem_.rstd != nullptr
            ? given_statistics(given(problem_.mean), given(problem_.rstd))
            : statistics_of<Formula>(summed, problem_.cols, static_cast<Real>(problem_.eps));
  }

  void gradients(std::int64_t row) const {
    const Real n = static_cast<Real>(problem_.cols);
    const NormaliseAny normalise(statistics_[row]);
    const auto xhat = [&](std::int64_t i) { return normalise(x(row, i)); };
    const auto g = [&](std::int64_t i) {
      return grad_y(row, i) *
             this->weight(problem_.weight_dtype, problem_.weight, i, problem_.zero_centered);
    };
    const Real mean_g = Formula::kCentered ? order::sum<Real>(problem_.cols, g) / n : Real(0);
    const Real mean_gx = order::dot<Real>(problem_.cols, g, xhat) / n;
    const auto at = [&](const Matrix& matrix) { return row_of(matrix, row, problem_.dtype); };
    for (std::int64_t i = 0; i < problem_.cols; ++i) {
      Real value = normalise.gradient(g(i), xhat(i), mean_g, mean_gx);
      if (problem_.grad_sum) value += this->get(problem_.dtype, at(problem_.grad_sum), i);
      if (problem_.grad_residual) this->set(problem_.dtype, at(problem_.grad_residual), i, value);
      if (problem_.grad_x)
        this->set(problem_.dtype, at(problem_.grad_x), i,
                  this->dropped(problem_.dropout, row, i, value));
    }
  }

  void weight_gradients(std::int64_t col) const {
    if (problem_.grad_weight != nullptr)
      this->set(problem_.weight_dtype, problem_.grad_weight, col,
                order::sum_rows<Real>(problem_.rows, [&](Real sum, std::int64_t row) {
                  return std::fma(grad_y(row, col), NormaliseAny(statistics_[row])(x(row, col)),
                                  sum);
                }));
    if (problem_.grad_bias != nullptr)
      this->set(problem_.weight_dtype, problem_.grad_bias, col,
                order::sum_rows<Real>(problem_.rows, [&](Real sum, std::int64_t row) {
                  return sum + grad_y(row, col);
                }));
  }

 private:
  Real x(std::int64_t row, std::int64_t i) const {
    return this->get(problem_.dtype, row_of(problem_.x, row, problem_.dtype), i);
  }
  Real grad_y(std::int64_t row, std::int64_t i) const {
    return this->get(problem_.grad_y_dtype, row_of(problem_.grad_y, row, problem_.grad_y_dtype), i);
  }

  const BackwardProblem& problem_;
  Statistics<Real>* statistics_;
};

// Calls body(S{}) with what computes in scalars of the problem's real type.
template <class Body>
void with_scalars(DType dtype, const Body& body) {
  if (dtype == DType::f64)
    body(simd::scalar::F64{});
  else
    body(simd::scalar::F32{});
}

template <class Formula>
void run_scalar_forward(const ForwardProblem& problem, const Execution& execution) {
  const std::int64_t tasks =
      simd::task_count(execution.machine, problem.rows * problem.cols, problem.rows);
  with_scalars(problem.dtype, [&]<class S>(S) {
    simd::in_parts(execution, tasks, problem.rows, 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t row = begin; row < end; ++row) ScalarForward<Formula, S>(problem).row(row);
    });
  });
}

inline std::size_t scalar_backward_workspace(const BackwardProblem& problem, const Plan&,
                                             const Machine&) {
  const std::size_t size =
      problem.dtype == DType::f64 ? sizeof(Statistics<double>) : sizeof(Statistics<float>);
  return size * static_cast<std::size_t>(problem.rows);
}

// First the statistics of every row, then the sums of columns, then the gradients of rows, which
// may overwrite x or grad_y.
template <class Formula>
void run_scalar_backward(const BackwardProblem& problem, const Execution& execution) {
  with_scalars(problem.dtype, [&]<class S>(S) {
    const ScalarBackward<Formula, S> scalar(
        problem, reinterpret_cast<Statistics<typename S::Real>*>(execution.workspace));
    const auto each = [&](std::int64_t count, const auto& body) {
      simd::in_parts(execution,
                     simd::task_count(execution.machine, problem.rows * problem.cols, count), count,
                     1, [&](std::int64_t begin, std::int64_t end) {
                       for (std::int64_t i = begin; i < end; ++i) body(i);
                     });
    };
    each(problem.rows, [&](std::int64_t row) { scalar.statistics(row); });
    each(problem.cols, [&](std::int64_t col) { scalar.weight_gradients(col); });
    if (problem.wants_rows()) each(problem.rows, [&](std::int64_t row) { scalar.gradients(row); });
  });
}

}  // namespace isobit::norms
