// SPDX-License-Identifier: Apache-2.0
// The vector loops of rows, compiled once for each instruction set.
#include "isobit/ops/softmax/cpu_kernels.h"

#include <cstdint>
#include <limits>

#include "isobit/ops/softmax/formula.h"
#include "isobit/simd/collected_rows.h"
#include "isobit/simd/prefetch.h"
#include "isobit/simd/row_loops.h"
#include "isobit/simd/row_sums.h"
#include "isobit/simd/vec_scalar.h"

namespace isobit::softmax::ISOBIT_ISA {
namespace {

using simd::ScalarOf;
using simd::VectorsOf;

// y of a row, in steps. kIsOne: the scale is 1.
template <bool kLog, bool kIsOne, class S, class T, class Y>
class Forward {
 public:
  using Real = typename S::Real;
  using V = typename S::V;

  ISOBIT_INLINE Forward(const ForwardProblem& problem, bool streaming)
      : cols_(problem.cols),
        next_(problem.mask.data == nullptr ? problem.x.stride : 0),
        scale_(Scale<Real>::of(problem.scale)),
        streaming_(streaming),
        results_(row_of<Y>(problem.y, 0), problem.y.stride, cols_, streaming) {}

  // Stores the weights of elements [begin, begin + count).
  ISOBIT_INLINE void put_weights(const T* x, V largest, std::int64_t begin, std::int64_t count,
                                 Real* to) const {
    simd::for_each_vector<S>(count, [&](std::int64_t i, auto... part) ISOBIT_INLINE_LAMBDA {
      const V weight = weight_of<S>(exponent(x + begin, largest, i, part...));
      S::template store<simd::Stores::cached, simd::Nan::absent>(to + i, weight, part...);
    });
  }
  // What has to be known of the sum of a row's weights.
  template <class Some>
  ISOBIT_INLINE static typename Some::V factor_of(typename Some::V sum) {
    if constexpr (kLog)
      return functions::log<Some>(sum);
    else
      return Some::div(Some::all(1), sum);
  }
  ISOBIT_INLINE void put(const T* x, V largest, const Real* weights, V factor, Y* y) {
    results_.template store<S>(y, [&](std::int64_t i, auto... part) ISOBIT_INLINE_LAMBDA {
      if constexpr (kLog)
        return log_of<S>(exponent(x, largest, i, part...), factor);
      else
        return S::mul(S::load(weights + i, part...), factor);
    });
  }

  // x is in `weights` where it was staged, which then take its place.
  ISOBIT_INLINE void row(const T* x, Real* weights, Y* y) {
    const V largest = S::all(simd::largest_of<S>(x, cols_, scale_.sign));
    alignas(64) Real block[kLog ? order::kBlock : 1];
    const Real sum = simd::row_sum_of_stored<S>(
        cols_, [&](std::int64_t begin, std::int64_t count) ISOBIT_INLINE_LAMBDA {
          Real* const to = kLog ? block : weights + begin;
          fetch_row(x + next_ + begin, count);
          put_weights(x, largest, begin, count, to);
          return to;
        });
    put(x, largest, weights, S::all(factor_of<ScalarOf<Real>>(sum)), y);
  }

  // As many of them as a vector has lanes.
  ISOBIT_INLINE void short_rows(const ForwardProblem& problem, std::int64_t first) {
    constexpr int kRows = S::kWidth;
    alignas(64) Real weights[kRows][order::kBlock / 2], largest[kRows], factors[kRows];
    const auto x = [&](int k)
                       ISOBIT_INLINE_LAMBDA { return row_of<const T>(problem.x, first + k); };
    V of_rows[kRows];
    for (int k = 0; k < kRows; ++k)
      of_rows[k] = simd::largest_of_lanes<S>(x(k), cols_, scale_.sign);
    S::template store<simd::Stores::cached>(largest, simd::largest_of_each<S>(of_rows));
    for (int k = 0; k < kRows; ++k) {
      if (streaming_) fetch_row(x(k + kRows), cols_);
      put_weights(x(k), S::all(largest[k]), 0, cols_, weights[k]);
      const simd::Stored<S> stored{weights[k]};
      of_rows[k] =
          simd::short_row_sums<S, simd::Want::sum>(cols_, simd::Alone<S, simd::Stored<S>>{stored})
              .a;
    }
    S::template store<simd::Stores::cached>(factors, factor_of<S>(simd::fold_each<S>(of_rows)));
    for (int k = 0; k < kRows; ++k)
      put(x(k), S::all(largest[k]), weights[k], S::all(factors[k]),
          row_of<Y>(problem.y, first + k));
  }
  // After the last row.
  ISOBIT_INLINE void finish() { results_.finish(); }

