// SPDX-License-Identifier: Apache-2.0
// Channels that are neighbours in memory, copied to lines of their own and back: transposed in
// registers. Compiled once for each instruction set.
#include "isobit/ops/channel_norm/cpu_elements.h"
#include "isobit/ops/channel_norm/cpu_staged.h"
#include "isobit/simd/lanes.h"
#include "isobit/simd/row_loops.h"

namespace isobit::channel_norm::ISOBIT_ISA {
namespace {

template <class S, class T>
ISOBIT_INLINE void store(T* to, typename S::V value, std::int64_t count) {
  if (count >= S::kWidth)
    S::template store<simd::Stores::cached>(to, value);
  else
    S::template store<simd::Stores::cached>(to, value, S::first(count));
}

template <class S, class T>
void gather(const Images& from, const Row& channels, std::byte* to) {
  T* const lines = reinterpret_cast<T*>(to);
  for (std::int64_t l = 0; l < channels.extent; l += S::kWidth) {
    const T* first = reinterpret_cast<const T*>(from.data) + channels.place(from, 0, l);
    const std::int64_t left = channels.extent - l;
    for (int i = 0; i < S::kWidth; ++i) fetch(first + (S::kWidth + i) * from.l, channels.segments);
    simd::across<S, 1>(first, from.l, left, channels.segments,
                       [&](std::int64_t c, const auto& vectors) ISOBIT_INLINE_LAMBDA {
                         store<S>(lines + c * channels.extent + l, vectors[0], left);
                       });
  }
}

template <class S, class T>
void scatter(const std::byte* from, const Row& channels, const Images& to) {
  const T* const lines = reinterpret_cast<const T*>(from);
  for (std::int64_t c = 0; c < channels.segments; c += S::kWidth) {
    T* first = reinterpret_cast<T*>(to.data) + channels.place(to, c, 0);
    const std::int64_t left = channels.segments - c;
    simd::across<S, 1>(lines + c * channels.extent, channels.extent, left, channels.extent,
                       [&](std::int64_t l, const auto& vectors) ISOBIT_INLINE_LAMBDA {
                         fetch<true>(first + (l + S::kWidth) * to.l, S::kWidth);
                         store<S>(first + l * to.l, vectors[0], left);
                       });
  }
}

template <class S, class T>
Copies copies_of() {
  return {gather<S, T>, scatter<S, T>};
}

}  // namespace

Copies copies(DType dtype) {
  switch (dtype) {
    case DType::f16:  return copies_of<simd::F32, f16>();
    case DType::bf16: return copies_of<simd::F32, bf16>();
    case DType::f64:  return copies_of<simd::F64, double>();
    default:          return copies_of<simd::F32, float>();
  }
}

}  // namespace isobit::channel_norm::ISOBIT_ISA
