// SPDX-License-Identifier: Apache-2.0
// Packing, the product of packed panels, and what becomes of its sums.
#include "isobit/ops/matmul/cpu_kernels.h"

#include <array>
#include <cstring>
#include <utility>

#include "isobit/core/amx.h"
#include "isobit/ops/matmul/cpu_lanes.h"
#include "isobit/ops/matmul/cpu_shape.h"
#include "isobit/ops/matmul/formula.h"
#include "isobit/simd/prefetch.h"
#include "isobit/simd/read_ahead.h"

namespace isobit::matmul::ISOBIT_ISA {
namespace {

template <class S>
struct Shape : LargestTile {
  static constexpr int kCols = kVectors * S::kWidth;
  static constexpr int kRowPitch = (kRows + S::kWidth - 1) / S::kWidth * S::kWidth;
};

// Lanes that are adjacent, in vectors of which there is room for kVectors.
template <class S, int kVectors, class T>
ISOBIT_INLINE void pack_along(const T* from, std::int64_t k_stride, std::int64_t count,
                              std::int64_t k, typename S::Real* to) {
  constexpr auto kCached = simd::Stores::cached;
  constexpr auto kAsIs = simd::Nan::absent;
  for (std::int64_t i = 0; i < k; ++i) {
    const T* line = from + i * k_stride;
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      const std::int64_t left = count - v * S::kWidth;
      S::template store<kCached, kAsIs>(to + v * S::kWidth,
                                        left >= S::kWidth ? S::load(line + v * S::kWidth)
                                        : left > 0 ? S::load(line + v * S::kWidth, S::first(left))
                                                   : S::zero());
    }
    to += kVectors * S::kWidth;
  }
}

// `count` lanes as one panel: k after k, kVectors vectors each. Lanes beyond it do not matter; they
// may be the next ones of the matrix.
template <class S, int kVectors, class T>
ISOBIT_INLINE void pack_panel(const T* from, const Lanes& lanes, std::int64_t count, std::int64_t k,
                              typename S::Real* to) {
  constexpr int kWidth = S::kWidth, kPitch = kVectors * kWidth;
  if (lanes.stride == 1) return pack_along<S, kVectors>(from, lanes.k_stride, count, k, to);
  if (lanes.k_stride == 1) {
    for (int v = 0; v < kVectors; ++v) {
      const std::int64_t first = std::min<std::int64_t>(v * kWidth, count - 1);
      across<S, 1>(from + first * lanes.stride, lanes.stride,
                   std::max<std::int64_t>(1, count - v * kWidth), k,
                   [&](std::int64_t i, const typename S::V(&vectors)[1]) ISOBIT_INLINE_LAMBDA {
                     S::template store<simd::Stores::cached, simd::Nan::absent>(
                         to + i * kPitch + v * kWidth, vectors[0]);
                   });
    }
    return;
  }
  for (std::int64_t i = 0; i < k; ++i)
    for (std::int64_t lane = 0; lane < kPitch; ++lane)
      to[i * kPitch + lane] = widen<typename S::Real>(
          from[i * lanes.k_stride + std::min(lane, count - 1) * lanes.stride]);
}

// Of lines that lie as memory does: so many k of all panels at a time, so that they are read along.
constexpr std::int64_t kTogether = 8;

template <class S, class T>
void pack_a(const Lanes& lanes, std::int64_t k, void* to) {
  constexpr int kRows = Shape<S>::kRows, kPitch = Shape<S>::kRowPitch;
  const auto* from = reinterpret_cast<const T*>(lanes.data);
  const std::int64_t panels = (lanes.count + kRows - 1) / kRows;
  const auto pack = [&](std::int64_t panel, std::int64_t first, std::int64_t some)
                        ISOBIT_INLINE_LAMBDA {
                          const std::int64_t begin = lanes.count * panel / panels;
                          pack_panel<S, kPitch / S::kWidth>(
                              from + begin * lanes.stride + first * lanes.k_stride, lanes,
                              std::min<std::int64_t>(kPitch, lanes.count - begin), some,
                              static_cast<typename S::Real*>(to) + (panel * k + first) * kPitch);
                        };
  const std::int64_t together = lanes.stride == 1 ? kTogether : k;
  for (std::int64_t i = 0; i < k; i += together)
    for (std::int64_t panel = 0; panel < panels; ++panel) pack(panel, i, std::min(together, k - i));
}

template <class S, class T>
void pack_b(const Lanes& lanes, std::int64_t k, void* to) {
  constexpr int kCols = Shape<S>::kCols;
  const auto* from = reinterpret_cast<const T*>(lanes.data);
  auto* const panels = static_cast<typename S::Real*>(to);
  const std::int64_t whole = lanes.count / kCols * kCols, rest = lanes.count - whole;
  if (lanes.stride == 1) {
    for (std::int64_t i = 0; i < k; i += kTogether)
      for (std::int64_t col = 0; col < whole; col += kCols)
        pack_along<S, Shape<S>::kVectors>(from + col + i * lanes.k_stride, lanes.k_stride, kCols,
                                          std::min(kTogether, k - i), panels + col * k + i * kCols);
  } else {
    for (std::int64_t col = 0; col < whole; col += kCols)
      pack_panel<S, Shape<S>::kVectors>(from + col * lanes.stride, lanes, kCols, k,
                                        panels + col * k);
  }
  if (rest > S::kWidth)
    pack_panel<S, Shape<S>::kVectors>(from + whole * lanes.stride, lanes, rest, k,
                                      panels + whole * k);
  else if (rest > 0)
    pack_panel<S, 1>(from + whole * lanes.stride, lanes, rest, k, panels + whole * k);
}

// The tile of sums of one panel of a and one of b, in whole vectors.
template <class S>
struct Tile {
  using Real = typename S::Real;
  const Real *a, *b;
  Real* c;
  std::int64_t pitch, k, panel;
  bool adds, ends;
  const Real* bias;
};
template <class S>
using TileKernel = void (*)(const Tile<S>& tile);

template <class S, int kRows, int kVectors>
void tile(const Tile<S>& given) {
  using Real = typename S::Real;
  using V = typename S::V;
  constexpr int kWidth = S::kWidth;
  constexpr auto kCached = simd::Stores::cached;
  const Real *a = given.a, *b = given.b;
  V sums[kRows][kVectors];
  alignas(64) Real before[kRows * kVectors * kWidth];  // the sums of panels, while there are more
  const auto each = [&](const auto& body) ISOBIT_INLINE_LAMBDA {
#pragma GCC unroll 16
    for (int i = 0; i < kRows; ++i)
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v)
        body(sums[i][v], given.c + i * given.pitch + v * kWidth,
             before + (i * kVectors + v) * kWidth, v);
  };
  each([](V&, Real* to, Real*, int) ISOBIT_INLINE_LAMBDA { simd::fetch_to_be_written(to); });
  for (std::int64_t done = 0;;) {
    each([](V& sum, Real*, Real*, int) ISOBIT_INLINE_LAMBDA { sum = S::zero(); });
    const std::int64_t end = done + std::min(given.k - done, given.panel);
    for (std::int64_t at = done; at < end; ++at) {
      V columns[kVectors];
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) columns[v] = S::load(b + v * kWidth);
      simd::fetch_ahead<Shape<S>::kRowPitch>(a);  // both panels are more than the first cache holds
      simd::fetch_ahead<kVectors * kWidth>(b);
      if constexpr (kRows <= kFewRows) simd::read_ahead<kVectors * kWidth>(b);
#pragma GCC unroll 16
      for (int i = 0; i < kRows; ++i) {
        const V row = S::all(a[i]);
#pragma GCC unroll 4
        for (int v = 0; v < kVectors; ++v) sums[i][v] = S::fma(row, columns[v], sums[i][v]);
      }
      a += Shape<S>::kRowPitch;
      b += kVectors * kWidth;
    }
    if (done > 0)
      each([](V& sum, Real*, Real* panels, int)
               ISOBIT_INLINE_LAMBDA { sum = S::add(S::load(panels), sum); });
    else if (given.adds)
      each([](V& sum, Real* to, Real*, int)
               ISOBIT_INLINE_LAMBDA { sum = S::add(S::load(to), sum); });
    done = end;
    if (done == given.k) break;
    each([](V& sum, Real*, Real* panels, int)
             ISOBIT_INLINE_LAMBDA { S::template store<kCached, simd::Nan::absent>(panels, sum); });
  }
  if (!given.ends)
    return each([](V& sum, Real* to, Real*, int) ISOBIT_INLINE_LAMBDA {
      S::template store<kCached, simd::Nan::absent>(to, sum);
    });
  if (given.bias != nullptr)
    return each([&](V& sum, Real* to, Real*, int v) ISOBIT_INLINE_LAMBDA {
      S::store(to, S::add(S::add(sum, S::zero()), S::load(given.bias + v * kWidth)));
    });
  each([](V& sum, Real* to, Real*, int)
           ISOBIT_INLINE_LAMBDA { S::store(to, S::add(sum, S::zero())); });
}

