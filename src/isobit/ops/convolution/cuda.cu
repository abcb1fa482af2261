// SPDX-License-Identifier: Apache-2.0
// Convolutions on GPUs in the order of order.h: one result a thread, straight from memory, or from
// a tile of the image with its halo in shared memory; and the tables of all variants.
#include <algorithm>
#include <cstdint>
#include <string>

#include "isobit/ops/convolution/cuda_call.h"
#include "isobit/ops/convolution/cuda_parts.h"
#include "isobit/ops/convolution/cuda_sums.h"
#include "isobit/ops/matmul/cuda_tiles.h"

namespace isobit::convolution {
namespace {

constexpr int kWidest = 512;  // threads of a block

// One result a thread.
template <class T>
struct Direct {
  static constexpr int kMostThreads = kWidest;
  using Real = RealOf<T>;
  Call<T> call;
  const unsigned* only_if;  // this is not 0; null: in any case

  ISOBIT_DEVICE void operator()() const {
    if (only_if != nullptr && *only_if == 0) return;
    const std::int64_t channels = call.groups * call.outs;
    for (std::int64_t at = simt::block() * simt::threads() + simt::thread(); at < call.results();
         at += simt::blocks() * simt::threads()) {
      const std::int64_t col = at % call.w.results, line = at / call.w.results;
      const std::int64_t row = line % call.h.results, plane = line / call.h.results;
      const std::int64_t channel = plane % channels, n = plane / channels;
      const Real sum = call.gradient && call.mode != PaddingMode::zeros
                           ? of_images(n, channel, row, col)
                           : window(n, channel, row, col);
      call.finish.finish(n * call.h.results + row, channel, col, sum);
    }
  }

 private:
  ISOBIT_DEVICE Real window(std::int64_t n, std::int64_t channel, std::int64_t row,
                            std::int64_t col) const {
    const T* const image = call.source.at(n, channel / call.outs * call.ins);
    const T* const filter = call.filter(channel);
    Sum<tile::Scalar<Real>> sum;
#pragma unroll 1
    for (std::int64_t i = 0; i < call.h.taps; ++i) {
      const std::int64_t h = call.place(call.h, row, i);
#pragma unroll 1
      for (std::int64_t j = 0; j < call.w.taps; ++j) {
        const std::int64_t w = call.place(call.w, col, j);
        const bool there = h >= 0 && w >= 0;
        if (!there && call.gradient) {
          sum.skip(call.ins);
          continue;
        }
        const T* const tap = filter + i * call.weight_h + j * call.weight_w;
#pragma unroll 1
        for (std::int64_t c = 0; c < call.ins; ++c) {
          Real value = 0;
          if (there)
            value = wide<Real>(image[c * call.source.c + h * call.source.h + w * call.source.w]);
          sum.add(value, wide<Real>(tap[c * call.weight_in]));
        }
      }
    }
    return sum.total();
  }
  // The gradient of an element that stands for several of the padding.
  ISOBIT_DEVICE Real of_images(std::int64_t n, std::int64_t channel, std::int64_t row,
                               std::int64_t col) const {
    Real sum = 0;
    bool first = true;
#pragma unroll 1
    for (std::int64_t i = -call.h.padding; i < call.h.results + call.h.padding_end; ++i) {
      if (padded(call.mode, i, call.h.results) != row) continue;
#pragma unroll 1
      for (std::int64_t j = -call.w.padding; j < call.w.results + call.w.padding_end; ++j) {
        if (padded(call.mode, j, call.w.results) != col) continue;
        const Real part = window(n, channel, i, j);
        sum = first ? part : sum + part;
        first = false;
      }
    }
    return sum;
  }
};

// A tile of results, kAcross to a row and one a thread, of all filters of a group one after the
// other; what their windows see, with its padding, is in shared memory.
template <class T>
struct TiledHalo {
  static constexpr int kMostThreads = kWidest, kAcross = 32;
  using Real = RealOf<T>;
  Call<T> call;
  std::int64_t height, rows, cols;  // of a tile, and what it sees

