// SPDX-License-Identifier: Apache-2.0
// A norm by its own reference, and what follows it, one element after the other.
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include "isobit/core/magnitude.h"
#include "isobit/core/tensor_view.h"
#include "isobit/norm_linear/reference.h"
#include "isobit/norms/reference.h"
#include "isobit/ops/matmul/reference_terms.h"

namespace isobit::norm_linear::reference {

using matmul::reference::kLeastNormal;
using matmul::reference::store;
using matmul::reference::Values;
using norms::reference::row_of;

// The norm's part of a call.
template <class Fused>
typename Fused::Norm::ForwardArgs norm_of(const typename Fused::ForwardArgs& args) {
  typename Fused::Norm::ForwardArgs norm;
  norm.x = args.x;
  norm.residual = args.x_residual;
  norm.weight = args.norm_weight;
  if constexpr (requires { args.norm_bias; }) norm.bias = args.norm_bias;
  norm.sum = args.sum;
  if constexpr (requires { args.mean; }) norm.mean = args.mean;
  norm.rstd = args.rstd;
  norm.eps = args.eps;
  norm.zero_centered = args.zero_centered;
  norm.dropout = args.dropout;
  norm.dropout_seed = args.dropout_seed;
  return norm;
}
template <class Fused>
typename Fused::Norm::BackwardArgs norm_of(const typename Fused::BackwardArgs& args) {
  typename Fused::Norm::BackwardArgs norm;
  norm.x = args.x;
  norm.weight = args.norm_weight;
  norm.grad_sum = args.grad_sum;
  norm.grad_x = args.grad_x;
  norm.grad_residual = args.grad_x_residual;
  norm.grad_weight = args.grad_norm_weight;
  if constexpr (requires { args.grad_norm_bias; }) norm.grad_bias = args.grad_norm_bias;
  norm.eps = args.eps;
  norm.zero_centered = args.zero_centered;
  norm.dropout = args.dropout;
  norm.dropout_seed = args.dropout_seed;
  return norm;
}

// y as it is multiplied, and the scale of its errors.
template <class Fused, class Real>
struct Normalised {
  Values<Real> y, scale;

  Normalised(typename Fused::Norm::ForwardArgs exact, typename Fused::Norm::ForwardArgs scales,
             const Rounding& rounding)
      : y(exact.x.shape[0], exact.x.shape[1]), scale(y) {
    exact.y = y.view();
    scales.y = scale.view();
    norms::Reference<typename Fused::Norm>::forward(exact, scales, rounding);
  }
  void store_as(DType dtype) { store(y.data, scale.data, dtype, Real(8)); }
};

template <class Fused, class Real>
void forward(const typename Fused::ForwardArgs& exact, const typename Fused::ForwardArgs& scale,
             const Rounding& rounding) {
  Normalised<Fused, Real> normalised(norm_of<Fused>(exact), norm_of<Fused>(scale), rounding);
  const auto copy = [&](const TensorView& to, const Values<Real>& from) {
    for (std::int64_t i = 0; i < from.rows && to.given(); ++i)
      std::copy_n(from.row(i), from.cols, row_of<Real>(to, i));
  };
  copy(exact.y, normalised.y);
  copy(scale.y, normalised.scale);
  normalised.store_as(rounding.y_dtype);
  const std::int64_t rows = normalised.y.rows, cols = normalised.y.cols;
  const std::int64_t features = exact.weight.shape[0];
  for (std::int64_t i = 0; i < rows; ++i)
    for (std::int64_t j = 0; j < features; ++j) {
      const Real* const weight = row_of<Real>(exact.weight, j);
      Real pre = 0, terms = static_cast<Real>(cols) * kLeastNormal<Real>;
      for (std::int64_t k = 0; k < cols; ++k) {
        pre += normalised.y.row(i)[k] * weight[k];
        terms += normalised.scale.row(i)[k] * magnitude(weight[k]);
      }
      terms = matmul::reference::scale_of(Real(1), terms);
      if (exact.bias.given()) {
        pre += static_cast<const Real*>(exact.bias.data)[j];
        terms += magnitude(static_cast<const Real*>(exact.bias.data)[j]);
      }
      Real z = matmul::reference::activated(exact.activation, pre), z_terms = terms;
      if (const Real* residual = row_of<Real>(exact.residual, i)) {
        z += residual[j];
        z_terms += magnitude(residual[j]);
      }
      const auto write = [&](const TensorView& to, Real value) {
        if (to.given()) row_of<Real>(to, i)[j] = value;
      };
      write(exact.pre, pre);
      write(scale.pre, terms);
      write(exact.z, z);
      write(scale.z, z_terms);
    }
}

template <class Fused, class Real>
void backward(const typename Fused::BackwardArgs& exact, const typename Fused::BackwardArgs& scale,
              const Rounding& rounding) {
  using Norm = typename Fused::Norm;
  const std::int64_t rows = exact.x.shape[0], cols = exact.x.shape[1];
  const std::int64_t features = exact.weight.shape[0];
  const auto at = [](std::int64_t i) { return static_cast<std::size_t>(i); };
  const Rounding as_weight{.dtype = rounding.y_dtype, .y_dtype = rounding.y_dtype};
  const matmul::reference::Bent<Real> s(static_cast<const Real*>(exact.grad_z.data),
                                        static_cast<const Real*>(exact.pre.data), rows * features,
                                        exact.activation, as_weight);

  Values<Real> grad_y(rows, cols), grad_y_scale(rows, cols);
  for (std::int64_t i = 0; i < rows; ++i) {
    Real *to = grad_y.row(i), *to_scale = grad_y_scale.row(i);
    std::fill_n(to_scale, cols, static_cast<Real>(features) * kLeastNormal<Real>);
    for (std::int64_t j = 0; j < features; ++j) {
      const Real* const weight = row_of<Real>(exact.weight, j);
      const Real value = s.value[at(i * features + j)], size = s.scale[at(i * features + j)];
      for (std::int64_t k = 0; k < cols; ++k) {
        to[k] += value * weight[k];
        to_scale[k] += size * magnitude(weight[k]);
      }
    }
    for (std::int64_t k = 0; k < cols; ++k)
      to_scale[k] = matmul::reference::scale_of(Real(1), to_scale[k]);
  }
  store(grad_y.data, grad_y_scale.data, rounding.y_dtype,
        Real(std::sqrt(static_cast<double>(features))));
  auto norm = norm_of<Fused>(exact);
  norm.grad_y = grad_y.view();
  norms::Reference<Norm>::backward(norm, {}, rounding);
  // Errors of grad_y pass through the norm as grad_y itself does: what they are measured by, too.
  norm.grad_y = grad_y_scale.view();
  norm.grad_x = norm.grad_residual = norm.grad_weight = {};
  if constexpr (requires { norm.grad_bias; }) norm.grad_bias = {};
  norms::Reference<Norm>::backward(norm, norm_of<Fused>(scale), rounding);

  typename Norm::ForwardArgs again;
  again.x = exact.x;
  again.weight = exact.norm_weight;
  if constexpr (requires { again.bias; }) again.bias = exact.norm_bias;
  again.eps = exact.eps;
  again.zero_centered = exact.zero_centered;
  Normalised<Fused, Real> normalised(again, {}, rounding);
  normalised.store_as(rounding.y_dtype);
  const auto add_products = [&](const TensorView& to, const std::vector<Real>& left,
                                const Values<Real>& y) {
    for (std::int64_t i = 0; i < rows && to.given(); ++i)
      for (std::int64_t j = 0; j < features; ++j)
        for (std::int64_t k = 0; k < cols; ++k)
          row_of<Real>(to, j)[k] += left[at(i * features + j)] * y.row(i)[k];
  };
  add_products(exact.grad_weight, s.value, normalised.y);
  add_products(scale.grad_weight, s.scale, normalised.scale);
  for (std::int64_t i = 0; i < rows * features; ++i) {
    if (exact.grad_bias.given())
      static_cast<Real*>(exact.grad_bias.data)[i % features] += s.value[at(i)];
    if (scale.grad_bias.given())
      static_cast<Real*>(scale.grad_bias.data)[i % features] += s.scale[at(i)];
  }
}

}  // namespace isobit::norm_linear::reference

