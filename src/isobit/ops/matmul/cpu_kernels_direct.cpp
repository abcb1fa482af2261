// SPDX-License-Identifier: Apache-2.0
// Matrices multiplied as they lie in memory.
#include <array>
#include <utility>

#include "isobit/ops/matmul/cpu_kernels.h"
#include "isobit/ops/matmul/cpu_lanes.h"

namespace isobit::matmul::ISOBIT_ISA {
namespace {

#if ISOBIT_JOIN(ISOBIT_ISA_, ISOBIT_ISA) == ISOBIT_ISA_avx512
constexpr int kMostRows = 8, kMostVectors = 3;
#elif ISOBIT_JOIN(ISOBIT_ISA_, ISOBIT_ISA) == ISOBIT_ISA_scalar
constexpr int kMostRows = 4, kMostVectors = 2;
#else
constexpr int kMostRows = 6, kMostVectors = 2;
#endif

// Sums of kRows rows and kVectors vectors of columns, of which the last may be a part.
template <class S, int kRows, int kVectors, bool kWhole>
void tile(const Direct& direct, std::int64_t row, std::int64_t col) {
  using Real = typename S::Real;
  using V = typename S::V;
  constexpr int kLast = kVectors - 1;
  const auto part = S::first(kWhole ? S::kWidth : direct.n - col - kLast * S::kWidth);
  const auto load = [&](const Real* from, int v) ISOBIT_INLINE_LAMBDA {
    return kWhole || v < kLast ? S::load(from + v * S::kWidth)
                               : S::load(from + v * S::kWidth, part);
  };
  const Real* a = static_cast<const Real*>(direct.a) + row * direct.a_row;
  const Real* b = static_cast<const Real*>(direct.b) + col;
  V sums[kRows][kVectors];
#pragma GCC unroll 8
  for (int i = 0; i < kRows; ++i)
#pragma GCC unroll 3
    for (int v = 0; v < kVectors; ++v) sums[i][v] = S::zero();
  for (std::int64_t k = 0; k < direct.k; ++k) {
    V columns[kVectors];
#pragma GCC unroll 3
    for (int v = 0; v < kVectors; ++v) columns[v] = load(b, v);
#pragma GCC unroll 8
    for (int i = 0; i < kRows; ++i) {
      const V element = S::all(a[i * direct.a_row]);
#pragma GCC unroll 3
      for (int v = 0; v < kVectors; ++v) sums[i][v] = S::fma(element, columns[v], sums[i][v]);
    }
    a += direct.a_k;
    b += direct.b_k;
  }
  // What is asked for is asked once: stores may write to `direct`, for all that a compiler knows.
  Real* const c = static_cast<Real*>(direct.c) + row * direct.c_row + col;
  const std::int64_t c_row = direct.c_row;
  const auto store = [&](auto nan, const auto& value) ISOBIT_INLINE_LAMBDA {
    constexpr simd::Nan kNan = decltype(nan)::value;
#pragma GCC unroll 8
    for (int i = 0; i < kRows; ++i)
#pragma GCC unroll 3
      for (int v = 0; v < kVectors; ++v) {
        Real* const to = c + i * c_row;
        if (kWhole || v < kLast)
          S::template store<simd::Stores::cached, kNan>(to + v * S::kWidth, value(sums[i][v], v));
        else
          S::template store<simd::Stores::cached, kNan>(to + v * S::kWidth, value(sums[i][v], v),
                                                        part);
      }
  };
  if (direct.adds) {
#pragma GCC unroll 8
    for (int i = 0; i < kRows; ++i)
#pragma GCC unroll 3
      for (int v = 0; v < kVectors; ++v) sums[i][v] = S::add(load(c + i * c_row, v), sums[i][v]);
  }
  constexpr std::integral_constant<simd::Nan, simd::Nan::absent> kAsIs;
  constexpr std::integral_constant<simd::Nan, simd::Nan::possible> kResult;
  if (!direct.are_results) return store(kAsIs, [](V sum, int) ISOBIT_INLINE_LAMBDA { return sum; });
  if (direct.bias == nullptr)
    return store(kResult, [](V sum, int) ISOBIT_INLINE_LAMBDA { return S::add(sum, S::zero()); });
  const Real* const bias = static_cast<const Real*>(direct.bias) + col;
  store(kResult, [&](V sum, int v) ISOBIT_INLINE_LAMBDA {
    return S::add(S::add(sum, S::zero()), load(bias, v));
  });
}

using TileKernel = void (*)(const Direct& direct, std::int64_t row, std::int64_t col);

// For 1 to kMostRows rows.
template <class S, int kVectors, bool kWhole, int... kLess>
constexpr auto tiles_of(std::integer_sequence<int, kLess...>) {
  return std::array<TileKernel, sizeof...(kLess)>{tile<S, kLess + 1, kVectors, kWhole>...};
}
template <class S, int kVectors, bool kWhole>
constexpr auto kTiles = tiles_of<S, kVectors, kWhole>(std::make_integer_sequence<int, kMostRows>());

// For 1 to kMostVectors vectors, all of them whole or not.
template <class S, bool kWhole, int... kLess>
constexpr auto all_tiles_of(std::integer_sequence<int, kLess...>) {
  return std::array{kTiles<S, kLess + 1, kWhole>...};
}
template <class S, bool kWhole>
constexpr auto kAllTiles = all_tiles_of<S, kWhole>(std::make_integer_sequence<int, kMostVectors>());

// Along rows: columns are as many as the second cache holds, and results are written one line after
// the other. (1024 x 768 x 64 took 1.18 times as long along columns, two vectors at a time [Intel
// Xeon 6/167].)
template <class S>
void multiply(const Direct& direct) {
  const std::int64_t groups = (direct.m + kMostRows - 1) / kMostRows;
  const std::int64_t vectors = (direct.n + S::kWidth - 1) / S::kWidth;
  const std::int64_t parts = (vectors + kMostVectors - 1) / kMostVectors;
  for (std::int64_t group = 0; group < groups; ++group) {
    const std::int64_t row = direct.m * group / groups, end = direct.m * (group + 1) / groups;
    for (std::int64_t part = 0; part < parts; ++part) {
      const std::int64_t first = vectors * part / parts, last = vectors * (part + 1) / parts;
      const auto& tiles = last * S::kWidth <= direct.n ? kAllTiles<S, true> : kAllTiles<S, false>;
      tiles[static_cast<std::size_t>(last - first - 1)][static_cast<std::size_t>(end - row - 1)](
          direct, row, first * S::kWidth);
    }
  }
}

}  // namespace

DirectKernel direct_kernel(DType a) {
  return a == DType::f64 ? multiply<simd::F64> : multiply<simd::F32>;
}

}  // namespace isobit::matmul::ISOBIT_ISA
