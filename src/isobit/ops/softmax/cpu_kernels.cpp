// SPDX-License-Identifier: Apache-2.0
// The vector loops of a row, compiled once for each instruction set.
#include "isobit/ops/softmax/cpu_kernels.h"

#include <cstdint>
#include <limits>
#include <type_traits>

#include "isobit/ops/softmax/formula.h"
#include "isobit/simd/row_loops.h"
#include "isobit/simd/row_sums.h"
#include "isobit/simd/vec_scalar.h"

namespace isobit::softmax::ISOBIT_ISA {
namespace {

template <class T>
using VectorsOf = std::conditional_t<sizeof(T) == 8, simd::F64, simd::F32>;
template <class S>
using ScalarOf =
    std::conditional_t<sizeof(typename S::Real) == 8, simd::scalar::F64, simd::scalar::F32>;

// x is in `weights` where it was staged, which then take its place.
template <bool kLog, bool kIsOne, class S, class T, class Y>
ISOBIT_INLINE void finish_scaled_row(const T* x, typename S::Real* weights, Y* y,
                                     const ForwardRow& row) {
  using Real = typename S::Real;
  using V = typename S::V;
  const auto scale = Scale<Real>::of(row.scale);
  const V largest = S::all(simd::largest_of<S>(x, row.cols, scale.sign));
  const auto exponent = [&](std::int64_t i, auto... part) ISOBIT_INLINE_LAMBDA {
    return exponent_of<S, kIsOne>(scale, S::load(x + i, part...), largest);
  };
  alignas(64) Real block[kLog ? order::kBlock : 1];
  const Real sum = simd::row_sum_of_stored<S>(
      row.cols, [&](std::int64_t begin, std::int64_t count) ISOBIT_INLINE_LAMBDA {
        Real* const to = kLog ? block : weights + begin;
        simd::for_each_vector<S>(count, [&](std::int64_t i, auto... part) ISOBIT_INLINE_LAMBDA {
          const V weight = weight_of<S>(exponent(begin + i, part...));
          S::template store<simd::Stores::cached, simd::Nan::absent>(to + i, weight, part...);
        });
        return to;
      });
  if constexpr (kLog) {
    const V log_of_sum = S::all(functions::log<ScalarOf<S>>(sum));
    simd::store_row<S>(y, row.cols, row.streaming,
                       [&](std::int64_t i, auto... part) ISOBIT_INLINE_LAMBDA {
                         return log_of<S>(exponent(i, part...), log_of_sum);
                       });
  } else {
    const V inverse = S::all(Real(1) / sum);
    simd::store_row<S>(y, row.cols, row.streaming,
                       [&](std::int64_t i, auto... part) ISOBIT_INLINE_LAMBDA {
                         return S::mul(S::load(weights + i, part...), inverse);
                       });
  }
}

template <bool kLog, class S, class T, class Y>
ISOBIT_INLINE void finish_row(const T* x, typename S::Real* weights, Y* y, const ForwardRow& row) {
  if (row.scale == 1)
    finish_scaled_row<kLog, true, S>(x, weights, y, row);
  else
    finish_scaled_row<kLog, false, S>(x, weights, y, row);
}

template <class T, class Y, bool kLog>
void forward_row(const ForwardRow& row) {
  using S = VectorsOf<T>;
  using Real = typename S::Real;
  constexpr Real kInfinity = std::numeric_limits<Real>::infinity();
  const T* const x = reinterpret_cast<const T*>(row.x);
  Y* const y = reinterpret_cast<Y*>(row.y);
  Real* const scratch = reinterpret_cast<Real*>(row.scratch);
  if (row.mask == nullptr) return finish_row<kLog, S>(x, scratch, y, row);
  bool any = false;
  const Real absent = row.scale < 0 ? kInfinity : -kInfinity;
  for (std::int64_t i = 0; i < row.cols; ++i) {
    const bool there = row.mask[i] != std::byte{0};
    any = any || there;
    scratch[i] = there ? widen<Real>(x[i]) : absent;
  }
  if (any) return finish_row<kLog, S>(scratch, scratch, y, row);
  for (std::int64_t i = 0; i < row.cols; ++i) y[i] = narrow<Y>(kLog ? -kInfinity : Real(0));
}

template <bool kLog, class S, class Y, class T>
ISOBIT_INLINE void finish_row(const Y* y, const Y* grad_y, T* grad_x, const BackwardRow& row) {
  using V = typename S::V;
  const auto sum_of = [&] {
    if constexpr (kLog)
      return simd::row_sum<S>(row.cols, [&](std::int64_t i, auto... part) ISOBIT_INLINE_LAMBDA {
        return S::load(grad_y + i, part...);
      });
    else
      return simd::row_dot<S>(row.cols, [&](std::int64_t i, auto... part) ISOBIT_INLINE_LAMBDA {
        return simd::Terms<S>{S::load(grad_y + i, part...), S::load(y + i, part...)};
      });
  };
  const V sum = S::all(sum_of()), scale = S::all(static_cast<typename S::Real>(row.scale));
  simd::store_row<S>(
      grad_x, row.cols, row.streaming, [&](std::int64_t i, auto... part) ISOBIT_INLINE_LAMBDA {
        return gradient<S, kLog>(scale, S::load(y + i, part...), S::load(grad_y + i, part...), sum);
      });
}

template <class T, class Y, bool kLog>
void backward_row(const BackwardRow& row) {
  using S = VectorsOf<T>;
  using Real = typename S::Real;
  const Y* const y = reinterpret_cast<const Y*>(row.y);
  const Y* const grad_y = reinterpret_cast<const Y*>(row.grad_y);
  T* const grad_x = reinterpret_cast<T*>(row.grad_x);
  if (row.mask == nullptr) return finish_row<kLog, S>(y, grad_y, grad_x, row);
  Real* const own_y = reinterpret_cast<Real*>(row.scratch);
  Real* const own = own_y + row.cols;  // gradients of y, then of x
  const auto there = [&](std::int64_t i) { return row.mask[i] != std::byte{0}; };
  for (std::int64_t i = 0; i < row.cols; ++i) {
    own_y[i] = there(i) ? widen<Real>(y[i])
               : kLog   ? -std::numeric_limits<Real>::infinity()
                        : Real(0);
    own[i] = there(i) ? widen<Real>(grad_y[i]) : Real(0);
  }
  BackwardRow staged = row;
  staged.streaming = false;
  finish_row<kLog, S>(own_y, own, own, staged);
  for (std::int64_t i = 0; i < row.cols; ++i) grad_x[i] = narrow<T>(there(i) ? own[i] : Real(0));
}

// kernel(T{}, Y{}) with the types of x and y.
template <class Kernel>
ISOBIT_INLINE_HOST auto with_types(DType x, DType y, const Kernel& kernel) {
  const bool wide = y == DType::f32;
  switch (x) {
    case DType::f16:  return wide ? kernel(f16{}, float{}) : kernel(f16{}, f16{});
    case DType::bf16: return wide ? kernel(bf16{}, float{}) : kernel(bf16{}, bf16{});
    case DType::f64:  return kernel(double{}, double{});
    default:          return kernel(float{}, float{});
  }
}

}  // namespace

ForwardKernel forward_kernel(DType x, DType y, bool log) {
  return with_types(x, y, [&]<class T, class Y>(T, Y) -> ForwardKernel {
    return log ? forward_row<T, Y, true> : forward_row<T, Y, false>;
  });
}
BackwardKernel backward_kernel(DType x, DType y, bool log) {
  return with_types(x, y, [&]<class T, class Y>(T, Y) -> BackwardKernel {
    return log ? backward_row<T, Y, true> : backward_row<T, Y, false>;
  });
}

}  // namespace isobit::softmax::ISOBIT_ISA
