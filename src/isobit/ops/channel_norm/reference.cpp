// SPDX-License-Identifier: Apache-2.0
// group_norm and batch_norm as their formulas say, in double or in quad, element by element. Arrays
// have no gaps here.
#include "isobit/ops/channel_norm/reference.h"

#include <cfloat>
#include <cstdint>
#include <limits>
#include <string_view>
#include <vector>

#include "isobit/core/magnitude.h"
#include "isobit/norms/reference_rows.h"

namespace isobit::channel_norm {
namespace {

using norms::reference::epsilon;
using norms::reference::root;

template <class Real>
Real* data(const TensorView& view) {
  return view.given() ? static_cast<Real*>(view.data) : nullptr;
}
template <class Real>
void put(const TensorView& view, std::int64_t at, Real value) {
  if (view.given()) data<Real>(view)[at] = value;
}
template <class Real>
void add(const TensorView& view, std::int64_t at, Real value) {
  if (view.given()) data<Real>(view)[at] += value;
}

// The scale of what is made of a sum or a variance: where that is beyond the range of what variants
// compute in, nothing is judged.
template <class Real>
Real scale_beside(Real made_of, Real scale) {
  constexpr double kLargest = std::is_same_v<Real, quad> ? DBL_MAX : double{FLT_MAX};
  return made_of > Real(kLargest) ? static_cast<Real>(std::numeric_limits<double>::infinity())
                                  : scale;
}

template <class Real>
struct Statistics {
  Real mean{}, rest{}, variance{}, rstd{}, magnitudes{};  // rest: what one number misses of mean
};

// Rows, which elements they have and what is known of them.
template <class Real, class Call>
class Rows {
 public:
  explicit Rows(const Call& call)
      : call_(call),
        batch_(call.x.shape[0]),
        channels_(call.x.shape[1]),
        extent_(call.x.shape[2]),
        of_group_(call.groups == 0 ? 1 : channels_ / call.groups) {}

  std::int64_t count() const { return call_.groups == 0 ? channels_ : batch_ * call_.groups; }
  std::int64_t row_of(std::int64_t image, std::int64_t channel) const {
    return call_.groups == 0 ? channel : image * call_.groups + channel / of_group_;
  }
  std::int64_t size() const { return call_.groups == 0 ? batch_ * extent_ : of_group_ * extent_; }
  // Calls visit(element, row, channel) for all elements.
  template <class Visit>
  void for_each(const Visit& visit) const {
    for (std::int64_t n = 0, i = 0; n < batch_; ++n)
      for (std::int64_t c = 0; c < channels_; ++c)
        for (std::int64_t l = 0; l < extent_; ++l) visit(i++, row_of(n, c), c);
  }
  // The mean of value(element, row) over each row.
  template <class Value>
  std::vector<Real> means(const Value& value) const {
    std::vector<Real> sums(count(), Real(0));
    for_each([&](std::int64_t i, std::int64_t row, std::int64_t) { sums[row] += value(i, row); });
    for (Real& sum : sums) sum = sum / static_cast<Real>(size());
    return sums;
  }

  // Measured from the first element, so that a constant row is exact.
  std::vector<Statistics<Real>> statistics() const {
    std::vector<Statistics<Real>> all(count());
    const Real eps = epsilon<Real>(call_.eps);
    const Real* x = data<Real>(call_.x);
    if (!call_.training) {
      for (std::int64_t row = 0; row < count(); ++row) {
        all[row].mean = data<Real>(call_.running_mean)[row];
        all[row].variance = data<Real>(call_.running_var)[row];
        all[row].rstd = 1 / root(all[row].variance + eps);
        all[row].magnitudes = magnitude(all[row].mean);
      }
      return all;
    }
    std::vector<Real> first(count(), Real(0));
    std::vector<char> seen(count());
    for_each([&](std::int64_t i, std::int64_t row, std::int64_t) {
      if (!seen[row]) first[row] = x[i];
      seen[row] = 1;
    });
    const auto near = means([&](auto i, auto row) { return x[i] - first[row]; });
    const auto rest = means([&](auto i, auto row) { return x[i] - (first[row] + near[row]); });
    const auto square = means([&](auto i, auto row) {
      const Real d = (x[i] - (first[row] + near[row])) - rest[row];
      return d * d;
    });
    const auto magnitudes = means([&](auto i, auto) { return magnitude(x[i]); });
    for (std::int64_t row = 0; row < count(); ++row) {
      all[row] = {first[row] + near[row], rest[row], square[row],
                  square[row] == 0 && eps == 0 ? Real(0) : 1 / root(square[row] + eps),
                  magnitudes[row]};
    }
    return all;
  }
  std::vector<Real> normalised(const std::vector<Statistics<Real>>& all) const {
    std::vector<Real> x_hat(batch_ * channels_ * extent_);
    const Real* x = data<Real>(call_.x);
    for_each([&](std::int64_t i, std::int64_t row, std::int64_t) {
      x_hat[i] = ((x[i] - all[row].mean) - all[row].rest) * all[row].rstd;
    });
    return x_hat;
  }
  std::vector<Real> weights(const TensorView& view, Real neutral) const {
    std::vector<Real> result(channels_, neutral);
    for (std::int64_t c = 0; c < channels_ && view.given(); ++c) result[c] = data<Real>(view)[c];
    return result;
  }

