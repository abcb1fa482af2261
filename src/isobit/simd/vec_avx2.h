// SPDX-License-Identifier: Apache-2.0
// Vectors of 256 bits (AVX2, FMA and F16C). Each operation is one IEEE operation, as in
// vec_scalar.h.
#pragma once

#include <immintrin.h>

#include <cstdint>
#include <cstring>

#include "isobit/core/dtype.h"
#include "isobit/simd/lane_x86.h"
#include "isobit/simd/stores.h"

namespace isobit::simd::avx2 {

struct F32 {
  using Real = float;
  using V = __m256;
  static constexpr int kWidth = 8;
  struct Part {
    __m256i mask;
    int count;
  };

  ISOBIT_INLINE static Part first(std::int64_t count) {
    const int lanes = count >= 8 ? 8 : count <= 0 ? 0 : static_cast<int>(count);
    return {_mm256_cmpgt_epi32(_mm256_set1_epi32(lanes), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7)),
            lanes};
  }
  ISOBIT_INLINE static V zero() { return _mm256_setzero_ps(); }
  ISOBIT_INLINE static V all(float value) { return _mm256_set1_ps(value); }
  ISOBIT_INLINE static V add(V a, V b) { return _mm256_add_ps(a, b); }
  ISOBIT_INLINE static V sub(V a, V b) { return _mm256_sub_ps(a, b); }
  ISOBIT_INLINE static V mul(V a, V b) { return _mm256_mul_ps(a, b); }
  ISOBIT_INLINE static V fma(V a, V b, V c) { return _mm256_fmadd_ps(a, b, c); }
  // Each element in the place of its neighbour, the first two exchanged, and so on.
  ISOBIT_INLINE static V neighbours(V v) { return _mm256_permute_ps(v, 0xb1); }
  ISOBIT_INLINE static V minus_product(V a, V b, V c) { return _mm256_fnmadd_ps(a, b, c); }
  ISOBIT_INLINE static V only(V value) { return value; }
  ISOBIT_INLINE static V only(V value, Part part) {
    return _mm256_and_ps(value, _mm256_castsi256_ps(part.mask));
  }

  // Adds halves onto each other: 4, 2, 1.
  ISOBIT_INLINE static float fold(V v) {
    const __m128 by4 = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    const __m128 by2 = _mm_add_ps(by4, _mm_movehl_ps(by4, by4));
    return _mm_cvtss_f32(_mm_add_ss(by2, _mm_movehdup_ps(by2)));
  }

  // What functions need.
  using Bits = __m256i;
  using Mask = V;
  ISOBIT_INLINE static V div(V a, V b) { return _mm256_div_ps(a, b); }
  // The second where one is NaN or both are zero.
  ISOBIT_INLINE static V min(V a, V b) { return _mm256_min_ps(a, b); }
  ISOBIT_INLINE static V max(V a, V b) { return _mm256_max_ps(a, b); }
  ISOBIT_INLINE static Mask less(V a, V b) { return _mm256_cmp_ps(a, b, _CMP_LT_OQ); }
  ISOBIT_INLINE static V choose(Mask mask, V yes, V no) { return _mm256_blendv_ps(no, yes, mask); }
  ISOBIT_INLINE static Mask both(Mask a, Mask b) { return _mm256_and_ps(a, b); }
  ISOBIT_INLINE static bool everywhere(Mask mask) { return _mm256_movemask_ps(mask) == 0xff; }
  ISOBIT_INLINE static Bits all_bits(std::uint32_t value) {
    return _mm256_set1_epi32(static_cast<int>(value));
  }
  ISOBIT_INLINE static Bits bits(V v) { return _mm256_castps_si256(v); }
  ISOBIT_INLINE static V real(Bits v) { return _mm256_castsi256_ps(v); }
  ISOBIT_INLINE static Bits bits_and(Bits a, Bits b) { return _mm256_and_si256(a, b); }
  ISOBIT_INLINE static Bits bits_xor(Bits a, Bits b) { return _mm256_xor_si256(a, b); }
  ISOBIT_INLINE static Bits bits_add(Bits a, Bits b) { return _mm256_add_epi32(a, b); }
  template <int kPlaces>
  ISOBIT_INLINE static Bits shift_left(Bits a) {
    return _mm256_slli_epi32(a, kPlaces);
  }
  template <int kPlaces>
  ISOBIT_INLINE static Bits shift_right(Bits a) {
    return _mm256_srli_epi32(a, kPlaces);
  }

