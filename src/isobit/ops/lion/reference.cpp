// SPDX-License-Identifier: Apache-2.0
// lion as its formulas say it, in double, or in quad where the elements are doubles.
#include "isobit/ops/lion/reference.h"

#include <algorithm>
#include <type_traits>

#include "isobit/norms/reference_rows.h"
#include "isobit/optimizers/reference.h"

namespace isobit::lion {
namespace {

using optimizers::reference::Element;
using optimizers::reference::magnitude;

template <class Real>
void compute(const Args& exact, const Args& scale, const Rounding& rounding) {
  const Real beta1 = exact.beta1, beta2 = exact.beta2, lr = exact.lr;
  const Real decay = 1 - lr * Real(exact.weight_decay);
  const Real unit = optimizers::reference::unit_of(rounding);
  const Real least = optimizers::reference::least_of(rounding);
  optimizers::reference::for_each_element<Real>(
      views_of(exact), views_of(scale),
      [&](const Element<Real>& given, Element<Real>& result, Element<Real>& scales) {
        const Real g = exact.maximize ? -given.grad : given.grad;
        const auto terms = [&](Real beta) {
          return std::max(magnitude(Real((1 - beta) * g)) + magnitude(Real(beta * given.state[0])),
                          least);
        };
        const Real way = (1 - beta1) * g + beta1 * given.state[0];
        result.param = decay * given.param - (way > 0 ? lr : way < 0 ? -lr : lr * way);
        result.state[0] = (1 - beta2) * g + beta2 * given.state[0];
        scales.state[0] = terms(beta2);
        // So near 0 the sign may be another.
        const bool either = magnitude(way) <= 4 * unit * terms(beta1);
        scales.param = std::max(magnitude(Real(decay * given.param)), least) + lr +
                       (either ? lr / unit : Real(0));
      });
}

}  // namespace

optimizers::Views views_of(const Args& args) {
  return {.param = args.param,
          .grad = args.grad,
          .state = {args.exp_avg},
          .new_param = args.new_param,
          .new_state = {args.new_exp_avg},
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
  optimizers::reference::emit(views_of(exact), {"new_exp_avg", "", ""}, emit);
}

}  // namespace isobit::lion
