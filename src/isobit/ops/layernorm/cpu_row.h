// SPDX-License-Identifier: Apache-2.0
// How the CPU walks a row of LayerNorm: shared by the kernels of both passes, compiled for each
// instruction set.
#pragma once

#include "isobit/ops/layernorm/cpu_specified_row.h"
#include "isobit/simd/row_sums.h"

namespace isobit::layernorm {

// A weight that may be absent: then every vector comes from one short block of its neutral value.
template <class W>
class Weight {
 public:
  // Absent: fallback is 1 for a weight and -0 for a bias, which no addition notices.
  ISOBIT_INLINE Weight(const void* data, const W* fallback)
      : data_(data != nullptr ? static_cast<const W*>(data) : fallback),
        mask_(data != nullptr ? -1 : order::kLanes - 1) {}
  ISOBIT_INLINE const W* at(std::int64_t i) const { return data_ + (i & mask_); }

 private:
  const W* data_;
  std::int64_t mask_;
};

// One cache line's worth of lanes of a neutral value, in the type of the weights.
template <class W>
struct Neutral {
  alignas(64) W ones[order::kLanes];
  alignas(64) W minus_zeros[order::kLanes];
  ISOBIT_INLINE Neutral() {
    for (int i = 0; i < order::kLanes; ++i) {
      ones[i] = from_float<W>(1.0f);
      minus_zeros[i] = from_float<W>(-0.0f);
    }
  }
};

ISOBIT_INLINE void prefetch(const void* address) { __builtin_prefetch(address, 0, 2); }

// A row as formula.h's statistics() wants it, with the usual sums in vectors.
template <class S, class T, bool kPrefetch>
class Row : public SpecifiedRow<S, T> {
 public:
  using V = typename S::V;
  using SpecifiedRow<S, T>::sum, SpecifiedRow<S, T>::deviations;

  // `next` is the row to be fetched while this one is summed; without kPrefetch it is not looked
  // at.
  ISOBIT_INLINE Row(const T* x, std::int64_t cols, const T* next)
      : SpecifiedRow<S, T>(x, cols), x_(x), next_(next), cols_(cols) {}

  ISOBIT_INLINE float sum() const {
    return simd::row_sum<S>(cols_, [x = x_](std::int64_t i, auto... part)
                                       ISOBIT_INLINE_LAMBDA { return S::load(x + i, part...); });
  }

  ISOBIT_INLINE Moments deviations(float mean) const {
    const V centre = S::all(mean);
    const auto get = [x = x_, next = next_, centre](std::int64_t i, auto... part)
                         ISOBIT_INLINE_LAMBDA {
                           if constexpr (kPrefetch && sizeof...(part) == 0) prefetch(next + i);
                           const V d = S::only(S::sub(S::load(x + i, part...), centre), part...);
                           return simd::Terms<S>{d, d};
                         };
    const simd::Sums sums = simd::row_sum_and_dot<S>(cols_, get);
    return {sums.sum, sums.dot};
  }

 private:
  const T* x_;
  const T* next_;
  std::int64_t cols_;
};

// Calls body(i, part...) for every vector of [begin, end), whole cache lines of T a turn: streaming
// stores want a line's vectors one after the other.
template <class S, class T, class Body>
ISOBIT_INLINE void for_each_vector(std::int64_t begin, std::int64_t end, const Body& body) {
  constexpr int kLine = 64 / sizeof(T);
  std::int64_t i = begin;
  for (; i + kLine <= end; i += kLine) {
#pragma GCC unroll 8
    for (int j = 0; j < kLine; j += S::kWidth) body(i + j);
  }
  for (; i + S::kWidth <= end; i += S::kWidth) body(i);
  if (i < end) body(i, S::first(end - i));
}

}  // namespace isobit::layernorm
