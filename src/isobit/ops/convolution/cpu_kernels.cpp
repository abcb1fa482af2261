// SPDX-License-Identifier: Apache-2.0
// Products whose second factor is read where it lies: shifted views of staged images.
#include "isobit/ops/convolution/cpu_kernels.h"

#include <algorithm>
#include <array>
#include <type_traits>
#include <utility>

#include "isobit/core/order.h"
#include "isobit/simd/vec.h"

namespace isobit::convolution::ISOBIT_ISA {
namespace {

template <class T>
using VectorsOf = std::conditional_t<std::is_same_v<T, double>, simd::F64, simd::F32>;

template <class S>
ISOBIT_INLINE void put(typename S::Real* to, typename S::V value) {
  S::template store<simd::Stores::cached, simd::Nan::absent>(to, value);
}

// The largest tile of sums that leaves registers for what they are made of.
struct Shape {
#if ISOBIT_JOIN(ISOBIT_ISA_, ISOBIT_ISA) == ISOBIT_ISA_avx512
  static constexpr int kRows = 14, kVectors = 2;
#elif ISOBIT_JOIN(ISOBIT_ISA_, ISOBIT_ISA) == ISOBIT_ISA_avx2
  static constexpr int kRows = 6, kVectors = 2;
#elif ISOBIT_JOIN(ISOBIT_ISA_, ISOBIT_ISA) == ISOBIT_ISA_neon
  static constexpr int kRows = 8, kVectors = 3;
#else
  static constexpr int kRows = 4, kVectors = 2;
#endif
};

template <class S>
using TileKernel = void (*)(const Product& product, const typename S::Real* a,
                            const typename S::Real* b, typename S::Real* c);

// b anywhere; or a panel of its columns, line after line.
template <class S, int kRows, int kVectors, bool kPacked>
void tile(const Product& product, const typename S::Real* a, const typename S::Real* b,
          typename S::Real* c) {
  using V = typename S::V;
  const bool goes_on = product.start == Product::going_on;
  V sums[kRows][kVectors];
#pragma GCC unroll 16
  for (int i = 0; i < kRows; ++i)
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v)
      sums[i][v] = goes_on ? S::load(c + i * product.pitch + v * S::kWidth) : S::zero();
  const std::int64_t* const offsets = product.offsets;
  for (std::int64_t k = 0; k < product.k; ++k) {
    const typename S::Real* const line = kPacked ? b : b + offsets[k];
    V columns[kVectors];
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) columns[v] = S::load(line + v * S::kWidth);
    if constexpr (kPacked) b += kVectors * S::kWidth;
#pragma GCC unroll 16
    for (int i = 0; i < kRows; ++i) {
      const V weight = S::all(a[i]);
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) sums[i][v] = S::fma(weight, columns[v], sums[i][v]);
    }
    a += Shape::kRows;
  }
  const bool adds = product.start == Product::onto_sum;
#pragma GCC unroll 16
  for (int i = 0; i < kRows; ++i)
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      typename S::Real* const to = c + i * product.pitch + v * S::kWidth;
      put<S>(to, adds ? S::add(S::load(to), sums[i][v]) : sums[i][v]);
    }
}

// Kernels for 1 to kRows rows, by vectors.
template <class S, int kVectors, bool kPacked, int... kLess>
constexpr auto tiles_of(std::integer_sequence<int, kLess...>) {
  return std::array<TileKernel<S>, sizeof...(kLess)>{tile<S, kLess + 1, kVectors, kPacked>...};
}
template <class S, int kVectors, bool kPacked>
constexpr auto kTiles =
    tiles_of<S, kVectors, kPacked>(std::make_integer_sequence<int, Shape::kRows>());

// A panel of columns from one on, line k at to + k * cols. Of gathered ones whole vectors are put
// one over the end of the other, and so over the next line, which comes later.
template <class S>
void pack_columns(const Product& product, std::int64_t col, int cols, typename S::Real* to) {
  const auto* b = static_cast<const typename S::Real*>(product.b);
  const auto put_line = [&](const typename S::Real* from, typename S::Real* line, int count)
                            ISOBIT_INLINE_LAMBDA {
                              for (int i = 0; i < count; i += S::kWidth)
                                put<S>(line + i, S::load(from + i));
                            };
  if (product.lines == nullptr) {
    for (std::int64_t k = 0; k < product.k; ++k)
      put_line(b + product.offsets[k] + col, to + k * cols, cols);
    return;
  }
  struct Part {
    std::int64_t from;
    int at, count;
  } parts[Shape::kVectors * S::kWidth];
  int many = 0;
  const auto some = static_cast<int>(std::min<std::int64_t>(cols, product.n - col));
  for (int at = 0; at < some; ++many) {
    const std::int64_t line = (col + at) / product.line_cols, in = (col + at) % product.line_cols;
    const auto count = static_cast<int>(std::min<std::int64_t>(product.line_cols - in, some - at));
    parts[many] = {product.lines[line] + in, at, count};
    at += count;
  }
  for (std::int64_t k = 0; k < product.k; ++k)
    for (int i = 0; i < many; ++i)
      put_line(b + product.offsets[k] + parts[i].from, to + k * cols + parts[i].at, parts[i].count);
}

