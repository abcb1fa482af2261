// SPDX-License-Identifier: Apache-2.0
// Vectors with a square root, which is correctly rounded. Few kernels take one.
#pragma once

#include <cmath>
#include <type_traits>

#include "isobit/simd/vec.h"

namespace isobit::simd {

template <class S>
struct WithRoots : S {
  using V = typename S::V;

  ISOBIT_INLINE static V sqrt(V x) {
    [[maybe_unused]] constexpr bool kDoubles = sizeof(typename S::Real) == 8;
    if constexpr (S::kWidth == 1) {
      return std::sqrt(x);
    } else {
#if defined(__AVX512F__)
      if constexpr (kDoubles)
        return _mm512_sqrt_pd(x);
      else
        return _mm512_sqrt_ps(x);
#elif defined(__AVX2__)
      if constexpr (kDoubles)
        return _mm256_sqrt_pd(x);
      else
        return _mm256_sqrt_ps(x);
#elif defined(__aarch64__)
      if constexpr (kDoubles)
        return vsqrtq_f64(x);
      else
        return vsqrtq_f32(x);
#endif
    }
  }
};

}  // namespace isobit::simd
