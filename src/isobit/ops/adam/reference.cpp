// SPDX-License-Identifier: Apache-2.0
// adam as its formulas say it, in double, or in quad where the elements are doubles.
#include "isobit/ops/adam/reference.h"

#include <algorithm>
#include <type_traits>

#include "isobit/norms/reference_rows.h"
#include "isobit/optimizers/reference.h"

namespace isobit::adam {
namespace {

using optimizers::reference::Element;
using optimizers::reference::magnitude;

// NaN where either is.
template <class Real>
Real larger(Real a, Real b) {
  return a != a || a > b ? a : b;
}

template <class Real>
void compute(const Args& exact, const Args& scale, const Rounding& rounding) {
  const Real beta1 = exact.beta1, beta2 = exact.beta2, eps = exact.eps, lr = exact.lr;
  Real power1 = 1, power2 = 1;
  for (std::int64_t i = 0; i < exact.step; ++i) {
    power1 *= beta1;
    power2 *= beta2;
  }
  const Real step_size = lr / (1 - power1), root = norms::reference::root(Real(1 - power2));
  const Real decay = exact.decoupled ? 1 - lr * Real(exact.weight_decay) : Real(1);
  const Real coupled = exact.decoupled ? Real(0) : Real(exact.weight_decay);
  const bool amsgrad = exact.max_exp_avg_sq.given();
  const Real unit = optimizers::reference::unit_of(rounding);
  const Real least = optimizers::reference::least_of(rounding);
  optimizers::reference::for_each_element<Real>(
      views_of(exact), views_of(scale),
      [&](const Element<Real>& given, Element<Real>& result, Element<Real>& scales) {
        const Real gradient = exact.maximize ? -given.grad : given.grad;
        // What a gradient makes of the states; returns by how much the parameter moves.
        const auto move = [&](Real g, Element<Real>& to) {
          to.state[0] = (1 - beta1) * g + beta1 * given.state[0];
          to.state[1] = (1 - beta2) * g * g + beta2 * given.state[1];
          to.state[2] = larger(given.state[2], to.state[1]);
          return to.state[0] / (norms::reference::root(to.state[amsgrad ? 2 : 1]) / root + eps);
        };
        const Real decayed = coupled == 0 ? Real(0) : Real(coupled * given.param);
        const Real g = gradient + decayed;
        const Real moved = move(g, result);
        result.param = decay * given.param - step_size * moved;

        // The gradient's own error is that of its sum, and moves the rest as it may.
        const Real size = magnitude(given.grad) + magnitude(decayed);
        const Real off = coupled == 0 ? Real(0) : Real(4 * unit * size);
        Element<Real> other;
        const Real swing = magnitude(Real(move(g + off, other) - move(g - off, other)));
        scales.state[0] =
            std::max((1 - beta1) * size + magnitude(Real(beta1 * given.state[0])), least);
        scales.state[1] =
            std::max((1 - beta2) * size * size + magnitude(Real(beta2 * given.state[1])), least);
        scales.state[2] = std::max(scales.state[1], magnitude(given.state[2]));
        // So does a second moment that was negative, and cancels what is added to it.
        const Real square = result.state[amsgrad ? 2 : 1];
        const Real lost = given.state[1] < 0 ? Real(4 * unit * scales.state[1]) : Real(0);
        const auto over = [&](Real moment) {
          return result.state[0] / (norms::reference::root(moment) / root + eps);
        };
        const Real swing_of_root =
            magnitude(Real(over(larger(Real(square - lost), Real(0))) - over(square + lost)));
        const Real steep = norms::reference::root(square) / root + eps;
        scales.param = std::max(magnitude(Real(decay * given.param)), least) +
                       step_size * (scales.state[0] / steep + magnitude(moved) +
                                    (swing + swing_of_root) / (4 * unit));
      });
}

}  // namespace

optimizers::Views views_of(const Args& args) {
  return {.param = args.param,
          .grad = args.grad,
          .state = {args.exp_avg, args.exp_avg_sq, args.max_exp_avg_sq},
          .new_param = args.new_param,
          .new_state = {args.new_exp_avg, args.new_exp_avg_sq, args.new_max_exp_avg_sq},
          .narrow = args.narrow};
}

void reference(const Args& exact, const Args& scale, const Rounding& rounding) {
  if (exact.param.dtype == DType::f128)
    compute<quad>(exact, scale, rounding);
  else
    compute<double>(exact, scale, rounding);
}

// Nothing stands between the arrays and the results.
void intermediates(const Args& exact, const Rounding& rounding, const EmitArray& emit) {
  reference(exact, {}, rounding);
  optimizers::reference::emit(views_of(exact),
                              {"new_exp_avg", "new_exp_avg_sq", "new_max_exp_avg_sq"}, emit);
}

}  // namespace isobit::adam
