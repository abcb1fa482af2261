// SPDX-License-Identifier: Apache-2.0
// Sums of products in double, or in quad where the elements are doubles; activations by the C
// library.
#include "isobit/ops/matmul/reference.h"

#include <cmath>
#include <type_traits>
#include <vector>

#include "isobit/ops/activation/reference_functions.h"

namespace isobit::matmul {
namespace {

template <class Real>
Real magnitude(Real x) {
  return x < 0 ? -x : x;
}

template <class Real>
Real activated(Activation activation, Real x) {
  using Wide = std::conditional_t<std::is_same_v<Real, quad>, long double, double>;
  const auto wide = static_cast<Wide>(x);
  switch (activation) {
    case Activation::relu:      return x < 0 ? 0 : x;
    case Activation::gelu:      return static_cast<Real>(activation::exact::gelu(wide));
    case Activation::gelu_tanh: return static_cast<Real>(activation::exact::gelu_tanh(wide));
    case Activation::silu:      return static_cast<Real>(activation::exact::silu(wide));
    default:                    return x;
  }
}

// Half the smallest number for each term, in units of what scales are multiplied by.
template <class Real>
constexpr Real kLeastNormal = std::is_same_v<Real, quad> ? Real(0x1p-1022) : Real(0x1p-126);

// References see arrays without gaps: the last index is the fastest.
template <class Real>
void compute(const Args& args, const Args& scales) {
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
          terms[static_cast<std::size_t>(j)] += magnitude(a * b[j]);
        }
      }
      for (std::int64_t j = 0; j < n; ++j) {
        const std::int64_t at = (product * m + i) * n + j;
        Real pre = alpha * sums[static_cast<std::size_t>(j)];
        Real scale = magnitude(alpha) * (terms[static_cast<std::size_t>(j)] +
                                         static_cast<Real>(k) * kLeastNormal<Real>);
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

}  // namespace

void reference(const Args& exact, const Args& scale, const Rounding&) {
  if (exact.a.dtype == DType::f128)
    compute<quad>(exact, scale);
  else
    compute<double>(exact, scale);
}

void intermediates(const Args& exact, const Rounding&, const EmitArray& emit) {
  const std::int64_t rows = exact.y.shape[0] * exact.y.shape[1], cols = exact.y.shape[2];
  Args plain = exact;
  plain.beta = 0;
  plain.alpha = 1;
  plain.bias = plain.residual = plain.pre = {};
  plain.activation = Activation::none;
  std::vector<double> values(static_cast<std::size_t>(rows * cols));
  plain.y.data = values.data();
  compute<double>(plain, {});
  emit("a b", rows, cols, values);
  Args whole = exact;
  whole.y.data = values.data();
  compute<double>(whole, {});
  emit("y", rows, cols, values);
}

}  // namespace isobit::matmul
