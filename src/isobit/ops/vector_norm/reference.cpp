// SPDX-License-Identifier: Apache-2.0
// Norms element after element, in double, or in quad where the elements are doubles.
#include "isobit/ops/vector_norm/reference.h"

#include <algorithm>
#include <vector>

#include "isobit/core/magnitude.h"
#include "isobit/norms/reference_rows.h"

namespace isobit::vector_norm {
namespace {

template <class Real>
Real norm_of(const Args& args, std::int64_t row) {
  const Real* const x = static_cast<const Real*>(args.x.data) + row * args.x.strides[0];
  Real result = 0;
  bool nan = false;
  for (std::int64_t i = 0; i < args.x.shape[1]; ++i) {
    nan = nan || x[i] != x[i];
    const Real size = magnitude(x[i]);
    if (args.order == Order::l2)
      result += size * size;
    else if (args.order == Order::l1)
      result += size;
    else
      result = std::max(result, size);
  }
  if (nan) return Real(std::numeric_limits<double>::quiet_NaN());
  return args.order == Order::l2 ? norms::reference::root(result) : result;
}

template <class Real>
void compute(const Args& exact, const Args& scale, const Rounding& rounding) {
  const Real least = rounding.dtype == DType::f64 ? 0x1p-1022 : 0x1p-126;
  for (std::int64_t row = 0; row < exact.x.shape[0]; ++row) {
    const Real norm = norm_of<Real>(exact, row);
    static_cast<Real*>(exact.norm.data)[row] = norm;
    if (scale.norm.given()) static_cast<Real*>(scale.norm.data)[row] = std::max(norm, least);
  }
}

}  // namespace

void reference(const Args& exact, const Args& scale, const Rounding& rounding) {
  if (exact.x.dtype == DType::f128)
    compute<quad>(exact, scale, rounding);
  else
    compute<double>(exact, scale, rounding);
}

// Nothing stands between the elements and the results.
void intermediates(const Args& exact, const Rounding& rounding, const EmitArray& emit) {
  reference(exact, {}, rounding);
  const auto* const norms = static_cast<const double*>(exact.norm.data);
  emit("norm", 1, exact.x.shape[0], std::vector<double>(norms, norms + exact.x.shape[0]));
}

}  // namespace isobit::vector_norm
