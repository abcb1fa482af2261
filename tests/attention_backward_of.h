// SPDX-License-Identifier: Apache-2.0
// What backward is given of a forward call; gradients are for the caller to add.
#pragma once

#include "isobit/ops/attention/attention.h"

namespace isobit::attention {

inline BackwardArgs backward_of(const ForwardArgs& forward) {
  BackwardArgs args;
  static_cast<Options&>(args) = forward;
  args.q = forward.q;
  args.k = forward.k;
  args.v = forward.v;
  args.bias = forward.bias;
  args.mask = forward.mask;
  args.slopes = forward.slopes;
  args.key_begin = forward.key_begin;
  args.key_end = forward.key_end;
  args.y = forward.y;
  args.max = forward.max;
  args.sum = forward.sum;
  return args;
}

}  // namespace isobit::attention
