// SPDX-License-Identifier: Apache-2.0
// Products of bf16 by the instruction that multiplies pairs of them, where it gives the bits of two
// fma's: it takes the odd element of a pair first, rounds after each product, and takes what is
// subnormal for 0. So k stands in the odd place and k + 1 in the even one, and no number on the way
// may be subnormal, which the smallest exponents of the factors tell.
#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "isobit/ops/matmul/cpu_kernels.h"
#include "isobit/ops/matmul/cpu_lanes.h"
#include "isobit/simd/read_ahead.h"

namespace isobit::matmul::ISOBIT_ISA {

#if ISOBIT_JOIN(ISOBIT_ISA_, ISOBIT_ISA) != ISOBIT_ISA_avx512

const PairKernels* pair_kernels(DType) { return nullptr; }

#else

#define ISOBIT_PAIRS __attribute__((target("avx512bf16")))

namespace {

constexpr int kRows = 14, kVectors = 2, kWidth = 16, kCols = kVectors * kWidth, kRowPitch = 16;

// The smallest of all elements that are not 0, as integers without their signs, less 1.
class Smallest {
 public:
  ISOBIT_INLINE void take(__m512i pairs) {
    const __m512i size = _mm512_and_si512(pairs, _mm512_set1_epi16(0x7fff));
    least_ = _mm512_min_epu16(least_, _mm512_sub_epi16(size, _mm512_set1_epi16(1)));
  }
  // Biased; of zeros alone, that of infinity.
  int exponent() const {
    std::uint16_t lanes[32];
    _mm512_storeu_si512(lanes, least_);
    std::uint16_t least = 0xffff;
    for (std::uint16_t lane : lanes) least = std::min(least, lane);
    return least == 0xffff ? 255 : (least + 1) >> 7;
  }

 private:
  __m512i least_ = _mm512_set1_epi16(-1);
};

// Pairs of adjacent lanes' k and k + 1, which may not be there.
ISOBIT_INLINE __m512i pairs_along(const bf16* odd, const bf16* even, __mmask16 part) {
  const __m512i high = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(part, odd));
  const __m512i shifted = _mm512_slli_epi32(high, 16);
  if (even == nullptr) return shifted;
  return _mm512_or_si512(shifted, _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(part, even)));
}

// Up to 16 lanes, whose pairs come `pitch` apart.
void pack_lanes(const bf16* from, const Lanes& lanes, std::int64_t count, std::int64_t k,
                std::uint32_t* to, std::int64_t pitch, Smallest& smallest) {
  const auto put = [&](std::int64_t pair, __m512i words) ISOBIT_INLINE_LAMBDA {
    smallest.take(words);
    _mm512_storeu_si512(to + pair * pitch, words);
  };
  std::int64_t pair = 0;
  if (lanes.stride == 1) {
    const auto part = static_cast<__mmask16>(simd::F32::first(count));
    for (; 2 * pair < k; ++pair) {
      const bf16* odd = from + 2 * pair * lanes.k_stride;
      put(pair, pairs_along(odd, 2 * pair + 1 < k ? odd + lanes.k_stride : nullptr, part));
    }
    return;
  }
  if (lanes.k_stride == 1) {
    const bf16* lines[kWidth];
    for (int lane = 0; lane < kWidth; ++lane)
      lines[lane] = from + std::min<std::int64_t>(lane, count - 1) * lanes.stride;
    while (2 * pair + 2 <= k) {
      const std::int64_t some = std::min<std::int64_t>(kWidth, k / 2 - pair);
      const auto part = simd::F32::first(some);
      __m512 vectors[kWidth];
      for (int lane = 0; lane < kWidth; ++lane) {
        const auto* words = reinterpret_cast<const float*>(lines[lane] + 2 * pair);
        vectors[lane] = some == kWidth ? simd::F32::load(words) : simd::F32::load(words, part);
      }
      simd::transpose<simd::F32>(vectors);
#pragma GCC unroll 16
      for (int i = 0; i < kWidth; ++i)
        if (i < some) put(pair + i, _mm512_rol_epi32(_mm512_castps_si512(vectors[i]), 16));
      pair += some;
    }
  }
  for (; 2 * pair < k; ++pair) {
    alignas(64) std::uint32_t words[kWidth];
    for (int lane = 0; lane < kWidth; ++lane) {
      const bf16* odd =
          from + std::min<std::int64_t>(lane, count - 1) * lanes.stride + 2 * pair * lanes.k_stride;
      words[lane] = std::uint32_t{odd->bits} << 16 |
                    (2 * pair + 1 < k ? std::uint32_t{odd[lanes.k_stride].bits} : 0u);
    }
    put(pair, _mm512_load_si512(words));
  }
}

