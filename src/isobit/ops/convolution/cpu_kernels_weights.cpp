// SPDX-License-Identifier: Apache-2.0
// Weights as panels of what tiles of sums read. Compiled once for each instruction set.
#include <algorithm>
#include <cstdint>

#include "isobit/ops/convolution/cpu_kernels.h"
#include "isobit/ops/convolution/cpu_shape.h"
#include "isobit/simd/lanes.h"

namespace isobit::convolution::ISOBIT_ISA {
namespace {

template <class T>
bool pack_weights(const WeightLines& lines) {
  using S = VectorsOf<T>;
  using Real = typename S::Real;
  using V = typename S::V;
  constexpr int kGroups = (Shape::kRows + S::kWidth - 1) / S::kWidth;
  V off[kGroups];  // 0 times each weight: not 0 where one is not finite
#pragma GCC unroll 4
  for (int g = 0; g < kGroups; ++g) off[g] = S::zero();
  // Taps of all channels follow each other, or each channel's.
  const bool together = lines.in == lines.taps;
  const std::int64_t count = together ? lines.ins * lines.taps : lines.taps;
  for (std::int64_t begin = 0; begin < (together ? 1 : lines.ins); ++begin) {
    std::int64_t in = begin, tap = 0;
    const auto* const from = reinterpret_cast<const T*>(lines.from) + begin * lines.in;
    simd::across<S, kGroups>(from, lines.row, lines.rows, count,
                             [&](std::int64_t, const auto& weights) ISOBIT_INLINE_LAMBDA {
                               Real* const to =
                                   static_cast<Real*>(lines.to[tap]) + in * Shape::kRows;
#pragma GCC unroll 4
                               for (int g = 0; g < kGroups; ++g) {
                                 const int left = Shape::kRows - g * S::kWidth;
                                 off[g] = S::fma(weights[g], S::zero(), off[g]);
                                 // What is put beyond the rows is overwritten by the next
                                 // channel's.
                                 if (left >= S::kWidth || in + 1 < lines.ins)
                                   put<S>(to + g * S::kWidth, weights[g]);
                                 else
                                   put<S>(to + g * S::kWidth, weights[g], S::first(left));
                               }
                               if (++tap == lines.taps) {
                                 tap = 0;
                                 ++in;
                               }
                             });
  }
  alignas(64) Real results[kGroups * S::kWidth];
#pragma GCC unroll 4
  for (int g = 0; g < kGroups; ++g) put<S>(results + g * S::kWidth, off[g]);
  return std::all_of(results, results + kGroups * S::kWidth, [](Real sum) { return sum == 0; });
}

}  // namespace

PackWeightsKernel pack_weights_kernel(DType element) {
  switch (element) {
    case DType::f16:  return pack_weights<f16>;
    case DType::bf16: return pack_weights<bf16>;
    case DType::f64:  return pack_weights<double>;
    default:          return pack_weights<float>;
  }
}

}  // namespace isobit::convolution::ISOBIT_ISA
