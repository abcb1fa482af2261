// SPDX-License-Identifier: Apache-2.0
// Addition in double, or in quad where the elements are doubles: exact but for the caller's own
// rounding.
#include "isobit/ops/elementwise/reference.h"

#include <cstdint>
#include <vector>

namespace isobit::elementwise {
namespace {

template <class Real>
Real at(const TensorView& view, std::int64_t row, std::int64_t col) {
  return static_cast<const Real*>(view.data)[row * view.strides[0] + col];
}

template <class Real>
void write(const TensorView& view, std::int64_t row, std::int64_t col, Real value) {
  if (view.given()) static_cast<Real*>(view.data)[row * view.strides[0] + col] = value;
}

template <class Real>
void compute(const Args& exact, const Args& scale) {
  for (std::int64_t row = 0; row < exact.y.shape[0]; ++row)
    for (std::int64_t col = 0; col < exact.y.shape[1]; ++col) {
      const Real other = exact.kind == Kind::add ? at<Real>(exact.residual, row, col) : Real{1};
      const Real sum = at<Real>(exact.x, row, col) + other;
      write<Real>(exact.y, row, col, sum);
      write<Real>(scale.y, row, col, sum < 0 ? -sum : sum);
    }
}

}  // namespace

void reference(const Args& exact, const Args& scale, const Rounding&) {
  if (exact.x.dtype == DType::f128)
    compute<quad>(exact, scale);
  else
    compute<double>(exact, scale);
}

// An addition has nothing between its operands and its result. That of integers wraps around.
void intermediates(const Args& exact, const Rounding& rounding, const EmitArray& emit) {
  const std::int64_t rows = exact.y.shape[0], cols = exact.y.shape[1];
  std::vector<double> sums;
  for (std::int64_t row = 0; row < rows; ++row)
    for (std::int64_t col = 0; col < cols; ++col) {
      const double sum = at<double>(exact.x, row, col) +
                         (exact.kind == Kind::add ? at<double>(exact.residual, row, col) : 1.0);
      sums.push_back(rounding.dtype == DType::i32
                         ? static_cast<std::int32_t>(static_cast<std::int64_t>(sum))
                         : sum);
    }
  emit("y", rows, cols, sums);
}

}  // namespace isobit::elementwise
