// SPDX-License-Identifier: Apache-2.0
// The element types, and the exact conversions between the 16-bit ones and float.
#pragma once

#include <bit>
#include <cstdint>
#include <iterator>
#include <optional>
#include <string_view>

#include "isobit/core/inline.h"
#include "isobit/core/quad.h"

namespace isobit {

// f128 exists only for references: no operator accepts it.
enum class DType : std::uint8_t { f32, f16, bf16, f64, i32, i64, boolean, u8, f128 };

// Those that an argument may have, and C's numbers for them less 1.
inline constexpr DType kDTypes[] = {DType::f32, DType::f16, DType::bf16,    DType::f64,
                                    DType::i32, DType::i64, DType::boolean, DType::u8};

struct f16 {
  std::uint16_t bits;
};
struct bf16 {
  std::uint16_t bits;
};

// Every NaN that leaves an operator has these bits.
inline constexpr std::uint32_t kNanF32 = 0x7fc00000;
inline constexpr std::uint16_t kNanBf16 = 0x7fc0;
inline constexpr std::uint16_t kNanF16 = 0x7e00;
inline constexpr std::uint64_t kNanF64 = 0x7ff8000000000000;

ISOBIT_INLINE float to_float(float value) { return value; }

ISOBIT_INLINE float to_float(bf16 value) {
  return std::bit_cast<float>(std::uint32_t{value.bits} << 16);
}

ISOBIT_INLINE float to_float(f16 value) {
  const std::uint32_t sign = std::uint32_t{value.bits & 0x8000u} << 16;
  const std::uint32_t magnitude = value.bits & 0x7fffu;
  if (magnitude >= 0x7c00u)  // inf and NaN
    return std::bit_cast<float>(sign | 0x7f800000u | (magnitude & 0x3ffu) << 13);
  if (magnitude >= 0x0400u)  // normal: the exponent bias moves from 15 to 127
    return std::bit_cast<float>(sign | ((magnitude << 13) + (112u << 23)));
  const float subnormal = static_cast<float>(magnitude) * 0x1p-24f;
  return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(subnormal));
}

template <class T>
ISOBIT_INLINE T from_float(float value);

template <>
ISOBIT_INLINE float from_float<float>(float value) {
  return value == value ? value : std::bit_cast<float>(kNanF32);
}

template <>
ISOBIT_INLINE bf16 from_float<bf16>(float value) {
  if (value != value) return {kNanBf16};
  const auto bits = std::bit_cast<std::uint32_t>(value);
  return {static_cast<std::uint16_t>((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16)};
}

template <>
ISOBIT_INLINE f16 from_float<f16>(float value) {
  if (value != value) return {kNanF16};
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = bits >> 16 & 0x8000u;
  const std::uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude >= 0x477ff000u)  // 65520 and above round to infinity
    return {static_cast<std::uint16_t>(sign | 0x7c00u)};
  if (magnitude >= 0x38800000u) {  // normal in f16
    const std::uint32_t rounded = magnitude + 0x0fffu + (magnitude >> 13 & 1u);
    return {static_cast<std::uint16_t>(sign | (rounded - (112u << 23)) >> 13)};
  }
  // Adding 1/2 leaves a multiple of 2^-24, f16's smallest step, in the last bits of the sum.
  const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
  return {static_cast<std::uint16_t>(sign | (std::bit_cast<std::uint32_t>(shifted) - 0x3f000000u))};
}

// An element in the type that is computed in: double for f64, float for all others.
template <class Real, class T>
ISOBIT_INLINE Real widen(T value) {
  if constexpr (sizeof(T) == 8)
    return value;
  else
    return to_float(value);
}

// The same way back, rounded once.
template <class T>
ISOBIT_INLINE T narrow(float value) {
  return from_float<T>(value);
}
template <class T>
ISOBIT_INLINE T narrow(double value) {
  if constexpr (sizeof(T) == 8)
    return value == value ? value : std::bit_cast<double>(kNanF64);
  else
    return from_float<T>(static_cast<float>(value));
}

// Both as one type, for arithmetic that back ends share: a GPU has instructions for them.
struct Conversions {
  template <class Real, class T>
  ISOBIT_INLINE static Real widen(T value) {
    return isobit::widen<Real>(value);
  }
  template <class T, class Real>
  ISOBIT_INLINE static T narrow(Real value) {
    return isobit::narrow<T>(value);
  }
};

constexpr std::int64_t size_of(DType dtype) {
  switch (dtype) {
    case DType::boolean:
    case DType::u8:      return 1;
    case DType::f16:
    case DType::bf16:    return 2;
    case DType::f32:
    case DType::i32:     return 4;
    case DType::f64:
    case DType::i64:     return 8;
    case DType::f128:    return 16;
  }
  return 0;
}

constexpr std::string_view name_of(DType dtype) {
  constexpr std::string_view kNames[] = {"f32", "f16",  "bf16", "f64", "i32",
                                         "i64", "bool", "u8",   "f128"};
  const auto index = static_cast<std::size_t>(dtype);
  return index < std::size(kNames) ? kNames[index] : "unknown";
}

constexpr bool is_floating(DType dtype) {
  return dtype == DType::f32 || dtype == DType::f16 || dtype == DType::bf16 || dtype == DType::f64;
}

constexpr std::optional<DType> dtype_named(std::string_view name) {
  for (DType dtype : kDTypes)
    if (name_of(dtype) == name) return dtype;
  return std::nullopt;
}

template <class T>
struct Type {
  using type = T;
};

// Calls visitor(Type<T>{}) with the C++ type of `dtype`: floats' types and int32_t, or quad for all
// others.
template <class Visitor>
ISOBIT_INLINE_HOST auto visit(DType dtype, Visitor&& visitor) {
  switch (dtype) {
    case DType::f32:  return visitor(Type<float>{});
    case DType::f16:  return visitor(Type<f16>{});
    case DType::bf16: return visitor(Type<bf16>{});
    case DType::f64:  return visitor(Type<double>{});
    case DType::i32:  return visitor(Type<std::int32_t>{});
    default:          return visitor(Type<quad>{});
  }
}

// The same for every type; bool as the byte that holds it.
template <class Visitor>
auto visit_any(DType dtype, Visitor&& visitor) {
  switch (dtype) {
    case DType::i64:     return visitor(Type<std::int64_t>{});
    case DType::boolean:
    case DType::u8:      return visitor(Type<std::uint8_t>{});
    default:             return visit(dtype, visitor);
  }
}

}  // namespace isobit
