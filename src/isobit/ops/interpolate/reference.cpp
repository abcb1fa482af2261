// SPDX-License-Identifier: Apache-2.0
// Interpolation as its definition has it, in double or in quad: gradients by giving to every
// element what it had a part in.
#include "isobit/ops/interpolate/reference.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <vector>

#include "isobit/core/magnitude.h"
#include "isobit/ops/matmul/reference_terms.h"

namespace isobit::interpolate {
namespace {

using matmul::reference::kLeastNormal;
using matmul::reference::scale_of;

// One side of a call.
struct Side {
  std::int64_t from, to;
  Mode mode;
  bool aligned;
  double scale;

  std::int64_t inside(std::int64_t place) const {
    return std::clamp<std::int64_t>(place, 0, from - 1);
  }

  // The elements of a result and their weights. A scale's places are what doubles say they are.
  template <class Real>
  std::map<std::int64_t, Real> weights(std::int64_t result) const {
    const bool nearest = mode == Mode::nearest || mode == Mode::nearest_exact;
    std::int64_t below = 0;
    Real t = 0, u = 1;  // behind it, and before the next
    if (scale != 0) {
      const double step = static_cast<double>(result) + (mode == Mode::nearest ? 0.0 : 0.5);
      const double at = std::min(step / scale - (nearest ? 0.0 : 0.5), static_cast<double>(from));
      const double whole = std::floor(at);
      below = static_cast<std::int64_t>(whole);
      t = static_cast<Real>(at - whole);
      u = 1 - t;
    } else {
      // Twice the distance in parts of which `parts` are an element.
      std::int64_t parts = to, distance = 2 * result * from;
      if (aligned) {
        parts = std::max<std::int64_t>(to - 1, 1);
        distance = 2 * result * (from - 1);
      } else if (mode == Mode::nearest_exact) {
        distance += from;
      } else if (!nearest) {
        distance += from - to;
      }
      while (distance < 0) {
        distance += 2 * parts;
        --below;
      }
      below += distance / (2 * parts);
      t = static_cast<Real>(distance % (2 * parts)) / static_cast<Real>(2 * parts);
      u = static_cast<Real>(2 * parts - distance % (2 * parts)) / static_cast<Real>(2 * parts);
    }
    std::map<std::int64_t, Real> found;
    if (nearest || t == 0) {
      found[inside(below)] = 1;
    } else if (t == 1) {
      found[inside(below + 1)] = 1;
    } else if (mode == Mode::linear) {
      found[inside(below)] += u;
      found[inside(below + 1)] += t;
    } else {
      // a (d - 1) (d - 2)^2 from 1 to 2, and (1 - d) (1 + d - (a + 2) d^2) to 1.
      const Real a = Real(-3) / 4;
      found[inside(below - 1)] += a * t * u * u;
      found[inside(below)] += u * (1 + t - (a + 2) * t * t);
      found[inside(below + 1)] += t * (1 + u - (a + 2) * u * u);
      found[inside(below + 2)] += a * t * t * u;
    }
    if (found.size() == 1) found.begin()->second = 1;
    return found;
  }
};

template <class Args>
struct Call {
  std::int64_t planes;
  Side h, w;

  Call(const Args& args, const TensorView& x, const TensorView& y)
      : planes(x.shape[0] * x.shape[1]),
        h{x.shape[2], y.shape[2], args.mode, args.align_corners, args.scale_h},
        w{x.shape[3], y.shape[3], args.mode, args.align_corners, args.scale_w} {}

  // Calls begin(result) and then term(result, element, its weights) for all elements of a result,
  // and end(result); arrays have no gaps.
  template <class Real, class Begin, class Term, class End>
  void for_each_result(const Begin& begin, const Term& term, const End& end) const {
    std::vector<std::map<std::int64_t, Real>> across;
    for (std::int64_t col = 0; col < w.to; ++col) across.push_back(w.weights<Real>(col));
    std::int64_t at = 0;
    for (std::int64_t plane = 0; plane < planes; ++plane)
      for (std::int64_t row = 0; row < h.to; ++row) {
        const auto down = h.weights<Real>(row);
        for (std::int64_t col = 0; col < w.to; ++col, ++at) {
          begin(at);
          for (const auto& [i, of_row] : down)
            for (const auto& [j, of_col] : across[static_cast<std::size_t>(col)])
              term(at, (plane * h.from + i) * w.from + j, of_row, of_col);
          end(at);
        }
      }
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

// A sum of products and what its errors are measured by. Sums of rows, which only then have the
// weights of rows, may have left the range before.
template <class Real>
struct Sum {
  Real value = 0, terms = 0, rows = 0;

  void add(Real of_row, Real of_col, Real x) {
    value += of_row * of_col * x;
    terms += magnitude(of_row * of_col * x) + kLeastNormal<Real>;
    rows += magnitude(of_col * x);
  }
  Real scale() const {
    const Real largest = scale_of(Real(1), rows);
    return largest > rows ? largest : scale_of(Real(1), terms);
  }
};

template <class Real>
void compute(const ForwardArgs& exact, const ForwardArgs& scale) {
  Sum<Real> sum;
  const Call call(exact, exact.x, exact.y);
  call.template for_each_result<Real>(
      [&](std::int64_t) { sum = {}; },
      [&](std::int64_t, std::int64_t element, Real of_row, Real of_col) {
        sum.add(of_row, of_col, data<Real>(exact.x)[element]);
      },
      [&](std::int64_t at) {
        put(exact.y, at, sum.value);
        put(scale.y, at, sum.scale());
      });
}

template <class Real>
void compute(const BackwardArgs& exact, const BackwardArgs& scale) {
  const Call call(exact, exact.grad_x, exact.grad_y);
  const auto size = static_cast<std::size_t>(call.planes * call.h.from * call.w.from);
  std::vector<Sum<Real>> sums(size);
  call.template for_each_result<Real>(
      [](std::int64_t) {},
      [&](std::int64_t at, std::int64_t element, Real of_row, Real of_col) {
        sums[static_cast<std::size_t>(element)].add(of_row, of_col, data<Real>(exact.grad_y)[at]);
      },
      [](std::int64_t) {});
  for (std::size_t i = 0; i < size; ++i) {
    put(exact.grad_x, static_cast<std::int64_t>(i), sums[i].value);
    put(scale.grad_x, static_cast<std::int64_t>(i), sums[i].scale());
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

}  // namespace isobit::interpolate
