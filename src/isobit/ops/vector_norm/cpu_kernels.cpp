// SPDX-License-Identifier: Apache-2.0
// Sums over elements in vectors, compiled once for each instruction set.
#include "isobit/ops/vector_norm/cpu_kernels.h"

#include <type_traits>

#include "isobit/core/order.h"
#include "isobit/norms/cpu_row.h"
#include "isobit/ops/vector_norm/formula.h"
#include "isobit/simd/prefetch.h"
#include "isobit/simd/row_loops.h"
#include "isobit/simd/vec.h"

namespace isobit::vector_norm::ISOBIT_ISA {
namespace {

// How far ahead memory is fetched: several blocks, and yet not much more than a page.
constexpr std::int64_t kAhead = 4 * order::kBlock;

template <class S>
ISOBIT_INLINE typename S::V magnitude_of(typename S::V x) {
  constexpr auto kSign = typename std::conditional_t < sizeof(typename S::Real) == 8, std::uint64_t,
                 std::uint32_t > (1) << (sizeof(typename S::Real) * 8 - 1);
  return S::real(S::bits_and(S::bits(x), S::all_bits(kSign - 1)));
}

// The magnitudes of a vector, or of a part of one; what comes later is fetched.
template <class S, bool kFetches, class T>
ISOBIT_INLINE typename S::V magnitudes(const T* elements, auto... part) {
  if constexpr (kFetches && sizeof...(part) == 0) simd::fetch_to_second_cache(elements + kAhead);
  return magnitude_of<S>(S::load(elements, part...));
}

template <class S, bool kFetches, class T>
[[gnu::noinline]] typename S::Real sum_of_magnitudes(const T* elements, std::int64_t count) {
  return simd::row_sum<S>(count, [=](std::int64_t i, auto... part) ISOBIT_INLINE_LAMBDA {
    return magnitudes<S, kFetches>(elements + i, part...);
  });
}

// NaN if there is one: comparisons pass over it, sums do not.
template <class S, bool kFetches, class T>
[[gnu::noinline]] typename S::Real largest_magnitude(const T* elements, std::int64_t count) {
  using Real = typename S::Real;
  constexpr int kChains = 4;  // which do not wait for each other
  typename S::V most[kChains], sums[kChains];
  for (int j = 0; j < kChains; ++j) most[j] = sums[j] = S::zero();
  const auto add = [&](int j, typename S::V size) ISOBIT_INLINE_LAMBDA {
    most[j] = S::max(size, most[j]);
    sums[j] = S::add(sums[j], size);
  };
  std::int64_t i = 0;
  for (; i + kChains * S::kWidth <= count; i += kChains * S::kWidth)
#pragma GCC unroll 4
    for (int j = 0; j < kChains; ++j) add(j, magnitudes<S, kFetches>(elements + i + j * S::kWidth));
  simd::for_each_vector<S>(count - i, [&](std::int64_t at, auto... part) ISOBIT_INLINE_LAMBDA {
    add(0, magnitudes<S, false>(elements + i + at, part...));
  });
  for (int j = 1; j < kChains; ++j) {
    most[0] = S::max(most[j], most[0]);
    sums[0] = S::add(sums[0], sums[j]);
  }
  Real mosts[S::kWidth], each[S::kWidth], result = 0;
  S::template store<simd::Stores::cached>(mosts, most[0]);
  S::template store<simd::Stores::cached>(each, sums[0]);
  for (const Real sum : each)
    if (sum != sum) return sum;
  for (const Real largest : mosts) result = larger(result, largest);
  return result;
}

template <class T, bool kFetches>
double measure(const void* x, std::int64_t count, Order order, int exponent) {
  using S = simd::VectorsOf<T>;
  using Real = typename S::Real;
  const auto* const elements = static_cast<const T*>(x);
  const norms::Row<S, T, kFetches> row(elements, count, elements + kAhead);
  switch (order) {
    case Order::l2: {
      if (exponent == 0) return row.squares();
      const auto factors = Factors<Real>::of(exponent);
      return row.moments([&](Real value) { return factors.times(value); }).squares;
    }
    case Order::l1: return sum_of_magnitudes<S, kFetches>(elements, count);
    default:        return largest_magnitude<S, kFetches>(elements, count);
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
