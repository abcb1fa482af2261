// SPDX-License-Identifier: Apache-2.0
// Frequencies and angles of rotary embeddings, in f64, on every back end; rope computes its own
// tables with them. S offers the operations of simd's F64, of one element where frequencies are
// computed.
#pragma once

#include <cstdint>
#include <limits>

#include "isobit/core/dtype.h"
#include "isobit/functions/exponential.h"
#include "isobit/functions/logarithm.h"
#include "isobit/functions/trigonometric.h"
#include "isobit/ops/rope_tables/rope_tables.h"

namespace isobit::rope_tables {

using functions::SineCosine;
using functions::Two;
using functions::VectorOf;

// base^(-1 / pairs) to about 90 bits: by exp2 and log2, then one step of Newton's.
template <class S>
ISOBIT_INLINE Two<S> frequency_ratio(double base, std::int64_t pairs) {
  const double count = static_cast<double>(pairs > 0 ? pairs : 1);
  const double near = functions::exp2<S>(-(functions::log2<S>(base) / count));
  const Two<S> power = functions::power<S>(Two<S>{near, 0}, pairs);
  const Two<S> one = functions::product<S>(power, base);  // but for the error of `near`
  const double excess = S::add(S::sub(one.head, 1), one.rest);
  return functions::ordered_sum<S>(near, -(near * (excess / count)));
}

// base^(-i / pairs), rounded once.
template <class S>
ISOBIT_INLINE double frequency(const Two<S>& ratio, std::int64_t i) {
  return functions::rounded<S>(functions::power<S>(ratio, i));
}

// Of the angle position * frequency, whose product is not rounded; NaN where the functions end.
template <class S>
ISOBIT_INLINE SineCosine<S> turn(VectorOf<S> position, VectorOf<S> frequency) {
  const Two<S> angle = functions::product<S>(position, frequency);
  const SineCosine<S> found = functions::sine_cosine<S>(angle);
  constexpr double kEnd = kMostPositions, kNan = std::numeric_limits<double>::quiet_NaN();
  const auto inside = S::less(functions::magnitude<S>(angle.head), S::all(kEnd));
  return {S::choose(inside, found.sine, S::all(kNan)),
          S::choose(inside, found.cosine, S::all(kNan))};
}

// A row of tables, rounded to their type.
template <class S, class T>
ISOBIT_INLINE void table_row(double position, const double* frequencies, T* cosines, T* sines,
                             std::int64_t count) {
  constexpr int kStep = 16;
  static_assert(kStep % S::kWidth == 0);
  for (std::int64_t first = 0; first < count; first += kStep) {
    alignas(64) double given[kStep] = {}, cosine[kStep], sine[kStep];
    const int here = static_cast<int>(count - first < kStep ? count - first : kStep);
    for (int i = 0; i < here; ++i) given[i] = frequencies[first + i];
    for (int i = 0; i < kStep; i += S::kWidth) {
      const auto at = turn<S>(S::all(position), S::load(given + i));
      S::store(cosine + i, at.cosine);
      S::store(sine + i, at.sine);
    }
    for (int i = 0; i < here; ++i) {
      cosines[first + i] = narrow<T>(cosine[i]);
      sines[first + i] = narrow<T>(sine[i]);
    }
  }
}

}  // namespace isobit::rope_tables
