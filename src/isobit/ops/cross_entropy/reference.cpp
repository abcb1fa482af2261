// SPDX-License-Identifier: Apache-2.0
// Cross entropy as its definition has it, in double, or in long double where the elements are
// doubles.
#include "isobit/ops/cross_entropy/reference.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

namespace isobit::cross_entropy {
namespace {

template <class Element, class Real>
struct Reference {
  static Real at(const TensorView& view, std::int64_t row, std::int64_t col) {
    return static_cast<Real>(
        static_cast<const Element*>(view.data)[row * view.strides[0] + col * view.strides[1]]);
  }
  static Real at(const TensorView& view, std::int64_t i) {
    return static_cast<Real>(static_cast<const Element*>(view.data)[i * view.strides[0]]);
  }
  static void put(const TensorView& view, std::int64_t i, Real value) {
    if (view.given())
      static_cast<Element*>(view.data)[i * view.strides[0]] = static_cast<Element>(value);
  }
  // To a sum over rows, of which this call may have only some.
  static void add(const TensorView& view, Real value) {
    if (view.given()) put(view, 0, at(view, 0) + value);
  }
  static Real weight(const TensorView& weight, std::int64_t col) {
    return weight.given() ? at(weight, col) : 1;
  }

  static void forward(const ForwardArgs& exact, const ForwardArgs& scale, Real least) {
    const std::int64_t cols = exact.x.shape[1];
    const Real smoothing = exact.label_smoothing, z = exact.z_loss;
    for (std::int64_t row = 0; row < exact.x.shape[0]; ++row) {
      const auto target = static_cast<std::int64_t>(at(exact.target, row));
      Real largest = 0, sum = 1, loss = 0, size = least, counted = 0;
      if (target != exact.ignore_index) {
        largest = -std::numeric_limits<Real>::infinity();
        for (std::int64_t col = 0; col < cols; ++col)
          if (const Real x = at(exact.x, row, col); !(x <= largest)) largest = x;
        sum = 0;
        for (std::int64_t col = 0; col < cols; ++col)
          sum += std::exp(at(exact.x, row, col) - largest);
        if (cols == 0) sum = std::numeric_limits<Real>::quiet_NaN();
        if (std::isnan(sum)) largest = sum;
        const Real log_of_sum = std::log(sum), lse = largest + log_of_sum;
        const Real most = std::fabs(largest) + log_of_sum;  // what lse is rounded by
        const auto of_class = [&](std::int64_t col) {
          return log_of_sum - (at(exact.x, row, col) - largest);
        };
        // Without classes no target is one.
        counted = cols == 0 ? sum : weight(exact.weight, target);
        const Real own = cols == 0 ? sum : of_class(target);
        loss = counted * ((1 - smoothing) * own + (z != 0 ? z * lse * lse : 0));
        size = std::fabs(counted) * ((1 - smoothing) * (1 + own) + std::fabs(z) * most * most);
        if (smoothing != 0) {
          Real shared = 0, sizes = 0;
          for (std::int64_t col = 0; col < cols; ++col) {
            const Real term = weight(exact.weight, col) * of_class(col);
            shared += term;
            sizes += std::fabs(term) + std::fabs(weight(exact.weight, col));
          }
          loss += smoothing / cols * shared;
          size += smoothing / cols * sizes;
        }
      }
      put(exact.loss, row, loss);
      put(exact.lse, row, largest + std::log(sum));
      put(exact.largest, row, largest);
      put(exact.sum, row, sum);
      add(exact.total, loss);
      add(exact.count, counted);
      if (!scale.loss.given()) continue;
      put(scale.loss, row, std::max(size, least));
      put(scale.lse, row, 1 + std::fabs(largest) + std::log(sum));
      put(scale.largest, row, std::max(std::fabs(largest), least));
      put(scale.sum, row, sum);
      add(scale.total, size);
      add(scale.count, std::fabs(counted));
    }
  }

