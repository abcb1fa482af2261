// SPDX-License-Identifier: Apache-2.0
// Independent chains of fma, long enough to hide the latency of each.
#include "isobit/lab/fma_peak.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <map>
#include <mutex>
#include <utility>

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

namespace isobit::lab {
namespace {

constexpr int kChains = 12;  // two pipes, four or five cycles each, and some to spare
constexpr int kTurns = 20'000;

// Runs the chains; returns how many fma it did. What they compute must not be known in advance, nor
// be thrown away. A macro, since the instruction set belongs to the function and is not inherited
// by what it calls.
volatile double sink, source = 0.5;

#define ISOBIT_CHAINS(VECTOR, SET, FMA, FIRST, LANES)            \
  VECTOR chains[kChains];                                        \
  const VECTOR factor = SET(source), term = SET(source / 4);     \
  for (auto& chain : chains) chain = SET(source);                \
  for (int turn = 0; turn < kTurns; ++turn)                      \
    for (auto& chain : chains) chain = FMA(chain, factor, term); \
  for (auto& chain : chains) sink = sink + FIRST(chain);         \
  return static_cast<double>(kChains) * kTurns * (LANES);

double one(float value) { return value; }
float fused(float a, float b, float c) { return std::fma(a, b, c); }
double fused(double a, double b, double c) { return std::fma(a, b, c); }
double one(double value) { return value; }

double scalar_f32() { ISOBIT_CHAINS(float, static_cast<float>, fused, one, 1) }
double scalar_f64() { ISOBIT_CHAINS(double, static_cast<double>, fused, one, 1) }

#if defined(__x86_64__)
__attribute__((target("avx2,fma"))) double avx2_f32() {
  ISOBIT_CHAINS(__m256, _mm256_set1_ps, _mm256_fmadd_ps, _mm256_cvtss_f32, 8)
}
__attribute__((target("avx2,fma"))) double avx2_f64() {
  ISOBIT_CHAINS(__m256d, _mm256_set1_pd, _mm256_fmadd_pd, _mm256_cvtsd_f64, 4)
}
__attribute__((target("avx512f"))) double avx512_f32() {
  ISOBIT_CHAINS(__m512, _mm512_set1_ps, _mm512_fmadd_ps, _mm512_cvtss_f32, 16)
}
__attribute__((target("avx512f"))) double avx512_f64(){
    ISOBIT_CHAINS(__m512d, _mm512_set1_pd, _mm512_fmadd_pd, _mm512_cvtsd_f64, 8)}
#elif defined(__aarch64__)
float32x4_t fused(float32x4_t a, float32x4_t b, float32x4_t c) { return vfmaq_f32(c, a, b); }
float64x2_t fused(float64x2_t a, float64x2_t b, float64x2_t c) { return vfmaq_f64(c, a, b); }
double first(float32x4_t value) { return vgetq_lane_f32(value, 0); }
double first(float64x2_t value) { return vgetq_lane_f64(value, 0); }
double neon_f32() { ISOBIT_CHAINS(float32x4_t, vdupq_n_f32, fused, first, 4) }
double neon_f64() { ISOBIT_CHAINS(float64x2_t, vdupq_n_f64, fused, first, 2) }
#endif

using Loop = double(*)();

Loop loop_of(Isa isa, bool wide) {
  switch (isa) {
#if defined(__x86_64__)
    case Isa::avx2:   return wide ? avx2_f64 : avx2_f32;
    case Isa::avx512: return wide ? avx512_f64 : avx512_f32;
#elif defined(__aarch64__)
    case Isa::neon: return wide ? neon_f64 : neon_f32;
#endif
    default: return wide ? scalar_f64 : scalar_f32;
  }
}

double measured(Loop loop) {
  using Clock = std::chrono::steady_clock;
  double best = 0;
  for (int round = 0; round < 20; ++round) {
    const auto start = Clock::now();
    const double fmas = loop();
    const std::chrono::duration<double> seconds = Clock::now() - start;
    best = std::max(best, 2 * fmas / std::max(seconds.count(), 1e-9));
  }
  return best;
}

}  // namespace

double fma_peak(Isa isa, DType dtype) {
  static std::mutex mutex;
  static std::map<std::pair<Isa, bool>, double> known;
  const std::lock_guard lock(mutex);
  const auto key = std::pair(isa, dtype == DType::f64);
  double& peak = known[key];
  if (peak == 0) peak = measured(loop_of(isa, key.second));
  return peak;
}

}  // namespace isobit::lab
