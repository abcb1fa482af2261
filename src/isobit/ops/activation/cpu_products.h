// SPDX-License-Identifier: Apache-2.0
// Products of floats in place of the formula's, which multiplies significands and exponents apart,
// for the instruction set of the file that asks.
#pragma once

#include <cstdint>
#include <limits>

#include "isobit/ops/activation/formula.h"
#include "isobit/simd/vec.h"

namespace isobit::activation::ISOBIT_ISA {

inline constexpr int kStep = 64;  // elements: whole lines at a time, as streaming stores need

// The vectors of a step that is computed in floats.
struct StepOfFloats {
  static constexpr int kWidth = simd::F32::kWidth;
  simd::F32::V vectors[kStep / kWidth];

  ISOBIT_INLINE simd::F32::V& at(int i) { return vectors[i / kWidth]; }
  ISOBIT_INLINE simd::F32::V at(int i) const { return vectors[i / kWidth]; }
};

// Whether at(i), of the elements from i on, is true of all elements of a step.
template <class At>
ISOBIT_INLINE bool all_of_step(const At& at) {
  using S = simd::F32;
  auto mask = at(0);
#pragma GCC unroll 8
  for (int i = S::kWidth; i < kStep; i += S::kWidth) mask = S::both(mask, at(i));
  return S::everywhere(mask);
}

// Whether these products are the formula's: both ways are the same in the range of normal numbers,
// and where a factor is zero, which is asked only where something is not in that range.
template <class T>
ISOBIT_INLINE bool are_the_formulas(const StepOfFloats& products, const T* factors) {
  using S = simd::F32;
  constexpr float kLargestSubnormal = 0x0.fffffep-126f;
  const auto is_normal = [&](int i) ISOBIT_INLINE_LAMBDA {
    return S::less(S::all(kLargestSubnormal), functions::magnitude<S>(products.at(i)));
  };
  const auto is_normal_or_of_zero = [&](int i) ISOBIT_INLINE_LAMBDA {
    const auto size = functions::magnitude<S>(products.at(i));
    const auto factor = functions::magnitude<S>(S::load(factors + i));
    return S::less(S::all(kLargestSubnormal),
                   S::choose(S::less(S::zero(), factor), size, S::add(size, S::all(1))));
  };
  return all_of_step(is_normal) || all_of_step(is_normal_or_of_zero);
}

// For what is multiplied once more, which might bring an overflow back.
ISOBIT_INLINE bool are_finite(const StepOfFloats& products) {
  using S = simd::F32;
  return all_of_step([&](int i) ISOBIT_INLINE_LAMBDA {
    return S::less(functions::magnitude<S>(products.at(i)),
                   S::all(std::numeric_limits<float>::infinity()));
  });
}

}  // namespace isobit::activation::ISOBIT_ISA
