// SPDX-License-Identifier: Apache-2.0
// A row as the formulas of norms want it, summed by a group of threads in the order of
// core/order.h. Every thread of the group calls everything, and gets the same.
//
// A Source gives the row: source.load(place, piece) the kElements elements of a place, and zeros; a
// thread only ever asks for its own pieces.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>

#include "isobit/core/order.h"
#include "isobit/norms/statistics.h"
#include "isobit/simt/simt.h"
#include "isobit/tile/piece.h"
#include "isobit/tile/row_group.h"
#include "isobit/tile/scalar.h"

namespace isobit::norms {

using tile::kPiece;
using tile::Place;

// Columns are counted in 32 bits: shared memory has no room for the sums of so many.
inline constexpr int kBlock = order::kBlock;

// How many pieces of kElements a lane has of a block of the order.
template <class Group, int kElements>
inline constexpr int kPiecesOf = Group::kWidth / (Group::kWorkerLanes * kElements);

// Whether a row has all of a block of the order that a group's lanes hold: all but its last one.
template <class Group>
ISOBIT_DEVICE bool whole(int block, int cols) {
  return block * kBlock + Group::kWidth <= cols;
}

// A piece of a block of the order.
template <class Group, int kElements>
ISOBIT_DEVICE Place place_in(int block, int piece, int cols, int k = 0) {
  const int first = (piece * Group::kWorkerLanes + Group::lane()) * kElements;
  const int col = block * kBlock + first;
  return {k * kPiecesOf<Group, kElements> + piece, col, cols - col};
}

// The same of the k-th block that a worker holds.
template <class Group, int kElements>
ISOBIT_DEVICE Place held_place(int k, int piece, int cols) {
  return place_in<Group, kElements>(Group::worker() + k * Group::workers(), piece, cols, k);
}

ISOBIT_EITHER int blocks_of(int cols) { return (cols + kBlock - 1) / kBlock; }

// All pieces of a thread. Where no branch lies between the loads, they are under way at once.
template <class Group, int kBlocks, class Source, class Real, int kCount, int kElements>
ISOBIT_DEVICE void load_pieces(const Source& source, int cols, Real (&to)[kCount][kElements]) {
  constexpr int kPieces = kPiecesOf<Group, kElements>;
  static_assert(kCount == kBlocks * kPieces);
  const auto place = [&](int i) {
    return held_place<Group, kElements>(i / kPieces, i % kPieces, cols);
  };
  const auto load_each = [&] {
#pragma unroll
    for (int i = 0; i < kCount; ++i) source.load(place(i), to[i]);
  };
  if constexpr (sizeof(Real) == 8) {  // registers hold too few doubles for a second way
    load_each();
  } else if (source.in_pieces(cols)) [[likely]] {
    decltype(source.raw(Place{})) raw[kCount];
#pragma unroll
    for (int i = 0; i < kCount; ++i) raw[i] = source.raw(place(i));
#pragma unroll
    for (int i = 0; i < kCount; ++i) simt::widen_all(raw[i].elements, to[i]);
  } else {
    load_each();
  }
}

template <class Real>
struct SumAndDot {
  Real sum, dot;
};

namespace detail {

// The folds of a block of the order that a lane makes of its own pieces: first those of the upper
// half onto the lower, where there is such. Of terms, and of products.
template <class Group, class Real, int kElements>
class LaneFold {
 public:
  // Of all pieces in their order.
  ISOBIT_DEVICE void add(int piece, const Real (&a)[kElements], const Real (&b)[kElements]) {
#pragma unroll
    for (int i = 0; i < kElements; ++i) {
      if (piece < kLower) {
        sums_[piece][i] = a[i];
        dots_[piece][i] = a[i] * b[i];
      } else {
        sums_[piece - kLower][i] += a[i];
        dots_[piece - kLower][i] = std::fma(a[i], b[i], dots_[piece - kLower][i]);
      }
    }
  }
  ISOBIT_DEVICE Real (&sum())[kElements] { return fold(sums_); }
  ISOBIT_DEVICE Real (&dot())[kElements] { return fold(dots_); }

 private:
  static constexpr int kPieces = kPiecesOf<Group, kElements>;
  static constexpr int kLower = Group::kWidth == order::kBlock ? kPieces / 2 : kPieces;

  ISOBIT_DEVICE static Real (&fold(Real (&pieces)[kLower][kElements]))[kElements] {
#pragma unroll
    for (int distance = kLower / 2; distance >= 1; distance /= 2)
#pragma unroll
      for (int p = 0; p < kLower / 2; ++p)
#pragma unroll
        for (int i = 0; i < kElements; ++i)
          if (p < distance) pieces[p][i] += pieces[p + distance][i];
    return pieces[0];
  }