// Kernels for 1 to kRows rows, by vectors.
template <class S, int kVectors, int... kLess>
constexpr auto tiles_of(std::integer_sequence<int, kLess...>) {
  return std::array<TileKernel<S>, sizeof...(kLess)>{tile<S, kLess + 1, kVectors>...};
}
template <class S, int kVectors>
constexpr auto kTiles = tiles_of<S, kVectors>(std::make_integer_sequence<int, Shape<S>::kRows>());

// Calls multiply(a, b, c, rows, is_narrow, col) for each panel of a and of b. Where one of a stays
// in the first cache and b in the second, it meets all of b, so that rows of c are written along;
// elsewhere each panel of b meets as many of a as stay in the second cache while b passes by.
template <class S, class Multiply>
ISOBIT_INLINE void for_each_tile(const Block& block, const Multiply& multiply) {
  using Real = typename S::Real;
  constexpr int kRows = Shape<S>::kRows, kCols = Shape<S>::kCols;
  constexpr std::int64_t kStaying = 384 << 10, kInFirst = 16 << 10;
  const auto *a = static_cast<const Real*>(block.a), *b = static_cast<const Real*>(block.b);
  auto* const c = static_cast<Real*>(block.c);
  const std::int64_t panels = (block.m + kRows - 1) / kRows, size = Shape<S>::kRowPitch * block.k;
  const std::int64_t bytes = std::max<std::int64_t>(1, size * std::int64_t{sizeof(Real)});
  const auto of_one = [&](std::int64_t panel, std::int64_t col) ISOBIT_INLINE_LAMBDA {
    const std::int64_t begin = block.m * panel / panels, end = block.m * (panel + 1) / panels;
    multiply(a + panel * size, b + col * block.k, c + begin * block.c_pitch + col, end - begin,
             block.n - col <= S::kWidth, col);
  };
  if (bytes <= kInFirst && block.n * block.k * std::int64_t{sizeof(Real)} <= kStaying) {
    for (std::int64_t panel = 0; panel < panels; ++panel)
      for (std::int64_t col = 0; col < block.n; col += kCols) of_one(panel, col);
    return;
  }
  const std::int64_t some = std::max<std::int64_t>(1, kStaying / bytes);
  for (std::int64_t first = 0; first < panels; first += some)
    for (std::int64_t col = 0; col < block.n; col += kCols)
      for (std::int64_t panel = first; panel < std::min(first + some, panels); ++panel)
        of_one(panel, col);
}