 private:
  ISOBIT_INLINE void fetch_row(const T* x, std::int64_t count) const {
    for (std::int64_t i = 0; i < count; i += 64 / std::int64_t{sizeof(T)})
      simd::fetch_to_second_cache(x + i);
  }
  ISOBIT_INLINE auto exponent(const T* x, V largest, std::int64_t i, auto... part) const {
    return exponent_of<S, kIsOne>(scale_, S::load(x + i, part...), largest);
  }

  std::int64_t cols_;
  std::int64_t next_;  // elements from a row of x to the next
  Scale<Real> scale_;
  bool streaming_;
  simd::StoredRows<Y> results_;
};

template <bool kLog, bool kIsOne, class T, class Y>
ISOBIT_INLINE void forward_scaled_rows(const ForwardProblem& problem, std::int64_t begin,
                                       std::int64_t end, std::byte* scratch, bool streaming) {
  using S = VectorsOf<T>;
  using Real = typename S::Real;
  constexpr Real kInfinity = std::numeric_limits<Real>::infinity();
  Real* const staged = reinterpret_cast<Real*>(scratch);
  std::int64_t row = begin;
  if (problem.mask.data == nullptr) {
    Forward<kLog, kIsOne, S, T, Y> forward(problem, streaming);
    if constexpr (S::kWidth > 1)
      for (; simd::is_short(problem.cols) && row + S::kWidth <= end; row += S::kWidth)
        forward.short_rows(problem, row);
    for (; row < end; ++row)
      forward.row(row_of<const T>(problem.x, row), staged, row_of<Y>(problem.y, row));
    return forward.finish();
  }
  Forward<kLog, kIsOne, S, Real, Y> forward(problem, streaming);
  const Real absent = problem.scale < 0 ? kInfinity : -kInfinity;
  for (; row < end; ++row) {
    const T* const x = row_of<const T>(problem.x, row);
    const std::byte* const mask = row_of<const std::byte>(problem.mask, row);
    Y* const y = row_of<Y>(problem.y, row);
    bool any = false;
    for (std::int64_t i = 0; i < problem.cols; ++i) {
      const bool there = mask[i] != std::byte{0};
      any = any || there;
      staged[i] = there ? widen<Real>(x[i]) : absent;
    }
    if (any)
      forward.row(staged, staged, y);
    else
      for (std::int64_t i = 0; i < problem.cols; ++i) y[i] = narrow<Y>(kLog ? -kInfinity : Real(0));
  }
  forward.finish();
}

template <class T, class Y, bool kLog>
void forward_rows(const ForwardProblem& problem, std::int64_t begin, std::int64_t end,
                  std::byte* scratch, bool streaming) {
  if (problem.scale == 1)
    forward_scaled_rows<kLog, true, T, Y>(problem, begin, end, scratch, streaming);
  else
    forward_scaled_rows<kLog, false, T, Y>(problem, begin, end, scratch, streaming);
}

// What is summed of a row: gradients alone, or their products with y.
template <bool kLog, class S, class Y>
struct GradientTerms {
  const Y *y, *grad_y;

