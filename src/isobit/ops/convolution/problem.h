// SPDX-License-Identifier: Apache-2.0
// Calls of convolutions after their check: images of height and width, whatever had dimensions.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>
#include <string_view>

#include "isobit/dispatch/variant.h"
#include "isobit/ops/convolution/convolution.h"
#include "isobit/ops/matmul/problem.h"

namespace isobit::convolution {

// One dimension of the windows: how a result's index and a tap's name an element of the source. The
// source is x; or, of the gradient of x, whose index is then the result's, the gradient of y.
struct Axis {
  std::int64_t results = 1, sources = 1, taps = 1;
  std::int64_t stride = 1, dilation = 1, padding = 0, padding_end = 0;

  // Of a forward pass; negative or beyond the sources where the window reaches over the edge.
  ISOBIT_INLINE std::int64_t window(std::int64_t result, std::int64_t tap) const {
    return result * stride + tap * dilation - padding;
  }
  // Where the gradient of this source, which may be one of the padding, comes from; or -1.
  ISOBIT_INLINE std::int64_t landing(std::int64_t result, std::int64_t tap) const {
    const std::int64_t place = result + padding - tap * dilation;
    if (place < 0 || place % stride != 0 || place / stride >= sources) return -1;
    return place / stride;
  }
};

// A count of elements, which wide strides and dilations may make larger than a number can be:
// then, one that no memory holds.
inline std::int64_t count_of(std::initializer_list<std::int64_t> extents) {
  constexpr std::int64_t kBeyondMemory = std::int64_t{1} << 48;
  std::int64_t count = 1;
  for (const std::int64_t extent : extents)
    count = extent != 0 && count > kBeyondMemory / extent ? kBeyondMemory : count * extent;
  return count;
}

// The element that stands for one beyond the edge; -1 for a zero.
ISOBIT_INLINE std::int64_t padded(PaddingMode mode, std::int64_t index, std::int64_t count) {
  if (index >= 0 && index < count) return index;
  switch (mode) {
    case PaddingMode::reflect:   return index < 0 ? -index : 2 * (count - 1) - index;
    case PaddingMode::replicate: return index < 0 ? 0 : count - 1;
    case PaddingMode::circular:  return index < 0 ? index + count : index - count;
    default:                     return -1;
  }
}

// An array of images. No data where it is not given.
struct Images {
  std::byte* data = nullptr;
  DType dtype = DType::f32;
  std::int64_t n = 0, c = 0, h = 0, w = 0;  // elements from one to the next

  explicit operator bool() const { return data != nullptr; }
  std::byte* at(std::int64_t image, std::int64_t channel, std::int64_t row,
                std::int64_t col) const {
    return data + (image * n + channel * c + row * h + col * w) * size_of(dtype);
  }
};

// Weights of a group: from a result's channel to the next, from a source's, and between taps.
struct Weights {
  std::byte* data = nullptr;
  std::int64_t group = 0, out = 0, in = 0, h = 0, w = 0;
};

// Sums over k = (tap_h, tap_w, in), the last the fastest. Of each group `outs` channels of results
// are made of `ins` channels of sources.
struct Problem {
  DType element = DType::f32;
  // Of the gradient of x: taps that do not land are absent, though they keep their k.
  bool gradient = false;
  PaddingMode mode = PaddingMode::zeros;
  Activation activation = Activation::none;
  std::int64_t batch = 0, groups = 1, ins = 0, outs = 0;
  Axis h, w;
  Images source, result, residual, pre;
  Weights weight;
  matmul::Array bias;  // row: from a channel to the next

  std::int64_t k() const { return h.taps * w.taps * ins; }
  DType real() const { return element == DType::f64 ? DType::f64 : DType::f32; }
  std::int64_t positions() const { return h.results * w.results; }
  bool empty() const { return batch == 0 || groups * outs == 0 || positions() == 0; }
};

// What becomes of sums, in the words of matmul.
inline matmul::Problem finish_problem(const Problem& problem) {
  matmul::Problem result;
  result.element = problem.element;
  result.activation = problem.activation;
  result.m = problem.outs;
  result.n = problem.w.results;
  const auto array = [](const Images& images) {
    return matmul::Array{images.data, images.dtype, images.c, images.w};
  };
  result.first.bias = problem.bias;
  result.first.residual = array(problem.residual);
  result.first.y = array(problem.result);
  result.first.pre = array(problem.pre);
  return result;
}

struct BackwardProblem {
  Problem to_x;       // results are the gradient of x, made of that of y
  Problem to_weight;  // of forward: x, the gradient of y in the place of results, and of weights
  matmul::Problem to_bias;  // rows of it are positions
  bool wants_x = false, wants_weight = false, wants_bias = false;
};

// Throw where a call of conv1d or conv2d breaks a rule: of arrays of one dimension or two beside
// channels.
Problem check_forward(const ForwardArgs& args, int dims);
BackwardProblem check_backward(const BackwardArgs& args, int dims);

// Results along one dimension; less than 1 where the windows do not fit.
std::int64_t results_of(std::int64_t extent, std::int64_t taps, std::int64_t stride,
                        std::int64_t dilation, std::int64_t padding, std::int64_t extra);

// Of ForwardArgs or ForwardArgs1d, and so on: what runs sees nothing of them but the Problem.
template <class Args>
std::span<const Variant<Args, Problem>> cpu_forward_variants();
template <class Args>
std::span<const Variant<Args, BackwardProblem>> cpu_backward_variants();
// In device libraries.
template <class Args>
std::span<const Variant<Args, Problem>> cuda_forward_variants();
template <class Args>
std::span<const Variant<Args, BackwardProblem>> cuda_backward_variants();

// A variant without its arguments' type, which its function is given.
template <class Problem>
struct AnyVariant {
  using Defaults = isobit::detail::VariantDefaults<Problem>;

  std::string_view name;
  bool each_isa = false;
  std::span<const Knob> knobs = {};
  std::string (*declines)(const Problem&, const Machine&) = Defaults::declines;
  bool (*suits)(const Problem&, const Machine&) = Defaults::suits;
  Plan (*choose)(const Problem&, const Machine&) = Defaults::choose;
  std::size_t (*workspace)(const Problem&, const Machine&) = nullptr;
  void (*run)(const Problem&, const Execution&) = nullptr;
  void (*run_plan)(const Problem&, const Plan&, const Execution&) = nullptr;  // where it has knobs
};
template <class Args, class Problem, const AnyVariant<Problem>& kVariant>
Variant<Args, Problem> of_args() {
  return {
      .name = kVariant.name,
      .knobs = kVariant.knobs,
      .each_isa = kVariant.each_isa,
      .declines = kVariant.declines,
      .suits = kVariant.suits,
      .choose = kVariant.choose,
      .workspace =
          [](const Problem& problem, const Plan&, const Machine& machine) {
            return kVariant.workspace == nullptr ? 0 : kVariant.workspace(problem, machine);
          },
      .run =
          [](const Args&, const Problem& problem, const Plan& plan, const Execution& execution) {
            if (kVariant.run_plan != nullptr) return kVariant.run_plan(problem, plan, execution);
            kVariant.run(problem, execution);
          }};
}

}  // namespace isobit::convolution