namespace isobit::norm_linear {

template <class Fused>
void Reference<Fused>::forward(const ForwardArgs& exact, const ForwardArgs& scale,
                               const Rounding& rounding) {
  exact.x.dtype == DType::f128 ? reference::forward<Fused, quad>(exact, scale, rounding)
                               : reference::forward<Fused, double>(exact, scale, rounding);
}

template <class Fused>
void Reference<Fused>::backward(const BackwardArgs& exact, const BackwardArgs& scale,
                                const Rounding& rounding) {
  exact.x.dtype == DType::f128 ? reference::backward<Fused, quad>(exact, scale, rounding)
                               : reference::backward<Fused, double>(exact, scale, rounding);
}

template <class Fused>
void Reference<Fused>::forward_intermediates(const ForwardArgs& exact, const Rounding& rounding,
                                             const EmitArray& emit) {
  norms::Reference<typename Fused::Norm>::forward_intermediates(reference::norm_of<Fused>(exact),
                                                                rounding, emit);
  reference::Normalised<Fused, double> normalised(reference::norm_of<Fused>(exact), {}, rounding);
  emit("y", normalised.y.rows, normalised.y.cols, normalised.y.data);
}

template <class Fused>
void Reference<Fused>::backward_intermediates(const BackwardArgs& exact, const Rounding& rounding,
                                              const EmitArray& emit) {
  const std::int64_t rows = exact.x.shape[0], features = exact.weight.shape[0];
  const matmul::reference::Bent<double> s(
      static_cast<const double*>(exact.grad_z.data), static_cast<const double*>(exact.pre.data),
      rows * features, exact.activation, {.dtype = rounding.y_dtype, .y_dtype = rounding.y_dtype});
  emit("s", rows, features, s.value);
  reference::Values<double> grad_y(rows, exact.x.shape[1]);
  for (std::int64_t i = 0; i < rows; ++i)
    for (std::int64_t j = 0; j < features; ++j)
      for (std::int64_t k = 0; k < grad_y.cols; ++k)
        grad_y.row(i)[k] += s.value[static_cast<std::size_t>(i * features + j)] *
                            reference::row_of<double>(exact.weight, j)[k];
  emit("grad_y", rows, grad_y.cols, grad_y.data);
  auto norm = reference::norm_of<Fused>(exact);
  norm.grad_y = grad_y.view();
  norms::Reference<typename Fused::Norm>::backward_intermediates(norm, rounding, emit);
}

}  // namespace isobit::norm_linear
