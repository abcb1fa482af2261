// SPDX-License-Identifier: Apache-2.0
// The arithmetic of attention: scores in powers of two, weights beside the largest of them, how
// parts are folded, what becomes of sums. S is a vector type of simd or tile::Scalar; every step is
// one correctly rounded operation of it, or exact.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <limits>

#include "isobit/functions/exponential.h"
#include "isobit/functions/logarithm.h"
#include "isobit/functions/logistic.h"
#include "isobit/norms/philox.h"

namespace isobit::attention {

template <class S>
using VectorOf = typename S::V;

// 2^n is +0 for n below: all weights but 0 are normal numbers.
template <class Real>
inline constexpr Real kLeastExponent = sizeof(Real) == 8 ? Real(-1021) : Real(-125);
template <class Real>
inline constexpr Real kInfinity = std::numeric_limits<Real>::infinity();

// The nearest whole number, ties to even: beyond 2^23 (2^52) every number is one.
template <class S>
ISOBIT_INLINE VectorOf<S> nearest(VectorOf<S> x) {
  const auto whole = functions::all<S>(functions::kSingle<S> ? 0x1p23 : 0x1p52);
  const auto size = functions::magnitude<S>(x);
  const auto rounded = S::sub(S::add(size, whole), whole);
  return S::choose(S::less(size, whole), functions::with_sign<S>(rounded, x), x);
}

// The same of a magnitude below kOrdinary and, but for -0, of what is not far from that.
template <class Real>
inline constexpr Real kOrdinary = sizeof(Real) == 8 ? Real(0x1p50) : Real(0x1p21);
template <class S>
ISOBIT_INLINE VectorOf<S> nearest_ordinary(VectorOf<S> x) {
  const auto rounder = S::all(functions::FormatOf<S>::kRounder);
  return S::sub(S::add(x, rounder), rounder);
}

// What scores are multiplied by on their way to powers of two.
template <class Real>
struct Scaling {
  Real factor;      // log2 e, with the scale; where scores are capped, without
  Real bias;        // log2 e
  Real before_cap;  // scale / softcap
  Real gradient;    // the scale, of gradients of q and k
  bool caps;

  // Numbers are made by doubles, and rounded once; in the kernels' float mode.
  ISOBIT_INLINE static Scaling of(double scale, double softcap, std::int64_t head_dim) {
    if (scale == 0 && head_dim != 0) scale = 1 / std::sqrt(static_cast<double>(head_dim));
    if (scale == 0) scale = 1;
    constexpr double kLog2E = functions::Logarithms<double>::kLog2E;
    const bool caps = softcap != 0;
    return {static_cast<Real>((caps ? softcap : scale) * kLog2E), static_cast<Real>(kLog2E),
            static_cast<Real>(caps ? scale / softcap : 0), static_cast<Real>(scale), caps};
  }
};

// q k' as the exponent of a power of two, before a bias.
template <class S>
ISOBIT_INLINE VectorOf<S> exponent_of(const Scaling<typename S::Real>& scaling,
                                      VectorOf<S> product) {
  if (scaling.caps) product = functions::tanh<S>(S::mul(product, S::all(scaling.before_cap)));
  return S::mul(product, S::all(scaling.factor));
}
// A key with a bias of -infinity is not there, whatever its product.
template <class S>
ISOBIT_INLINE VectorOf<S> biased(const Scaling<typename S::Real>& scaling, VectorOf<S> exponent,
                                 VectorOf<S> bias) {
  using Real = typename S::Real;
  const auto absent = S::less(bias, S::all(std::numeric_limits<Real>::lowest()));
  return S::choose(absent, S::all(-kInfinity<Real>), S::fma(bias, S::all(scaling.bias), exponent));
}

// The same of what a slope adds: -slope times how far the key is, rounded once. What a bias made
// absent stays so.
template <class S>
ISOBIT_INLINE VectorOf<S> sloped(const Scaling<typename S::Real>& scaling, VectorOf<S> exponent,
                                 VectorOf<S> slope, VectorOf<S> distance, bool beside_bias) {
  using Real = typename S::Real;
  const auto added = S::mul(S::mul(slope, S::all(Real(-1))), distance);
  const auto result = biased<S>(scaling, exponent, added);
  if (!beside_bias) return result;
  return S::choose(S::less(exponent, S::all(std::numeric_limits<Real>::lowest())), exponent,
                   result);
}

// 2^n of a whole n, at most 2^kMost; +0 for n below kLeastExponent. NaN gives anything.
template <class S>
ISOBIT_INLINE VectorOf<S> power_or_zero(VectorOf<S> n) {
  using Real = typename S::Real;
  const auto least = S::all(kLeastExponent<Real>);
  return S::choose(S::less(n, least), S::all(Real(0)), functions::power<S>(S::max(least, n)));
}

// What is taken off exponents: their largest, or 0 where there is none.
template <class S>
ISOBIT_INLINE VectorOf<S> base_of(VectorOf<S> max) {
  using Real = typename S::Real;
  return S::choose(S::less(max, S::all(std::numeric_limits<Real>::lowest())), S::all(Real(0)), max);
}

// 2^exponent / 2^base: +0 where that is below 2^kLeastExponent, and for -infinity; NaN for NaN and
// infinity.
// kIsOrdinary: the base is below kOrdinary. Exponents far below it are rounded to anything that is
// as far below.
template <class S, bool kIsOrdinary = false>
ISOBIT_INLINE VectorOf<S> weight_of(VectorOf<S> exponent, VectorOf<S> base) {
  using Real = typename S::Real;
  VectorOf<S> n;
  if constexpr (kIsOrdinary)
    n = nearest_ordinary<S>(exponent);
  else
    n = nearest<S>(exponent);
  const auto e = functions::exp2_of_fraction<S>(S::sub(exponent, n));
  const auto shift = S::sub(n, base), least = S::all(kLeastExponent<Real>);
  return S::choose(S::less(shift, least), S::all(Real(0)),
                   S::mul(e, functions::power<S>(S::max(least, shift))));
}

// The same in backward, where the base is an argument: beyond the range it is infinite.
template <class S>
ISOBIT_INLINE VectorOf<S> probability_of(VectorOf<S> exponent, VectorOf<S> base,
                                         VectorOf<S> inverse_sum) {
  using Real = typename S::Real;
  constexpr Real kMost = sizeof(Real) == 8 ? Real(1024) : Real(128);
  const auto n = nearest<S>(exponent);
  const auto e = functions::exp2_of_fraction<S>(S::sub(exponent, n));
  const auto shift = S::min(S::all(kMost), S::sub(n, base)), least = S::all(kLeastExponent<Real>);
  const auto weight = S::mul(e, functions::power<S>(S::max(least, shift)));
  return S::choose(S::less(shift, least), S::all(Real(0)), S::mul(weight, inverse_sum));
}

// How two parts of a query's keys become one: of sums and of rows of y.
template <class S>
struct Fold {
  VectorOf<S> max, first, second;

