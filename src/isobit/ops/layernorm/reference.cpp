// SPDX-License-Identifier: Apache-2.0
// LayerNorm as the formulas say it, one row after the other: naive, independent, slow enough to be
// trusted.
#include "isobit/ops/layernorm/reference.h"

#include <cmath>
#include <limits>
#include <type_traits>
#include <vector>

namespace isobit::layernorm {
namespace {

template <class Real>
Real magnitude(Real value) {
  return value < 0 ? -value : value;
}

double root(double value) { return std::sqrt(value); }

// A long double has the exponents of a __float128; one step of Newton gives it the digits as well.
__float128 root(__float128 value) {
  const __float128 guess = std::sqrt(static_cast<long double>(value));
  const bool ordinary = guess > 0 && guess < std::numeric_limits<long double>::infinity();
  return ordinary ? (guess + value / guess) / 2 : guess;
}

// A problem in f32 or in a 16-bit type knows eps as a float.
template <class Real>
Real epsilon(double eps) {
  if constexpr (std::is_same_v<Real, double>) return static_cast<float>(eps);
  return eps;
}

// Null where the view is absent.
template <class Real>
Real* row_of(const TensorView& view, std::int64_t row) {
  return view.given() ? static_cast<Real*>(view.data) + row * view.strides[0] : nullptr;
}

// One element of (rows), or all of (cols).
template <class Real>
Real* at(const TensorView& view, std::int64_t i = 0) {
  return view.given() ? static_cast<Real*>(view.data) + i : nullptr;
}

template <class Real>
std::vector<Real> values_or(const TensorView& view, std::int64_t count, Real fallback) {
  if (!view.given()) return std::vector<Real>(count, fallback);
  return {at<Real>(view), at<Real>(view) + count};
}

template <class Value>
auto mean_of(std::int64_t count, Value value) {
  decltype(value(0)) sum = 0;
  for (std::int64_t i = 0; i < count; ++i) sum += value(i);
  return sum / count;
}

// One row, normalised.
template <class Real>
struct Normalised {
  explicit Normalised(std::int64_t cols) : x_hat(cols) {}

  // Measured from the first element, so that a constant row is exact. What the rounded mean misses
  // is taken off separately: |mean| can be 4e9 times the deviations.
  void compute(const Real* x, Real eps) {
    const std::int64_t cols = x_hat.size();
    const Real first = cols > 0 ? x[0] : 0;
    const Real near = first + mean_of(cols, [&](auto i) { return x[i] - first; });
    const Real rest = mean_of(cols, [&](auto i) { return x[i] - near; });
    for (std::int64_t i = 0; i < cols; ++i) x_hat[i] = (x[i] - near) - rest;
    mean = near + rest;
    variance = mean_of(cols, [&](auto i) { return x_hat[i] * x_hat[i]; });
    rstd = variance == 0 && eps == 0 ? 0 : 1 / root(variance + eps);
    for (Real& value : x_hat) value *= rstd;
  }

  void compute_with(const Real* x, Real given_mean, Real given_rstd) {
    mean = given_mean;
    rstd = given_rstd;
    for (std::size_t i = 0; i < x_hat.size(); ++i) x_hat[i] = (x[i] - mean) * rstd;
  }

  Real mean{}, variance{}, rstd{};
  std::vector<Real> x_hat;
};

template <class Real>
void forward(const ForwardArgs& exact, const ForwardArgs& scale) {
  const std::int64_t rows = exact.x.shape[0], cols = exact.x.shape[1];
  const auto weight = values_or<Real>(exact.weight, cols, 1);
  const auto bias = values_or<Real>(exact.bias, cols, 0);
  Normalised<Real> norm(cols);
  const auto& x_hat = norm.x_hat;

  for (std::int64_t row = 0; row < rows; ++row) {
    const Real* x = row_of<Real>(exact.x, row);
    norm.compute(x, epsilon<Real>(exact.eps));

    if (Real* y = row_of<Real>(exact.y, row))
      for (std::int64_t i = 0; i < cols; ++i) y[i] = x_hat[i] * weight[i] + bias[i];
    if (Real* y = row_of<Real>(scale.y, row))
      for (std::int64_t i = 0; i < cols; ++i)
        y[i] = magnitude(weight[i]) * (1 + magnitude(x_hat[i])) + magnitude(bias[i]);

    if (Real* mean = at<Real>(exact.mean, row)) *mean = norm.mean;
    if (Real* mean = at<Real>(scale.mean, row))
      *mean = mean_of(cols, [&](auto i) { return magnitude(x[i]); });
    if (Real* rstd = at<Real>(exact.rstd, row)) *rstd = norm.rstd;
    if (Real* rstd = at<Real>(scale.rstd, row)) *rstd = norm.rstd;
  }
}

// One row of backward: what its gradients are made of.
template <class Real>
struct Gradient {
  explicit Gradient(const BackwardArgs& exact)
      : args(exact),
        cols(exact.x.shape[1]),
        weight(values_or<Real>(exact.weight, cols, 1)),
        norm(cols),
        g(cols) {}

