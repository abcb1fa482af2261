// SPDX-License-Identifier: Apache-2.0
// The arrays of a norm as its kernels on GPUs read and write them, a piece at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "isobit/norms/philox.h"
#include "isobit/norms/problem.h"
#include "isobit/simt/simt.h"
#include "isobit/tile/in_turn.h"
#include "isobit/tile/piece.h"

namespace isobit::norms {

using tile::kPiece;
using tile::Place;
using tile::RealOf;

// Whether all rows begin where pieces may.
inline bool on_pieces(const Matrix& matrix, std::int64_t size) {
  return tile::on_pieces(matrix.data) &&
         (matrix.rows <= 1 || matrix.stride * size % tile::kPieceBytes == 0);
}

// One row of an array that may be absent.
template <class T>
struct ArrayRow {
  using Raw = tile::RawPiece<std::remove_const_t<T>>;
  T* data = nullptr;
  bool vectors = false;

  ISOBIT_DEVICE explicit operator bool() const { return data != nullptr; }

  template <class Real, int kElements>
  ISOBIT_DEVICE void load(const Place& place, Real (&piece)[kElements]) const {
    tile::load_piece(data + place.col, place.left, vectors, piece);
  }
  // Whether a row of so many columns has each piece whole or not at all; then, what raw() gives.
  ISOBIT_DEVICE bool in_pieces(int cols) const { return vectors && cols % kPiece<T> == 0; }
  ISOBIT_DEVICE Raw raw(const Place& place) const {
    Raw piece = {};
    if (place.left > 0) piece = simt::load(reinterpret_cast<const Raw*>(data + place.col));
    return piece;
  }
  template <class Real, int kElements>
  ISOBIT_DEVICE void store(const Place& place, const Real (&piece)[kElements]) const {
    tile::store_piece(data + place.col, place.left, vectors, piece);
  }
};

// An array of x's type.
template <class T>
struct Array {
  T* data;
  std::int64_t stride;
  bool vectors;

  explicit Array(const Matrix& matrix)
      : data(reinterpret_cast<T*>(matrix.data)),
        stride(matrix.stride),
        vectors(on_pieces(matrix, sizeof(T))) {}

  ISOBIT_DEVICE ArrayRow<T> row(std::int64_t row) const {
    return {data == nullptr ? nullptr : data + row * stride, vectors};
  }
};

// One row of an array of x's type or another. Others are rare, and not moved in vectors.
template <class Real, class T>
struct AnyRow {
  std::byte* data;
  DType dtype;
  bool like_x, vectors;

  ISOBIT_DEVICE bool in_pieces(int cols) const { return like_x && as_x().in_pieces(cols); }
  ISOBIT_DEVICE auto raw(const Place& place) const { return as_x().raw(place); }
  ISOBIT_DEVICE void load(const Place& place, Real (&piece)[kPiece<T>]) const {
    if (like_x && whole(place))
      tile::load_whole(reinterpret_cast<const T*>(data) + place.col, piece);
    else
      tile::load_each([&](int i) { return read(place.col + i); }, place.left, piece);
  }
  ISOBIT_DEVICE void store(const Place& place, const Real (&piece)[kPiece<T>]) const {
    if (like_x && whole(place))
      tile::store_whole(reinterpret_cast<T*>(data) + place.col, piece);
    else
      tile::store_each([&](int i, Real number) { write(place.col + i, number); }, place.left,
                       piece);
  }

 private:
  ISOBIT_DEVICE ArrayRow<const T> as_x() const {
    return {reinterpret_cast<const T*>(data), vectors};
  }
  ISOBIT_DEVICE bool whole(const Place& place) const { return vectors && place.left >= kPiece<T>; }
  ISOBIT_DEVICE Real read(int col) const {
    Real number = 0;
    at(col, [&](const auto* element) { number = simt::Conversions::widen<Real>(*element); });
    return number;
  }
  ISOBIT_DEVICE void write(int col, Real number) const {
    at(col, [&]<class Any>(Any* element) { *element = simt::Conversions::narrow<Any>(number); });
  }
  // Calls body(where an element is, in its type). Beside doubles there are no others.
  template <class Body>
  ISOBIT_DEVICE void at(int col, const Body& body) const {
    if constexpr (!std::is_same_v<Real, double>) {
      if (!like_x) {
        if (dtype == DType::f32) return body(reinterpret_cast<float*>(data) + col);
        if (dtype == DType::bf16) return body(reinterpret_cast<bf16*>(data) + col);
        return body(reinterpret_cast<f16*>(data) + col);
      }
    }
    body(reinterpret_cast<T*>(data) + col);
  }
};

template <class Real, class T>
struct AnyArray {
  std::byte* data;
  std::int64_t row_bytes;
  DType dtype;
  bool like_x, vectors;

