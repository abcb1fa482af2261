// SPDX-License-Identifier: Apache-2.0
// The vector loops of the simd variant, compiled once for each instruction set.
#include "isobit/ops/rope/cpu_kernels.h"

#include <algorithm>
#include <type_traits>

#include "isobit/ops/rope/formula.h"
#include "isobit/ops/rope_tables/formula.h"
#include "isobit/simd/lines.h"
#include "isobit/simd/read_ahead.h"

namespace isobit::rope::ISOBIT_ISA {
namespace {

using simd::Stores;

constexpr int kMostPairs = 64;  // of a head at once: a head of 128 elements is passed over once

// A part of a row of the tables, as the loops over heads want it: padded, the sine with its sign.
// Where pairs are neighbours, each number stands twice, and the first sine of two is negative.
template <class Real, Style kStyle>
struct Factors {
  static constexpr int kSize = kStyle == Style::half ? kMostPairs : 2 * kMostPairs;
  alignas(64) Real cosine[kSize];
  alignas(64) Real sine[kSize];

  ISOBIT_INLINE void fill(const Real* cosines, const Real* sines, int count, bool backward) {
    const Real sign = backward ? Real(-1) : Real(1);
    if constexpr (kStyle == Style::half) {
      for (int i = 0; i < count; ++i) {
        cosine[i] = cosines[i];
        sine[i] = sign * sines[i];
      }
      for (int i = count; i < kSize; ++i) cosine[i] = sine[i] = 0;
    } else {
      for (int i = 0; i < count; ++i) {
        cosine[2 * i] = cosine[2 * i + 1] = cosines[i];
        sine[2 * i] = -sign * sines[i];
        sine[2 * i + 1] = sign * sines[i];
      }
      for (int i = 2 * count; i < kSize; ++i) cosine[i] = sine[i] = 0;
    }
  }
};

// Pairs i and i + pairs of one head. Whole lines of either half at a time, as streaming stores
// need, and loaded before they are stored: y may be x.
template <class S, Stores kStores, class T, class Real>
ISOBIT_INLINE void turn_halves(const T* x, T* y, std::int64_t pairs,
                               const Factors<Real, Style::half>& factors, int count) {
  constexpr int kLine = 64 / sizeof(T), kVectors = kLine < S::kWidth ? 1 : kLine / S::kWidth;
  const auto pair_at = [&](int i, auto... part) ISOBIT_INLINE_LAMBDA {
    return turned<S>({S::load(x + i, part...), S::load(x + pairs + i, part...)},
                     S::load(factors.cosine + i), S::load(factors.sine + i));
  };
  int i = 0;
  for (; i + kVectors * S::kWidth <= count; i += kVectors * S::kWidth) {
    if constexpr (kStores == Stores::streaming) {
      simd::read_ahead<kVectors * S::kWidth>(x + i);
      simd::read_ahead<kVectors * S::kWidth>(x + pairs + i);
    }
    Pair<S> found[kVectors];
#pragma GCC unroll 8
    for (int j = 0; j < kVectors; ++j) found[j] = pair_at(i + j * S::kWidth);
#pragma GCC unroll 8
    for (int j = 0; j < kVectors; ++j)
      S::template store<kStores>(y + i + j * S::kWidth, found[j].first);
#pragma GCC unroll 8
    for (int j = 0; j < kVectors; ++j)
      S::template store<kStores>(y + pairs + i + j * S::kWidth, found[j].second);
  }
  for (; i < count; i += S::kWidth) {
    const auto part = S::first(count - i);
    const Pair<S> found = pair_at(i, part);
    S::store(y + i, found.first, part);
    S::store(y + pairs + i, found.second, part);
  }
}

// Pairs of neighbours of one head.
template <class S, Stores kStores, class T, class Real>
ISOBIT_INLINE void turn_neighbours(const T* x, T* y,
                                   const Factors<Real, Style::interleaved>& factors, int count) {
  if constexpr (S::kWidth == 1) {
    for (int i = 0; i < 2 * count; i += 2) {
      const Pair<S> found =
          turned<S>({S::load(x + i), S::load(x + i + 1)}, factors.cosine[i], factors.sine[i + 1]);
      S::store(y + i, found.first);
      S::store(y + i + 1, found.second);
    }
  } else {
    const auto turned_at = [&](int i, auto... part) ISOBIT_INLINE_LAMBDA {
      const auto v = S::load(x + i, part...);
      return S::fma(v, S::load(factors.cosine + i),
                    S::mul(S::neighbours(v), S::load(factors.sine + i)));
    };
    constexpr int kLine = 64 / sizeof(T), kVectors = kLine < S::kWidth ? 1 : kLine / S::kWidth;
    int i = 0;
    for (; i + kVectors * S::kWidth <= 2 * count; i += kVectors * S::kWidth) {
      if constexpr (kStores == Stores::streaming) simd::read_ahead<kVectors * S::kWidth>(x + i);
#pragma GCC unroll 8
      for (int j = 0; j < kVectors; ++j)
        S::template store<kStores>(y + i + j * S::kWidth, turned_at(i + j * S::kWidth));
    }
    for (; i < 2 * count; i += S::kWidth) {
      const auto part = S::first(2 * count - i);
      S::store(y + i, turned_at(i, part), part);
    }
  }
}

template <class T, Style kStyle, Stores kStores>
ISOBIT_INLINE void run_heads(const Token& token, const Row& row, const Turn& turn) {
  using S = simd::VectorsOf<T>;
  using Real = typename S::Real;
  const auto* x = reinterpret_cast<const T*>(token.x);
  auto* y = reinterpret_cast<T*>(token.y);
  Factors<Real, kStyle> factors;
  for (std::int64_t first = 0; first < turn.pairs; first += kMostPairs) {
    const int count = static_cast<int>(std::min<std::int64_t>(turn.pairs - first, kMostPairs));
    factors.fill(reinterpret_cast<const Real*>(row.cos) + first,
                 reinterpret_cast<const Real*>(row.sin) + first, count, turn.backward);
    for (std::int64_t head = 0; head < token.heads; ++head) {
      const T* from = x + head * token.x_step;
      T* to = y + head * token.y_step;
      if constexpr (kStyle == Style::half)
        turn_halves<S, kStores>(from + first, to + first, turn.pairs, factors, count);
      else
        turn_neighbours<S, kStores>(from + 2 * first, to + 2 * first, factors, count);
    }
  }
  if (turn.head_dim == 2 * turn.pairs) return;
  for (std::int64_t head = 0; head < token.heads; ++head)
    simd::for_each_vector<S, T>(2 * turn.pairs, turn.head_dim,
                                [&](std::int64_t i, auto... part) ISOBIT_INLINE_LAMBDA {
                                  S::store(y + head * token.y_step + i,
                                           S::load(x + head * token.x_step + i, part...), part...);
                                });
}

// Streaming stores need whole lines of every head, and of either half.
template <class T, Style kStyle>
ISOBIT_INLINE bool on_lines(const Token& token, const Turn& turn) {
  constexpr std::int64_t kLine = 64 / sizeof(T);
  const std::int64_t adjacent = kStyle == Style::half ? turn.pairs : 2 * turn.pairs;
  return simd::streamable(token.y) && adjacent % kLine == 0 &&
         (token.y_step % kLine == 0 || token.heads == 1);
}

template <class T, Style kStyle>
void run(const Token& token, const Row& row, const Turn& turn, bool streaming) {
  if (streaming && on_lines<T, kStyle>(token, turn)) {
    run_heads<T, kStyle, Stores::streaming>(token, row, turn);
    simd::fence();
  } else {
    run_heads<T, kStyle, Stores::cached>(token, row, turn);
  }
}

template <class T>
void run_row(double position, const double* frequencies, std::byte* cosines, std::byte* sines,
             std::int64_t count) {
  rope_tables::table_row<simd::F64>(position, frequencies, reinterpret_cast<T*>(cosines),
                                    reinterpret_cast<T*>(sines), count);
}

}  // namespace

Kernel kernel(DType dtype, Style style) {
  return visit(dtype, [&](auto type) ISOBIT_INLINE_LAMBDA -> Kernel {
    using T = typename decltype(type)::type;
    if constexpr (std::is_same_v<T, quad> || std::is_same_v<T, std::int32_t>)
      return nullptr;
    else
      return style == Style::half ? run<T, Style::half> : run<T, Style::interleaved>;
  });
}

TableKernel table_kernel(DType real) {
  return real == DType::f64 ? run_row<double> : run_row<float>;
}

}  // namespace isobit::rope::ISOBIT_ISA
