// SPDX-License-Identifier: Apache-2.0
// Norms as the formulas say them, one row after the other: naive, independent, slow enough to be
// trusted. What a norm does to one row is its own (ops/NAME/reference.cpp).
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>
#include <vector>

#include "isobit/core/case.h"
#include "isobit/core/magnitude.h"
#include "isobit/core/tensor_view.h"
#include "isobit/norms/reference.h"

namespace isobit::norms::reference {

inline double root(double value) { return std::sqrt(value); }

// A long double has the exponents of a quad; where it lacks the digits, a step of Newton gives
// them.
inline quad root(quad value) {
  const quad guess = std::sqrt(static_cast<long double>(value));
  const bool ordinary = guess > 0 && guess < std::numeric_limits<long double>::infinity();
  return ordinary ? (guess + value / guess) / 2 : guess;
}

// A problem in f32 or in a 16-bit type knows eps as a float.
template <class Real>
Real epsilon(double eps) {
  if constexpr (std::is_same_v<Real, double>) return static_cast<float>(eps);
  return eps;
}

// One element of (rows), or all of (cols); null where the view is absent.
template <class Real>
Real* at(const TensorView& view, std::int64_t i = 0) {
  return view.given() ? static_cast<Real*>(view.data) + i : nullptr;
}

template <class Real>
std::vector<Real> values_or(const TensorView& view, std::int64_t count, Real fallback) {
  if (!view.given()) return std::vector<Real>(count, fallback);
  return {at<Real>(view), at<Real>(view) + count};
}

template <class Real, class Args>
std::vector<Real> weights_of(const Args& args, std::int64_t cols) {
  std::vector<Real> weights = values_or<Real>(args.weight, cols, 1);
  if (args.weight.given() && args.zero_centered)
    for (Real& weight : weights) weight += 1;
  return weights;
}

template <class Value>
auto mean_of(std::int64_t count, Value value) {
  decltype(value(0)) sum = 0;
  for (std::int64_t i = 0; i < count; ++i) sum += value(i);
  return sum / count;
}

// The random word of an element: Philox4x32-10 with the seed as its key and (col / 4, row) as its
// counter.
inline std::uint32_t random_word(std::uint64_t seed, std::uint64_t row, std::uint64_t col) {
  constexpr std::uint64_t kLow = 0xffffffff;
  const std::uint64_t group = col / 4;
  std::uint64_t a = group & kLow, b = group >> 32, c = row & kLow, d = row >> 32;
  std::uint64_t k = seed & kLow, l = seed >> 32;
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t p = a * 0xD2511F53, q = c * 0xCD9E8D57;
    a = (q >> 32) ^ b ^ k;
    b = q & kLow;
    c = (p >> 32) ^ d ^ l;
    d = p & kLow;
    k = (k + 0x9E3779B9) & kLow;
    l = (l + 0xBB67AE85) & kLow;
  }
  const std::uint64_t words[] = {a, b, c, d};
  return static_cast<std::uint32_t>(words[col % 4]);
}

// What dropout multiplies an element by: 0, or 1 / (1 - p) as f32 (f64 beside f64) knows it.
template <class Real, class Args>
Real dropout_factor(const Args& args, std::int64_t row, std::int64_t col) {
  if (args.dropout == 0) return 1;
  if (random_word(args.dropout_seed, row, col) < std::floor(args.dropout * 4294967296.0)) return 0;
  const double scale = 1 / (1 - args.dropout);
  return std::is_same_v<Real, double> ? static_cast<float>(scale) : scale;
}

// A product with 0 is 0, whatever the other factor.
template <class Real>
Real dropped(Real value, Real factor) {
  return factor == 0 ? Real(0) : value * factor;
}

// A number as an array of that type would hold it; the sum is computed in float first, but in f64.
inline double stored(DType dtype, double value) {
  if (dtype == DType::f64) return value;
  const float rounded = static_cast<float>(value);
  switch (dtype) {
    case DType::f16:  return to_float(from_float<f16>(rounded));
    case DType::bf16: return to_float(from_float<bf16>(rounded));
    default:          return rounded;
  }
}

