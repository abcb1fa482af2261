// SPDX-License-Identifier: Apache-2.0
// All gradients by one kernel, which adds those that are sums over rows atomically: as one writes
// it first, and as nobody should use it. The order of the rows, and so the bits, differ from run to
// run.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>

#include "isobit/dispatch/threads.h"
#include "isobit/norm_linear/cuda_fused.h"

namespace isobit::norm_linear {

// Zeros where sums begin.
struct ZeroSums {
  static constexpr int kMostThreads = 256;
  float *norm_weight, *norm_bias;
  matmul::Operand weight, bias;
  std::int64_t cols, features;

  ISOBIT_DEVICE void operator()() const {
    const std::int64_t step = simt::blocks() * simt::threads();
    const std::int64_t first = simt::block() * simt::threads() + simt::thread();
    for (std::int64_t c = first; c < cols; c += step) {
      if (norm_weight != nullptr) norm_weight[c] = 0;
      if (norm_bias != nullptr) norm_bias[c] = 0;
    }
    for (std::int64_t f = first; f < features; f += step)
      if (bias.data != nullptr) reinterpret_cast<float*>(bias.data)[f * bias.row] = 0;
    for (std::int64_t at = first; weight.data != nullptr && at < features * cols; at += step)
      reinterpret_cast<float*>(weight.data)[at / cols * weight.row + at % cols] = 0;
  }
};

// A row a block. Its gradient of y, and its s, lie in the block's part of the workspace.
template <class Formula>
struct AtomicGradients {
  static constexpr int kMostThreads = 512;
  using S = tile::Scalar<float>;

  matmul::Slopes<float> slopes;
  matmul::Operand x, weight, norm_weight, norm_bias, grad_sum;
  ZeroSums sums;
  float* grad_x;
  std::int64_t grad_x_stride, rows, cols, features;
  const norms::Statistics<float>* statistics;
  float* lines;  // of each block: cols, then features
  bool one_less;
  int threads;

  template <class Carver>
  ISOBIT_EITHER float* memory(Carver& carver) const {
    return carver.template take<float>(2 * threads);
  }

  ISOBIT_DEVICE void operator()(float* shared) const {
    for (std::int64_t row = simt::block(); row < rows; row += simt::blocks()) {
      const norms::Statistics<float>& found = statistics[row];
      if (found.plain)
        add(row, typename Formula::template Normalise<S>(found), shared);
      else
        add(row, typename Formula::template NormaliseAny<S>(found), shared);
    }
  }

 private:
  template <class Normalise>
  ISOBIT_DEVICE void add(std::int64_t row, const Normalise& normalise, float* shared) const {
    float *const into_y = lines + simt::block() * (cols + features), *const s = into_y + cols;
    const int thread = simt::thread();
    for (std::int64_t f = thread; f < features; f += simt::threads()) {
      s[f] = slopes(row, f);
      if (sums.bias.data != nullptr)
        simt::add_unordered(reinterpret_cast<float*>(sums.bias.data) + f * sums.bias.row, s[f]);
    }
    simt::sync_block();
    float sum = 0, dot = 0;
    for (std::int64_t c = thread; c < cols; c += simt::threads()) {
      float gradient = 0;
#pragma unroll 1
      for (std::int64_t f = 0; f < features; ++f)
        gradient = S::fma(s[f], matmul::read<float>(weight, weight.at(f, c)), gradient);
      into_y[c] = gradient;
      const float weighted = gradient * gamma(c);
      sum += weighted;
      dot = S::fma(weighted, normalise(matmul::read<float>(x, x.at(row, c))), dot);
    }
    const float mean = total(sum, shared) / static_cast<float>(cols);
    const float along = total(dot, shared + simt::threads()) / static_cast<float>(cols);
    for (std::int64_t c = thread; c < cols; c += simt::threads()) {
      const float xhat = normalise(matmul::read<float>(x, x.at(row, c))), gradient = into_y[c];
      if (sums.norm_weight != nullptr) simt::add_unordered(sums.norm_weight + c, gradient * xhat);
      if (sums.norm_bias != nullptr) simt::add_unordered(sums.norm_bias + c, gradient);
      const float beta = norm_bias.data == nullptr ? 0 : matmul::read<float>(norm_bias, c);
      const float y = S::fma(xhat, gamma(c), beta);
#pragma unroll 1
      for (std::int64_t f = 0; sums.weight.data != nullptr && f < features; ++f)
        simt::add_unordered(reinterpret_cast<float*>(sums.weight.data) + f * sums.weight.row + c,
                            s[f] * y);
      if (grad_x == nullptr) continue;
      float value = normalise.gradient(gradient * gamma(c), xhat, mean, along);
      if (grad_sum.data != nullptr) value += matmul::read<float>(grad_sum, grad_sum.at(row, c));
      grad_x[row * grad_x_stride + c] = value;
    }
    simt::sync_block();  // the lines are the next row's
  }

