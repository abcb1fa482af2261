// SPDX-License-Identifier: Apache-2.0
// Sums of products in double, or in quad where the elements are doubles; activations by the C
// library.
#include "isobit/ops/matmul/reference.h"

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "isobit/core/magnitude.h"
#include "isobit/ops/matmul/reference_terms.h"

namespace isobit::matmul {
namespace {

using reference::activated;
using reference::Bent;
using reference::least_of;
using reference::scale_of;
using reference::term_of;

// References see arrays without gaps: the last index is the fastest.
template <class Real>
void compute(const ForwardArgs& args, const ForwardArgs& scales) {
  const auto data = [](const TensorView& view) { return static_cast<Real*>(view.data); };
  const std::int64_t m = args.a.shape[1], k = args.a.shape[2], n = args.b.shape[2];
  const auto alpha = static_cast<Real>(args.alpha), beta = static_cast<Real>(args.beta);
  std::vector<Real> sums(static_cast<std::size_t>(n)), terms(sums);
  for (std::int64_t product = 0; product < args.a.shape[0]; ++product)
    for (std::int64_t i = 0; i < m; ++i) {
      std::fill(sums.begin(), sums.end(), Real(0));
      std::fill(terms.begin(), terms.end(), Real(0));
      for (std::int64_t at = 0; at < k; ++at) {
        const Real a = data(args.a)[(product * m + i) * k + at];
        const Real* b = data(args.b) + (product * k + at) * n;
        for (std::int64_t j = 0; j < n; ++j) {
          sums[static_cast<std::size_t>(j)] += a * b[j];
          terms[static_cast<std::size_t>(j)] +=
              term_of(args.arithmetic, a, b[j], magnitude(a * b[j]));
        }
      }
      for (std::int64_t j = 0; j < n; ++j) {
        const std::int64_t at = (product * m + i) * n + j;
        Real pre = alpha * sums[static_cast<std::size_t>(j)];
        Real scale = scale_of(alpha, terms[static_cast<std::size_t>(j)] +
                                         static_cast<Real>(k) * least_of<Real>(args.arithmetic));
        if (args.beta != 0) {
          pre += beta * data(args.c)[at];
          scale += magnitude(beta * data(args.c)[at]);
        }
        if (args.bias.given()) {
          pre += data(args.bias)[j];
          scale += magnitude(data(args.bias)[j]);
        }
        Real y = activated(args.activation, pre), y_scale = scale;
        if (args.residual.given()) {
          y += data(args.residual)[at];
          y_scale += magnitude(data(args.residual)[at]);
        }
        const auto write = [at, &data](const TensorView& view, Real value) {
          if (view.given()) data(view)[at] = value;
        };
        write(args.y, y);
        write(scales.y, y_scale);
        write(args.pre, pre);
        write(scales.pre, scale);
      }
    }
}

template <class Real>
void compute(const BackwardArgs& args, const BackwardArgs& scales, const Rounding& types) {
  const auto data = [](const TensorView& view) { return static_cast<Real*>(view.data); };
  const auto at = [](std::int64_t index) { return static_cast<std::size_t>(index); };
  const std::int64_t m = args.a.shape[1], k = args.a.shape[2], n = args.b.shape[2];
  const auto alpha = static_cast<Real>(args.alpha), beta = static_cast<Real>(args.beta);
  const Bent<Real> s(data(args.grad_y), data(args.pre), args.grad_y.shape[0] * m * n,
                     args.activation, types);
  const auto write = [&](const TensorView& to, std::int64_t place, Real number) {
    if (to.given()) data(to)[place] = number;
  };
  // to = alpha x y: row after row of y, times elements of x.
  std::vector<Real> sums, sizes;
  const auto multiply = [&](const TensorView& to, const TensorView& to_scale, std::int64_t first,
                            std::int64_t rows, std::int64_t cols, std::int64_t terms, auto x,
                            auto x_scale, const Real* y, const Real* y_scale) {
    if (!to.given()) return;
    for (std::int64_t i = 0; i < rows; ++i) {
      sums.assign(at(cols), 0);
      sizes.assign(at(cols), static_cast<Real>(terms) * least_of<Real>(args.arithmetic));
      for (std::int64_t t = 0; t < terms; ++t) {
        const Real factor = x(i, t), size = x_scale(i, t);
        for (std::int64_t j = 0; j < cols; ++j) {
          sums[at(j)] += factor * y[t * cols + j];
          sizes[at(j)] +=
              term_of(args.arithmetic, factor, y[t * cols + j], Real(size * y_scale[t * cols + j]));
        }
      }
      for (std::int64_t j = 0; j < cols; ++j) {
        write(to, first + i * cols + j, alpha * sums[at(j)]);
        write(to_scale, first + i * cols + j, scale_of(alpha, sizes[at(j)]));
      }
    }
  };
  std::vector<Real> b_turned(at(n * k)), b_sizes(at(n * k));
  for (std::int64_t product = 0; product < args.a.shape[0]; ++product) {
    const std::int64_t of_s = product * m * n;
    const Real *a = data(args.a) + product * m * k, *b = data(args.b) + product * k * n;
    for (std::int64_t row = 0; row < k; ++row)
      for (std::int64_t col = 0; col < n; ++col) {
        b_turned[at(col * k + row)] = b[row * n + col];
        b_sizes[at(col * k + row)] = magnitude(b[row * n + col]);
      }
    multiply(
        args.grad_a, scales.grad_a, product * m * k, m, k, n,
        [&](std::int64_t i, std::int64_t t) { return s.factor[at(of_s + i * n + t)]; },
        [&](std::int64_t i, std::int64_t t) { return s.factor_scale[at(of_s + i * n + t)]; },
        b_turned.data(), b_sizes.data());
    multiply(
        args.grad_b, scales.grad_b, product * k * n, k, n, m,
        [&](std::int64_t i, std::int64_t t) { return a[t * k + i]; },
        [&](std::int64_t i, std::int64_t t) { return magnitude(a[t * k + i]); },
        s.factor.data() + of_s, s.factor_scale.data() + of_s);
  }
  for (std::int64_t i = 0; i < args.grad_y.shape[0] * m * n; ++i) {
    if (args.grad_bias.given()) data(args.grad_bias)[i % n] += s.value[at(i)];
    if (scales.grad_bias.given()) data(scales.grad_bias)[i % n] += s.scale[at(i)];
    write(args.grad_c, i, beta == 0 ? Real(0) : beta * s.value[at(i)]);
    write(scales.grad_c, i, beta == 0 ? Real(0) : magnitude(beta) * s.scale[at(i)]);
  }
}

}  // namespace

void forward_reference(const ForwardArgs& exact, const ForwardArgs& scale, const Rounding&) {
  if (exact.a.dtype == DType::f128)
    compute<quad>(exact, scale);
  else
    compute<double>(exact, scale);
}

void forward_intermediates(const ForwardArgs& exact, const Rounding&, const EmitArray& emit) {
  const std::int64_t rows = exact.y.shape[0] * exact.y.shape[1], cols = exact.y.shape[2];
  ForwardArgs plain = exact;
  plain.beta = 0;
  plain.alpha = 1;
  plain.bias = plain.residual = plain.pre = {};
  plain.activation = Activation::none;
  std::vector<double> values(static_cast<std::size_t>(rows * cols));
  plain.y.data = values.data();
  compute<double>(plain, {});
  emit("a b", rows, cols, values);
  ForwardArgs whole = exact;
  whole.y.data = values.data();
  compute<double>(whole, {});
  emit("y", rows, cols, values);
}

void backward_reference(const BackwardArgs& exact, const BackwardArgs& scale,
                        const Rounding& rounding) {
  if (exact.a.dtype == DType::f128)
    compute<quad>(exact, scale, rounding);
  else
    compute<double>(exact, scale, rounding);
}

void backward_intermediates(const BackwardArgs& exact, const Rounding& rounding,
                            const EmitArray& emit) {
  const auto of = [](const TensorView& view) { return static_cast<const double*>(view.data); };
  const std::int64_t count = exact.grad_y.shape[0] * exact.grad_y.shape[1] * exact.grad_y.shape[2];
  const Bent<double> s(of(exact.grad_y), of(exact.pre), count, exact.activation, rounding);
  emit("s", exact.a.shape[0] * exact.a.shape[1], exact.b.shape[2], s.value);
  compute<double>(exact, {}, rounding);
  for (const auto& [name, view] :
       {std::pair("grad_a", exact.grad_a), std::pair("grad_b", exact.grad_b)}) {
    if (!view.given()) continue;
    const std::int64_t rows = view.shape[0] * view.shape[1], cols = view.shape[2];
    emit(name, rows, cols,
         std::span(static_cast<const double*>(view.data), static_cast<std::size_t>(rows * cols)));
  }
}

}  // namespace isobit::matmul
