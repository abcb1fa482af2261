// SPDX-License-Identifier: Apache-2.0
// The vector loops of reduce, compiled once for each instruction set.
#pragma once

#include "isobit/core/isas.h"
#include "isobit/norms/cpu_summed_rows.h"
#include "isobit/ops/reduce/formula.h"
#include "isobit/ops/reduce/problem.h"

namespace isobit::reduce {

using norms::kMostAbreast;
using norms::Part;

// Of the rows of a part; what is computed in is Real.
struct Kernels {
  // Moments<Real> of a round; a sum that the problem's kind has no use for may be 0. centres: a
  // number of each row; without, 0. Of Round::extremes, the largest and the smallest magnitude, 0
  // and infinity of no elements; of Round::bounds the largest and the smallest element, -infinity
  // and infinity of none.
  void (*moments)(const Problem& problem, const Part& part, Round round, const void* centres,
                  void* moments);
  // slopes: Slope<Real> of each row.
  void (*gradient)(const Problem& problem, const Part& part, const void* slopes);
};

// along: one row at a time, of any strides, whose sums may fetch adjacent elements ahead. abreast:
// rows side by side, each in a lane of its own.
ISOBIT_IN_EACH_ISA(Kernels kernels_along(DType dtype, bool fetches);
                   Kernels kernels_abreast(DType dtype);)

}  // namespace isobit::reduce
