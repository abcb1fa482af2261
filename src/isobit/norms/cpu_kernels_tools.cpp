// SPDX-License-Identifier: Apache-2.0
// Rows on their way into a norm and out of it: conversions, residual sums, dropout. Compiled once
// for each instruction set.
#include <algorithm>

#include "isobit/norms/cpu_kernels.h"
#include "isobit/norms/philox.h"
#include "isobit/simd/lines.h"
#include "isobit/simd/prefetch.h"

namespace isobit::norms::ISOBIT_ISA {
namespace {

using simd::for_each_vector;
using simd::Nan;
using simd::Stores;

// Calls body(S{}, Type<T>{}) with the vectors that compute in `real` and the C++ type of `type`; a
// double is rounded to floats by the scalar loops, which f64 beside f32 weights alone needs.
template <class Body>
ISOBIT_INLINE void with_types(DType real, DType type, const Body& body) {
  if (real == DType::f64) return body(simd::F64{}, Type<double>{});
  switch (type) {
    case DType::f16:  return body(simd::F32{}, Type<f16>{});
    case DType::bf16: return body(simd::F32{}, Type<bf16>{});
    default:          return body(simd::F32{}, Type<float>{});
  }
}

bool mixes_widths(DType real, DType type) { return real == DType::f64 && type != DType::f64; }

void widen_row(DType type, const void* from, DType real, void* to, std::int64_t count,
               double offset) {
  if (mixes_widths(real, type)) {
    for (std::int64_t i = 0; i < count; ++i)
      static_cast<double*>(to)[i] = double{static_cast<const float*>(from)[i]} + offset;
    return;
  }
  with_types(real, type, [&]<class S, class T>(S, Type<T>) ISOBIT_INLINE_LAMBDA {
    using Real = typename S::Real;
    const auto added = S::all(static_cast<Real>(offset));
    for_each_vector<S, Real>(0, count, [&](std::int64_t i, auto... part) ISOBIT_INLINE_LAMBDA {
      S::template store<Stores::cached, Nan::absent>(
          static_cast<Real*>(to) + i,
          S::add(S::load(static_cast<const T*>(from) + i, part...), added), part...);
    });
  });
}

template <bool kAddZero>
void narrow_row(DType real, const void* from, DType type, void* to, std::int64_t count) {
  if (mixes_widths(real, type)) {
    for (std::int64_t i = 0; i < count; ++i)
      static_cast<float*>(to)[i] =
          narrow<float>(static_cast<const double*>(from)[i] + (kAddZero ? 0.0 : -0.0));
    return;
  }
  with_types(real, type, [&]<class S, class T>(S, Type<T>) ISOBIT_INLINE_LAMBDA {
    using Real = typename S::Real;
    for_each_vector<S, T>(0, count, [&](std::int64_t i, auto... part) ISOBIT_INLINE_LAMBDA {
      auto value = S::load(static_cast<const Real*>(from) + i, part...);
      if constexpr (kAddZero) value = S::add(S::zero(), value);
      S::store(static_cast<T*>(to) + i, value, part...);
    });
  });
}

void add(DType real, void* into, const void* from, std::int64_t count) {
  with_types(real, real, [&]<class S, class T>(S, Type<T>) ISOBIT_INLINE_LAMBDA {
    using Real = typename S::Real;
    for_each_vector<S, Real>(0, count, [&](std::int64_t i, auto... part) ISOBIT_INLINE_LAMBDA {
      auto* to = static_cast<Real*>(into) + i;
      const auto sum =
          S::add(S::load(to, part...), S::load(static_cast<const Real*>(from) + i, part...));
      S::template store<Stores::cached, Nan::absent>(to, sum,
                                                     part...);  // finish makes NaN canonical
    });
  });
}

// So many columns are dropped or kept at a time.
constexpr int kColumns = 64;

// Zeroes what is dropped and scales what is kept.
template <class Real>
ISOBIT_INLINE void drop(const Dropout& dropout, std::int64_t row, std::int64_t first_column,
                        Real* values) {
  std::uint32_t words[kColumns];
  for (int group = 0; group < kColumns / 4; ++group) {
    const auto four =
        dropout_words(dropout.seed, dropout.first_row + row, first_column / 4 + group);
    for (int i = 0; i < 4; ++i) words[4 * group + i] = four[i];
  }
  const std::uint32_t threshold = dropout_threshold(dropout.p);
  const Real scale = dropout_scale<Real>(dropout.p);
  for (int i = 0; i < kColumns; ++i)
    values[i] = words[i] >= threshold ? values[i] * scale : Real(0);
}

// Calls body(first, part_of) for each 64 columns of a row, the last ones perhaps fewer.
template <class Body>
ISOBIT_INLINE void in_columns(std::int64_t cols, const Body& body) {
  for (std::int64_t first = 0; first < cols; first += kColumns)
    body(first, std::min<std::int64_t>(kColumns, cols - first));
}

void compose(const ForwardProblem& problem, std::int64_t row, void* to) {
  with_types(
      real_of(problem.dtype), problem.dtype,
      [&]<class S, class T>(S, Type<T>) ISOBIT_INLINE_LAMBDA {
        using Real = typename S::Real;
        const T* x = row_of<const T>(problem.x, row);
        const T* residual = problem.residual ? row_of<const T>(problem.residual, row) : nullptr;
        T* sum = static_cast<T*>(to);
        if (!problem.dropout.drops()) {
          for_each_vector<S, T>(
              0, problem.cols, [&](std::int64_t i, auto... part) ISOBIT_INLINE_LAMBDA {
                S::store(sum + i, S::add(S::load(x + i, part...), S::load(residual + i, part...)),
                         part...);
              });
          return;
        }
        in_columns(problem.cols, [&](std::int64_t first, std::int64_t count) {
          alignas(64) Real values[kColumns] = {};
          for (std::int64_t i = 0; i < count; ++i) values[i] = widen<Real>(x[first + i]);
          drop(problem.dropout, row, first, values);
          if (residual != nullptr)
            for (std::int64_t i = 0; i < count; ++i) values[i] += widen<Real>(residual[first + i]);
          for (std::int64_t i = 0; i < count; ++i) sum[first + i] = narrow<T>(values[i]);
        });
      });
}

// What flows into the sum: the gradient of x and of residual alike.
template <class S, class T, Stores kStores, class Fetch>
ISOBIT_INLINE void write_gradient(std::int64_t cols, const typename S::Real* from,
                                  const T* grad_sum, T* grad_x, T* grad_residual,
                                  const Fetch& fetch) {
  for_each_vector<S, T>(0, cols, [&](std::int64_t i, auto... part) ISOBIT_INLINE_LAMBDA {
    auto value = S::load(from + i, part...);
    if (grad_sum != nullptr) value = S::add(value, S::load(grad_sum + i, part...));
    if constexpr (kStores == Stores::streaming) fetch(i);
    if (grad_x != nullptr) S::template store<kStores, Nan::possible>(grad_x + i, value, part...);
    if (grad_residual != nullptr)
      S::template store<kStores, Nan::possible>(grad_residual + i, value, part...);
  });
}

// The same, where x has lost some of its elements.
template <class Real, class T>
void write_dropped_gradient(const BackwardProblem& problem, std::int64_t row, const Real* from,
                            const T* grad_sum, T* grad_x, T* grad_residual) {
  in_columns(problem.cols, [&](std::int64_t first, std::int64_t count) {
    alignas(64) Real values[kColumns] = {};
    std::copy_n(from + first, count, values);
    if (grad_sum != nullptr)
      for (std::int64_t i = 0; i < count; ++i) values[i] += widen<Real>(grad_sum[first + i]);
    if (grad_residual != nullptr)
      for (std::int64_t i = 0; i < count; ++i) grad_residual[first + i] = narrow<T>(values[i]);
    if (grad_x == nullptr) return;
    drop(problem.dropout, row, first, values);
    for (std::int64_t i = 0; i < count; ++i) grad_x[first + i] = narrow<T>(values[i]);
  });
}

void decompose(const BackwardProblem& problem, std::int64_t row, const void* gradient,
               bool streaming) {
  with_types(real_of(problem.dtype), problem.dtype,
             [&]<class S, class T>(S, Type<T>) ISOBIT_INLINE_LAMBDA {
               using Real = typename S::Real;
               const auto* from = static_cast<const Real*>(gradient);
               const auto of = [&]<class E>(Type<E>, const Matrix& matrix, std::int64_t row) {
                 return matrix ? row_of<E>(matrix, row) : nullptr;
               };
               const T* grad_sum = of(Type<const T>{}, problem.grad_sum, row);
               T* grad_x = of(Type<T>{}, problem.grad_x, row);
               T* grad_residual = of(Type<T>{}, problem.grad_residual, row);
               if (problem.dropout.drops())
                 return write_dropped_gradient(problem, row, from, grad_sum, grad_x, grad_residual);
               const Matrix& more = problem.grad_sum ? problem.grad_sum : problem.x;
               const auto* later_x = row_of<const T>(problem.x, row + kSweptRows);
               const auto* later_more = row_of<const T>(more, row + kSweptRows);
               const auto* later_y = row_of(problem.grad_y, row + kSweptRows, problem.grad_y_dtype);
               const auto fetch = [&](std::int64_t i) ISOBIT_INLINE_LAMBDA {
                 simd::fetch_to_second_cache(later_x + i);
                 simd::fetch_to_second_cache(later_more + i);
                 simd::fetch_to_second_cache(later_y + i * size_of(problem.grad_y_dtype));
               };
               if (streaming && simd::are_whole_lines(grad_x, problem.cols) &&
                   simd::are_whole_lines(grad_residual, problem.cols))
                 write_gradient<S, T, Stores::streaming>(problem.cols, from, grad_sum, grad_x,
                                                         grad_residual, fetch);
               else
                 write_gradient<S, T, Stores::cached>(problem.cols, from, grad_sum, grad_x,
                                                      grad_residual, fetch);
             });
}

}  // namespace

const Tools kTools = {widen_row, narrow_row<false>, narrow_row<true>, add, compose, decompose};

}  // namespace isobit::norms::ISOBIT_ISA