  ISOBIT_INLINE static V load(const float* p) { return _mm256_loadu_ps(p); }
  ISOBIT_INLINE static V load(const float* p, Part part) {
    return _mm256_maskload_ps(p, part.mask);
  }
  ISOBIT_INLINE static V load(const bf16* p) { return widen(_mm_loadu_si128(words(p)), p); }
  ISOBIT_INLINE static V load(const f16* p) { return widen(_mm_loadu_si128(words(p)), p); }
  template <class T>
  ISOBIT_INLINE static V load(const T* p, Part part) {
    return widen(first_words(p, part.count), p);
  }

  // Doubles rounded to nearest even, and to odd (core/odd.h).
  ISOBIT_INLINE static V load_nearest(const double* p) {
    return _mm256_set_m128(_mm256_cvtpd_ps(_mm256_loadu_pd(p + 4)),
                           _mm256_cvtpd_ps(_mm256_loadu_pd(p)));
  }
  ISOBIT_INLINE static V load_odd(const double* p) {
    return _mm256_set_m128(odd(_mm256_loadu_pd(p + 4)), odd(_mm256_loadu_pd(p)));
  }
  // As doubles, with canonical NaNs.
  template <Stores kStores = Stores::cached>
  ISOBIT_INLINE static void store_wide(double* p, V v) {
    const V number = convert<Nan::possible>(v, static_cast<const float*>(nullptr));
    const __m256d halves[2] = {_mm256_cvtps_pd(_mm256_castps256_ps128(number)),
                               _mm256_cvtps_pd(_mm256_extractf128_ps(number, 1))};
    for (int i = 0; i < 2; ++i) {
      if constexpr (kStores == Stores::streaming)
        _mm256_stream_pd(p + 4 * i, halves[i]);
      else
        _mm256_storeu_pd(p + 4 * i, halves[i]);
    }
  }

  template <Stores kStores = Stores::cached, Nan kNan = Nan::possible, class T>
  ISOBIT_INLINE static void store(T* p, V v) {
    const auto bits = convert<kNan>(v, p);
    if constexpr (sizeof(T) == 4 && kStores == Stores::streaming)
      _mm256_stream_ps(p, bits);
    else if constexpr (sizeof(T) == 4)
      _mm256_storeu_ps(p, bits);
    else if constexpr (kStores == Stores::streaming)
      _mm_stream_si128(words(p), bits);
    else
      _mm_storeu_si128(words(p), bits);
  }
  template <Stores = Stores::cached, Nan kNan = Nan::possible, class T>
  ISOBIT_INLINE static void store(T* p, V v, Part part) {
    if (part.count == 8) return store<Stores::cached, kNan>(p, v);
    if constexpr (sizeof(T) == 4)
      store_first(p, convert<kNan>(v, p), part.count);
    else
      store_first_words(p, convert<kNan>(v, p), part.count);
  }

