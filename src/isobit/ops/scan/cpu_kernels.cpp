// SPDX-License-Identifier: Apache-2.0
// The kernels of the variant `blocks`, compiled once for each instruction set.
#include "isobit/ops/scan/cpu_kernels.h"

#include "isobit/ops/scan/cpu_floats.h"

namespace isobit::scan::ISOBIT_ISA {
namespace {

template <class Kernels>
Kernel of(const Types* types = nullptr) {
  return {types,          Kernels::start, Kernels::copy,    Kernels::push,
          Kernels::total, Kernels::scan,  Kernels::columns, Kernels::state_bytes};
}

template <class S, class X, class Y>
constexpr Types kTypes = {kRead<S, X>, kWritten<S, Y>};

template <class X, class Y>
Kernel floats(Kind kind) {
  using S = simd::VectorsOf<Y>;
  using Real = typename S::Real;
  const Types* const types = &kTypes<S, X, Y>;
  switch (kind) {
    case Kind::prod:      return of<Floats<Product<S>>>(types);
    case Kind::max:       return of<Exact<Extreme<Real, true>, X, Y>>();
    case Kind::min:       return of<Exact<Extreme<Real, false>, X, Y>>();
    case Kind::logsumexp: return of<Floats<LogSumExp<S>>>(types);
    default:              return of<Floats<Sum<S>>>(types);
  }
}

template <class X, class Y>
Kernel integers(Kind kind) {
  switch (kind) {
    case Kind::prod: return of<Exact<Wrapping<Y, true>, X, Y>>();
    case Kind::max:  return of<Exact<Extreme<Y, true>, X, Y>>();
    case Kind::min:  return of<Exact<Extreme<Y, false>, X, Y>>();
    default:         return of<Exact<Wrapping<Y, false>, X, Y>>();
  }
}

}  // namespace

Kernel kernel(Kind kind, DType x, DType y) {
  return visit_types(x, y, [kind]<class X, class Y>(Type<X>, Type<Y>) ISOBIT_INLINE_LAMBDA {
    if constexpr (std::is_integral_v<X>)
      return integers<X, Y>(kind);
    else
      return floats<X, Y>(kind);
  });
}

}  // namespace isobit::scan::ISOBIT_ISA
