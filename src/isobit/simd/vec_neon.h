// SPDX-License-Identifier: Apache-2.0
// Vectors of 128 bits (Advanced SIMD, which every aarch64 processor has). Each operation is one
// IEEE operation, as in vec_scalar.h. Streaming stores are plain ones: there are no stores past the
// caches here, only a hint for pairs of registers (STNP).
#pragma once

#include <arm_neon.h>

#include <algorithm>
#include <cstdint>

#include "isobit/core/dtype.h"
#include "isobit/simd/stores.h"

namespace isobit::simd::neon {

namespace detail {

// The first lanes of a vector of S, zeros beyond them.
template <class S, class T>
ISOBIT_INLINE typename S::V load_part(const T* p, int count) {
  T lanes[S::kWidth] = {};
  for (int i = 0; i < count; ++i) lanes[i] = p[i];
  return S::load(lanes);
}

template <class S, Nan kNan, class T>
ISOBIT_INLINE void store_part(T* p, typename S::V v, int count) {
  T lanes[S::kWidth];
  S::template store<Stores::cached, kNan>(lanes, v);
  for (int i = 0; i < count; ++i) p[i] = lanes[i];
}

}  // namespace detail

struct F32 {
  using Real = float;
  using V = float32x4_t;
  using Part = int;
  static constexpr int kWidth = 4;

  ISOBIT_INLINE static Part first(std::int64_t count) {
    return static_cast<int>(std::clamp<std::int64_t>(count, 0, kWidth));
  }
  ISOBIT_INLINE static V zero() { return vdupq_n_f32(0.0f); }
  ISOBIT_INLINE static V all(float value) { return vdupq_n_f32(value); }
  ISOBIT_INLINE static V add(V a, V b) { return vaddq_f32(a, b); }
  ISOBIT_INLINE static V sub(V a, V b) { return vsubq_f32(a, b); }
  ISOBIT_INLINE static V mul(V a, V b) { return vmulq_f32(a, b); }
  ISOBIT_INLINE static V fma(V a, V b, V c) { return vfmaq_f32(c, a, b); }
  // Each element in the place of its neighbour, the first two exchanged, and so on.
  ISOBIT_INLINE static V neighbours(V v) { return vrev64q_f32(v); }
  ISOBIT_INLINE static V minus_product(V a, V b, V c) { return vfmsq_f32(c, a, b); }
  ISOBIT_INLINE static V only(V value) { return value; }
  ISOBIT_INLINE static V only(V value, Part part) {
    const uint32x4_t lanes = {0, 1, 2, 3};
    return vbslq_f32(vcltq_u32(lanes, vdupq_n_u32(part)), value, zero());
  }

  // Adds halves onto each other: 2, 1.
  ISOBIT_INLINE static float fold(V v) {
    const float32x2_t by2 = vadd_f32(vget_low_f32(v), vget_high_f32(v));
    return vget_lane_f32(by2, 0) + vget_lane_f32(by2, 1);
  }

  // What functions need.
  using Bits = uint32x4_t;
  using Mask = uint32x4_t;
  ISOBIT_INLINE static V div(V a, V b) { return vdivq_f32(a, b); }
  // The second where one is NaN or both are zero; vminq would give NaN.
  ISOBIT_INLINE static V min(V a, V b) { return vbslq_f32(vcltq_f32(a, b), a, b); }
  ISOBIT_INLINE static V max(V a, V b) { return vbslq_f32(vcgtq_f32(a, b), a, b); }
  ISOBIT_INLINE static Mask less(V a, V b) { return vcltq_f32(a, b); }
  ISOBIT_INLINE static V choose(Mask mask, V yes, V no) { return vbslq_f32(mask, yes, no); }
  ISOBIT_INLINE static Mask both(Mask a, Mask b) { return vandq_u32(a, b); }
  ISOBIT_INLINE static bool everywhere(Mask mask) { return vminvq_u32(mask) != 0; }
  ISOBIT_INLINE static Bits all_bits(std::uint32_t value) { return vdupq_n_u32(value); }
  ISOBIT_INLINE static Bits bits(V v) { return vreinterpretq_u32_f32(v); }
  ISOBIT_INLINE static V real(Bits v) { return vreinterpretq_f32_u32(v); }
  ISOBIT_INLINE static Bits bits_and(Bits a, Bits b) { return vandq_u32(a, b); }
  ISOBIT_INLINE static Bits bits_xor(Bits a, Bits b) { return veorq_u32(a, b); }
  ISOBIT_INLINE static Bits bits_add(Bits a, Bits b) { return vaddq_u32(a, b); }
  template <int kPlaces>
  ISOBIT_INLINE static Bits shift_left(Bits a) {
    return vshlq_n_u32(a, kPlaces);
  }
  template <int kPlaces>
  ISOBIT_INLINE static Bits shift_right(Bits a) {
    return vshrq_n_u32(a, kPlaces);
  }

