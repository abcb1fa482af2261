// SPDX-License-Identifier: Apache-2.0
// The vector loops of the simd variants, compiled once for each instruction set.
#include "isobit/ops/pointwise_loss/cpu_kernels.h"

#include <type_traits>

#include "isobit/ops/pointwise_loss/formula.h"
#include "isobit/simd/lines.h"

namespace isobit::pointwise_loss::ISOBIT_ISA {
namespace {

template <class S, class T, class... Part>
ISOBIT_INLINE typename S::V loaded(const std::byte* from, std::int64_t i, Part... part) {
  return from == nullptr ? all<S>(1) : S::load(reinterpret_cast<const T*>(from) + i, part...);
}

template <class T>
void run(Kind kind, double beta, const Arrays& arrays, std::int64_t count) {
  using S = std::conditional_t<sizeof(T) == 8, simd::F64, simd::F32>;
  using Real = typename S::Real;
  const auto bend = static_cast<Real>(beta);
  auto* const losses = reinterpret_cast<Real*>(arrays.loss);
  auto* const grad_x = reinterpret_cast<T*>(arrays.grad_x);
  simd::for_each_vector<S, T>(0, count, [&](std::int64_t i, auto... part) ISOBIT_INLINE_LAMBDA {
    const Element<S> element{
        loaded<S, T>(arrays.x, i, part...), loaded<S, T>(arrays.target, i, part...),
        loaded<S, T>(arrays.weight, i, part...), loaded<S, T>(arrays.pos_weight, i, part...)};
    if (grad_x == nullptr)
      S::store(losses + i, loss<S>(kind, bend, element), part...);
    else
      S::store(grad_x + i, gradient<S>(kind, bend, element, S::load(losses + i, part...)), part...);
  });
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

}  // namespace isobit::pointwise_loss::ISOBIT_ISA
