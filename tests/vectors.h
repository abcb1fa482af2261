// SPDX-License-Identifier: Apache-2.0
// What vectors.cpp offers once for each instruction set: simd's vectors, row_loops.h and
// row_sums.h, over arrays.
#pragma once

#include <cstdint>

#include "isobit/core/dtype.h"
#include "isobit/core/isas.h"

namespace isobit::vectors {

// One vector's elements of type T, in memory; a part is the first `count` of them.
template <class Real, class T>
struct Elements {
  void (*load)(const T* from, Real* to);
  void (*load_part)(const T* from, std::int64_t count, Real* to);
  void (*store)(const Real* from, T* to);
  void (*store_numbers)(const Real* from, T* to);  // none of which is NaN
  void (*store_part)(const Real* from, std::int64_t count, T* to);
  void (*store_row)(const Real* from, std::int64_t count, bool streaming, T* to);
  // Rows of `count` elements, `stride` from one to the next in `to`.
  void (*stream_rows)(const Real* from, std::int64_t rows, std::int64_t count, std::int64_t stride,
                      T* to);
};

template <class Real>
struct Vectors {
  using Operation = void (*)(const Real* a, const Real* b, const Real* c, Real* to);

  int width;
  Operation add, sub, mul, fma, minus_product, div, sqrt, min, max, choose, bits;
  Operation neighbours;  // null for vectors of one element
  Real (*fold)(const Real* from);
  void (*only)(const Real* from, std::int64_t count, Real* to);
  Real (*sum)(const Real* x, std::int64_t count);
  Real (*dot)(const Real* x, const Real* y, std::int64_t count);
  Elements<Real, Real> elements;
};

struct AllVectors {
  Vectors<float> f32;
  Elements<float, f16> f32_in_f16;
  Elements<float, bf16> f32_in_bf16;
  Vectors<double> f64;
};

ISOBIT_IN_EACH_ISA(AllVectors vectors();)

}  // namespace isobit::vectors
