// SPDX-License-Identifier: Apache-2.0
// Vectors of 512 bits. Each operation is one IEEE operation, so the bits equal those of
// vec_scalar.h.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "isobit/core/dtype.h"
#include "isobit/simd/lane_x86.h"
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
  // Each element in the place of its neighbour, the first two exchanged, and so on.
  ISOBIT_INLINE static V neighbours(V v) { return _mm512_permute_ps(v, 0xb1); }
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

  // What functions need.
  using Bits = __m512i;
  using Mask = __mmask16;
  ISOBIT_INLINE static V div(V a, V b) { return _mm512_div_ps(a, b); }
  // The second where one is NaN or both are zero.
  ISOBIT_INLINE static V min(V a, V b) { return _mm512_min_ps(a, b); }
  ISOBIT_INLINE static V max(V a, V b) { return _mm512_max_ps(a, b); }
  ISOBIT_INLINE static Mask less(V a, V b) { return _mm512_cmp_ps_mask(a, b, _CMP_LT_OQ); }
  ISOBIT_INLINE static V choose(Mask mask, V yes, V no) {
    return _mm512_mask_mov_ps(no, mask, yes);
  }
  ISOBIT_INLINE static Mask both(Mask a, Mask b) { return _kand_mask16(a, b); }
  ISOBIT_INLINE static bool everywhere(Mask mask) { return mask == 0xffff; }
  // v * 2^n, rounded once.
  ISOBIT_INLINE static V scaled(V v, V n) { return _mm512_scalef_ps(v, n); }
  ISOBIT_INLINE static Bits all_bits(std::uint32_t value) {
    return _mm512_set1_epi32(static_cast<int>(value));
  }
  ISOBIT_INLINE static Bits bits(V v) { return _mm512_castps_si512(v); }
  ISOBIT_INLINE static V real(Bits v) { return _mm512_castsi512_ps(v); }
  ISOBIT_INLINE static Bits bits_and(Bits a, Bits b) { return _mm512_and_si512(a, b); }
  ISOBIT_INLINE static Bits bits_xor(Bits a, Bits b) { return _mm512_xor_si512(a, b); }
  ISOBIT_INLINE static Bits bits_add(Bits a, Bits b) { return _mm512_add_epi32(a, b); }
  template <int kPlaces>
  ISOBIT_INLINE static Bits shift_left(Bits a) {
    return _mm512_slli_epi32(a, kPlaces);
  }
  template <int kPlaces>
  ISOBIT_INLINE static Bits shift_right(Bits a) {
    return _mm512_srli_epi32(a, kPlaces);
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

  // Doubles rounded to nearest even, and to odd (core/odd.h).
  ISOBIT_INLINE static V load_nearest(const double* p) {
    return join(_mm512_cvtpd_ps(_mm512_loadu_pd(p)), _mm512_cvtpd_ps(_mm512_loadu_pd(p + 8)));
  }
  ISOBIT_INLINE static V load_odd(const double* p) {
    return join(odd(_mm512_loadu_pd(p)), odd(_mm512_loadu_pd(p + 8)));
  }
  // As doubles, with canonical NaNs.
  template <Stores kStores = Stores::cached>
  ISOBIT_INLINE static void store_wide(double* p, V v) {
    const V number = convert<Nan::possible>(v, static_cast<const float*>(nullptr));
    const __m512d halves[2] = {_mm512_cvtps_pd(_mm512_castps512_ps256(number)),
                               _mm512_cvtps_pd(_mm512_extractf32x8_ps(number, 1))};
    for (int i = 0; i < 2; ++i) {
      if constexpr (kStores == Stores::streaming)
        _mm512_stream_pd(p + 8 * i, halves[i]);
      else
        _mm512_storeu_pd(p + 8 * i, halves[i]);
    }
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
  ISOBIT_INLINE static V join(__m256 low, __m256 high) {
    return _mm512_insertf32x8(_mm512_castps256_ps512(low), high, 1);
  }
  // Towards zero; where that lost something, the last bit says so.
  ISOBIT_INLINE static __m256 odd(__m512d v) {
    const __m256 cut = _mm512_cvt_roundpd_ps(v, _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC);
    const __mmask8 inexact = _mm512_cmp_pd_mask(_mm512_cvtps_pd(cut), v, _CMP_NEQ_OQ);
    const __m256i bits = _mm256_castps_si256(cut);
    return _mm256_castsi256_ps(_mm256_mask_or_epi32(bits, inexact, bits, _mm256_set1_epi32(1)));
  }
  template <class T>
  ISOBIT_INLINE static const __m256i* words(const T* p) {
    return reinterpret_cast<const __m256i*>(p);
  }
  template <class T>
  ISOBIT_INLINE static __m256i* words(T* p) {
    return reinterpret_cast<__m256i*>(p);
  }
  // Each word becomes the upper half of a double word: one instruction, where a conversion of
  // integers and a shift are two.
  ISOBIT_INLINE static V widen(__m256i bits) {
    constexpr int kWord = 1 << 16;
    const __m512i sources = _mm512_setr_epi32(
        0, kWord, 2 * kWord, 3 * kWord, 4 * kWord, 5 * kWord, 6 * kWord, 7 * kWord, 8 * kWord,
        9 * kWord, 10 * kWord, 11 * kWord, 12 * kWord, 13 * kWord, 14 * kWord, 15 * kWord);
    return _mm512_castsi512_ps(
        _mm512_maskz_permutexvar_epi16(0xaaaaaaaa, sources, _mm512_castsi256_si512(bits)));
  }
  // The upper half of each double word.
  ISOBIT_INLINE static __m256i upper_words(__m512i bits) {
    constexpr int kFour = 4 << 16 | 4, kFirst = 3 << 16 | 1;
    const __m512i sources = _mm512_setr_epi32(
        kFirst, kFirst + kFour, kFirst + 2 * kFour, kFirst + 3 * kFour, kFirst + 4 * kFour,
        kFirst + 5 * kFour, kFirst + 6 * kFour, kFirst + 7 * kFour, 0, 0, 0, 0, 0, 0, 0, 0);
    return _mm512_castsi512_si256(_mm512_permutexvar_epi16(sources, bits));
  }
  // Every NaN becomes the one that is written: quiet and signalling ones, the first two kinds of
  // the table, are kept from the first operand, all other numbers come from the second.
  template <Nan kNan>
  ISOBIT_INLINE static V canonical(V v) {
    if constexpr (kNan == Nan::absent) return v;
    return _mm512_fixupimm_ps(_mm512_castsi512_ps(_mm512_set1_epi32(kNanF32)), v,
                              _mm512_set1_epi32(0x11111100), 0);
  }
  // The bits to be stored through a pointer to their type.
  template <Nan kNan>
  ISOBIT_INLINE static V convert(V v, const float*) {
    return canonical<kNan>(v);
  }
  // To nearest even in integers: VCVTNEPS2BF16 would flush denormals.
  template <Nan kNan>
  ISOBIT_INLINE static __m256i convert(V v, const bf16*) {
    const __m512i bits = _mm512_castps_si512(canonical<kNan>(v));
    const __mmask16 odd = _mm512_test_epi32_mask(bits, _mm512_set1_epi32(0x10000));
    const __m512i rounded = _mm512_mask_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff)),
                                                  odd, bits, _mm512_set1_epi32(0x8000));
    return upper_words(rounded);
  }
  template <Nan kNan>
  ISOBIT_INLINE static __m256i convert(V v, const f16*) {
    return _mm512_cvtps_ph(canonical<kNan>(v), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  }
};

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
  ISOBIT_INLINE static V neighbours(V v) { return _mm512_permute_pd(v, 0x55); }
  ISOBIT_INLINE static V minus_product(V a, V b, V c) { return _mm512_fnmadd_pd(a, b, c); }
  ISOBIT_INLINE static V only(V value) { return value; }
  ISOBIT_INLINE static V only(V value, Part part) { return _mm512_maskz_mov_pd(part, value); }

  // Adds halves onto each other: 4, 2, 1.
  ISOBIT_INLINE static double fold(V v) {
    const __m256d by4 = _mm256_add_pd(_mm512_castpd512_pd256(v), _mm512_extractf64x4_pd(v, 1));
    const __m128d by2 = _mm_add_pd(_mm256_castpd256_pd128(by4), _mm256_extractf128_pd(by4, 1));
    return _mm_cvtsd_f64(_mm_add_sd(by2, _mm_unpackhi_pd(by2, by2)));
  }

  // What functions need.
  using Bits = __m512i;
  using Mask = __mmask8;
  ISOBIT_INLINE static V div(V a, V b) { return _mm512_div_pd(a, b); }
  // The second where one is NaN or both are zero.
  ISOBIT_INLINE static V min(V a, V b) { return _mm512_min_pd(a, b); }
  ISOBIT_INLINE static V max(V a, V b) { return _mm512_max_pd(a, b); }
  ISOBIT_INLINE static Mask less(V a, V b) { return _mm512_cmp_pd_mask(a, b, _CMP_LT_OQ); }
  ISOBIT_INLINE static V choose(Mask mask, V yes, V no) {
    return _mm512_mask_mov_pd(no, mask, yes);
  }
  // v * 2^n, rounded once.
  ISOBIT_INLINE static V scaled(V v, V n) { return _mm512_scalef_pd(v, n); }
  ISOBIT_INLINE static Bits all_bits(std::uint64_t value) {
    return _mm512_set1_epi64(static_cast<long long>(value));
  }
  ISOBIT_INLINE static Bits bits(V v) { return _mm512_castpd_si512(v); }
  ISOBIT_INLINE static V real(Bits v) { return _mm512_castsi512_pd(v); }
  ISOBIT_INLINE static Bits bits_and(Bits a, Bits b) { return _mm512_and_si512(a, b); }
  ISOBIT_INLINE static Bits bits_xor(Bits a, Bits b) { return _mm512_xor_si512(a, b); }
  ISOBIT_INLINE static Bits bits_add(Bits a, Bits b) { return _mm512_add_epi64(a, b); }
  template <int kPlaces>
  ISOBIT_INLINE static Bits shift_left(Bits a) {
    return _mm512_slli_epi64(a, kPlaces);
  }
  template <int kPlaces>
  ISOBIT_INLINE static Bits shift_right(Bits a) {
    return _mm512_srli_epi64(a, kPlaces);
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
    return _mm512_fixupimm_pd(_mm512_castsi512_pd(_mm512_set1_epi64(kNanF64)), v,
                              _mm512_set1_epi64(0x11111100), 0);
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

// Bytes that are only moved, in lanes of 16 bytes.
struct Bytes {
  using V = __m512i;
  static constexpr int kLanes = 4;

  ISOBIT_INLINE static V load(const void* p) { return _mm512_loadu_si512(p); }
  // Lane i from at(i). Inserts from memory are blends, which two ports can do; shuffles have one.
  template <class At>
  ISOBIT_INLINE static V load_lanes(const At& at) {
    V v = _mm512_castsi128_si512(lane(at(0)));
    v = _mm512_inserti32x4(v, lane(at(1)), 1);
    v = _mm512_inserti32x4(v, lane(at(2)), 2);
    return _mm512_inserti32x4(v, lane(at(3)), 3);
  }
  template <Stores kStores = Stores::cached>
  ISOBIT_INLINE static void store(void* p, V v) {
    if constexpr (kStores == Stores::streaming)
      _mm512_stream_si512(static_cast<__m512i*>(p), v);
    else
      _mm512_storeu_si512(p, v);
  }
  // Elements of T of a and b in turn, of the lower or upper half of each lane.
  template <class T>
  ISOBIT_INLINE static V zip_low(V a, V b) {
    if constexpr (sizeof(T) == 1) return _mm512_unpacklo_epi8(a, b);
    if constexpr (sizeof(T) == 2) return _mm512_unpacklo_epi16(a, b);
    if constexpr (sizeof(T) == 4) return _mm512_unpacklo_epi32(a, b);
    if constexpr (sizeof(T) == 8) return _mm512_unpacklo_epi64(a, b);
  }
  template <class T>
  ISOBIT_INLINE static V zip_high(V a, V b) {
    if constexpr (sizeof(T) == 1) return _mm512_unpackhi_epi8(a, b);
    if constexpr (sizeof(T) == 2) return _mm512_unpackhi_epi16(a, b);
    if constexpr (sizeof(T) == 4) return _mm512_unpackhi_epi32(a, b);
    if constexpr (sizeof(T) == 8) return _mm512_unpackhi_epi64(a, b);
  }

 private:
  ISOBIT_INLINE static __m128i lane(const void* p) {
    return _mm_loadu_si128(static_cast<const __m128i*>(p));
  }
};

using Lane = LaneX86;

}  // namespace isobit::simd::avx512
