// SPDX-License-Identifier: Apache-2.0
// What kernels read and write of rows of any strides, a piece at a time, and of channels.
#pragma once

#include <cstdint>

#include "isobit/norms/cuda_arrays.h"
#include "isobit/ops/channel_norm/problem.h"
#include "isobit/simt/simt.h"
#include "isobit/tile/row_group.h"

namespace isobit::channel_norm {

using norms::ArrayRow;
using norms::RealOf;
using tile::kPiece;
using tile::Place;

// A row of an array of any strides, a piece at a time.
template <class T>
class Elements {
 public:
  static constexpr int kElements = kPiece<T>;

  ISOBIT_DEVICE Elements(const Images& array, const Row& row)
      : data_(reinterpret_cast<T*>(array.data) + row.place(array, 0, 0)),
        step_(row.step(array)),
        stride_(array.l),
        extent_(static_cast<int>(row.extent)),
        adjacent_(stride_ == 1 && (row.segments == 1 || step_ == row.extent)),
        vectors_(tile::on_pieces(data_)) {}

  template <class Real>
  ISOBIT_DEVICE void load(const Place& place, Real (&piece)[kElements]) const {
    if (adjacent_) return as_row().load(place, piece);
    const Piece<Real> found = gathered<Real>(place);
#pragma unroll
    for (int i = 0; i < kElements; ++i) piece[i] = found.elements[i];
  }
  template <class Real>
  ISOBIT_DEVICE void store(const Place& place, const Real (&piece)[kElements]) const {
    if (adjacent_) return as_row().store(place, piece);
    Piece<Real> found;
#pragma unroll
    for (int i = 0; i < kElements; ++i) found.elements[i] = piece[i];
    scatter(place, found);
  }

 private:
  template <class Real>
  struct Piece {
    Real elements[kElements];
  };
  ISOBIT_DEVICE ArrayRow<T> as_row() const { return {data_, vectors_}; }

  // Functions by themselves: a kernel has a dozen loops over a row, and each would hold a walk.
  template <class Real>
  ISOBIT_DEVICE_NOINLINE Piece<Real> gathered(Place place) const {
    Piece<Real> result;
    walk(place, [&](int i, const T* from) {
      result.elements[i] =
          from == nullptr ? Real(0) : simt::Conversions::widen<Real>(simt::load(from));
    });
    return result;
  }
  template <class Real>
  ISOBIT_DEVICE_NOINLINE void scatter(Place place, Piece<Real> piece) const {
    walk(place, [&](int i, T* to) {
      if (to != nullptr) *to = simt::Conversions::narrow<T>(piece.elements[i]);
    });
  }

  // Calls body(i, where element i of a piece stands, null where the row has none).
  template <class Body>
  ISOBIT_DEVICE void walk(const Place& place, const Body& body) const {
    const int segment = place.left > 0 ? place.col / extent_ : 0;
    int l = place.col - segment * extent_;
    T* at = data_ + segment * step_;
#pragma unroll
    for (int i = 0; i < kElements; ++i) {
      body(i, i < place.left ? at + l * stride_ : nullptr);
      if (++l == extent_) l = 0, at += step_;
    }
  }

  T* data_;
  std::int64_t step_, stride_;
  int extent_;
  bool adjacent_, vectors_;
};

// Numbers of channels, in x's type or in f32; neutral where they are not given.
template <class T>
struct Numbers {
  using Real = RealOf<T>;
  const std::byte* data;
  Real neutral;
  bool like_x;

  ISOBIT_DEVICE Real at(std::int64_t channel) const {
    if (data == nullptr) return neutral;
    if (like_x)
      return simt::Conversions::widen<Real>(simt::load(reinterpret_cast<const T*>(data) + channel));
    return simt::load(reinterpret_cast<const float*>(data) + channel);
  }
};

// The segment that each element of a piece is in.
template <class Body>
ISOBIT_DEVICE void for_each_segment(const Place& place, int extent, int count, const Body& body) {
  int segment = place.left > 0 ? place.col / extent : 0;
  int l = place.col - segment * extent;
  for (int i = 0; i < count && i < place.left; ++i) {
    body(i, segment);
    if (++l == extent) l = 0, ++segment;
  }
}

// One of the numbers that a row has.
template <class Real>
ISOBIT_DEVICE void put(const OfRows& to, std::int64_t row, Real value, int number = 0) {
  if (to) reinterpret_cast<Real*>(to.data)[to.place(row, number)] = narrow<Real>(value);
}

}  // namespace isobit::channel_norm