// A tile of results that has no whole vectors of columns, by way of one that has.
template <class S>
void multiply_part(TileKernel<S> kernel, Tile<S> tile, std::int64_t rows, std::int64_t cols) {
  using Real = typename S::Real;
  constexpr int kCols = Shape<S>::kCols;
  Real whole[Shape<S>::kRows * kCols] = {}, bias[kCols] = {};
  Real* const results = tile.c;
  const std::int64_t pitch = tile.pitch;
  const auto bytes = static_cast<std::size_t>(cols) * sizeof(Real);
  for (std::int64_t i = 0; tile.adds && i < rows; ++i)
    std::memcpy(whole + i * kCols, results + i * pitch, bytes);
  if (tile.bias != nullptr) {
    std::memcpy(bias, tile.bias, bytes);
    tile.bias = bias;
  }
  tile.c = whole;
  tile.pitch = kCols;
  kernel(tile);
  for (std::int64_t i = 0; i < rows; ++i)
    std::memcpy(results + i * pitch, whole + i * kCols, bytes);
}

template <class S>
void multiply(const Block& block) {
  using Real = typename S::Real;
  const auto* const bias = static_cast<const Real*>(block.bias);
  for_each_tile<S>(block, [&](const Real* a, const Real* b, Real* c, std::int64_t rows, bool narrow,
                              std::int64_t col) ISOBIT_INLINE_LAMBDA {
    const auto& kernels = narrow ? kTiles<S, 1> : kTiles<S, Shape<S>::kVectors>;
    const TileKernel<S> kernel = kernels[static_cast<std::size_t>(rows - 1)];
    const Tile<S> tile{a,
                       b,
                       c,
                       block.c_pitch,
                       block.k,
                       block.panel,
                       block.adds,
                       block.ends,
                       bias == nullptr ? nullptr : bias + col};
    const std::int64_t left = block.n - col;
    if (block.in_results &&
        left < (narrow ? std::int64_t{S::kWidth} : std::int64_t{Shape<S>::kCols}))
      multiply_part<S>(kernel, tile, rows, left);
    else
      kernel(tile);
  });
}

