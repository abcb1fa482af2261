// SPDX-License-Identifier: Apache-2.0
// A vector of 16 bytes, for the back ends whose Bytes are wider.
#pragma once

#include <immintrin.h>

#include "isobit/core/inline.h"

namespace isobit::simd {

// Of Bytes (vec_avx512.h), what a tile of one lane needs.
struct LaneX86 {
  using V = __m128i;
  static constexpr int kLanes = 1;

  template <class At>
  ISOBIT_INLINE static V load_lanes(const At& at) {
    return _mm_loadu_si128(reinterpret_cast<const __m128i*>(at(0)));
  }
  ISOBIT_INLINE static void store(void* p, V v) { _mm_storeu_si128(static_cast<__m128i*>(p), v); }
  template <class T>
  ISOBIT_INLINE static V zip_low(V a, V b) {
    if constexpr (sizeof(T) == 1) return _mm_unpacklo_epi8(a, b);
    if constexpr (sizeof(T) == 2) return _mm_unpacklo_epi16(a, b);
    if constexpr (sizeof(T) == 4) return _mm_unpacklo_epi32(a, b);
    if constexpr (sizeof(T) == 8) return _mm_unpacklo_epi64(a, b);
  }
  template <class T>
  ISOBIT_INLINE static V zip_high(V a, V b) {
    if constexpr (sizeof(T) == 1) return _mm_unpackhi_epi8(a, b);
    if constexpr (sizeof(T) == 2) return _mm_unpackhi_epi16(a, b);
    if constexpr (sizeof(T) == 4) return _mm_unpackhi_epi32(a, b);
    if constexpr (sizeof(T) == 8) return _mm_unpackhi_epi64(a, b);
  }
};

}  // namespace isobit::simd
