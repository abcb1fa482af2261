// SPDX-License-Identifier: Apache-2.0
// What references of products are made of: activations and their slopes by the C library, and
// numbers that are rounded to 16 bits between two steps.
#pragma once

#include <cfloat>
#include <cstdint>
#include <limits>
#include <type_traits>
#include <vector>

#include "isobit/core/case.h"
#include "isobit/core/magnitude.h"
#include "isobit/core/odd.h"
#include "isobit/core/tensor_view.h"
#include "isobit/ops/activation/reference_functions.h"
#include "isobit/ops/matmul/matmul.h"

namespace isobit::matmul::reference {

template <class Real>
Real activated(Activation activation, Real x) {
  using Wide = std::conditional_t<std::is_same_v<Real, quad>, long double, double>;
  const auto wide = static_cast<Wide>(x);
  switch (activation) {
    case Activation::relu:      return x < 0 ? 0 : x;
    case Activation::gelu:      return static_cast<Real>(activation::exact::gelu(wide));
    case Activation::gelu_tanh: return static_cast<Real>(activation::exact::gelu_tanh(wide));
    case Activation::silu:      return static_cast<Real>(activation::exact::silu(wide));
    default:                    return x;
  }
}

// Half the smallest number for each term, in units of what scales are multiplied by.
template <class Real>
constexpr Real kLeastNormal = std::is_same_v<Real, quad> ? Real(0x1p-1022) : Real(0x1p-126);

template <class Real>
constexpr double kUnit = std::is_same_v<Real, quad> ? 0x1p-53 : 0x1p-24;

// A term's part of the scale, less what every term has. Of arithmetic tensor a subnormal factor may
// count as 0, so that all of the term may be missing.
template <class Real>
Real term_of(Arithmetic arithmetic, Real a, Real b, Real size) {
  const auto is_subnormal = [](Real x) { return x != 0 && magnitude(x) < kLeastNormal<Real>; };
  const bool lost =
      arithmetic == Arithmetic::tensor && size != 0 && (is_subnormal(a) || is_subnormal(b));
  return lost ? size / Real(kUnit<Real>) : size;
}
// What every term has: of arithmetic tensor, a sum that is subnormal may count as 0.
template <class Real>
Real least_of(Arithmetic arithmetic) {
  return arithmetic == Arithmetic::tensor ? kLeastNormal<Real> / Real(kUnit<Real>)
                                          : kLeastNormal<Real>;
}

// The scale of alpha times a sum, which may have left the range before.
template <class Real>
Real scale_of(Real alpha, Real terms) {
  constexpr double kLargest = std::is_same_v<Real, quad> ? DBL_MAX : double{FLT_MAX};
  const auto infinity = static_cast<Real>(std::numeric_limits<double>::infinity());
  return terms > Real(kLargest) ? infinity : magnitude(alpha) * terms;
}

// activation'(x), and the sum of the magnitudes of its terms.
template <class Real>
struct Slope {
  Real value = 1, scale = 1;

  Slope(Activation activation, Real x) {
    using Wide = std::conditional_t<std::is_same_v<Real, quad>, long double, double>;
    const auto wide = static_cast<Wide>(x);
    const auto set = [this](Wide of, Wide terms) {
      value = static_cast<Real>(of);
      scale = static_cast<Real>(terms);
    };
    switch (activation) {
      case Activation::relu: value = scale = x <= 0 ? 0 : 1; break;
      case Activation::gelu:
        set(activation::exact::gelu_derivative(wide),
            activation::exact::gelu_derivative_scale(wide));
        break;
      case Activation::gelu_tanh:
        set(activation::exact::gelu_tanh_derivative(wide),
            activation::exact::gelu_tanh_derivative_scale(wide));
        break;
      case Activation::silu:
        set(activation::exact::silu_derivative(wide),
            activation::exact::silu_derivative_scale(wide));
        break;
      default: break;
    }
  }
};

inline double nearest(double value, DType dtype) {
  switch (dtype) {
    case DType::f16:  return to_float(from_float<f16>(round_to_odd(value)));
    case DType::bf16: return to_float(from_float<bf16>(round_to_odd(value)));
    default:          return value;
  }
}

// What an error of so many roundings can make of a number that is rounded once more: a step of 16
// bits, in units, where it decides; 0 elsewhere.
template <class Real, class Round>
Real step_near(Real number, Real roundings, const Round& round) {
  const Real off = roundings * Real(kUnit<Real>);
  const Real step = magnitude(round(number + off) - round(number - off));
  return step > 2 * off ? step / Real(kUnit<Real>) : Real(0);
}

// A matrix in the type of the reference.
template <class Real>
struct Values {
  std::int64_t rows, cols;
  std::vector<Real> data;

  Values(std::int64_t rows, std::int64_t cols)
      : rows(rows), cols(cols), data(static_cast<std::size_t>(rows * cols)) {}
  Real* row(std::int64_t i) { return data.data() + i * cols; }
  const Real* row(std::int64_t i) const { return data.data() + i * cols; }
  TensorView view() {
    constexpr DType kDType = std::is_same_v<Real, double> ? DType::f64 : DType::f128;
    return matrix_view(data.data(), 0, kDType, rows, cols, cols);
  }
};

// What an array of that type would hold of numbers with an error of so many of their scale's units,
// and the scale of that.
template <class Real>
void store(std::vector<Real>& values, std::vector<Real>& scales, DType dtype, Real roundings) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    const auto round = [&](Real number) {
      if constexpr (std::is_same_v<Real, double>)
        return nearest(number, dtype);
      else
        return number;
    };
    const Real step = step_near(values[i], roundings * scales[i], round);
    values[i] = round(values[i]);
    scales[i] += kLeastNormal<Real> + step;
  }
}

// s, rounded to 16 bits where it is: to the type of y, and as a factor to that of a and b. Scales
// have what an error of a few roundings can make of that: a step of 16 bits.
template <class Real>
struct Bent {
  std::vector<Real> value, scale, factor, factor_scale;

  Bent(const Real* grad, const Real* pre, std::int64_t count, Activation activation,
       const Rounding& types) {
    for (std::int64_t i = 0; i < count; ++i) {
      if (activation == Activation::none) {
        add(grad[i], magnitude(grad[i]), Real(0), types);
      } else {
        const Slope<Real> slope(activation, pre[i]);
        const Real terms = slope.scale == 0 ? Real(0) : slope.scale * magnitude(grad[i]);
        add(slope.scale == 0 ? Real(0) : slope.value * grad[i], terms,
            activation == Activation::relu ? Real(0) : 8 * terms, types);
      }
    }
  }

 private:
  void add(Real s, Real terms, Real roundings, const Rounding& types) {
    const auto into = [&](DType last, std::vector<Real>& values, std::vector<Real>& scales) {
      const auto round = [&](Real number) {
        if constexpr (std::is_same_v<Real, double>)
          return nearest(nearest(number, types.y_dtype), last);
        else
          return number;
      };
      values.push_back(round(s));
      scales.push_back(terms + kLeastNormal<Real> + step_near(s, roundings, round));
    };
    into(types.y_dtype, value, scale);
    into(types.dtype, factor, factor_scale);
  }
};

}  // namespace isobit::matmul::reference