// In steps of 32 k, by vectors in a mode that takes subnormal numbers for 0, as core/amx.h says:
// x86 rounds before it looks. Others look first, and go element by element.
#if ISOBIT_JOIN(ISOBIT_ISA_, ISOBIT_ISA) == ISOBIT_ISA_avx512 || \
    ISOBIT_JOIN(ISOBIT_ISA_, ISOBIT_ISA) == ISOBIT_ISA_avx2

// Two chains for each vector of sums, which wait in c.
template <class S>
using StepsKernel = void (*)(const typename S::Real* a, const typename S::Real* b,
                             typename S::Real* c, std::int64_t pitch, std::int64_t k, bool adds);

template <class S, int kRows, int kVectors>
void tile_in_steps(const typename S::Real* a, const typename S::Real* b, typename S::Real* c,
                   std::int64_t pitch, std::int64_t k, bool adds) {
  using V = typename S::V;
  constexpr auto kCached = simd::Stores::cached;
  constexpr auto kAsIs = simd::Nan::absent;
  for (std::int64_t step = 0; step < k; step += amx::kStep) {
    const std::int64_t end = std::min(k, step + amx::kStep);
    V chains[2][kRows][kVectors];
#pragma GCC unroll 16
    for (int i = 0; i < kRows; ++i)
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) chains[0][i][v] = chains[1][i][v] = S::zero();
    const auto add = [&](V(&chain)[kRows][kVectors]) ISOBIT_INLINE_LAMBDA {
      V columns[kVectors];
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) columns[v] = S::load(b + v * S::kWidth);
#pragma GCC unroll 16
      for (int i = 0; i < kRows; ++i) {
        const V row = S::all(a[i]);
#pragma GCC unroll 4
        for (int v = 0; v < kVectors; ++v) chain[i][v] = S::fma(row, columns[v], chain[i][v]);
      }
      a += Shape<S>::kRowPitch;
      b += kVectors * S::kWidth;
    };
    std::int64_t at = step;
    for (; at + 2 <= end; at += 2) {
      add(chains[0]);
      add(chains[1]);
    }
    if (at < end) add(chains[0]);
#pragma GCC unroll 16
    for (int i = 0; i < kRows; ++i)
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) {
        typename S::Real* to = c + i * pitch + v * S::kWidth;
        const V before = adds || step > 0 ? S::load(to) : S::zero();
        S::template store<kCached, kAsIs>(to,
                                          S::add(before, S::add(chains[0][i][v], chains[1][i][v])));
      }
  }
}

