// SPDX-License-Identifier: Apache-2.0
// The sum of a window, term by term: what the specification is on every back end.
#pragma once

#include <cstdint>

#include "isobit/core/order.h"

namespace isobit::convolution {

// Adds products as `order::product` does: panels, runs of them, and pairs of runs. S has the fma.
template <class S>
class Sum {
 public:
  using Real = typename S::Real;

  ISOBIT_INLINE void add(Real a, Real b) {
    chain_ = S::fma(a, b, chain_);
    step(1);
  }
  // So many k whose products are absent.
  ISOBIT_INLINE void skip(std::int64_t count) {
    while (count > 0) {
      const std::int64_t some = count < left_ ? count : left_;
      step(some);
      count -= some;
    }
  }
  ISOBIT_INLINE Real total() {
    if (left_ != order::kPanel) run_ = run_ + chain_;
    if (left_ != order::kPanel || panels_ > 0) runs_.push(run_);
    return runs_.total();
  }

 private:
  ISOBIT_INLINE void step(std::int64_t count) {
    left_ -= count;
    if (left_ > 0) return;
    left_ = order::kPanel;
    run_ = run_ + chain_;
    chain_ = 0;
    if (++panels_ < order::kRun) return;
    panels_ = 0;
    runs_.push(run_);
    run_ = 0;
  }

  order::PairTree<Real> runs_;
  Real run_ = 0, chain_ = 0;
  std::int64_t left_ = order::kPanel;  // of this panel
  int panels_ = 0;                     // of this run
};

}  // namespace isobit::convolution