  TiledHalo(const Problem& problem, int threads)
      : call(problem),
        height(threads / kAcross),
        rows(seen(problem.h, height)),
        cols(seen(problem.w, kAcross)) {}

  static std::int64_t seen(const Axis& axis, std::int64_t results) {
    return (std::min(results, axis.results) - 1) * axis.stride + (axis.taps - 1) * axis.dilation +
           1;
  }
  static std::int64_t bytes(const Problem& problem, int threads) {
    return count_of(
        {seen(problem.h, threads / kAcross), seen(problem.w, kAcross), problem.ins, sizeof(Real)});
  }
  ISOBIT_EITHER std::int64_t down() const { return (call.h.results + height - 1) / height; }
  ISOBIT_EITHER std::int64_t across() const { return (call.w.results + kAcross - 1) / kAcross; }
  ISOBIT_EITHER std::int64_t tiles() const { return call.batch * call.groups * down() * across(); }

  ISOBIT_EITHER Real* memory(simt::Carver& carver) const {
    return carver.take<Real>(call.ins * rows * cols);
  }

  ISOBIT_DEVICE void operator()(Real* staged) const {
    const int thread = simt::thread();
    for (std::int64_t tile = simt::block(); tile < tiles(); tile += simt::blocks()) {
      const std::int64_t col = tile % across() * kAcross, line = tile / across();
      const std::int64_t row = line % down() * height, plane = line / down();
      const std::int64_t group = plane % call.groups, n = plane / call.groups;
      const T* const image = call.source.at(n, group * call.ins);
      const std::int64_t first_h = call.h.window(row, 0), first_w = call.w.window(col, 0);
      simt::sync_block();  // what was there has been read
#pragma unroll 1
      for (std::int64_t at = thread; at < call.ins * rows * cols; at += simt::threads()) {
        const std::int64_t j = at % cols, i = at / cols % rows, c = at / cols / rows;
        const std::int64_t h = there(call.h, first_h + i), w = there(call.w, first_w + j);
        Real value = 0;
        if (h >= 0 && w >= 0)
          value = wide<Real>(image[c * call.source.c + h * call.source.h + w * call.source.w]);
        staged[at] = value;
      }
      simt::sync_block();
      const std::int64_t i = row + thread / kAcross, j = col + thread % kAcross;
      if (i >= call.h.results || j >= call.w.results) continue;
      const Real* const window =
          staged + (i - row) * call.h.stride * cols + (j - col) * call.w.stride;
#pragma unroll 1
      for (std::int64_t out = 0; out < call.outs; ++out) {
        const std::int64_t channel = group * call.outs + out;
        call.finish.finish(n * call.h.results + i, channel, j, sum(window, call.filter(channel)));
      }
    }
  }

