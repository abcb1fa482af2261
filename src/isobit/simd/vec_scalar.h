// SPDX-License-Identifier: Apache-2.0
// Vectors of one element: the portable back end, and what the wider ones are compared with.
#pragma once

#include <cmath>
#include <cstdint>

#include "isobit/core/dtype.h"
#include "isobit/simd/stores.h"

namespace isobit::simd::scalar {

// What every back end's F32 and F64 offer. A part names the first lanes of a vector: a load leaves
// zeros beyond it, a store leaves memory beyond it alone.
struct F32 {
  using Real = float;
  using V = float;
  using Part = bool;
  static constexpr int kWidth = 1;

  ISOBIT_INLINE static Part first(std::int64_t count) { return count > 0; }
  ISOBIT_INLINE static V zero() { return 0.0f; }
  ISOBIT_INLINE static V all(float value) { return value; }
  ISOBIT_INLINE static V add(V a, V b) { return a + b; }
  ISOBIT_INLINE static V sub(V a, V b) { return a - b; }
  ISOBIT_INLINE static V mul(V a, V b) { return a * b; }
  ISOBIT_INLINE static V fma(V a, V b, V c) { return std::fma(a, b, c); }
  ISOBIT_INLINE static V minus_product(V a, V b, V c) { return std::fma(-a, b, c); }  // c - a*b
  ISOBIT_INLINE static V only(V value) { return value; }
  ISOBIT_INLINE static V only(V value, Part part) { return part ? value : 0.0f; }
  ISOBIT_INLINE static float fold(V value) { return value; }

  template <class T>
  ISOBIT_INLINE static V load(const T* from) {
    return to_float(*from);
  }
  template <class T>
  ISOBIT_INLINE static V load(const T* from, Part part) {
    return part ? to_float(*from) : 0.0f;
  }
  template <Stores = Stores::cached, Nan = Nan::possible, class T>
  ISOBIT_INLINE static void store(T* to, V value) {
    *to = from_float<T>(value);
  }
  template <Stores = Stores::cached, Nan = Nan::possible, class T>
  ISOBIT_INLINE static void store(T* to, V value, Part part) {
    if (part) *to = from_float<T>(value);
  }
};

ISOBIT_INLINE void fence() {}

struct F64 {
  using Real = double;
  using V = double;
  using Part = bool;
  static constexpr int kWidth = 1;

  ISOBIT_INLINE static Part first(std::int64_t count) { return count > 0; }
  ISOBIT_INLINE static V zero() { return 0.0; }
  ISOBIT_INLINE static V all(double value) { return value; }
  ISOBIT_INLINE static V add(V a, V b) { return a + b; }
  ISOBIT_INLINE static V sub(V a, V b) { return a - b; }
  ISOBIT_INLINE static V mul(V a, V b) { return a * b; }
  ISOBIT_INLINE static V fma(V a, V b, V c) { return std::fma(a, b, c); }
  ISOBIT_INLINE static V minus_product(V a, V b, V c) { return std::fma(-a, b, c); }
  ISOBIT_INLINE static V only(V value) { return value; }
  ISOBIT_INLINE static V only(V value, Part part) { return part ? value : 0.0; }
  ISOBIT_INLINE static double fold(V value) { return value; }

  ISOBIT_INLINE static V load(const double* from) { return *from; }
  ISOBIT_INLINE static V load(const double* from, Part part) { return part ? *from : 0.0; }
  template <Stores = Stores::cached, Nan = Nan::possible>
  ISOBIT_INLINE static void store(double* to, V value) {
    *to = narrow<double>(value);
  }
  template <Stores = Stores::cached, Nan = Nan::possible>
  ISOBIT_INLINE static void store(double* to, V value, Part part) {
    if (part) *to = narrow<double>(value);
  }
};

struct I32 {
  using V = std::uint32_t;  // unsigned, so that it wraps around
  static constexpr int kWidth = 1;
  ISOBIT_INLINE static V load(const std::int32_t* from) { return static_cast<V>(*from); }
  ISOBIT_INLINE static V all(std::int32_t value) { return static_cast<V>(value); }
  ISOBIT_INLINE static V add(V a, V b) { return a + b; }
  template <Stores>
  ISOBIT_INLINE static void store(std::int32_t* to, V value) {
    *to = static_cast<std::int32_t>(value);
  }
};

}  // namespace isobit::simd::scalar
