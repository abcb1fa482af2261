// SPDX-License-Identifier: Apache-2.0
// Arrays of images of any strides after their check.
#pragma once

#include <cstddef>
#include <cstdint>

#include "isobit/core/inline.h"
#include "isobit/core/tensor_view.h"

namespace isobit {

// No data where it is not given.
struct Images {
  std::byte* data = nullptr;
  std::int64_t n = 0, c = 0, h = 0, w = 0;  // elements from one to the next

  template <class T>
  ISOBIT_INLINE T* at(std::int64_t image, std::int64_t channel, std::int64_t row,
                      std::int64_t col) const {
    return reinterpret_cast<T*>(data) + image * n + channel * c + row * h + col * w;
  }
};

inline Images images(const TensorView& view) {
  if (!view.given()) return {};
  return {static_cast<std::byte*>(view.data), view.strides[0], view.strides[1], view.strides[2],
          view.strides[3]};
}

}  // namespace isobit
