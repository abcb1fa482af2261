// SPDX-License-Identifier: Apache-2.0
// The loops of the backward pass, compiled once for each instruction set. Windows one after the
// other give to elements of rows that lie in scratch memory: so each element has its sum in the
// order of windows. Only where no sum has more than one panel.
#include "isobit/ops/pool2d/cpu_kernels.h"
#include "isobit/ops/pool2d/cpu_vectors.h"
#include "isobit/simd/row_loops.h"

namespace isobit::pool2d::ISOBIT_ISA {
namespace {

// The rows of results whose windows reach over rows of x.
ISOBIT_INLINE Range reaching(const Problem& p, const Range& rows) {
  return {p.h.reaching(rows.begin).begin, p.h.reaching(rows.end - 1).end};
}
// A window's rows among some, which have no dilation.
ISOBIT_INLINE Range rows_of(const Window& window, const Range& rows) {
  const std::int64_t end = window.first + window.taps;
  return {window.first > rows.begin ? window.first : rows.begin, end < rows.end ? end : rows.end};
}

// Where the gradient of a window goes, among the elements of `rows`; -1: nowhere there.
ISOBIT_INLINE std::int64_t place_of(const Problem& p, const Range& rows, std::int64_t index,
                                    const Window& h, const Window& w) {
  const std::int64_t cols = p.w.sources;
  if (index < rows.begin * cols || index >= rows.end * cols) return -1;
  const std::int64_t row = index / cols, col = index - row * cols;
  return p.h.has(h, row) && p.w.has(w, col) ? index - rows.begin * cols : -1;
}

// to[i] += from[i / stride] for i = first, first + stride, ...
template <class S>
ISOBIT_INLINE void add_line(typename S::Real* to, const typename S::Real* from, std::int64_t stride,
                            std::int64_t count) {
  std::int64_t i = 0;
  if (stride == 1)
    for (; i + S::kWidth <= count; i += S::kWidth)
      S::store(to + i, S::add(S::load(to + i), S::load(from + i)));
  for (; i < count; ++i) to[i * stride] += from[i];
}

// All that one row of results gives to the columns of one row of x: windows ascending for each.
template <class S>
ISOBIT_INLINE void give_row(const Problem& p, const typename S::Real* terms,
                            typename S::Real* sums) {
  const Axis& w = p.w;
  if (w.bins) {
    for (std::int64_t col = 0; col < w.results; ++col) {
      const Window window = w.window(col);
      const typename S::Real term = terms[col];
      for (std::int64_t i = 0; i < window.taps; ++i) sums[window.first + i] += term;
    }
    return;
  }
  // Of one element the later window has the earlier tap.
  const std::int64_t most = w.sources - 1 + w.padding;
  const std::int64_t last = w.taps - 1 < most ? w.taps - 1 : most;
  for (std::int64_t tap = last; tap >= 0; --tap) {
    const std::int64_t before = w.padding - tap;
    const std::int64_t begin = before > 0 ? ceil_of(before, w.stride) : 0;
    const std::int64_t after = (w.sources - 1 + before) / w.stride + 1;
    const std::int64_t end = after < w.results ? after : w.results;
    if (begin < end)
      add_line<S>(sums + begin * w.stride - before, terms + begin, w.stride, end - begin);
  }
}

// One window over planes of one row each: an element has one term, or none.
template <class T, bool kMax>
ISOBIT_INLINE void whole_planes(const Part& part) {
  using S = VectorsOf<T>;
  using Real = typename S::Real;
  using V = typename S::V;
  const Problem& p = part.problem;
  const std::int64_t cols = p.w.sources;
  const V divisor = S::all(static_cast<Real>(p.divisor_of(p.h.window(0), p.w.window(0))));
  for (std::int64_t c = part.channel; c < part.channel + part.channels; ++c) {
    T* const x = p.x.at<T>(part.image, c, 0, 0);
    const Real gradient = widen<Real>(*p.y.at<const T>(part.image, c, 0, 0));
    const V term = kMax ? S::zero() : S::add(S::zero(), S::div(S::all(gradient), divisor));
    simd::store_row<S>(x, cols, false,
                       [&](std::int64_t, auto...) ISOBIT_INLINE_LAMBDA { return term; });
    if constexpr (kMax) {
      const std::int64_t index = *p.index.at<const std::int64_t>(part.image, c, 0, 0);
      if (0 <= index && index < cols) x[index] = narrow<T>(Real(0) + gradient);
    }
  }
}

template <class T, bool kMax>
void rows(const Part& part) {
  using S = VectorsOf<T>;
  using Real = typename S::Real;
  const Problem& p = part.problem;
  if (p.takes_whole_planes()) return whole_planes<T, kMax>(part);
  const std::int64_t cols = p.w.sources, size = part.rows.count() * cols;
  const std::int64_t line = (p.w.results + kBlock - 1) / kBlock * kBlock;
  Real* const sums = reinterpret_cast<Real*>(part.scratch);
  Real* const terms = sums + (size + kBlock - 1) / kBlock * kBlock;
  Real* const divisors = terms + line;
  auto* const counts = reinterpret_cast<std::int64_t*>(divisors + line);
  if (!kMax)
    for (std::int64_t i = 0; i < line; ++i)
      counts[i] = i < p.w.results ? p.w.counted(p.w.window(i), p.with_padding) : 1;
  const Range results = reaching(p, part.rows);
  for (std::int64_t c = part.channel; c < part.channel + part.channels; ++c) {
    for (std::int64_t i = 0; i < size; ++i) sums[i] = 0;
    for (std::int64_t row = results.begin; row < results.end; ++row) {
      const Window h = p.h.window(row);
      const T* const grad = p.y.at<const T>(part.image, c, row, 0);
      if constexpr (kMax) {
        const auto* const index = p.index.at<const std::int64_t>(part.image, c, row, 0);
        for (std::int64_t col = 0; col < p.w.results; ++col) {
          const std::int64_t place =
              place_of(p, part.rows, index[col * p.index.w], h, p.w.window(col));
          if (place >= 0) sums[place] += widen<Real>(grad[col * p.y.w]);
        }
      } else {
        load_line<S>(grad, p.y.w, p.w.results, terms);
        for (std::int64_t i = p.w.results; i < line; ++i) terms[i] = 0;
        const std::int64_t of_h = p.h.counted(h, p.with_padding);
        for (std::int64_t i = 0; i < line; ++i)
          divisors[i] = static_cast<Real>(p.divisor != 0 ? p.divisor : of_h * counts[i]);
        for (std::int64_t i = 0; i < line; i += S::kWidth)
          S::store(terms + i, S::div(S::load(terms + i), S::load(divisors + i)));
        const Range mine = rows_of(h, part.rows);
        for (std::int64_t i = mine.begin; i < mine.end; ++i)
          give_row<S>(p, terms, sums + (i - part.rows.begin) * cols);
      }
    }
    for (std::int64_t i = part.rows.begin; i < part.rows.end; ++i)
      store_line<S>(sums + (i - part.rows.begin) * cols, p.x.at<T>(part.image, c, i, 0), p.x.w,
                    cols);
  }
}

// Adjacent channels; kBlock of them, or the last.
template <class T, bool kMax>
void channels(const Part& part) {
  using S = VectorsOf<T>;
  using Real = typename S::Real;
  using V = typename S::V;
  const Problem& p = part.problem;
  const std::int64_t cols = p.w.sources, size = part.rows.count() * cols;
  Real* const sums = reinterpret_cast<Real*>(part.scratch);
  Real* const terms = sums + size * kBlock;
  for (std::int64_t i = 0; i < size * kBlock; ++i) sums[i] = 0;
  const Range results = reaching(p, part.rows);
  for (std::int64_t row = results.begin; row < results.end; ++row) {
    const Window h = p.h.window(row);
    for (std::int64_t col = 0; col < p.w.results; ++col) {
      const Window w = p.w.window(col);
      const T* const grad = p.y.at<const T>(part.image, part.channel, row, col);
      if constexpr (kMax) {
        const auto* const index =
            p.index.at<const std::int64_t>(part.image, part.channel, row, col);
        for (std::int64_t c = 0; c < part.channels; ++c) {
          const std::int64_t place = place_of(p, part.rows, index[c * p.index.c], h, w);
          if (place >= 0) sums[place * kBlock + c] += widen<Real>(grad[c * p.y.c]);
        }
      } else {
        load_line<S>(grad, p.y.c, part.channels, terms);
        for (std::int64_t c = part.channels; c < kBlock; ++c) terms[c] = 0;
        const V divisor = S::all(static_cast<Real>(p.divisor_of(h, w)));
        for (std::int64_t c = 0; c < kBlock; c += S::kWidth)
          S::store(terms + c, S::div(S::load(terms + c), divisor));
        const Range down = rows_of(h, part.rows), across = rows_of(w, {0, cols});
        for (std::int64_t i = down.begin; i < down.end; ++i)
          for (std::int64_t j = across.begin; j < across.end; ++j)
            add_line<S>(sums + ((i - part.rows.begin) * cols + j) * kBlock, terms, 1, kBlock);
      }
    }
  }
  for (std::int64_t i = part.rows.begin; i < part.rows.end; ++i)
    for (std::int64_t j = 0; j < cols; ++j)
      store_line<S>(sums + ((i - part.rows.begin) * cols + j) * kBlock,
                    p.x.at<T>(part.image, part.channel, i, j), p.x.c, part.channels);
}

}  // namespace

Kernel backward_rows(DType dtype,
                     Reduction reduction){ISOBIT_POOL2D_KERNEL(dtype, reduction, rows)} Kernel
    backward_channels(DType dtype, Reduction reduction) {
  ISOBIT_POOL2D_KERNEL(dtype, reduction, channels)
}

}  // namespace isobit::pool2d::ISOBIT_ISA