 private:
  // Fewer than a vector has, by halves: masked stores are microcode on AMD's processors.
  ISOBIT_INLINE static void store_first(float* p, V v, int count) {
    __m128 left = _mm256_castps256_ps128(v);
    if (count & 4) {
      _mm_storeu_ps(p, left);
      left = _mm256_extractf128_ps(v, 1);
      p += 4;
    }
    if (count & 2) {
      _mm_storel_pi(reinterpret_cast<__m64*>(p), left);
      left = _mm_movehl_ps(left, left);
      p += 2;
    }
    if (count & 1) _mm_store_ss(p, left);
  }
  template <class T>
  ISOBIT_INLINE static void store_first_words(T* p, __m128i left, int count) {
    if (count & 4) {
      put_low<std::uint64_t>(p, left);
      left = _mm_srli_si128(left, 8);
      p += 4;
    }
    if (count & 2) {
      put_low<std::uint32_t>(p, left);
      left = _mm_srli_si128(left, 4);
      p += 2;
    }
    if (count & 1) put_low<std::uint16_t>(p, left);
  }
  // Zeros after them. The last ones first, which those before push to their place.
  template <class T>
  ISOBIT_INLINE static __m128i first_words(const T* p, int count) {
    if (count == 8) return _mm_loadu_si128(words(p));
    __m128i found = _mm_setzero_si128();
    p += count;
    if (count & 1) found = low<std::uint16_t>(p -= 1);
    if (count & 2) found = _mm_or_si128(_mm_slli_si128(found, 4), low<std::uint32_t>(p -= 2));
    if (count & 4) found = _mm_unpacklo_epi64(low<std::uint64_t>(p -= 4), found);
    return found;
  }
  template <class Word>
  ISOBIT_INLINE static __m128i low(const void* p) {
    Word word;
    std::memcpy(&word, p, sizeof word);
    return _mm_cvtsi64_si128(static_cast<long long>(word));
  }
  template <class Word>
  ISOBIT_INLINE static void put_low(void* p, __m128i v) {
    const auto word = static_cast<Word>(_mm_cvtsi128_si64(v));
    std::memcpy(p, &word, sizeof word);
  }

  // The nearest, one step back where that is beyond v; where it is not v, the last bit says so.
  ISOBIT_INLINE static __m128 odd(__m256d v) {
    const __m128 nearest = _mm256_cvtpd_ps(v);
    const __m256d back = _mm256_cvtps_pd(nearest);
    const __m256d sign = _mm256_set1_pd(-0.0);
    const __m128i beyond = halves_of(
        _mm256_cmp_pd(_mm256_andnot_pd(sign, back), _mm256_andnot_pd(sign, v), _CMP_GT_OQ));
    const __m128i inexact = halves_of(_mm256_cmp_pd(back, v, _CMP_NEQ_OQ));
    const __m128i cut = _mm_add_epi32(_mm_castps_si128(nearest), beyond);
    return _mm_castsi128_ps(_mm_or_si128(cut, _mm_and_si128(inexact, _mm_set1_epi32(1))));
  }
  // Of each 64 bits, all ones or zeros, 32.
  ISOBIT_INLINE static __m128i halves_of(__m256d mask) {
    return _mm_castps_si128(_mm_shuffle_ps(_mm_castpd_ps(_mm256_castpd256_pd128(mask)),
                                           _mm_castpd_ps(_mm256_extractf128_pd(mask, 1)), 0x88));
  }
  template <class T>
  ISOBIT_INLINE static const __m128i* words(const T* p) {
    return reinterpret_cast<const __m128i*>(p);
  }
  template <class T>
  ISOBIT_INLINE static __m128i* words(T* p) {
    return reinterpret_cast<__m128i*>(p);
  }
  ISOBIT_INLINE static V is_nan(V v) { return _mm256_cmp_ps(v, v, _CMP_UNORD_Q); }
  ISOBIT_INLINE static V widen(__m128i bits, const bf16*) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
  }
  ISOBIT_INLINE static V widen(__m128i bits, const f16*) { return _mm256_cvtph_ps(bits); }
  // The bits to be stored through a pointer to their type.
  template <Nan kNan>
  ISOBIT_INLINE static V convert(V v, const float*) {
    if constexpr (kNan == Nan::absent) return v;
    return _mm256_blendv_ps(v, _mm256_castsi256_ps(_mm256_set1_epi32(kNanF32)), is_nan(v));
  }
  template <Nan kNan>
  ISOBIT_INLINE static __m128i convert(V v, const bf16*) {
    const __m256i bits = _mm256_castps_si256(v);
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    const __m256i rounded =
        _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7fff)), odd);
    __m256i high = _mm256_srli_epi32(rounded, 16);
    if constexpr (kNan == Nan::possible)
      high = _mm256_blendv_epi8(high, _mm256_set1_epi32(kNanBf16), _mm256_castps_si256(is_nan(v)));
    return pack(high);
  }
  template <Nan kNan>
  ISOBIT_INLINE static __m128i convert(V v, const f16*) {
    const __m128i half = _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    if constexpr (kNan == Nan::absent) return half;
    return _mm_blendv_epi8(half, _mm_set1_epi16(kNanF16), pack(_mm256_castps_si256(is_nan(v))));
  }
  // The low halves of 8 words; all ones stay all ones.
  ISOBIT_INLINE static __m128i pack(__m256i words) {
    const __m256i low = _mm256_and_si256(words, _mm256_set1_epi32(0xffff));
    const __m256i packed = _mm256_packus_epi32(low, low);
    return _mm256_castsi256_si128(_mm256_permute4x64_epi64(packed, 0xd8));
  }
};

