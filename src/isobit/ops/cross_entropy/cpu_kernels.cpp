// SPDX-License-Identifier: Apache-2.0
// The vector loops of a row, compiled once for each instruction set.
#include "isobit/ops/cross_entropy/cpu_kernels.h"

#include <cstdint>
#include <type_traits>

#include "isobit/ops/cross_entropy/formula.h"
#include "isobit/simd/row_loops.h"
#include "isobit/simd/row_sums.h"
#include "isobit/simd/vec_scalar.h"

namespace isobit::cross_entropy::ISOBIT_ISA {
namespace {

template <class T>
using VectorsOf = std::conditional_t<sizeof(T) == 8, simd::F64, simd::F32>;
template <class S>
using ScalarOf =
    std::conditional_t<sizeof(typename S::Real) == 8, simd::scalar::F64, simd::scalar::F32>;

template <class T, bool kSmooth>
RowSums forward_row(const ForwardRow& row) {
  using S = VectorsOf<T>;
  using Real = typename S::Real;
  using V = typename S::V;
  const T* const x = reinterpret_cast<const T*>(row.x);
  const Real number = simd::largest_of<S>(x, row.cols, 1) + Real(0);  // never -0
  const V largest = S::all(number);
  alignas(64) Real block[order::kBlock];
  const Real sum = simd::row_sum_of_stored<S>(
      row.cols, [&](std::int64_t begin, std::int64_t count) ISOBIT_INLINE_LAMBDA {
        simd::for_each_vector<S>(count, [&](std::int64_t i, auto... part) ISOBIT_INLINE_LAMBDA {
          const V weight = weight_of<S>(S::load(x + begin + i, part...), largest);
          S::template store<simd::Stores::cached, simd::Nan::absent>(block + i, weight, part...);
        });
        return block;
      });
  Real differences = 0;
  if constexpr (kSmooth) {
    const auto difference = [&](std::int64_t i, auto... part) ISOBIT_INLINE_LAMBDA {
      return S::only(S::sub(S::load(x + i, part...), largest), part...);
    };
    if (const Real* const weight = reinterpret_cast<const Real*>(row.weight))
      differences =
          simd::row_dot<S>(row.cols, [&](std::int64_t i, auto... part) ISOBIT_INLINE_LAMBDA {
            return simd::Terms<S>{S::load(weight + i, part...), difference(i, part...)};
          });
    else
      differences = simd::row_sum<S>(row.cols, difference);
  }
  return {number, sum, differences};
}

template <class T, bool kSmooth>
void backward_row(const BackwardRow& row) {
  using S = VectorsOf<T>;
  using Real = typename S::Real;
  using V = typename S::V;
  const T* const x = reinterpret_cast<const T*>(row.x);
  T* const grad_x = reinterpret_cast<T*>(row.grad_x);
  const Real* const weight = reinterpret_cast<const Real*>(row.weight);
  const auto real = [](double value) { return static_cast<Real>(value); };
  // Before the row is overwritten, which may be that of x.
  const Real of_target = gradient<ScalarOf<S>, kSmooth>(
                             real(row.by_weight), real(row.by_class), widen<Real>(x[row.target]),
                             real(row.largest), weight == nullptr ? Real(1) : weight[row.target]) -
                         real(row.at_target);
  const V by_weight = S::all(real(row.by_weight)), by_class = S::all(real(row.by_class));
  const V largest = S::all(real(row.largest)), one = S::all(1);
  // In the vector: a store of its own into a line that was stored past the caches would wait.
  const auto with_target = [&](std::int64_t i, V value) ISOBIT_INLINE_LAMBDA {
    const auto lane = static_cast<std::uint64_t>(row.target - i);
    if (lane >= std::uint64_t{S::kWidth}) [[likely]]
      return value;
    Real lanes[S::kWidth];
    S::template store<simd::Stores::cached>(lanes, value);
    lanes[lane] = of_target;
    return S::load(lanes);
  };
  const auto store = [&](const auto& weight_at) ISOBIT_INLINE_LAMBDA {
    simd::store_row<S>(
        grad_x, row.cols, row.streaming, [&](std::int64_t i, auto... part) ISOBIT_INLINE_LAMBDA {
          return with_target(i, gradient<S, kSmooth>(by_weight, by_class, S::load(x + i, part...),
                                                     largest, weight_at(i, part...)));
        });
  };
  if (kSmooth && weight != nullptr)
    store([&](std::int64_t i, auto... part)
              ISOBIT_INLINE_LAMBDA { return S::load(weight + i, part...); });
  else
    store([&](std::int64_t, auto...) ISOBIT_INLINE_LAMBDA { return one; });
}

// kernel(T{}) with the type of x.
template <class Kernel>
ISOBIT_INLINE_HOST auto with_type(DType x, const Kernel& kernel) {
  switch (x) {
    case DType::f16:  return kernel(f16{});
    case DType::bf16: return kernel(bf16{});
    case DType::f64:  return kernel(double{});
    default:          return kernel(float{});
  }
}

}  // namespace

ForwardKernel forward_kernel(DType x, bool smooth) {
  return with_type(x, [&]<class T>(T) -> ForwardKernel {
    return smooth ? forward_row<T, true> : forward_row<T, false>;
  });
}
BackwardKernel backward_kernel(DType x, bool smooth) {
  return with_type(x, [&]<class T>(T) -> BackwardKernel {
    return smooth ? backward_row<T, true> : backward_row<T, false>;
  });
}

}  // namespace isobit::cross_entropy::ISOBIT_ISA
