// SPDX-License-Identifier: Apache-2.0
// The functions by the C library's, in double, or in long double where the elements are doubles.
#include "isobit/ops/activation/reference.h"

#include <cmath>
#include <string_view>
#include <vector>

#include "isobit/ops/activation/reference_functions.h"

namespace isobit::activation {
namespace {

template <class Element>
Element at(const TensorView& view, std::int64_t row, std::int64_t col) {
  return static_cast<const Element*>(view.data)[row * view.strides[0] + col];
}

template <class Element, class Real>
void write(const TensorView& view, std::int64_t row, std::int64_t col, Real value) {
  if (view.given())
    static_cast<Element*>(view.data)[row * view.strides[0] + col] = static_cast<Element>(value);
}

// A function, its derivative, and the sum of the magnitudes of the derivative's terms.
template <class Real>
struct Values {
  Real value = 0, derivative = 0, scale = 0;
  Real tiny = 0;  // of the sign of what is too small to be a number; 0 where nothing is

  Values(Function function, Real x) {
    const bool odd =
        function == Function::gelu || function == Function::gelu_tanh || function == Function::silu;
    if (function != Function::log && x != 0) tiny = odd && x < 0 ? -1 : 1;
    switch (function) {
      case Function::exp: value = derivative = std::exp(x); break;
      case Function::log:
        value = std::log(x);
        derivative = x < 0 ? value : 1 / x;
        break;
      case Function::sigmoid:
        value = exact::sigmoid(x);
        derivative = exact::sigmoid_derivative(x);
        break;
      case Function::tanh:
        value = std::tanh(x);
        derivative = exact::tanh_derivative(x);
        break;
      case Function::gelu:
        value = exact::gelu(x);
        derivative = exact::gelu_derivative(x);
        break;
      case Function::gelu_tanh:
        value = exact::gelu_tanh(x);
        derivative = exact::gelu_tanh_derivative(x);
        break;
      case Function::silu:
        value = exact::silu(x);
        derivative = exact::silu_derivative(x);
        break;
    }
    scale = std::fabs(derivative);
    if (function == Function::gelu) scale = exact::gelu_derivative_scale(x);
    if (function == Function::gelu_tanh) scale = exact::gelu_tanh_derivative_scale(x);
    if (function == Function::silu) scale = exact::silu_derivative_scale(x);
  }

  // What is too small to be a number is not zero: infinity times it is infinity.
  Real product(Real factor, Real of) const {
    return of == 0 && tiny != 0 && std::isinf(factor) ? factor * tiny : factor * of;
  }
};

// Calls visit(Element(), Real()) with the type of the arrays and the one that is computed in.
template <class Visit>
void in_wide_type(const TensorView& x, const Visit& visit) {
  if (x.dtype == DType::f128)
    visit(quad(), static_cast<long double>(0));
  else
    visit(double(), double());
}

template <class Visit>
void for_each_element(const TensorView& x, const Visit& visit) {
  for (std::int64_t row = 0; row < x.shape[0]; ++row)
    for (std::int64_t col = 0; col < x.shape[1]; ++col) visit(row, col);
}

template <class Args>
std::vector<double> as_written(const Args& args, const TensorView& view) {
  std::vector<double> values;
  for_each_element(args.x, [&](std::int64_t row, std::int64_t col) {
    values.push_back(at<double>(view, row, col));
  });
  return values;
}

}  // namespace

void forward_reference(const ForwardArgs& exact, const ForwardArgs& scale, const Rounding&) {
  in_wide_type(exact.x, [&]<class Element, class Real>(Element, Real) {
    for_each_element(exact.x, [&](std::int64_t row, std::int64_t col) {
      const Real x = static_cast<Real>(at<Element>(exact.x, row, col));
      const auto gated = [&](Real gate) {
        const Values<Real> f(exact.function, gate);
        return f.product(x, f.value);
      };
      const Real y = exact.gate.given()
                         ? gated(static_cast<Real>(at<Element>(exact.gate, row, col)))
                         : Values<Real>(exact.function, x).value;
      write<Element>(exact.y, row, col, y);
      write<Element>(scale.y, row, col, std::fabs(y));
    });
  });
}

void backward_reference(const BackwardArgs& exact, const BackwardArgs& scale, const Rounding&) {
  in_wide_type(exact.x, [&]<class Element, class Real>(Element, Real) {
    for_each_element(exact.x, [&](std::int64_t row, std::int64_t col) {
      const Real x = static_cast<Real>(at<Element>(exact.x, row, col));
      const Real grad = static_cast<Real>(at<Element>(exact.grad_y, row, col));
      const bool gated = exact.gate.given();
      const Values<Real> f(exact.function,
                           gated ? static_cast<Real>(at<Element>(exact.gate, row, col)) : x);
      const Real grad_x = f.product(grad, gated ? f.value : f.derivative);
      write<Element>(exact.grad_x, row, col, grad_x);
      write<Element>(scale.grad_x, row, col,
                     std::fabs(grad) * (gated ? std::fabs(f.value) : f.scale));
      write<Element>(exact.grad_gate, row, col, grad * x * f.derivative);
      write<Element>(scale.grad_gate, row, col, std::fabs(grad * x) * f.scale);
    });
  });
}

// Nothing stands between the elements and the results.
void forward_intermediates(const ForwardArgs& exact, const Rounding& rounding,
                           const EmitArray& emit) {
  forward_reference(exact, {}, rounding);
  emit("y", exact.x.shape[0], exact.x.shape[1], as_written(exact, exact.y));
}
void backward_intermediates(const BackwardArgs& exact, const Rounding& rounding,
                            const EmitArray& emit) {
  backward_reference(exact, {}, rounding);
  emit("grad_x", exact.x.shape[0], exact.x.shape[1], as_written(exact, exact.grad_x));
  if (exact.grad_gate.given())
    emit("grad_gate", exact.x.shape[0], exact.x.shape[1], as_written(exact, exact.grad_gate));
}

}  // namespace isobit::activation