// The row that is normalised: x, or its sum with residual, after dropout. Its elements are rounded
// to the type of x wherever an array of that type would hold them: what is normalised is the
// stored sum. scale receives the scale of the error of each.
template <class Real, class Args>
struct Composed {
  explicit Composed(const Args& args) : args(args), values(args.x.shape[1]), exact(values) {}

  void compute(std::int64_t row, std::int64_t real_row, DType dtype) {
    const Real* x = row_of<Real>(args.x, row);
    const Real* residual = row_of<Real>(args.residual, row);
    for (std::size_t i = 0; i < values.size(); ++i) {
      exact[i] = values[i] = x[i];
      if (!composes()) continue;
      const Real kept = dropped(x[i], dropout_factor<Real>(args, real_row, i));
      exact[i] = kept + (residual != nullptr ? residual[i] : Real(0));
      if constexpr (std::is_same_v<Real, double>) {
        const float product = static_cast<float>(kept);
        values[i] = stored(
            dtype, residual != nullptr ? product + static_cast<float>(residual[i]) : product);
      } else {
        const double product = static_cast<double>(kept);
        values[i] = residual != nullptr ? product + static_cast<double>(residual[i]) : product;
      }
    }
  }

  bool composes() const { return args.residual.given() || args.dropout > 0; }

  const Args& args;
  std::vector<Real> values, exact;
};

// Forward of a norm. Normalised<Real> computes one row: x_hat, rstd, and, where it has one, mean.
template <template <class> class Normalised, class Real, class Args>
void forward(const Args& exact, const Args& scale, const Rounding& rounding) {
  constexpr bool kHasMean = requires { exact.mean; };
  const std::int64_t rows = exact.x.shape[0], cols = exact.x.shape[1];
  const auto weight = weights_of<Real>(exact, cols);
  std::vector<Real> bias(cols, 0);
  if constexpr (kHasMean) bias = values_or<Real>(exact.bias, cols, 0);
  Normalised<Real> norm(cols);
  const auto& x_hat = norm.x_hat;
  Composed<Real, Args> composed(exact);

  for (std::int64_t row = 0; row < rows; ++row) {
    composed.compute(row, rounding.first + row, rounding.dtype);
    const Real* x = composed.values.data();
    norm.compute(x, epsilon<Real>(exact.eps));

    if (Real* sum = row_of<Real>(exact.sum, row))
      for (std::int64_t i = 0; i < cols; ++i) sum[i] = composed.exact[i];
    if (Real* sum = row_of<Real>(scale.sum, row)) {
      const Real* residual = row_of<Real>(exact.residual, row);
      for (std::int64_t i = 0; i < cols; ++i)
        sum[i] = magnitude(composed.exact[i]) +
                 (residual != nullptr ? 2 * magnitude(residual[i]) : Real(0));
    }

    if (Real* y = row_of<Real>(exact.y, row))
      for (std::int64_t i = 0; i < cols; ++i) y[i] = x_hat[i] * weight[i] + bias[i];
    if (Real* y = row_of<Real>(scale.y, row))
      for (std::int64_t i = 0; i < cols; ++i)
        y[i] = magnitude(weight[i]) * (1 + magnitude(x_hat[i])) + magnitude(bias[i]);

    if constexpr (kHasMean) {
      if (Real* mean = at<Real>(exact.mean, row)) *mean = norm.mean;
      if (Real* mean = at<Real>(scale.mean, row))
        *mean = mean_of(cols, [&](auto i) { return magnitude(x[i]); });
    }
    if (Real* rstd = at<Real>(exact.rstd, row)) *rstd = norm.rstd;
    if (Real* rstd = at<Real>(scale.rstd, row)) *rstd = norm.rstd;
  }
}

// One row of backward: what its gradients are made of.
template <template <class> class Normalised, class Real, class Args>
struct Gradient {
  static constexpr bool kCentered = requires(const Args& args) { args.mean; };

