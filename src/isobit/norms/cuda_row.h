// SPDX-License-Identifier: Apache-2.0
// A row as the formulas of norms want it, summed by a group of threads in the order of
// core/order.h. Every thread of the group calls everything, and gets the same.
//
// A Source gives the row: source.load(col, count, octet) the first `count` elements from `col` on,
// and zeros; a thread only ever asks for its own octets.
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

// Where a lane's octets of a block of the order begin, and how many elements of them a row has.
template <class Group>
struct OctetsOf {
  static constexpr int kHalves = Group::kWorkerLanes == simt::kWarpThreads ? 2 : 1;

  std::int64_t col;

  ISOBIT_DEVICE explicit OctetsOf(std::int64_t block)
      : col(block * order::kBlock + Group::lane() * kOctet) {}
  ISOBIT_DEVICE std::int64_t at(int half) const { return col + half * (order::kBlock / 2); }
  ISOBIT_DEVICE int count(int half, std::int64_t cols) const {
    const std::int64_t left = cols - at(half);
    return left <= 0 ? 0 : left < kOctet ? static_cast<int>(left) : kOctet;
  }
};

ISOBIT_EITHER std::int64_t blocks_of(std::int64_t cols) {
  return (cols + order::kBlock - 1) / order::kBlock;
}

namespace detail {

// The first fold of a block: an octet of its upper half, and of its lower one where there is such.
template <int kHalves, class Real>
ISOBIT_DEVICE void fold_sum(const Real (&terms)[kHalves][kOctet], Real (&folded)[kOctet]) {
#pragma unroll
  for (int i = 0; i < kOctet; ++i)
    folded[i] = kHalves == 2 ? terms[0][i] + terms[kHalves - 1][i] : terms[0][i];
}
template <int kHalves, class Real>
ISOBIT_DEVICE void fold_dot(const Real (&a)[kHalves][kOctet], const Real (&b)[kHalves][kOctet],
                            Real (&folded)[kOctet]) {
#pragma unroll
  for (int i = 0; i < kOctet; ++i) {
    folded[i] = a[0][i] * b[0][i];
    if constexpr (kHalves == 2) folded[i] = std::fma(a[1][i], b[1][i], folded[i]);
  }
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
    Real total[1];
    for_each_block(f, [&](std::int64_t block, const Terms& terms) {
      Real folded[kOctet];
      detail::fold_sum<kHalves>(terms.of, folded);
      adder_.put(0, block, adder_.fold(folded));
    });
    adder_.totals(blocks_of(cols_), total);
    return total[0];
  }
  template <class F>
  ISOBIT_DEVICE Moments<Real> moments(const F& f) const {
    Real total[2];
    for_each_block(f, [&](std::int64_t block, const Terms& terms) {
      Real folded[kOctet];
      detail::fold_sum<kHalves>(terms.of, folded);
      adder_.put(0, block, adder_.fold(folded));
      detail::fold_dot<kHalves>(terms.of, terms.of, folded);
      adder_.put(1, block, adder_.fold(folded));
    });
    adder_.totals(blocks_of(cols_), total);
    return {total[0], total[1]};
  }

  ISOBIT_DEVICE const RowInMemory& rare() const { return *this; }

  // Calls body(column, count, octet) for all octets of this thread.
  template <class Body>
  ISOBIT_DEVICE void for_each_octet(const Body& body) const {
    for (std::int64_t block = Group::worker(); block < blocks_of(cols_);
         block += Group::workers()) {
      const OctetsOf<Group> place(block);
      for (int half = 0; half < kHalves; ++half) {
        const int count = place.count(half, cols_);
        if (count == 0) continue;
        Real octet[kOctet];
        source_.load(place.at(half), count, octet);
        body(place.at(half), count, octet);
      }
    }
  }

