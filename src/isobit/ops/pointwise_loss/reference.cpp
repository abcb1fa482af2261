// SPDX-License-Identifier: Apache-2.0
// The losses as their definitions say them, in double, or in long double where the elements are
// doubles.
#include "isobit/ops/pointwise_loss/reference.h"

#include <cmath>
#include <vector>

#include "isobit/core/quad.h"

namespace isobit::pointwise_loss {
namespace {

// A loss, its slope, and the sums of the magnitudes of their terms.
template <class Real>
struct Values {
  Real loss = 0, loss_scale = 0, slope = 0, slope_scale = 0;

  Values(Kind kind, Real beta, Real x, Real target, Real pos_weight) {
    const Real d = x - target, far = std::fabs(d);
    const Real sign = d > 0 ? 1 : d < 0 ? -1 : d;
    switch (kind) {
      case Kind::mse:
        loss = d * d;
        slope = 2 * d;
        break;
      case Kind::l1:
        loss = far;
        slope = sign;
        break;
      case Kind::smooth_l1:
        loss = far < beta ? d * d / (2 * beta) : far - beta / 2;
        slope = far < beta ? d / beta : sign;
        break;
      case Kind::huber:
        loss = far < beta ? d * d / 2 : beta * (far - beta / 2);
        slope = far < beta ? d : beta * sign;
        break;
      case Kind::bce_with_logits: entropy(x, target, pos_weight); return;
    }
    loss_scale = std::fabs(loss);
    if (!(far < beta) && kind == Kind::smooth_l1) loss_scale = far + beta / 2;
    if (!(far < beta) && kind == Kind::huber) loss_scale = beta * (far + beta / 2);
    slope_scale = std::fabs(slope);
  }

 private:
  void entropy(Real x, Real target, Real pos_weight) {
    const Real share = 1 + (pos_weight - 1) * target;
    const Real share_scale = 1 + (std::fabs(pos_weight) + 1) * std::fabs(target);
    const Real decay = std::exp(-std::fabs(x)),
               straight = x < 0 ? -pos_weight * target : 1 - target;
    const Real bent = std::log1p(decay), small = decay / (1 + decay);
    loss = straight * x + share * bent;
    loss_scale = std::fabs(straight * x) + share_scale * bent;
    slope = straight + (x < 0 ? share : -share) * small;
    slope_scale = std::fabs(straight) + share_scale * small;
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

template <class Element>
Element& at(const TensorView& view, std::int64_t row, std::int64_t col) {
  return static_cast<Element*>(view.data)[row * view.strides[0] + col];
}

// Calls body(row, col, values, weight) for every element.
template <class Element, class Real, class Args, class Body>
void for_each_element(const Args& exact, const Body& body) {
  const auto number = [](const TensorView& view, std::int64_t row, std::int64_t col) {
    return view.given() ? static_cast<Real>(at<Element>(view, row, col)) : Real(1);
  };
  // Beside f32 and 16 bits beta is a float.
  const Real beta = std::is_same_v<Real, double> ? static_cast<Real>(static_cast<float>(exact.beta))
                                                 : static_cast<Real>(exact.beta);
  for (std::int64_t row = 0; row < exact.x.shape[0]; ++row)
    for (std::int64_t col = 0; col < exact.x.shape[1]; ++col) {
      const Values<Real> values(exact.function, beta, number(exact.x, row, col),
                                number(exact.target, row, col), number(exact.pos_weight, row, col));
      body(row, col, values, number(exact.weight, row, col));
    }
}

template <class Args>
std::vector<double> written(const Args& args, const TensorView& view) {
  std::vector<double> values;
  for (std::int64_t row = 0; row < args.x.shape[0]; ++row)
    for (std::int64_t col = 0; col < args.x.shape[1]; ++col)
      values.push_back(at<double>(view, row, col));
  return values;
}

}  // namespace

void forward_reference(const ForwardArgs& exact, const ForwardArgs& scale, const Rounding&) {
  in_wide_type(exact.x, [&]<class Element, class Real>(Element, Real) {
    for_each_element<Element, Real>(
        exact, [&](std::int64_t row, std::int64_t col, const Values<Real>& values, Real weight) {
          at<Element>(exact.loss, row, col) = static_cast<Element>(weight * values.loss);
          if (scale.loss.given())
            at<Element>(scale.loss, row, col) =
                static_cast<Element>(std::fabs(weight) * values.loss_scale);
        });
  });
}

void backward_reference(const BackwardArgs& exact, const BackwardArgs& scale, const Rounding&) {
  in_wide_type(exact.x, [&]<class Element, class Real>(Element, Real) {
    for_each_element<Element, Real>(
        exact, [&](std::int64_t row, std::int64_t col, const Values<Real>& values, Real weight) {
          const Real factor = weight * static_cast<Real>(at<Element>(exact.grad_loss, row, col));
          at<Element>(exact.grad_x, row, col) = static_cast<Element>(factor * values.slope);
          if (scale.grad_x.given())
            at<Element>(scale.grad_x, row, col) =
                static_cast<Element>(std::fabs(factor) * values.slope_scale);
        });
  });
}

// Nothing stands between an element and its loss.
void forward_intermediates(const ForwardArgs& exact, const Rounding& rounding,
                           const EmitArray& emit) {
  forward_reference(exact, {}, rounding);
  emit("loss", exact.x.shape[0], exact.x.shape[1], written(exact, exact.loss));
}
void backward_intermediates(const BackwardArgs& exact, const Rounding& rounding,
                            const EmitArray& emit) {
  backward_reference(exact, {}, rounding);
  emit("grad_x", exact.x.shape[0], exact.x.shape[1], written(exact, exact.grad_x));
}

}  // namespace isobit::pointwise_loss