  explicit Gradient(const Args& exact)
      : args(exact),
        cols(exact.x.shape[1]),
        weight(weights_of<Real>(exact, cols)),
        norm(cols),
        g(cols) {}

  void compute(std::int64_t row) {
    const Real* x = row_of<Real>(args.x, row);
    if (!args.rstd.given()) {
      norm.compute(x, epsilon<Real>(args.eps));
    } else if constexpr (kCentered) {
      norm.compute_with(x, *at<Real>(args.mean, row), *at<Real>(args.rstd, row));
    } else {
      norm.compute_with(x, *at<Real>(args.rstd, row));
    }
    grad_y = row_of<Real>(args.grad_y, row);
    for (std::int64_t i = 0; i < cols; ++i) g[i] = grad_y[i] * weight[i];
    if (kCentered) mean_g = mean_of(cols, [&](auto i) { return g[i]; });
    mean_g_x_hat = mean_of(cols, [&](auto i) { return g[i] * norm.x_hat[i]; });
  }

  const Args& args;
  std::int64_t cols;
  std::vector<Real> weight;
  Normalised<Real> norm;
  const Real* grad_y = nullptr;
  std::vector<Real> g;  // grad_y * weight
  Real mean_g{}, mean_g_x_hat{};
};

template <template <class> class Normalised, class Real, class Args>
void backward(const Args& exact, const Args& scale, const Rounding& rounding) {
  using Part = Gradient<Normalised, Real, Args>;
  Part part(exact);
  const std::int64_t rows = exact.x.shape[0], cols = part.cols;
  const auto& x_hat = part.norm.x_hat;
  const auto& g = part.g;

  for (std::int64_t row = 0; row < rows; ++row) {
    part.compute(row);
    const Real* grad_y = part.grad_y;
    const Real* grad_sum = row_of<Real>(exact.grad_sum, row);
    const Real rstd = part.norm.rstd;
    const auto factor = [&](std::int64_t i) {
      return dropout_factor<Real>(exact, rounding.first + row, i);
    };
    const auto write = [&](const Args& to, auto value) {
      Real* grad_residual = row_of<Real>(to.grad_residual, row);
      Real* grad_x = row_of<Real>(to.grad_x, row);
      for (std::int64_t i = 0; i < cols && (grad_x || grad_residual); ++i) {
        const Real gradient = value(i);
        if (grad_residual != nullptr) grad_residual[i] = gradient;
        if (grad_x != nullptr) grad_x[i] = dropped(gradient, factor(i));
      }
    };
    write(exact, [&](std::int64_t i) {
      const Real gradient = rstd * (g[i] - part.mean_g - x_hat[i] * part.mean_g_x_hat);
      return gradient + (grad_sum != nullptr ? grad_sum[i] : Real(0));
    });
    const Real mean_g =
        Part::kCentered ? mean_of(cols, [&](auto i) { return magnitude(g[i]); }) : Real(0);
    const Real mean_g_x_hat = mean_of(cols, [&](auto i) { return magnitude(g[i] * x_hat[i]); });
    write(scale, [&](std::int64_t i) {
      const Real norm_scale =
          magnitude(rstd) * (magnitude(g[i]) + mean_g + magnitude(x_hat[i]) * mean_g_x_hat);
      return norm_scale + (grad_sum != nullptr ? magnitude(grad_sum[i]) : Real(0));
    });

    if (Real* grad_weight = at<Real>(exact.grad_weight))
      for (std::int64_t i = 0; i < cols; ++i) grad_weight[i] += grad_y[i] * x_hat[i];
    if (Real* grad_weight = at<Real>(scale.grad_weight))
      for (std::int64_t i = 0; i < cols; ++i)
        grad_weight[i] += magnitude(grad_y[i]) * (1 + magnitude(x_hat[i]));
    if constexpr (requires { exact.grad_bias; }) {
      if (Real* grad_bias = at<Real>(exact.grad_bias))
        for (std::int64_t i = 0; i < cols; ++i) grad_bias[i] += grad_y[i];
      if (Real* grad_bias = at<Real>(scale.grad_bias))
        for (std::int64_t i = 0; i < cols; ++i) grad_bias[i] += magnitude(grad_y[i]);
    }
  }
}

