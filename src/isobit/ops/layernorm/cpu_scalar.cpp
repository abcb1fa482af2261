// SPDX-License-Identifier: Apache-2.0
// The scalar variants. A reader who wants to know what Isobit computes should start here.
#include "isobit/ops/layernorm/cpu_scalar.h"

#include "isobit/ops/layernorm/cpu_specified_row.h"

namespace isobit::layernorm {
namespace {

using S = simd::scalar::F32;

// An element of an optional weight, or its neutral value.
template <class W>
float element(const void* weight, std::int64_t i, float absent) {
  return weight != nullptr ? to_float(static_cast<const W*>(weight)[i]) : absent;
}

template <class T>
const T* row_of(const Matrix& matrix, std::int64_t row) {
  return reinterpret_cast<const T*>(matrix.data) + row * matrix.stride;
}
template <class T>
T* row_of_output(const Matrix& matrix, std::int64_t row) {
  return reinterpret_cast<T*>(matrix.data) + row * matrix.stride;
}

}  // namespace

void scalar_forward_rows(const ForwardProblem& problem, std::int64_t begin, std::int64_t end) {
  visit_types(problem.dtype, problem.weight_dtype, [&](auto x_type, auto weight_type) {
    using T = typename decltype(x_type)::type;
    using W = typename decltype(weight_type)::type;
    for (std::int64_t row = begin; row < end; ++row) {
      const T* x = row_of<T>(problem.x, row);
      T* y = row_of_output<T>(problem.y, row);
      const Statistics statistics =
          layernorm::statistics(SpecifiedRow<S, T>(x, problem.cols), problem.cols, problem.eps);
      const NormaliseAny<S> normalise(statistics);
      for (std::int64_t i = 0; i < problem.cols; ++i)
        y[i] =
            from_float<T>(std::fma(normalise(to_float(x[i])), element<W>(problem.weight, i, 1.0f),
                                   element<W>(problem.bias, i, -0.0f)));
      if (problem.mean != nullptr) problem.mean[row] = from_float<float>(statistics.saved_mean);
      if (problem.rstd != nullptr) problem.rstd[row] = from_float<float>(statistics.saved_rstd);
    }
  });
}

void scalar_statistics(const BackwardProblem& problem, std::int64_t begin, std::int64_t end,
                       Statistics* statistics) {
  visit_types(problem.dtype, problem.weight_dtype, [&](auto x_type, auto) {
    using T = typename decltype(x_type)::type;
    for (std::int64_t row = begin; row < end; ++row) {
      const T* x = row_of<T>(problem.x, row);
      statistics[row] = problem.mean != nullptr
                            ? given_statistics(problem.mean[row], problem.rstd[row])
                            : layernorm::statistics(SpecifiedRow<S, T>(x, problem.cols),
                                                    problem.cols, problem.eps);
    }
  });
}

void scalar_grad_x(const BackwardProblem& problem, const Statistics* statistics, std::int64_t begin,
                   std::int64_t end) {
  visit_types(problem.dtype, problem.weight_dtype, [&](auto x_type, auto weight_type) {
    using T = typename decltype(x_type)::type;
    using W = typename decltype(weight_type)::type;
    const float n = static_cast<float>(problem.cols);
    for (std::int64_t row = begin; row < end; ++row) {
      const T* x = row_of<T>(problem.x, row);
      const T* grad_y = row_of<T>(problem.grad_y, row);
      T* grad_x = row_of_output<T>(problem.grad_x, row);
      const NormaliseAny<S> normalise(statistics[row]);
      const auto xhat = [&](std::int64_t i) { return normalise(to_float(x[i])); };
      const auto g = [&](std::int64_t i) {
        return to_float(grad_y[i]) * element<W>(problem.weight, i, 1.0f);
      };
      const float mean_g = order::sum<float>(problem.cols, g) / n;
      const float mean_gx = order::dot<float>(problem.cols, g, xhat) / n;
      for (std::int64_t i = 0; i < problem.cols; ++i)
        grad_x[i] = from_float<T>(normalise.gradient(g(i), xhat(i), mean_g, mean_gx));
    }
  });
}

void scalar_weight_gradients(const BackwardProblem& problem, const Statistics* statistics,
                             std::int64_t first_col, std::int64_t last_col) {
  visit_types(problem.dtype, problem.weight_dtype, [&](auto x_type, auto weight_type) {
    using T = typename decltype(x_type)::type;
    using W = typename decltype(weight_type)::type;
    for (std::int64_t i = first_col; i < last_col; ++i) {
      const auto grad_y = [&](std::int64_t row) {
        return to_float(row_of<T>(problem.grad_y, row)[i]);
      };
      const auto xhat = [&](std::int64_t row) {
        return NormaliseAny<S>(statistics[row])(to_float(row_of<T>(problem.x, row)[i]));
      };
      if (problem.grad_weight != nullptr)
        static_cast<W*>(problem.grad_weight)[i] =
            from_float<W>(order::sum_rows<float>(problem.rows, [&](float sum, std::int64_t row) {
              return std::fma(grad_y(row), xhat(row), sum);
            }));
      if (problem.grad_bias != nullptr)
        static_cast<W*>(problem.grad_bias)[i] = from_float<W>(order::sum_rows<float>(
            problem.rows, [&](float sum, std::int64_t row) { return sum + grad_y(row); }));
    }
  });
}

}  // namespace isobit::layernorm
