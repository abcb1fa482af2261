// SPDX-License-Identifier: Apache-2.0
// sgd as its formulas say it, in double, or in quad where the elements are doubles.
#include "isobit/ops/sgd/reference.h"

#include <algorithm>
#include <type_traits>

#include "isobit/norms/reference_rows.h"
#include "isobit/optimizers/reference.h"

namespace isobit::sgd {
namespace {

using optimizers::reference::Element;
using optimizers::reference::magnitude;

template <class Real>
void compute(const Args& exact, const Args& scale, const Rounding& rounding) {
  const Real momentum = exact.momentum, rest = 1 - Real(exact.dampening), lr = exact.lr;
  const Real coupled = exact.weight_decay;
  const bool first = !exact.momentum_buffer.given();
  const Real least = optimizers::reference::least_of(rounding);
  optimizers::reference::for_each_element<Real>(
      views_of(exact), views_of(scale),
      [&](const Element<Real>& given, Element<Real>& result, Element<Real>& scales) {
        const Real decayed = coupled == 0 ? Real(0) : Real(coupled * given.param);
        Real way = (exact.maximize ? -given.grad : given.grad) + decayed;
        Real size = magnitude(given.grad) + magnitude(decayed);
        if (exact.momentum != 0) {
          const Real buffer = first ? way : rest * way + momentum * given.state[0];
          const Real of_buffer =
              first ? size : magnitude(rest) * size + momentum * magnitude(given.state[0]);
          way = exact.nesterov ? way + momentum * buffer : buffer;
          size = exact.nesterov ? size + momentum * of_buffer : of_buffer;
          result.state[0] = buffer;
          scales.state[0] = std::max(of_buffer, least);
        }
        result.param = given.param - lr * way;
        scales.param = magnitude(given.param) + lr * std::max(size, least);
      });
}

}  // namespace

optimizers::Views views_of(const Args& args) {
  return {.param = args.param,
          .grad = args.grad,
          .state = {args.momentum_buffer},
          .new_param = args.new_param,
          .new_state = {args.new_momentum_buffer},
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
  optimizers::reference::emit(views_of(exact), {"new_momentum_buffer", "", ""}, emit);
}

}  // namespace isobit::sgd