template <class S>
void multiply(const Product& product) {
  using Real = typename S::Real;
  constexpr int kCols = Shape::kVectors * S::kWidth;
  alignas(64) Real packed[order::kPanel * kCols + S::kWidth];
  const auto *a = static_cast<const Real*>(product.a), *b = static_cast<const Real*>(product.b);
  const std::int64_t panels = (product.m + Shape::kRows - 1) / Shape::kRows;
  const bool gathers = product.lines != nullptr;
  const bool packs = panels >= kWorthPacking && product.k <= order::kPanel;
  for (std::int64_t col = 0; col < product.n; col += kCols) {
    const bool narrow = product.n - col <= S::kWidth;
    const bool packs_here = gathers || (packs && !narrow);
    if (packs_here) pack_columns<S>(product, col, narrow ? S::kWidth : kCols, packed);
    const auto& packed_kernels = narrow ? kTiles<S, 1, true> : kTiles<S, Shape::kVectors, true>;
    const auto& lying_kernels = narrow ? kTiles<S, 1, false> : kTiles<S, Shape::kVectors, false>;
    const auto& kernels = packs_here ? packed_kernels : lying_kernels;
    for (std::int64_t panel = 0; panel < panels; ++panel) {
      const std::int64_t begin = product.m * panel / panels, end = product.m * (panel + 1) / panels;
      kernels[static_cast<std::size_t>(end - begin - 1)](
          product, a + panel * Shape::kRows * product.k, packs_here ? packed : b + col,
          static_cast<Real*>(product.c) + begin * product.pitch + col);
    }
  }
}

// Chains that do not wait for each other.
template <class S, int kRows, int kVectors>
void tile_of_one(const Product& product, const typename S::Real* b, std::int64_t b_step,
                 typename S::Real* c) {
  using V = typename S::V;
  const bool goes_on = product.start == Product::going_on;
  V sums[kRows][kVectors];
#pragma GCC unroll 8
  for (int i = 0; i < kRows; ++i)
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v)
      sums[i][v] = goes_on ? S::load(c + i * product.pitch + v * S::kWidth) : S::zero();
  const auto* a = static_cast<const typename S::Real*>(product.a);
  for (std::int64_t k = 0; k < product.k; ++k, a += Shape::kRows) {
    const typename S::Real* const line = b + product.offsets[k];
    const V weight = S::all(*a);
#pragma GCC unroll 8
    for (int i = 0; i < kRows; ++i)
#pragma GCC unroll 2
      for (int v = 0; v < kVectors; ++v)
        sums[i][v] = S::fma(weight, S::load(line + i * b_step + v * S::kWidth), sums[i][v]);
  }
#pragma GCC unroll 8
  for (int i = 0; i < kRows; ++i)
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) put<S>(c + i * product.pitch + v * S::kWidth, sums[i][v]);
}

template <class S>
void multiply_one(const Product& product, std::int64_t b_step) {
  using Real = typename S::Real;
  constexpr int kMost = 6, kCols = 2 * S::kWidth;
  for (std::int64_t row = 0; row < product.m; row += kMost)
    for (std::int64_t col = 0; col < product.n; col += kCols) {
      const Real* const b = static_cast<const Real*>(product.b) + row * b_step + col;
      Real* const c = static_cast<Real*>(product.c) + row * product.pitch + col;
      const auto of = [&](auto rows) ISOBIT_INLINE_LAMBDA {
        constexpr int kRows = decltype(rows)::value;
        if (product.n - col <= S::kWidth)
          tile_of_one<S, kRows, 1>(product, b, b_step, c);
        else
          tile_of_one<S, kRows, 2>(product, b, b_step, c);
      };
      switch (std::min<std::int64_t>(kMost, product.m - row)) {
        case 1:  of(std::integral_constant<int, 1>()); break;
        case 2:  of(std::integral_constant<int, 2>()); break;
        case 3:  of(std::integral_constant<int, 3>()); break;
        case 4:  of(std::integral_constant<int, 4>()); break;
        case 5:  of(std::integral_constant<int, 5>()); break;
        default: of(std::integral_constant<int, 6>()); break;
      }
    }
}