 private:
  const Call& call_;
  std::int64_t batch_, channels_, extent_, of_group_;
};

// What a problem in f32 knows of a number, in double; in quad what f64 knows.
template <class Real>
Real known(double number) {
  return epsilon<Real>(number);
}
// And half of what its last digit counts.
template <class Real>
Real unit() {
  return std::is_same_v<Real, quad> ? DBL_EPSILON / 2 : FLT_EPSILON / 2;
}

// Around the mean as one number has it. A mean that is off by the error that it may have adds the
// square of this to each square.
template <class Real>
void put_moments(const TensorView& exact, const TensorView& scale, std::int64_t row,
                 const Statistics<Real>& of, Real n) {
  const auto mean = static_cast<double>(of.mean + of.rest);
  const Real first = known<Real>(mean), missed = (of.mean - first) + of.rest;
  const Real sum = n * of.magnitudes, error = 8 * unit<Real>() * of.magnitudes * of.magnitudes;
  const Real squares = n * (of.variance + error);
  const Real numbers[] = {first, n == 0 ? 0 : n * missed,
                          n == 0 ? 0 : n * (of.variance + missed * missed)};
  const Real scales[] = {scale_beside(sum, of.magnitudes), scale_beside(sum, sum),
                         scale_beside(sum, scale_beside(squares, squares))};
  for (std::int64_t i = 0; i < kMoments; ++i) {
    put<Real>(exact, row * kMoments + i, numbers[i]);
    put<Real>(scale, row * kMoments + i, scales[i]);
  }
}

template <class Real>
void compute(const ForwardCall& exact, const ForwardCall& scale) {
  const Rows<Real, ForwardCall> rows(exact);
  const auto all = rows.statistics();
  const auto x_hat = rows.normalised(all);
  const auto weight = rows.weights(exact.weight, 1), bias = rows.weights(exact.bias, 0);
  rows.for_each([&](std::int64_t i, std::int64_t, std::int64_t c) {
    put<Real>(exact.y, i, x_hat[i] * weight[c] + bias[c]);
    put<Real>(scale.y, i, magnitude(weight[c]) * (1 + magnitude(x_hat[i])) + magnitude(bias[c]));
  });
  const Real take = known<Real>(exact.momentum), keep = known<Real>(1 - exact.momentum);
  const auto n = static_cast<Real>(rows.size());
  const auto move = [&](const TensorView& running, const TensorView& to, const TensorView& of_scale,
                        std::int64_t row, Real current, Real magnitude_of) {
    if (!to.given()) return;
    const Real before = data<Real>(running)[row];
    put<Real>(to, row, rows.size() == 0 ? before : keep * before + take * current);
    put<Real>(of_scale, row, magnitude(keep * before) + magnitude(take) * magnitude_of);
  };
  for (std::int64_t row = 0; row < rows.count(); ++row) {
    const Real mean = all[row].mean + all[row].rest;
    put<Real>(exact.mean, row, mean);
    put<Real>(scale.mean, row, all[row].magnitudes);
    put<Real>(exact.rstd, row, all[row].rstd);
    put<Real>(scale.rstd, row, all[row].rstd);
    put_moments(exact.moments, scale.moments, row, all[row], n);
    const Real unbiased = all[row].variance * (n / (n - 1));
    move(exact.running_mean, exact.next_mean, scale.next_mean, row, mean, all[row].magnitudes);
    move(exact.running_var, exact.next_var, scale.next_var, row, unbiased,
         scale_beside(unbiased, unbiased));
  }
}

// What gradients are made of.
template <class Real>
struct Terms {
  explicit Terms(const BackwardCall& call)
      : rows(call),
        all(rows.statistics()),
        x_hat(rows.normalised(all)),
        weight(rows.weights(call.weight, 1)),
        g(x_hat.size()) {
    const Real* grad_y = data<Real>(call.grad_y);
    rows.for_each(
        [&](std::int64_t i, std::int64_t, std::int64_t c) { g[i] = grad_y[i] * weight[c]; });
    mean_g = rows.means([&](auto i, auto) { return g[i]; });
    mean_gx = rows.means([&](auto i, auto) { return g[i] * x_hat[i]; });
  }

