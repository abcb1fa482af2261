// SPDX-License-Identifier: Apache-2.0
// Embedding as its definition has it, in double, or in quad and long double where the elements are
// doubles.
#include "isobit/ops/embedding/reference.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace isobit::embedding {
namespace {

// Arrays of Element, and what is added in.
template <class Element, class Real>
struct Reference {
  static Element* row(const TensorView& view, std::int64_t row) {
    return static_cast<Element*>(view.data) + row * view.strides[0];
  }
  static std::int64_t token(const TensorView& index, std::int64_t i) {
    return static_cast<std::int64_t>(static_cast<const Element*>(index.data)[i * index.strides[0]]);
  }

  static void forward(const ForwardArgs& exact, const ForwardArgs& scale) {
    const std::int64_t cols = exact.y.shape[1];
    for (std::int64_t i = 0; i < exact.y.shape[0]; ++i) {
      const Element* const from = row(exact.weight, token(exact.index, i));
      for (std::int64_t col = 0; col < cols; ++col) {
        row(exact.y, i)[col] = from[col];
        if (scale.y.given()) row(scale.y, i)[col] = from[col] < 0 ? -from[col] : from[col];
      }
    }
  }

  static void backward(const BackwardArgs& exact, const BackwardArgs& scale, Real least) {
    const std::int64_t tokens = exact.grad_weight.shape[0], cols = exact.grad_weight.shape[1];
    std::vector<std::int64_t> counts(static_cast<std::size_t>(tokens));
    std::vector<Real> sums(static_cast<std::size_t>(tokens * cols)), sizes(sums.size());
    for (std::int64_t i = 0; i < exact.grad_y.shape[0]; ++i) {
      const std::int64_t t = token(exact.index, i);
      if (t == exact.padding_idx) continue;
      ++counts[t];
      for (std::int64_t col = 0; col < cols; ++col) {
        const auto value = static_cast<Real>(row(exact.grad_y, i)[col]);
        sums[t * cols + col] += value;
        sizes[t * cols + col] += std::fabs(value);
      }
    }
    for (std::int64_t t = 0; t < tokens; ++t) {
      const Real divisor =
          exact.scale_grad_by_freq && counts[t] > 0 ? static_cast<Real>(counts[t]) : Real(1);
      for (std::int64_t col = 0; col < cols; ++col) {
        row(exact.grad_weight, t)[col] = static_cast<Element>(sums[t * cols + col] / divisor);
        if (scale.grad_weight.given())
          row(scale.grad_weight, t)[col] =
              static_cast<Element>(std::max(sizes[t * cols + col] / divisor, least));
      }
    }
  }
};

// Calls visit(Reference, least) with the types, and the smallest normal number of what variants
// compute in.
template <class Visit>
void in_wide_type(const TensorView& view, const Visit& visit) {
  if (view.dtype == DType::f128)
    visit(Reference<quad, long double>(), static_cast<long double>(0x1p-1022));
  else
    visit(Reference<double, double>(), 0x1p-126);
}

void emit_matrix(std::string_view name, const TensorView& view, const EmitArray& emit) {
  std::vector<double> values;
  for (std::int64_t i = 0; i < view.shape[0]; ++i) {
    const double* const row = Reference<double, double>::row(view, i);
    values.insert(values.end(), row, row + view.shape[1]);
  }
  emit(name, view.shape[0], view.shape[1], values);
}

}  // namespace

void forward_reference(const ForwardArgs& exact, const ForwardArgs& scale, const Rounding&) {
  in_wide_type(exact.weight, [&](auto reference, auto) { reference.forward(exact, scale); });
}
void backward_reference(const BackwardArgs& exact, const BackwardArgs& scale, const Rounding&) {
  in_wide_type(exact.grad_y,
               [&](auto reference, auto least) { reference.backward(exact, scale, least); });
}

// Nothing stands between the rows and the results.
void forward_intermediates(const ForwardArgs& exact, const Rounding& rounding,
                           const EmitArray& emit) {
  forward_reference(exact, {}, rounding);
  emit_matrix("y", exact.y, emit);
}
void backward_intermediates(const BackwardArgs& exact, const Rounding& rounding,
                            const EmitArray& emit) {
  backward_reference(exact, {}, rounding);
  emit_matrix("grad_weight", exact.grad_weight, emit);
}

}  // namespace isobit::embedding
