// SPDX-License-Identifier: Apache-2.0
// What the variants for GPUs share: the tables' entries, the specification as a step, and how many
// blocks of threads a count takes.
#pragma once

#include <algorithm>
#include <cstdint>

#include "isobit/dispatch/threads.h"
#include "isobit/ops/convolution/problem.h"
#include "isobit/ops/matmul/cuda_call.h"

namespace isobit::convolution {

// Of forward, and of the gradient of x.
extern const AnyVariant<Problem> kCudaDepthwise, kCudaImplicit, kCudaIm2col;

inline constexpr int kWidestDepthwise = 512;  // threads of a block
inline constexpr Knob kDepthwiseKnobs[] = {threads_knob(
    kWidestDepthwise,
    "threads per block, which take a tile of a channel; fewer where that is too large")};

// The gradient of weights as a product over positions, in tiles; whether that is worth its tiles.
bool tiles_suit_weights(const Problem& problem);
Plan choose_tiles_of_weights(const Problem& problem, const Machine& machine);
std::size_t tiles_of_weights_workspace(const Problem& problem);
void sum_weights_in_tiles(const Problem& problem, const Plan& plan, const Execution& execution);

// All results one by one; where `only_if` is given, only if it is not 0 on the device.
void launch_direct(const Problem& problem, const unsigned* only_if, int threads,
                   const Execution& execution);

// Calls run(T{}) with the type of the elements.
template <class Run>
void with_type(const Problem& problem, const Run& run) {
  switch (problem.element) {
    case DType::f16:  return run(f16{});
    case DType::bf16: return run(bf16{});
    case DType::f64:  return run(double{});
    default:          return run(float{});
  }
}

inline constexpr int kChosenThreads = 256;  // of a block, where no plan says
inline std::int64_t blocks_for(std::int64_t count, int threads = kChosenThreads) {
  return std::max<std::int64_t>(1, (count + threads - 1) / threads);
}

// As many threads as a plan asks for, or fewer, so that `bytes(threads)` of shared memory are no
// more than `most`: those of kChosenThreads are not.
template <class Bytes>
int threads_within(std::int64_t most, int asked, const Bytes& bytes) {
  int threads = asked;
  while (threads > kChosenThreads && bytes(threads) > most) threads /= 2;
  return bytes(threads) > most ? kChosenThreads : threads;
}

}  // namespace isobit::convolution
