// SPDX-License-Identifier: Apache-2.0
// Products of tiles by AMX, and weights as such tiles: 32 keys and 16 queries, lines of pairs of
// keys. A processor with AMX has AVX512_BF16 too, whose instruction rounds as narrow() does: no
// weight is subnormal.
#include <algorithm>

#include "isobit/ops/attention/cpu_kernels.h"
#include "isobit/ops/attention/formula.h"
#include "isobit/ops/attention/problem.h"
#include "isobit/ops/matmul/cpu_tiles.h"
#include "isobit/simd/vec.h"

namespace isobit::attention::ISOBIT_ISA {

#if ISOBIT_JOIN(ISOBIT_ISA_, ISOBIT_ISA) != ISOBIT_ISA_avx512

const TileKernels* tile_kernels() { return nullptr; }

#else

namespace {

using S = simd::F32;
using V = S::V;

constexpr int kLanes = S::kWidth, kBlocks = kPanel / kLanes;
constexpr std::int64_t kStepKeys = 32, kTile = 1024;  // bytes
constexpr std::int64_t kPitch = kPanel / kStepKeys * kTile;
static_assert(kPitch == TileKernels::kPitch);

// Weights of a key and of the next, of 16 queries each, side by side.
ISOBIT_INLINE void put_pair(V key, V next, std::byte* to) {
  alignas(64) static constexpr std::uint16_t kPairs[32] = {
      0, 16, 1, 17, 2,  18, 3,  19, 4,  20, 5,  21, 6,  22, 7,  23,
      8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
  __m512i words;
  asm("vcvtne2ps2bf16 %2, %1, %0" : "=v"(words) : "v"(next), "v"(key));
  _mm512_store_si512(to, _mm512_permutexvar_epi16(_mm512_load_si512(kPairs), words));
}

// Where a pair of keys stands.
ISOBIT_INLINE std::byte* line_of(std::byte* tiles, std::int64_t key) {
  return tiles + key / 2 * 64;
}

// The base is below kOrdinary: what weight_of gives.
ISOBIT_INLINE V ordinary_weight(V exponent, V base) {
  const V n = nearest_ordinary<S>(exponent);
  const V e = functions::exp2_of_fraction<S>(S::sub(exponent, n)), shift = S::sub(n, base);
  const auto is_there =
      _mm512_cmp_ps_mask(shift, S::all(kLeastExponent<float>), _CMP_NLT_UQ);  // NaN is
  return _mm512_maskz_scalef_ps(is_there, e, shift);
}

// Keys in blocks of 16, of which all eight are added by halves; those that there are not are +0.
template <bool kIsOrdinary, bool kWhole>
ISOBIT_INLINE V weigh_blocks(const float* values, std::int64_t pitch, std::int64_t blocks, V factor,
                             V base, std::byte* tiles) {
  V terms[kLanes];
  for (int i = 0; i < kLanes; i += 2) {
    V sums[2][kBlocks];
#pragma GCC unroll 8
    for (int block = 0; block < kBlocks; ++block) {
      if (!kWhole && block >= blocks) {
        sums[0][block] = sums[1][block] = S::zero();
        continue;
      }
      const std::int64_t key = block * kLanes + i;
#pragma GCC unroll 2
      for (int next = 0; next < 2; ++next) {
        const V exponent = S::mul(S::load(values + (key + next) * pitch), factor);
        sums[next][block] =
            kIsOrdinary ? ordinary_weight(exponent, base) : weight_of<S>(exponent, base);
      }
      put_pair(sums[0][block], sums[1][block], line_of(tiles, key));
    }
#pragma GCC unroll 2
    for (int next = 0; next < 2; ++next) {
      V(&s)[kBlocks] = sums[next];
#pragma GCC unroll 3
      for (int left = kBlocks / 2; left >= 1; left /= 2)
#pragma GCC unroll 4
        for (int at = 0; at < left; ++at) s[at] = S::add(s[at], s[at + left]);
      terms[i + next] = s[0];
    }
  }
#pragma GCC unroll 4
  for (int left = kLanes / 2; left >= 1; left /= 2)
    for (int i = 0; i < left; ++i) terms[i] = S::add(terms[i], terms[i + left]);
  return terms[0];
}

// 16 queries. Products are multiplied by the factor, exponents by 1.
void weigh_lanes(float* values, std::int64_t pitch, std::int64_t keys, V factor, float* max,
                 float* sum, std::byte* tiles) {
  constexpr int kChains = 4;
  const std::int64_t steps = (keys + kStepKeys - 1) / kStepKeys;
  for (std::int64_t j = keys; j < steps * kStepKeys; ++j)
    _mm512_storeu_ps(values + j * pitch, S::all(-kInfinity<float>));
  V tops[kChains];
#pragma GCC unroll 4
  for (auto& top : tops) top = S::all(-kInfinity<float>);
  for (std::int64_t j = 0; j < steps * kStepKeys; j += kChains)
#pragma GCC unroll 4
    for (int c = 0; c < kChains; ++c) tops[c] = S::max(tops[c], S::load(values + (j + c) * pitch));
  const V most = S::max(S::max(tops[0], tops[1]), S::max(tops[2], tops[3]));
  const V top = nearest<S>(S::mul(most, factor)), base = base_of<S>(top);
  _mm512_storeu_ps(max, top);
  const auto least = S::all(-kOrdinary<float>), largest = S::all(kOrdinary<float>);
  const bool ordinary = (S::less(least, base) & S::less(base, largest)) == 0xffff;
  const std::int64_t blocks = steps * kStepKeys / kLanes;
  const V total = !ordinary ? weigh_blocks<false, false>(values, pitch, blocks, factor, base, tiles)
                  : blocks < kBlocks
                      ? weigh_blocks<true, false>(values, pitch, blocks, factor, base, tiles)
                      : weigh_blocks<true, true>(values, pitch, blocks, factor, base, tiles);
  _mm512_storeu_ps(sum, total);
}

void weigh(const void* given, const Columns& columns, void* tiles) {
  const V factor =
      S::all(columns.are_products ? static_cast<const Scaling<float>*>(given)->factor : 1.0F);
  for (std::int64_t i = 0; i < columns.cols; i += kLanes)
    weigh_lanes(static_cast<float*>(columns.values) + i, columns.cols, columns.keys, factor,
                static_cast<float*>(columns.max) + i, static_cast<float*>(columns.sum) + i,
                static_cast<std::byte*>(tiles) + i / kLanes * kPitch);
}

// Weights of a whole panel that others have made.
void pack(const void* weights, std::int64_t cols, void* tiles) {
  for (std::int64_t i = 0; i < cols; i += kLanes)
    for (std::int64_t j = 0; j < kPanel; j += 2) {
      const float* from = static_cast<const float*>(weights) + j * cols + i;
      put_pair(S::load(from), S::load(from + cols),
               line_of(static_cast<std::byte*>(tiles) + i / kLanes * kPitch, j));
    }
}

template <int kDown, int kAcross>
ISOBIT_INLINE void multiply_panels(const matmul::Tiles& tiles, std::int64_t i) {
  matmul::ISOBIT_ISA::multiply_tiles<kDown, kAcross>(
      tiles, static_cast<const std::byte*>(tiles.a) + i * tiles.a_pitch,
      static_cast<const std::byte*>(tiles.b), tiles.c + i * kLanes * tiles.c_pitch, tiles.steps,
      false);
}
template <int kAcross>
void multiply_across(const matmul::Tiles& tiles) {
  const std::int64_t down = (tiles.m + kLanes - 1) / kLanes;
  std::int64_t i = 0;
  for (; i + 2 <= down; i += 2) multiply_panels<2, kAcross>(tiles, i);
  if (i < down) multiply_panels<1, kAcross>(tiles, i);
}

// Of one or two panels of b.
void multiply(const matmul::Tiles& tiles) {
  tiles.n > kLanes ? multiply_across<2>(tiles) : multiply_across<1>(tiles);
}

void begin() { matmul::ISOBIT_ISA::configure(); }
void end() { matmul::ISOBIT_ISA::give_back(); }

constexpr TileKernels kTileKernels = {begin, end, multiply, weigh, pack};

}  // namespace

const TileKernels* tile_kernels() { return &kTileKernels; }

#endif

}  // namespace isobit::attention::ISOBIT_ISA
