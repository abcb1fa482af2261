// SPDX-License-Identifier: Apache-2.0
// Lanes of a matrix as vectors along the other dimension: what the kernels of matmul share.
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "isobit/simd/vec.h"

namespace isobit::matmul::ISOBIT_ISA {

template <class T>
using VectorsOf = std::conditional_t<std::is_same_v<T, double>, simd::F64, simd::F32>;

namespace detail {

inline constexpr int kLaneBytes = 16;
template <class S>
inline constexpr int kInLane = kLaneBytes / sizeof(typename S::Real);

// A few k of as many lanes as a vector has, turned: vector i has the i-th k of each. `line(i)` is
// where lane i has the first.
template <class S, class Line>
ISOBIT_INLINE void turn(const Line& line, typename S::V (&to)[kInLane<S>]) {
  using Real = typename S::Real;
  using B = simd::Bytes;
  constexpr int kCount = kInLane<S>;
  typename B::V v[kCount];
#pragma GCC unroll 4
  for (int i = 0; i < kCount; ++i)
    v[i] = B::load_lanes([&](int lane) ISOBIT_INLINE_LAMBDA { return line(lane * kCount + i); });
  if constexpr (kCount == 2) {
    to[0] = __builtin_bit_cast(typename S::V, B::template zip_low<Real>(v[0], v[1]));
    to[1] = __builtin_bit_cast(typename S::V, B::template zip_high<Real>(v[0], v[1]));
  } else {
    const auto a = B::template zip_low<Real>(v[0], v[1]), b = B::template zip_low<Real>(v[2], v[3]);
    const auto c = B::template zip_high<Real>(v[0], v[1]);
    const auto d = B::template zip_high<Real>(v[2], v[3]);
    to[0] = __builtin_bit_cast(typename S::V, B::template zip_low<double>(a, b));
    to[1] = __builtin_bit_cast(typename S::V, B::template zip_high<double>(a, b));
    to[2] = __builtin_bit_cast(typename S::V, B::template zip_low<double>(c, d));
    to[3] = __builtin_bit_cast(typename S::V, B::template zip_high<double>(c, d));
  }
}

}  // namespace detail

// Calls visit(k, vectors) with kGroups vectors of lanes for each k in turn. Elements of a lane are
// adjacent. Lanes that are not there get the elements of the last.
template <class S, int kGroups, class T, class Visit>
ISOBIT_INLINE void across(const T* from, std::int64_t stride, std::int64_t lanes, std::int64_t k,
                          const Visit& visit) {
  using Real = typename S::Real;
  constexpr int kWidth = S::kWidth, kLanes = kGroups * kWidth;
  typename S::V vectors[kGroups];
  if constexpr (kWidth == 1) {
    for (std::int64_t i = 0; i < k; ++i) {
      for (int g = 0; g < kGroups; ++g)
        vectors[g] = S::load(from + std::min<std::int64_t>(g, lanes - 1) * stride + i);
      visit(i, vectors);
    }
  } else {
    constexpr int kCount = detail::kInLane<S>, kPiece = 64;
    // `line(i)` is where lane i has its k at `at`.
    const auto turned = [&](std::int64_t at, int count, const auto& line) ISOBIT_INLINE_LAMBDA {
      typename S::V groups[kGroups][kCount];
#pragma GCC unroll 2
      for (int g = 0; g < kGroups; ++g)
        detail::turn<S>([&](int lane) ISOBIT_INLINE_LAMBDA { return line(g * kWidth + lane); },
                        groups[g]);
#pragma GCC unroll 4
      for (int i = 0; i < kCount; ++i) {
        if (i >= count) break;
#pragma GCC unroll 2
        for (int g = 0; g < kGroups; ++g) vectors[g] = groups[g][i];
        visit(at + i, vectors);
      }
    };
    std::int64_t done = 0;
    if constexpr (std::is_same_v<T, Real>) {
      if (lanes >= kLanes) {
        for (; done + kCount <= k; done += kCount)
          turned(done, kCount,
                 [&](int lane) ISOBIT_INLINE_LAMBDA { return from + lane * stride + done; });
      } else {
        const Real* lines[kLanes];
        for (int lane = 0; lane < kLanes; ++lane)
          lines[lane] = from + std::min<std::int64_t>(lane, lanes - 1) * stride;
        for (; done + kCount <= k; done += kCount)
          turned(done, kCount, [&](int lane) ISOBIT_INLINE_LAMBDA { return lines[lane] + done; });
      }
    }
    // Other types are widened first; so is what is less than a piece.
    constexpr std::int64_t kPitch = kPiece + kCount;
    alignas(64) Real piece[kLanes * kPitch];
    for (; done < k; done += kPiece) {
      const std::int64_t count = std::min<std::int64_t>(kPiece, k - done);
      for (int lane = 0; lane < kLanes; ++lane) {
        const T* line = from + std::min<std::int64_t>(lane, lanes - 1) * stride + done;
        Real* to = piece + lane * kPitch;
        std::int64_t i = 0;
        for (; i + kWidth <= count; i += kWidth) S::store(to + i, S::load(line + i));
        if (i < count) S::store(to + i, S::load(line + i, S::first(count - i)));
      }
      for (std::int64_t i = 0; i < count; i += kCount)
        turned(done + i, static_cast<int>(std::min<std::int64_t>(kCount, count - i)),
               [&](int lane) ISOBIT_INLINE_LAMBDA { return piece + lane * kPitch + i; });
    }
  }
}

}  // namespace isobit::matmul::ISOBIT_ISA
