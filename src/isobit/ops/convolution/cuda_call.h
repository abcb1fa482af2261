// SPDX-License-Identifier: Apache-2.0
// A call as the kernels for GPUs see it.
#pragma once

#include <cstdint>

#include "isobit/core/order.h"
#include "isobit/ops/convolution/formula.h"
#include "isobit/ops/convolution/problem.h"
#include "isobit/ops/matmul/cuda_call.h"
#include "isobit/simt/simt.h"

namespace isobit::convolution {

using matmul::RealOf;
using matmul::wide;

// The elements of images of one type.
template <class T>
struct Source {
  const T* data;
  std::int64_t n, c, h, w;

  explicit Source(const Images& images)
      : data(reinterpret_cast<const T*>(images.data)),
        n(images.n),
        c(images.c),
        h(images.h),
        w(images.w) {}
  ISOBIT_DEVICE const T* at(std::int64_t image, std::int64_t channel) const {
    return data + image * n + channel * c;
  }
};

// What becomes of sums: rows of products are channels, and each row of an image is a product.
inline matmul::Problem finish_in_loops(const Problem& problem) {
  matmul::Problem result = finish_problem(problem);
  result.m = problem.groups * problem.outs;
  result.loop_count = 2;
  result.loops[0].extent = problem.batch;
  result.loops[1].extent = problem.h.results;
  const auto steps = [&](std::size_t place, const Images& images) {
    result.loops[0].steps[place] = images.n;
    result.loops[1].steps[place] = images.h;
  };
  steps(4, problem.residual);
  steps(5, problem.result);
  steps(6, problem.pre);
  return result;
}

// A call whose elements are Ts.
template <class T>
struct Call {
  using Real = RealOf<T>;

  Axis h, w;
  PaddingMode mode;
  bool gradient;
  std::int64_t batch, groups, ins, outs;
  Source<T> source;
  const T* weights;
  std::int64_t weight_group, weight_out, weight_in, weight_h, weight_w;
  matmul::Call<T> finish;

  explicit Call(const Problem& problem)
      : h(problem.h),
        w(problem.w),
        mode(problem.mode),
        gradient(problem.gradient),
        batch(problem.batch),
        groups(problem.groups),
        ins(problem.ins),
        outs(problem.outs),
        source(problem.source),
        weights(reinterpret_cast<const T*>(problem.weight.data)),
        weight_group(problem.weight.group),
        weight_out(problem.weight.out),
        weight_in(problem.weight.in),
        weight_h(problem.weight.h),
        weight_w(problem.weight.w),
        finish(finish_in_loops(problem)) {}

  ISOBIT_EITHER std::int64_t results() const {
    return batch * groups * outs * h.results * w.results;
  }

  // Where a tap of a window sees its source, or -1.
  ISOBIT_DEVICE std::int64_t place(const Axis& axis, std::int64_t result, std::int64_t tap) const {
    return gradient ? axis.landing(result, tap)
                    : padded(mode, axis.window(result, tap), axis.sources);
  }
  ISOBIT_DEVICE const T* filter(std::int64_t channel) const {
    return weights + channel / outs * weight_group + channel % outs * weight_out;
  }
};

}  // namespace isobit::convolution
