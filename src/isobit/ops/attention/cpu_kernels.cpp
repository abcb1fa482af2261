// SPDX-License-Identifier: Apache-2.0
// Scores become weights, parts of a query's keys one, sums results.
#include "isobit/ops/attention/cpu_kernels.h"

#include <algorithm>
#include <limits>
#include <type_traits>

#include "isobit/ops/attention/cpu_kernels_gradients.h"
#include "isobit/ops/attention/formula.h"
#include "isobit/ops/attention/problem.h"
#include "isobit/ops/matmul/cpu_lanes.h"
#include "isobit/simd/vec.h"

namespace isobit::attention::ISOBIT_ISA {
namespace {

using simd::across;
using simd::for_each_vector;
using simd::VectorsOf;

template <class S>
void store(typename S::Real* to, typename S::V v) {
  S::template store<simd::Stores::cached, simd::Nan::absent>(to, v);
}

// How far i and those after it are from their queries. Below 2^24 (2^53) a number is exact; beyond,
// each is rounded by itself.
template <class S>
ISOBIT_INLINE typename S::V distances(std::int64_t first) {
  using Real = typename S::Real;
  constexpr std::int64_t kExact = std::int64_t{1} << std::numeric_limits<Real>::digits;
  Real lanes[S::kWidth];
  const bool exact = -kExact <= first && first + S::kWidth <= kExact;
  for (int lane = 0; lane < S::kWidth; ++lane)
    lanes[lane] = static_cast<Real>(exact ? lane : first + lane);
  const auto places = S::load(lanes);
  return functions::magnitude<S>(exact ? S::add(places, S::all(static_cast<Real>(first))) : places);
}

template <class S, class T>
void line(const void* given, const Line& line) {
  using Real = typename S::Real;
  const auto& scaling = *static_cast<const Scaling<Real>*>(given);
  const auto* from = static_cast<const Real*>(line.products);
  auto* to = static_cast<Real*>(line.exponents);
  const auto* bias = reinterpret_cast<const T*>(line.bias);
  for_each_vector<S>(line.count, [&](std::int64_t i, auto... part) ISOBIT_INLINE_LAMBDA {
    auto t = exponent_of<S>(scaling, S::load(from + i, part...));
    if (bias != nullptr) {
      typename S::V b;
      if (line.bias_step == 1) {
        b = S::load(bias + i, part...);
      } else if (line.bias_step == 0) {
        b = S::all(widen<Real>(*bias));
      } else {
        Real lanes[S::kWidth] = {};
        for (int lane = 0; lane < S::kWidth && i + lane < line.count; ++lane)
          lanes[lane] = widen<Real>(bias[(i + lane) * line.bias_step]);
        b = S::load(lanes);
      }
      t = biased<S>(scaling, t, b);
    }
    if (line.slope != nullptr)
      t = sloped<S>(scaling, t, S::all(*reinterpret_cast<const Real*>(line.slope)),
                    distances<S>(line.distance + i), bias != nullptr);
    S::template store<simd::Stores::cached, simd::Nan::absent>(to + i, t, part...);
  });
  const auto absent = [&](std::int64_t begin, std::int64_t end) ISOBIT_INLINE_LAMBDA {
    for (std::int64_t i = begin; i < end; ++i) to[i] = -kInfinity<Real>;
  };
  absent(0, std::min(line.begin, line.count));
  absent(std::max<std::int64_t>(0, line.end), line.count);
  if (line.mask == nullptr) return;
  if (line.mask_step == 0) {
    if (*line.mask == std::byte{0}) absent(0, line.count);
    return;
  }
  for (std::int64_t i = 0; i < line.count; ++i)
    to[i] = line.mask[i * line.mask_step] == std::byte{0} ? -kInfinity<Real> : to[i];
}

// Where nothing but the scale stands between both, and it is positive, the largest product has the
// largest exponent.
template <class S>
ISOBIT_INLINE typename S::V exponent(bool is_product, typename S::V factor, typename S::V value) {
  return is_product ? S::mul(value, factor) : value;
}

// Whether all of a base are.
template <class S>
ISOBIT_INLINE bool is_ordinary(typename S::V base) {
  using Real = typename S::Real;
  Real lanes[S::kWidth];
  store<S>(lanes, base);
  bool all = true;
  for (int i = 0; i < S::kWidth; ++i)
    all = all && lanes[i] < kOrdinary<Real> && lanes[i] > -kOrdinary<Real>;
  return all;
}

template <class S>
ISOBIT_INLINE void weigh_column(typename S::Real* values, std::int64_t pitch, std::int64_t keys,
                                bool products, typename S::V factor, typename S::Real* max,
                                typename S::Real* sum) {
  using Real = typename S::Real;
  using V = typename S::V;
  constexpr int kChains = 4;
  V tops[kChains];
#pragma GCC unroll 4
  for (auto& top : tops) top = S::all(-kInfinity<Real>);
  std::int64_t j = 0;
  for (; j + kChains <= keys; j += kChains)
#pragma GCC unroll 4
    for (int c = 0; c < kChains; ++c) tops[c] = S::max(tops[c], S::load(values + (j + c) * pitch));
  for (; j < keys; ++j) tops[0] = S::max(tops[0], S::load(values + j * pitch));
  const V most = S::max(S::max(tops[0], tops[1]), S::max(tops[2], tops[3]));
  const V top = nearest<S>(exponent<S>(products, factor, most)), base = base_of<S>(top);
  store<S>(max, top);
  const auto weigh = [&](auto ordinary) ISOBIT_INLINE_LAMBDA {
#pragma GCC unroll 4
    for (std::int64_t row = 0; row < keys; ++row) {
      Real* at = values + row * pitch;
      store<S>(at, weight_of<S, decltype(ordinary)::value>(
                       exponent<S>(products, factor, S::load(at)), base));
    }
  };
  if (is_ordinary<S>(base))
    weigh(std::true_type());
  else
    weigh(std::false_type());
  for (j = keys; j < kPanel; ++j) store<S>(values + j * pitch, S::zero());
  // Halves of the panel onto each other: the first three folds at once.
  V terms[kPanel / 8];
#pragma GCC unroll 4
  for (int i = 0; i < kPanel / 8; ++i) {
    const auto at = [&](int row) ISOBIT_INLINE_LAMBDA { return S::load(values + row * pitch); };
    const auto half = [&](int row)
                          ISOBIT_INLINE_LAMBDA { return S::add(at(row), at(row + kPanel / 2)); };
    const auto quarter = [&](int row) ISOBIT_INLINE_LAMBDA {
      return S::add(half(row), half(row + kPanel / 4));
    };
    terms[i] = S::add(quarter(i), quarter(i + kPanel / 8));
  }
  for (int left = kPanel / 16; left >= 1; left /= 2)
    for (int i = 0; i < left; ++i) terms[i] = S::add(terms[i], terms[i + left]);
  store<S>(sum, terms[0]);
}

template <class S>
void weigh_columns(const void* given, const Columns& columns) {
  using Real = typename S::Real;
  const auto factor = S::all(static_cast<const Scaling<Real>*>(given)->factor);
  auto *values = static_cast<Real*>(columns.values), *max = static_cast<Real*>(columns.max),
       *sum = static_cast<Real*>(columns.sum);
  for (std::int64_t i = 0; i < columns.cols; i += S::kWidth)
    weigh_column<S>(values + i, columns.cols, columns.keys, columns.are_products, factor, max + i,
                    sum + i);
}

template <class S>
void weigh_keys(const void* given, const Keys& keys) {
  using Real = typename S::Real;
  using V = typename S::V;
  constexpr int kVectors = kPanel / S::kWidth;
  const auto factor = S::all(static_cast<const Scaling<Real>*>(given)->factor);
  auto* values = static_cast<Real*>(keys.values);
  for (std::int64_t i = keys.keys; i < kPanel; ++i) values[i] = -kInfinity<Real>;
  V most = S::all(-kInfinity<Real>);
  for (int i = 0; i < kVectors; ++i) most = S::max(most, S::load(values + i * S::kWidth));
  Real lanes[S::kWidth];
  store<S>(lanes, nearest<S>(exponent<S>(keys.are_products, factor, most)));
  Real top = lanes[0];
  for (int i = 1; i < S::kWidth; ++i) top = lanes[i] > top ? lanes[i] : top;
  *static_cast<Real*>(keys.max) = top;
  const V base = base_of<S>(S::all(top));
  V terms[kVectors];
  for (int i = 0; i < kVectors; ++i) {
    Real* at = values + i * S::kWidth;
    terms[i] = weight_of<S>(exponent<S>(keys.are_products, factor, S::load(at)), base);
    store<S>(at, terms[i]);
  }
  for (int left = kVectors / 2; left >= 1; left /= 2)
    for (int i = 0; i < left; ++i) terms[i] = S::add(terms[i], terms[i + left]);
  *static_cast<Real*>(keys.sum) = S::fold(terms[0]);
}

template <class S>
void fold_columns(const State& from, const State& to, std::int64_t rows, std::int64_t cols) {
  using Real = typename S::Real;
  const auto real = [](void* data) { return static_cast<Real*>(data); };
  for (std::int64_t i = 0; i < cols; i += S::kWidth) {
    const auto fold = Fold<S>::of(S::load(real(to.max) + i), S::load(real(from.max) + i));
    store<S>(real(to.max) + i, fold.max);
    const auto one = [&](Real* a, const Real* b)
                         ISOBIT_INLINE_LAMBDA { store<S>(a, fold(S::load(a), S::load(b))); };
    one(real(to.sum) + i, real(from.sum) + i);
#pragma GCC unroll 4
    for (std::int64_t row = 0; row < rows; ++row)
      one(real(to.rows) + row * cols + i, real(from.rows) + row * cols + i);
  }
}

template <class S>
void fold(const State& from, const State& to, std::int64_t rows, std::int64_t cols) {
  using Real = typename S::Real;
  if (cols > 1 || S::kWidth == 1) return fold_columns<S>(from, to, rows, cols);
  const auto real = [](void* data) { return static_cast<Real*>(data); };
  const auto fold = Fold<S>::of(S::all(*real(to.max)), S::all(*real(from.max)));
  const auto one = [&](typename S::V a, typename S::V b, Real* to_lane) ISOBIT_INLINE_LAMBDA {
    S::template store<simd::Stores::cached, simd::Nan::absent>(to_lane, fold(a, b), S::first(1));
  };
  one(S::all(*real(to.sum)), S::all(*real(from.sum)), real(to.sum));
  S::template store<simd::Stores::cached, simd::Nan::absent>(real(to.max), fold.max, S::first(1));
  for_each_vector<S>(rows, [&](std::int64_t i, auto... part) ISOBIT_INLINE_LAMBDA {
    S::template store<simd::Stores::cached, simd::Nan::absent>(
        real(to.rows) + i,
        fold(S::load(real(to.rows) + i, part...), S::load(real(from.rows) + i, part...)), part...);
  });
}

// Of one query, whose sums lie side by side.
template <class S, class T>
void finish_one(const State& state, std::int64_t rows, const Results& results) {
  using Real = typename S::Real;
  const Real max = *static_cast<const Real*>(state.max), sum = *static_cast<const Real*>(state.sum);
  const auto* from = static_cast<const Real*>(state.rows);
  const auto inverse = inverse_of<S>(S::all(max), S::all(sum));
  auto* y = reinterpret_cast<T*>(results.y);
  const auto to_lane = [&](std::byte* to, typename S::V value) ISOBIT_INLINE_LAMBDA {
    S::store(reinterpret_cast<Real*>(to), value, S::first(1));
  };
  if (results.lse != nullptr) to_lane(results.lse, lse_of<S>(S::all(max), S::all(sum)));
  if (results.max != nullptr) to_lane(results.max, returned_max<S>(S::all(max), S::all(sum)));
  if (results.sum != nullptr) to_lane(results.sum, S::all(sum));
  if (results.y_col == 1)
    return for_each_vector<S>(rows, [&](std::int64_t i, auto... part) ISOBIT_INLINE_LAMBDA {
      S::store(y + i, y_of<S>(S::load(from + i, part...), inverse), part...);
    });
  for_each_vector<S>(rows, [&](std::int64_t i, auto... part) ISOBIT_INLINE_LAMBDA {
    T lanes[S::kWidth];
    S::store(lanes, y_of<S>(S::load(from + i, part...), inverse));
    for (int lane = 0; lane < S::kWidth && i + lane < rows; ++lane)
      y[(i + lane) * results.y_col] = lanes[lane];
  });
}

template <class S, class T>
void finish(const State& state, std::int64_t rows, std::int64_t cols, std::int64_t count,
            const Results& results) {
  using Real = typename S::Real;
  if (cols == 1 && S::kWidth > 1) return finish_one<S, T>(state, rows, results);
  const auto *max = static_cast<const Real*>(state.max), *sum = static_cast<const Real*>(state.sum),
             *from = static_cast<const Real*>(state.rows);
  constexpr int kMost = 64;
  Real inverse[kMost], lse[kMost], top[kMost], total[kMost];
  for (std::int64_t i = 0; i < cols; i += S::kWidth) {
    const auto m = S::load(max + i), s = S::load(sum + i);
    store<S>(inverse + i, inverse_of<S>(m, s));
    if (results.lse != nullptr) S::store(lse + i, lse_of<S>(m, s));
    S::store(top + i, returned_max<S>(m, s));
    S::store(total + i, s);
  }
  const auto put = [&](std::byte* to, std::int64_t step, const Real* values) {
    if (to == nullptr) return;
    for (std::int64_t i = 0; i < count; ++i) reinterpret_cast<Real*>(to)[i * step] = values[i];
  };
  put(results.lse, results.lse_step, lse);
  put(results.max, results.max_step, top);
  put(results.sum, results.sum_step, total);
  auto* y = reinterpret_cast<T*>(results.y);
  // Columns of sums, as rows.
  Real turned[kMost * S::kWidth];
  for (std::int64_t row = 0; row < rows; row += S::kWidth) {
    across<S, 1>(from + row * cols, cols, rows - row, count,
                 [&](std::int64_t i, const typename S::V(&vectors)[1])
                     ISOBIT_INLINE_LAMBDA { store<S>(turned + i * S::kWidth, vectors[0]); });
    const bool whole = results.y_col == 1 && row + S::kWidth <= rows;
    for (std::int64_t i = 0; i < count; ++i) {
      const auto value = y_of<S>(S::load(turned + i * S::kWidth), S::all(inverse[i]));
      T* to = y + i * results.y_row + row * results.y_col;
      if (whole) {
        S::store(to, value);
        continue;
      }
      T lanes[S::kWidth];
      S::store(lanes, value);
      for (int lane = 0; lane < S::kWidth && row + lane < rows; ++lane)
        to[lane * results.y_col] = lanes[lane];
    }
  }
}

template <class S, class T>
void round(void* values, std::int64_t count) {
  auto* at = static_cast<typename S::Real*>(values);
  for_each_vector<S>(count, [&](std::int64_t i, auto... part) ISOBIT_INLINE_LAMBDA {
    T lanes[S::kWidth] = {};
    S::store(lanes, S::load(at + i, part...), part...);
    S::template store<simd::Stores::cached, simd::Nan::absent>(at + i, S::load(lanes), part...);
  });
}

template <class T>
constexpr Kernels kKernels = {line<VectorsOf<T>, T>,    weigh_columns<VectorsOf<T>>,
                              weigh_keys<VectorsOf<T>>, fold<VectorsOf<T>>,
                              finish<VectorsOf<T>, T>,  gradients<VectorsOf<T>, T>,
                              write<VectorsOf<T>, T>,   dot<VectorsOf<T>, T>,
                              finite<VectorsOf<T>, T>,  round<VectorsOf<T>, T>};

}  // namespace

const Kernels& kernels(DType x) {
  switch (x) {
    case DType::f16:  return kKernels<f16>;
    case DType::bf16: return kKernels<bf16>;
    case DType::f64:  return kKernels<double>;
    default:          return kKernels<float>;
  }
}

}  // namespace isobit::attention::ISOBIT_ISA
