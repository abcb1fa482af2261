// SPDX-License-Identifier: Apache-2.0
// What the functions are compared with: the C library's in wider types, put together so that
// nothing cancels.
#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>

#include "functions/calls.h"
#include "isobit/ops/activation/reference_functions.h"

namespace isobit::function_calls {
namespace {

using namespace activation::exact;

// The unit of the last place of a number of `digits` bits and the least exponent `least`.
template <class Real>
Real unit(Real size, int digits, int least) {
  const int exponent = size == 0 ? least : std::ilogb(size);
  // The exponent of what is nearly zero leaves no room to subtract from.
  return std::ldexp(Real(1), std::max(std::max(exponent, least) - digits + 1, least));
}

template <class Real, class Wide>
double error(Real y, Wide truth, Wide scale, bool is_sum) {
  using Limits = std::numeric_limits<Real>;
  constexpr double kWrong = std::numeric_limits<double>::infinity();
  if (std::isnan(truth) || std::isnan(y)) return std::isnan(truth) == std::isnan(y) ? 0 : kWrong;
  const int least = Limits::min_exponent - Limits::digits;
  const Wide most = Limits::max();
  const Wide beyond = most + unit(most, Limits::digits, least) / 2;
  if (std::isinf(y) || std::fabs(truth) >= beyond)
    return std::isinf(y) && std::fabs(truth) >= beyond && std::signbit(y) == std::signbit(truth)
               ? 0
               : kWrong;
  // Of a sum that is zero, the sign says nothing.
  if (y == 0 && !is_sum && std::signbit(y) != std::signbit(truth)) return kWrong;
  return static_cast<double>(std::fabs(static_cast<Wide>(y) - truth) /
                             unit(std::fabs(scale), Limits::digits, least));
}

#define ISOBIT_TRUTH(f) f<double>, f<long double>
template <class Real>
Real exp(Real x) {
  return std::exp(x);
}
template <class Real>
Real exp2(Real x) {
  return std::exp2(x);
}
template <class Real>
Real log(Real x) {
  return std::log(x);
}
template <class Real>
Real log2(Real x) {
  return std::log2(x);
}
template <class Real>
Real tanh(Real x) {
  return std::tanh(x);
}
template <class Real>
Real erf(Real x) {
  return std::erf(x);
}
template <class Real>
Real erfc(Real x) {
  return std::erfc(x);
}
template <class Real>
Real sin(Real x) {
  return std::sin(x);
}
template <class Real>
Real cos(Real x) {
  return std::cos(x);
}

constexpr Function kAll[] = {
    {"exp", ISOBIT_TRUTH(exp), nullptr, 1.5, 2},
    {"exp2", ISOBIT_TRUTH(exp2), nullptr, 1, 2},
    {"log", ISOBIT_TRUTH(log), nullptr, 4, 2},
    {"log2", ISOBIT_TRUTH(log2), nullptr, 4, 2},
    {"sigmoid", ISOBIT_TRUTH(sigmoid), nullptr, 4, 2},
    {"tanh", ISOBIT_TRUTH(tanh), nullptr, 4, 2},
    {"erf", ISOBIT_TRUTH(erf), nullptr, 4, 2},
    {"erfc", ISOBIT_TRUTH(erfc), nullptr, 4, 2},
    {"gelu", ISOBIT_TRUTH(gelu), nullptr, 4, 2},
    {"gelu_tanh", ISOBIT_TRUTH(gelu_tanh), nullptr, 4, 2},
    {"silu", ISOBIT_TRUTH(silu), nullptr, 4, 2},
    {"sigmoid_derivative", ISOBIT_TRUTH(sigmoid_derivative), nullptr, 5, 5},
    {"tanh_derivative", ISOBIT_TRUTH(tanh_derivative), nullptr, 5, 5},
    {"gelu_derivative", ISOBIT_TRUTH(gelu_derivative), gelu_derivative_scale<double>, 5, 5},
    {"gelu_tanh_derivative", ISOBIT_TRUTH(gelu_tanh_derivative), gelu_tanh_derivative_scale<double>,
     5, 5},
    {"silu_derivative", ISOBIT_TRUTH(silu_derivative), silu_derivative_scale<double>, 5, 5},
    {"sin", ISOBIT_TRUTH(sin), nullptr, 0, 1},
    {"cos", ISOBIT_TRUTH(cos), nullptr, 0, 1},
};

}  // namespace

const std::span<const Function> kFunctions = kAll;

double error_of(const Function& function, float x, float y) {
  const double truth = function.truth(x);
  return function.scale == nullptr ? error(y, truth, truth, false)
                                   : error(y, truth, function.scale(x), true);
}
double error_of(const Function& function, double x, double y) {
  const long double truth = function.fine(x);
  return function.scale == nullptr
             ? error(y, truth, truth, false)
             : error(y, truth, static_cast<long double>(function.scale(x)), true);
}

}  // namespace isobit::function_calls
