// SPDX-License-Identifier: Apache-2.0
// What the variants of a norm are measured against: the formulas themselves, in a wider type.
#pragma once

#include <cstdint>

#include "isobit/core/case.h"
#include "isobit/core/tensor_view.h"

namespace isobit::norms {

// Of one norm: reference_rows.h, instantiated in ops/NAME/reference.cpp. `Norm` is the type of
// ops/NAME/norm.h.
template <class Norm>
struct Reference {
  using ForwardArgs = typename Norm::ForwardArgs;
  using BackwardArgs = typename Norm::BackwardArgs;

  // All views are f64, or f128 for a problem in f64; matrices have rank 2. Row outputs of `exact`
  // are written and column outputs added to, so that rows can be fed in chunks. The same outputs of
  // `scale` receive what an error in that element is measured by (docs/numerics.md); its inputs are
  // not looked at. Any output may be absent.
  static void forward(const ForwardArgs& exact, const ForwardArgs& scale, const Rounding& rounding);
  static void backward(const BackwardArgs& exact, const BackwardArgs& scale,
                       const Rounding& rounding);

  // Emits every intermediate of a call whose views are f64.
  static void forward_intermediates(const ForwardArgs& exact, const Rounding& rounding,
                                    const EmitArray& emit);
  static void backward_intermediates(const BackwardArgs& exact, const Rounding& rounding,
                                     const EmitArray& emit);
};

namespace reference {

// Null where the view is absent.
template <class Real>
Real* row_of(const TensorView& view, std::int64_t row) {
  return view.given() ? static_cast<Real*>(view.data) + row * view.strides[0] : nullptr;
}

}  // namespace reference
}  // namespace isobit::norms