  AnyArray(const Matrix& matrix, DType dtype, DType x)
      : data(matrix.data),
        row_bytes(matrix.stride * size_of(dtype)),
        dtype(dtype),
        like_x(dtype == x),
        vectors(on_pieces(matrix, size_of(dtype))) {}

  ISOBIT_DEVICE AnyRow<Real, T> row(std::int64_t row) const {
    return {data + row * row_bytes, dtype, like_x, vectors};
  }
};

// Weight or bias, of x's type or of f32. One that is absent is neutral everywhere.
template <class Real, class T>
struct WeightArray {
  const void* data;
  Real neutral;
  bool like_x, vectors;
  bool one_less;  // is stored than it is

  template <class Problem>
  static WeightArray weight(const Problem& problem) {
    return {problem.weight, 1, problem, problem.zero_centered};
  }
  template <class Problem>
  static WeightArray bias(const Problem& problem) {
    return {problem.bias, Real(-0.0), problem, false};  // -0 is what no addition notices
  }

  ISOBIT_DEVICE void load(const Place& place, Real (&piece)[kPiece<T>]) const {
    if (data == nullptr) {
#pragma unroll
      for (int i = 0; i < kPiece<T>; ++i) piece[i] = neutral;
      return;
    }
    const auto* const as_x = static_cast<const T*>(data) + place.col;
    const auto* const floats = static_cast<const float*>(data) + place.col;
    const bool whole = vectors && place.left >= kPiece<T>;
    if (whole && like_x) {
      tile::load_whole(as_x, piece);
    } else if (whole) {
      tile::load_whole(floats, piece);
    } else {
      const auto read = [&](int i) {
        return like_x ? simt::Conversions::widen<Real>(as_x[i])
                      : simt::Conversions::widen<Real>(floats[i]);
      };
      tile::load_each(read, place.left, piece);
    }
    if (one_less)
#pragma unroll
      for (int i = 0; i < kPiece<T>; ++i) piece[i] += 1;
  }

 private:
  template <class Problem>
  WeightArray(const void* data, Real neutral, const Problem& problem, bool one_less)
      : data(data),
        neutral(neutral),
        like_x(problem.weight_dtype == problem.dtype),
        vectors(tile::on_pieces(data)),
        one_less(one_less) {}
};

// What is dropped of all rows of a call: as norms/philox.h says.
template <class Real>
struct DropoutMask {
  bool drops;
  std::uint32_t threshold;
  Real scale;
  std::uint64_t seed;

  explicit DropoutMask(const Dropout& dropout)
      : drops(dropout.drops()),
        threshold(dropout_threshold(dropout.p)),
        scale(dropout_scale<Real>(dropout.p)),
        seed(dropout.seed) {}

  template <int kElements>
  ISOBIT_DEVICE void apply(std::int64_t row, const Place& place, Real (&piece)[kElements]) const {
    const unsigned kept = this->kept<kElements>(row, place);
#pragma unroll
    for (int i = 0; i < kElements; ++i) piece[i] = of(kept >> i, piece[i]);
  }

  // A bit for each element of a piece that is kept, and what becomes of an element by the lowest.
  template <int kElements>
  ISOBIT_DEVICE unsigned kept(std::int64_t row, const Place& place) const {
    return bits<kElements>(row, place.col);
  }
  ISOBIT_DEVICE Real of(unsigned kept, Real element) const {
    return kept & 1 ? element * scale : Real(0);
  }

 private:
  // Out of line: the rounds are long.
  template <int kElements>
  ISOBIT_DEVICE_NOINLINE unsigned bits(std::int64_t row, std::int64_t col) const {
    unsigned kept = 0;
    for (int i = 0; i < kElements; i += 4) {
      const auto words = dropout_words(seed, row, (col + i) / 4);
      for (int j = 0; j < 4 && i + j < kElements; ++j)
        kept |= unsigned{words[(col + j) % 4] >= threshold} << (i + j);
    }
    return kept;
  }
};

}  // namespace isobit::norms
