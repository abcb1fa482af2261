// SPDX-License-Identifier: Apache-2.0
// Loops over the vectors of one row, for kernels that compute a row at a time.
#pragma once

#include <cstdint>
#include <limits>

#include "isobit/simd/lanes.h"
#include "isobit/simd/lines.h"
#include "isobit/simd/stores.h"

namespace isobit::simd {

// Calls body(i, part...) for all vectors of a row.
template <class S, class Body>
ISOBIT_INLINE void for_each_vector(std::int64_t cols, const Body& body) {
  std::int64_t i = 0;
  for (; i + S::kWidth <= cols; i += S::kWidth) body(i);
  if (i < cols) body(i, S::first(cols - i));
}

// y[i] = value(i, part...), past the caches where that is asked for and pays; then a fence must
// follow.
template <class S, class T, class Value>
ISOBIT_INLINE void store_row(T* y, std::int64_t cols, bool streaming, const Value& value) {
  const auto store = [&](std::int64_t begin, std::int64_t end) ISOBIT_INLINE_LAMBDA {
    for_each_vector<S>(end - begin, [&](std::int64_t i, auto... part) ISOBIT_INLINE_LAMBDA {
      S::template store<Stores::cached>(y + begin + i, value(begin + i, part...), part...);
    });
  };
  std::int64_t done = 0;
  if constexpr (S::kWidth > 1)  // a single lane has no streaming stores
    if (streaming && streams_lines(y, cols)) {
      constexpr int kLine = 64 / sizeof(T);
      done = before_lines(y, cols);
      store(0, done);
      for (; done + kLine <= cols; done += kLine)
#pragma GCC unroll 8
        for (int j = 0; j < kLine; j += S::kWidth)
          S::template store<Stores::streaming>(y + done + j, value(done + j));
    }
  store(done, cols);
}

// The largest sign x of a row; NaN is passed over.
template <class S, class T>
ISOBIT_INLINE typename S::Real largest_of(const T* x, std::int64_t cols, typename S::Real sign) {
  using Real = typename S::Real;
  constexpr int kAtOnce = 4;  // to hide the latency of a comparison
  const auto least = S::all(-std::numeric_limits<Real>::infinity()), signs = S::all(sign);
  typename S::V most[kAtOnce] = {least, least, least, least};
  std::int64_t i = 0;
  for (; i + kAtOnce * S::kWidth <= cols; i += kAtOnce * S::kWidth)
#pragma GCC unroll 4
    for (int j = 0; j < kAtOnce; ++j)
      most[j] = S::max(S::mul(S::load(x + i + j * S::kWidth), signs), most[j]);
  for (; i + S::kWidth <= cols; i += S::kWidth)
    most[0] = S::max(S::mul(S::load(x + i), signs), most[0]);
  for (int j = 1; j < kAtOnce; ++j) most[0] = S::max(most[j], most[0]);
  Real lanes[S::kWidth], largest = -std::numeric_limits<Real>::infinity();
  S::template store<Stores::cached>(lanes, most[0]);
  for (const Real lane : lanes) largest = lane > largest ? lane : largest;
  for (; i < cols; ++i) {
    const Real value = widen<Real>(x[i]) * sign;
    largest = value > largest ? value : largest;
  }
  return largest;
}

// The largest sign x of a row of an element or more, but for the last comparisons, within a vector.
template <class S, class T>
ISOBIT_INLINE typename S::V largest_of_lanes(const T* x, std::int64_t cols, typename S::Real sign) {
  const auto signs = S::all(sign);
  auto most = S::all(-std::numeric_limits<typename S::Real>::infinity());
  if (cols < S::kWidth) {
    const auto part = S::first(cols);
    const auto there = S::less(S::zero(), S::only(S::all(1), part));
    return S::choose(there, S::max(S::mul(S::load(x, part), signs), most), most);
  }
  for (std::int64_t i = 0; i + S::kWidth <= cols; i += S::kWidth)
    most = S::max(S::mul(S::load(x + i), signs), most);
  return S::max(S::mul(S::load(x + cols - S::kWidth), signs), most);  // some of it again
}
// The largest elements of these rows, one in each lane.
template <class S>
ISOBIT_INLINE typename S::V largest_of_each(typename S::V (&rows)[S::kWidth]) {
  transpose<S>(rows);
#pragma GCC unroll 4
  for (int half = S::kWidth / 2; half >= 1; half /= 2)
#pragma GCC unroll 8
    for (int k = 0; k < half; ++k) rows[k] = S::max(rows[k], rows[k + half]);
  return rows[0];
}

}  // namespace isobit::simd
