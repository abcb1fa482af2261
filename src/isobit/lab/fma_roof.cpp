// SPDX-License-Identifier: Apache-2.0
// Independent chains of fma, long enough to hide the latency of each.
#include "isobit/lab/fma_roof.h"

#include <cmath>

#include "isobit/simd/parallel_for.h"

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

namespace isobit::lab {
namespace {

constexpr int kChains = 12;  // two pipes, four or five cycles each, and some to spare
constexpr int kTurns = 100'000;

// Runs the chains. What they compute must not be known in advance, nor be thrown away. A macro,
// since the instruction set belongs to the function and is not inherited by what it calls.
#define ISOBIT_CHAINS(VECTOR, SET, FMA, FIRST)                   \
  VECTOR chains[kChains];                                        \
  const VECTOR factor = SET(source), term = SET(source / 4);     \
  for (auto& chain : chains) chain = SET(source);                \
  for (int turn = 0; turn < kTurns; ++turn)                      \
    for (auto& chain : chains) chain = FMA(chain, factor, term); \
  double sum = 0;                                                \
  for (auto& chain : chains) sum += FIRST(chain);                \
  return sum;

double one(float value) { return value; }
float fused(float a, float b, float c) { return std::fma(a, b, c); }
double fused(double a, double b, double c) { return std::fma(a, b, c); }
double one(double value) { return value; }

double scalar_f32(double source) { ISOBIT_CHAINS(float, static_cast<float>, fused, one) }
double scalar_f64(double source) { ISOBIT_CHAINS(double, static_cast<double>, fused, one) }

#if defined(__x86_64__)
__attribute__((target("avx2,fma"))) double avx2_f32(double source) {
  ISOBIT_CHAINS(__m256, _mm256_set1_ps, _mm256_fmadd_ps, _mm256_cvtss_f32)
}
__attribute__((target("avx2,fma"))) double avx2_f64(double source) {
  ISOBIT_CHAINS(__m256d, _mm256_set1_pd, _mm256_fmadd_pd, _mm256_cvtsd_f64)
}
__attribute__((target("avx512f"))) double avx512_f32(double source) {
  ISOBIT_CHAINS(__m512, _mm512_set1_ps, _mm512_fmadd_ps, _mm512_cvtss_f32)
}
__attribute__((target("avx512f"))) double avx512_f64(double source){
    ISOBIT_CHAINS(__m512d, _mm512_set1_pd, _mm512_fmadd_pd, _mm512_cvtsd_f64)}
#elif defined(__aarch64__)
float32x4_t fused(float32x4_t a, float32x4_t b, float32x4_t c) { return vfmaq_f32(c, a, b); }
float64x2_t fused(float64x2_t a, float64x2_t b, float64x2_t c) { return vfmaq_f64(c, a, b); }
double first(float32x4_t value) { return vgetq_lane_f32(value, 0); }
double first(float64x2_t value) { return vgetq_lane_f64(value, 0); }
double neon_f32(double source) { ISOBIT_CHAINS(float32x4_t, vdupq_n_f32, fused, first) }
double neon_f64(double source){ISOBIT_CHAINS(float64x2_t, vdupq_n_f64, fused, first)}
#endif

FmaChains::Loop loop_of(Isa isa, bool wide) {
  using Loop = FmaChains::Loop;
  switch (isa) {
#if defined(__x86_64__)
    case Isa::avx2:   return wide ? Loop{avx2_f64, 4} : Loop{avx2_f32, 8};
    case Isa::avx512: return wide ? Loop{avx512_f64, 8} : Loop{avx512_f32, 16};
#elif defined(__aarch64__)
    case Isa::neon: return wide ? Loop{neon_f64, 2} : Loop{neon_f32, 4};
#endif
    default: return wide ? Loop{scalar_f64, 1} : Loop{scalar_f32, 1};
  }
}

}  // namespace

FmaChains::FmaChains(Isa isa, DType dtype, int threads)
    : loop_(loop_of(isa, dtype == DType::f64)), threads_(threads) {}

TimedCall FmaChains::timed_call() const {
  return {[loop = loop_, threads = threads_] {
    simd::threads()(threads, [&](std::int64_t) {
      volatile double source = 0.5;
      [[maybe_unused]] const volatile double sum = loop.run(source);
    });
  }};
}

double FmaChains::operations() const { return 2.0 * kChains * kTurns * loop_.lanes * threads_; }

}  // namespace isobit::lab
