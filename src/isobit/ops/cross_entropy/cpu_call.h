// SPDX-License-Identifier: Apache-2.0
// What a call on a CPU knows before its rows, for the specification and the vector loops.
#pragma once

#include <cstdint>
#include <limits>

#include "isobit/ops/cross_entropy/formula.h"
#include "isobit/ops/cross_entropy/problem.h"

namespace isobit::cross_entropy {

// Real: what is computed in.
template <class Real>
struct Call {
  const Given& given;
  const Real* weight;  // of classes, null where all are 1
  Shares<Real> shares;
  Real weights;  // their sum, where each class has a share

  ISOBIT_INLINE Call(const Given& given, Real weights)
      : given(given),
        weight(reinterpret_cast<const Real*>(given.weight)),
        shares(Shares<Real>::of(given.label_smoothing, given.z_loss, given.cols)),
        weights(weights) {}

  ISOBIT_INLINE bool ignored(std::int64_t row) const {
    return given.target[row] == given.ignore_index;
  }
  // Of the target of a row: 0 where it is ignored, NaN without classes.
  ISOBIT_INLINE Real weight_of_row(std::int64_t row) const {
    if (ignored(row)) return 0;
    if (given.cols == 0) return std::numeric_limits<Real>::quiet_NaN();
    return weight == nullptr ? Real(1) : weight[given.target[row]];
  }
};

}  // namespace isobit::cross_entropy
