// SPDX-License-Identifier: Apache-2.0
// The vector loops of the simd variants, compiled once for each instruction set.
#include "isobit/ops/pointwise_loss/cpu_kernels.h"

#include "isobit/ops/pointwise_loss/formula.h"
#include "isobit/simd/lines.h"

namespace isobit::pointwise_loss::ISOBIT_ISA {
namespace {

template <class S, class T, class... Part>
ISOBIT_INLINE typename S::V loaded(const std::byte* from, std::int64_t i, Part... part) {
  return from == nullptr ? all<S>(1) : S::load(reinterpret_cast<const T*>(from) + i, part...);
}

// Elements whose results wait until all are known to be finite.
constexpr std::int64_t kBlock = 512;

template <class T>
void run(Kind kind, double beta, const Arrays& arrays, std::int64_t count) {
  using S = simd::VectorsOf<T>;
  using Real = typename S::Real;
  const Rule<Real> rule = {kind, static_cast<Real>(beta), arrays.weight != nullptr,
                           arrays.pos_weight != nullptr};
  auto* const losses = reinterpret_cast<Real*>(arrays.loss);
  auto* const grad_x = reinterpret_cast<T*>(arrays.grad_x);
  const auto element = [&](std::int64_t i, auto... part) ISOBIT_INLINE_LAMBDA {
    return Element<S>{loaded<S, T>(arrays.x, i, part...), loaded<S, T>(arrays.target, i, part...),
                      loaded<S, T>(arrays.weight, i, part...),
                      loaded<S, T>(arrays.pos_weight, i, part...)};
  };
  // A gradient may stand where x or target does, of which all must be known to be right.
  alignas(64) Real waiting[kBlock];
  for (std::int64_t first = 0; first < count; first += kBlock) {
    const std::int64_t end = count - first < kBlock ? count : first + kBlock;
    Real* const results = grad_x == nullptr ? losses + first : waiting;
    auto zeros = S::zero();  // or NaN, where a result is not finite
    simd::for_each_vector<S, T>(first, end, [&](std::int64_t i, auto... part) ISOBIT_INLINE_LAMBDA {
      const auto plain = grad_x == nullptr ? plain_loss<S>(rule, element(i, part...))
                                           : plain_gradient<S>(rule, element(i, part...),
                                                               S::load(losses + i, part...));
      zeros = S::add(zeros, S::mul(plain, S::zero()));
      S::template store<simd::Stores::cached, simd::Nan::absent>(results + (i - first), plain,
                                                                 part...);
    });
    if (!(S::fold(zeros) == 0)) [[unlikely]]
      simd::for_each_vector<S, T>(
          first, end, [&](std::int64_t i, auto... part) ISOBIT_INLINE_LAMBDA {
            S::store(results + (i - first),
                     grad_x == nullptr
                         ? loss<S>(rule, element(i, part...))
                         : gradient<S>(rule, element(i, part...), S::load(losses + i, part...)),
                     part...);
          });
    if (grad_x != nullptr)
      simd::for_each_vector<S, T>(
          first, end, [&](std::int64_t i, auto... part) ISOBIT_INLINE_LAMBDA {
            S::store(grad_x + i, S::load(waiting + (i - first), part...), part...);
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

}  // namespace isobit::pointwise_loss::ISOBIT_ISA
