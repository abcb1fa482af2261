// SPDX-License-Identifier: Apache-2.0
// What the variants are measured against: the norm's own reference, and sums of products in a wider
// type.
#pragma once

#include "isobit/core/case.h"

namespace isobit::norm_linear {

// Of one operator: reference_rows.h, instantiated in ops/NAME/reference.cpp. `Fused` is the type of
// ops/NAME/fused.h. Row outputs are written and others added to, so that rows can be fed in chunks.
template <class Fused>
struct Reference {
  using ForwardArgs = typename Fused::ForwardArgs;
  using BackwardArgs = typename Fused::BackwardArgs;

  static void forward(const ForwardArgs& exact, const ForwardArgs& scale, const Rounding& rounding);
  static void backward(const BackwardArgs& exact, const BackwardArgs& scale,
                       const Rounding& rounding);
  static void forward_intermediates(const ForwardArgs& exact, const Rounding& rounding,
                                    const EmitArray& emit);
  static void backward_intermediates(const BackwardArgs& exact, const Rounding& rounding,
                                     const EmitArray& emit);
};

}  // namespace isobit::norm_linear
