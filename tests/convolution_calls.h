// SPDX-License-Identifier: Apache-2.0
// Calls of conv2d with arrays of their own, for the tests of convolutions.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "float_arrays.h"
#include "isobit/core/order.h"
#include "isobit/dispatch/operation.h"
#include "isobit/lab/configurations.h"
#include "isobit/ops/conv2d/conv2d.h"
#include "isobit/simd/parallel_for.h"

namespace isobit::convolutions {

using convolution::PaddingMode;
using Forward = conv2d::ForwardArgs;
using Backward = conv2d::BackwardArgs;

inline Execution here(int threads = 2) { return lab::execution_for(Machine::here().isa, threads); }

// A call with arrays of its own.
struct Shape {
  std::int64_t batch = 1, channels = 1, filters = 1, height = 1, width = 1, taps_h = 1, taps_w = 1;
  std::int64_t groups = 1, stride = 1, dilation = 1, padding = 0, extra = 0;
  PaddingMode mode = PaddingMode::zeros;

  std::int64_t out(std::int64_t extent, std::int64_t taps) const {
    return (extent + 2 * padding + extra - dilation * (taps - 1) - 1) / stride + 1;
  }
  std::int64_t out_h() const { return out(height, taps_h); }
  std::int64_t out_w() const { return out(width, taps_w); }
  std::vector<std::int64_t> x() const { return {batch, channels, height, width}; }
  std::vector<std::int64_t> weight() const { return {filters, channels / groups, taps_h, taps_w}; }
  std::vector<std::int64_t> y() const { return {batch, filters, out_h(), out_w()}; }
  static std::int64_t count(const std::vector<std::int64_t>& extents) {
    std::int64_t product = 1;
    for (std::int64_t extent : extents) product *= extent;
    return product;
  }
  template <class Args>
  Args with(Args args) const {
    args.groups = groups;
    args.stride_h = args.stride_w = stride;
    args.dilation_h = args.dilation_w = dilation;
    args.padding_h = args.padding_w = padding;
    args.extra_padding_h = args.extra_padding_w = extra;
    args.padding_mode = mode;
    return args;
  }
};

struct Arrays {
  Floats x, weight, grad;

  explicit Arrays(const Shape& s)
      : x(numbers(Shape::count(s.x()))),
        weight(numbers(Shape::count(s.weight()), 2)),
        grad(numbers(Shape::count(s.y()), 3)) {}
};

inline Forward forward_of(const Shape& s, const Arrays& arrays, Floats& y) {
  Forward args = s.with(Forward{});
  args.x = view(arrays.x.data(), s.x());
  args.weight = view(arrays.weight.data(), s.weight());
  args.y = view(y.data(), s.y());
  return args;
}
// What every gradient has; those that are wanted are set by the caller.
inline Backward backward_of(const Shape& s, const Arrays& arrays) {
  Backward args = s.with(Backward{});
  args.grad_y = view(arrays.grad.data(), s.y());
  args.x = view(arrays.x.data(), s.x());
  args.weight = view(arrays.weight.data(), s.weight());
  return args;
}

inline Floats convolved(const Shape& s, const Arrays& arrays, const Execution& execution = here()) {
  Floats y(static_cast<std::size_t>(Shape::count(s.y())), kNan);
  conv2d::forward(forward_of(s, arrays, y), execution);
  return y;
}

struct Gradients {
  Floats x, weight, bias;
};
inline Gradients gradients(const Shape& s, const Arrays& arrays,
                           const Execution& execution = here()) {
  Gradients found{Floats(arrays.x.size(), kNan), Floats(arrays.weight.size(), kNan),
                  Floats(static_cast<std::size_t>(s.filters), kNan)};
  Backward args = backward_of(s, arrays);
  args.grad_x = view(found.x.data(), s.x());
  args.grad_weight = view(found.weight.data(), s.weight());
  args.grad_bias = view(found.bias.data(), {s.filters});
  conv2d::backward(args, execution);
  return found;
}

// In the order of the definition, by loops that nothing else has a part in.
inline float window(const Shape& s, const Arrays& arrays, std::int64_t n, std::int64_t filter,
                    std::int64_t row, std::int64_t col) {
  const std::int64_t ins = s.channels / s.groups, group = filter / (s.filters / s.groups);
  Floats seen, weights;
  for (std::int64_t i = 0; i < s.taps_h; ++i)
    for (std::int64_t j = 0; j < s.taps_w; ++j)
      for (std::int64_t c = 0; c < ins; ++c) {
        const std::int64_t h = row * s.stride + i * s.dilation - s.padding,
                           w = col * s.stride + j * s.dilation - s.padding;
        const bool inside = h >= 0 && w >= 0 && h < s.height && w < s.width;
        const std::int64_t plane = n * s.channels + group * ins + c;
        seen.push_back(
            inside ? arrays.x[static_cast<std::size_t>((plane * s.height + h) * s.width + w)] : 0);
        weights.push_back(arrays.weight[static_cast<std::size_t>(
            ((filter * ins + c) * s.taps_h + i) * s.taps_w + j)]);
      }
  return order::product<float>(
      std::ssize(seen), [&](std::int64_t k) { return seen[static_cast<std::size_t>(k)]; },
      [&](std::int64_t k) { return weights[static_cast<std::size_t>(k)]; });
}

// Every variant on every instruction set.
template <class Visit>
void for_each_way(const Operation& operation, const Arguments& args, const Visit& visit) {
  const std::vector<VariantInfo> variants = operation.variants();
  for (int i = 0; i < static_cast<int>(variants.size()); ++i) {
    if (variants[static_cast<std::size_t>(i)].device != Device::cpu) continue;
    for (const Isa isa : Machine::isas_here()) {
      const Execution execution = lab::execution_for(isa, 2);
      if (!operation.declines(i, args, execution.machine).empty()) continue;
      operation.run(i, operation.choose(i, args, execution.machine), args, execution);
      visit(std::string(variants[static_cast<std::size_t>(i)].name) + " " +
            std::string(name_of(isa)));
    }
  }
}

}  // namespace isobit::convolutions
