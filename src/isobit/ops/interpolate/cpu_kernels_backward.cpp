// SPDX-License-Identifier: Apache-2.0
// The loops of the backward pass, compiled once for each instruction set. Results one after the
// other give to a row in scratch memory, and such rows to those of x: so each element has its sums
// in the order of results.
#include <cmath>

#include "isobit/ops/interpolate/cpu_kernels.h"
#include "isobit/ops/interpolate/cpu_vectors.h"

namespace isobit::interpolate::ISOBIT_ISA {
namespace {

// Sums of all panels before this one, and of this one.
template <class S>
struct Sums {
  typename S::Real *total, *part;
  std::int64_t size;  // whole vectors

  ISOBIT_INLINE void clear() const {
    for (std::int64_t i = 0; i < size; ++i) total[i] = part[i] = 0;
  }
  ISOBIT_INLINE void next_panel() const {
    finish();
    for (std::int64_t i = 0; i < size; ++i) part[i] = 0;
  }
  // Leaves all in the totals.
  ISOBIT_INLINE void finish() const {
    for (std::int64_t i = 0; i < size; i += S::kWidth)
      S::store(total + i, S::add(S::load(total + i), S::load(part + i)));
  }
  // Adds products to some of the part.
  ISOBIT_INLINE void add(std::int64_t begin, typename S::Real weight,
                         const typename S::Real* values, std::int64_t count) const {
    typename S::Real* const to = part + begin;
    std::int64_t i = 0;
    for (; i + S::kWidth <= count; i += S::kWidth)
      S::store(to + i, S::fma(S::all(weight), S::load(values + i), S::load(to + i)));
    for (; i < count; ++i) to[i] = std::fma(weight, values[i], to[i]);
  }
};

// kLanes: how many channels lie side by side, in x as in scratch memory.
template <class T, std::int64_t kLanes>
ISOBIT_INLINE void give(const Part& part) {
  using S = VectorsOf<T>;
  using Real = typename S::Real;
  const Problem& p = part.problem;
  const std::int64_t line = whole_blocks(p.w.sources * kLanes);
  Real* const scratch = reinterpret_cast<Real*>(part.scratch);
  Real* const grads = scratch;
  const Sums<S> across{grads + whole_blocks(p.w.results), grads + whole_blocks(p.w.results) + line,
                       line};
  Real* const rest = across.part + line;
  const std::int64_t size = part.rows.count() * line;
  const Sums<S> down{rest, rest + size, size};
  const Taps<Real>* const taps_down = taps_in<Real>(part.tables.down);
  const Taps<Real>* const taps_across = taps_in<Real>(part.tables.across);
  const Range results = {p.h.reaching(part.rows.begin).begin, p.h.reaching(part.rows.end - 1).end};
  for (std::int64_t c = part.channel; c < part.channel + part.channels; c += kLanes) {
    const std::int64_t left = part.channel + part.channels - c;
    const std::int64_t lanes = left < kLanes ? left : kLanes;
    down.clear();
    for (std::int64_t row = results.begin; row < results.end; ++row) {
      if (row % kPanel == 0) down.next_panel();
      const T* const grad = p.y.at<const T>(part.image, c, row, 0);
      if (kLanes == 1) load_line<S>(grad, p.y.w, p.w.results, grads);
      across.clear();
      for (std::int64_t col = 0; col < p.w.results; ++col) {
        if (col % kPanel == 0) across.next_panel();
        const Taps<Real>& taps = taps_across[col];
        const Real* values = grads + col;
        if (kLanes != 1) {
          load_line<S>(grad + col * p.y.w, 1, lanes, grads);
          for (std::int64_t i = lanes; i < kLanes; ++i) grads[i] = 0;
          values = grads;
        }
        for (std::int64_t i = 0; i < taps.count; ++i)
          across.add((taps.first + i) * kLanes, taps.weight[i], values, kLanes);
      }
      across.finish();
      const Taps<Real>& taps = taps_down[row];
      for (std::int64_t i = 0; i < taps.count; ++i) {
        const std::int64_t to = taps.first + i;
        if (to >= part.rows.begin && to < part.rows.end)
          down.add((to - part.rows.begin) * line, taps.weight[i], across.total, line);
      }
    }
    down.finish();
    for (std::int64_t i = part.rows.begin; i < part.rows.end; ++i) {
      const Real* const from = down.total + (i - part.rows.begin) * line;
      T* const to = p.x.at<T>(part.image, c, i, 0);
      if (kLanes == 1)
        store_line<S>(from, to, p.x.w, p.w.sources);
      else
        for (std::int64_t j = 0; j < p.w.sources; ++j)
          store_line<S>(from + j * kLanes, to + j * p.x.w, 1, lanes);
    }
  }
}

template <class T>
void rows(const Part& part) {
  give<T, 1>(part);
}
template <class T>
void channels(const Part& part) {
  give<T, kBlock>(part);
}

}  // namespace

Kernel backward_rows(DType dtype){ISOBIT_INTERPOLATE_KERNEL(dtype, rows)} Kernel
    backward_channels(DType dtype) {
  ISOBIT_INTERPOLATE_KERNEL(dtype, channels)
}

}  // namespace isobit::interpolate::ISOBIT_ISA
