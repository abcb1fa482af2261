// SPDX-License-Identifier: Apache-2.0
// One element after the other, in double or quad.
#include "isobit/ops/transpose/reference.h"

#include <cstdint>
#include <vector>

namespace isobit::transpose {
namespace {

template <class Real>
void compute(const TensorView& x, const TensorView& y, const TensorView& scale) {
  const auto* from = static_cast<const Real*>(x.data);
  const std::int64_t rows = x.shape[1], cols = x.shape[2];
  for (std::int64_t matrix = 0; matrix < x.shape[0]; ++matrix)
    for (std::int64_t i = 0; i < rows; ++i)
      for (std::int64_t j = 0; j < cols; ++j) {
        const Real value = from[(matrix * rows + i) * cols + j];
        const std::int64_t at = (matrix * cols + j) * rows + i;
        if (y.given()) static_cast<Real*>(y.data)[at] = value;
        if (scale.given()) static_cast<Real*>(scale.data)[at] = value < 0 ? -value : value;
      }
}

}  // namespace

void reference(const Args& exact, const Args& scale, const Rounding&) {
  if (exact.x.dtype == DType::f128)
    compute<quad>(exact.x, exact.y, scale.y);
  else
    compute<double>(exact.x, exact.y, scale.y);
}

// There is nothing between x and y.
void intermediates(const Args& exact, const Rounding&, const EmitArray& emit) {
  const std::int64_t rows = exact.x.shape[0] * exact.x.shape[2], cols = exact.x.shape[1];
  std::vector<double> values(static_cast<std::size_t>(rows * cols));
  TensorView y = exact.y;
  y.data = values.data();
  compute<double>(exact.x, y, {});
  emit("y", rows, cols, values);
}

}  // namespace isobit::transpose
