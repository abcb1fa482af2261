// SPDX-License-Identifier: Apache-2.0
// What lanes that stand side by side know of their rows, and what they make of an element each.
#pragma once

#include <cmath>
#include <cstdint>
#include <type_traits>

#include "isobit/ops/channel_norm/cpu_kernels.h"
#include "isobit/ops/channel_norm/formula.h"
#include "isobit/simd/row_loops.h"

namespace isobit::channel_norm::ISOBIT_ISA {

// A number of each lane, up to kMost of them. A row has some lanes, one after the other.
template <class S, int kMost>
class LaneNumbers {
 public:
  using Real = typename S::Real;

  // of(i): that of the lanes of the i-th row.
  template <class Of>
  ISOBIT_INLINE void fill(std::int64_t rows, std::int64_t lanes, const Of& of) {
    for (std::int64_t i = 0; i < rows; ++i) {
      const auto number = S::all(of(i));
      for (std::int64_t l = 0; l < lanes; l += S::kWidth)  // the next row's go over what is beyond
        S::template store<simd::Stores::cached>(numbers_ + i * lanes + l, number);
    }
  }
  ISOBIT_INLINE auto operator()(std::int64_t lane) const { return S::load(numbers_ + lane); }

 private:
  alignas(64) Real numbers_[kMost + S::kWidth];
};

// The parameters of layernorm's NormaliseAny.
template <class S, int kMost>
class Normalisers {
 public:
  using V = typename S::V;
  using Real = typename S::Real;

  // row_of(i): whose statistics the i-th row of lanes takes.
  template <class RowOf>
  ISOBIT_INLINE void fill(const Known& known, std::int64_t rows, std::int64_t lanes,
                          const RowOf& row_of) {
    const auto* all = static_cast<const Statistics<Real>*>(known.statistics);
    const auto put = [&](LaneNumbers<S, kMost>& to, const auto& number) ISOBIT_INLINE_LAMBDA {
      to.fill(rows, lanes,
              [&](std::int64_t i) ISOBIT_INLINE_LAMBDA { return number(all[row_of(i)]); });
    };
    put(mean_, [](const auto& of) { return of.mean; });
    put(shift_, [](const auto& of) { return of.shift; });
    put(rstd_, [](const auto& of) { return of.rstd; });
    plain_ = true;
    for (std::int64_t i = 0; i < rows; ++i) plain_ = plain_ && all[row_of(i)].plain;
    if (plain_) [[likely]]
      return;
    const auto power = [](int exponent) { return std::ldexp(Real(1), exponent); };
    put(residue_, [](const auto& of) { return of.residue; });
    put(back_[0], [&](const auto& of) { return power(of.exponent / 2); });
    put(back_[1], [&](const auto& of) { return power(of.exponent - of.exponent / 2); });
    for (int k = 0; k < 2; ++k)
      put(into_[k], [&](const auto& of) {
        const int half = of.exponent / 2;
        return of.equal ? Real(0) : power(k == 0 ? half : of.exponent - half);
      });
  }
  // Whether all rows are usual ones: then the short ways give the same bits.
  ISOBIT_INLINE bool plain() const { return plain_; }
  ISOBIT_INLINE V rstd(std::int64_t lane) const { return rstd_(lane); }

  template <bool kPlain>
  ISOBIT_INLINE V xhat(V x, std::int64_t lane) const {
    if constexpr (kPlain) return S::mul(S::sub(S::sub(x, mean_(lane)), shift_(lane)), rstd(lane));
    const V scaled = S::mul(S::mul(x, into_[0](lane)), into_[1](lane));
    const V centred = S::sub(S::sub(scaled, mean_(lane)), shift_(lane));
    return S::mul(S::sub(centred, residue_(lane)), rstd(lane));
  }
  template <bool kPlain>
  ISOBIT_INLINE V gradient(V g, V xhat, V mean_g, V mean_gx, std::int64_t lane) const {
    const V value = S::mul(rstd(lane), S::minus_product(xhat, mean_gx, S::sub(g, mean_g)));
    if constexpr (kPlain) return value;
    return S::mul(S::mul(value, back_[0](lane)), back_[1](lane));
  }

