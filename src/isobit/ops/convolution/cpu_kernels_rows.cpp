// SPDX-License-Identifier: Apache-2.0
// One filter along rows of results: what a line of sources is loaded for serves several rows.
// Compiled once for each instruction set.
#include <cstdint>
#include <type_traits>
#include <utility>

#include "isobit/ops/convolution/cpu_kernels.h"
#include "isobit/simd/vec.h"

namespace isobit::convolution::ISOBIT_ISA {
namespace {

// Sums of so many rows and vectors leave registers for what they are made of. An fma takes four
// cycles, and two begin in each: eight sums keep them busy.
#if ISOBIT_JOIN(ISOBIT_ISA_, ISOBIT_ISA) == ISOBIT_ISA_avx512 || \
    ISOBIT_JOIN(ISOBIT_ISA_, ISOBIT_ISA) == ISOBIT_ISA_neon
constexpr int kMostRows = 6, kMostVectors = 4;
#else
constexpr int kMostRows = 4, kMostVectors = 2;
#endif
constexpr int kVectorsOfOne = 8;

template <class S, bool kWhole, class Value>
ISOBIT_INLINE void put(typename S::Real* to, std::int64_t left, Value value) {
  using simd::Stores;
  if (kWhole || left >= S::kWidth)
    S::template store<Stores::cached>(to, value);
  else
    S::template store<Stores::cached>(to, value, S::first(left));
}

// kVectors vectors of kRows rows from (row, col) on; the last may be a part. Row r meets line s as
// its tap row s - r: first one row after the other begins, then all go on, then one after the other
// ends. Where it is known how many tap rows there are, kTaps, fewer may go on than rows.
template <class S, int kRows, int kVectors, int kTaps>
void block(const Rows& rows, std::int64_t row, std::int64_t col) {
  using Real = typename S::Real;
  using V = typename S::V;
  V sums[kRows][kVectors];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) sums[r][v] = S::zero();
  const std::int64_t in_row = rows.in_row;
  const std::int64_t* const offsets = rows.offsets;
  const void* const* line = rows.lines + row;
  const auto* weights = static_cast<const Real*>(rows.weights);
  const auto meet = [&](auto first, auto end) ISOBIT_INLINE_LAMBDA {
    const Real* const from = static_cast<const Real*>(*line) + col;
    for (std::int64_t i = 0; i < in_row; ++i) {
      const Real* const source = from + offsets[i];
      V columns[kVectors];
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) columns[v] = S::load(source + v * S::kWidth);
#pragma GCC unroll 8
      for (int r = decltype(first)::value; r < decltype(end)::value; ++r) {
        const V weight = S::all(weights[i - r * in_row]);
#pragma GCC unroll 8
        for (int v = 0; v < kVectors; ++v) sums[r][v] = S::fma(weight, columns[v], sums[r][v]);
      }
    }
    ++line;
    weights += in_row;
  };
  constexpr auto kAll = std::integral_constant<int, kRows>();
  if constexpr (kTaps > 0) {
    [&]<int... s>(std::integer_sequence<int, s...>) ISOBIT_INLINE_LAMBDA {
      (meet(std::integral_constant<int, (s < kTaps ? 0 : s + 1 - kTaps)>(),
            std::integral_constant<int, (s < kRows ? s + 1 : kRows)>()),
       ...);
    }(std::make_integer_sequence<int, kRows + kTaps - 1>());
  } else {
    constexpr auto kOthers = std::make_integer_sequence<int, kRows - 1>();
    [&]<int... s>(std::integer_sequence<int, s...>) ISOBIT_INLINE_LAMBDA {
      (meet(std::integral_constant<int, 0>(), std::integral_constant<int, s + 1>()), ...);
    }(kOthers);
    for (std::int64_t s = kRows - 1; s < rows.tap_rows; ++s)
      meet(std::integral_constant<int, 0>(), kAll);
    [&]<int... s>(std::integer_sequence<int, s...>)
        ISOBIT_INLINE_LAMBDA { (meet(std::integral_constant<int, s + 1>(), kAll), ...); }(kOthers);
  }
  const auto to_all = [&](const auto& of) ISOBIT_INLINE_LAMBDA {
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) sums[r][v] = of(sums[r][v]);
  };
  if (rows.settles) to_all([](V sum) ISOBIT_INLINE_LAMBDA { return S::add(sum, S::zero()); });
  if (rows.bias != nullptr) {
    const V bias = S::all(*static_cast<const Real*>(rows.bias));
    to_all([bias](V sum) ISOBIT_INLINE_LAMBDA { return S::add(sum, bias); });
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
    Real* const to = static_cast<Real*>(rows.to[row + r]) + col;
#pragma GCC unroll 8
    for (int v = 0; v < kVectors - 1; ++v) put<S, true>(to + v * S::kWidth, 0, sums[r][v]);
    constexpr int kLast = (kVectors - 1) * S::kWidth;
    put<S, false>(to + kLast, rows.count - col - kLast, sums[r][kVectors - 1]);
  }
}

template <class S, int kRows, int kTaps = 0>
void along(const Rows& rows, std::int64_t row) {
  constexpr int kMost = kRows == 1 ? kVectorsOfOne : kMostVectors;
  std::int64_t col = 0;
  for (; rows.count - col > (kMost - 1) * S::kWidth; col += kMost * S::kWidth)
    block<S, kRows, kMost, kTaps>(rows, row, col);
  if constexpr (kMost > 2)
    for (; rows.count - col > S::kWidth; col += 2 * S::kWidth)
      block<S, kRows, 2, kTaps>(rows, row, col);
  if (col < rows.count) block<S, kRows, 1, kTaps>(rows, row, col);
}

// Rows at a time are at most as many as tap rows, or none would meet a line with all others; or
// tap rows are 3, as in most filters.
template <class S>
void rows_of(const Rows& rows) {
  std::int64_t row = 0;
  if (rows.tap_rows == 3)
    for (; row + kMostRows <= rows.rows; row += kMostRows) along<S, kMostRows, 3>(rows, row);
  const auto some = [&](auto count) ISOBIT_INLINE_LAMBDA {
    constexpr int kRows = decltype(count)::value;
    if constexpr (kRows <= kMostRows)
      for (; rows.tap_rows >= kRows && row + kRows <= rows.rows; row += kRows)
        along<S, kRows>(rows, row);
  };
  some(std::integral_constant<int, 6>());
  some(std::integral_constant<int, 4>());
  some(std::integral_constant<int, 3>());
  some(std::integral_constant<int, 2>());
  for (; row < rows.rows; ++row) along<S, 1>(rows, row);
}

}  // namespace

RowsKernel rows_kernel(DType real) {
  return real == DType::f64 ? rows_of<simd::F64> : rows_of<simd::F32>;
}

}  // namespace isobit::convolution::ISOBIT_ISA
