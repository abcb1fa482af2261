// SPDX-License-Identifier: Apache-2.0
// Sums over windows in double, or in quad where the elements are doubles: forward in loops over
// what a window sees, and gradients by giving to every weight and element what it had a part in.
#include "isobit/ops/convolution/reference.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "isobit/core/magnitude.h"
#include "isobit/ops/matmul/reference_terms.h"

namespace isobit::convolution {
namespace {

using matmul::reference::activated;
using matmul::reference::kLeastNormal;
using matmul::reference::scale_of;

// One dimension of a call.
struct Side {
  std::int64_t from, to, taps, stride, dilation, padding;
  PaddingMode mode;

  // Which element of x a tap sees; -1: a zero.
  std::int64_t seen(std::int64_t result, std::int64_t tap) const {
    std::int64_t at = result * stride + tap * dilation - padding;
    if (mode == PaddingMode::zeros) return at < 0 || at >= from ? -1 : at;
    if (mode == PaddingMode::replicate) return std::min(std::max<std::int64_t>(at, 0), from - 1);
    if (mode == PaddingMode::circular) return (at % from + from) % from;
    while (at < 0 || at >= from) at = at < 0 ? -at : 2 * from - 2 - at;
    return at;
  }
};

// The extents of a call: arrays without gaps, in which the last index is the fastest.
struct Call {
  std::int64_t batch, groups, ins, outs;
  Side h, w;

