// SPDX-License-Identifier: Apache-2.0
// Vectors of 512 bits. Each operation is one IEEE operation, so the bits equal those of
// vec_scalar.h.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "isobit/core/dtype.h"
#include "isobit/simd/stores.h"

namespace isobit::simd::avx512 {

struct F32 {
  using Real = float;
  using V = __m512;
  using Part = __mmask16;
  static constexpr int kWidth = 16;

  ISOBIT_INLINE static Part first(std::int64_t count) {
    return count >= 16 ? 0xffff : count <= 0 ? 0 : static_cast<Part>((1u << count) - 1);
  }
  ISOBIT_INLINE static V zero() { return _mm512_setzero_ps(); }
  ISOBIT_INLINE static V all(float value) { return _mm512_set1_ps(value); }
  ISOBIT_INLINE static V add(V a, V b) { return _mm512_add_ps(a, b); }
  ISOBIT_INLINE static V sub(V a, V b) { return _mm512_sub_ps(a, b); }
  ISOBIT_INLINE static V mul(V a, V b) { return _mm512_mul_ps(a, b); }
  ISOBIT_INLINE static V fma(V a, V b, V c) { return _mm512_fmadd_ps(a, b, c); }
  ISOBIT_INLINE static V minus_product(V a, V b, V c) { return _mm512_fnmadd_ps(a, b, c); }
  ISOBIT_INLINE static V only(V value) { return value; }
  ISOBIT_INLINE static V only(V value, Part part) { return _mm512_maskz_mov_ps(part, value); }

  // Adds halves onto each other: 8, 4, 2, 1.
  ISOBIT_INLINE static float fold(V v) {
    const __m256 by8 = _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
    const __m128 by4 = _mm_add_ps(_mm256_castps256_ps128(by8), _mm256_extractf128_ps(by8, 1));
    const __m128 by2 = _mm_add_ps(by4, _mm_movehl_ps(by4, by4));
    return _mm_cvtss_f32(_mm_add_ss(by2, _mm_movehdup_ps(by2)));
  }

  ISOBIT_INLINE static V load(const float* p) { return _mm512_loadu_ps(p); }
  ISOBIT_INLINE static V load(const float* p, Part part) { return _mm512_maskz_loadu_ps(part, p); }
  ISOBIT_INLINE static V load(const bf16* p) { return widen(_mm256_loadu_si256(words(p))); }
  ISOBIT_INLINE static V load(const bf16* p, Part part) {
    return widen(_mm256_maskz_loadu_epi16(part, p));
  }
  ISOBIT_INLINE static V load(const f16* p) {
    return _mm512_cvtph_ps(_mm256_loadu_si256(words(p)));
  }
  ISOBIT_INLINE static V load(const f16* p, Part part) {
    return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(part, p));
  }

  template <Stores kStores = Stores::cached, Nan kNan = Nan::possible, class T>
  ISOBIT_INLINE static void store(T* p, V v) {
    const auto bits = convert<kNan>(v, p);
    if constexpr (sizeof(T) == 4 && kStores == Stores::streaming)
      _mm512_stream_ps(p, bits);
    else if constexpr (sizeof(T) == 4)
      _mm512_storeu_ps(p, bits);
    else if constexpr (kStores == Stores::streaming)
      _mm256_stream_si256(words(p), bits);
    else
      _mm256_storeu_si256(words(p), bits);
  }
  template <Stores = Stores::cached, Nan kNan = Nan::possible, class T>
  ISOBIT_INLINE static void store(T* p, V v, Part part) {
    if constexpr (sizeof(T) == 4)
      _mm512_mask_storeu_ps(p, part, convert<kNan>(v, p));
    else
      _mm256_mask_storeu_epi16(p, part, convert<kNan>(v, p));
  }

 private:
  template <class T>
  ISOBIT_INLINE static const __m256i* words(const T* p) {
    return reinterpret_cast<const __m256i*>(p);
  }
  template <class T>
  ISOBIT_INLINE static __m256i* words(T* p) {
    return reinterpret_cast<__m256i*>(p);
  }
  ISOBIT_INLINE static __mmask16 is_nan(V v) { return _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q); }
  ISOBIT_INLINE static V widen(__m256i bits) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
  }
  // The bits to be stored through a pointer to their type.
  template <Nan kNan>
  ISOBIT_INLINE static V convert(V v, const float*) {
    if constexpr (kNan == Nan::absent) return v;
    return _mm512_mask_mov_ps(v, is_nan(v), _mm512_castsi512_ps(_mm512_set1_epi32(kNanF32)));
  }
  // To nearest even in integers: VCVTNEPS2BF16 would flush denormals.
  template <Nan kNan>
  ISOBIT_INLINE static __m256i convert(V v, const bf16*) {
    const __m512i bits = _mm512_castps_si512(v);
    const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    const __m512i rounded =
        _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff)), odd);
    __m512i high = _mm512_srli_epi32(rounded, 16);
    if constexpr (kNan == Nan::possible)
      high = _mm512_mask_mov_epi32(high, is_nan(v), _mm512_set1_epi32(kNanBf16));
    return _mm512_cvtepi32_epi16(high);
  }
  template <Nan kNan>
  ISOBIT_INLINE static __m256i convert(V v, const f16*) {
    const __m256i half = _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    if constexpr (kNan == Nan::absent) return half;
    return _mm256_mask_mov_epi16(half, is_nan(v), _mm256_set1_epi16(kNanF16));
  }
};

