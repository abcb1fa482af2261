// SPDX-License-Identifier: Apache-2.0
// A row as the formulas of norms want it, summed by a group of threads in the order of
// core/order.h. Every thread of the group calls everything, and gets the same.
//
// A Source gives the row: source.load(place, octet) the elements of a place, and zeros; a thread
// only ever asks for its own octets.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>

#include "isobit/core/order.h"
#include "isobit/norms/statistics.h"
#include "isobit/simt/simt.h"
#include "isobit/tile/octet.h"
#include "isobit/tile/row_group.h"
#include "isobit/tile/scalar.h"

namespace isobit::norms {

using tile::kOctet;
using tile::Place;

// How many octets a lane has of a block of the order.
template <class Group>
inline constexpr int kHalvesOf = Group::kWorkerLanes == simt::kWarpThreads ? 2 : 1;

// An octet of a block of the order.
template <class Group>
ISOBIT_DEVICE Place place_in(std::int64_t block, int half, std::int64_t cols, int k = 0) {
  return tile::place_at(block * order::kBlock + half * (order::kBlock / 2) + Group::lane() * kOctet,
                        cols, k * kHalvesOf<Group> + half);
}

// The same of the k-th block that a worker holds.
template <class Group>
ISOBIT_DEVICE Place held_place(int k, int half, std::int64_t cols) {
  return place_in<Group>(Group::worker() + std::int64_t{k} * Group::workers(), half, cols, k);
}

ISOBIT_EITHER std::int64_t blocks_of(std::int64_t cols) {
  return (cols + order::kBlock - 1) / order::kBlock;
}

template <class Real>
struct SumAndDot {
  Real sum, dot;
};

namespace detail {

// The first fold of a block of the order: an octet of its upper half, and of its lower one where a
// lane has such. Of terms, and of products.
template <class Real>
struct FirstFold {
  Real sum[kOctet], dot[kOctet];

  ISOBIT_DEVICE void add(int half, const Real (&a)[kOctet], const Real (&b)[kOctet]) {
#pragma unroll
    for (int i = 0; i < kOctet; ++i) {
      sum[i] = half == 0 ? a[i] : sum[i] + a[i];
      dot[i] = half == 0 ? a[i] * b[i] : std::fma(a[i], b[i], dot[i]);
    }
  }
};

// What the row does not have counts as +0.
template <class Real, class F>
ISOBIT_DEVICE void map_octet(const Place& place, const Real (&octet)[kOctet], Real (&to)[kOctet],
                             const F& f) {
#pragma unroll
  for (int i = 0; i < kOctet; ++i) to[i] = i < place.count ? f(octet[i]) : Real(0);
}

}  // namespace detail

// A row of any length, read anew for each sum: for rows that registers do not hold, and for the
// rare ones that need more sums than others.
template <class Group, class Number, class Source>
class RowInMemory {
 public:
  using Real = Number;
  using Scalar = tile::Scalar<Real>;
  using Adder = typename Group::template Adder<Real>;
  using Memory = typename Group::template Memory<Real>;

  // Other rows may still be read where this one will add.
  ISOBIT_DEVICE RowInMemory(const Source& source, std::int64_t cols, const Memory& memory)
      : source_(source), cols_(cols), adder_(memory) {
    adder_.begin();
  }

  ISOBIT_DEVICE Real sum() const {
    return sum([](Real x) { return x; });
  }
  ISOBIT_DEVICE Moments<Real> deviations(Real mean) const {
    return moments([mean](Real x) { return x - mean; });
  }
  ISOBIT_DEVICE Real squares() const {
    return moments([](Real x) { return x; }).squares;
  }

  template <class F>
  ISOBIT_DEVICE Real sum(const F& f) const {
    return moments(f).sum;
  }
  template <class F>
  ISOBIT_DEVICE Moments<Real> moments(const F& f) const {
    const SumAndDot<Real> result = sum_and_dot(
        [&](const Place& place, const Real(&octet)[kOctet], Real(&a)[kOctet], Real(&b)[kOctet]) {
          detail::map_octet(place, octet, a, f);
          detail::map_octet(place, octet, b, f);
        });
    return {result.sum, result.dot};
  }

  // Of a (or 0 without kSum), and of a * b: terms(place, octet, a, b) gives them for an octet of
  // the row.
  template <bool kSum = true, class Terms>
  ISOBIT_DEVICE SumAndDot<Real> sum_and_dot(const Terms& terms) const {
    for (std::int64_t block = Group::worker(); block < blocks_of(cols_);
         block += Group::workers()) {
      detail::FirstFold<Real> fold;
#pragma unroll
      for (int half = 0; half < kHalvesOf<Group>; ++half) {
        const Place place = place_in<Group>(block, half, cols_);
        Real octet[kOctet], a[kOctet], b[kOctet];
        source_.load(place, octet);
        terms(place, octet, a, b);
        fold.add(half, a, b);
      }
      adder_.put(0, block, adder_.fold(fold.dot));
      if constexpr (kSum) adder_.put(1, block, adder_.fold(fold.sum));
    }
    Real total[kSum ? 2 : 1];
    adder_.totals(blocks_of(cols_), total);
    return {kSum ? total[kSum ? 1 : 0] : Real(0), total[0]};
  }

  ISOBIT_DEVICE const RowInMemory& rare() const { return *this; }