std::int64_t pairs_of(std::int64_t k) { return (k + 1) / 2; }

int pack_a(const Lanes& lanes, std::int64_t k, void* to) {
  Smallest smallest;
  const auto* from = reinterpret_cast<const bf16*>(lanes.data);
  const std::int64_t panels = (lanes.count + kRows - 1) / kRows;
  for (std::int64_t panel = 0; panel < panels; ++panel) {
    const std::int64_t begin = lanes.count * panel / panels;
    pack_lanes(
        from + begin * lanes.stride, lanes, std::min<std::int64_t>(kRowPitch, lanes.count - begin),
        k, static_cast<std::uint32_t*>(to) + panel * kRowPitch * pairs_of(k), kRowPitch, smallest);
  }
  return smallest.exponent();
}

// As pack_b of single elements: a few k of all panels at a time where lanes are adjacent.
int pack_b(const Lanes& lanes, std::int64_t k, void* to) {
  constexpr std::int64_t kTogether = 16;
  Smallest smallest;
  const auto* from = reinterpret_cast<const bf16*>(lanes.data);
  auto* panels = static_cast<std::uint32_t*>(to);
  const std::int64_t step = lanes.stride == 1 ? kTogether : k;
  for (std::int64_t i = 0; i < k; i += step)
    for (std::int64_t col = 0; col < lanes.count; col += kWidth) {
      const std::int64_t first = col / kCols * kCols, left = lanes.count - first;
      const std::int64_t pitch = left <= kWidth ? kWidth : kCols;
      pack_lanes(from + col * lanes.stride + i * lanes.k_stride, lanes, lanes.count - col,
                 std::min(step, k - i),
                 panels + first * pairs_of(k) + (col - first) + i / 2 * pitch, pitch, smallest);
    }
  return smallest.exponent();
}

// The elements of pairs, k and k + 1, as floats.
ISOBIT_INLINE __m512i odd_of(__m512i pairs) {
  return _mm512_and_si512(pairs, _mm512_set1_epi32(-65536));
}
ISOBIT_INLINE __m512i even_of(__m512i pairs) { return _mm512_slli_epi32(pairs, 16); }

void widen_b(const void* pairs, std::int64_t cols, std::int64_t k, void* to) {
  const std::int64_t pitch = cols <= kWidth ? kWidth : kCols;
  const auto* words = static_cast<const std::uint32_t*>(pairs);
  auto* line = static_cast<std::uint32_t*>(to);
  for (std::int64_t i = 0; i < k; ++i, line += pitch)
    for (std::int64_t col = 0; col < pitch; col += kWidth) {
      const __m512i both = _mm512_loadu_si512(words + i / 2 * pitch + col);
      _mm512_storeu_si512(line + col, i % 2 == 0 ? odd_of(both) : even_of(both));
    }
}

template <int kCount, int kPanels>
using Sums = __m512[kCount][kPanels];

template <int kCount, int kPanels>
ISOBIT_INLINE void clear(Sums<kCount, kPanels>& sums) {
#pragma GCC unroll 16
  for (auto& row : sums)
#pragma GCC unroll 4
    for (__m512& sum : row) sum = _mm512_setzero_ps();
}

template <int kCount, int kPanels>
ISOBIT_INLINE void store(const Sums<kCount, kPanels>& sums, float* c, std::int64_t pitch,
                         bool adds) {
#pragma GCC unroll 16
  for (int i = 0; i < kCount; ++i)
#pragma GCC unroll 4
    for (int v = 0; v < kPanels; ++v) {
      float* to = c + i * pitch + v * kWidth;
      _mm512_storeu_ps(to, adds ? _mm512_add_ps(_mm512_loadu_ps(to), sums[i][v]) : sums[i][v]);
    }
}

