// SPDX-License-Identifier: Apache-2.0
// Where a result lies among the elements of x, what they weigh in it, and the order of sums: on
// every back end.
#pragma once

#include <cmath>
#include <cstdint>

#include "isobit/core/inline.h"
#include "isobit/ops/interpolate/interpolate.h"

namespace isobit::interpolate {

inline constexpr int kMostTaps = 4;
inline constexpr std::int64_t kPanel = 512;  // results

// [begin, end).
struct Range {
  std::int64_t begin, end;

  ISOBIT_INLINE std::int64_t count() const { return end - begin; }
};

// A result lies behind element `index`, `after` of the way to the next one. `before` is the rest of
// the way, and rounded once, too. An index may be before the first element or behind the last.
struct Place {
  std::int64_t index;
  double after, before;
};

// The elements of a result: `count` of them from `first` on.
template <class Real>
struct Taps {
  std::int64_t first = 0;
  std::int64_t count = 1;
  Real weight[kMostTaps] = {1};
};

// One side of the image. Extents are below 2^31, so that none of these products leaves 64 bits.
struct Axis {
  std::int64_t sources = 1, results = 1;
  Mode mode = Mode::nearest;
  bool aligned = false;
  double scale = 0;  // 0: as the extents say

  ISOBIT_INLINE bool nearest() const {
    return mode == Mode::nearest || mode == Mode::nearest_exact;
  }
  // How many elements of a result stand before its index, and how many behind.
  ISOBIT_INLINE std::int64_t left() const { return mode == Mode::cubic ? 1 : 0; }
  ISOBIT_INLINE std::int64_t right() const {
    return mode == Mode::cubic ? 2 : mode == Mode::linear ? 1 : 0;
  }
  ISOBIT_INLINE int taps() const { return static_cast<int>(left() + right() + 1); }
  ISOBIT_INLINE std::int64_t clamped(std::int64_t index) const {
    return index < 0 ? 0 : index < sources ? index : sources - 1;
  }

  // Without a scale a place is a fraction, and exact up to its last rounding.
  ISOBIT_INLINE Place place(std::int64_t result) const {
    if (scale != 0) return scaled(result);
    std::int64_t parts = result * sources, whole = results;
    if (aligned) {
      parts = result * (sources - 1);
      whole = results > 1 ? results - 1 : 1;
    } else if (mode != Mode::nearest) {
      parts = (2 * result + 1) * sources - (nearest() ? 0 : results);
      whole = 2 * results;
    }
    std::int64_t index = parts / whole, rest = parts % whole;
    if (rest < 0) {
      index -= 1;
      rest += whole;
    }
    const auto divisor = static_cast<double>(whole);
    return {index, static_cast<double>(rest) / divisor,
            static_cast<double>(whole - rest) / divisor};
  }

  // The results that may have a part of an element: those of each are adjacent.
  ISOBIT_INLINE Range reaching(std::int64_t source) const {
    return {first_of(source, right(), false), first_of(source, -left(), true)};
  }

 private:
  ISOBIT_INLINE Place scaled(std::int64_t result) const {
    const auto number = static_cast<double>(result);
    double at = (mode == Mode::nearest ? number : number + 0.5) / scale;
    if (!nearest()) at -= 0.5;
    const auto end = static_cast<double>(sources);
    at = at < end ? at : end;  // behind the last element all places are alike
    auto index = static_cast<std::int64_t>(at);
    if (static_cast<double>(index) > at) index -= 1;
    const double after = at - static_cast<double>(index);
    if (after == 1) return {index + 1, 0, 1};
    return {index, after, 1 - after};
  }

