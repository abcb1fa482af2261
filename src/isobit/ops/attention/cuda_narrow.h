// SPDX-License-Identifier: Apache-2.0
// Weights and values of 16 bits, as tensor cores take them.
#pragma once

#include <cstdint>
#include <type_traits>

#include "isobit/ops/attention/problem.h"
#include "isobit/simt/simt.h"
#include "isobit/tile/scalar.h"

namespace isobit::attention {

// Weights are at most 2^(1/2), and become f16 2^15 times as large: then those of 2^-29 and more
// have all digits of one. bf16 has the exponents of f32.
template <class T>
inline constexpr float kLift = std::is_same_v<T, f16> ? 0x1p15F : 1.0F;

// Whether elements are infinite or NaN: these bits are set.
template <class T>
inline constexpr unsigned kEndless = std::is_same_v<T, f16> ? 0x7c00U : 0x7f80U;
template <class T>
ISOBIT_DEVICE bool is_endless(unsigned element) {
  return (element & kEndless<T>) == kEndless<T>;
}
// Two elements, with zeros for what is not finite.
template <class T>
ISOBIT_DEVICE unsigned finite(unsigned pair) {
  if (is_endless<T>(pair)) pair &= 0xffff0000U;
  if (is_endless<T>(pair >> 16)) pair &= 0xffffU;
  return pair;
}
template <class T>
ISOBIT_DEVICE float wide(unsigned element) {
  return simt::Conversions::template widen<float>(T{static_cast<std::uint16_t>(element)});
}

// Two of them in a word.
template <class T>
ISOBIT_DEVICE unsigned narrow_pair(float lower, float upper) {
  const float pair[2] = {lower, upper};
  T narrow[2];
  simt::narrow_all(pair, narrow);
  return narrow[0].bits | unsigned{narrow[1].bits} << 16;
}

// What is not finite in `values`, a panel's lines by 8 * kColumns columns, times the weights of the
// rows that see it, from +0: of a warp's 16 rows as tensor cores take weights and leave sums.
template <class T, class Values, int kSteps, int kColumns>
ISOBIT_DEVICE void begin_with_what_is_not_finite(const Values& values,
                                                 const unsigned (&weights)[kSteps][4],
                                                 float (&chain)[kColumns][4]) {
  constexpr int kStep = 16;
  unsigned rest[kSteps][4];
#pragma unroll
  for (int step = 0; step < kSteps; ++step)
#pragma unroll
    for (int i = 0; i < 4; ++i) rest[step][i] = weights[step][i];
#pragma unroll 1
  for (int key = 0; key < kSteps * kStep; ++key) {
    // Who has the weights of this key.
    const int from = simt::lane() / 4 * 4 + key % 8 / 2, shift = key % 2 * 16;
    unsigned of_row[2];
#pragma unroll
    for (int r = 0; r < 2; ++r)
      of_row[r] =
          simt::shuffle(key % kStep < 8 ? rest[0][r] : rest[0][2 + r], from) >> shift & 0xffffU;
#pragma unroll
    for (int j = 0; j < kColumns; ++j) {
      const unsigned pair = simt::load_shared(reinterpret_cast<const unsigned*>(
          values.piece(key / 8 * 8, key % 8, j) + simt::lane() % 4 * 2));
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const unsigned value = pair >> e % 2 * 16 & 0xffffU, weight = of_row[e / 2];
        if (is_endless<T>(value) && weight != 0x8000U)  // which is what is not there
          chain[j][e] = tile::Scalar<float>::fma(wide<T>(weight), wide<T>(value), chain[j][e]);
      }
    }
    if (key % kStep == kStep - 1) {  // registers have no index: the next come to the front
#pragma unroll
      for (int step = 0; step + 1 < kSteps; ++step)
#pragma unroll
        for (int i = 0; i < 4; ++i) rest[step][i] = rest[step + 1][i];
    }
  }
}

}  // namespace isobit::attention