template <class S, int kVectors, int... kLess>
constexpr auto tiles_in_steps_of(std::integer_sequence<int, kLess...>) {
  return std::array<StepsKernel<S>, sizeof...(kLess)>{tile_in_steps<S, kLess + 1, kVectors>...};
}
template <class S, int kVectors>
constexpr auto kTilesInSteps =
    tiles_in_steps_of<S, kVectors>(std::make_integer_sequence<int, Shape<S>::kRows / 2>());

template <class S>
void multiply_in_steps(const Block& block) {
  using Real = typename S::Real;
  constexpr unsigned kFlushes = 0x8040;  // results and factors
  const unsigned mode = _mm_getcsr();
  _mm_setcsr(mode | kFlushes);
  asm volatile("" ::: "memory");
  for_each_tile<S>(block, [&](const Real* a, const Real* b, Real* c, std::int64_t rows, bool narrow,
                              std::int64_t) ISOBIT_INLINE_LAMBDA {
    const auto& kernels = narrow ? kTilesInSteps<S, 1> : kTilesInSteps<S, Shape<S>::kVectors>;
    const auto some = static_cast<std::int64_t>(kernels.size());
    for (std::int64_t i = 0; i < rows; i += some)
      kernels[static_cast<std::size_t>(std::min(some, rows - i) - 1)](
          a + i, b, c + i * block.c_pitch, block.c_pitch, block.k, block.adds);
  });
  asm volatile("" ::: "memory");
  _mm_setcsr(mode);
}

#else

template <class S>
void multiply_in_steps(const Block& block) {
  for_each_tile<S>(block, [&](const float* a, const float* b, float* c, std::int64_t rows,
                              bool narrow, std::int64_t) ISOBIT_INLINE_LAMBDA {
    const std::int64_t cols = narrow ? std::int64_t{S::kWidth} : std::int64_t{Shape<S>::kCols};
    for (std::int64_t i = 0; i < rows; ++i)
      for (std::int64_t j = 0; j < cols; ++j) {
        float& sum = c[i * block.c_pitch + j];
        if (!block.adds) sum = 0;
        for (std::int64_t step = 0; step < block.k; step += amx::kStep) {
          float chains[2] = {0, 0};
          for (std::int64_t k = step; k < std::min(block.k, step + amx::kStep); ++k)
            chains[k % 2] =
                amx::multiply_add(a[k * Shape<S>::kRowPitch + i], b[k * cols + j], chains[k % 2]);
          sum = amx::sum_of(sum, amx::sum_of(chains[0], chains[1]));
        }
      }
  });
}

#endif

template <class S>
void activate(Activation activation, typename S::Real* values, std::int64_t count) {
  const auto all = [&](auto function) ISOBIT_INLINE_LAMBDA {
    std::int64_t i = 0;
    for (; i + S::kWidth <= count; i += S::kWidth)
      S::store(values + i, activated<S>(function, S::load(values + i)));
    if (i < count) {
      const auto part = S::first(count - i);
      S::store(values + i, activated<S>(function, S::load(values + i, part)), part);
    }
  };
  switch (activation) {
    case Activation::none: return;
    case Activation::relu: return all(std::integral_constant<Activation, Activation::relu>());
    case Activation::gelu: return all(std::integral_constant<Activation, Activation::gelu>());
    case Activation::gelu_tanh:
      return all(std::integral_constant<Activation, Activation::gelu_tanh>());
    case Activation::silu: return all(std::integral_constant<Activation, Activation::silu>());
  }
}

