// SPDX-License-Identifier: Apache-2.0
// Sums over elements in vectors, compiled once for each instruction set.
#include "isobit/ops/vector_norm/cpu_kernels.h"

#include <type_traits>

#include "isobit/core/order.h"
#include "isobit/norms/cpu_row.h"
#include "isobit/ops/vector_norm/formula.h"
#include "isobit/simd/vec.h"

namespace isobit::vector_norm::ISOBIT_ISA {
namespace {

// How far ahead memory is fetched: several blocks, and yet not much more than a page.
constexpr std::int64_t kAhead = 4 * order::kBlock;

// Out of line: with and without fetching it is the same.
template <class S, class T>
[[gnu::noinline]] typename S::Real sum_of_magnitudes(const T* elements, std::int64_t count) {
  constexpr auto kSign = typename std::conditional_t < sizeof(T) == 8, std::uint64_t,
                 std::uint32_t > (1) << (sizeof(typename S::Real) * 8 - 1);
  const auto magnitudes = S::all_bits(kSign - 1);
  return simd::row_sum<S>(count, [=](std::int64_t i, auto... part) ISOBIT_INLINE_LAMBDA {
    return S::real(S::bits_and(S::bits(S::load(elements + i, part...)), magnitudes));
  });
}

template <class T, bool kFetches>
double measure(const void* x, std::int64_t count, Order order, int exponent) {
  using S = std::conditional_t<sizeof(T) == 8, simd::F64, simd::F32>;
  using Real = typename S::Real;
  const auto* const elements = static_cast<const T*>(x);
  const norms::Row<S, T, kFetches> row(elements, count, elements + kAhead);
  switch (order) {
    case Order::l2: {
      if (exponent == 0) return row.squares();
      const auto factors = Factors<Real>::of(exponent);
      return row.moments([&](Real value) { return factors.times(value); }).squares;
    }
    case Order::l1: return sum_of_magnitudes<S>(elements, count);
    default:        return largest_of(row.extremes());
  }
}

template <class T>
Kernel kernel_of(bool fetches) {
  return fetches ? measure<T, true> : measure<T, false>;
}

}  // namespace

Kernel kernel(DType dtype, bool fetches) {
  switch (dtype) {
    case DType::f16:  return kernel_of<f16>(fetches);
    case DType::bf16: return kernel_of<bf16>(fetches);
    case DType::f64:  return kernel_of<double>(fetches);
    default:          return kernel_of<float>(fetches);
  }
}

}  // namespace isobit::vector_norm::ISOBIT_ISA