  ISOBIT_INLINE static V load(const float* p) { return vld1q_f32(p); }
  ISOBIT_INLINE static V load(const bf16* p) {
    return vreinterpretq_f32_u32(vshll_n_u16(vld1_u16(words(p)), 16));
  }
  ISOBIT_INLINE static V load(const f16* p) {
    return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(words(p))));
  }
  template <class T>
  ISOBIT_INLINE static V load(const T* p, Part part) {
    return detail::load_part<F32>(p, part);
  }

  // Doubles rounded to nearest even, and to odd (core/odd.h).
  ISOBIT_INLINE static V load_nearest(const double* p) {
    return vcvt_high_f32_f64(vcvt_f32_f64(vld1q_f64(p)), vld1q_f64(p + 2));
  }
  ISOBIT_INLINE static V load_odd(const double* p) {
    return vcvtx_high_f32_f64(vcvtx_f32_f64(vld1q_f64(p)), vld1q_f64(p + 2));
  }
  // As doubles, with canonical NaNs.
  template <Stores = Stores::cached>
  ISOBIT_INLINE static void store_wide(double* p, V v) {
    v = vbslq_f32(is_number(v), v, vreinterpretq_f32_u32(vdupq_n_u32(kNanF32)));
    vst1q_f64(p, vcvt_f64_f32(vget_low_f32(v)));
    vst1q_f64(p + 2, vcvt_high_f64_f32(v));
  }

  template <Stores = Stores::cached, Nan kNan = Nan::possible>
  ISOBIT_INLINE static void store(float* p, V v) {
    if constexpr (kNan == Nan::possible)
      v = vbslq_f32(is_number(v), v, vreinterpretq_f32_u32(vdupq_n_u32(kNanF32)));
    vst1q_f32(p, v);
  }
  // To nearest even in integers: BFCVTN is not on every processor.
  template <Stores = Stores::cached, Nan kNan = Nan::possible>
  ISOBIT_INLINE static void store(bf16* p, V v) {
    const uint32x4_t bits = vreinterpretq_u32_f32(v);
    const uint32x4_t odd = vandq_u32(vshrq_n_u32(bits, 16), vdupq_n_u32(1));
    const uint32x4_t rounded = vaddq_u32(vaddq_u32(bits, vdupq_n_u32(0x7fff)), odd);
    store_words<kNan>(p, v, vshrn_n_u32(rounded, 16), kNanBf16);
  }
  template <Stores = Stores::cached, Nan kNan = Nan::possible>
  ISOBIT_INLINE static void store(f16* p, V v) {
    store_words<kNan>(p, v, vreinterpret_u16_f16(vcvt_f16_f32(v)), kNanF16);
  }
  template <Stores = Stores::cached, Nan kNan = Nan::possible, class T>
  ISOBIT_INLINE static void store(T* p, V v, Part part) {
    detail::store_part<F32, kNan>(p, v, part);
  }

 private:
  template <class T>
  ISOBIT_INLINE static const std::uint16_t* words(const T* p) {
    return reinterpret_cast<const std::uint16_t*>(p);
  }
  ISOBIT_INLINE static uint32x4_t is_number(V v) { return vceqq_f32(v, v); }
  // Stores v, converted to `bits`, with its NaNs made canonical.
  template <Nan kNan, class T>
  ISOBIT_INLINE static void store_words(T* p, V v, uint16x4_t bits, std::uint16_t nan) {
    if constexpr (kNan == Nan::possible)
      bits = vbsl_u16(vmovn_u32(is_number(v)), bits, vdup_n_u16(nan));
    vst1_u16(reinterpret_cast<std::uint16_t*>(p), bits);
  }
};

struct F64 {
  using Real = double;
  using V = float64x2_t;
  using Part = int;
  static constexpr int kWidth = 2;

  ISOBIT_INLINE static Part first(std::int64_t count) {
    return static_cast<int>(std::clamp<std::int64_t>(count, 0, kWidth));
  }
  ISOBIT_INLINE static V zero() { return vdupq_n_f64(0.0); }
  ISOBIT_INLINE static V all(double value) { return vdupq_n_f64(value); }
  ISOBIT_INLINE static V add(V a, V b) { return vaddq_f64(a, b); }
  ISOBIT_INLINE static V sub(V a, V b) { return vsubq_f64(a, b); }
  ISOBIT_INLINE static V mul(V a, V b) { return vmulq_f64(a, b); }
  ISOBIT_INLINE static V fma(V a, V b, V c) { return vfmaq_f64(c, a, b); }
  ISOBIT_INLINE static V neighbours(V v) { return vextq_f64(v, v, 1); }
  ISOBIT_INLINE static V minus_product(V a, V b, V c) { return vfmsq_f64(c, a, b); }
  ISOBIT_INLINE static V only(V value) { return value; }
  ISOBIT_INLINE static V only(V value, Part part) {
    const uint64x2_t lanes = {0, 1};
    return vbslq_f64(vcltq_u64(lanes, vdupq_n_u64(part)), value, zero());
  }
  ISOBIT_INLINE static double fold(V v) { return vgetq_lane_f64(v, 0) + vgetq_lane_f64(v, 1); }

