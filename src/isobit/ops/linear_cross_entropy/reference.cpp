// SPDX-License-Identifier: Apache-2.0
// Logits in double, or in quad where the elements are doubles, rounded as they are between the two
// operators, and what cross_entropy's reference makes of them.
#include "isobit/ops/linear_cross_entropy/reference.h"

#include <algorithm>
#include <cmath>
#include <string_view>
#include <utility>
#include <vector>

#include "isobit/core/magnitude.h"
#include "isobit/ops/cross_entropy/reference.h"
#include "isobit/ops/matmul/reference_terms.h"

namespace isobit::linear_cross_entropy {
namespace {

using matmul::reference::kLeastNormal;
using matmul::reference::store;
using matmul::reference::Values;

// References see arrays without gaps.
template <class Real>
Real* data_of(const TensorView& view) {
  return static_cast<Real*>(view.data);
}

// Logits, and what their errors are measured by.
template <class Real>
struct Logits {
  Values<Real> value, scale;

  template <class Args>
  Logits(const Args& args, DType dtype)
      : value(args.x.shape[0], args.weight.shape[0]), scale(value) {
    const std::int64_t cols = args.x.shape[1];
    for (std::int64_t i = 0; i < value.rows; ++i)
      for (std::int64_t j = 0; j < value.cols; ++j) {
        const Real *x = data_of<Real>(args.x) + i * cols,
                   *weight = data_of<Real>(args.weight) + j * cols;
        Real sum = 0, terms = static_cast<Real>(cols) * kLeastNormal<Real>;
        for (std::int64_t k = 0; k < cols; ++k) {
          sum += x[k] * weight[k];
          terms += magnitude(x[k] * weight[k]);
        }
        if (args.bias.given()) {
          sum += data_of<Real>(args.bias)[j];
          terms += magnitude(data_of<Real>(args.bias)[j]);
        }
        value.row(i)[j] = sum;
        scale.row(i)[j] = matmul::reference::scale_of(Real(1), terms);
      }
    store(value.data, scale.data, dtype, Real(std::sqrt(static_cast<double>(cols))));
  }

  // Of a row, no logit's error is larger than its share of this.
  Real most(std::int64_t row) const {
    Real most = 0;
    for (std::int64_t j = 0; j < scale.cols; ++j) most = std::max(most, scale.row(row)[j]);
    return most;
  }
  // The largest logit where the given one is that but for its error: what a row's logits have in
  // common cancels, and may be beyond what e^x can tell.
  Real largest(std::int64_t row, Real given, std::int64_t cols) const {
    const Real* const logits = value.row(row);
    const Real own = value.cols == 0 ? given : *std::max_element(logits, logits + value.cols);
    const Real error = static_cast<Real>(8 + 8 * std::sqrt(static_cast<double>(cols))) *
                       static_cast<Real>(matmul::reference::kUnit<Real>) * most(row);
    return magnitude(own - given) <= error ? own : given;
  }
};

// What a row's weights add up to, times what each is multiplied by: its own, and that of all.
template <class Real, class Args>
struct Weights {
  const Args& args;
  Real all = 0;  // the shares of all classes in the loss

