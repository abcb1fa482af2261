// SPDX-License-Identifier: Apache-2.0
// What a caller of rope_tables includes: the cosines and sines that rope turns by.
#pragma once

#include "isobit/core/execution.h"
#include "isobit/core/tensor_view.h"

namespace isobit {
class Operation;
}

namespace isobit::rope_tables {

// Positions of which tables can be computed: angles are below it, since frequencies are at most 1.
inline constexpr std::int64_t kMostPositions = std::int64_t{1} << 27;
// Of the powers of the base that become frequencies.
inline constexpr double kMostBase = 0x1p100;

// cos[n, i] and sin[n, i] of the angle p inv_freq[i], where p is offset_positions + positions[n],
// or offset_positions + n without positions. Without inv_freq, that is base^(-i / pairs), rounded
// to f64.
struct Args {
  TensorView inv_freq = {};   // (pairs), f32 or f64, optional
  TensorView positions = {};  // (length), i64, optional
  TensorView cos;             // (length, pairs), f32 or f64
  TensorView sin;             // like cos
  double base = 10000;
  std::int64_t offset_positions = 0;
};

void run(const Args& args, const Execution& execution);

const Operation& operation();

}  // namespace isobit::rope_tables