  template <class Args>
  Call(const Args& args, const TensorView& y) {
    const bool two = args.x.rank == 4;
    batch = args.x.shape[0];
    groups = args.groups;
    ins = args.weight.shape[1];
    outs = args.weight.shape[0] / groups;
    w = {args.x.shape[args.x.rank - 1],
         y.shape[y.rank - 1],
         args.weight.shape[args.x.rank - 1],
         args.stride_w,
         args.dilation_w,
         args.padding_w,
         args.padding_mode};
    h = two ? Side{args.x.shape[2], y.shape[2],     args.weight.shape[2], args.stride_h,
                   args.dilation_h, args.padding_h, args.padding_mode}
            : Side{1, 1, 1, 1, 1, 0, PaddingMode::zeros};
  }
  // Calls visit(y, x or -1, weight), as places in the arrays.
  template <class Visit>
  void for_each_product(std::int64_t n, std::int64_t filter, std::int64_t row, std::int64_t col,
                        const Visit& visit) const {
    const std::int64_t channels = groups * ins, group = filter / outs;
    for (std::int64_t c = 0; c < ins; ++c)
      for (std::int64_t i = 0; i < h.taps; ++i)
        for (std::int64_t j = 0; j < w.taps; ++j) {
          const std::int64_t from_h = h.seen(row, i), from_w = w.seen(col, j);
          const std::int64_t weight = ((filter * ins + c) * h.taps + i) * w.taps + j;
          const std::int64_t plane = n * channels + group * ins + c;
          visit(from_h < 0 || from_w < 0 ? -1 : (plane * h.from + from_h) * w.from + from_w,
                weight);
        }
  }
  // Calls visit(place, n, filter, row, col) for all of y.
  template <class Visit>
  void for_each_result(const Visit& visit) const {
    std::int64_t place = 0;
    for (std::int64_t n = 0; n < batch; ++n)
      for (std::int64_t filter = 0; filter < groups * outs; ++filter)
        for (std::int64_t row = 0; row < h.to; ++row)
          for (std::int64_t col = 0; col < w.to; ++col) visit(place++, n, filter, row, col);
  }
};

template <class Real>
Real* data(const TensorView& view) {
  return static_cast<Real*>(view.data);
}
template <class Real>
void write(const TensorView& view, std::int64_t at, Real value) {
  if (view.given()) data<Real>(view)[at] = value;
}

template <class Real>
void compute(const ForwardArgs& args, const ForwardArgs& scales) {
  const Call call(args, args.y);
  const Real *x = data<Real>(args.x), *weight = data<Real>(args.weight);
  const auto terms = static_cast<Real>(call.ins * call.h.taps * call.w.taps);
  call.for_each_result([&](std::int64_t at, std::int64_t n, std::int64_t filter, std::int64_t row,
                           std::int64_t col) {
    Real pre = 0, scale = terms * kLeastNormal<Real>;
    call.for_each_product(n, filter, row, col, [&](std::int64_t from, std::int64_t of) {
      const Real product = (from < 0 ? Real(0) : x[from]) * weight[of];
      pre += product;
      scale += magnitude(product);
    });
    scale = scale_of(Real(1), scale);
    if (args.bias.given()) {
      pre += data<Real>(args.bias)[filter];
      scale += magnitude(data<Real>(args.bias)[filter]);
    }
    Real y = activated(args.activation, pre), y_scale = scale;
    if (args.residual.given()) {
      y += data<Real>(args.residual)[at];
      y_scale += magnitude(data<Real>(args.residual)[at]);
    }
    write(args.y, at, y);
    write(scales.y, at, y_scale);
    write(args.pre, at, pre);
    write(scales.pre, at, scale);
  });
}

template <class Real>
void compute(const BackwardArgs& args, const BackwardArgs& scales) {
  const Call call(args, args.grad_y);
  const Real *grad = data<Real>(args.grad_y), *x = data<Real>(args.x),
             *weight = data<Real>(args.weight);
  const auto size = [](std::int64_t count) { return static_cast<std::size_t>(count); };
  const std::int64_t of_x = call.batch * call.groups * call.ins * call.h.from * call.w.from;
  std::vector<Real> to_x(size(of_x)), x_terms(to_x);
  std::vector<Real> counts(size(of_x));
  call.for_each_result([&](std::int64_t at, std::int64_t n, std::int64_t filter, std::int64_t row,
                           std::int64_t col) {
    const Real g = grad[at];
    call.for_each_product(n, filter, row, col, [&](std::int64_t from, std::int64_t of) {
      if (from >= 0 && args.grad_x.given()) {
        to_x[size(from)] += g * weight[of];
        x_terms[size(from)] += magnitude(g * weight[of]);
        counts[size(from)] += 1;
      }
      if (!args.grad_weight.given()) return;
      const Real product = (from < 0 ? Real(0) : x[from]) * g;
      data<Real>(args.grad_weight)[of] += product;
      if (scales.grad_weight.given())
        data<Real>(scales.grad_weight)[of] += magnitude(product) + kLeastNormal<Real>;
    });
    if (args.grad_bias.given()) data<Real>(args.grad_bias)[filter] += g;
    if (scales.grad_bias.given()) data<Real>(scales.grad_bias)[filter] += magnitude(g);
  });
  for (std::int64_t i = 0; args.grad_x.given() && i < of_x; ++i) {
    write(args.grad_x, i, to_x[size(i)]);
    write(scales.grad_x, i,
          scale_of(Real(1), x_terms[size(i)] + counts[size(i)] * kLeastNormal<Real>));
  }
}

}  // namespace

void forward_reference(const ForwardArgs& exact, const ForwardArgs& scale) {
  if (exact.x.dtype == DType::f128)
    compute<quad>(exact, scale);
  else
    compute<double>(exact, scale);
}

void forward_intermediates(const ForwardArgs& exact, const EmitArray& emit) {
  std::int64_t rows = 1;
  for (int i = 0; i + 1 < exact.y.rank; ++i) rows *= exact.y.shape[i];
  const std::int64_t cols = exact.y.shape[exact.y.rank - 1];
  ForwardArgs plain = exact;
  plain.bias = plain.residual = plain.pre = {};
  plain.activation = Activation::none;
  std::vector<double> values(static_cast<std::size_t>(rows * cols));
  plain.y.data = values.data();
  compute<double>(plain, {});
  emit("sums", rows, cols, values);
  ForwardArgs whole = exact;
  whole.y.data = values.data();
  compute<double>(whole, {});
  emit("y", rows, cols, values);
}

void backward_reference(const BackwardArgs& exact, const BackwardArgs& scale) {
  if (exact.x.dtype == DType::f128)
    compute<quad>(exact, scale);
  else
    compute<double>(exact, scale);
}

void backward_intermediates(const BackwardArgs& exact, const EmitArray& emit) {
  compute<double>(exact, {});
  for (const auto& [name, view] :
       {std::pair("grad_x", exact.grad_x), std::pair("grad_weight", exact.grad_weight)}) {
    if (!view.given()) continue;
    std::int64_t rows = 1;
    for (int i = 0; i + 1 < view.rank; ++i) rows *= view.shape[i];
    const std::int64_t cols = view.shape[view.rank - 1];
    emit(name, rows, cols,
         std::span(static_cast<const double*>(view.data), static_cast<std::size_t>(rows * cols)));
  }
}

}  // namespace isobit::convolution
