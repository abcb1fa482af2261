// SPDX-License-Identifier: Apache-2.0
// A few rows times a matrix that is read once, as it lies in memory.
#include <algorithm>
#include <array>
#include <utility>

#include "isobit/core/order.h"
#include "isobit/ops/matmul/cpu_kernels.h"
#include "isobit/ops/matmul/cpu_lanes.h"
#include "isobit/simd/prefetch.h"

namespace isobit::matmul::ISOBIT_ISA {
namespace {

constexpr int kMostRows = 4;  // at once
// A Zen 3 foresees 8 rows or lanes that are read side by side, lanes to the end of a run; fetching
// takes longer, from the caches above all. 1 x 4096 x 4096 f32 takes 0.95 of the time along and
// 0.62 across; 1 x 768 x 768 takes 0.77 and 0.8 [AMD EPYC 25/1, one thread].
constexpr bool kForeseen = ISOBIT_JOIN(ISOBIT_ISA_, ISOBIT_ISA) == ISOBIT_ISA_avx2;
// Elsewhere few long rows of b are read side by side, for they may share places in the cache: up to
// kAhead, in bytes, each is fetched ahead. Into the second-level cache, for a Zen 4 fetches few
// lines at a time into the first: 1 x 4096 x 4096 f32 had 0.69 of a sweep instead of 1.10.
constexpr std::int64_t kAhead = 2048;
template <class T>
constexpr std::int64_t kFetched = kAhead / sizeof(T);
// Rows of b that pass before a sum returns to memory.
constexpr int kDepth = 8, kLongDepth = kForeseen ? kDepth : 4;

// Sums of kRows rows over kCount rows of b, which are read side by side.
template <class S, int kRows, int kCount, class T>
ISOBIT_INLINE void along_rows(const typename S::Real* a, const T* b, std::int64_t b_stride,
                              typename S::Real* sums, std::int64_t pitch, std::int64_t a_pitch,
                              std::int64_t count, bool adds) {
  using V = typename S::V;
  const bool within = count > kFetched<T>;
  const T* const later = b + kCount * b_stride + (within ? kFetched<T> - count : 0);
  const auto at = [&](std::int64_t j, auto... part) ISOBIT_INLINE_LAMBDA {
    const T* const next = within && j + kFetched<T> < count ? b + j + kFetched<T> : later + j;
    V v[kRows];
#pragma GCC unroll 4
    for (int i = 0; i < kRows; ++i)
      v[i] = adds ? S::load(sums + i * pitch + j, part...) : S::zero();
#pragma GCC unroll 8
    for (int k = 0; k < kCount; ++k) {
      const V column = S::load(b + k * b_stride + j, part...);
      if constexpr (!kForeseen) simd::fetch_to_second_cache(next + k * b_stride);
#pragma GCC unroll 4
      for (int i = 0; i < kRows; ++i) v[i] = S::fma(S::all(a[i * a_pitch + k]), column, v[i]);
    }
#pragma GCC unroll 4
    for (int i = 0; i < kRows; ++i)
      S::template store<simd::Stores::cached, simd::Nan::absent>(sums + i * pitch + j, v[i],
                                                                 part...);
  };
  std::int64_t j = 0;
  for (; j + S::kWidth <= count; j += S::kWidth) at(j);
  if (j < count) at(j, S::first(count - j));
}

template <class S, class T, int kRows>
void along_some(const Few& few, std::int64_t row) {
  using Real = typename S::Real;
  const auto* a = static_cast<const Real*>(few.a) + row * few.a_pitch;
  const auto* b = reinterpret_cast<const T*>(few.b.data);
  Real* sums = static_cast<Real*>(few.sums) + row * few.pitch;
  std::int64_t k = 0;
  const auto pass = [&](auto depth) ISOBIT_INLINE_LAMBDA {
    for (; k + depth <= few.k; k += depth)
      along_rows<S, kRows, depth>(a + k, b + k * few.b.k_stride, few.b.k_stride, sums, few.pitch,
                                  few.a_pitch, few.b.count, k > 0);
  };
  if (few.b.count > kFetched<T>)
    pass(std::integral_constant<int, kLongDepth>());
  else
    pass(std::integral_constant<int, kDepth>());
  pass(std::integral_constant<int, 1>());
}

// Fetches lanes of b two chunks ahead, in the order of memory, which processors foresee, unlike the
// order in which vectors of them are read: some elements of one lane after the other.
template <class T, int kLanes>
class Ahead {
 public:
  explicit Ahead(const Few& few)
      : lanes_(reinterpret_cast<const T*>(few.b.data)), stride_(few.b.stride), k_(few.k) {
    next_chunk();
    next_chunk();
  }
  // Of each k, kLanes elements of one of as many lanes.
  ISOBIT_INLINE void fetch() {
    simd::fetch_to_second_cache(lanes_ + lane_ * stride_ + begin_ + at_);
    at_ += kLanes;
    if (at_ < count_) return;
    at_ = 0;
    if (++lane_ < kLanes) return;
    lane_ = 0;
    next_chunk();
  }

