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

  // Of the i-th row of lanes row_of(i) has the statistics.
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

// y of adjacent channels, each of some lanes.
template <class S, class T, int kMost>
class NormalisingLanes {
 public:
  ISOBIT_INLINE NormalisingLanes(const Known& known, const Part& part, std::int64_t lanes)
      : known_(known), channels_(part.rows), lanes_(lanes) {
    const auto fill = [&](auto& to, const void* numbers) ISOBIT_INLINE_LAMBDA {
      const auto* all = static_cast<const typename S::Real*>(numbers) + part.first;
      to.fill(channels_, lanes_, [=](std::int64_t i) ISOBIT_INLINE_LAMBDA { return all[i]; });
    };
    fill(weight_, known.weight);
    fill(bias_, known.bias);
  }
  // row_of(i) is the row that the i-th `together` channels are of.
  template <class RowOf>
  ISOBIT_INLINE void set_rows(std::int64_t together, const RowOf& row_of) {
    normalisers_.fill(known_, channels_ / together, together * lanes_, row_of);
  }
  ISOBIT_INLINE const auto& normalisers() const { return normalisers_; }

  // `streaming`: y is stored past the caches, if it lies on lines; then a fence must follow.
  template <bool kPlain>
  ISOBIT_INLINE void put(const T* x, T* y, bool streaming = false) const {
    simd::store_row<S>(
        y, channels_ * lanes_, streaming, [&](std::int64_t j, auto... some) ISOBIT_INLINE_LAMBDA {
          const auto xhat = normalisers_.template xhat<kPlain>(S::load(x + j, some...), j);
          return S::fma(xhat, weight_(j), bias_(j));
        });
  }

 private:
  const Known& known_;
  std::int64_t channels_, lanes_;
  Normalisers<S, kMost> normalisers_;
  LaneNumbers<S, kMost> weight_, bias_;
};

// grad_x of the same.
template <class S, class T, int kMost>
class GradientLanes {
 public:
  using Real = typename S::Real;

  ISOBIT_INLINE GradientLanes(const Known& known, const Part& part, std::int64_t lanes,
                              bool training)
      : known_(known), channels_(part.rows), lanes_(lanes), training_(training) {
    const auto* weight = static_cast<const Real*>(known.weight) + part.first;
    weight_.fill(channels_, lanes_, [=](std::int64_t i) ISOBIT_INLINE_LAMBDA { return weight[i]; });
  }
  // row_of(i) is the row that the i-th `together` channels are of.
  template <class RowOf>
  ISOBIT_INLINE void set_rows(std::int64_t together, const RowOf& row_of) {
    const std::int64_t rows = channels_ / together, lanes = together * lanes_;
    normalisers_.fill(known_, rows, lanes, row_of);
    const auto* means = static_cast<const Moments<Real>*>(known_.means);
    const auto fill = [&](auto& to, Real Moments<Real>::* number) ISOBIT_INLINE_LAMBDA {
      to.fill(rows, lanes, [&](std::int64_t i) ISOBIT_INLINE_LAMBDA {
        return training_ ? means[row_of(i)].*number : Real(0);
      });
    };
    fill(mean_g_, &Moments<Real>::sum);
    fill(mean_gx_, &Moments<Real>::squares);
  }
  ISOBIT_INLINE const auto& normalisers() const { return normalisers_; }

  template <bool kPlain>
  ISOBIT_INLINE void put(const T* x, const T* grad_y, T* grad_x, bool streaming = false) const {
    simd::store_row<S>(grad_x, channels_ * lanes_, streaming,
                       [&](std::int64_t j, auto... some) ISOBIT_INLINE_LAMBDA {
                         const auto g = S::mul(S::load(grad_y + j, some...), weight_(j));
                         if (!training_) return S::mul(normalisers_.rstd(j), g);
                         return normalisers_.template gradient<kPlain>(
                             g, normalisers_.template xhat<kPlain>(S::load(x + j, some...), j),
                             mean_g_(j), mean_gx_(j), j);
                       });
  }

 private:
  const Known& known_;
  std::int64_t channels_, lanes_;
  bool training_;
  Normalisers<S, kMost> normalisers_;
  LaneNumbers<S, kMost> weight_, mean_g_, mean_gx_;
};

}  // namespace isobit::channel_norm::ISOBIT_ISA
