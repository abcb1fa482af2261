// SPDX-License-Identifier: Apache-2.0
// A block of a row of floats in vectors: its groups' L, its E, and its results after a carry.
#pragma once

#include <cstdint>
#include <type_traits>

#include "isobit/ops/scan/cpu_lanes.h"
#include "isobit/ops/scan/formula_order.h"
#include "isobit/simd/lanes.h"
#include "isobit/simd/prefetch.h"

namespace isobit::scan::ISOBIT_ISA {

// A value of M, or a carry: P. The parts' arrays lie `distance` apart.
template <class P, class Real>
ISOBIT_INLINE P get(const Real* from, std::int64_t distance) {
  using S = typename P::Vectors;
  P value;
  int p = 0;
  for (auto& part : value.part) part = S::load(from + p++ * distance);
  return value;
}
template <class P, class Real>
ISOBIT_INLINE void put(Real* to, std::int64_t distance, const P& value) {
  using S = typename P::Vectors;
  int p = 0;
  for (const auto& part : value.part)
    S::template store<simd::Stores::cached, simd::Nan::absent>(to + p++ * distance, part);
}

// A block that is fetched into the second cache group by group, from the group `first` on.
template <class Real>
class Fetched {
 public:
  Fetched(const std::byte* at, std::int64_t group_bytes, int first)
      : bytes_(group_bytes), at_(at), first_(first) {}
  ISOBIT_INLINE void group(int number) const {
    if (number < first_) return;
    for (int line = 0; line < kGroup * static_cast<int>(sizeof(Real)); line += 64)
      simd::fetch_to_second_cache(at_ + number * bytes_ + line);
  }

 private:
  std::int64_t bytes_;
  const std::byte* at_;
  int first_;
};

// What blocks keep whichever way vectors go: L, and E with one group more.
template <class M>
struct BlockOfGroups {
  using S = typename M::S;
  using Real = typename S::Real;
  using Value = typename M::Value;
  static constexpr int kWidth = S::kWidth, kDistance = kGroups + 16;
  // There are so many vectors of one lane that copies would take minutes to compile.
  static constexpr bool kUnrolled = kWidth > 1;

  // Gives the block's total.
  ISOBIT_INLINE Value scan_totals(const Real (&totals)[M::kParts * kGroups]) {
    constexpr int kVectors = kGroups / kWidth;
    Value sums[kVectors];
    for_each<kUnrolled, kVectors>(
        [&](int j) ISOBIT_INLINE_LAMBDA { sums[j] = get<Value>(totals + j * kWidth, kGroups); });
    sklansky_in_lanes<M>(sums);
    put(before, kDistance, M::neutral());
    for_each<kUnrolled, kVectors>(
        [&](int j) ISOBIT_INLINE_LAMBDA { put(before + 1 + j * kWidth, kDistance, sums[j]); });
    return Lanes<S>::last(sums[kVectors - 1]);
  }
  ISOBIT_INLINE void carry_on(const Value& carry) {
    for (int j = 0; j < kGroups; j += kWidth)
      put(before + j, kDistance, M::combine(carry, get<Value>(before + j, kDistance)));
  }

  alignas(64) Real before[M::kParts * kDistance];
  alignas(64) Real l[M::kParts * kBlock];
};

// Vectors of adjacent elements: few instructions besides the combinations.
template <class M>
struct BlockOfAdjacent : BlockOfGroups<M> {
  using Base = BlockOfGroups<M>;
  using Base::kDistance, Base::kUnrolled, Base::kWidth;
  using typename Base::Real, typename Base::S, typename Base::Value;
  static constexpr int kVectors = kGroup / kWidth;