  // What functions need.
  using Bits = uint64x2_t;
  using Mask = uint64x2_t;
  ISOBIT_INLINE static V div(V a, V b) { return vdivq_f64(a, b); }
  // The second where one is NaN or both are zero; vminq would give NaN.
  ISOBIT_INLINE static V min(V a, V b) { return vbslq_f64(vcltq_f64(a, b), a, b); }
  ISOBIT_INLINE static V max(V a, V b) { return vbslq_f64(vcgtq_f64(a, b), a, b); }
  ISOBIT_INLINE static Mask less(V a, V b) { return vcltq_f64(a, b); }
  ISOBIT_INLINE static V choose(Mask mask, V yes, V no) { return vbslq_f64(mask, yes, no); }
  ISOBIT_INLINE static Bits all_bits(std::uint64_t value) { return vdupq_n_u64(value); }
  ISOBIT_INLINE static Bits bits(V v) { return vreinterpretq_u64_f64(v); }
  ISOBIT_INLINE static V real(Bits v) { return vreinterpretq_f64_u64(v); }
  ISOBIT_INLINE static Bits bits_and(Bits a, Bits b) { return vandq_u64(a, b); }
  ISOBIT_INLINE static Bits bits_xor(Bits a, Bits b) { return veorq_u64(a, b); }
  ISOBIT_INLINE static Bits bits_add(Bits a, Bits b) { return vaddq_u64(a, b); }
  template <int kPlaces>
  ISOBIT_INLINE static Bits shift_left(Bits a) {
    return vshlq_n_u64(a, kPlaces);
  }
  template <int kPlaces>
  ISOBIT_INLINE static Bits shift_right(Bits a) {
    return vshrq_n_u64(a, kPlaces);
  }

  ISOBIT_INLINE static V load(const double* p) { return vld1q_f64(p); }
  ISOBIT_INLINE static V load(const double* p, Part part) {
    return detail::load_part<F64>(p, part);
  }
  template <Stores = Stores::cached, Nan kNan = Nan::possible>
  ISOBIT_INLINE static void store(double* p, V v) {
    if constexpr (kNan == Nan::possible)
      v = vbslq_f64(vceqq_f64(v, v), v, vreinterpretq_f64_u64(vdupq_n_u64(kNanF64)));
    vst1q_f64(p, v);
  }
  template <Stores = Stores::cached, Nan kNan = Nan::possible>
  ISOBIT_INLINE static void store(double* p, V v, Part part) {
    detail::store_part<F64, kNan>(p, v, part);
  }
};

struct I32 {
  using V = int32x4_t;
  static constexpr int kWidth = 4;
  ISOBIT_INLINE static V load(const std::int32_t* p) { return vld1q_s32(p); }
  ISOBIT_INLINE static V all(std::int32_t value) { return vdupq_n_s32(value); }
  ISOBIT_INLINE static V add(V a, V b) { return vaddq_s32(a, b); }
  template <Stores>
  ISOBIT_INLINE static void store(std::int32_t* p, V v) {
    vst1q_s32(p, v);
  }
};

// Bytes that are only moved, in lanes of 16 bytes.
struct Bytes {
  using V = uint8x16_t;
  static constexpr int kLanes = 1;

  ISOBIT_INLINE static V load(const void* p) {
    return vld1q_u8(static_cast<const std::uint8_t*>(p));
  }
  // Lane i from at(i).
  template <class At>
  ISOBIT_INLINE static V load_lanes(const At& at) {
    return load(at(0));
  }
  template <Stores = Stores::cached>
  ISOBIT_INLINE static void store(void* p, V v) {
    vst1q_u8(static_cast<std::uint8_t*>(p), v);
  }
  // Elements of T of a and b in turn, of the lower or upper half of each lane.
  template <class T>
  ISOBIT_INLINE static V zip_low(V a, V b) {
    if constexpr (sizeof(T) == 1) return vzip1q_u8(a, b);
    if constexpr (sizeof(T) == 2)
      return vreinterpretq_u8_u16(vzip1q_u16(vreinterpretq_u16_u8(a), vreinterpretq_u16_u8(b)));
    if constexpr (sizeof(T) == 4)
      return vreinterpretq_u8_u32(vzip1q_u32(vreinterpretq_u32_u8(a), vreinterpretq_u32_u8(b)));
    if constexpr (sizeof(T) == 8)
      return vreinterpretq_u8_u64(vzip1q_u64(vreinterpretq_u64_u8(a), vreinterpretq_u64_u8(b)));
  }
  template <class T>
  ISOBIT_INLINE static V zip_high(V a, V b) {
    if constexpr (sizeof(T) == 1) return vzip2q_u8(a, b);
    if constexpr (sizeof(T) == 2)
      return vreinterpretq_u8_u16(vzip2q_u16(vreinterpretq_u16_u8(a), vreinterpretq_u16_u8(b)));
    if constexpr (sizeof(T) == 4)
      return vreinterpretq_u8_u32(vzip2q_u32(vreinterpretq_u32_u8(a), vreinterpretq_u32_u8(b)));
    if constexpr (sizeof(T) == 8)
      return vreinterpretq_u8_u64(vzip2q_u64(vreinterpretq_u64_u8(a), vreinterpretq_u64_u8(b)));
  }
};

using Lane = Bytes;

}  // namespace isobit::simd::neon
