// SPDX-License-Identifier: Apache-2.0
// The vector loops of rows, compiled once for each instruction set. What is computed once a row is
// computed of as many rows at once as a vector has lanes.
#include "isobit/ops/cross_entropy/cpu_kernels.h"

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "isobit/ops/cross_entropy/cpu_call.h"
#include "isobit/ops/cross_entropy/formula.h"
#include "isobit/simd/collected_rows.h"
#include "isobit/simd/prefetch.h"
#include "isobit/simd/read_ahead.h"
#include "isobit/simd/row_loops.h"
#include "isobit/simd/row_sums.h"
#include "isobit/simd/vec_scalar.h"

namespace isobit::cross_entropy::ISOBIT_ISA {
namespace {

using simd::ScalarOf;
using simd::VectorsOf;

// A number of each of some rows.
template <class S>
struct Lanes {
  using Real = typename S::Real;
  alignas(64) Real of[S::kWidth] = {};

  ISOBIT_INLINE Real& operator[](int k) { return of[k]; }
  ISOBIT_INLINE Real operator[](int k) const { return of[k]; }
  ISOBIT_INLINE typename S::V all() const { return S::load(of); }
  ISOBIT_INLINE void set(typename S::V values) {
    S::template store<simd::Stores::cached>(of, values);
  }
};

// Calls group(first, count) for rows [begin, end), as many at a time as a vector has lanes.
template <class S, class Group>
ISOBIT_INLINE void in_groups(std::int64_t begin, std::int64_t end, const Group& group) {
  for (std::int64_t row = begin; row < end; row += S::kWidth)
    group(row, static_cast<int>(std::min<std::int64_t>(S::kWidth, end - row)));
}

// What rows are known by, and their sums of w (x - largest).
template <class S>
struct RowSums {
  Lanes<S> largest, sum, differences;
};

// kSmooth: each class has a share in a loss, which wants the differences.
template <class T, bool kSmooth>
class Sums {
 public:
  using S = VectorsOf<T>;
  using Real = typename S::Real;
  using V = typename S::V;

  ISOBIT_INLINE explicit Sums(const Call<Real>& call)
      : x_(call.given.x), cols_(call.given.cols), weight_(call.weight) {}

  // Of rows from `first` on; of those whose `wanted` is 0 nothing is read.
  ISOBIT_INLINE void add(std::int64_t first, const Lanes<S>& wanted, RowSums<S>& sums) const {
    if constexpr (S::kWidth > 1)
      if (simd::is_short(cols_)) return add_short_rows(first, wanted, sums);
    for (int k = 0; k < S::kWidth; ++k)
      if (wanted[k] != 0) add_row(row(first + k), k, sums);
  }

 private:
  ISOBIT_INLINE const T* row(std::int64_t i) const { return row_of<const T>(x_, i); }

  // Calls sum(terms) where classes have no weights, else dot(terms): of w, x - largest.
  template <class Sum, class Dot>
  ISOBIT_INLINE auto differences(const T* x, V largest, const Sum& sum, const Dot& dot) const {
    const auto difference = [=](std::int64_t i, auto... part) ISOBIT_INLINE_LAMBDA {
      return S::only(S::sub(S::load(x + i, part...), largest), part...);
    };
    const Real* const weight = weight_;
    if (weight == nullptr) return sum(difference);
    return dot([=](std::int64_t i, auto... part) ISOBIT_INLINE_LAMBDA {
      return simd::Terms<S>{S::load(weight + i, part...), difference(i, part...)};
    });
  }

  ISOBIT_INLINE void add_row(const T* x, int k, RowSums<S>& sums) const {
    const Real number = simd::largest_of<S>(x, cols_, 1) + Real(0);  // never -0
    const V largest = S::all(number);
    alignas(64) Real block[order::kBlock];
    sums.largest[k] = number;
    sums.sum[k] = simd::row_sum_of_stored<S>(
        cols_, [&](std::int64_t begin, std::int64_t count) ISOBIT_INLINE_LAMBDA {
          simd::for_each_vector<S>(count, [&](std::int64_t i, auto... part) ISOBIT_INLINE_LAMBDA {
            simd::fetch_to_second_cache(x + x_.stride + begin + i);  // the next row, meanwhile
            const V weight = weight_of<S>(S::load(x + begin + i, part...), largest);
            S::template store<simd::Stores::cached, simd::Nan::absent>(block + i, weight, part...);
          });
          return block;
        });
    if constexpr (kSmooth)
      sums.differences[k] = differences(
          x, largest,
          [&](const auto& terms) ISOBIT_INLINE_LAMBDA { return simd::row_sum<S>(cols_, terms); },
          [&](const auto& terms) ISOBIT_INLINE_LAMBDA { return simd::row_dot<S>(cols_, terms); });
  }

