// SPDX-License-Identifier: Apache-2.0
// Vectors of one element: the portable back end, and what the wider ones are compared with.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "isobit/core/dtype.h"
#include "isobit/core/odd.h"
#include "isobit/core/scalar_operations.h"
#include "isobit/simd/stores.h"

namespace isobit::simd::scalar {

// What every back end's F32 and F64 offer. A part names the first lanes of a vector: a load leaves
// zeros beyond it, a store leaves memory beyond it alone.
struct F32 : ScalarOperations<float> {
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
  ISOBIT_INLINE static bool both(bool a, bool b) { return a && b; }
  ISOBIT_INLINE static bool everywhere(bool mask) { return mask; }

  template <class T>
  ISOBIT_INLINE static V load(const T* from) {
    return to_float(*from);
  }
  template <class T>
  ISOBIT_INLINE static V load(const T* from, Part part) {
    return part ? to_float(*from) : 0.0f;
  }
  // Doubles rounded to nearest even, and to odd (core/odd.h).
  ISOBIT_INLINE static V load_nearest(const double* from) { return static_cast<float>(*from); }
  ISOBIT_INLINE static V load_odd(const double* from) { return round_to_odd(*from); }
  // As doubles, with canonical NaNs.
  template <Stores = Stores::cached>
  ISOBIT_INLINE static void store_wide(double* to, V value) {
    *to = narrow<double>(static_cast<double>(value));
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

struct F64 : ScalarOperations<double> {
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

// Bytes that are only moved, in lanes of 16 bytes.
struct Bytes {
  struct V {
    std::uint8_t bytes[16];
  };
  static constexpr int kLanes = 1;

  ISOBIT_INLINE static V load(const void* from) {
    V v;
    std::memcpy(v.bytes, from, sizeof v.bytes);
    return v;
  }
  // Lane i from at(i).
  template <class At>
  ISOBIT_INLINE static V load_lanes(const At& at) {
    return load(at(0));
  }
  template <Stores = Stores::cached>
  ISOBIT_INLINE static void store(void* to, V v) {
    std::memcpy(to, v.bytes, sizeof v.bytes);
  }
  // Elements of T of a and b in turn, of the lower or upper half of each lane.
  template <class T>
  ISOBIT_INLINE static V zip_low(V a, V b) {
    return zip<T>(a.bytes, b.bytes);
  }
  template <class T>
  ISOBIT_INLINE static V zip_high(V a, V b) {
    return zip<T>(a.bytes + 8, b.bytes + 8);
  }

 private:
  template <class T>
  ISOBIT_INLINE static V zip(const std::uint8_t* a, const std::uint8_t* b) {
    constexpr int kSize = sizeof(T);
    V v;
    for (int i = 0; i < 8; i += kSize) {
      std::memcpy(v.bytes + 2 * i, a + i, kSize);
      std::memcpy(v.bytes + 2 * i + kSize, b + i, kSize);
    }
    return v;
  }
};

using Lane = Bytes;

}  // namespace isobit::simd::scalar

namespace isobit::simd {

// The single lane that an element of T is computed in.
template <class T>
using ScalarOf = std::conditional_t<sizeof(T) == 8, scalar::F64, scalar::F32>;

}  // namespace isobit::simd
