// SPDX-License-Identifier: Apache-2.0
// Dropout as its definition says it, with the words of the norms' reference.
#include "isobit/ops/dropout/reference.h"

#include <cmath>
#include <vector>

#include "isobit/norms/reference_rows.h"

namespace isobit::dropout {
namespace {

template <class Real>
void compute(const Args& exact, const Args& scale) {
  const std::int64_t rows = exact.x.shape[0], cols = exact.x.shape[1];
  const double threshold = std::floor(exact.p * 4294967296.0);
  const Real left = 1 - static_cast<Real>(exact.p);
  const auto* x = static_cast<const Real*>(exact.x.data);
  for (std::int64_t row = 0; row < rows; ++row)
    for (std::int64_t col = 0; col < cols; ++col) {
      const std::int64_t i = row * cols + col;
      const bool kept = norms::reference::random_word(exact.dropout_seed, row, col) >= threshold;
      const Real y = kept ? x[i] / left : Real(0);
      static_cast<Real*>(exact.y.data)[i] = y;
      // The factor is rounded, and then the product.
      if (scale.y.given()) static_cast<Real*>(scale.y.data)[i] = y < 0 ? -y : y;
    }
}

}  // namespace

void reference(const Args& exact, const Args& scale, const Rounding&) {
  if (exact.x.dtype == DType::f128)
    compute<quad>(exact, scale);
  else
    compute<double>(exact, scale);
}

// Nothing stands between x and y.
void intermediates(const Args& exact, const Rounding& rounding, const EmitArray& emit) {
  reference(exact, {}, rounding);
  const auto* from = static_cast<const double*>(exact.y.data);
  const std::int64_t rows = exact.y.shape[0], cols = exact.y.shape[1];
  emit("y", rows, cols, std::vector<double>(from, from + rows * cols));
}

}  // namespace isobit::dropout
