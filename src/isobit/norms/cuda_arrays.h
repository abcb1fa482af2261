// SPDX-License-Identifier: Apache-2.0
// The arrays of a norm as its kernels on GPUs read and write them, an octet at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "isobit/norms/philox.h"
#include "isobit/norms/problem.h"
#include "isobit/simt/simt.h"
#include "isobit/tile/octet.h"

namespace isobit::norms {

using tile::kOctet;
using tile::Place;

// What a type is computed in.
template <class T>
using RealOf = std::conditional_t<std::is_same_v<T, double>, double, float>;

// Whether octets of all rows lie on vectors.
inline bool on_vectors(const Matrix& matrix, std::int64_t size) {
  return tile::on_vectors(matrix.data) && (matrix.rows <= 1 || matrix.stride * size % 16 == 0);
}

// One row of an array that may be absent.
template <class T>
struct ArrayRow {
  T* data = nullptr;
  bool vectors = false;

  ISOBIT_DEVICE explicit operator bool() const { return data != nullptr; }

  template <class Real>
  ISOBIT_DEVICE void load(const Place& place, Real (&octet)[kOctet]) const {
    tile::load_octet(data + place.col, place.count, vectors, octet);
  }
  template <class Real>
  ISOBIT_DEVICE void store(const Place& place, const Real (&octet)[kOctet]) const {
    tile::store_octet(data + place.col, place.count, vectors, octet);
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
        vectors(on_vectors(matrix, sizeof(T))) {}

  ISOBIT_DEVICE ArrayRow<T> row(std::int64_t row) const {
    return {data == nullptr ? nullptr : data + row * stride, vectors};
  }
};

// An array of x's type or another. Others are rare, and not moved in vectors.
template <class Real, class T>
struct AnyArray {
  std::byte* data;
  std::int64_t stride;
  DType dtype;
  bool like_x, vectors;

  AnyArray(const Matrix& matrix, DType dtype, DType x)
      : data(matrix.data),
        stride(matrix.stride),
        dtype(dtype),
        like_x(dtype == x),
        vectors(on_vectors(matrix, size_of(dtype))) {}

  ISOBIT_DEVICE void load(std::int64_t row, const Place& place, Real (&octet)[kOctet]) const {
    with_elements(row * stride + place.col, [&](const auto* elements, bool vectors) {
      tile::load_octet(elements, place.count, vectors, octet);
    });
  }
  ISOBIT_DEVICE void store(std::int64_t row, const Place& place,
                           const Real (&octet)[kOctet]) const {
    with_elements(row * stride + place.col, [&](auto* elements, bool vectors) {
      tile::store_octet(elements, place.count, vectors, octet);
    });
  }

 private:
  template <class Body>
  ISOBIT_DEVICE void with_elements(std::int64_t at, const Body& body) const {
    if (like_x) {
      body(reinterpret_cast<T*>(data) + at, vectors);
    } else if constexpr (!std::is_same_v<Real, double>) {
      if (dtype == DType::f32)
        body(reinterpret_cast<float*>(data) + at, false);
      else if (dtype == DType::bf16)
        body(reinterpret_cast<bf16*>(data) + at, false);
      else
        body(reinterpret_cast<f16*>(data) + at, false);
    }
  }
};

// Weight or bias, of x's type or of f32. One that is absent is neutral everywhere.
template <class Real, class T>
struct WeightArray {
  const void* data;
  Real neutral, offset;  // offset: what is stored less
  bool like_x, vectors;

  template <class Problem>
  static WeightArray weight(const Problem& problem) {
    return {problem.weight, 1, problem.zero_centred ? Real(1) : Real(-0.0), problem};
  }
  template <class Problem>
  static WeightArray bias(const Problem& problem) {
    return {problem.bias, Real(-0.0), Real(-0.0), problem};  // -0 is what no addition notices
  }

  ISOBIT_DEVICE void load(const Place& place, Real (&octet)[kOctet]) const {
    if (data == nullptr) {
#pragma unroll
      for (int i = 0; i < kOctet; ++i) octet[i] = neutral;
      return;
    }
    if (like_x)
      tile::load_octet(static_cast<const T*>(data) + place.col, place.count, vectors, octet);
    else
      tile::load_octet(static_cast<const float*>(data) + place.col, place.count, vectors, octet);
#pragma unroll
    for (int i = 0; i < kOctet; ++i) octet[i] += offset;
  }

 private:
  template <class Problem>
  WeightArray(const void* data, Real neutral, Real offset, const Problem& problem)
      : data(data),
        neutral(neutral),
        offset(offset),
        like_x(problem.weight_dtype == problem.dtype),
        vectors(tile::on_vectors(data)) {}
};

// What is dropped of rows: as norms/philox.h says.
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

  ISOBIT_DEVICE void apply(std::int64_t row, const Place& place, Real (&octet)[kOctet]) const {
    const unsigned kept = bits(row, place.col);
#pragma unroll
    for (int i = 0; i < kOctet; ++i) octet[i] = kept >> i & 1 ? octet[i] * scale : Real(0);
  }

 private:
  // A bit for each element that is kept. Out of line: twenty rounds are long.
  ISOBIT_DEVICE_NOINLINE unsigned bits(std::int64_t row, std::int64_t col) const {
    unsigned kept = 0;
    for (int four = 0; four < kOctet; four += 4) {
      const auto words = dropout_words(seed, row, (col + four) / 4);
      for (int i = 0; i < 4; ++i) kept |= unsigned{words[i] >= threshold} << (four + i);
    }
    return kept;
  }
};

}  // namespace isobit::norms
