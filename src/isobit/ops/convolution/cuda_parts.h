// SPDX-License-Identifier: Apache-2.0
// What the variants for GPUs share: the tables' entries, the specification as a step, and how many
// blocks of threads a count takes.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>

#include "isobit/dispatch/threads.h"
#include "isobit/ops/convolution/problem.h"
#include "isobit/ops/matmul/cuda_call.h"
#include "isobit/ops/matmul/cuda_tiles.h"

namespace isobit::convolution {

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

// Variants of forward, and of the gradient of x. Each is inline: of a constant that stands in one
// file and is seen by others clang makes a copy for AMD's GPUs, where these functions are not.
struct Depthwise {
  static std::string declines(const Problem& problem, const Machine& machine);
  static void run(const Problem& problem, const Plan& plan, const Execution& execution);
};
inline constexpr AnyVariant<Problem> kCudaDepthwise = {
    .name = "depthwise_tiled",
    .knobs = kDepthwiseKnobs,
    .declines = Depthwise::declines,
    .choose = [](const Problem&, const Machine&) -> Plan { return {kChosenThreads}; },
    .run_plan = Depthwise::run};

struct Implicit {
  static std::string declines(const Problem& problem, const Machine& machine);
  static bool suits(const Problem& problem, const Machine& machine);
  static Plan choose(const Problem& problem, const Machine& machine);
  template <bool kWithColumns>
  static std::size_t workspace(const Problem& problem, const Machine& machine);
  static void run(const Problem& problem, const Plan& plan, const Execution& execution);
  static void run_im2col(const Problem& problem, const Plan& plan, const Execution& execution);
};
inline constexpr AnyVariant<Problem> kCudaImplicit = {.name = "implicit",
                                                      .knobs = matmul::kTileKnobs,
                                                      .declines = Implicit::declines,
                                                      .suits = Implicit::suits,
                                                      .choose = Implicit::choose,
                                                      .workspace = Implicit::workspace<false>,
                                                      .run_plan = Implicit::run};
// It writes and reads each element once a tap, so that it is nobody's default.
inline constexpr AnyVariant<Problem> kCudaIm2col = {
    .name = "im2col",
    .knobs = matmul::kTileKnobs,
    .declines = Implicit::declines,
    .suits = [](const Problem&, const Machine&) { return false; },
    .choose = Implicit::choose,
    .workspace = Implicit::workspace<true>,
    .run_plan = Implicit::run_im2col};

}  // namespace isobit::convolution