 private:
  static constexpr std::int64_t kChunk = 128;

  ISOBIT_INLINE void next_chunk() {
    begin_ += kChunk;
    if (begin_ >= k_) {
      begin_ = 0;
      lanes_ += kLanes * stride_;
    }
    count_ = k_ - begin_ < kChunk ? k_ - begin_ : kChunk;
  }

  const T* lanes_;
  std::int64_t stride_, k_, begin_ = 0, count_ = 0, lane_ = 0, at_ = 0;
};

template <class S, class T, int kRows>
void across_some(const Few& few, std::int64_t row) {
  using Real = typename S::Real;
  // Chains of fma's wait for each other: few rows of short vectors need more of them.
  constexpr int kGroups = kRows <= 2 && S::kWidth < 16 && !kForeseen ? 2 : 1;
  constexpr int kLanes = kGroups * S::kWidth;
  const auto* a = static_cast<const Real*>(few.a) + row * few.a_pitch;
  const auto* b = reinterpret_cast<const T*>(few.b.data);
  Ahead<T, kLanes> ahead(few);
  for (std::int64_t j = 0; j < few.b.count; j += kLanes) {
    typename S::V sums[kRows][kGroups], totals[kRows][kGroups];
    const auto each = [&](const auto& body) ISOBIT_INLINE_LAMBDA {
#pragma GCC unroll 4
      for (int i = 0; i < kRows; ++i)
#pragma GCC unroll 2
        for (int g = 0; g < kGroups; ++g) body(i, g);
    };
    each([&](int i, int g) ISOBIT_INLINE_LAMBDA { totals[i][g] = S::zero(); });  // k may be 0
    for (std::int64_t panel = 0; panel < few.k; panel += order::kPanel) {
      each([&](int i, int g) ISOBIT_INLINE_LAMBDA { sums[i][g] = S::zero(); });
      across<S, kGroups>(
          b + j * few.b.stride + panel, few.b.stride, few.b.count - j,
          std::min<std::int64_t>(order::kPanel, few.k - panel),
          [&](std::int64_t k, const typename S::V(&columns)[kGroups]) ISOBIT_INLINE_LAMBDA {
            if constexpr (!kForeseen) ahead.fetch();
            each([&](int i, int g) ISOBIT_INLINE_LAMBDA {
              sums[i][g] = S::fma(S::all(a[i * few.a_pitch + panel + k]), columns[g], sums[i][g]);
            });
          });
      each([&](int i, int g) ISOBIT_INLINE_LAMBDA {
        totals[i][g] = panel == 0 ? sums[i][g] : S::add(sums[i][g], totals[i][g]);
      });
    }
    Real* to = static_cast<Real*>(few.sums) + row * few.pitch + j;
    for (int i = 0; i < kRows; ++i)
      for (int g = 0; g < kGroups; ++g) {
        const std::int64_t left = few.b.count - j - g * S::kWidth;
        if (left <= 0) continue;
        S::template store<simd::Stores::cached, simd::Nan::absent>(
            to + i * few.pitch + g * S::kWidth, totals[i][g], S::first(left));
      }
  }
}

// Rows of a in groups of at most kMostRows, as equal as they can be.
template <class Some>
ISOBIT_INLINE void in_groups(const Few& few, const Some& some) {
  const std::int64_t groups = (few.m + kMostRows - 1) / kMostRows;
  for (std::int64_t group = 0; group < groups; ++group) {
    const std::int64_t begin = few.m * group / groups, end = few.m * (group + 1) / groups;
    switch (end - begin) {
      case 1:  some(std::integral_constant<int, 1>(), begin); break;
      case 2:  some(std::integral_constant<int, 2>(), begin); break;
      case 3:  some(std::integral_constant<int, 3>(), begin); break;
      default: some(std::integral_constant<int, 4>(), begin); break;
    }
  }
}

template <class T>
void along(const Few& few) {
  in_groups(few, [&](auto rows, std::int64_t row) ISOBIT_INLINE_LAMBDA {
    along_some<VectorsOf<T>, T, decltype(rows)::value>(few, row);
  });
}
template <class T>
void across_all(const Few& few) {
  in_groups(few, [&](auto rows, std::int64_t row) ISOBIT_INLINE_LAMBDA {
    across_some<VectorsOf<T>, T, decltype(rows)::value>(few, row);
  });
}

// Lanes are read to the end of a run: panel by panel 1 x 50257 x 768 f32 took 1.33 of the time
// [Intel Xeon 6/167, one thread].
template <class T>
constexpr FewKernels kFewKernels = {along<T>, across_all<T>,
                                    std::int64_t{order::kPanel} * order::kRun};

}  // namespace

const FewKernels& few_kernels(DType a) {
  switch (a) {
    case DType::f16:  return kFewKernels<f16>;
    case DType::bf16: return kFewKernels<bf16>;
    case DType::f64:  return kFewKernels<double>;
    default:          return kFewKernels<float>;
  }
}

}  // namespace isobit::matmul::ISOBIT_ISA
