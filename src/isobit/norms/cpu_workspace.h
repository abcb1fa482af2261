// SPDX-License-Identifier: Apache-2.0
// What both passes of a norm need on the CPU before their rows: tools for the instruction set, the
// weights in the type that is computed in.
#pragma once

#include <span>

#include "isobit/core/execution.h"
#include "isobit/core/pieces.h"
#include "isobit/norms/cpu_kernels.h"

namespace isobit::norms {

const Tools& tools_of(Isa isa);

// How a caller stores its weights.
struct StoredWeights {
  DType real, dtype;  // what is computed in; what is stored
  std::int64_t cols;
  const void *weight, *bias;
  bool zero_centered;

  bool converts_weight() const { return weight != nullptr && (dtype != real || zero_centered); }
  bool converts_bias() const { return bias != nullptr && dtype != real; }
};

template <class Problem>
StoredWeights stored_weights(const Problem& problem) {
  const void* bias = nullptr;
  if constexpr (requires { problem.bias; }) bias = problem.bias;
  return {real_of(problem.dtype), problem.weight_dtype, problem.cols, problem.weight, bias,
          problem.zero_centered};
}

// Weight and bias in the type that is computed in: the caller's own arrays where they will do,
// converted ones in `pieces` otherwise, a neutral line where there are none.
Weights weights_in(const StoredWeights& stored, Pieces& pieces);
// Converts what weights_in() found no ready array for.
void convert_weights(const StoredWeights& stored, const Weights& weights,
                     const Execution& execution);

}  // namespace isobit::norms