  ISOBIT_INLINE Value lift(const Real* in, const Fetched<Real>& fetched) {
    alignas(64) Real totals[M::kParts * kGroups];
    for (int group = 0; group < kGroups; ++group) {
      fetched.group(group);
      Value values[kVectors];
      for_each<kUnrolled, kVectors>([&](int j) ISOBIT_INLINE_LAMBDA {
        values[j] = M::lift(S::load(in + group * kGroup + j * kWidth));
      });
      sklansky_in_lanes<M>(values);
      for_each<kUnrolled, kVectors>([&](int j) ISOBIT_INLINE_LAMBDA {
        put(this->l + group * kGroup + j * kWidth, kBlock, values[j]);
      });
      for (int p = 0; p < M::kParts; ++p)
        totals[p * kGroups + group] = this->l[p * kBlock + group * kGroup + kGroup - 1];
    }
    return this->scan_totals(totals);
  }

  template <simd::Stores kStores, class Result>
  ISOBIT_INLINE void write(Real* out, const Result& result) const {
    for (int group = 0; group < kGroups; ++group) {
      Value base;
      for (int p = 0; p < M::kParts; ++p)
        base.part[p] = S::all(this->before[p * kDistance + group]);
      for_each<kUnrolled, kVectors>([&](int i) ISOBIT_INLINE_LAMBDA {
        const int j = group * kGroup + i * kWidth;
        S::template store<kStores>(
            out + j, M::number(result(M::combine(base, get<Value>(this->l + j, kBlock)))));
      });
    }
  }
};

// A lane of a vector for each group: half as many combinations, as no lane makes one that is not
// needed, but elements and results are transposed.
template <class M>
struct BlockOfLanes : BlockOfGroups<M> {
  using Base = BlockOfGroups<M>;
  using Base::kDistance, Base::kWidth;
  using typename Base::Real, typename Base::S, typename Base::Value;

  ISOBIT_INLINE Value lift(const Real* in, const Fetched<Real>& fetched) {
    alignas(64) Real totals[M::kParts * kGroups];
    for (int group = 0; group < kGroups; group += kWidth) {
      Value values[kGroup];
      for_each<true, kGroup / kWidth>([&](int j) ISOBIT_INLINE_LAMBDA {
        typename S::V square[kWidth];
        for_each<true, kWidth>([&](int i) ISOBIT_INLINE_LAMBDA {
          if (j == 0) fetched.group(group + i);
          square[i] = S::load(in + (group + i) * kGroup + j * kWidth);
        });
        simd::transpose<S>(square);
        for_each<true, kWidth>(
            [&](int i) ISOBIT_INLINE_LAMBDA { values[j * kWidth + i] = M::lift(square[i]); });
      });
      sklansky<M>(values);
      for_each<true, kGroup>([&](int i) ISOBIT_INLINE_LAMBDA {
        put(this->l + group * kGroup + i * kWidth, kBlock, values[i]);
      });
      put(totals + group, kGroups, values[kGroup - 1]);
    }
    return this->scan_totals(totals);
  }

  template <simd::Stores kStores, class Result>
  ISOBIT_INLINE void write(Real* out, const Result& result) const {
    for (int group = 0; group < kGroups; group += kWidth) {
      const Value base = get<Value>(this->before + group, kDistance);
      for_each<true, kGroup / kWidth>([&](int j) ISOBIT_INLINE_LAMBDA {
        const Real* const from = this->l + group * kGroup + j * kWidth * kWidth;
        typename S::V square[kWidth];
        for_each<true, kWidth>([&](int i) ISOBIT_INLINE_LAMBDA {
          square[i] = M::number(result(M::combine(base, get<Value>(from + i * kWidth, kBlock))));
        });
        simd::transpose<S>(square);
        for_each<true, kWidth>([&](int i) ISOBIT_INLINE_LAMBDA {
          S::template store<kStores>(out + (group + i) * kGroup + j * kWidth, square[i]);
        });
      });
    }
  }
};

template <class M>
using Block =
    std::conditional_t<(M::kParts > 1 && M::S::kWidth > 1), BlockOfLanes<M>, BlockOfAdjacent<M>>;

}  // namespace isobit::scan::ISOBIT_ISA
