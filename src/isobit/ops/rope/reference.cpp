// SPDX-License-Identifier: Apache-2.0
// Each pair as a complex number times another, in double or quad; tables as rope_tables has them.
#include "isobit/ops/rope/reference.h"

#include <string>
#include <vector>

#include "isobit/core/magnitude.h"
#include "isobit/core/quad.h"
#include "isobit/ops/rope_tables/reference.h"

namespace isobit::rope {
namespace {

// What an error of this product is measured by: below the normal numbers of the type that is
// computed in, its rounding is no longer relative.
template <class Real>
Real scale_of(Real product, DType dtype) {
  const Real least = static_cast<Real>(dtype == DType::f64 ? 0x1p-1022 : 0x1p-126);
  return magnitude(product) < least ? least : magnitude(product);
}

template <class Real>
Real* elements(const TensorView& view) {
  return static_cast<Real*>(view.data);
}

template <class Real>
struct Tables {
  std::vector<Real> cos, sin;  // a row for each token
};

// The tables' rows of every token, given or computed.
template <class Real, class Args>
Tables<Real> tables_of(const Args& args, const TensorView& q, std::int64_t pairs) {
  const std::int64_t batch = q.shape[0], seq = q.shape[1], tokens = batch * seq;
  const auto size = static_cast<std::size_t>(tokens * pairs);
  Tables<Real> tables{std::vector<Real>(size), std::vector<Real>(size)};
  std::vector<Real> positions;
  for (std::int64_t token = 0; token < tokens; ++token)
    positions.push_back(args.positions.given() ? elements<Real>(args.positions)[token]
                                               : static_cast<Real>(token % seq));
  if (args.cos.given()) {
    for (std::int64_t token = 0; token < tokens; ++token) {
      const std::int64_t row = static_cast<std::int64_t>(positions[token]) + args.offset_positions;
      for (std::int64_t i = 0; i < pairs; ++i) {
        tables.cos[token * pairs + i] = elements<Real>(args.cos)[row * pairs + i];
        tables.sin[token * pairs + i] = elements<Real>(args.sin)[row * pairs + i];
      }
    }
    return tables;
  }
  const auto view = [](std::vector<Real>& values, std::int64_t rows, std::int64_t cols) {
    return matrix_view(values.data(), static_cast<std::int64_t>(values.size() * sizeof(Real)),
                       sizeof(Real) == 8 ? DType::f64 : DType::f128, rows, cols, cols);
  };
  rope_tables::Args computed{.positions = view(positions, 1, tokens),
                             .cos = view(tables.cos, tokens, pairs),
                             .sin = view(tables.sin, tokens, pairs),
                             .base = args.base,
                             .offset_positions = args.offset_positions};
  rope_tables::reference(computed, {}, {computed.cos.dtype});
  return tables;
}

template <class Real>
void turn(const TensorView& x, const TensorView& y, const TensorView& scale,
          const Tables<Real>& tables, Style style, std::int64_t pairs, Real sign, DType dtype) {
  if (!x.given()) return;
  const std::int64_t tokens = x.shape[0] * x.shape[1], heads = x.shape[2], dim = x.shape[3];
  const auto put = [&](const TensorView& view, std::int64_t at, Real value) {
    if (view.given()) elements<Real>(view)[at] = value;
  };
  for (std::int64_t token = 0; token < tokens; ++token)
    for (std::int64_t head = 0; head < heads; ++head) {
      const std::int64_t begin = (token * heads + head) * dim;
      for (std::int64_t i = 0; i < pairs; ++i) {
        const bool half = style == Style::half;
        const std::int64_t first = begin + (half ? i : 2 * i);
        const std::int64_t second = begin + (half ? i + pairs : 2 * i + 1);
        const Real a = elements<Real>(x)[first], b = elements<Real>(x)[second];
        const Real c = tables.cos[token * pairs + i], s = sign * tables.sin[token * pairs + i];
        put(y, first, a * c - b * s);
        put(y, second, b * c + a * s);
        put(scale, first, magnitude(a * c) + scale_of(b * s, dtype));
        put(scale, second, magnitude(b * c) + scale_of(a * s, dtype));
      }
      for (std::int64_t at = begin + 2 * pairs; at < begin + dim; ++at) {
        put(y, at, elements<Real>(x)[at]);
        put(scale, at, magnitude(elements<Real>(x)[at]));
      }
    }
}

std::int64_t pairs_of(std::int64_t rotary_dim, const TensorView& q) {
  return (rotary_dim == 0 ? q.shape[3] : rotary_dim) / 2;
}

template <class Real>
void forward_in(const ForwardArgs& exact, const ForwardArgs& scale, DType dtype) {
  const std::int64_t pairs = pairs_of(exact.rotary_dim, exact.q);
  const auto tables = tables_of<Real>(exact, exact.q, pairs);
  turn<Real>(exact.q, exact.y_q, scale.y_q, tables, exact.style, pairs, 1, dtype);
  turn<Real>(exact.k, exact.y_k, scale.y_k, tables, exact.style, pairs, 1, dtype);
}
template <class Real>
void backward_in(const BackwardArgs& exact, const BackwardArgs& scale, DType dtype) {
  const std::int64_t pairs = pairs_of(exact.rotary_dim, exact.grad_y_q);
  const auto tables = tables_of<Real>(exact, exact.grad_y_q, pairs);
  turn<Real>(exact.grad_y_q, exact.grad_q, scale.grad_q, tables, exact.style, pairs, -1, dtype);
  turn<Real>(exact.grad_y_k, exact.grad_k, scale.grad_k, tables, exact.style, pairs, -1, dtype);
}

void emit_rows(std::string_view name, const TensorView& view, const EmitArray& emit) {
  if (!view.given()) return;
  const std::int64_t rows = view.shape[0] * view.shape[1] * view.shape[2], cols = view.shape[3];
  const auto* from = elements<double>(view);
  emit(name, rows, cols, std::vector<double>(from, from + rows * cols));
}

}  // namespace

void forward_reference(const ForwardArgs& exact, const ForwardArgs& scale,
                       const Rounding& rounding) {
  exact.q.dtype == DType::f128 ? forward_in<quad>(exact, scale, rounding.dtype)
                               : forward_in<double>(exact, scale, rounding.dtype);
}
void backward_reference(const BackwardArgs& exact, const BackwardArgs& scale,
                        const Rounding& rounding) {
  exact.grad_y_q.dtype == DType::f128 ? backward_in<quad>(exact, scale, rounding.dtype)
                                      : backward_in<double>(exact, scale, rounding.dtype);
}

// Nothing but tables stands between x and y.
void forward_intermediates(const ForwardArgs& exact, const Rounding& rounding,
                           const EmitArray& emit) {
  forward_reference(exact, {}, rounding);
  emit_rows("y_q", exact.y_q, emit);
  emit_rows("y_k", exact.y_k, emit);
}
void backward_intermediates(const BackwardArgs& exact, const Rounding& rounding,
                            const EmitArray& emit) {
  backward_reference(exact, {}, rounding);
  emit_rows("grad_q", exact.grad_q, emit);
  emit_rows("grad_k", exact.grad_k, emit);
}

}  // namespace isobit::rope
