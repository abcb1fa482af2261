// SPDX-License-Identifier: Apache-2.0
// The larger and the smaller of what parts of a row have given.
#pragma once

#include <limits>

#include "isobit/ops/reduce/formula.h"

namespace isobit::reduce {

// Of magnitudes or, with their signs, of elements; NaN where one is.
template <class Real, bool kSigned>
class ExtremePieces {
 public:
  ISOBIT_INLINE void push(const Moments<Real>& piece) {
    most_ = vector_norm::larger(most_, piece.sum);
    least_ = piece.squares != piece.squares || piece.squares < least_ ? piece.squares : least_;
    if (most_ != most_) least_ = most_;
  }
  ISOBIT_INLINE Moments<Real> total() const { return {most_, least_}; }

 private:
  static constexpr Real kInfinity = std::numeric_limits<Real>::infinity();
  Real most_ = kSigned ? -kInfinity : Real(0), least_ = kInfinity;
};

}  // namespace isobit::reduce
