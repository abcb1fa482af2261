// SPDX-License-Identifier: Apache-2.0
// Rows of gradients: of what an activation was applied to, in another type, and added up.
#include "isobit/ops/matmul/cpu_kernels.h"

#include <type_traits>

#include "isobit/ops/matmul/cpu_lanes.h"
#include "isobit/ops/matmul/formula.h"

namespace isobit::matmul::ISOBIT_ISA {
namespace {

// Stored as Ys, and read again where that rounds.
template <class S, class Y, Activation kActivation>
void slopes(const std::byte* grad_bytes, const std::byte* pre_bytes, void* to, std::int64_t count) {
  using Real = typename S::Real;
  const auto* grad = reinterpret_cast<const Y*>(grad_bytes);
  const auto* pre = reinterpret_cast<const Y*>(pre_bytes);
  for_each_vector<S>(count, [&](std::int64_t i, auto... part) ISOBIT_INLINE_LAMBDA {
    typename S::V s = S::load(grad + i, part...);
    if constexpr (kActivation != Activation::none) {
      s = slope<S>(kActivation, s, S::load(pre + i, part...));
      if constexpr (!std::is_same_v<Y, Real>) {
        alignas(64) Y rounded[S::kWidth];
        S::store(rounded, s);
        s = S::load(rounded);
      }
    }
    S::store(static_cast<Real*>(to) + i, s, part...);
  });
}

template <class S, class T>
void narrow_all(const void* from, void* to, std::int64_t count) {
  for_each_vector<S>(count, [&](std::int64_t i, auto... part) ISOBIT_INLINE_LAMBDA {
    S::store(static_cast<T*>(to) + i,
             S::load(static_cast<const typename S::Real*>(from) + i, part...), part...);
  });
}

template <class S, class T>
void sum_rows(const std::byte* from, std::int64_t pitch, std::int64_t rows, void* to,
              std::int64_t count) {
  const auto* first = reinterpret_cast<const T*>(from);
  for_each_vector<S>(count, [&](std::int64_t i, auto... part) ISOBIT_INLINE_LAMBDA {
    typename S::V sum = S::zero();
    for (std::int64_t row = 0; row < rows; ++row)
      sum = S::add(sum, S::load(first + row * pitch + i, part...));
    S::template store<simd::Stores::cached, simd::Nan::absent>(
        static_cast<typename S::Real*>(to) + i, sum, part...);
  });
}

template <class S, class Y>
SlopeKernel slopes_of(Activation activation) {
  switch (activation) {
    case Activation::relu:      return slopes<S, Y, Activation::relu>;
    case Activation::gelu:      return slopes<S, Y, Activation::gelu>;
    case Activation::gelu_tanh: return slopes<S, Y, Activation::gelu_tanh>;
    case Activation::silu:      return slopes<S, Y, Activation::silu>;
    default:                    return slopes<S, Y, Activation::none>;
  }
}

}  // namespace

SlopeKernel slope_kernel(Activation activation, DType grad) {
  switch (grad) {
    case DType::f16:  return slopes_of<simd::F32, f16>(activation);
    case DType::bf16: return slopes_of<simd::F32, bf16>(activation);
    case DType::f64:  return slopes_of<simd::F64, double>(activation);
    default:          return slopes_of<simd::F32, float>(activation);
  }
}

NarrowKernel narrow_kernel(DType to) {
  switch (to) {
    case DType::f16:  return narrow_all<simd::F32, f16>;
    case DType::bf16: return narrow_all<simd::F32, bf16>;
    case DType::f64:  return narrow_all<simd::F64, double>;
    default:          return narrow_all<simd::F32, float>;
  }
}

SumRowsKernel sum_rows_kernel(DType dtype) {
  switch (dtype) {
    case DType::f16:  return sum_rows<simd::F32, f16>;
    case DType::bf16: return sum_rows<simd::F32, bf16>;
    case DType::f64:  return sum_rows<simd::F64, double>;
    default:          return sum_rows<simd::F32, float>;
  }
}

}  // namespace isobit::matmul::ISOBIT_ISA