  template <class... Part>
  ISOBIT_INLINE simd::Terms<S> operator()(std::int64_t i, Part... part) const {
    const auto gradient = S::load(grad_y + i, part...);
    if constexpr (kLog)
      return {gradient, gradient};
    else
      return {gradient, S::load(y + i, part...)};
  }
};

template <bool kLog, class S, class Y, class T>
ISOBIT_INLINE void put_gradients(const Y* y, const Y* grad_y, typename S::Real sum_of_row,
                                 const BackwardProblem& problem, simd::StoredRows<T>& gradients,
                                 T* grad_x) {
  using V = typename S::V;
  const V sum = S::all(sum_of_row), scale = S::all(static_cast<typename S::Real>(problem.scale));
  gradients.template store<S>(grad_x, [&](std::int64_t i, auto... part) ISOBIT_INLINE_LAMBDA {
    return gradient<S, kLog>(scale, S::load(y + i, part...), S::load(grad_y + i, part...), sum);
  });
}

template <bool kLog, class S, class Y, class T>
ISOBIT_INLINE void backward_row(const Y* y, const Y* grad_y, const BackwardProblem& problem,
                                simd::StoredRows<T>& gradients, T* grad_x) {
  const GradientTerms<kLog, S, Y> terms{y, grad_y};
  typename S::Real sum;
  if constexpr (kLog)
    sum = simd::row_sum<S>(problem.cols, [&](std::int64_t i, auto... part)
                                             ISOBIT_INLINE_LAMBDA { return terms(i, part...).a; });
  else
    sum = simd::row_dot<S>(problem.cols, terms);
  put_gradients<kLog, S>(y, grad_y, sum, problem, gradients, grad_x);
}

// As many short rows as a vector has lanes.
template <bool kLog, class S, class Y, class T>
ISOBIT_INLINE void backward_short_rows(const BackwardProblem& problem, std::int64_t first,
                                       simd::StoredRows<T>& gradients) {
  constexpr simd::Want kWant = kLog ? simd::Want::sum : simd::Want::dot;
  constexpr int kRows = S::kWidth;
  const auto y = [&](int k) ISOBIT_INLINE_LAMBDA { return row_of<const Y>(problem.y, first + k); };
  const auto grad_y = [&](int k) ISOBIT_INLINE_LAMBDA {
    return row_of<const Y>(problem.grad_y, first + k);
  };
  typename S::V of_rows[kRows];
  for (int k = 0; k < kRows; ++k) {
    const simd::Terms<S> sums =
        simd::short_row_sums<S, kWant>(problem.cols, GradientTerms<kLog, S, Y>{y(k), grad_y(k)});
    of_rows[k] = kLog ? sums.a : sums.b;
  }
  alignas(64) typename S::Real sums[kRows];
  S::template store<simd::Stores::cached>(sums, simd::fold_each<S>(of_rows));
  for (int k = 0; k < kRows; ++k)
    put_gradients<kLog, S>(y(k), grad_y(k), sums[k], problem, gradients,
                           row_of<T>(problem.grad_x, first + k));
}

template <class T, class Y, bool kLog>
void backward_rows(const BackwardProblem& problem, std::int64_t begin, std::int64_t end,
                   std::byte* scratch, bool streaming) {
  using S = VectorsOf<T>;
  using Real = typename S::Real;
  const std::int64_t cols = problem.cols;
  std::int64_t row = begin;
  if (problem.mask.data == nullptr) {
    simd::StoredRows<T> gradients(row_of<T>(problem.grad_x, 0), problem.grad_x.stride, cols,
                                  streaming);
    if constexpr (S::kWidth > 1)
      for (; simd::is_short(cols) && row + S::kWidth <= end; row += S::kWidth)
        backward_short_rows<kLog, S, Y, T>(problem, row, gradients);
    for (; row < end; ++row)
      backward_row<kLog, S>(row_of<const Y>(problem.y, row), row_of<const Y>(problem.grad_y, row),
                            problem, gradients, row_of<T>(problem.grad_x, row));
    return gradients.finish();
  }
  Real* const own_y = reinterpret_cast<Real*>(scratch);
  Real* const own = own_y + cols;  // gradients of y, then of x
  simd::StoredRows<Real> gradients(own, cols, cols, false);
  for (; row < end; ++row) {
    const Y* const y = row_of<const Y>(problem.y, row);
    const Y* const grad_y = row_of<const Y>(problem.grad_y, row);
    const std::byte* const mask = row_of<const std::byte>(problem.mask, row);
    T* const grad_x = row_of<T>(problem.grad_x, row);
    const auto there = [&](std::int64_t i) { return mask[i] != std::byte{0}; };
    for (std::int64_t i = 0; i < cols; ++i) {
      own_y[i] = there(i) ? widen<Real>(y[i])
                 : kLog   ? -std::numeric_limits<Real>::infinity()
                          : Real(0);
      own[i] = there(i) ? widen<Real>(grad_y[i]) : Real(0);
    }
    backward_row<kLog, S>(own_y, own, problem, gradients, own);
    for (std::int64_t i = 0; i < cols; ++i) grad_x[i] = narrow<T>(there(i) ? own[i] : Real(0));
  }
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
    return log ? forward_rows<T, Y, true> : forward_rows<T, Y, false>;
  });
}
BackwardKernel backward_kernel(DType x, DType y, bool log) {
  return with_types(x, y, [&]<class T, class Y>(T, Y) -> BackwardKernel {
    return log ? backward_rows<T, Y, true> : backward_rows<T, Y, false>;
  });
}

}  // namespace isobit::softmax::ISOBIT_ISA