  Real sums_[kLower][kElements], dots_[kLower][kElements];
};

// What the row does not have counts as +0. A row's last block alone is not whole, for all lanes.
template <class Real, int kElements>
ISOBIT_DEVICE void clear_beyond(const Place& place, Real (&piece)[kElements]) {
#pragma unroll
  for (int i = 0; i < kElements; ++i)
    if (i >= place.left) piece[i] = 0;
}
template <class Real, int kElements, class F>
ISOBIT_DEVICE void map_piece(const Place& place, bool whole, const Real (&piece)[kElements],
                             Real (&to)[kElements], const F& f) {
#pragma unroll
  for (int i = 0; i < kElements; ++i) to[i] = f(piece[i]);
  if (!whole) [[unlikely]]
    clear_beyond(place, to);
}

}  // namespace detail

// A source whose pieces are loaded by a function: for rows that are rare. What loads a piece is
// long, and the loops over a row would each hold it.
template <class Real, class Source>
struct OutOfLine {
  static constexpr int kElements = Source::kElements;
  Source source;

  ISOBIT_DEVICE void load(const Place& place, Real (&piece)[kElements]) const {
    const Piece found = loaded(place);
#pragma unroll
    for (int i = 0; i < kElements; ++i) piece[i] = found.elements[i];
  }