  Rows<Real, BackwardCall> rows;
  std::vector<Statistics<Real>> all;
  std::vector<Real> x_hat, weight, g, mean_g, mean_gx;
};

template <class Real>
void compute(const BackwardCall& exact, const BackwardCall& scale) {
  const Terms<Real> terms(exact);
  const auto& [rows, all, x_hat, weight, g, mean_g, mean_gx] = terms;
  const Real* grad_y = data<Real>(exact.grad_y);
  const auto of_g = rows.means([&](auto i, auto) { return magnitude(terms.g[i]); });
  const auto of_gx =
      rows.means([&](auto i, auto) { return magnitude(terms.g[i] * terms.x_hat[i]); });
  // Sums of a batch that comes in parts go on where the parts before left them.
  rows.for_each([&](std::int64_t i, std::int64_t row, std::int64_t c) {
    const Real rstd = terms.all[row].rstd, xhat = terms.x_hat[i];
    const Real gradient = terms.g[i];
    put<Real>(exact.grad_x, i,
              exact.training ? rstd * (gradient - terms.mean_g[row] - xhat * terms.mean_gx[row])
                             : rstd * gradient);
    put<Real>(scale.grad_x, i,
              magnitude(rstd) *
                  (exact.training ? magnitude(gradient) + of_g[row] + magnitude(xhat) * of_gx[row]
                                  : magnitude(gradient)));
    add<Real>(exact.grad_weight, c, grad_y[i] * xhat);
    add<Real>(scale.grad_weight, c, magnitude(grad_y[i]) * (1 + magnitude(xhat)));
    add<Real>(exact.grad_bias, c, grad_y[i]);
    add<Real>(scale.grad_bias, c, magnitude(grad_y[i]));
  });
}

// Where running statistics were given, by their names.
template <class Call>
void emit_statistics(const Rows<double, Call>& rows, const std::vector<Statistics<double>>& all,
                     bool training, const EmitArray& emit) {
  std::vector<double> mean, variance, rstd;
  for (const auto& of : all) {
    mean.push_back(of.mean + of.rest);
    variance.push_back(of.variance);
    rstd.push_back(of.rstd);
  }
  emit(training ? "mean" : "running_mean", rows.count(), 1, mean);
  emit(training ? "variance" : "running_var", rows.count(), 1, variance);
  emit("rstd", rows.count(), 1, rstd);
}

// Values of all elements by the rows that have statistics.
template <class Call>
std::vector<double> by_rows(const Rows<double, Call>& rows, const std::vector<double>& values) {
  std::vector<double> result(values.size());
  std::vector<std::int64_t> so_far(rows.count());
  rows.for_each([&](std::int64_t i, std::int64_t row, std::int64_t) {
    result[row * rows.size() + so_far[row]++] = values[i];
  });
  return result;
}
// What running statistics make of x is not what x has a mean of 0 by.
std::string_view name_of(bool training) { return training ? "x_hat" : "x_scaled"; }

}  // namespace

void forward_reference(const ForwardCall& exact, const ForwardCall& scale) {
  exact.x.dtype == DType::f128 ? compute<quad>(exact, scale) : compute<double>(exact, scale);
}
void backward_reference(const BackwardCall& exact, const BackwardCall& scale) {
  exact.x.dtype == DType::f128 ? compute<quad>(exact, scale) : compute<double>(exact, scale);
}

void forward_intermediates(const ForwardCall& exact, const EmitArray& emit) {
  const Rows<double, ForwardCall> rows(exact);
  const auto all = rows.statistics();
  emit_statistics(rows, all, exact.training, emit);
  emit(name_of(exact.training), rows.count(), rows.size(), by_rows(rows, rows.normalised(all)));
}
void backward_intermediates(const BackwardCall& exact, const EmitArray& emit) {
  const Terms<double> terms(exact);
  emit_statistics(terms.rows, terms.all, exact.training, emit);
  const std::int64_t count = terms.rows.count(), size = terms.rows.size();
  emit(name_of(exact.training), count, size, by_rows(terms.rows, terms.x_hat));
  emit("g", count, size, by_rows(terms.rows, terms.g));
  emit("mean_g", terms.rows.count(), 1, terms.mean_g);
  emit("mean_g_x_hat", terms.rows.count(), 1, terms.mean_gx);
}

}  // namespace isobit::channel_norm
