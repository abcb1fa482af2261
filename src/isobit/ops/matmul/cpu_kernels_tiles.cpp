// SPDX-License-Identifier: Apache-2.0
// Products of bf16 by AMX, in the order of core/amx.h: tiles of 16 rows and 32 k of a, of 32 k and
// 16 columns of b, and 2 x 2 tiles of sums in its registers.
#include <algorithm>
#include <cstring>

#include "isobit/core/amx.h"
#include "isobit/ops/matmul/cpu_kernels.h"
#include "isobit/ops/matmul/cpu_lanes.h"
#include "isobit/ops/matmul/cpu_tiles.h"

namespace isobit::matmul::ISOBIT_ISA {

#if ISOBIT_JOIN(ISOBIT_ISA_, ISOBIT_ISA) != ISOBIT_ISA_avx512

const TileKernels* tile_kernels() { return nullptr; }

#else

namespace {

constexpr std::int64_t kLanes = TileKernels::kLanes, kStep = amx::kStep;
constexpr std::int64_t kLine = 64, kTile = TileKernels::kBytes;  // bytes

// Up to 16 lanes and 32 k, with zeros for the others: as vectors of a pair of k of all lanes, which
// is then told, or of a lane's pairs.
ISOBIT_INLINE bool load(const bf16* from, const Lanes& lanes, std::int64_t count, std::int64_t k,
                        __m512 (&vectors)[kLanes]) {
  const auto set = [&](std::int64_t i, __m512i words)
                       ISOBIT_INLINE_LAMBDA { vectors[i] = _mm512_castsi512_ps(words); };
  if (lanes.stride == 1) {
    const auto part = static_cast<__mmask16>(simd::F32::first(count));
    const auto words = [&](std::int64_t at) ISOBIT_INLINE_LAMBDA {
      if (at >= k) return _mm512_setzero_si512();
      return _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(part, from + at * lanes.k_stride));
    };
#pragma GCC unroll 16
    for (std::int64_t i = 0; i < kLanes; ++i)
      set(i, _mm512_or_si512(words(2 * i), _mm512_slli_epi32(words(2 * i + 1), 16)));
    return true;
  }
  if (lanes.k_stride == 1) {
    const auto part = static_cast<__mmask32>((std::uint64_t{1} << k) - 1);
#pragma GCC unroll 16
    for (std::int64_t i = 0; i < kLanes; ++i)
      set(i, i < count ? _mm512_maskz_loadu_epi16(part, from + i * lanes.stride)
                       : _mm512_setzero_si512());
    return false;
  }
  alignas(kLine) bf16 words[kLanes][kStep] = {};
  for (std::int64_t i = 0; i < count; ++i)
    for (std::int64_t at = 0; at < k; ++at)
      words[i][at] = from[i * lanes.stride + at * lanes.k_stride];
  for (std::int64_t i = 0; i < kLanes; ++i) set(i, _mm512_load_si512(words[i]));
  return false;
}

// A tile has lines of pairs, of b, or of lanes, of a.
template <bool kByPairs>
ISOBIT_INLINE void pack_tile(const bf16* from, const Lanes& lanes, std::int64_t count,
                             std::int64_t k, std::byte* to) {
  __m512 lines[kLanes];
  if (load(from, lanes, std::min(count, kLanes), std::min(k, kStep), lines) != kByPairs)
    simd::transpose<simd::F32>(lines);
#pragma GCC unroll 16
  for (std::int64_t i = 0; i < kLanes; ++i) _mm512_storeu_ps(to + i * kLine, lines[i]);
}

// Along whichever way memory lies.
template <bool kByPairs>
void pack(const Lanes& lanes, std::int64_t k, void* to, std::int64_t pitch) {
  const auto* from = reinterpret_cast<const bf16*>(lanes.data);
  auto* const panels = static_cast<std::byte*>(to);
  const std::int64_t across = (lanes.count + kLanes - 1) / kLanes, steps = (k + kStep - 1) / kStep;
  const auto put = [&](std::int64_t panel, std::int64_t step) {
    pack_tile<kByPairs>(from + panel * kLanes * lanes.stride + step * kStep * lanes.k_stride, lanes,
                        lanes.count - panel * kLanes, k - step * kStep,
                        panels + panel * pitch + step * kTile);
  };
  if (lanes.stride == 1) {
    for (std::int64_t step = 0; step < steps; ++step)
      for (std::int64_t panel = 0; panel < across; ++panel) put(panel, step);
  } else {
    for (std::int64_t panel = 0; panel < across; ++panel)
      for (std::int64_t step = 0; step < steps; ++step) put(panel, step);
  }
}

// Two panels of b, and of them so many k as the first cache holds beside what passes of a; and what
// comes after them, from the third cache: 7 % less time where b takes 2 MiB and more [Xeon, family
// 6, model 167].
void multiply(const Tiles& tiles) {
  constexpr std::int64_t kSteps = 16;
  configure();
  const std::int64_t down = (tiles.m + kLanes - 1) / kLanes,
                     across = (tiles.n + kLanes - 1) / kLanes;
  for (std::int64_t j = 0; j < across; j += 2)
    for (std::int64_t first = 0; first < tiles.steps; first += kSteps)
      for (std::int64_t i = 0; i < down; i += 2) {
        constexpr std::int64_t kSlice = kSteps * kTile;  // bytes of a panel
        const auto* a = static_cast<const std::byte*>(tiles.a) + i * tiles.a_pitch + first * kTile;
        const auto* b = static_cast<const std::byte*>(tiles.b) + j * tiles.b_pitch + first * kTile;
        float* const c = tiles.c + i * kLanes * tiles.c_pitch + j * kLanes;
        const std::int64_t steps = std::min(kSteps, tiles.steps - first);
        const bool adds = tiles.adds || first > 0;
        // Both panels' next slices, in equal parts; prefetching what is not there does no harm.
        const std::int64_t lines = 2 * kTile / kLine / ((down + 1) / 2);
        const std::int64_t part = i / 2 * lines * kSteps * kLine;
        const std::byte* const next =
            (first + kSteps < tiles.steps
                 ? b + kSlice
                 : static_cast<const std::byte*>(tiles.b) + (j + 2) * tiles.b_pitch) +
            (part < kSlice ? part : part - kSlice + tiles.b_pitch);
        const auto kernel = i + 1 < down
                                ? j + 1 < across ? multiply_tiles<2, 2> : multiply_tiles<2, 1>
                            : j + 1 < across ? multiply_tiles<1, 2>
                                             : multiply_tiles<1, 1>;
        kernel(tiles, a, b, c, steps, adds, {next, lines});
      }
  give_back();
}

// Numbers that round, cancel, leave the range on both sides and are not finite.
bool works() {
  constexpr std::int64_t kSteps = 2, kDepth = kSteps * kStep;
  std::uint32_t state = 1;
  const auto next = [&state] { return (state = state * 1664525u + 1013904223u) >> 12; };
  for (int turn = 0; turn < 64; ++turn) {
    bf16 a[kLanes][kDepth], b[kDepth][kLanes];
    const std::uint32_t least = turn % 4 == 0 ? 0 : turn % 4 == 1 ? 40 : 120;
    const std::uint32_t span = turn % 4 == 0 ? 256 : turn % 4 == 1 ? 48 : 14;
    const auto fill = [&](bf16& element) {
      element.bits = static_cast<std::uint16_t>((next() & 0x807f) | (least + next() % span) << 7);
    };
    for (auto& row : a) std::for_each(row, row + kDepth, fill);
    for (auto& row : b) std::for_each(row, row + kLanes, fill);
    alignas(kLine) std::byte of_a[kSteps * kTile], of_b[kSteps * kTile];
    pack<false>({reinterpret_cast<const std::byte*>(a), kDepth, 1, kLanes}, kDepth, of_a, 0);
    pack<true>({reinterpret_cast<const std::byte*>(b), 1, kLanes, kLanes}, kDepth, of_b, 0);
    alignas(kLine) float sums[kLanes][kLanes];
    multiply({of_a, of_b, 0, 0, sums[0], kLanes, kLanes, kLanes, kSteps, false});
    for (std::int64_t i = 0; i < kLanes; ++i)
      for (std::int64_t j = 0; j < kLanes; ++j) {
        const float expected = amx::product(
                                   kDepth, [&](std::int64_t k) { return widen<float>(a[i][k]); },
                                   [&](std::int64_t k) { return widen<float>(b[k][j]); }) +
                               0.0F;
        const float sum = sums[i][j] + 0.0F;
        const bool same =
            __builtin_bit_cast(std::uint32_t, sum) == __builtin_bit_cast(std::uint32_t, expected);
        if (!same && (sum == sum || expected == expected)) return false;
      }
  }
  return true;
}

constexpr TileKernels kTileKernels = {pack<false>, pack<true>, multiply, works};

}  // namespace

const TileKernels* tile_kernels() { return &kTileKernels; }

#endif

}  // namespace isobit::matmul::ISOBIT_ISA
