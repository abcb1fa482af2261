// SPDX-License-Identifier: Apache-2.0
// Eight adjacent elements: what one lane holds of a block of the order (core/order.h) in one piece,
// and moves in vectors of 16 bytes where they lie on such.
#pragma once

#include <cstdint>

#include "isobit/core/dtype.h"
#include "isobit/simt/simt.h"

namespace isobit::tile {

inline constexpr int kOctet = 8;

// Where an octet of a row stands: which of those that a thread keeps it is, its first column, and
// how many of its elements the row has.
struct Place {
  int index;
  std::int64_t col;
  int count;
};
ISOBIT_DEVICE Place place_at(std::int64_t col, std::int64_t cols, int index = 0) {
  const std::int64_t left = cols - col;
  return {index, col, left <= 0 ? 0 : static_cast<int>(left < kOctet ? left : kOctet)};
}

namespace detail {

template <class T>
struct alignas(16) Vector {
  static constexpr int kSize = 16 / sizeof(T);
  T elements[kSize];
};

}  // namespace detail

// Whether vectors of 16 bytes may begin at this address.
ISOBIT_EITHER bool on_vectors(const void* address) {
  return reinterpret_cast<std::uintptr_t>(address) % 16 == 0;
}

namespace detail {

// What is no whole octet on vectors. Out of line: it is rare, and would fill every kernel.
template <class Real, class T>
ISOBIT_DEVICE_NOINLINE void load_part(const T* from, int count, Real* to) {
  for (int i = 0; i < kOctet; ++i)
    to[i] = i < count ? simt::Conversions::widen<Real>(from[i]) : Real(0);
}
template <class T, class Real>
ISOBIT_DEVICE_NOINLINE void store_part(T* to, int count, const Real* from) {
  for (int i = 0; i < kOctet && i < count; ++i) to[i] = simt::Conversions::narrow<T>(from[i]);
}

// An octet in memory: what a function out of line works on, while the others stay in registers.
template <class Real>
struct Staged {
  Real elements[kOctet];
};

}  // namespace detail

// The first `count` of eight elements, widened, and zeros; `vectors` tells that they lie on such.
template <class Real, class T>
ISOBIT_DEVICE void load_octet(const T* from, int count, bool vectors, Real (&to)[kOctet]) {
  using Vector = detail::Vector<T>;
  if (vectors && count >= kOctet) {
#pragma unroll
    for (int i = 0; i < kOctet; i += Vector::kSize) {
      const Vector vector = simt::load(reinterpret_cast<const Vector*>(from + i));
#pragma unroll
      for (int j = 0; j < Vector::kSize; ++j)
        to[i + j] = simt::Conversions::widen<Real>(vector.elements[j]);
    }
  } else {
    detail::Staged<Real> staged;
    detail::load_part(from, count, staged.elements);
#pragma unroll
    for (int i = 0; i < kOctet; ++i) to[i] = staged.elements[i];
  }
}

// The same from shared memory, where they lie on vectors, the last one whole.
template <class Real, class T>
ISOBIT_DEVICE void load_shared_octet(const T* from, int count, Real (&to)[kOctet]) {
  using Vector = detail::Vector<T>;
#pragma unroll
  for (int i = 0; i < kOctet; i += Vector::kSize) {
    Vector vector = {};
    if (i < count) vector = simt::load_shared(reinterpret_cast<const Vector*>(from + i));
#pragma unroll
    for (int j = 0; j < Vector::kSize; ++j)
      to[i + j] = simt::Conversions::widen<Real>(vector.elements[j]);
  }
}

// Stores without vectors: for types that are rare.
template <class T, class Real>
ISOBIT_DEVICE void store_octet_anywhere(T* to, int count, const Real (&from)[kOctet]) {
  detail::Staged<Real> staged;
#pragma unroll
  for (int i = 0; i < kOctet; ++i) staged.elements[i] = from[i];
  detail::store_part(to, count, staged.elements);
}

template <class T, class Real>
ISOBIT_DEVICE void store_octet(T* to, int count, bool vectors, const Real (&from)[kOctet]) {
  using Vector = detail::Vector<T>;
  if (vectors && count >= kOctet) {
#pragma unroll
    for (int i = 0; i < kOctet; i += Vector::kSize) {
      Vector vector;
#pragma unroll
      for (int j = 0; j < Vector::kSize; ++j)
        vector.elements[j] = simt::Conversions::narrow<T>(from[i + j]);
      simt::store(reinterpret_cast<Vector*>(to + i), vector);
    }
  } else {
    store_octet_anywhere(to, count, from);
  }
}

}  // namespace isobit::tile