template <int kCount, int kPanels>
ISOBIT_PAIRS void tile(const std::uint32_t* a, const std::uint32_t* b, float* c, std::int64_t pitch,
                       std::int64_t pairs, bool adds) {
  Sums<kCount, kPanels> sums;
  clear(sums);
  for (std::int64_t at = 0; at < pairs; ++at) {
    __m512bh columns[kPanels];
#pragma GCC unroll 4
    for (int v = 0; v < kPanels; ++v)
      columns[v] = __builtin_bit_cast(__m512bh, _mm512_loadu_si512(b + v * kWidth));
#pragma GCC unroll 16
    for (int i = 0; i < kCount; ++i) {
      const auto row = __builtin_bit_cast(__m512bh, _mm512_set1_epi32(static_cast<int>(a[i])));
#pragma GCC unroll 4
      for (int v = 0; v < kPanels; ++v) sums[i][v] = _mm512_dpbf16_ps(sums[i][v], row, columns[v]);
    }
    a += kRowPitch;
    b += kPanels * kWidth;
  }
  store(sums, c, pitch, adds);
}

// The same for rows that are elements, which both elements of a pair are widened for.
template <int kCount, int kPanels>
void widened_tile(const std::uint32_t* a, const std::uint32_t* b, float* c, std::int64_t pitch,
                  std::int64_t k, bool adds) {
  Sums<kCount, kPanels> sums;
  clear(sums);
  const auto add = [&](const auto& widened) ISOBIT_INLINE_LAMBDA {
    __m512 columns[kPanels];
#pragma GCC unroll 4
    for (int v = 0; v < kPanels; ++v)
      columns[v] = _mm512_castsi512_ps(widened(_mm512_loadu_si512(b + v * kWidth)));
#pragma GCC unroll 16
    for (int i = 0; i < kCount; ++i) {
      const __m512 row = _mm512_castsi512_ps(_mm512_set1_epi32(static_cast<int>(a[i])));
#pragma GCC unroll 4
      for (int v = 0; v < kPanels; ++v) sums[i][v] = _mm512_fmadd_ps(row, columns[v], sums[i][v]);
    }
    a += kRowPitch;
  };
  const auto odd = [](__m512i pairs) ISOBIT_INLINE_LAMBDA { return odd_of(pairs); };
  const auto even = [](__m512i pairs) ISOBIT_INLINE_LAMBDA { return even_of(pairs); };
  for (std::int64_t at = 0; at < k; at += 2) {
    if constexpr (kCount <= kFewRows) simd::read_ahead<kPanels * kWidth>(b);
    add(odd);
    if (at + 1 < k) add(even);
    b += kPanels * kWidth;
  }
  store(sums, c, pitch, adds);
}

using TileKernel = void (*)(const std::uint32_t*, const std::uint32_t*, float*, std::int64_t,
                            std::int64_t, bool);
using TileKernels = std::array<TileKernel, kRows>;  // for 1 to kRows rows
template <int kPanels, int... kLess>
constexpr TileKernels tiles_of(std::integer_sequence<int, kLess...>) {
  return {tile<kLess + 1, kPanels>...};
}
template <int kPanels, int... kLess>
constexpr TileKernels widened_tiles_of(std::integer_sequence<int, kLess...>) {
  return {widened_tile<kLess + 1, kPanels>...};
}
using Rows = std::make_integer_sequence<int, kRows>;

// Panels of a have `count` lines, of pairs or of elements.
ISOBIT_INLINE void multiply_by(const TileKernels& narrow, const TileKernels& whole,
                               std::int64_t count, const Block& block) {
  const std::int64_t pairs = pairs_of(block.k), panels = (block.m + kRows - 1) / kRows;
  const auto* b = static_cast<const std::uint32_t*>(block.b);
  for (std::int64_t col = 0; col < block.n; col += kCols, b += kCols * pairs) {
    const TileKernels& kernels = block.n - col <= kWidth ? narrow : whole;
    for (std::int64_t panel = 0; panel < panels; ++panel) {
      const std::int64_t begin = block.m * panel / panels, end = block.m * (panel + 1) / panels;
      kernels[static_cast<std::size_t>(end - begin - 1)](
          static_cast<const std::uint32_t*>(block.a) + panel * kRowPitch * count, b,
          static_cast<float*>(block.c) + begin * block.c_pitch + col, block.c_pitch, count,
          block.adds);
    }
  }
}