 private:
  // A tile at the edge reaches beyond what any window sees.
  ISOBIT_DEVICE std::int64_t there(const Axis& axis, std::int64_t index) const {
    if (index < -axis.padding || index >= axis.sources + axis.padding_end) return -1;
    return padded(call.mode, index, axis.sources);
  }
  ISOBIT_DEVICE Real sum(const Real* window, const T* filter) const {
    Sum<tile::Scalar<Real>> sum;
#pragma unroll 1
    for (std::int64_t i = 0; i < call.h.taps; ++i)
#pragma unroll 1
      for (std::int64_t j = 0; j < call.w.taps; ++j) {
        const T* const tap = filter + i * call.weight_h + j * call.weight_w;
        const Real* const seen = window + i * call.h.dilation * cols + j * call.w.dilation;
#pragma unroll 1
        for (std::int64_t c = 0; c < call.ins; ++c)
          sum.add(seen[c * rows * cols], wide<Real>(tap[c * call.weight_in]));
      }
    return sum.total();
  }
};

constexpr std::int64_t kMostHalo = 96 << 10;  // bytes: two blocks a multiprocessor

std::int64_t halo_bytes(const Problem& problem, int threads) {
  return problem.element == DType::f64 ? TiledHalo<double>::bytes(problem, threads)
                                       : TiledHalo<float>::bytes(problem, threads);
}
std::int64_t most_halo(const Machine& machine) {
  return std::min(kMostHalo, machine.gpu.shared_bytes);
}

std::string declines_halo(const Problem& problem, const Machine& machine) {
  if (problem.gradient) return "has no gradients";
  if (halo_bytes(problem, kChosenThreads) > most_halo(machine))
    return "needs a tile with its halo, of all channels of a group, in shared memory";
  return {};
}

void run_tiled_halo(const Problem& problem, const Plan& plan, const Execution& execution) {
  if (problem.empty()) return;
  const int threads = threads_within(most_halo(execution.machine), plan[0],
                                     [&](int asked) { return halo_bytes(problem, asked); });
  with_type(problem, [&]<class T>(T) {
    const TiledHalo<T> kernel(problem, threads);
    matmul::launch(kernel, kernel.tiles(), threads, execution);
  });
}

void run_direct(const Problem& problem, const Plan& plan, const Execution& execution) {
  launch_direct(problem, nullptr, plan[0], execution);
}

Plan choose_threads(const Problem&, const Machine&) { return {kChosenThreads}; }

constexpr Knob kHaloKnobs[] = {threads_knob(
    kWidest, "threads per block, 32 to a row of its tile; fewer where that is too large")};
constexpr Knob kDirectKnobs[] = {threads_knob(kWidest)};

constexpr AnyVariant<Problem> kTiledHalo = {.name = "tiled_halo",
                                            .knobs = kHaloKnobs,
                                            .declines = declines_halo,
                                            .choose = choose_threads,
                                            .run_plan = run_tiled_halo};
constexpr AnyVariant<Problem> kDirect = {
    .name = "direct", .knobs = kDirectKnobs, .choose = choose_threads, .run_plan = run_direct};

// Backward: grad_x by a variant of forward, or one by one where that declines; grad_weight in tiles
// of a product, or one weight a thread.
template <const AnyVariant<Problem>& kToX, bool kTiles>
struct Gradients {
  static bool computes_x(const BackwardProblem& problem, const Machine& machine) {
    return problem.wants_x && kToX.declines(problem.to_x, machine).empty();
  }
  static bool computes_weights(const BackwardProblem& problem) {
    return kTiles && problem.wants_weight && tiles_suit_weights(problem.to_weight);
  }

