// SPDX-License-Identifier: Apache-2.0
// The vector loops over rows of the table and of its gradient, compiled once for each instruction
// set.
#include "isobit/ops/embedding/cpu_kernels.h"

#include "isobit/core/order.h"
#include "isobit/ops/embedding/problem.h"
#include "isobit/simd/copies.h"
#include "isobit/simd/row_loops.h"

namespace isobit::embedding::ISOBIT_ISA {
namespace {

using simd::VectorsOf;

// The pair tree over the runs of a chunk holds a sum a level, and the run that comes next.
constexpr int kLevels = 6;
static_assert(kChunk == order::kRun << (kLevels - 2));
constexpr std::int64_t kColumns = 512;  // at a time: the tree stays in the first cache

// Some of the rows of a chunk: a run of the order's.
template <class T>
struct Run {
  using S = VectorsOf<T>;
  const T* rows[order::kRun];
  int count;

  ISOBIT_INLINE Run(const Occurrences& all, std::int64_t first)
      : count(static_cast<int>(all.count - first < order::kRun ? all.count - first : order::kRun)) {
    for (int i = 0; i < count; ++i)
      rows[i] = reinterpret_cast<const T*>(all.grad_y) + all.places[first + i] * all.stride;
  }
  template <class... Part>
  ISOBIT_INLINE typename S::V sum(std::int64_t col, Part... part) const {
    typename S::V sum = S::zero();
    for (int i = 0; i < count; ++i) sum = S::add(sum, S::load(rows[i] + col, part...));
    return sum;
  }
};

// Divides where that is asked for.
template <class S>
struct Divided {
  bool asked;
  typename S::V divisor;

  ISOBIT_INLINE explicit Divided(double by)
      : asked(by != 0), divisor(S::all(static_cast<typename S::Real>(by))) {}
  ISOBIT_INLINE typename S::V operator()(typename S::V sum) const {
    return asked ? S::div(sum, divisor) : sum;
  }
};

// T: of the rows. To: of their sum.
template <class T, class To>
void sum(const Occurrences& all, const Sum& result) {
  using S = VectorsOf<T>;
  using Real = typename S::Real;
  To* const to = reinterpret_cast<To*>(result.to);
  const Divided<S> divided(result.divisor);
  if (all.count <= order::kRun) {
    const Run<T> run(all, 0);
    return simd::store_row<S>(to, all.cols, result.streaming,
                              [&](std::int64_t i, auto... part)
                                  ISOBIT_INLINE_LAMBDA { return divided(run.sum(i, part...)); });
  }
  alignas(64) Real tree[kLevels][kColumns];
  for (std::int64_t begin = 0; begin < all.cols; begin += kColumns) {
    const std::int64_t cols = all.cols - begin < kColumns ? all.cols - begin : kColumns;
    int depth = 0;
    const auto fold = [&]() ISOBIT_INLINE_LAMBDA {
      --depth;
      Real *const into = tree[depth - 1], *const from = tree[depth];
      simd::for_each_vector<S>(cols, [&](std::int64_t i, auto... part) ISOBIT_INLINE_LAMBDA {
        S::store(into + i, S::add(S::load(into + i, part...), S::load(from + i, part...)), part...);
      });
    };
    std::int64_t runs = 0;
    for (std::int64_t first = 0; first < all.count; first += order::kRun) {
      const Run<T> run(all, first);
      simd::for_each_vector<S>(cols, [&](std::int64_t i, auto... part) ISOBIT_INLINE_LAMBDA {
        S::store(tree[depth] + i, run.sum(begin + i, part...), part...);
      });
      ++depth;
      for (std::int64_t count = runs++; count & 1; count >>= 1) fold();
    }
    while (depth > 1) fold();
    simd::store_row<S>(to + begin, cols, result.streaming,
                       [&](std::int64_t i, auto... part)
                           ISOBIT_INLINE_LAMBDA { return divided(S::load(tree[0] + i, part...)); });
  }
}

template <class Real>
void add(std::byte* into_bytes, const std::byte* from_bytes, std::int64_t count) {
  using S = VectorsOf<Real>;
  Real* const into = reinterpret_cast<Real*>(into_bytes);
  const Real* const from = reinterpret_cast<const Real*>(from_bytes);
  simd::for_each_vector<S>(count, [&](std::int64_t i, auto... part) ISOBIT_INLINE_LAMBDA {
    S::store(into + i, S::add(S::load(into + i, part...), S::load(from + i, part...)), part...);
  });
}

template <class T>
void round(const std::byte* from_bytes, const Sum& result, std::int64_t count) {
  using S = VectorsOf<T>;
  const auto* const from = reinterpret_cast<const typename S::Real*>(from_bytes);
  const Divided<S> divided(result.divisor);
  simd::store_row<S>(reinterpret_cast<T*>(result.to), count, result.streaming,
                     [&](std::int64_t i, auto... part)
                         ISOBIT_INLINE_LAMBDA { return divided(S::load(from + i, part...)); });
}

void copy(const std::byte* from, std::byte* to, std::int64_t bytes, bool streaming) {
  if (streaming)
    simd::stream_bytes(from, to, bytes);
  else
    simd::copy_bytes(from, to, bytes);
}

// kernel(T{}) with the type of the rows.
template <class Kernel>
ISOBIT_INLINE_HOST auto with_type(DType dtype, const Kernel& kernel) {
  switch (dtype) {
    case DType::f16:  return kernel(f16{});
    case DType::bf16: return kernel(bf16{});
    case DType::f64:  return kernel(double{});
    default:          return kernel(float{});
  }
}

}  // namespace

CopyKernel copy_kernel() { return copy; }
SumKernel sum_kernel(DType dtype, bool kept) {
  return with_type(dtype, [&]<class T>(T) -> SumKernel {
    return kept ? sum<T, typename VectorsOf<T>::Real> : sum<T, T>;
  });
}
AddKernel add_kernel(DType dtype) { return dtype == DType::f64 ? add<double> : add<float>; }
RoundKernel round_kernel(DType dtype) {
  return with_type(dtype, [&]<class T>(T) -> RoundKernel { return round<T>; });
}

}  // namespace isobit::embedding::ISOBIT_ISA