  explicit Weights(const Args& args) : args(args) {
    const std::int64_t classes = args.weight.shape[0];
    if (args.label_smoothing == 0) return;
    for (std::int64_t j = 0; j < classes; ++j)
      all += static_cast<Real>(args.label_smoothing / static_cast<double>(classes)) *
             magnitude(of_class(j));
  }
  Real of_class(std::int64_t j) const {
    return args.class_weight.given() ? data_of<Real>(args.class_weight)[j] : Real(1);
  }
  std::int64_t target(std::int64_t row) const {
    return static_cast<std::int64_t>(data_of<Real>(args.target)[row]);
  }
  bool is_ignored(std::int64_t row) const { return target(row) == args.ignore_index; }
  // By which errors of a row's logits reach its loss, at most.
  Real of_row(std::int64_t row, Real lse) const {
    if (is_ignored(row) || args.weight.shape[0] == 0) return 0;
    const Real own = static_cast<Real>(1 - args.label_smoothing) +
                     2 * magnitude(static_cast<Real>(args.z_loss) * lse);
    return magnitude(of_class(target(row))) * own + all;
  }
};

template <class Real>
Real lse_of(Real largest, Real sum) {
  return largest + static_cast<Real>(std::log(static_cast<long double>(sum)));
}

template <class Real>
void forward(const ForwardArgs& exact, const ForwardArgs& scale, const Rounding& rounding) {
  Logits<Real> logits(exact, rounding.dtype);
  std::vector<Real> largest(static_cast<std::size_t>(exact.x.shape[0])), sum(largest);
  const auto numbers = [&](const TensorView& wanted, std::vector<Real>& otherwise) {
    return wanted.given() ? wanted
                          : vector_view(otherwise.data(), 0, exact.x.dtype, exact.x.shape[0]);
  };
  cross_entropy::ForwardArgs losses{.x = logits.value.view(),
                                    .target = exact.target,
                                    .weight = exact.class_weight,
                                    .loss = exact.loss,
                                    .lse = exact.lse,
                                    .largest = numbers(exact.largest, largest),
                                    .sum = numbers(exact.sum, sum),
                                    .total = exact.total,
                                    .count = exact.count,
                                    .ignore_index = exact.ignore_index,
                                    .label_smoothing = exact.label_smoothing,
                                    .z_loss = exact.z_loss};
  cross_entropy::ForwardArgs scales{.x = {},
                                    .target = {},
                                    .loss = scale.loss,
                                    .lse = scale.lse,
                                    .largest = scale.largest,
                                    .sum = scale.sum,
                                    .total = scale.total,
                                    .count = scale.count};
  cross_entropy::forward_reference(losses, scales, rounding);
  if (!scale.loss.given()) return;
  const Weights<Real, ForwardArgs> weights(exact);
  for (std::int64_t row = 0; row < exact.x.shape[0]; ++row) {
    if (weights.is_ignored(row)) continue;
    const Real most = logits.most(row), total = data_of<Real>(losses.sum)[row];
    const Real reach =
        2 * most * weights.of_row(row, lse_of(data_of<Real>(losses.largest)[row], total));
    const auto add = [](const TensorView& to, std::int64_t at, Real more) {
      if (to.given()) data_of<Real>(to)[at] += more;
    };
    add(scale.loss, row, reach);
    add(scale.total, 0, reach);
    add(scale.lse, row, most);
    add(scale.largest, row, most);
    add(scale.sum, row, 2 * most * total);
  }
}

// Gradients of logits, and what their errors are measured by.
template <class Real>
struct Gradients {
  Values<Real> value, scale;

