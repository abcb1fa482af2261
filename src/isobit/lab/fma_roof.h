// SPDX-License-Identifier: Apache-2.0
// How fast this processor multiplies and adds, measured: the roof of what computes more than it
// moves.
#pragma once

#include "isobit/core/dtype.h"
#include "isobit/core/machine.h"
#include "isobit/lab/timing.h"

namespace isobit::lab {

// Chains of multiply-adds that wait for no memory, on each thread, with vectors of an instruction
// set: of doubles for f64, of floats for all other types. They are timed in turns with what they
// are the roof of, since processors change their speed.
class FmaChains {
 public:
  FmaChains(Isa isa, DType dtype, int threads);

  TimedCall timed_call() const;
  double operations() const;  // of a call, a multiply-add counted as two

  struct Loop {
    double (*run)(double source);
    int lanes;
  };

 private:
  Loop loop_;
  int threads_;
};

}  // namespace isobit::lab