void multiply(const Block& block) {
  static constexpr TileKernels kNarrow = tiles_of<1>(Rows()), kWhole = tiles_of<kVectors>(Rows());
  multiply_by(kNarrow, kWhole, pairs_of(block.k), block);
}

void multiply_widened(const Block& block) {
  static constexpr TileKernels kNarrow = widened_tiles_of<1>(Rows()),
                               kWhole = widened_tiles_of<kVectors>(Rows());
  multiply_by(kNarrow, kWhole, block.k, block);
}

// Whether the instruction gives the bits of two fma's here: the manuals leave it open.
bool works() {
  if (!__builtin_cpu_supports("avx512bf16")) return false;
  std::uint32_t state = 1, a[64], b[64];
  float sums[kWidth] = {};
  const auto next = [&state] {
    state = state * 1664525u + 1013904223u;
    // Exponents of 100 to 131, so that sums round, cancel and grow.
    return (state >> 16 & 0x807f) | (100 + (state >> 10 & 31)) << 7;
  };
  for (int turn = 0; turn < 64; ++turn) {
    for (int i = 0; i < 64; ++i) {
      a[i] = next() << 16;
      a[i] |= next();
      b[i] = next() << 16;
      b[i] |= next();
    }
    std::uint32_t columns[4 * kWidth], rows[4 * kRowPitch] = {};
    for (int pair = 0; pair < 4; ++pair) {
      rows[pair * kRowPitch] = a[pair];
      for (int lane = 0; lane < kWidth; ++lane)
        columns[pair * kWidth + lane] = b[pair * kWidth + lane];
    }
    tile<1, 1>(rows, columns, sums, kWidth, 4, false);
    for (int lane = 0; lane < kWidth; ++lane) {
      float expected = 0;
      for (int pair = 0; pair < 4; ++pair) {
        const std::uint32_t x = rows[pair * kRowPitch], y = columns[pair * kWidth + lane];
        const auto real = [](std::uint32_t bits) { return __builtin_bit_cast(float, bits); };
        expected = std::fma(real(x & 0xffff0000), real(y & 0xffff0000), expected);
        expected = std::fma(real(x << 16), real(y << 16), expected);
      }
      if (__builtin_bit_cast(std::uint32_t, expected) !=
          __builtin_bit_cast(std::uint32_t, sums[lane]))
        return false;
    }
  }
  return true;
}

// So many terms to each of so many sums, which wait for nothing else.
template <bool kArePairs>
ISOBIT_PAIRS void add_terms() {
  constexpr int kTerms = 64, kSums = 16;
  __m512 sums[kSums];
  const __m512 one = _mm512_set1_ps(1);
  const auto pair = __builtin_bit_cast(__m512bh, one);
#pragma GCC unroll 16
  for (int i = 0; i < kSums; ++i) sums[i] = _mm512_set1_ps(static_cast<float>(i));
  for (int term = 0; term < kTerms; ++term)
#pragma GCC unroll 16
    for (auto& sum : sums)
      sum = kArePairs ? _mm512_dpbf16_ps(sum, pair, pair) : _mm512_fmadd_ps(sum, one, one);
#pragma GCC unroll 16
  for (auto& sum : sums) asm volatile("" : : "v"(sum));
}

constexpr PairKernels kPairKernels = {pack_a,  pack_b,          multiply,        multiply_widened,
                                      widen_b, add_terms<true>, add_terms<false>};

}  // namespace

const PairKernels* pair_kernels(DType a) {
  static const bool kWorks = works();
  return a == DType::bf16 && kWorks ? &kPairKernels : nullptr;
}

#endif

}  // namespace isobit::matmul::ISOBIT_ISA