  // Of equal ones the first, which tells -0 from +0 where all are zero; NaN where an element is.
  ISOBIT_DEVICE Extremes<Real> extremes() const {
    constexpr Real kInfinity = std::numeric_limits<Real>::infinity();
    Real lowest = kInfinity, highest = -kInfinity, first = 0;
    for_each_octet([&](std::int64_t col, int count, const Real(&octet)[kOctet]) {
      if (col == 0) first = octet[0];
      for (int i = 0; i < count; ++i) {
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
  static constexpr int kHalves = OctetsOf<Group>::kHalves;
  struct Terms {
    Real of[kHalves][kOctet];
  };

  ISOBIT_DEVICE static Real lower(Real a, Real b) { return a != a || a < b ? a : b; }
  ISOBIT_DEVICE static Real higher(Real a, Real b) { return a != a || a > b ? a : b; }

  template <class F, class Body>
  ISOBIT_DEVICE void for_each_block(const F& f, const Body& body) const {
    for (std::int64_t block = Group::worker(); block < blocks_of(cols_);
         block += Group::workers()) {
      const OctetsOf<Group> place(block);
      Terms terms;
#pragma unroll
      for (int half = 0; half < kHalves; ++half) {
        const int count = place.count(half, cols_);
        source_.load(place.at(half), count, terms.of[half]);
#pragma unroll
        for (int i = 0; i < kOctet; ++i)
          terms.of[half][i] = i < count ? f(terms.of[half][i]) : Real(0);
      }
      body(block, terms);
    }
  }

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
  static constexpr int kHalves = OctetsOf<Group>::kHalves;

  using Memory = typename Group::template Memory<Real>;

  // `again` gives the same row, should it be wanted once more.
  ISOBIT_DEVICE RowInRegisters(const Source& source, const Source& again, std::int64_t cols,
                               Adder& adder, const Memory& memory)
      : again_(again), cols_(cols), adder_(adder), memory_(memory) {
#pragma unroll
    for (int k = 0; k < kBlocks; ++k) {
      const OctetsOf<Group> place = octets(k);
#pragma unroll
      for (int half = 0; half < kHalves; ++half)
        source.load(place.at(half), place.count(half, cols), x_[k][half]);
    }
  }

  ISOBIT_DEVICE Real sum() const {
    Real sums[1][kBlocks], total[1];
#pragma unroll
    for (int k = 0; k < kBlocks; ++k) {
      Real folded[kOctet];
      detail::fold_sum<kHalves>(x_[k], folded);
      sums[0][k] = adder_.fold(folded);
    }
    adder_.totals(sums, blocks_of(cols_), total);
    return total[0];
  }
  ISOBIT_DEVICE Moments<Real> deviations(Real mean) const {
    Real sums[2][kBlocks], total[2];
#pragma unroll
    for (int k = 0; k < kBlocks; ++k) {
      Real d[kHalves][kOctet], folded[kOctet];
      const OctetsOf<Group> place = octets(k);
#pragma unroll
      for (int half = 0; half < kHalves; ++half) {
        const int count = place.count(half, cols_);
#pragma unroll
        for (int i = 0; i < kOctet; ++i) d[half][i] = i < count ? x_[k][half][i] - mean : Real(0);
      }
      detail::fold_sum<kHalves>(d, folded);
      sums[0][k] = adder_.fold(folded);
      detail::fold_dot<kHalves>(d, d, folded);
      sums[1][k] = adder_.fold(folded);
    }
    adder_.totals(sums, blocks_of(cols_), total);
    return {total[0], total[1]};
  }
  ISOBIT_DEVICE Real squares() const {
    Real sums[1][kBlocks], total[1];
#pragma unroll
    for (int k = 0; k < kBlocks; ++k) {
      Real folded[kOctet];
      detail::fold_dot<kHalves>(x_[k], x_[k], folded);
      sums[0][k] = adder_.fold(folded);
    }
    adder_.totals(sums, blocks_of(cols_), total);
    return total[0];
  }

  ISOBIT_DEVICE RowInMemory<Group, Real, Source> rare() const { return {again_, cols_, memory_}; }

  // Calls body(column, count, octet) for all that this thread holds.
  template <class Body>
  ISOBIT_DEVICE void for_each_octet(const Body& body) const {
#pragma unroll
    for (int k = 0; k < kBlocks; ++k) {
      const OctetsOf<Group> place = octets(k);
#pragma unroll
      for (int half = 0; half < kHalves; ++half)
        if (const int count = place.count(half, cols_); count > 0)
          body(place.at(half), count, x_[k][half]);
    }
  }

 private:
  ISOBIT_DEVICE OctetsOf<Group> octets(int k) const {
    return OctetsOf<Group>(Group::worker() + std::int64_t{k} * Group::workers());
  }

  Real x_[kBlocks][kHalves][kOctet];
  Source again_;
  std::int64_t cols_;
  Adder& adder_;
  Memory memory_;
};

}  // namespace isobit::norms