template <class S>
constexpr ProductKernel kProduct = {Shape::kRows, Shape::kVectors* S::kWidth, multiply<S>,
                                    multiply_one<S>};

// kVectors vectors of lead and, if there is one, of trail.
template <class S, int kVectors, bool kTwo>
ISOBIT_INLINE void along(const Rows& rows, std::int64_t col) {
  using Real = typename S::Real;
  using V = typename S::V;
  const auto* source = static_cast<const Real*>(rows.source) + col;
  const auto* weights = static_cast<const Real*>(rows.weights);
  V lead[kVectors], trail[kVectors];
#pragma GCC unroll 8
  for (int v = 0; v < kVectors; ++v) lead[v] = trail[v] = S::zero();
  const auto row = [&](auto to_lead, auto to_trail) ISOBIT_INLINE_LAMBDA {
    for (std::int64_t i = 0; i < rows.in_row; ++i) {
      const Real* const line = source + rows.offsets[i];
      V columns[kVectors];
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) columns[v] = S::load(line + v * S::kWidth);
      if constexpr (decltype(to_lead)::value) {
        const V weight = S::all(weights[i]);
#pragma GCC unroll 8
        for (int v = 0; v < kVectors; ++v) lead[v] = S::fma(weight, columns[v], lead[v]);
      }
      if constexpr (decltype(to_trail)::value) {
        const V weight = S::all(weights[i - rows.in_row]);
#pragma GCC unroll 8
        for (int v = 0; v < kVectors; ++v) trail[v] = S::fma(weight, columns[v], trail[v]);
      }
    }
    source += rows.row_step;
    weights += rows.in_row;
  };
  constexpr std::true_type kYes;
  constexpr std::false_type kNo;
  if constexpr (kTwo) {
    row(kYes, kNo);
    for (std::int64_t tap = 1; tap < rows.tap_rows; ++tap) row(kYes, kYes);
    row(kNo, kYes);
  } else {
    for (std::int64_t tap = 0; tap < rows.tap_rows; ++tap) row(kYes, kNo);
  }
#pragma GCC unroll 8
  for (int v = 0; v < kVectors; ++v) {
    put<S>(static_cast<Real*>(rows.lead) + col + v * S::kWidth, lead[v]);
    if constexpr (kTwo) put<S>(static_cast<Real*>(rows.trail) + col + v * S::kWidth, trail[v]);
  }
}

template <class S, bool kTwo>
ISOBIT_INLINE void along_all(const Rows& rows) {
  constexpr int kMost = kTwo ? 4 : 8;
  std::int64_t col = 0;
  for (; rows.count - col > (kMost - 1) * S::kWidth; col += kMost * S::kWidth)
    along<S, kMost, kTwo>(rows, col);
  for (; rows.count - col > S::kWidth; col += 2 * S::kWidth) along<S, 2, kTwo>(rows, col);
  if (col < rows.count) along<S, 1, kTwo>(rows, col);
}

template <class S>
void rows_of(const Rows& rows) {
  if (rows.trail != nullptr)
    along_all<S, true>(rows);
  else
    along_all<S, false>(rows);
}

template <class T>
void stage(const std::byte* from_bytes, std::int64_t stride, std::int64_t count, void* to_bytes) {
  using S = VectorsOf<T>;
  const auto* from = reinterpret_cast<const T*>(from_bytes);
  auto* to = static_cast<typename S::Real*>(to_bytes);
  std::int64_t i = 0;
  if (stride == 1)
    for (; i + S::kWidth <= count; i += S::kWidth) put<S>(to + i, S::load(from + i));
  for (; i < count; ++i) to[i] = widen<typename S::Real>(from[i * stride]);
}

}  // namespace

const ProductKernel& product_kernel(DType real) {
  return real == DType::f64 ? kProduct<simd::F64> : kProduct<simd::F32>;
}

RowsKernel rows_kernel(DType real) {
  return real == DType::f64 ? rows_of<simd::F64> : rows_of<simd::F32>;
}

StageKernel stage_kernel(DType element) {
  switch (element) {
    case DType::f16:  return stage<f16>;
    case DType::bf16: return stage<bf16>;
    case DType::f64:  return stage<double>;
    default:          return stage<float>;
  }
}

}  // namespace isobit::convolution::ISOBIT_ISA
