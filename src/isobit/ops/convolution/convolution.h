// SPDX-License-Identifier: Apache-2.0
// What callers of conv1d and conv2d include: both are one convolution, in one dimension of
// height 1.
#pragma once

#include <cstdint>

#include "isobit/core/execution.h"
#include "isobit/core/tensor_view.h"
#include "isobit/ops/matmul/matmul.h"

namespace isobit::convolution {

using matmul::Activation;

// What stands where a window reaches beyond its image: +0, or elements of the image.
enum class PaddingMode { zeros, reflect, replicate, circular };

// pre = the sum over a window of x times weight, plus bias; y = activation(pre) + residual, rounded
// once. All arrays may have any strides, so that channels may come first or last in memory. y may
// be residual.
struct ForwardArgs {
  TensorView x;              // (batch, channels, height, width)
  TensorView weight;         // (filters, channels / groups, kernel_h, kernel_w)
  TensorView bias = {};      // (filters), optional
  TensorView residual = {};  // like y, optional
  TensorView y;              // (batch, filters, out_height, out_width)
  TensorView pre = {};       // like y, optional
  std::int64_t stride_h = 1, stride_w = 1;
  std::int64_t dilation_h = 1, dilation_w = 1;
  std::int64_t padding_h = 0, padding_w = 0;              // before the first element
  std::int64_t extra_padding_h = 0, extra_padding_w = 0;  // so much more behind the last
  std::int64_t groups = 1;
  PaddingMode padding_mode = PaddingMode::zeros;
  Activation activation = Activation::none;
};

// The gradients of the convolution itself, each where it is given. x is read for grad_weight alone
// and weight for grad_x alone; both always say how large they are. grad_x is also what a transposed
// convolution computes.
struct BackwardArgs {
  TensorView grad_y;            // (batch, filters, out_height, out_width)
  TensorView x;                 // (batch, channels, height, width)
  TensorView weight;            // (filters, channels / groups, kernel_h, kernel_w)
  TensorView grad_x = {};       // like x, optional
  TensorView grad_weight = {};  // like weight, optional
  TensorView grad_bias = {};    // (filters), optional
  std::int64_t stride_h = 1, stride_w = 1;
  std::int64_t dilation_h = 1, dilation_w = 1;
  std::int64_t padding_h = 0, padding_w = 0;
  std::int64_t extra_padding_h = 0, extra_padding_w = 0;
  std::int64_t groups = 1;
  PaddingMode padding_mode = PaddingMode::zeros;
};

// The same in one dimension, whose arrays have no height.
struct ForwardArgs1d {
  TensorView x;              // (batch, channels, length)
  TensorView weight;         // (filters, channels / groups, kernel)
  TensorView bias = {};      // (filters), optional
  TensorView residual = {};  // like y, optional
  TensorView y;              // (batch, filters, out_length)
  TensorView pre = {};       // like y, optional
  std::int64_t stride = 1;
  std::int64_t dilation = 1;
  std::int64_t padding = 0;
  std::int64_t extra_padding = 0;
  std::int64_t groups = 1;
  PaddingMode padding_mode = PaddingMode::zeros;
  Activation activation = Activation::none;
};
struct BackwardArgs1d {
  TensorView grad_y;            // (batch, filters, out_length)
  TensorView x;                 // (batch, channels, length)
  TensorView weight;            // (filters, channels / groups, kernel)
  TensorView grad_x = {};       // like x, optional
  TensorView grad_weight = {};  // like weight, optional
  TensorView grad_bias = {};    // (filters), optional
  std::int64_t stride = 1;
  std::int64_t dilation = 1;
  std::int64_t padding = 0;
  std::int64_t extra_padding = 0;
  std::int64_t groups = 1;
  PaddingMode padding_mode = PaddingMode::zeros;
};

// What is not of an array, in the words of two dimensions.
template <class To, class From>
To with_windows_of(const From& args) {
  To result;
  result.stride_w = args.stride;
  result.dilation_w = args.dilation;
  result.padding_w = args.padding;
  result.extra_padding_w = args.extra_padding;
  result.groups = args.groups;
  result.padding_mode = args.padding_mode;
  return result;
}
// In the words of two dimensions, though arrays still have one less.
inline ForwardArgs in_two(const ForwardArgs1d& args) {
  ForwardArgs result = with_windows_of<ForwardArgs>(args);
  result.x = args.x;
  result.weight = args.weight;
  result.bias = args.bias;
  result.residual = args.residual;
  result.y = args.y;
  result.pre = args.pre;
  result.activation = args.activation;
  return result;
}
inline BackwardArgs in_two(const BackwardArgs1d& args) {
  BackwardArgs result = with_windows_of<BackwardArgs>(args);
  result.grad_y = args.grad_y;
  result.x = args.x;
  result.weight = args.weight;
  result.grad_x = args.grad_x;
  result.grad_weight = args.grad_weight;
  result.grad_bias = args.grad_bias;
  return result;
}
inline const ForwardArgs& in_two(const ForwardArgs& args) { return args; }
inline const BackwardArgs& in_two(const BackwardArgs& args) { return args; }

}  // namespace isobit::convolution
