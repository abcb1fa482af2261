// SPDX-License-Identifier: Apache-2.0
// What a caller of random includes: numbers that depend on a seed and on their places alone.
#pragma once

#include <cstdint>

#include "isobit/core/execution.h"
#include "isobit/core/tensor_view.h"

namespace isobit {
class Operation;
}

namespace isobit::random {

enum class Distribution { uniform, normal, truncated_normal, bernoulli };

// Element i, counted in C order, is number offset + i of the sequence that the seed names.
struct Args {
  TensorView y;  // (..., cols), f32, f16, bf16 or f64
  Distribution distribution = Distribution::uniform;
  double low = 0, high = 1;  // of uniform, without high, and of truncated_normal, with it
  double mean = 0, std = 1;  // of normal, and of truncated_normal before its ends are cut off
  double p = 0.5;            // of bernoulli: how likely 1 is
  std::uint64_t random_seed = 0;
  std::uint64_t random_offset = 0;  // modulo 2^64
};

void run(const Args& args, const Execution& execution);

const Operation& operation();

}  // namespace isobit::random