  ISOBIT_INLINE static Fold of(VectorOf<S> a, VectorOf<S> b) {
    const auto max = S::max(a, b), base = base_of<S>(max);
    return {max, power_or_zero<S>(S::sub(a, base)), power_or_zero<S>(S::sub(b, base))};
  }
  ISOBIT_INLINE VectorOf<S> operator()(VectorOf<S> a, VectorOf<S> b) const {
    return S::fma(a, first, S::mul(b, second));
  }
};

// What a row of sums is multiplied by: the inverse of its weights' sum, or where there are no keys
// the sum itself, 0. NaN where the largest is.
template <class S>
ISOBIT_INLINE VectorOf<S> inverse_of(VectorOf<S> max, VectorOf<S> sum) {
  using Real = typename S::Real;
  const auto none = S::less(max, S::all(std::numeric_limits<Real>::lowest()));
  return S::choose(none, sum, S::add(S::div(S::all(Real(1)), sum), S::sub(max, max)));
}
template <class S>
ISOBIT_INLINE VectorOf<S> y_of(VectorOf<S> sum, VectorOf<S> inverse) {
  return S::fma(sum, inverse, S::all(typename S::Real(0)));
}
template <class S>
ISOBIT_INLINE VectorOf<S> lse_of(VectorOf<S> max, VectorOf<S> sum) {
  using L = functions::Logarithms<typename S::Real>;
  return S::mul(S::add(max, functions::log2<S>(sum)), S::all(L::kLn2));
}
// As it is returned: NaN where a score was, and never -0.
template <class S>
ISOBIT_INLINE VectorOf<S> returned_max(VectorOf<S> max, VectorOf<S> sum) {
  return S::add(max, S::sub(sum, sum));
}

// The gradient of a score. `kept` is that of the weight in y, +0 where it was dropped.
template <class S>
ISOBIT_INLINE VectorOf<S> score_gradient(VectorOf<S> probability, VectorOf<S> kept,
                                         VectorOf<S> mean) {
  return S::mul(probability, S::sub(kept, mean));
}
// That of what is capped, from the scores' product.
template <class S>
ISOBIT_INLINE VectorOf<S> before_cap(const Scaling<typename S::Real>& scaling, VectorOf<S> gradient,
                                     VectorOf<S> product) {
  const auto slope = functions::tanh_derivative<S>(S::mul(product, S::all(scaling.before_cap)));
  return S::mul(gradient, functions::number<S>(slope));
}

// Which weights dropout keeps, and what those are multiplied by.
template <class Real>
struct Dropout {
  std::uint64_t seed;
  std::uint32_t threshold;
  Real scale;
  bool any;

  ISOBIT_INLINE static Dropout of(double probability, std::uint64_t seed) {
    return {seed, norms::dropout_threshold(probability), norms::dropout_scale<Real>(probability),
            probability > 0};
  }
  ISOBIT_INLINE explicit operator bool() const { return any; }

  // Of keys 4 * group to 4 * group + 3.
  ISOBIT_INLINE std::array<std::uint32_t, 4> words(std::int64_t batch, std::int64_t head,
                                                   std::int64_t query, std::int64_t group) const {
    return norms::dropout_words(seed, batch << 32 | head, query << 32 | group);
  }
  ISOBIT_INLINE bool keeps(std::int64_t batch, std::int64_t head, std::int64_t query,
                           std::int64_t key) const {
    return keeps(words(batch, head, query, key / 4), key);
  }
  // The same by the words of the key's group.
  ISOBIT_INLINE bool keeps(const std::array<std::uint32_t, 4>& four, std::int64_t key) const {
    // An index that is not constant would put the array into memory on a GPU.
    const std::uint32_t low = key % 2 == 0 ? four[0] : four[1];
    const std::uint32_t high = key % 2 == 0 ? four[2] : four[3];
    return (key % 4 < 2 ? low : high) >= threshold;
  }
};

}  // namespace isobit::attention
