// SPDX-License-Identifier: Apache-2.0
// Arrays of floats, views of them, and an allocator that counts, for tests of products.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <vector>

#include "isobit/core/tensor_view.h"

namespace isobit {

inline constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
inline constexpr float kInfinity = std::numeric_limits<float>::infinity();

using Floats = std::vector<float>;

// Any numbers near 1.
inline Floats numbers(std::int64_t count, std::uint32_t state = 1) {
  Floats values(static_cast<std::size_t>(count));
  for (float& value : values)
    value = static_cast<float>((state = state * 1664525u + 1013904223u) >> 8) * 0x1p-23f - 1;
  return values;
}

inline TensorView view(const float* data, std::vector<std::int64_t> shape,
                       std::vector<std::int64_t> strides = {}) {
  TensorView result{const_cast<float*>(data), 0, DType::f32, static_cast<int>(shape.size())};
  std::int64_t step = 1, last = 0;
  for (std::size_t i = shape.size(); i-- > 0;) {
    result.shape[i] = shape[i];
    result.strides[i] = strides.empty() ? step : strides[i];
    last += (shape[i] - 1) * result.strides[i];
    step *= shape[i];
  }
  result.bytes = (last + 1) * 4;
  return result;
}

inline bool same(const Floats& a, const Floats& b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * 4) == 0);
}

// Memory that a call takes beside its arrays, at its largest.
struct Counted {
  std::int64_t now = 0, most = 0;
  bool grants = true;  // otherwise a call says what it would take, and is over

  static void* take(void* self, std::size_t bytes) {
    auto* counted = static_cast<Counted*>(self);
    counted->most = std::max(counted->most, counted->now + static_cast<std::int64_t>(bytes));
    if (!counted->grants) return nullptr;
    counted->now += static_cast<std::int64_t>(bytes);
    return std::malloc(bytes);
  }
  static void give_back(void* self, void* memory, std::size_t bytes) {
    static_cast<Counted*>(self)->now -= static_cast<std::int64_t>(bytes);
    std::free(memory);
  }
};

}  // namespace isobit