  Gradients(const BackwardArgs& exact, const Rounding& rounding)
      : value(exact.x.shape[0], exact.weight.shape[0]), scale(value) {
    Logits<Real> logits(exact, rounding.dtype);
    std::vector<Real> largest;
    for (std::int64_t row = 0; row < value.rows; ++row)
      largest.push_back(logits.largest(row, data_of<Real>(exact.largest)[row], exact.x.shape[1]));
    cross_entropy::BackwardArgs losses{
        .grad_loss = exact.grad_loss,
        .x = logits.value.view(),
        .target = exact.target,
        .weight = exact.class_weight,
        .largest = vector_view(largest.data(), 0, exact.x.dtype, value.rows),
        .sum = exact.sum,
        .grad_x = value.view(),
        .ignore_index = exact.ignore_index,
        .label_smoothing = exact.label_smoothing,
        .z_loss = exact.z_loss};
    cross_entropy::BackwardArgs scales{};
    scales.grad_x = scale.view();
    cross_entropy::backward_reference(losses, scales, rounding);
    const Weights<Real, BackwardArgs> weights(exact);
    for (std::int64_t row = 0; row < value.rows; ++row) {
      if (weights.is_ignored(row)) continue;
      if (const Real most = logits.most(row); most - most != 0) {  // beyond the range of the type
        std::fill_n(scale.row(row), value.cols, most);
        continue;
      }
      const Real first = largest[static_cast<std::size_t>(row)];
      const Real sum = data_of<Real>(exact.sum)[row];
      const Real reach = magnitude(data_of<Real>(exact.grad_loss)[row]) *
                         weights.of_row(row, lse_of(first, sum)) / sum * 2 * logits.most(row);
      for (std::int64_t j = 0; j < value.cols; ++j)
        scale.row(row)[j] +=
            reach *
            static_cast<Real>(std::exp(static_cast<long double>(logits.value.row(row)[j] - first)));
    }
    store(value.data, scale.data, rounding.dtype,
          Real(8 + std::sqrt(static_cast<double>(exact.x.shape[1]))));
  }
};

template <class Real>
void backward(const BackwardArgs& exact, const BackwardArgs& scale, const Rounding& rounding) {
  const Gradients<Real> gradients(exact, rounding);
  const std::int64_t rows = exact.x.shape[0], cols = exact.x.shape[1];
  const std::int64_t classes = exact.weight.shape[0];
  const auto add = [](const TensorView& to, std::int64_t at, Real more) {
    if (to.given()) data_of<Real>(to)[at] += more;
  };
  for (const BackwardArgs* args : {&exact, &scale})
    if (args->grad_x.given()) std::fill_n(data_of<Real>(args->grad_x), rows * cols, Real(0));
  for (std::int64_t i = 0; i < rows; ++i)
    for (std::int64_t j = 0; j < classes; ++j) {
      const Real value = gradients.value.row(i)[j], size = gradients.scale.row(i)[j];
      add(exact.grad_bias, j, value);
      add(scale.grad_bias, j, size);
      for (std::int64_t k = 0; k < cols; ++k) {
        const Real x = data_of<Real>(exact.x)[i * cols + k],
                   weight = data_of<Real>(exact.weight)[j * cols + k];
        add(exact.grad_x, i * cols + k, value * weight);
        add(scale.grad_x, i * cols + k, size * magnitude(weight) + kLeastNormal<Real>);
        add(exact.grad_weight, j * cols + k, value * x);
        add(scale.grad_weight, j * cols + k, size * magnitude(x) + kLeastNormal<Real>);
      }
    }
}

void emit_array(std::string_view name, const TensorView& view, const EmitArray& emit) {
  if (!view.given()) return;
  const std::int64_t rows = view.shape[0], cols = view.rank == 1 ? 1 : view.shape[1];
  emit(name, rows, cols, {data_of<double>(view), static_cast<std::size_t>(rows * cols)});
}

}  // namespace

void forward_reference(const ForwardArgs& exact, const ForwardArgs& scale,
                       const Rounding& rounding) {
  exact.x.dtype == DType::f128 ? forward<quad>(exact, scale, rounding)
                               : forward<double>(exact, scale, rounding);
}
void backward_reference(const BackwardArgs& exact, const BackwardArgs& scale,
                        const Rounding& rounding) {
  exact.x.dtype == DType::f128 ? backward<quad>(exact, scale, rounding)
                               : backward<double>(exact, scale, rounding);
}

void forward_intermediates(const ForwardArgs& exact, const Rounding& rounding,
                           const EmitArray& emit) {
  const Logits<double> logits(exact, rounding.dtype);
  emit("logits", logits.value.rows, logits.value.cols, logits.value.data);
  forward<double>(exact, {}, rounding);
  emit_array("loss", exact.loss, emit);
}
void backward_intermediates(const BackwardArgs& exact, const Rounding& rounding,
                            const EmitArray& emit) {
  const Gradients<double> gradients(exact, rounding);
  emit("grad_logits", gradients.value.rows, gradients.value.cols, gradients.value.data);
  backward<double>(exact, {}, rounding);
  for (const auto& [name, view] : {std::pair<std::string_view, TensorView>("grad_x", exact.grad_x),
                                   {"grad_weight", exact.grad_weight}})
    emit_array(name, view, emit);
}

}  // namespace isobit::linear_cross_entropy