  // The first result whose element at a distance from its index is `source` or behind it; with
  // `beyond` behind it.
  ISOBIT_INLINE std::int64_t first_of(std::int64_t source, std::int64_t distance,
                                      bool beyond) const {
    std::int64_t low = 0, high = results;
    while (low < high) {
      const std::int64_t middle = (low + high) / 2;
      const std::int64_t element = clamped(place(middle).index + distance);
      if (beyond ? element > source : element >= source)
        high = middle;
      else
        low = middle + 1;
    }
    return low;
  }
};

// Keys' cubic with a = -3/4, as products and sums of what has no sign but a.
ISOBIT_INLINE void cubic_weights(double after, double before, double* weights) {
  constexpr double kA = -0.75, kInner = kA + 2;
  weights[0] = kA * after * before * before;
  weights[1] = before * (1 + after * (1 - kInner * after));
  weights[2] = after * (1 + before * (1 - kInner * before));
  weights[3] = kA * after * after * before;
}

// Elements beyond an edge are the one at the edge, whose weights are added in double.
template <class Real>
ISOBIT_INLINE Taps<Real> taps_of(const Axis& axis, std::int64_t result) {
  const Place place = axis.place(result);
  Taps<Real> taps;
  taps.first = axis.clamped(place.index);
  if (axis.nearest() || place.after == 0) return taps;
  const std::int64_t begin = place.index - axis.left();
  taps.first = axis.clamped(begin);
  taps.count = axis.clamped(place.index + axis.right()) - taps.first + 1;
  if (taps.count == 1) return taps;
  double weights[kMostTaps] = {place.before, place.after}, sums[kMostTaps] = {};
  if (axis.mode == Mode::cubic) cubic_weights(place.after, place.before, weights);
  for (int i = 0; i < axis.taps(); ++i) sums[axis.clamped(begin + i) - taps.first] += weights[i];
  for (std::int64_t i = 0; i < taps.count; ++i) taps.weight[i] = static_cast<Real>(sums[i]);
  return taps;
}

// One result: its elements in a row, and then these rows. element(row, col) gives one of x.
template <class Real, class Element>
ISOBIT_INLINE Real interpolated(const Axis& h, const Axis& w, std::int64_t row, std::int64_t col,
                                const Element& element) {
  const Taps<Real> down = taps_of<Real>(h, row), across = taps_of<Real>(w, col);
  Real sum = 0;
  for (std::int64_t i = 0; i < down.count; ++i) {
    Real line = across.weight[0] * element(down.first + i, across.first);
    for (std::int64_t j = 1; j < across.count; ++j)
      line = std::fma(across.weight[j], element(down.first + i, across.first + j), line);
    sum = i == 0 ? down.weight[0] * line : std::fma(down.weight[i], line, sum);
  }
  return sum;
}

// Products in the order of results: those of each 512 from +0, and the sums of these from +0.
template <class Real>
struct Sum {
  Real total = 0, part = 0;
  std::int64_t panel = 0;

  ISOBIT_INLINE void add(std::int64_t result, Real weight, Real value) {
    if (result / kPanel != panel) {
      total += part;
      part = 0;
      panel = result / kPanel;
    }
    part = std::fma(weight, value, part);
  }
  ISOBIT_INLINE Real value() const { return total + part; }
};

// Whether a result has an element, and what it then weighs.
template <class Real>
ISOBIT_INLINE bool weighs(const Axis& axis, std::int64_t result, std::int64_t source,
                          Real& weight) {
  const Taps<Real> taps = taps_of<Real>(axis, result);
  const std::int64_t at = source - taps.first;
  if (at < 0 || at >= taps.count) return false;
  weight = taps.weight[at];
  return true;
}

// The gradient of one element: of each row of results, and then of these rows. gradient(row, col)
// gives one of y.
template <class Real, class Gradient>
ISOBIT_INLINE Real gathered(const Axis& h, const Axis& w, std::int64_t row, std::int64_t col,
                            const Gradient& gradient) {
  const Range down = h.reaching(row), across = w.reaching(col);
  Sum<Real> sum;
  for (std::int64_t i = down.begin; i < down.end; ++i) {
    Real of_row = 0;
    if (!weighs(h, i, row, of_row)) continue;
    Sum<Real> line;
    for (std::int64_t j = across.begin; j < across.end; ++j) {
      Real of_col = 0;
      if (weighs(w, j, col, of_col)) line.add(j, of_col, gradient(i, j));
    }
    sum.add(i, of_row, line.value());
  }
  return sum.value();
}

}  // namespace isobit::interpolate
