// SPDX-License-Identifier: Apache-2.0
// What a caller of scan includes: running sums, products, extremes and logsumexps along a
// dimension.
#pragma once

#include "isobit/core/execution.h"
#include "isobit/core/tensor_view.h"

namespace isobit {
class Operation;
}

namespace isobit::scan {

enum class Kind { sum, prod, max, min, logsumexp };

// y[o, i, n] = init[o, n] + x[o, first, n] + ... + x[o, i, n], where `first` begins the segment of
// i, and + is what `kind` says. y may be x.
struct Args {
  TensorView x;           // (outer, length, inner)
  TensorView init = {};   // (outer, inner), in the dtype of y, optional
  TensorView reset = {};  // like x, bool or u8, optional: not 0 where a segment begins
  TensorView y;           // like x, in its dtype or a wider one
  TensorView index = {};  // like x, i64, optional: where the largest or smallest stands
  Kind kind = Kind::sum;
  bool exclusive = false;  // of what comes before i only
  bool reverse = false;    // from the end of each segment to its beginning
};

void run(const Args& args, const Execution& execution);

const Operation& operation();

}  // namespace isobit::scan
