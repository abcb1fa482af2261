// SPDX-License-Identifier: Apache-2.0
// Results of the shape of images, which have the channels last in memory where inputs have.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "isobit/torch/call.h"

namespace isobit::torch {

using Sizes = std::vector<std::int64_t>;

inline Sizes strides_with_channels_last(const Sizes& sizes) {
  Sizes strides(sizes.size());
  std::int64_t step = sizes[1];
  for (std::size_t i = sizes.size() - 1; i > 1; step *= sizes[i--]) strides[i] = step;
  strides[1] = 1;
  strides[0] = step;
  return strides;
}

inline bool lies_with_channels_last(const Tensor& tensor) {
  const Shape sizes = tensor.shape(), strides = tensor.strides();
  const auto lies_as = [&](const auto& expected) {
    for (std::size_t i = 0; i < sizes.size(); ++i)
      if (sizes[i] != 1 && strides[i] != expected[i]) return false;
    return true;
  };
  if (std::ranges::find(sizes, 0) != sizes.end()) return false;
  return lies_as(strides_with_channels_last({sizes.begin(), sizes.end()})) &&
         !lies_as(dense_strides(sizes));
}

// As tensor.is_contiguous(memory_format=torch.channels_last) and not tensor.is_contiguous().
inline bool has_channels_last(const Tensor& tensor) {
  return tensor.rank() == 4 && lies_with_channels_last(tensor);
}

inline Tensor images_like(const Tensor& like, bool channels_last, const Sizes& sizes,
                          std::int32_t dtype) {
  if (channels_last)
    return new_strided_output(like, sizes, strides_with_channels_last(sizes), dtype);
  return new_output(like, sizes, dtype);
}

}  // namespace isobit::torch