  // Calls body(place, octet) for all octets of this thread.
  template <class Body>
  ISOBIT_DEVICE void for_each_octet(const Body& body) const {
    for (std::int64_t block = Group::worker(); block < blocks_of(cols_);
         block += Group::workers()) {
      for (int half = 0; half < kHalvesOf<Group>; ++half) {
        const Place place = place_in<Group>(block, half, cols_);
        if (place.count == 0) continue;
        Real octet[kOctet];
        source_.load(place, octet);
        body(place, octet);
      }
    }
  }

  // Of equal ones the first, which tells -0 from +0 where all are zero; NaN where an element is.
  ISOBIT_DEVICE Extremes<Real> extremes() const {
    constexpr Real kInfinity = std::numeric_limits<Real>::infinity();
    Real lowest = kInfinity, highest = -kInfinity, first = 0;
    for_each_octet([&](const Place& place, const Real(&octet)[kOctet]) {
      if (place.col == 0) first = octet[0];
      for (int i = 0; i < place.count; ++i) {
        lowest = lower(lowest, octet[i]);
        highest = higher(highest, octet[i]);
      }
    });
    lowest = adder_.chosen(lowest, [](Real a, Real b) { return lower(a, b); });
    highest = adder_.chosen(highest, [](Real a, Real b) { return higher(a, b); });
    first = adder_.of_first(first);
    if (lowest == highest) return {first, first};
    return {lowest, highest};
  }

 private:
  ISOBIT_DEVICE static Real lower(Real a, Real b) { return a != a || a < b ? a : b; }
  ISOBIT_DEVICE static Real higher(Real a, Real b) { return a != a || a > b ? a : b; }

  Source source_;
  std::int64_t cols_;
  mutable Adder adder_;
};

// A row in registers, kBlocks blocks of it to a worker. What only rare rows need is read anew.
template <class Group, class Number, int kBlocks, class Source>
class RowInRegisters {
 public:
  using Real = Number;
  using Scalar = tile::Scalar<Real>;
  using Adder = typename Group::template Adder<Real>;
  using Memory = typename Group::template Memory<Real>;

  // `again` gives the same row, should it be wanted once more.
  template <class First>
  ISOBIT_DEVICE RowInRegisters(const First& first, const Source& again, std::int64_t cols,
                               Adder& adder, const Memory& memory)
      : again_(again), cols_(cols), adder_(adder), memory_(memory) {
#pragma unroll
    for (int k = 0; k < kBlocks; ++k)
#pragma unroll
      for (int half = 0; half < kHalves; ++half) first.load(place(k, half), x_[k][half]);
  }

  ISOBIT_DEVICE Real sum() const {
    Real sums[1][kBlocks], total[1];
#pragma unroll
    for (int k = 0; k < kBlocks; ++k) {
      detail::FirstFold<Real> fold;
#pragma unroll
      for (int half = 0; half < kHalves; ++half) fold.add(half, x_[k][half], x_[k][half]);
      sums[0][k] = adder_.fold(fold.sum);
    }
    adder_.totals(sums, blocks_of(cols_), total);
    return total[0];
  }
  ISOBIT_DEVICE Moments<Real> deviations(Real mean) const {
    const SumAndDot<Real> result = sum_and_dot(
        [mean](const Place& place, const Real(&octet)[kOctet], Real(&a)[kOctet], Real(&b)[kOctet]) {
          const auto deviation = [mean](Real x) { return x - mean; };
          detail::map_octet(place, octet, a, deviation);
          detail::map_octet(place, octet, b, deviation);
        });
    return {result.sum, result.dot};
  }
  ISOBIT_DEVICE Real squares() const {
    const auto terms = [](const Place&, const Real(&octet)[kOctet], Real(&a)[kOctet],
                          Real(&b)[kOctet]) {
#pragma unroll
      for (int i = 0; i < kOctet; ++i) a[i] = b[i] = octet[i];
    };
    return sum_and_dot<false>(terms).dot;
  }

  // As RowInMemory says.
  template <bool kSum = true, class Terms>
  ISOBIT_DEVICE SumAndDot<Real> sum_and_dot(const Terms& terms) const {
    constexpr int kSums = kSum ? 2 : 1;
    Real sums[kSums][kBlocks], total[kSums];
#pragma unroll
    for (int k = 0; k < kBlocks; ++k) {
      detail::FirstFold<Real> fold;
#pragma unroll
      for (int half = 0; half < kHalves; ++half) {
        Real a[kOctet], b[kOctet];
        terms(place(k, half), x_[k][half], a, b);
        fold.add(half, a, b);
      }
      sums[0][k] = adder_.fold(fold.dot);
      if constexpr (kSum) sums[1][k] = adder_.fold(fold.sum);
    }
    adder_.totals(sums, blocks_of(cols_), total);
    return {kSum ? total[kSums - 1] : Real(0), total[0]};
  }

  ISOBIT_DEVICE RowInMemory<Group, Real, Source> rare() const { return {again_, cols_, memory_}; }

  // Calls body(place, octet) for all that this thread holds.
  template <class Body>
  ISOBIT_DEVICE void for_each_octet(const Body& body) const {
#pragma unroll
    for (int k = 0; k < kBlocks; ++k)
#pragma unroll
      for (int half = 0; half < kHalves; ++half)
        if (const Place at = place(k, half); at.count > 0) body(at, x_[k][half]);
  }

 private:
  static constexpr int kHalves = kHalvesOf<Group>;

  ISOBIT_DEVICE Place place(int k, int half) const { return held_place<Group>(k, half, cols_); }

  Real x_[kBlocks][kHalves][kOctet];
  Source again_;
  std::int64_t cols_;
  Adder& adder_;
  Memory memory_;
};

}  // namespace isobit::norms