struct F64 {
  using Real = double;
  using V = __m256d;
  using Part = __m256i;
  static constexpr int kWidth = 4;

  ISOBIT_INLINE static Part first(std::int64_t count) {
    return _mm256_cmpgt_epi64(_mm256_set1_epi64x(count), _mm256_setr_epi64x(0, 1, 2, 3));
  }
  ISOBIT_INLINE static V zero() { return _mm256_setzero_pd(); }
  ISOBIT_INLINE static V all(double value) { return _mm256_set1_pd(value); }
  ISOBIT_INLINE static V add(V a, V b) { return _mm256_add_pd(a, b); }
  ISOBIT_INLINE static V sub(V a, V b) { return _mm256_sub_pd(a, b); }
  ISOBIT_INLINE static V mul(V a, V b) { return _mm256_mul_pd(a, b); }
  ISOBIT_INLINE static V fma(V a, V b, V c) { return _mm256_fmadd_pd(a, b, c); }
  ISOBIT_INLINE static V neighbours(V v) { return _mm256_permute_pd(v, 0x5); }
  ISOBIT_INLINE static V minus_product(V a, V b, V c) { return _mm256_fnmadd_pd(a, b, c); }
  ISOBIT_INLINE static V only(V value) { return value; }
  ISOBIT_INLINE static V only(V value, Part part) {
    return _mm256_and_pd(value, _mm256_castsi256_pd(part));
  }

  // Adds halves onto each other: 2, 1.
  ISOBIT_INLINE static double fold(V v) {
    const __m128d by2 = _mm_add_pd(_mm256_castpd256_pd128(v), _mm256_extractf128_pd(v, 1));
    return _mm_cvtsd_f64(_mm_add_sd(by2, _mm_unpackhi_pd(by2, by2)));
  }

  // What functions need.
  using Bits = __m256i;
  using Mask = V;
  ISOBIT_INLINE static V div(V a, V b) { return _mm256_div_pd(a, b); }
  // The second where one is NaN or both are zero.
  ISOBIT_INLINE static V min(V a, V b) { return _mm256_min_pd(a, b); }
  ISOBIT_INLINE static V max(V a, V b) { return _mm256_max_pd(a, b); }
  ISOBIT_INLINE static Mask less(V a, V b) { return _mm256_cmp_pd(a, b, _CMP_LT_OQ); }
  ISOBIT_INLINE static V choose(Mask mask, V yes, V no) { return _mm256_blendv_pd(no, yes, mask); }
  ISOBIT_INLINE static Bits all_bits(std::uint64_t value) {
    return _mm256_set1_epi64x(static_cast<long long>(value));
  }
  ISOBIT_INLINE static Bits bits(V v) { return _mm256_castpd_si256(v); }
  ISOBIT_INLINE static V real(Bits v) { return _mm256_castsi256_pd(v); }
  ISOBIT_INLINE static Bits bits_and(Bits a, Bits b) { return _mm256_and_si256(a, b); }
  ISOBIT_INLINE static Bits bits_xor(Bits a, Bits b) { return _mm256_xor_si256(a, b); }
  ISOBIT_INLINE static Bits bits_add(Bits a, Bits b) { return _mm256_add_epi64(a, b); }
  template <int kPlaces>
  ISOBIT_INLINE static Bits shift_left(Bits a) {
    return _mm256_slli_epi64(a, kPlaces);
  }
  template <int kPlaces>
  ISOBIT_INLINE static Bits shift_right(Bits a) {
    return _mm256_srli_epi64(a, kPlaces);
  }

