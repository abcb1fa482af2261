// SPDX-License-Identifier: Apache-2.0
// What the canonical order costs: the sums of order v1 beside the same sums in two other orders, in
// one run.
#include <benchmark/benchmark.h>

#include <vector>

#include "isobit/simd/row_sums.h"

namespace isobit {
namespace {

using S = simd::F32;
using V = S::V;

simd::Terms<S> deviation(const float* x, V centre) {
  const V d = S::sub(S::load(x), centre);
  return {d, d};
}

// Order v1: blocks of 512, rows folded by halves.
simd::Sums<S> order_v1(const float* x, std::int64_t count, V centre) {
  return simd::row_sum_and_dot<S>(
      count, [&](std::int64_t i, auto...) { return deviation(x + i, centre); });
}

// The same blocks and pairs, a block's rows added one after the other.
simd::Sums<S> sequential_rows(const float* x, std::int64_t count, V centre) {
  constexpr int kVectors = order::kLanes / S::kWidth;
  order::PairTree<float> sums, dots;
  for (std::int64_t start = 0; start < count; start += order::kBlock) {
    V sum[kVectors], dot[kVectors];
    for (int j = 0; j < kVectors; ++j) sum[j] = dot[j] = S::zero();
    for (int row = 0; row < order::kBlock; row += order::kLanes)
#pragma GCC unroll 8
      for (int j = 0; j < kVectors; ++j) {
        const simd::Terms<S> d = deviation(x + start + row + j * S::kWidth, centre);
        sum[j] = S::add(sum[j], d.a);
        dot[j] = S::fma(d.a, d.b, dot[j]);
      }
    sums.push(simd::detail::fold_lanes<S, kVectors>(sum));
    dots.push(simd::detail::fold_lanes<S, kVectors>(dot));
  }
  return {sums.total(), dots.total()};
}

// Whatever is fastest: eight accumulators over the whole row.
simd::Sums<S> free_order(const float* x, std::int64_t count, V centre) {
  V sum[8], dot[8];
  for (int j = 0; j < 8; ++j) sum[j] = dot[j] = S::zero();
  for (std::int64_t i = 0; i < count; i += 8 * S::kWidth)
#pragma GCC unroll 8
    for (int j = 0; j < 8; ++j) {
      const simd::Terms<S> d = deviation(x + i + j * S::kWidth, centre);
      sum[j] = S::add(sum[j], d.a);
      dot[j] = S::fma(d.a, d.b, dot[j]);
    }
  return {simd::detail::fold_lanes<S, 8>(sum), simd::detail::fold_lanes<S, 8>(dot)};
}

template <auto kSums>
void rows(benchmark::State& state) {
  const std::int64_t cols = state.range(0), count = state.range(1) / cols / 4;
  std::vector<float> x(count * cols + 16);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i % 1021) / 1021;
  float* aligned = x.data() + (64 - reinterpret_cast<std::uintptr_t>(x.data()) % 64) % 64 / 4;
  for (auto _ : state)
    for (std::int64_t row = 0; row < count; ++row)
      benchmark::DoNotOptimize(kSums(aligned + row * cols, cols, S::all(0.5f)));
  state.SetBytesProcessed(state.iterations() * count * cols * 4);
}

void shapes(benchmark::internal::Benchmark* benchmark) {
  for (std::int64_t bytes : {256 << 10, 64 << 20})  // in the second cache, and beyond the last
    for (std::int64_t cols : {1024, 4096, 65536}) benchmark->Args({cols, bytes});
}

BENCHMARK(rows<order_v1>)->Apply(shapes)->Name("order_v1");
BENCHMARK(rows<sequential_rows>)->Apply(shapes)->Name("sequential_rows");
BENCHMARK(rows<free_order>)->Apply(shapes)->Name("free_order");

}  // namespace
}  // namespace isobit