  ISOBIT_INLINE void add_short_rows(std::int64_t first, const Lanes<S>& wanted,
                                    RowSums<S>& sums) const {
    V of_rows[S::kWidth] = {};
    for (int k = 0; k < S::kWidth; ++k)
      if (wanted[k] != 0) of_rows[k] = simd::largest_of_lanes<S>(row(first + k), cols_, 1);
    sums.largest.set(S::add(simd::largest_of_each<S>(of_rows), S::zero()));  // never -0
    for (int k = 0; k < S::kWidth; ++k) {
      if (wanted[k] == 0) continue;
      alignas(64) Real block[order::kBlock / 2];
      const T* const x = row(first + k);
      const V largest = S::all(sums.largest[k]);
      simd::for_each_vector<S>(cols_, [&](std::int64_t i, auto... part) ISOBIT_INLINE_LAMBDA {
        const V weight = weight_of<S>(S::load(x + i, part...), largest);
        S::template store<simd::Stores::cached, simd::Nan::absent>(block + i, weight, part...);
      });
      const simd::Stored<S> stored{block};
      of_rows[k] = short_sum<simd::Want::sum>(simd::Alone<S, simd::Stored<S>>{stored}).a;
    }
    sums.sum.set(simd::fold_each<S>(of_rows));
    if constexpr (kSmooth) {
      for (int k = 0; k < S::kWidth; ++k)
        if (wanted[k] != 0)
          of_rows[k] = differences(
              row(first + k), S::all(sums.largest[k]),
              [&](const auto& terms) ISOBIT_INLINE_LAMBDA {
                return short_sum<simd::Want::sum>(
                           simd::Alone<S, std::remove_cvref_t<decltype(terms)>>{terms})
                    .a;
              },
              [&](const auto& terms)
                  ISOBIT_INLINE_LAMBDA { return short_sum<simd::Want::dot>(terms).b; });
      sums.differences.set(simd::fold_each<S>(of_rows));
    }
  }
  template <simd::Want kWant, class Get>
  ISOBIT_INLINE simd::Terms<S> short_sum(const Get& get) const {
    return simd::short_row_sums<S, kWant>(cols_, get);
  }

