// SPDX-License-Identifier: Apache-2.0
// The vector loops of the simd variant, compiled once for each instruction set.
#include "isobit/ops/dropout/cpu_kernels.h"

#include <algorithm>

#include "isobit/ops/dropout/formula.h"
#include "isobit/simd/lines.h"

namespace isobit::dropout::ISOBIT_ISA {
namespace {

constexpr int kColumns = 64;  // whose words are made before vectors take them

template <class T>
void run(double p, std::uint64_t seed, const Columns& columns) {
  using S = simd::VectorsOf<T>;
  using Real = typename S::Real;
  const auto mask = Mask<Real>::of(p, seed);
  const auto* x = reinterpret_cast<const T*>(columns.x);
  auto* y = reinterpret_cast<T*>(columns.y);
  for (std::int64_t at = 0; at < columns.count; at += kColumns) {
    alignas(64) Real factors[kColumns];  // 0 where something is dropped, else at least 1
    for (int group = 0; group < kColumns / 4; ++group) {
      const Words words = mask.words(columns.row, (columns.first + at) / 4 + group);
      for (int i = 0; i < 4; ++i)
        factors[4 * group + i] = mask.keeps(words[i]) ? mask.scale : Real(0);
    }
    const std::int64_t here = std::min<std::int64_t>(kColumns, columns.count - at);
    simd::for_each_vector<S, T>(0, here, [&](std::int64_t i, auto... part) ISOBIT_INLINE_LAMBDA {
      const auto factor = S::load(factors + i);
      const auto product = S::mul(S::load(x + at + i, part...), factor);
      S::store(y + at + i, S::choose(S::less(S::zero(), factor), product, S::zero()), part...);
    });
  }
}

}  // namespace

Kernel kernel(DType dtype) {
  switch (dtype) {
    case DType::f64:  return run<double>;
    case DType::f16:  return run<f16>;
    case DType::bf16: return run<bf16>;
    default:          return run<float>;
  }
}

}  // namespace isobit::dropout::ISOBIT_ISA