template <class S, class W, class T>
void finish(const Epilogue& epilogue, const Row& row) {
  using Real = typename S::Real;
  using V = typename S::V;
  auto* sums = static_cast<Real*>(row.sums);
  const auto* bias = reinterpret_cast<const W*>(row.bias);
  const auto *c = reinterpret_cast<const T*>(row.c),
             *residual = reinterpret_cast<const T*>(row.residual);
  auto *pre = reinterpret_cast<T*>(row.pre), *y = reinterpret_cast<T*>(row.y);
  const bool scales = epilogue.alpha != 1;
  const V alpha = S::all(static_cast<Real>(epilogue.alpha));
  const V beta = S::all(static_cast<Real>(epilogue.beta));
  const V one_bias = row.one_bias && bias != nullptr ? S::all(widen<Real>(*bias)) : S::zero();
  const bool activates = epilogue.activation != Activation::none;
  for_each_vector<S>(row.count, [&](std::int64_t i, auto... part) ISOBIT_INLINE_LAMBDA {
    V v = S::add(S::load(sums + i, part...), S::zero());
    if (scales) v = S::mul(alpha, v);
    if (c != nullptr) v = S::fma(beta, S::load(c + i, part...), v);
    if (bias != nullptr) v = S::add(v, row.one_bias ? one_bias : S::load(bias + i, part...));
    if (pre != nullptr) S::store(pre + i, v, part...);
    if (activates) {
      S::store(sums + i, v, part...);
    } else {
      if (residual != nullptr) v = S::add(v, S::load(residual + i, part...));
      S::store(y + i, v, part...);
    }
  });
  if (!activates) return;
  activate<S>(epilogue.activation, sums, row.count);
  for_each_vector<S>(row.count, [&](std::int64_t i, auto... part) ISOBIT_INLINE_LAMBDA {
    V v = S::load(sums + i, part...);
    if (residual != nullptr) v = S::add(v, S::load(residual + i, part...));
    S::store(y + i, v, part...);
  });
}

template <class S>
void add(const void* from, void* to, std::int64_t count) {
  const auto* a = static_cast<const typename S::Real*>(from);
  auto* b = static_cast<typename S::Real*>(to);
  for_each_vector<S>(count, [&](std::int64_t i, auto... part) ISOBIT_INLINE_LAMBDA {
    S::template store<simd::Stores::cached, simd::Nan::absent>(
        b + i, S::add(S::load(a + i, part...), S::load(b + i, part...)), part...);
  });
}

template <class T>
constexpr auto in_steps() -> void (*)(const Block&) {
  if constexpr (std::is_same_v<T, bf16>) return multiply_in_steps<simd::F32>;
  return nullptr;
}

template <class T>
constexpr PackKernels kPackKernels = {Shape<VectorsOf<T>>::kRows, Shape<VectorsOf<T>>::kRowPitch,
                                      Shape<VectorsOf<T>>::kCols, VectorsOf<T>::kWidth,
                                      pack_a<VectorsOf<T>, T>,    pack_b<VectorsOf<T>, T>,
                                      multiply<VectorsOf<T>>,     in_steps<T>()};

template <class Choose>
ISOBIT_INLINE auto with_float(DType dtype, const Choose& choose) {
  switch (dtype) {
    case DType::f16:  return choose(Type<f16>{});
    case DType::bf16: return choose(Type<bf16>{});
    default:          return choose(Type<float>{});
  }
}

}  // namespace

const PackKernels& pack_kernels(DType a) {
  if (a == DType::f64) return kPackKernels<double>;
  switch (a) {
    case DType::f16:  return kPackKernels<f16>;
    case DType::bf16: return kPackKernels<bf16>;
    default:          return kPackKernels<float>;
  }
}

FinishKernel finish_kernel(DType real, DType bias, DType y) {
  if (real == DType::f64) return finish<simd::F64, double, double>;
  return with_float(bias, [&]<class W>(Type<W>) ISOBIT_INLINE_LAMBDA {
    return with_float(y, []<class T>(Type<T>) ISOBIT_INLINE_LAMBDA -> FinishKernel {
      return finish<simd::F32, W, T>;
    });
  });
}

AddKernel add_kernel(DType real) { return real == DType::f64 ? add<simd::F64> : add<simd::F32>; }

}  // namespace isobit::matmul::ISOBIT_ISA