  Matrix x_;
  std::int64_t cols_;
  const Real* weight_;
};

// numbers[row...] = values, where numbers are wanted.
template <class S>
ISOBIT_INLINE void put(std::byte* numbers, std::int64_t row, int count, typename S::V values) {
  if (numbers == nullptr) return;
  auto* const to = reinterpret_cast<typename S::Real*>(numbers) + row;
  if (count == S::kWidth)
    S::template store<simd::Stores::cached>(to, values);
  else
    S::template store<simd::Stores::cached>(to, values, S::first(count));
}

template <class T, bool kSmooth>
void forward_rows(const ForwardProblem& problem, double weights, std::int64_t begin,
                  std::int64_t end) {
  using S = VectorsOf<T>;
  using Real = typename S::Real;
  const Call<Real> call(problem, static_cast<Real>(weights));
  const Sums<T, kSmooth> of_rows(call);
  in_groups<S>(begin, end, [&](std::int64_t first, int count) ISOBIT_INLINE_LAMBDA {
    Lanes<S> x, weight, wanted;
    for (int k = 0; k < count; ++k) {
      const std::int64_t row = first + k;
      if (call.ignored(row)) continue;
      wanted[k] = 1;
      weight[k] = call.weight_of_row(row);
      if (problem.cols != 0)
        x[k] = widen<Real>(row_of<const T>(problem.x, row)[problem.target[row]]);
    }
    RowSums<S> sums;
    if (problem.cols != 0) of_rows.add(first, wanted, sums);
    for (int k = 0; k < S::kWidth; ++k) {
      using One = ScalarOf<Real>;
      const auto known = wanted[k] == 0      ? Known<One>::of_ignored()
                         : problem.cols == 0 ? Known<One>::of_none()
                                             : Known<One>::of(sums.largest[k], sums.sum[k]);
      sums.largest[k] = known.largest;
      sums.sum[k] = known.sum;
    }
    const Known<S> known{sums.largest.all(), sums.sum.all()};
    const auto loss = loss_of<S>(call.shares, known, x.all(), weight.all(), S::all(call.weights),
                                 sums.differences.all());
    put<S>(problem.loss, first, count,
           S::choose(S::less(S::zero(), wanted.all()), loss, S::zero()));
    put<S>(problem.largest, first, count, known.largest);
    put<S>(problem.sum, first, count, known.sum);
    if (problem.lse != nullptr) put<S>(problem.lse, first, count, known.lse());
  });
}

// What makes the gradients of some rows.
template <class S>
struct RowFactors {
  Lanes<S> largest, by_weight, by_class;
  Lanes<S> of_target;  // the target's gradient itself
};

// Gradients of row k of some. Those of its target are known, for x may lie where they go.
template <bool kSmooth, class S, class T>
ISOBIT_INLINE void put_gradients(const T* x, const typename S::Real* weight, std::int64_t target,
                                 const RowFactors<S>& factors, int k,
                                 simd::StoredRows<T>& gradients, T* grad_x) {
  using V = typename S::V;
  const V by_weight = S::all(factors.by_weight[k]), by_class = S::all(factors.by_class[k]);
  const V largest = S::all(factors.largest[k]), one = S::all(1);
  // In the vector: a store of its own into a line that was stored past the caches would wait.
  const auto with_target = [&](std::int64_t i, V value) ISOBIT_INLINE_LAMBDA {
    const auto lane = static_cast<std::uint64_t>(target - i);
    if (lane >= std::uint64_t{S::kWidth}) [[likely]]
      return value;
    Lanes<S> lanes;
    lanes.set(value);
    lanes[static_cast<int>(lane)] = factors.of_target[k];
    return lanes.all();
  };
  const auto store = [&](const auto& weight_at) ISOBIT_INLINE_LAMBDA {
    gradients.template store<S>(grad_x, [&](std::int64_t i, auto... part) ISOBIT_INLINE_LAMBDA {
      simd::read_ahead<S::kWidth>(x + i);
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

template <class T, bool kSmooth>
void backward_rows(const BackwardProblem& problem, double weights, std::int64_t begin,
                   std::int64_t end, bool streaming) {
  using S = VectorsOf<T>;
  using Real = typename S::Real;
  const Call<Real> call(problem, static_cast<Real>(weights));
  simd::StoredRows<T> gradients(row_of<T>(problem.grad_x, 0), problem.grad_x.stride, problem.cols,
                                streaming);
  const auto at = [](const std::byte* numbers, std::int64_t row)
                      ISOBIT_INLINE_LAMBDA { return reinterpret_cast<const Real*>(numbers)[row]; };
  in_groups<S>(begin, end, [&](std::int64_t first, int count) ISOBIT_INLINE_LAMBDA {
    RowFactors<S> rows;
    Lanes<S> x, weight, sum, grad;
    for (int k = 0; k < count; ++k) {
      const std::int64_t row = first + k;
      if (call.ignored(row)) continue;
      x[k] = widen<Real>(row_of<const T>(problem.x, row)[problem.target[row]]);
      weight[k] = call.weight_of_row(row);
      rows.largest[k] = at(problem.largest, row);
      sum[k] = at(problem.sum, row);
      grad[k] = at(problem.grad_loss, row);
    }
    const auto factors = Factors<S>::of(call.shares, {rows.largest.all(), sum.all()}, grad.all(),
                                        weight.all(), S::all(call.weights));
    rows.by_weight.set(factors.by_weight);
    rows.by_class.set(factors.by_class);
    rows.of_target.set(S::sub(gradient<S, kSmooth>(factors.by_weight, factors.by_class, x.all(),
                                                   rows.largest.all(), weight.all()),
                              factors.at_target));
    for (int k = 0; k < count; ++k) {
      const std::int64_t row = first + k;
      T* const grad_x = row_of<T>(problem.grad_x, row);
      if (call.ignored(row))
        gradients.template store<S>(
            grad_x, [](std::int64_t, auto...) ISOBIT_INLINE_LAMBDA { return S::zero(); });
      else
        put_gradients<kSmooth>(row_of<const T>(problem.x, row), call.weight, problem.target[row],
                               rows, k, gradients, grad_x);
    }
  });
  gradients.finish();
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
    return smooth ? forward_rows<T, true> : forward_rows<T, false>;
  });
}
BackwardKernel backward_kernel(DType x, bool smooth) {
  return with_type(x, [&]<class T>(T) -> BackwardKernel {
    return smooth ? backward_rows<T, true> : backward_rows<T, false>;
  });
}

}  // namespace isobit::cross_entropy::ISOBIT_ISA