  ISOBIT_DEVICE float gamma(std::int64_t c) const {
    const float w = norm_weight.data == nullptr ? 1 : matmul::read<float>(norm_weight, c);
    return w + (one_less ? 1.0f : 0.0f);
  }
  ISOBIT_DEVICE static float total(float value, float* shared) {
    const int thread = simt::thread();
    shared[thread] = value;
    simt::sync_block();
    for (int step = simt::threads() / 2; step > 0; step /= 2) {
      if (thread < step) shared[thread] += shared[thread + step];
      simt::sync_block();
    }
    return shared[0];
  }
};

template <class Fused>
struct AtomicBackward {
  using Args = typename Fused::BackwardArgs;
  using Formula = typename Fused::Norm::Formula;
  using Statistics = norm_linear::Statistics<Formula>;
  using Kernel = AtomicGradients<Formula>;

  static constexpr int kBlocks[] = {1, 128, 1024};
  static constexpr Knob kKnobs[] = {{"blocks", kBlocks, "blocks, which take rows in turn"},
                                    threads_knob(Kernel::kMostThreads)};

  static std::string declines(const BackwardProblem& problem, const Machine& machine) {
    const bool floats = problem.norm.dtype == DType::f32 && problem.product.dtype == DType::f32 &&
                        problem.norm.weight_dtype == DType::f32 &&
                        (!problem.grad_bias.given() || problem.grad_bias.dtype == DType::f32);
    if (!floats) return "adds floats: all types must be f32";
    if (problem.product.arithmetic == matmul::Arithmetic::tensor) return "has no tensor arithmetic";
    if (problem.norm.dropout.drops()) return "has no dropout";
    return Statistics::declines(problem.again, machine);
  }
  static Plan choose(const BackwardProblem&, const Machine&) { return {kBlocks[2], 256}; }
  static std::size_t workspace(const BackwardProblem& problem, const Plan& plan, const Machine&) {
    return Room(problem, plan).pieces.taken();
  }
  static void run(const Args&, const BackwardProblem& problem, const Plan& plan,
                  const Execution& execution) {
    const Room room(problem, plan, execution.workspace);
    const norms::BackwardProblem& norm = problem.norm;
    const auto of_columns = [](const void* data) {
      return matmul::Operand{
          static_cast<std::byte*>(const_cast<void*>(data)), DType::f32, 0, 1, {}};
    };
    const auto of_rows = [](const Matrix& matrix) {
      return matmul::Operand{matrix.data, DType::f32, matrix.stride, 1, {}};
    };
    const auto of_view = [](const TensorView& view) {
      return matmul::Operand{static_cast<std::byte*>(view.data),
                             DType::f32,
                             view.strides[0],
                             view.rank == 2 ? view.strides[1] : 1,
                             {}};
    };
    const std::int64_t cols = norm.cols, features = problem.product.features;
    const ZeroSums sums{static_cast<float*>(norm.grad_weight),
                        static_cast<float*>(norm.grad_bias),
                        of_view(problem.grad_weight),
                        of_view(problem.grad_bias),
                        cols,
                        features};
    matmul::launch(sums, std::max<std::int64_t>(1, (features * cols + 255) / 256), 256, execution);
    if (norm.rows == 0) return;
    Statistics::run(problem.again, room.statistics, execution);
    const Kernel kernel{matmul::Slopes<float>(gradient_of_bias(problem)),
                        of_rows(norm.x),
                        of_view(problem.product.weight),
                        of_columns(norm.weight),
                        of_columns(problem.again.bias),
                        of_rows(norm.grad_sum),
                        sums,
                        reinterpret_cast<float*>(norm.grad_x.data),
                        norm.grad_x.stride,
                        norm.rows,
                        cols,
                        features,
                        reinterpret_cast<const norms::Statistics<float>*>(room.statistics),
                        reinterpret_cast<float*>(room.lines),
                        norm.zero_centered,
                        plan[1]};
    matmul::launch(kernel, std::min<std::int64_t>(norm.rows, plan[0]), plan[1], execution);
  }

 private:
  struct Room {
    Pieces pieces;
    std::byte *statistics, *lines;

    Room(const BackwardProblem& problem, const Plan& plan, std::byte* memory = nullptr)
        : pieces(memory),
          statistics(pieces.take(Statistics::bytes(problem.again))),
          lines(pieces.take(std::min<std::int64_t>(problem.norm.rows, plan[0]) *
                            (problem.norm.cols + problem.product.features) * 4)) {}
  };
};

}  // namespace isobit::norm_linear
