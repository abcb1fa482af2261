// SPDX-License-Identifier: Apache-2.0
// Calls of pool2d after their check: windows along two sides of an image.
#pragma once

#include <cstdint>
#include <span>

#include "isobit/core/dtype.h"
#include "isobit/core/images.h"
#include "isobit/core/inline.h"
#include "isobit/dispatch/variant.h"
#include "isobit/ops/pool2d/pool2d.h"

namespace isobit::pool2d {

// [begin, end).
struct Range {
  std::int64_t begin, end;

  ISOBIT_INLINE std::int64_t count() const { return end - begin; }
};

// Where a window's first tap stands, which may be before the first element, and how many taps it
// has.
struct Window {
  std::int64_t first, taps;
};

ISOBIT_INLINE std::int64_t ceil_of(std::int64_t a, std::int64_t b) {  // a >= 0
  return (a + b - 1) / b;
}

// One side of the image: numbers below 2^31, so that none of these products leaves 64 bits.
struct Axis {
  std::int64_t sources = 1, results = 1;
  std::int64_t taps = 1, stride = 1, dilation = 1, padding = 0;
  bool bins = false;  // then of the above only the first two count

  ISOBIT_INLINE Window window(std::int64_t result) const {
    if (!bins) return {result * stride - padding, taps};
    const std::int64_t first = result * sources / results;
    return {first, ceil_of((result + 1) * sources, results) - first};
  }
  // The taps of a window that stand in the image; none where it is all padding.
  ISOBIT_INLINE Range seen(const Window& window) const {
    const std::int64_t begin = window.first < 0 ? ceil_of(-window.first, dilation) : 0;
    const std::int64_t room = sources - window.first;
    const std::int64_t end = room <= 0 ? 0 : ceil_of(room, dilation);
    return {begin, end < window.taps ? (end < begin ? begin : end) : window.taps};
  }
  // What a window adds to a mean's count.
  ISOBIT_INLINE std::int64_t counted(const Window& window, bool with_padding) const {
    if (!with_padding) return seen(window).count();
    const std::int64_t end = window.first + window.taps, last = sources + padding;
    return (end < last ? end : last) - window.first;
  }
  // The results whose windows reach over an element; with a dilation some have no tap there.
  ISOBIT_INLINE Range reaching(std::int64_t source) const {
    if (bins) return {source * results / sources, ceil_of((source + 1) * results, sources)};
    const std::int64_t place = source + padding, span = (taps - 1) * dilation;
    const std::int64_t end = place / stride + 1;
    const std::int64_t begin = place > span ? ceil_of(place - span, stride) : 0;
    return {begin < results ? begin : results, end < results ? end : results};
  }
  // Whether a window has a tap at an element.
  ISOBIT_INLINE bool has(const Window& window, std::int64_t source) const {
    const std::int64_t place = source - window.first;
    if (dilation == 1) return place >= 0 && place < window.taps;
    return place >= 0 && place % dilation == 0 && place / dilation < window.taps;
  }
};

// Of both passes: x and y are their gradients in the second.
struct Problem {
  Reduction reduction = Reduction::max;
  DType dtype = DType::f32;
  std::int64_t batch = 0, channels = 0;
  Axis h, w;
  bool with_padding = false;  // in counts
  std::int64_t divisor = 0;
  Images x, y, index;

  ISOBIT_INLINE std::int64_t planes() const { return batch * channels; }
  // One window over planes that are one row each (merge_rows in problem.cpp), of adjacent elements.
  ISOBIT_INLINE bool takes_whole_planes() const {
    return h.bins && h.sources == 1 && h.results == 1 && w.bins && w.results == 1 && x.w == 1;
  }
  ISOBIT_INLINE std::int64_t divisor_of(const Window& of_h, const Window& of_w) const {
    if (divisor != 0) return divisor;
    return h.counted(of_h, with_padding) * w.counted(of_w, with_padding);
  }
};

using ForwardVariant = Variant<ForwardArgs, Problem>;
using BackwardVariant = Variant<BackwardArgs, Problem>;

// Throw where a call breaks a rule.
Problem check_forward(const ForwardArgs& args);
Problem check_backward(const BackwardArgs& args);

// Results along one side; less than 1 where no window fits. A kernel of 0: bins.
std::int64_t results_of(std::int64_t extent, std::int64_t kernel, std::int64_t bins,
                        std::int64_t stride, std::int64_t padding, std::int64_t dilation,
                        bool ceil_mode);

std::span<const ForwardVariant> cpu_forward_variants();
std::span<const BackwardVariant> cpu_backward_variants();
std::span<const ForwardVariant> cuda_forward_variants();  // in device libraries
std::span<const BackwardVariant> cuda_backward_variants();

}  // namespace isobit::pool2d