 private:
  bool plain_ = true;
  LaneNumbers<S, kMost> mean_, shift_, residue_, rstd_, into_[2], back_[2];
};

// Calls body(std::bool_constant) with whether all rows are plain.
template <class Normalisers, class Body>
ISOBIT_INLINE void with_plainness(const Normalisers& normalisers, const Body& body) {
  if (normalisers.plain()) [[likely]]
    body(std::true_type{});
  else
    body(std::false_type{});
}

// y of the lanes of adjacent channels.
template <class S, class T, int kMost>
class NormalisingLanes {
 public:
  ISOBIT_INLINE NormalisingLanes(const Known& known, const Part& part, std::int64_t lanes)
      : count_(part.rows * lanes) {
    const auto channel = [&](std::int64_t i) ISOBIT_INLINE_LAMBDA { return part.first + i; };
    normalisers_.fill(known, part.rows, lanes, channel);
    const auto fill = [&](auto& to, const void* numbers) ISOBIT_INLINE_LAMBDA {
      const auto* all = static_cast<const typename S::Real*>(numbers);
      to.fill(part.rows, lanes,
              [&](std::int64_t i) ISOBIT_INLINE_LAMBDA { return all[channel(i)]; });
    };
    fill(weight_, known.weight);
    fill(bias_, known.bias);
  }
  ISOBIT_INLINE const auto& normalisers() const { return normalisers_; }

  // `streaming`: y is stored past the caches, if it lies on lines; then a fence must follow.
  template <bool kPlain>
  ISOBIT_INLINE void put(const T* x, T* y, bool streaming = false) const {
    simd::store_row<S>(
        y, count_, streaming, [&](std::int64_t j, auto... some) ISOBIT_INLINE_LAMBDA {
          const auto xhat = normalisers_.template xhat<kPlain>(S::load(x + j, some...), j);
          return S::fma(xhat, weight_(j), bias_(j));
        });
  }

 private:
  std::int64_t count_;
  Normalisers<S, kMost> normalisers_;
  LaneNumbers<S, kMost> weight_, bias_;
};

// grad_x of the same.
template <class S, class T, int kMost>
class GradientLanes {
 public:
  ISOBIT_INLINE GradientLanes(const Known& known, const Part& part, std::int64_t lanes,
                              bool training)
      : count_(part.rows * lanes), training_(training) {
    using Real = typename S::Real;
    const auto channel = [&](std::int64_t i) ISOBIT_INLINE_LAMBDA { return part.first + i; };
    normalisers_.fill(known, part.rows, lanes, channel);
    const auto fill = [&](auto& to, const auto& number) ISOBIT_INLINE_LAMBDA {
      to.fill(part.rows, lanes,
              [&](std::int64_t i) ISOBIT_INLINE_LAMBDA { return number(channel(i)); });
    };
    const auto* means = static_cast<const Moments<Real>*>(known.means);
    fill(weight_, [all = static_cast<const Real*>(known.weight)](auto i) { return all[i]; });
    fill(mean_g_, [=](auto i) { return training ? means[i].sum : Real(0); });
    fill(mean_gx_, [=](auto i) { return training ? means[i].squares : Real(0); });
  }
  ISOBIT_INLINE const auto& normalisers() const { return normalisers_; }

  template <bool kPlain>
  ISOBIT_INLINE void put(const T* x, const T* grad_y, T* grad_x, bool streaming = false) const {
    simd::store_row<S>(grad_x, count_, streaming,
                       [&](std::int64_t j, auto... some) ISOBIT_INLINE_LAMBDA {
                         const auto g = S::mul(S::load(grad_y + j, some...), weight_(j));
                         if (!training_) return S::mul(normalisers_.rstd(j), g);
                         return normalisers_.template gradient<kPlain>(
                             g, normalisers_.template xhat<kPlain>(S::load(x + j, some...), j),
                             mean_g_(j), mean_gx_(j), j);
                       });
  }

 private:
  std::int64_t count_;
  bool training_;
  Normalisers<S, kMost> normalisers_;
  LaneNumbers<S, kMost> weight_, mean_g_, mean_gx_;
};

}  // namespace isobit::channel_norm::ISOBIT_ISA