  // Without tiles a plan holds threads. Large tiles only where both products have enough of them.
  static Plan choose(const BackwardProblem& problem, const Machine& machine) {
    if (!kTiles) return kToX.choose(problem.to_x, machine);
    Plan plan = {8};
    if (computes_x(problem, machine)) plan = kToX.choose(problem.to_x, machine);
    if (computes_weights(problem))
      plan = std::min(plan, choose_tiles_of_weights(problem.to_weight, machine));
    return plan;
  }
  static std::size_t workspace(const BackwardProblem& problem, const Machine& machine) {
    std::size_t bytes = 0;
    if (computes_x(problem, machine) && kToX.workspace != nullptr)
      bytes = kToX.workspace(problem.to_x, machine);
    if (computes_weights(problem))
      bytes = std::max(bytes, tiles_of_weights_workspace(problem.to_weight));
    else if (problem.wants_weight)
      bytes = std::max(bytes, static_cast<std::size_t>(weight_room(problem.to_weight)));
    if (problem.wants_bias)
      bytes = std::max(bytes, static_cast<std::size_t>(bias_room(problem.to_weight)));
    return bytes;
  }
  static void run(const BackwardProblem& problem, const Plan& plan, const Execution& execution) {
    const int threads = kTiles ? kChosenThreads : plan[0];
    if (computes_x(problem, execution.machine))
      kToX.run_plan(problem.to_x, plan, execution);
    else if (problem.wants_x)
      launch_direct(problem.to_x, nullptr, threads, execution);
    if (computes_weights(problem)) sum_weights_in_tiles(problem.to_weight, plan, execution);
    with_type(problem.to_weight, [&]<class T>(T) {
      if (problem.wants_weight && !computes_weights(problem))
        sum_weights<T>(problem.to_weight, threads, execution);
      if (problem.wants_bias)
        sum_bias<T>(problem.to_weight, problem.to_bias.first.bias, threads, execution);
    });
  }
};
using DepthwiseGradients = Gradients<kCudaDepthwise, false>;
using ImplicitGradients = Gradients<kCudaImplicit, true>;
using DirectGradients = Gradients<kDirect, false>;

std::string declines_depthwise(const BackwardProblem& problem, const Machine& machine) {
  return problem.wants_x ? kCudaDepthwise.declines(problem.to_x, machine)
                         : "has a way of its own to grad_x alone";
}
std::string declines_implicit(const BackwardProblem& problem, const Machine& machine) {
  if (ImplicitGradients::computes_x(problem, machine) ||
      ImplicitGradients::computes_weights(problem))
    return {};
  return "has ways of its own to grad_x where zeros are padded, and to grad_weight where that "
         "fills tiles";
}
// Where grad_x is asked for, what suits that of forward.
bool suits_implicit(const BackwardProblem& problem, const Machine& machine) {
  return ImplicitGradients::computes_weights(problem) || kCudaImplicit.suits(problem.to_x, machine);
}

constexpr AnyVariant<BackwardProblem> kDepthwiseGradients = {
    .name = "depthwise_tiled",
    .knobs = kDepthwiseKnobs,
    .declines = declines_depthwise,
    .choose = DepthwiseGradients::choose,
    .workspace = DepthwiseGradients::workspace,
    .run_plan = DepthwiseGradients::run};
constexpr AnyVariant<BackwardProblem> kImplicitGradients = {
    .name = "implicit",
    .knobs = matmul::kTileKnobs,
    .declines = declines_implicit,
    .suits = suits_implicit,
    .choose = ImplicitGradients::choose,
    .workspace = ImplicitGradients::workspace,
    .run_plan = ImplicitGradients::run};
constexpr AnyVariant<BackwardProblem> kDirectGradients = {.name = "direct",
                                                          .knobs = kDirectKnobs,
                                                          .choose = DirectGradients::choose,
                                                          .workspace = DirectGradients::workspace,
                                                          .run_plan = DirectGradients::run};

}  // namespace

void launch_direct(const Problem& problem, const unsigned* only_if, int threads,
                   const Execution& execution) {
  if (problem.empty()) return;
  with_type(problem, [&]<class T>(T) {
    const Direct<T> kernel{Call<T>(problem), only_if};
    matmul::launch(kernel, blocks_for(kernel.call.results(), threads), threads, execution);
  });
}

// The first that suits is the default: by counts of instructions, as nothing was measured.
template <class Args>
std::span<const Variant<Args, Problem>> cuda_forward_variants() {
  static const Variant<Args, Problem> kVariants[] = {
      of_args<Args, Problem, kCudaDepthwise>(), of_args<Args, Problem, kCudaImplicit>(),
      of_args<Args, Problem, kTiledHalo>(), of_args<Args, Problem, kCudaIm2col>(),
      of_args<Args, Problem, kDirect>()};
  return kVariants;
}
template std::span<const Variant<ForwardArgs, Problem>> cuda_forward_variants();
template std::span<const Variant<ForwardArgs1d, Problem>> cuda_forward_variants();

template <class Args>
std::span<const Variant<Args, BackwardProblem>> cuda_backward_variants() {
  static const Variant<Args, BackwardProblem> kVariants[] = {
      of_args<Args, BackwardProblem, kDepthwiseGradients>(),
      of_args<Args, BackwardProblem, kImplicitGradients>(),
      of_args<Args, BackwardProblem, kDirectGradients>()};
  return kVariants;
}
template std::span<const Variant<BackwardArgs, BackwardProblem>> cuda_backward_variants();
template std::span<const Variant<BackwardArgs1d, BackwardProblem>> cuda_backward_variants();

}  // namespace isobit::convolution
