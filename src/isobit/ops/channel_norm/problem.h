// SPDX-License-Identifier: Apache-2.0
// Calls of group_norm and batch_norm after their check: rows of elements that are summed together.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "isobit/core/dtype.h"
#include "isobit/core/inline.h"
#include "isobit/dispatch/variant.h"
#include "isobit/ops/channel_norm/channel_norm.h"

namespace isobit::channel_norm {

// An array (batch, channels, extent). No data where it is not given.
struct Images {
  std::byte* data = nullptr;
  std::int64_t n = 0, c = 0, l = 0;  // elements from one to the next
  std::int64_t first = 0;            // the place of the element that data points to

  ISOBIT_INLINE explicit operator bool() const { return data != nullptr; }
};

// A row that is summed: `extent` elements of each of its segments, which are channels of one image
// or the images of one channel.
struct Row {
  std::int64_t image, channel;  // of the first segment
  bool over_images;
  std::int64_t segments, extent;

  ISOBIT_INLINE std::int64_t count() const { return segments * extent; }
  ISOBIT_INLINE std::int64_t image_of(std::int64_t segment) const {
    return over_images ? image + segment : image;
  }
  ISOBIT_INLINE std::int64_t channel_of(std::int64_t segment) const {
    return over_images ? channel : channel + segment;
  }
  // Where an element stands in an array, counted in elements.
  ISOBIT_INLINE std::int64_t place(const Images& array, std::int64_t segment,
                                   std::int64_t l) const {
    return image_of(segment) * array.n + channel_of(segment) * array.c + l * array.l - array.first;
  }
  // From one segment to the next.
  ISOBIT_INLINE std::int64_t step(const Images& array) const {
    return over_images ? array.n : array.c;
  }
};

// One number or some for each row, of images and groups, or of channels. No data where it is not
// given.
struct OfRows {
  std::byte* data = nullptr;
  std::int64_t groups = 1, n = 0, g = 1;  // of an image; elements from one to the next
  std::int64_t step = 1;                  // from one of a row's numbers to the next

  ISOBIT_INLINE explicit operator bool() const { return data != nullptr; }
  ISOBIT_INLINE std::int64_t place(std::int64_t row, int number = 0) const {
    const std::int64_t first = groups == 0 ? row * g : row / groups * n + row % groups * g;
    return first + number * step;
  }
};

// What both passes take. Of what is not given there is no pointer.
struct Given {
  DType dtype = DType::f32, weight_dtype = DType::f32;
  std::int64_t batch = 0, channels = 0, extent = 0;
  std::int64_t groups = 0;  // of an image; 0: channels are normalised over all images
  Images x;
  const std::byte *weight = nullptr, *running_mean = nullptr, *running_var = nullptr;
  bool training = true;  // whether the statistics are those of x
  double eps = 0;

  // What is computed in, and the type of statistics.
  DType real() const { return dtype == DType::f64 ? DType::f64 : DType::f32; }

  // Rows that have statistics.
  ISOBIT_INLINE std::int64_t rows() const { return groups == 0 ? channels : batch * groups; }
  ISOBIT_INLINE Row row(std::int64_t index) const {
    if (groups == 0) return of_channel(index);
    const std::int64_t of_group = channels / groups;
    return {index / groups, index % groups * of_group, false, of_group, extent};
  }
  ISOBIT_INLINE std::int64_t row_of(std::int64_t image, std::int64_t channel) const {
    return groups == 0 ? channel : image * groups + channel / (channels / groups);
  }
  // The elements that share a weight.
  ISOBIT_INLINE Row of_channel(std::int64_t channel) const {
    return {0, channel, true, batch, extent};
  }
};

struct ForwardProblem : Given {
  Images y;
  const std::byte* bias = nullptr;
  OfRows mean, rstd, moments;
  std::byte *next_mean = nullptr, *next_var = nullptr;
  double momentum = 0;
};

struct BackwardProblem : Given {
  Images grad_y, grad_x;
  OfRows moments;  // where they are not given, x is summed again
  std::byte *grad_weight = nullptr, *grad_bias = nullptr;

  bool wants_sums() const { return grad_weight != nullptr || grad_bias != nullptr; }
};

template <class Args>
using ForwardVariant = Variant<Args, ForwardProblem>;
template <class Args>
using BackwardVariant = Variant<Args, BackwardProblem>;

// Throw where a call breaks a rule; messages begin with `op`.
ForwardProblem check_forward(std::string_view op, const ForwardCall& call);
BackwardProblem check_backward(std::string_view op, const BackwardCall& call);

// Of the arguments of group_norm and of batch_norm.
template <class Args>
std::span<const ForwardVariant<Args>> cpu_forward_variants();
template <class Args>
std::span<const BackwardVariant<Args>> cpu_backward_variants();
template <class Args>
std::span<const ForwardVariant<Args>> cuda_forward_variants();  // in device libraries
template <class Args>
std::span<const BackwardVariant<Args>> cuda_backward_variants();

}  // namespace isobit::channel_norm