// Orders streaming stores before whatever follows.
ISOBIT_INLINE void fence() { _mm_sfence(); }

struct F64 {
  using Real = double;
  using V = __m512d;
  using Part = __mmask8;
  static constexpr int kWidth = 8;

  ISOBIT_INLINE static Part first(std::int64_t count) {
    return count >= 8 ? 0xff : count <= 0 ? 0 : static_cast<Part>((1u << count) - 1);
  }
  ISOBIT_INLINE static V zero() { return _mm512_setzero_pd(); }
  ISOBIT_INLINE static V all(double value) { return _mm512_set1_pd(value); }
  ISOBIT_INLINE static V add(V a, V b) { return _mm512_add_pd(a, b); }
  ISOBIT_INLINE static V sub(V a, V b) { return _mm512_sub_pd(a, b); }
  ISOBIT_INLINE static V mul(V a, V b) { return _mm512_mul_pd(a, b); }
  ISOBIT_INLINE static V fma(V a, V b, V c) { return _mm512_fmadd_pd(a, b, c); }
  ISOBIT_INLINE static V minus_product(V a, V b, V c) { return _mm512_fnmadd_pd(a, b, c); }
  ISOBIT_INLINE static V only(V value) { return value; }
  ISOBIT_INLINE static V only(V value, Part part) { return _mm512_maskz_mov_pd(part, value); }

  // Adds halves onto each other: 4, 2, 1.
  ISOBIT_INLINE static double fold(V v) {
    const __m256d by4 = _mm256_add_pd(_mm512_castpd512_pd256(v), _mm512_extractf64x4_pd(v, 1));
    const __m128d by2 = _mm_add_pd(_mm256_castpd256_pd128(by4), _mm256_extractf128_pd(by4, 1));
    return _mm_cvtsd_f64(_mm_add_sd(by2, _mm_unpackhi_pd(by2, by2)));
  }

  ISOBIT_INLINE static V load(const double* p) { return _mm512_loadu_pd(p); }
  ISOBIT_INLINE static V load(const double* p, Part part) { return _mm512_maskz_loadu_pd(part, p); }
  template <Stores kStores = Stores::cached, Nan kNan = Nan::possible>
  ISOBIT_INLINE static void store(double* p, V v) {
    if constexpr (kStores == Stores::streaming)
      _mm512_stream_pd(p, canonical<kNan>(v));
    else
      _mm512_storeu_pd(p, canonical<kNan>(v));
  }
  template <Stores = Stores::cached, Nan kNan = Nan::possible>
  ISOBIT_INLINE static void store(double* p, V v, Part part) {
    _mm512_mask_storeu_pd(p, part, canonical<kNan>(v));
  }

 private:
  template <Nan kNan>
  ISOBIT_INLINE static V canonical(V v) {
    if constexpr (kNan == Nan::absent) return v;
    return _mm512_mask_mov_pd(v, _mm512_cmp_pd_mask(v, v, _CMP_UNORD_Q),
                              _mm512_castsi512_pd(_mm512_set1_epi64(kNanF64)));
  }
};

struct I32 {
  using V = __m512i;
  static constexpr int kWidth = 16;
  ISOBIT_INLINE static V load(const std::int32_t* p) { return _mm512_loadu_si512(p); }
  ISOBIT_INLINE static V all(std::int32_t value) { return _mm512_set1_epi32(value); }
  ISOBIT_INLINE static V add(V a, V b) { return _mm512_add_epi32(a, b); }
  template <Stores kStores>
  ISOBIT_INLINE static void store(std::int32_t* p, V v) {
    if constexpr (kStores == Stores::streaming)
      _mm512_stream_si512(reinterpret_cast<__m512i*>(p), v);
    else
      _mm512_storeu_si512(p, v);
  }
};

}  // namespace isobit::simd::avx512
