// SPDX-License-Identifier: Apache-2.0
// The vector loops of the simd variant, compiled once for each instruction set.
#include "isobit/ops/random/cpu_kernels.h"

#include <algorithm>

#include "isobit/simd/roots.h"
#include "isobit/simd/vec.h"

namespace isobit::random::ISOBIT_ISA {
namespace {

constexpr int kGroups = 8;  // whose words are made before vectors take them
constexpr int kBlock = 4 * kGroups;

template <class T>
void run(const Constants& c, std::uint64_t first, std::byte* bytes, std::int64_t count) {
  using S = simd::WithRoots<simd::F64>;
  static_assert(kBlock % S::kWidth == 0);
  T* to = reinterpret_cast<T*>(bytes);
  const std::uint64_t place = c.offset + first;
  std::int64_t skip = static_cast<std::int64_t>(place % 4);  // of the first group
  std::uint64_t group = place / 4;
  while (count > 0) {
    alignas(64) double values[kBlock];
    for (int i = 0; i < kGroups; ++i, ++group) {
      const Words words = words_of(c.seed, group, 0);
      Words more{};
      if constexpr (sizeof(T) == 8) more = words_of(c.seed, group, 1);
      for (int j = 0; j < 4; ++j) values[4 * i + j] = draw_of<T>(c.distribution, words[j], more[j]);
    }
    for (int i = 0; i < kBlock; i += S::kWidth)
      S::store(values + i, number_of<S>(c, S::load(values + i)));
    const std::int64_t here = std::min(kBlock - skip, count);
    for (std::int64_t i = 0; i < here; ++i) to[i] = stored<T>(values[skip + i]);
    to += here;
    count -= here;
    skip = 0;
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

}  // namespace isobit::random::ISOBIT_ISA
