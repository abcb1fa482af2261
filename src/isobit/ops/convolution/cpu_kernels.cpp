// SPDX-License-Identifier: Apache-2.0
// Products whose second factor is read where it lies: shifted views of staged images.
#include "isobit/ops/convolution/cpu_kernels.h"

#include <algorithm>
#include <array>
#include <type_traits>
#include <utility>

#include "isobit/core/order.h"
#include "isobit/ops/convolution/cpu_shape.h"
#include "isobit/simd/lanes.h"
#include "isobit/simd/prefetch.h"

namespace isobit::convolution::ISOBIT_ISA {
namespace {

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
    if constexpr (kPacked) {
      simd::fetch_ahead<kVectors * S::kWidth>(b);
      b += kVectors * S::kWidth;
    }
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

// Gathered columns of a panel: runs of them are adjacent in b and in c.
template <class S>
struct Gathered {
  struct Run {
    std::int64_t from, to;
    int at, count;
  } runs[Shape::kVectors * S::kWidth];
  int count = 0;

  Gathered(const Product& product, std::int64_t col, int cols) {
    const auto some = static_cast<int>(std::min<std::int64_t>(cols, product.n - col));
    for (int at = 0; at < some; ++count) {
      const std::int64_t line = (col + at) / product.line_cols, in = (col + at) % product.line_cols;
      const auto of_line =
          static_cast<int>(std::min<std::int64_t>(product.line_cols - in, some - at));
      runs[count] = {product.lines == nullptr ? 0 : product.lines[line] + in,
                     product.places == nullptr ? col + at : product.places[line] + in, at, of_line};
      at += of_line;
    }
  }
};

// A panel of columns from one on, line k at to + k * cols. Of gathered ones whole vectors are put
// run by run, each over the end of the one before, as far as the line goes.
template <class S>
void pack_columns(const Product& product, std::int64_t col, int cols, typename S::Real* to) {
  const auto* b = static_cast<const typename S::Real*>(product.b);
  if (product.lines == nullptr) {
    for (std::int64_t k = 0; k < product.k; ++k)
      for (int i = 0; i < cols; i += S::kWidth)
        put<S>(to + k * cols + i, S::load(b + product.offsets[k] + col + i));
    return;
  }
  const Gathered<S> gathered(product, col, cols);
  const auto put_vectors = [&](std::int64_t from, int at, auto... part) ISOBIT_INLINE_LAMBDA {
    for (std::int64_t k = 0; k < product.k; ++k)
      put<S>(to + k * cols + at, S::load(b + product.offsets[k] + from), part...);
  };
  for (int i = 0; i < gathered.count; ++i) {
    const auto& run = gathered.runs[i];
    for (int done = 0; done < run.count; done += S::kWidth) {
      const int at = run.at + done;
      if (at + S::kWidth <= cols)
        put_vectors(run.from + done, at);
      else
        put_vectors(run.from + done, at, S::first(cols - at));
    }
  }
}

// Of a last panel half of a panel, if that is all it needs.
template <class S>
ISOBIT_INLINE int panel_cols(std::int64_t left) {
  return left <= S::kWidth ? S::kWidth : Shape::kVectors * S::kWidth;
}

template <class S>
void pack(const Product& product, void* to) {
  constexpr int kCols = Shape::kVectors * S::kWidth;
  for (std::int64_t col = 0; col < product.n; col += kCols)
    pack_columns<S>(product, col, panel_cols<S>(product.n - col),
                    static_cast<typename S::Real*>(to) + col * product.k);
}

// A tile of sums whose columns lie in runs: they are made side by side, and brought there.
template <class S>
void multiply_apart(const Product& product, const Gathered<S>& gathered, TileKernel<S> kernel,
                    const typename S::Real* a, const typename S::Real* b, typename S::Real* c,
                    std::int64_t rows) {
  using Real = typename S::Real;
  constexpr int kCols = Shape::kVectors * S::kWidth;
  alignas(64) Real tile[Shape::kRows * kCols];
  Product inner = product;
  inner.pitch = kCols;
  if (product.start == Product::onto_sum) inner.start = Product::from_zero;
  // visit(of the tile, of c, of a vector or the part that a run has of it)
  const auto for_each_vector = [&](const auto& visit) ISOBIT_INLINE_LAMBDA {
    for (int r = 0; r < gathered.count; ++r) {
      const auto& run = gathered.runs[r];
      int done = 0;
      for (; done + S::kWidth <= run.count; done += S::kWidth)
        for (std::int64_t i = 0; i < rows; ++i)
          visit(tile + i * kCols + run.at + done, c + i * product.pitch + run.to + done);
      if (done == run.count) continue;
      const auto part = S::first(run.count - done);
      for (std::int64_t i = 0; i < rows; ++i)
        visit(tile + i * kCols + run.at + done, c + i * product.pitch + run.to + done, part);
    }
  };
  if (product.start == Product::going_on)
    for_each_vector([](Real* of_tile, Real* of_c, auto... part)
                        ISOBIT_INLINE_LAMBDA { put<S>(of_tile, S::load(of_c, part...), part...); });
  kernel(inner, a, b, tile);
  if (product.start == Product::onto_sum)
    for_each_vector([](Real* of_tile, Real* of_c, auto... part) ISOBIT_INLINE_LAMBDA {
      put<S>(of_c, S::add(S::load(of_c, part...), S::load(of_tile, part...)), part...);
    });
  else
    for_each_vector([](Real* of_tile, Real* of_c, auto... part)
                        ISOBIT_INLINE_LAMBDA { put<S>(of_c, S::load(of_tile, part...), part...); });
}

template <class S>
void multiply(const Product& product) {
  using Real = typename S::Real;
  constexpr int kCols = Shape::kVectors * S::kWidth;
  alignas(64) Real packed[order::kPanel * kCols + S::kWidth];
  const auto *a = static_cast<const Real*>(product.a), *b = static_cast<const Real*>(product.b);
  const std::int64_t all = (product.m + Shape::kRows - 1) / Shape::kRows;
  const std::int64_t panels = product.panels == 0 ? all : product.panels;
  const std::int64_t a_step = Shape::kRows * (product.a_k == 0 ? product.k : product.a_k);
  const auto row = [&](std::int64_t panel) ISOBIT_INLINE_LAMBDA {
    return product.m * (product.first_panel + panel) / all;
  };
  const bool gathers = product.lines != nullptr;
  const bool packs = panels >= kWorthPacking && product.k <= order::kPanel;
  for (std::int64_t col = 0; col < product.n; col += kCols) {
    const bool narrow = product.n - col <= S::kWidth;
    const bool packs_here = !product.is_packed && (gathers || (packs && !narrow));
    if (packs_here) pack_columns<S>(product, col, panel_cols<S>(product.n - col), packed);
    const Real* const columns = product.is_packed ? b + col * product.k
                                : packs_here      ? packed
                                                  : b + col;
    const auto& packed_kernels = narrow ? kTiles<S, 1, true> : kTiles<S, Shape::kVectors, true>;
    const auto& lying_kernels = narrow ? kTiles<S, 1, false> : kTiles<S, Shape::kVectors, false>;
    const auto& kernels = packs_here || product.is_packed ? packed_kernels : lying_kernels;
    const auto for_each_panel = [&](const auto& visit) ISOBIT_INLINE_LAMBDA {
      for (std::int64_t panel = 0; panel < panels; ++panel) {
        const std::int64_t begin = row(panel), rows = row(panel + 1) - begin;
        visit(kernels[static_cast<std::size_t>(rows - 1)], a + panel * a_step,
              static_cast<Real*>(product.c) + (begin - row(0)) * product.pitch, rows);
      }
    };
    if (product.places == nullptr) {
      for_each_panel([&](TileKernel<S> kernel, const Real* weights, Real* c, std::int64_t) {
        kernel(product, weights, columns, c + col);
      });
    } else {
      const Gathered<S> gathered(product, col, kCols);
      for_each_panel([&](TileKernel<S> kernel, const Real* weights, Real* c, std::int64_t rows) {
        multiply_apart<S>(product, gathered, kernel, weights, columns, c, rows);
      });
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
constexpr ProductKernel kProduct = {Shape::kRows, Shape::kVectors* S::kWidth, multiply<S>, pack<S>,
                                    multiply_one<S>};

template <class T>
void stage(const Lines& lines) {
  using S = VectorsOf<T>;
  using Real = typename S::Real;
  const auto for_part = [](Real* to, std::int64_t count, const auto& value) ISOBIT_INLINE_LAMBDA {
    std::int64_t i = 0;
    for (; i + S::kWidth <= count; i += S::kWidth) put<S>(to + i, value(i));
    if (i < count) {
      const auto part = S::first(count - i);
      put<S>(to + i, value(i, part), part);
    }
  };
  const auto zero = [](std::int64_t, auto...) ISOBIT_INLINE_LAMBDA { return S::zero(); };
  const std::int64_t count = lines.end - lines.begin;
  for (std::int64_t line = 0; line < lines.lines; ++line) {
    const auto* from = reinterpret_cast<const T*>(lines.from) + line * lines.line_stride;
    Real* const to = static_cast<Real*>(lines.to) + line * lines.cols;
    for_part(to, lines.begin, zero);
    if (lines.stride == 1)
      for_part(to + lines.begin, count, [&](std::int64_t i, auto... part) ISOBIT_INLINE_LAMBDA {
        return S::load(from + i, part...);
      });
    else
      for (std::int64_t i = 0; i < count; ++i)
        to[lines.begin + i] = widen<Real>(from[i * lines.stride]);
    for_part(to + lines.end, lines.cols - lines.end, zero);
  }
}

// Lines of elements become columns: value(vector) of so many lines each. kApart: in planes.
template <class From, class To, bool kApart, class Value>
ISOBIT_INLINE void turn_to(const Turned& turned, const Value& value) {
  using S = VectorsOf<From>;
  for (std::int64_t c = 0; c < turned.channels; c += S::kWidth) {
    const auto* from = reinterpret_cast<const From*>(turned.from) + c * turned.channel_stride;
    const std::int64_t left = turned.channels - c, pitch = turned.pitch;
    To* line = static_cast<To*>(turned.to) + c;
    std::int64_t plane = turned.first;
    simd::across<S, 1>(from, turned.channel_stride, left, turned.count,
                       [&](std::int64_t, const auto& vectors) ISOBIT_INLINE_LAMBDA {
                         To* const to = kApart ? line + plane * turned.plane : line;
                         if (!kApart || ++plane == turned.planes) plane = 0, line += pitch;
                         const auto result = value(vectors[0]);
                         if (left >= S::kWidth)
                           S::template store<simd::Stores::cached>(to, result);
                         else
                           S::template store<simd::Stores::cached>(to, result, S::first(left));
                       });
  }
}
template <class From, class To, class Value>
ISOBIT_INLINE void turn_all(const Turned& turned, const Value& value) {
  if (turned.planes == 1)
    turn_to<From, To, false>(turned, value);
  else
    turn_to<From, To, true>(turned, value);
}

template <class T>
void turn(const Turned& turned) {
  using S = VectorsOf<T>;
  turn_all<T, typename S::Real>(turned,
                                [](typename S::V element) ISOBIT_INLINE_LAMBDA { return element; });
}

template <class T>
void settle(const Turned& turned) {
  using S = VectorsOf<T>;
  turn_all<typename S::Real, T>(
      turned, [](typename S::V sum) ISOBIT_INLINE_LAMBDA { return S::add(sum, S::zero()); });
}

// Sums of kTaps taps, from tap `first` on.
template <class S, int kTaps>
ISOBIT_INLINE void abreast_taps(const Abreast& abreast, std::int64_t first) {
  using Real = typename S::Real;
  using V = typename S::V;
  const std::int64_t* const taps = abreast.taps + first;
  for (std::int64_t lane = 0; lane < kAbreast; lane += S::kWidth) {
    const Real* const grads = static_cast<const Real*>(abreast.grads) + lane;
    const Real* const sources = static_cast<const Real*>(abreast.sources) + lane;
    Real* const to = static_cast<Real*>(abreast.sums) + first * kAbreast + lane;
    V sums[kTaps];
#pragma GCC unroll 16
    for (int t = 0; t < kTaps; ++t)
      sums[t] = abreast.goes_on ? S::load(to + t * kAbreast) : S::zero();
    for (std::int64_t i = 0; i < abreast.positions; ++i) {
      const V grad = S::load(grads + i * kAbreast);
      const Real* const source = sources + abreast.offsets[i];
#pragma GCC unroll 16
      for (int t = 0; t < kTaps; ++t) sums[t] = S::fma(grad, S::load(source + taps[t]), sums[t]);
    }
#pragma GCC unroll 16
    for (int t = 0; t < kTaps; ++t) put<S>(to + t * kAbreast, sums[t]);
  }
}

template <class S>
void abreast_of(const Abreast& abreast) {
  constexpr int kMost = 9;  // 3 x 3
  std::int64_t first = 0;
  for (; first + kMost <= abreast.count; first += kMost) abreast_taps<S, kMost>(abreast, first);
  for (; first + 3 <= abreast.count; first += 3) abreast_taps<S, 3>(abreast, first);
  for (; first < abreast.count; ++first) abreast_taps<S, 1>(abreast, first);
}

template <class S>
void interleave_lines(const void* const* lines, std::int64_t count, void* to) {
  using Real = typename S::Real;
  constexpr int kWidth = S::kWidth;
  for (std::int64_t lane = 0; lane < kAbreast; lane += kWidth)
    for (std::int64_t i = 0; i < count; i += kWidth) {
      typename S::V square[kWidth];
#pragma GCC unroll 16
      for (int line = 0; line < kWidth; ++line)
        square[line] = S::load(static_cast<const Real*>(lines[lane + line]) + i);
      if constexpr (kWidth > 1) simd::transpose<S>(square);
#pragma GCC unroll 16
      for (int j = 0; j < kWidth; ++j)
        put<S>(static_cast<Real*>(to) + (i + j) * kAbreast + lane, square[j]);
    }
}

}  // namespace

const ProductKernel& product_kernel(DType real) {
  return real == DType::f64 ? kProduct<simd::F64> : kProduct<simd::F32>;
}

AbreastKernel abreast_kernel(DType real) {
  return real == DType::f64 ? abreast_of<simd::F64> : abreast_of<simd::F32>;
}

InterleaveKernel interleave_kernel(DType real) {
  return real == DType::f64 ? interleave_lines<simd::F64> : interleave_lines<simd::F32>;
}

StageKernel stage_kernel(DType element) {
  switch (element) {
    case DType::f16:  return stage<f16>;
    case DType::bf16: return stage<bf16>;
    case DType::f64:  return stage<double>;
    default:          return stage<float>;
  }
}

SettleKernel settle_kernel(DType element) {
  switch (element) {
    case DType::f16:  return settle<f16>;
    case DType::bf16: return settle<bf16>;
    case DType::f64:  return settle<double>;
    default:          return settle<float>;
  }
}

TurnKernel turn_kernel(DType element) {
  switch (element) {
    case DType::f16:  return turn<f16>;
    case DType::bf16: return turn<bf16>;
    case DType::f64:  return turn<double>;
    default:          return turn<float>;
  }
}

}  // namespace isobit::convolution::ISOBIT_ISA
