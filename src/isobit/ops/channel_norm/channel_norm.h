// SPDX-License-Identifier: Apache-2.0
// The arguments of group_norm and of batch_norm, and a call of either in the words that both share.
#pragma once

#include <cstdint>

#include "isobit/core/tensor_view.h"

namespace isobit::channel_norm {

// The moments of a row, of which its statistics are made: a first mean m, and the sums of x - m and
// of its square.
inline constexpr std::int64_t kMoments = 3;

// group_norm: y = (x - mean) / sqrt(var + eps) * weight + bias, with mean and variance of each
// group of channels / groups adjacent channels of an image. Arrays may have any strides, so that
// channels may come last in memory. y may be x.
struct GroupForwardArgs {
  TensorView x;                       // (batch, channels, extent)
  TensorView weight = {}, bias = {};  // (channels), optional; of x's type or f32
  TensorView y;                       // like x
  TensorView mean = {}, rstd = {};    // (batch, groups), optional; f32, or f64 beside f64
  TensorView moments = {};            // (batch, groups, 3), optional; like mean: for backward
  std::int64_t groups = 1;
  double eps = 1e-5;
};

// Every output is optional. Without moments x is summed again; the bits are the same.
struct GroupBackwardArgs {
  TensorView x, grad_y;                         // (batch, channels, extent)
  TensorView weight = {};                       // (channels), optional
  TensorView moments = {};                      // as forward gave them, optional
  TensorView grad_x = {};                       // like x
  TensorView grad_weight = {}, grad_bias = {};  // (channels); of weight's type
  std::int64_t groups = 1;
  double eps = 1e-5;
};

// batch_norm: y = (x - mean) / sqrt(var + eps) * weight + bias for each channel. In training mean
// and variance are those of the channel, over all images; otherwise the running ones. Arrays may
// have any strides, so that channels may come last in memory. y may be x, and next_* running_*.
struct BatchForwardArgs {
  TensorView x;                                    // (batch, channels, extent)
  TensorView weight = {}, bias = {};               // (channels), optional; of x's type or f32
  TensorView running_mean = {}, running_var = {};  // (channels); f32, or f64 beside f64
  TensorView y;                                    // like x
  TensorView mean = {}, rstd = {};                 // like running_mean, optional
  TensorView next_mean = {}, next_var = {};        // like running_mean, optional, in training:
                                                   // (1 - momentum) running + momentum new
  TensorView moments = {};                         // (channels, 3), optional: for backward
  bool training = false;
  double momentum = 0.1, eps = 1e-5;
};

// Every output is optional. In training no running statistics are read; without moments x is summed
// again, and the bits are the same.
struct BatchBackwardArgs {
  TensorView x, grad_y;                            // (batch, channels, extent)
  TensorView weight = {};                          // (channels), optional
  TensorView running_mean = {}, running_var = {};  // as in forward, without training
  TensorView moments = {};                         // as forward gave them, optional, in training
  TensorView grad_x = {};                          // like x
  TensorView grad_weight = {}, grad_bias = {};     // (channels); of weight's type
  bool training = false;
  double eps = 1e-5;
};

// groups: of an image; 0 where each channel is normalised over all images, as batch_norm does.
struct ForwardCall {
  TensorView x, weight, bias, running_mean, running_var, y, mean, rstd, next_mean, next_var,
      moments;
  std::int64_t groups = 0;
  bool training = true;
  double momentum = 0, eps = 0;
};
struct BackwardCall {
  TensorView x, grad_y, weight, running_mean, running_var, moments, grad_x, grad_weight, grad_bias;
  std::int64_t groups = 0;
  bool training = true;
  double eps = 0;
};

inline ForwardCall in_common(const GroupForwardArgs& args) {
  return {.x = args.x,
          .weight = args.weight,
          .bias = args.bias,
          .running_mean = {},
          .running_var = {},
          .y = args.y,
          .mean = args.mean,
          .rstd = args.rstd,
          .next_mean = {},
          .next_var = {},
          .moments = args.moments,
          .groups = args.groups == 0 ? 1 : args.groups,
          .eps = args.eps};
}
inline ForwardCall in_common(const BatchForwardArgs& args) {
  return {.x = args.x,
          .weight = args.weight,
          .bias = args.bias,
          .running_mean = args.running_mean,
          .running_var = args.running_var,
          .y = args.y,
          .mean = args.mean,
          .rstd = args.rstd,
          .next_mean = args.next_mean,
          .next_var = args.next_var,
          .moments = args.moments,
          .training = args.training,
          .momentum = args.momentum,
          .eps = args.eps};
}
inline BackwardCall in_common(const GroupBackwardArgs& args) {
  return {.x = args.x,
          .grad_y = args.grad_y,
          .weight = args.weight,
          .running_mean = {},
          .running_var = {},
          .moments = args.moments,
          .grad_x = args.grad_x,
          .grad_weight = args.grad_weight,
          .grad_bias = args.grad_bias,
          .groups = args.groups == 0 ? 1 : args.groups,
          .eps = args.eps};
}
inline BackwardCall in_common(const BatchBackwardArgs& args) {
  return {.x = args.x,
          .grad_y = args.grad_y,
          .weight = args.weight,
          .running_mean = args.running_mean,
          .running_var = args.running_var,
          .moments = args.moments,
          .grad_x = args.grad_x,
          .grad_weight = args.grad_weight,
          .grad_bias = args.grad_bias,
          .training = args.training,
          .eps = args.eps};
}

}  // namespace isobit::channel_norm
