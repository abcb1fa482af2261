// SPDX-License-Identifier: Apache-2.0
// Pieces: as many adjacent elements as 16 bytes hold, which a lane moves at once (of doubles, which
// are rare, twice as many: fewer pieces take fewer registers). Lanes next to each other take pieces
// next to each other, so a warp moves whole sectors of memory.
#pragma once

#include <algorithm>
#include <cstdint>

#include "isobit/core/dtype.h"
#include "isobit/simt/simt.h"

namespace isobit::tile {

inline constexpr int kPieceBytes = 16;
template <class T>
inline constexpr int kPiece = kPieceBytes / static_cast<int>(sizeof(T)) * (sizeof(T) == 8 ? 2 : 1);

// Where a piece of a row stands: which of those that a thread keeps it is, its first column, and
// how many columns the row has from there on: more than the piece has, or fewer, or less than none.
struct Place {
  int index, col, left;
};

// Whether pieces may begin at this address.
ISOBIT_EITHER bool on_pieces(const void* address) {
  return reinterpret_cast<std::uintptr_t>(address) % kPieceBytes == 0;
}

namespace detail {

// What one instruction moves of kElements adjacent ones.
template <class T, int kElements>
inline constexpr int kVectorBytes = std::min(kPieceBytes, kElements* static_cast<int>(sizeof(T)));
template <class T, int kElements>
struct alignas(kVectorBytes<T, kElements>) Vector {
  static constexpr int kSize = kVectorBytes<T, kElements> / static_cast<int>(sizeof(T));
  T elements[kSize];
};

// What is not whole or not on vectors. It is rare, so it shall be short, and in a loop.
template <int kElements, class Real, class Read>
ISOBIT_DEVICE void read_part(const Read& read, int left, Real* to) {
#pragma unroll 1
  for (int i = 0; i < kElements; ++i) to[i] = i < left ? read(i) : Real(0);
}
template <int kElements, class Real, class Write>
ISOBIT_DEVICE void write_part(const Write& write, int left, const Real* from) {
#pragma unroll 1
  for (int i = 0; i < kElements && i < left; ++i) write(i, from[i]);
}

// Elements in memory: what a loop works on, while the others stay in registers.
template <class Real, int kElements>
struct Staged {
  Real elements[kElements];
};

}  // namespace detail

// A piece as it lies in memory.
template <class T>
using RawPiece = detail::Vector<T, kPiece<T>>;

// A piece whose elements are all there, on vectors; widened.
template <class Real, class T, int kElements>
ISOBIT_DEVICE void load_whole(const T* from, Real (&to)[kElements]) {
  using Vector = detail::Vector<T, kElements>;
#pragma unroll
  for (int i = 0; i < kElements; i += Vector::kSize)
    simt::widen_all(simt::load(reinterpret_cast<const Vector*>(from + i)).elements, &to[i]);
}

// A piece of which `left` elements are there, each as read(i) gives it, and zeros.
template <class Real, class Read, int kElements>
ISOBIT_DEVICE void load_each(const Read& read, int left, Real (&to)[kElements]) {
  detail::Staged<Real, kElements> staged;
  detail::read_part<kElements>(read, left, staged.elements);
#pragma unroll
  for (int i = 0; i < kElements; ++i) to[i] = staged.elements[i];
}

// The one or the other; `vectors` tells that all pieces of the array may be moved in vectors.
template <class Real, class T, int kElements>
ISOBIT_DEVICE void load_piece(const T* from, int left, bool vectors, Real (&to)[kElements]) {
  if (vectors && left >= kElements)
    load_whole(from, to);
  else
    load_each([&](int i) { return simt::Conversions::widen<Real>(from[i]); }, left, to);
}

// The same from shared memory, where they lie on pieces, the last one whole.
template <class Real, class T, int kElements>
ISOBIT_DEVICE void load_shared_piece(const T* from, int left, Real (&to)[kElements]) {
  using Vector = detail::Vector<T, kElements>;
#pragma unroll
  for (int i = 0; i < kElements; i += Vector::kSize) {
    Vector vector = {};
    if (i < left) vector = simt::load_shared(reinterpret_cast<const Vector*>(from + i));
    simt::widen_all(vector.elements, &to[i]);
  }
}

template <class T, class Real, int kElements>
ISOBIT_DEVICE void store_whole(T* to, const Real (&from)[kElements]) {
  using Vector = detail::Vector<T, kElements>;
#pragma unroll
  for (int i = 0; i < kElements; i += Vector::kSize) {
    Vector vector;
    simt::narrow_all(&from[i], vector.elements);
    simt::store(reinterpret_cast<Vector*>(to + i), vector);
  }
}

// By write(i, number).
template <class Real, class Write, int kElements>
ISOBIT_DEVICE void store_each(const Write& write, int left, const Real (&from)[kElements]) {
  detail::Staged<Real, kElements> staged;
#pragma unroll
  for (int i = 0; i < kElements; ++i) staged.elements[i] = from[i];
  detail::write_part<kElements>(write, left, staged.elements);
}

template <class T, class Real, int kElements>
ISOBIT_DEVICE void store_piece(T* to, int left, bool vectors, const Real (&from)[kElements]) {
  if (vectors && left >= kElements)
    store_whole(to, from);
  else
    store_each([&](int i, Real value) { to[i] = simt::Conversions::narrow<T>(value); }, left, from);
}

}  // namespace isobit::tile