  ISOBIT_INLINE static V load(const double* p) { return _mm256_loadu_pd(p); }
  ISOBIT_INLINE static V load(const double* p, Part part) { return _mm256_maskload_pd(p, part); }
  template <Stores kStores = Stores::cached, Nan kNan = Nan::possible>
  ISOBIT_INLINE static void store(double* p, V v) {
    if constexpr (kStores == Stores::streaming)
      _mm256_stream_pd(p, canonical<kNan>(v));
    else
      _mm256_storeu_pd(p, canonical<kNan>(v));
  }
  template <Stores = Stores::cached, Nan kNan = Nan::possible>
  ISOBIT_INLINE static void store(double* p, V v, Part part) {
    _mm256_maskstore_pd(p, part, canonical<kNan>(v));
  }

 private:
  template <Nan kNan>
  ISOBIT_INLINE static V canonical(V v) {
    if constexpr (kNan == Nan::absent) return v;
    return _mm256_blendv_pd(v, _mm256_castsi256_pd(_mm256_set1_epi64x(kNanF64)),
                            _mm256_cmp_pd(v, v, _CMP_UNORD_Q));
  }
};

struct I32 {
  using V = __m256i;
  static constexpr int kWidth = 8;
  ISOBIT_INLINE static V load(const std::int32_t* p) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  }
  ISOBIT_INLINE static V all(std::int32_t value) { return _mm256_set1_epi32(value); }
  ISOBIT_INLINE static V add(V a, V b) { return _mm256_add_epi32(a, b); }
  template <Stores kStores>
  ISOBIT_INLINE static void store(std::int32_t* p, V v) {
    if constexpr (kStores == Stores::streaming)
      _mm256_stream_si256(reinterpret_cast<__m256i*>(p), v);
    else
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), v);
  }
};

// Bytes that are only moved, in lanes of 16 bytes.
struct Bytes {
  using V = __m256i;
  static constexpr int kLanes = 2;

  ISOBIT_INLINE static V load(const void* p) {
    return _mm256_loadu_si256(static_cast<const __m256i*>(p));
  }
  // Lane i from at(i).
  template <class At>
  ISOBIT_INLINE static V load_lanes(const At& at) {
    return _mm256_inserti128_si256(_mm256_castsi128_si256(lane(at(0))), lane(at(1)), 1);
  }
  template <Stores kStores = Stores::cached>
  ISOBIT_INLINE static void store(void* p, V v) {
    if constexpr (kStores == Stores::streaming)
      _mm256_stream_si256(static_cast<__m256i*>(p), v);
    else
      _mm256_storeu_si256(static_cast<__m256i*>(p), v);
  }
  // Elements of T of a and b in turn, of the lower or upper half of each lane.
  template <class T>
  ISOBIT_INLINE static V zip_low(V a, V b) {
    if constexpr (sizeof(T) == 1) return _mm256_unpacklo_epi8(a, b);
    if constexpr (sizeof(T) == 2) return _mm256_unpacklo_epi16(a, b);
    if constexpr (sizeof(T) == 4) return _mm256_unpacklo_epi32(a, b);
    if constexpr (sizeof(T) == 8) return _mm256_unpacklo_epi64(a, b);
  }
  template <class T>
  ISOBIT_INLINE static V zip_high(V a, V b) {
    if constexpr (sizeof(T) == 1) return _mm256_unpackhi_epi8(a, b);
    if constexpr (sizeof(T) == 2) return _mm256_unpackhi_epi16(a, b);
    if constexpr (sizeof(T) == 4) return _mm256_unpackhi_epi32(a, b);
    if constexpr (sizeof(T) == 8) return _mm256_unpackhi_epi64(a, b);
  }

 private:
  ISOBIT_INLINE static __m128i lane(const void* p) {
    return _mm_loadu_si128(static_cast<const __m128i*>(p));
  }
};

using Lane = LaneX86;

}  // namespace isobit::simd::avx2