using Values = std::vector<double>;

inline void append(Values& values, const Values& row) {
  values.insert(values.end(), row.begin(), row.end());
}

template <template <class> class Normalised, class Args>
void forward_intermediates(const Args& exact, const Rounding& rounding, const EmitArray& emit) {
  const std::int64_t rows = exact.x.shape[0], cols = exact.x.shape[1];
  Normalised<double> norm(cols);
  Composed<double, Args> composed(exact);
  Values mean, square, rstd, x_hat;
  for (std::int64_t row = 0; row < rows; ++row) {
    composed.compute(row, rounding.first + row, rounding.dtype);
    norm.compute(composed.values.data(), epsilon<double>(exact.eps));
    if constexpr (requires { norm.mean; }) mean.push_back(norm.mean);
    square.push_back(norm.mean_square);
    rstd.push_back(norm.rstd);
    append(x_hat, norm.x_hat);
  }
  if constexpr (requires { norm.mean; }) emit("mean", rows, 1, mean);
  emit(Normalised<double>::kMeanSquare, rows, 1, square);
  emit("rstd", rows, 1, rstd);
  emit("x_hat", rows, cols, x_hat);
}

template <template <class> class Normalised, class Args>
void backward_intermediates(const Args& exact, const EmitArray& emit) {
  Gradient<Normalised, double, Args> part(exact);
  const std::int64_t rows = exact.x.shape[0], cols = part.cols;
  Values mean, rstd, x_hat, g, mean_g, mean_g_x_hat;
  for (std::int64_t row = 0; row < rows; ++row) {
    part.compute(row);
    if constexpr (requires { part.norm.mean; }) {
      mean.push_back(part.norm.mean);
      mean_g.push_back(part.mean_g);
    }
    rstd.push_back(part.norm.rstd);
    append(x_hat, part.norm.x_hat);
    append(g, part.g);
    mean_g_x_hat.push_back(part.mean_g_x_hat);
  }
  if constexpr (requires { part.norm.mean; }) emit("mean", rows, 1, mean);
  emit("rstd", rows, 1, rstd);
  emit("x_hat", rows, cols, x_hat);
  emit("g", rows, cols, g);
  if constexpr (requires { part.norm.mean; }) emit("mean_g", rows, 1, mean_g);
  emit("mean_g_x_hat", rows, 1, mean_g_x_hat);
}

}  // namespace isobit::norms::reference

namespace isobit::norms {

template <class Norm>
void Reference<Norm>::forward(const ForwardArgs& exact, const ForwardArgs& scale,
                              const Rounding& rounding) {
  exact.x.dtype == DType::f128
      ? reference::forward<Norm::template Normalised, quad>(exact, scale, rounding)
      : reference::forward<Norm::template Normalised, double>(exact, scale, rounding);
}

template <class Norm>
void Reference<Norm>::backward(const BackwardArgs& exact, const BackwardArgs& scale,
                               const Rounding& rounding) {
  exact.x.dtype == DType::f128
      ? reference::backward<Norm::template Normalised, quad>(exact, scale, rounding)
      : reference::backward<Norm::template Normalised, double>(exact, scale, rounding);
}

template <class Norm>
void Reference<Norm>::forward_intermediates(const ForwardArgs& exact, const Rounding& rounding,
                                            const EmitArray& emit) {
  reference::forward_intermediates<Norm::template Normalised>(exact, rounding, emit);
}

template <class Norm>
void Reference<Norm>::backward_intermediates(const BackwardArgs& exact, const Rounding&,
                                             const EmitArray& emit) {
  reference::backward_intermediates<Norm::template Normalised>(exact, emit);
}

}  // namespace isobit::norms
