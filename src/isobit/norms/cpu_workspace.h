// SPDX-License-Identifier: Apache-2.0
// What both passes of a norm need on the CPU before their rows: tools for the instruction set, the
// weights in the type that is computed in, and a workspace cut into pieces.
#pragma once

#include <span>

#include "isobit/core/execution.h"
#include "isobit/norms/cpu_kernels.h"

namespace isobit::norms {

const Tools& tools_of(Isa isa);

// Cuts memory into pieces of whole cache lines; without memory it only counts.
class Pieces {
 public:
  explicit Pieces(std::byte* memory = nullptr) : memory_(memory) {}
  std::byte* take(std::int64_t bytes) {
    std::byte* piece = memory_ == nullptr ? nullptr : memory_ + taken_;
    taken_ += (bytes + 63) / 64 * 64;
    return piece;
  }
  std::size_t taken() const { return static_cast<std::size_t>(taken_); }

 private:
  std::byte* memory_;
  std::int64_t taken_ = 0;
};

// How a caller stores its weights.
struct StoredWeights {
  DType real, dtype;  // what is computed in; what is stored
  std::int64_t cols;
  const void *weight, *bias;
  bool zero_centred;

  bool converts_weight() const { return weight != nullptr && (dtype != real || zero_centred); }
  bool converts_bias() const { return bias != nullptr && dtype != real; }
};

template <class Problem>
StoredWeights stored_weights(const Problem& problem) {
  const void* bias = nullptr;
  if constexpr (requires { problem.bias; }) bias = problem.bias;
  return {real_of(problem.dtype), problem.weight_dtype, problem.cols, problem.weight, bias,
          problem.zero_centred};
}

// Weight and bias in the type that is computed in: the caller's own arrays where they will do,
// converted ones in `pieces` otherwise, a neutral line where there are none.
Weights weights_in(const StoredWeights& stored, Pieces& pieces);
// Converts what weights_in() found no ready array for.
void convert_weights(const StoredWeights& stored, const Weights& weights,
                     const Execution& execution);

}  // namespace isobit::norms
