// SPDX-License-Identifier: Apache-2.0
// Softmax as its definition has it, in double, or in long double where the elements are doubles.
#include "isobit/ops/softmax/reference.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

namespace isobit::softmax {
namespace {

template <class Element, class Real>
struct Reference {
  static Real at(const TensorView& view, std::int64_t row, std::int64_t col) {
    return static_cast<Real>(
        static_cast<const Element*>(view.data)[row * view.strides[0] + col * view.strides[1]]);
  }
  static void put(const TensorView& view, std::int64_t row, std::int64_t col, Real value) {
    if (view.given())
      static_cast<Element*>(view.data)[row * view.strides[0] + col * view.strides[1]] =
          static_cast<Element>(value);
  }
  static bool there(const TensorView& mask, std::int64_t row, std::int64_t col) {
    return !mask.given() || at(mask, row, col) != 0;
  }

  // What each element is divided into, as exponents below 0; where there is none, -infinity.
  static void forward(const ForwardArgs& exact, const ForwardArgs& scale, Real least) {
    constexpr Real kInfinity = std::numeric_limits<Real>::infinity();
    const std::int64_t cols = exact.x.shape[1];
    std::vector<Real> exponents(static_cast<std::size_t>(cols));
    for (std::int64_t row = 0; row < exact.x.shape[0]; ++row) {
      Real largest = -kInfinity;
      bool any = false;
      for (std::int64_t i = 0; i < cols; ++i) {
        const bool is_there = there(exact.mask, row, i);
        any = any || is_there;
        exponents[i] = is_there ? static_cast<Real>(exact.scale) * at(exact.x, row, i) : -kInfinity;
        if (!(exponents[i] <= largest)) largest = exponents[i];
      }
      Real sum = 0;
      for (Real& exponent : exponents) sum += std::exp(exponent -= any ? largest : 0);
      const Real log_of_sum = any ? std::log(sum) : 0;
      for (std::int64_t i = 0; i < cols; ++i) {
        const Real weight = std::exp(exponents[i]);
        const Real y = exact.log ? exponents[i] - log_of_sum : any ? weight / sum : 0;
        put(exact.y, row, i, there(exact.mask, row, i) || !exact.log ? y : -kInfinity);
        put(scale.y, row, i,
            exact.log ? 1 + log_of_sum + (std::isinf(exponents[i]) ? 0 : -exponents[i])
                      : std::max(y, least));
      }
    }
  }

  static void backward(const BackwardArgs& exact, const BackwardArgs& scale, Real least) {
    for (std::int64_t row = 0; row < exact.y.shape[0]; ++row) {
      Real sum = 0, magnitudes = 0;
      for (std::int64_t i = 0; i < exact.y.shape[1]; ++i) {
        if (!there(exact.mask, row, i)) continue;
        const Real term = at(exact.grad_y, row, i) * (exact.log ? 1 : at(exact.y, row, i));
        sum += term;
        magnitudes += std::fabs(term);
      }
      for (std::int64_t i = 0; i < exact.y.shape[1]; ++i) {
        const bool is_there = there(exact.mask, row, i);
        const Real y = at(exact.y, row, i), grad = at(exact.grad_y, row, i);
        const Real factor = static_cast<Real>(exact.scale);
        const Real p = exact.log ? std::exp(y) : y;
        const Real value = exact.log ? factor * (grad - p * sum) : factor * y * (grad - sum);
        put(exact.grad_x, row, i, is_there ? value : 0);
        const Real size = exact.log ? std::fabs(grad) + std::max(p, least) * magnitudes
                                    : std::fabs(y) * (std::fabs(grad) + magnitudes);
        put(scale.grad_x, row, i, is_there ? std::max(std::fabs(factor) * size, least) : least);
      }
    }
  }
};

// Calls visit(Reference, least) with the type of the arrays, what is computed in, and the smallest
// normal number of what variants compute in.
template <class Visit>
void in_wide_type(const TensorView& view, const Visit& visit) {
  if (view.dtype == DType::f128)
    visit(Reference<quad, long double>(), static_cast<long double>(0x1p-1022));
  else
    visit(Reference<double, double>(), 0x1p-126);
}

std::vector<double> as_written(const TensorView& view) {
  std::vector<double> values;
  for (std::int64_t row = 0; row < view.shape[0]; ++row)
    for (std::int64_t col = 0; col < view.shape[1]; ++col)
      values.push_back(Reference<double, double>::at(view, row, col));
  return values;
}

}  // namespace

void forward_reference(const ForwardArgs& exact, const ForwardArgs& scale, const Rounding&) {
  in_wide_type(exact.x,
               [&](auto reference, auto least) { reference.forward(exact, scale, least); });
}
void backward_reference(const BackwardArgs& exact, const BackwardArgs& scale, const Rounding&) {
  in_wide_type(exact.y,
               [&](auto reference, auto least) { reference.backward(exact, scale, least); });
}

// Nothing that is worth a look stands between the elements and the results.
void forward_intermediates(const ForwardArgs& exact, const Rounding& rounding,
                           const EmitArray& emit) {
  forward_reference(exact, {}, rounding);
  emit("y", exact.x.shape[0], exact.x.shape[1], as_written(exact.y));
}
void backward_intermediates(const BackwardArgs& exact, const Rounding& rounding,
                            const EmitArray& emit) {
  backward_reference(exact, {}, rounding);
  emit("grad_x", exact.y.shape[0], exact.y.shape[1], as_written(exact.grad_x));
}

}  // namespace isobit::softmax