  void compute(std::int64_t row) {
    const Real* x = row_of<Real>(args.x, row);
    if (args.mean.given())
      norm.compute_with(x, *at<Real>(args.mean, row), *at<Real>(args.rstd, row));
    else
      norm.compute(x, epsilon<Real>(args.eps));
    grad_y = row_of<Real>(args.grad_y, row);
    for (std::int64_t i = 0; i < cols; ++i) g[i] = grad_y[i] * weight[i];
    mean_g = mean_of(cols, [&](auto i) { return g[i]; });
    mean_g_x_hat = mean_of(cols, [&](auto i) { return g[i] * norm.x_hat[i]; });
  }

  const BackwardArgs& args;
  std::int64_t cols;
  std::vector<Real> weight;
  Normalised<Real> norm;
  const Real* grad_y = nullptr;
  std::vector<Real> g;  // grad_y * weight
  Real mean_g{}, mean_g_x_hat{};
};

template <class Real>
void backward(const BackwardArgs& exact, const BackwardArgs& scale) {
  Gradient<Real> part(exact);
  const std::int64_t rows = exact.x.shape[0], cols = part.cols;
  const auto& x_hat = part.norm.x_hat;
  const auto& g = part.g;

  for (std::int64_t row = 0; row < rows; ++row) {
    part.compute(row);
    const Real* grad_y = part.grad_y;
    const Real rstd = part.norm.rstd;

    if (Real* grad_x = row_of<Real>(exact.grad_x, row))
      for (std::int64_t i = 0; i < cols; ++i)
        grad_x[i] = rstd * (g[i] - part.mean_g - x_hat[i] * part.mean_g_x_hat);
    if (Real* grad_x = row_of<Real>(scale.grad_x, row)) {
      const Real mean_g = mean_of(cols, [&](auto i) { return magnitude(g[i]); });
      const Real mean_g_x_hat = mean_of(cols, [&](auto i) { return magnitude(g[i] * x_hat[i]); });
      for (std::int64_t i = 0; i < cols; ++i)
        grad_x[i] =
            magnitude(rstd) * (magnitude(g[i]) + mean_g + magnitude(x_hat[i]) * mean_g_x_hat);
    }

    if (Real* grad_weight = at<Real>(exact.grad_weight))
      for (std::int64_t i = 0; i < cols; ++i) grad_weight[i] += grad_y[i] * x_hat[i];
    if (Real* grad_weight = at<Real>(scale.grad_weight))
      for (std::int64_t i = 0; i < cols; ++i)
        grad_weight[i] += magnitude(grad_y[i]) * (1 + magnitude(x_hat[i]));
    if (Real* grad_bias = at<Real>(exact.grad_bias))
      for (std::int64_t i = 0; i < cols; ++i) grad_bias[i] += grad_y[i];
    if (Real* grad_bias = at<Real>(scale.grad_bias))
      for (std::int64_t i = 0; i < cols; ++i) grad_bias[i] += magnitude(grad_y[i]);
  }
}

using Values = std::vector<double>;

void append(Values& values, const Values& row) {
  values.insert(values.end(), row.begin(), row.end());
}

}  // namespace

void forward_reference(const ForwardArgs& exact, const ForwardArgs& scale) {
  exact.x.dtype == DType::f128 ? forward<__float128>(exact, scale) : forward<double>(exact, scale);
}

void backward_reference(const BackwardArgs& exact, const BackwardArgs& scale) {
  exact.x.dtype == DType::f128 ? backward<__float128>(exact, scale)
                               : backward<double>(exact, scale);
}

void forward_intermediates(const ForwardArgs& exact, const EmitArray& emit) {
  const std::int64_t rows = exact.x.shape[0], cols = exact.x.shape[1];
  Normalised<double> norm(cols);
  Values mean, variance, rstd, x_hat;
  for (std::int64_t row = 0; row < rows; ++row) {
    norm.compute(row_of<double>(exact.x, row), epsilon<double>(exact.eps));
    mean.push_back(norm.mean);
    variance.push_back(norm.variance);
    rstd.push_back(norm.rstd);
    append(x_hat, norm.x_hat);
  }
  emit("mean", rows, 1, mean);
  emit("variance", rows, 1, variance);
  emit("rstd", rows, 1, rstd);
  emit("x_hat", rows, cols, x_hat);
}

void backward_intermediates(const BackwardArgs& exact, const EmitArray& emit) {
  Gradient<double> part(exact);
  const std::int64_t rows = exact.x.shape[0], cols = part.cols;
  Values mean, rstd, x_hat, g, mean_g, mean_g_x_hat;
  for (std::int64_t row = 0; row < rows; ++row) {
    part.compute(row);
    mean.push_back(part.norm.mean);
    rstd.push_back(part.norm.rstd);
    append(x_hat, part.norm.x_hat);
    append(g, part.g);
    mean_g.push_back(part.mean_g);
    mean_g_x_hat.push_back(part.mean_g_x_hat);
  }
  emit("mean", rows, 1, mean);
  emit("rstd", rows, 1, rstd);
  emit("x_hat", rows, cols, x_hat);
  emit("g", rows, cols, g);
  emit("mean_g", rows, 1, mean_g);
  emit("mean_g_x_hat", rows, 1, mean_g_x_hat);
}

}  // namespace isobit::layernorm
