// SPDX-License-Identifier: Apache-2.0
// Windows as their definition has them, in double or in quad, element by element: gradients by
// giving to every element what it had a part in.
#include "isobit/ops/pool2d/reference.h"

#include <cfloat>
#include <cstdint>
#include <limits>
#include <vector>

#include "isobit/core/magnitude.h"

namespace isobit::pool2d {
namespace {

template <class Real>
constexpr Real kLeastNormal = std::is_same_v<Real, quad> ? Real(0x1p-1022) : Real(0x1p-126);

// Sums beyond the range of what variants compute in have no error to be judged.
template <class Real>
Real scale_of(Real terms) {
  constexpr double kLargest = std::is_same_v<Real, quad> ? DBL_MAX : double{FLT_MAX};
  return terms > Real(kLargest) ? static_cast<Real>(std::numeric_limits<double>::infinity())
                                : terms;
}

// One side of a call.
struct Side {
  std::int64_t from, to, window, stride, padding, dilation;

  // Where a window's taps stand: begin, begin + dilation, ... before end.
  std::int64_t begin(std::int64_t result) const {
    return window == 0 ? result * from / to : result * stride - padding;
  }
  std::int64_t end(std::int64_t result) const {
    if (window == 0) return ((result + 1) * from + to - 1) / to;
    return begin(result) + (window - 1) * dilation + 1;
  }
  bool inside(std::int64_t place) const { return place >= 0 && place < from; }
  std::int64_t counted(std::int64_t result, bool with_padding) const {
    std::int64_t count = 0;
    for (std::int64_t at = begin(result); at < end(result); ++at)
      count += inside(at) || (with_padding && at < from + padding);
    return count;
  }
};

template <class Args>
struct Call {
  const Args& args;
  std::int64_t planes;
  Side h, w;

  Call(const Args& given, const TensorView& x, const TensorView& y)
      : args(given),
        planes(x.shape[0] * x.shape[1]),
        h{x.shape[2],      y.shape[2],
          given.window_h,  given.stride_h == 0 ? given.window_h : given.stride_h,
          given.padding_h, given.dilation_h},
        w{x.shape[3],      y.shape[3],
          given.window_w,  given.stride_w == 0 ? given.window_w : given.stride_w,
          given.padding_w, given.dilation_w} {}

  // Calls visit(result, row, col) for all windows; arrays have no gaps.
  template <class Visit>
  void for_each_window(const Visit& visit) const {
    std::int64_t at = 0;
    for (std::int64_t plane = 0; plane < planes; ++plane)
      for (std::int64_t row = 0; row < h.to; ++row)
        for (std::int64_t col = 0; col < w.to; ++col) visit(at++, plane, row, col);
  }
  // Calls visit(place in the plane) for a window's elements.
  template <class Visit>
  void for_each_element(std::int64_t row, std::int64_t col, const Visit& visit) const {
    for (std::int64_t i = h.begin(row); i < h.end(row); i += h.dilation)
      for (std::int64_t j = w.begin(col); j < w.end(col); j += w.dilation)
        if (h.inside(i) && w.inside(j)) visit(i * w.from + j);
  }
  std::int64_t divisor(std::int64_t row, std::int64_t col) const {
    if (args.divisor != 0) return args.divisor;
    return h.counted(row, args.count_include_pad) * w.counted(col, args.count_include_pad);
  }
};

template <class Real>
const Real* data(const TensorView& view) {
  return static_cast<const Real*>(view.data);
}
template <class Real>
void put(const TensorView& view, std::int64_t at, Real value) {
  if (view.given()) static_cast<Real*>(view.data)[at] = value;
}

template <class Real>
void compute(const ForwardArgs& exact, const ForwardArgs& scale) {
  const Call call(exact, exact.x, exact.y);
  const std::int64_t plane_size = call.h.from * call.w.from;
  call.for_each_window(
      [&](std::int64_t at, std::int64_t plane, std::int64_t row, std::int64_t col) {
        const Real* const x = data<Real>(exact.x) + plane * plane_size;
        if (exact.reduction == Reduction::max) {
          Real largest = static_cast<Real>(-std::numeric_limits<double>::infinity());
          std::int64_t index = -1;
          call.for_each_element(row, col, [&](std::int64_t place) {
            if (index >= 0 && !(x[place] > largest) && x[place] == x[place]) return;
            largest = x[place];
            index = place;
          });
          put(exact.y, at, largest);
          put(scale.y, at, magnitude(largest));
          put(exact.index, at, static_cast<Real>(index));
          put(scale.index, at, Real(0));
          return;
        }
        const auto divisor = static_cast<Real>(call.divisor(row, col));
        Real sum = 0, terms = 0;
        call.for_each_element(row, col, [&](std::int64_t place) {
          sum += x[place];
          terms += magnitude(x[place]);
        });
        put(exact.y, at, sum / divisor);
        put(scale.y, at, scale_of(terms) / magnitude(divisor) + kLeastNormal<Real>);
      });
}

template <class Real>
void compute(const BackwardArgs& exact, const BackwardArgs& scale) {
  const Call call(exact, exact.grad_x, exact.grad_y);
  const std::int64_t plane_size = call.h.from * call.w.from;
  const auto size = static_cast<std::size_t>(call.planes * plane_size);
  std::vector<Real> sums(size), terms(size);
  call.for_each_window(
      [&](std::int64_t at, std::int64_t plane, std::int64_t row, std::int64_t col) {
        const Real grad = data<Real>(exact.grad_y)[at];
        const bool is_max = exact.reduction == Reduction::max;
        const Real term = is_max ? grad : grad / static_cast<Real>(call.divisor(row, col));
        call.for_each_element(row, col, [&](std::int64_t place) {
          if (is_max && static_cast<Real>(place) != data<Real>(exact.index)[at]) return;
          const auto to = static_cast<std::size_t>(plane * plane_size + place);
          sums[to] += term;
          terms[to] += magnitude(term) + kLeastNormal<Real>;
        });
      });
  for (std::size_t i = 0; i < size; ++i) {
    put(exact.grad_x, static_cast<std::int64_t>(i), sums[i]);
    put(scale.grad_x, static_cast<std::int64_t>(i), scale_of(terms[i]));
  }
}

// One array of an image's rows, as doubles.
void emit_result(std::string_view name, const TensorView& view, const EmitArray& emit) {
  const std::int64_t rows = view.shape[0] * view.shape[1] * view.shape[2], cols = view.shape[3];
  emit(name, rows, cols,
       std::span(static_cast<const double*>(view.data), static_cast<std::size_t>(rows * cols)));
}

}  // namespace

void forward_reference(const ForwardArgs& exact, const ForwardArgs& scale, const Rounding&) {
  if (exact.x.dtype == DType::f128)
    compute<quad>(exact, scale);
  else
    compute<double>(exact, scale);
}
void backward_reference(const BackwardArgs& exact, const BackwardArgs& scale, const Rounding&) {
  if (exact.grad_x.dtype == DType::f128)
    compute<quad>(exact, scale);
  else
    compute<double>(exact, scale);
}

// Nothing that is worth a look stands between the elements and the results.
void forward_intermediates(const ForwardArgs& exact, const Rounding&, const EmitArray& emit) {
  compute<double>(exact, {});
  emit_result("y", exact.y, emit);
}
void backward_intermediates(const BackwardArgs& exact, const Rounding&, const EmitArray& emit) {
  compute<double>(exact, {});
  emit_result("grad_x", exact.grad_x, emit);
}

}  // namespace isobit::pool2d