 private:
  struct Piece {
    Real elements[kElements];
  };
  ISOBIT_DEVICE_NOINLINE Piece loaded(Place place) const {
    Piece piece;
    source.load(place, piece.elements);
    return piece;
  }
};

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
  ISOBIT_DEVICE RowInMemory(const Source& source, int cols, const Memory& memory)
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
    const SumAndDot<Real> result =
        sum_and_dot([&](const Place& place, bool whole, const Real(&piece)[kElements],
                        Real(&a)[kElements], Real(&b)[kElements]) {
          detail::map_piece(place, whole, piece, a, f);
#pragma unroll
          for (int i = 0; i < kElements; ++i) b[i] = a[i];
        });
    return {result.sum, result.dot};
  }

  // Of a (or 0 without kSum), and of a * b: terms(place, whole, piece, a, b) gives them for a piece
  // of the row; whole where all lanes have all of theirs.
  template <bool kSum = true, class Terms>
  ISOBIT_DEVICE SumAndDot<Real> sum_and_dot(const Terms& terms) const {
    for (int block = Group::worker(); block < blocks_of(cols_); block += Group::workers()) {
      detail::LaneFold<Group, Real, kElements> fold;
      const bool all = whole<Group>(block, cols_);
      Real pieces[kPieces][kElements], a[kElements], b[kElements];
#pragma unroll
      for (int p = 0; p < kPieces; ++p)
        source_.load(place_in<Group, kElements>(block, p, cols_), pieces[p]);
#pragma unroll
      for (int p = 0; p < kPieces; ++p) {
        terms(place_in<Group, kElements>(block, p, cols_), all, pieces[p], a, b);
        fold.add(p, a, b);
      }
      adder_.put(0, block, adder_.fold(fold.dot()));
      if constexpr (kSum) adder_.put(1, block, adder_.fold(fold.sum()));
    }
    Real total[kSum ? 2 : 1];
    adder_.totals(blocks_of(cols_), total);
    return {kSum ? total[kSum ? 1 : 0] : Real(0), total[0]};
  }

  ISOBIT_DEVICE const RowInMemory& rare() const { return *this; }

  // Calls body(place, piece) for all pieces of this thread.
  template <class Body>
  ISOBIT_DEVICE void for_each_piece(const Body& body) const {
    for (int block = Group::worker(); block < blocks_of(cols_); block += Group::workers()) {
      for (int p = 0; p < kPieces; ++p) {
        const Place place = place_in<Group, kElements>(block, p, cols_);
        if (place.left <= 0) continue;
        Real piece[kElements];
        source_.load(place, piece);
        body(place, piece);
      }
    }
  }

  // Of equal ones the first, which tells -0 from +0 where all are zero; NaN where an element is.
  ISOBIT_DEVICE Extremes<Real> extremes() const {
    constexpr Real kInfinity = std::numeric_limits<Real>::infinity();
    Real lowest = kInfinity, highest = -kInfinity, first = 0;
    for_each_piece([&](const Place& place, const Real(&piece)[kElements]) {
      if (place.col == 0) first = piece[0];
      for (int i = 0; i < kElements && i < place.left; ++i) {
        lowest = lower(lowest, piece[i]);
        highest = higher(highest, piece[i]);
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

  static constexpr int kElements = Source::kElements;
  static constexpr int kPieces = kPiecesOf<Group, kElements>;

  Source source_;
  int cols_;
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
  ISOBIT_DEVICE RowInRegisters(const First& first, const Source& again, int cols, Adder& adder,
                               const Memory& memory)
      : again_(again), cols_(cols), adder_(adder), memory_(memory) {
    load_pieces<Group, kBlocks>(first, cols, x_);
  }

  ISOBIT_DEVICE Real sum() const {
    Real sums[1][kBlocks], total[1];
#pragma unroll
    for (int k = 0; k < kBlocks; ++k) {
      Fold fold;
#pragma unroll
      for (int p = 0; p < kPieces; ++p) fold.add(p, x_[k * kPieces + p], x_[k * kPieces + p]);
      sums[0][k] = adder_.fold(fold.sum());
    }
    adder_.totals(sums, blocks_of(cols_), total);
    return total[0];
  }
  ISOBIT_DEVICE Moments<Real> deviations(Real mean) const {
    const SumAndDot<Real> result =
        sum_and_dot([mean](const Place& place, bool whole, const Real(&piece)[kElements],
                           Real(&a)[kElements], Real(&b)[kElements]) {
          detail::map_piece(place, whole, piece, a, [mean](Real x) { return x - mean; });
#pragma unroll
          for (int i = 0; i < kElements; ++i) b[i] = a[i];
        });
    return {result.sum, result.dot};
  }
  ISOBIT_DEVICE Real squares() const {
    const auto terms = [](const Place&, bool, const Real(&piece)[kElements], Real(&a)[kElements],
                          Real(&b)[kElements]) {
#pragma unroll
      for (int i = 0; i < kElements; ++i) a[i] = b[i] = piece[i];
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
      Fold fold;
      const bool all = whole<Group>(block(k), cols_);
#pragma unroll
      for (int p = 0; p < kPieces; ++p) {
        Real a[kElements], b[kElements];
        terms(place(k, p), all, x_[k * kPieces + p], a, b);
        fold.add(p, a, b);
      }
      sums[0][k] = adder_.fold(fold.dot());
      if constexpr (kSum) sums[1][k] = adder_.fold(fold.sum());
    }
    adder_.totals(sums, blocks_of(cols_), total);
    return {kSum ? total[kSums - 1] : Real(0), total[0]};
  }

  ISOBIT_DEVICE RowInMemory<Group, Real, OutOfLine<Real, Source>> rare() const {
    return {OutOfLine<Real, Source>{again_}, cols_, memory_};
  }

  // Of a row that is not plain, elements whose x̂ Normalise gives take the place of its own; the
  // statistics are those by which it does. So kernels hold the code behind this once.
  template <class Formula>
  ISOBIT_DEVICE Statistics<Real> make_plain(const Statistics<Real>& statistics) {
    Statistics<Real> plain = statistics;
    if (!statistics.plain) [[unlikely]] {
      const typename Formula::template NormaliseAny<Scalar> any(statistics);
#pragma unroll
      for (int k = 0; k < kBlocks * kPieces; ++k)
#pragma unroll
        for (int i = 0; i < kElements; ++i) x_[k][i] = any.made_plain(x_[k][i]);
      plain.mean = plain.shift = 0;
    }
    return plain;
  }

  // Calls body(place, piece) for all that this thread holds.
  template <class Body>
  ISOBIT_DEVICE void for_each_piece(const Body& body) const {
#pragma unroll
    for (int k = 0; k < kBlocks; ++k)
#pragma unroll
      for (int p = 0; p < kPieces; ++p)
        if (const Place at = place(k, p); at.left > 0) body(at, x_[k * kPieces + p]);
  }

 private:
  static constexpr int kElements = Source::kElements;
  static constexpr int kPieces = kPiecesOf<Group, kElements>;
  using Fold = detail::LaneFold<Group, Real, kElements>;

  ISOBIT_DEVICE static int block(int k) { return Group::worker() + k * Group::workers(); }
  ISOBIT_DEVICE Place place(int k, int p) const {
    return held_place<Group, kElements>(k, p, cols_);
  }

  Real x_[kBlocks * kPieces][kElements];
  Source again_;
  int cols_;
  Adder& adder_;
  Memory memory_;
};

}  // namespace isobit::norms
