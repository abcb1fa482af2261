// SPDX-License-Identifier: Apache-2.0
// One element after the other: in double, in quad, or modulo 2^64.
#include "isobit/ops/scan/reference.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>
#include <vector>

#include "isobit/core/magnitude.h"

namespace isobit::scan {
namespace {

// The results of one segment, element by element, and the scales of their errors.
template <class Real>
class Running {
 public:
  Running(Kind kind, DType y) : kind_(kind), y_(y) {
    if (kind == Kind::prod) value_ = 1;
    if (kind == Kind::max) value_ = -limit();
    if (kind == Kind::min) value_ = limit();
    if (kind == Kind::logsumexp) value_ = -kInfinity;
    whole_ = kind == Kind::prod ? 1 : 0;
  }

  void take(Real x, std::int64_t index) {
    if (x != x) nan_ = true;
    magnitudes_ += magnitude(x);
    switch (kind_) {
      case Kind::sum:       return is_floating(y_) ? void(value_ += x) : void(whole_ += word(x));
      case Kind::prod:      return is_floating(y_) ? multiply(x) : void(whole_ *= word(x));
      case Kind::logsumexp: return add_power(x);
      default:              break;
    }
    const bool reaches = kind_ == Kind::max ? x >= value_ : x <= value_;
    if (x != x || (value_ == value_ && reaches)) {
      value_ = x;
      index_ = index;
    }
  }

  Real value() const {
    if (nan_) return static_cast<Real>(std::numeric_limits<double>::quiet_NaN());
    if (kind_ == Kind::prod && is_floating(y_)) return scaled(value_, exponent_);
    if (kind_ == Kind::logsumexp && powers_ > 0)
      return value_ + static_cast<Real>(std::log(static_cast<Wide>(powers_)));
    if (is_floating(y_) || kind_ == Kind::max || kind_ == Kind::min) return value_;
    if (y_ == DType::i32) return static_cast<Real>(static_cast<std::int32_t>(whole_));
    return static_cast<Real>(static_cast<std::int64_t>(whole_));
  }
  Real scale() const {
    if (kind_ == Kind::sum) return magnitudes_;
    return magnitude(value()) + (kind_ == Kind::logsumexp ? 1 : 0);
  }
  Real index() const { return static_cast<Real>(index_); }

 private:
  using Wide = std::conditional_t<std::is_same_v<Real, double>, double, long double>;
  static constexpr Real kInfinity = static_cast<Real>(std::numeric_limits<double>::infinity());

  Real limit() const {
    if (is_floating(y_)) return kInfinity;
    const std::int64_t largest = y_ == DType::i32 ? std::numeric_limits<std::int32_t>::max()
                                                  : std::numeric_limits<std::int64_t>::max();
    // The smallest is 1 less than the negative largest.
    return static_cast<Real>(largest) + (kind_ == Kind::max ? 1 : 0);
  }
  static std::uint64_t word(Real x) { return static_cast<std::uint64_t>(static_cast<__int128>(x)); }

  static bool finite(Real x) { return x - x == 0; }
  static Real power(int exponent) { return static_cast<Real>(std::ldexp(1.0L, exponent)); }

  // The exponent stands apart: products of many leave every range.
  void multiply(Real x) {
    for (Real* part : {&x, &value_}) {
      if (!finite(*part) || *part == 0) continue;
      int exponent = 0;
      std::frexp(static_cast<long double>(*part), &exponent);
      *part = *part * power(-exponent / 2) * power(-exponent + exponent / 2);
      exponent_ += exponent;
    }
    value_ *= x;
  }
  static Real scaled(Real value, std::int64_t exponent) {
    const auto e = static_cast<int>(std::clamp<std::int64_t>(exponent, -5000, 5000));
    if (!finite(value) || value == 0) return value;
    if constexpr (std::is_same_v<Real, double>)
      return std::ldexp(value, e);
    else
      return value * power(e);
  }

  void add_power(Real x) {
    const Real most = std::max(value_, x);
    if (most != most) return;
    if (!finite(most)) {
      powers_ = most > 0 ? 1 : 0;
    } else {
      const auto power_of = [&](Real z) {
        return static_cast<Real>(std::exp(static_cast<Wide>(z - most)));
      };
      powers_ = powers_ * (powers_ > 0 ? power_of(value_) : 0) + power_of(x);
    }
    value_ = most;
  }

  Kind kind_;
  DType y_;
  Real value_ = 0, magnitudes_ = 0, powers_ = 0;
  std::int64_t exponent_ = 0, index_ = -1;
  std::uint64_t whole_ = 0;
  bool nan_ = false;
};

template <class Real>
void compute(const Args& exact, const Args& scale, DType y_dtype) {
  const auto* x = static_cast<const Real*>(exact.x.data);
  const auto* reset = static_cast<const Real*>(exact.reset.given() ? exact.reset.data : nullptr);
  const auto* init = static_cast<const Real*>(exact.init.given() ? exact.init.data : nullptr);
  const std::int64_t length = exact.x.shape[1], inner = exact.x.shape[2];
  const auto put = [](const TensorView& view, std::int64_t at, Real value) {
    if (view.given()) static_cast<Real*>(view.data)[at] = value;
  };
  const auto segment = [&](std::int64_t row, std::int64_t first, std::int64_t begin,
                           std::int64_t end) {
    Running<Real> running(exact.kind, y_dtype);
    if (init != nullptr) running.take(init[row], -1);
    for (std::int64_t turn = begin; turn < end; ++turn) {
      const std::int64_t i = exact.reverse ? begin + end - 1 - turn : turn;
      const std::int64_t at = first + i * inner;
      if (!exact.exclusive) running.take(x[at], i);
      put(exact.y, at, running.value());
      put(scale.y, at, running.scale());
      put(exact.index, at, running.index());
      put(scale.index, at, 0);
      if (exact.exclusive) running.take(x[at], i);
    }
  };
  for (std::int64_t row = 0; row < exact.x.shape[0] * inner; ++row) {
    const std::int64_t first = row / inner * length * inner + row % inner;
    std::int64_t begin = 0;
    for (std::int64_t i = 1; i <= length; ++i)
      if (i == length || (reset != nullptr && reset[first + i * inner] != 0)) {
        segment(row, first, begin, i);
        begin = i;
      }
  }
}

}  // namespace

void reference(const Args& exact, const Args& scale, const Rounding& rounding) {
  if (exact.x.dtype == DType::f128)
    compute<quad>(exact, scale, rounding.y_dtype);
  else
    compute<double>(exact, scale, rounding.y_dtype);
}

// Nothing stands between x and y.
void intermediates(const Args& exact, const Rounding& rounding, const EmitArray& emit) {
  const std::int64_t rows = exact.x.shape[0] * exact.x.shape[1], cols = exact.x.shape[2];
  std::vector<double> values(static_cast<std::size_t>(rows * cols));
  Args args = exact;
  args.y.data = values.data();
  args.index = {};
  compute<double>(args, {}, rounding.y_dtype);
  emit("y", rows, cols, values);
}

}  // namespace isobit::scan