  static void backward(const BackwardArgs& exact, const BackwardArgs& scale, Real least) {
    const std::int64_t cols = exact.x.shape[1];
    const Real smoothing = exact.label_smoothing, z = exact.z_loss;
    Real weights = 0, sizes = 0;
    for (std::int64_t col = 0; col < cols; ++col) {
      weights += weight(exact.weight, col);
      sizes += std::fabs(weight(exact.weight, col));
    }
    for (std::int64_t row = 0; row < exact.x.shape[0]; ++row) {
      const auto target = static_cast<std::int64_t>(at(exact.target, row));
      const bool ignored = target == exact.ignore_index;
      const Real grad = at(exact.grad_loss, row);
      const Real largest = at(exact.largest, row), sum = at(exact.sum, row);
      const Real log_of_sum = std::log(sum), lse = largest + log_of_sum;
      const Real own = ignored ? 0 : cols == 0 ? sum : weight(exact.weight, target);
      const Real each = smoothing == 0 ? 0 : smoothing / cols;
      Real part = own * (1 - smoothing + (z != 0 ? 2 * z * lse : 0));
      Real size =
          std::fabs(own) *
          (1 - smoothing + (z != 0 ? 2 * std::fabs(z) * (std::fabs(largest) + log_of_sum) : 0));
      if (smoothing != 0) {
        part += each * weights;
        size += each * sizes;
      }
      for (std::int64_t col = 0; col < cols; ++col) {
        Real value = 0, magnitude = 0;
        if (!ignored) {
          const Real p = std::exp(at(exact.x, row, col) - largest) / sum;
          value = part * p;
          magnitude = size * p;
          if (smoothing != 0) {
            value -= each * weight(exact.weight, col);
            magnitude += std::fabs(each * weight(exact.weight, col));
          }
          if (col == target) {
            value -= own * (1 - smoothing);
            magnitude += std::fabs(own) * (1 - smoothing);
          }
        }
        const std::int64_t place = row * exact.grad_x.strides[0] + col * exact.grad_x.strides[1];
        static_cast<Element*>(exact.grad_x.data)[place] =
            static_cast<Element>(ignored ? Real(0) : grad * value);
        if (scale.grad_x.given())
          static_cast<Element*>(scale.grad_x.data)[place] =
              static_cast<Element>(std::max(std::fabs(grad) * magnitude, least));
      }
    }
  }
};

// Calls visit(Reference, least) with the type of the arrays, what is computed in, and the smallest
// normal number of what variants compute in.
template <class Visit>
void in_wide_type(const TensorView& view, const Visit& visit) {
  if (view.dtype == DType::f128)
    visit(Reference<quad, long double>(), static_cast<long double>(0x1p-1022));
  else
    visit(Reference<double, double>(), 0x1p-126);
}

std::vector<double> as_written(const TensorView& view) {
  std::vector<double> values;
  for (std::int64_t row = 0; row < view.shape[0]; ++row)
    for (std::int64_t col = 0; col < (view.rank == 1 ? 1 : view.shape[1]); ++col)
      values.push_back(view.rank == 1 ? Reference<double, double>::at(view, row)
                                      : Reference<double, double>::at(view, row, col));
  return values;
}

}  // namespace

void forward_reference(const ForwardArgs& exact, const ForwardArgs& scale, const Rounding&) {
  in_wide_type(exact.x,
               [&](auto reference, auto least) { reference.forward(exact, scale, least); });
}
void backward_reference(const BackwardArgs& exact, const BackwardArgs& scale, const Rounding&) {
  in_wide_type(exact.x,
               [&](auto reference, auto least) { reference.backward(exact, scale, least); });
}

// Nothing that is worth a look stands between the elements and the results.
void forward_intermediates(const ForwardArgs& exact, const Rounding& rounding,
                           const EmitArray& emit) {
  forward_reference(exact, {}, rounding);
  const std::int64_t rows = exact.x.shape[0];
  emit("loss", rows, 1, as_written(exact.loss));
  if (exact.largest.given()) emit("largest", rows, 1, as_written(exact.largest));
  if (exact.sum.given()) emit("sum", rows, 1, as_written(exact.sum));
}
void backward_intermediates(const BackwardArgs& exact, const Rounding& rounding,
                            const EmitArray& emit) {
  backward_reference(exact, {}, rounding);
  emit("grad_x", exact.x.shape[0], exact.x.shape[1], as_written(exact.grad_x));
}

}  // namespace isobit::cross_entropy
