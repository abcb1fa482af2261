// SPDX-License-Identifier: Apache-2.0
// What the CPU variants share: single elements, the specification, and the table's entries.
#pragma once

#include <algorithm>
#include <cstdint>

#include "isobit/core/order.h"
#include "isobit/ops/convolution/cpu_kernels.h"
#include "isobit/ops/convolution/problem.h"
#include "isobit/ops/matmul/cpu_regions.h"
#include "isobit/simd/tasks.h"

namespace isobit::convolution {

extern const AnyVariant<Problem> kDepthwise, kDirect, kImplicit, kOneFilter, kPointwise,
    kSmallImages;

// The gradient of weights.
void add_weights_directly(const Problem& problem, const Execution& execution);
std::size_t weights_workspace(const Problem& problem, const Machine& machine);
void add_weights(const Problem& problem, const Execution& execution);

// The same as one product, where windows are pointwise.
bool pointwise_weights(const Problem& problem);
std::size_t pointwise_weights_workspace(const Problem& problem, const Machine& machine);
void add_pointwise_weights(const Problem& problem, const Execution& execution);

// The same of depthwise channels that lie last.
bool weights_of_pixels(const Problem& problem, const Machine& machine);
std::size_t weights_of_pixels_workspace(const Problem& problem, const Machine& machine);
void add_weights_of_pixels(const Problem& problem, const Execution& execution);

// The same of one filter of one channel, with zeros beyond the edge. Says whether it could: all
// else can be added, then, by what takes any.
bool has_weights_of_one(const Problem& problem, const Machine& machine);
std::size_t weights_of_one_workspace(const Problem& problem, const Machine& machine);
bool add_weights_of_one(const Problem& problem, const Execution& execution);

// All results of the specification in tasks.
void compute_directly(const Problem& problem, const Execution& execution);

using matmul::parts_of;

// Whether each channel has a filter of its own, and there are several.
inline bool is_depthwise(const Problem& problem) {
  return problem.ins == 1 && problem.outs == 1 && problem.groups > 1;
}

// Of a gradient with other padding than zeros, elements stand for several. "" where that is not so.
inline const char* obstacle_of_padding(const Problem& problem) {
  const bool stand_for_several = problem.gradient && problem.mode != PaddingMode::zeros;
  return stand_for_several ? "adds no gradients of padding other than zeros" : "";
}

template <class T, class Real>
Real element(const Images& images, std::int64_t n, std::int64_t c, std::int64_t h, std::int64_t w) {
  return widen<Real>(*reinterpret_cast<const T*>(images.at(n, c, h, w)));
}

// Arrays of one line of results of a phase, from a channel on, for what becomes of sums.
inline matmul::Arrays arrays_of(const Problem& p, std::int64_t n, std::int64_t channel,
                                std::int64_t row, std::int64_t col, std::int64_t step) {
  const auto array = [&](const Images& images) {
    return images ? matmul::Array{images.at(n, channel, row, col), images.dtype, images.c,
                                  images.w * step}
                  : matmul::Array{};
  };
  matmul::Arrays result;
  result.bias = p.bias.moved(channel, 0);
  result.residual = array(p.residual);
  result.y = array(p.result);
  result.pre = array(p.pre);
  return result;
}

}  // namespace isobit::convolution
