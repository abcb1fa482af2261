// SPDX-License-Identifier: Apache-2.0
// Reductions of rows as their formulas say, in double, or in quad where the elements are doubles.
#include "isobit/ops/reduce/reference.h"

#include <algorithm>
#include <cfloat>
#include <limits>
#include <type_traits>
#include <vector>

#include "isobit/core/magnitude.h"
#include "isobit/norms/reference_rows.h"

namespace isobit::reduce {
namespace {

using norms::reference::root;

template <class Real>
constexpr Real kLeast = std::is_same_v<Real, quad> ? Real(DBL_MIN) : Real(FLT_MIN);

template <class Real>
Real not_a_number() {
  return static_cast<Real>(std::numeric_limits<double>::quiet_NaN());
}

// What is known of a row of `count` elements.
template <class Real>
struct Row {
  const Real* x;
  std::int64_t count;
  Real sum{}, size{}, squares{}, largest{}, smallest{}, nonzero{};  // size: of magnitudes
  Real max{}, min{};
  Real mean{}, rest{}, variance{};  // rest: what one number misses of the mean
  Real divided{};                   // by the count less the correction
  Real spread{}, std{}, norm{};     // roots of the variance, of what var() gives, and of squares
  bool nan = false;

  Row(const Real* x, std::int64_t count, double correction) : x(x), count(count) {
    smallest = min = static_cast<Real>(std::numeric_limits<double>::infinity());
    max = -min;
    for (std::int64_t i = 0; i < count; ++i) {
      const Real of = magnitude(x[i]);
      nan = nan || x[i] != x[i];
      sum += x[i];
      size += of;
      squares += of * of;
      largest = std::max(largest, of);
      smallest = std::min(smallest, of);
      max = std::max(max, x[i]);
      min = std::min(min, x[i]);
      if (x[i] != 0) nonzero += 1;
    }
    if (nan) largest = smallest = max = min = not_a_number<Real>();
    const Real n = static_cast<Real>(count);
    // Measured from the first element, so that a constant row is exact.
    const auto mean_of = [&](auto value) {
      Real total = 0;
      for (std::int64_t i = 0; i < count; ++i) total += value(x[i]);
      return total / n;
    };
    const Real first = count == 0 ? Real(0) : x[0];
    mean = first + mean_of([&](Real of) { return of - first; });
    rest = mean_of([&](Real of) { return of - mean; });
    variance = mean_of([&](Real of) {
      const Real d = (of - mean) - rest;
      return d * d;
    });
    divided = static_cast<Real>(std::max(static_cast<double>(count) - correction, 0.0));
    spread = root(variance);
    std = root(var());
    norm = root(squares);
  }

  Real n() const { return static_cast<Real>(count); }
  Real deviation(std::int64_t i) const { return (x[i] - mean) - rest; }
  Real var() const { return variance * n() / divided; }
};

template <class Real>
Real result(Kind kind, const Row<Real>& row) {
  switch (kind) {
    case Kind::sum:      return row.sum;
    case Kind::mean:     return row.sum / row.n();
    case Kind::var:      return row.var();
    case Kind::std:      return row.std;
    case Kind::l2:       return row.norm;
    case Kind::l1:       return row.size;
    case Kind::largest:  return row.largest;
    case Kind::smallest: return row.smallest;
    case Kind::max:      return row.max == 0 ? Real(0) : row.max;
    case Kind::min:      return row.min == 0 ? Real(0) : row.min;
    default:             return row.nonzero;
  }
}

// The magnitudes whose roundings a result inherits.
template <class Real>
Real result_scale(Kind kind, const Row<Real>& row) {
  if (kind == Kind::sum) return row.size;
  if (kind == Kind::mean) return row.size / row.n();
  return result(kind, row);
}

template <class Real>
Real sign(Real x) {
  return x > 0 ? Real(1) : x < 0 ? Real(-1) : x == 0 ? Real(0) : x;
}

// The elements that share the gradient of a largest or smallest one.
template <class Real>
Real sharers(Kind kind, const Row<Real>& row) {
  const auto count = [&](auto shares) {
    return static_cast<Real>(std::count_if(row.x, row.x + row.count, shares));
  };
  switch (kind) {
    case Kind::largest:  return count([&](Real x) { return magnitude(x) == row.largest; });
    case Kind::smallest: return count([&](Real x) { return magnitude(x) == row.smallest; });
    case Kind::max:      return count([&](Real x) { return x == row.max; });
    case Kind::min:      return count([&](Real x) { return x == row.min; });
    default:             return 0;
  }
}

// An element's gradient, and the magnitudes whose roundings it inherits.
template <class Real>
struct Gradient {
  Real value, scale;
};

template <class Real>
Gradient<Real> gradient(Kind kind, const Row<Real>& row, std::int64_t i, Real grad, Real sharing) {
  const auto of_one = [](Real value) { return Gradient<Real>{value, magnitude(value)}; };
  switch (kind) {
    case Kind::sum:  return of_one(grad);
    case Kind::mean: return of_one(grad / row.n());
    case Kind::var:  {
      const Real factor = 2 * grad / row.divided;
      return {factor * row.deviation(i),
              magnitude(factor) * (magnitude(row.deviation(i)) + row.spread)};
    }
    case Kind::std: {
      if (row.std == 0) return {0, 0};
      const Real factor = grad / row.divided, x_hat = row.deviation(i) / row.std;
      return {factor * x_hat, magnitude(factor) * (magnitude(x_hat) + 1)};
    }
    case Kind::l2:       return row.norm == 0 ? Gradient<Real>{0, 0} : of_one(row.x[i] / row.norm * grad);
    case Kind::l1:       return of_one(row.x[i] == 0 ? Real(0) : sign(row.x[i]) * grad);
    case Kind::largest:
    case Kind::smallest: {
      const Real norm = kind == Kind::largest ? row.largest : row.smallest;
      if (norm != norm) return {norm, norm};
      const bool one = magnitude(row.x[i]) == norm && norm != 0;
      return of_one(one ? sign(row.x[i]) * (grad / sharing) : Real(0));
    }
    case Kind::max:
    case Kind::min: {
      const Real bound = kind == Kind::max ? row.max : row.min;
      if (bound != bound) return {bound, bound};
      return of_one(row.x[i] == bound ? grad / sharing : Real(0));
    }
    default: return {0, 0};
  }
}

template <class Real>
const Real* row_at(const TensorView& x, std::int64_t row) {
  return static_cast<const Real*>(x.data) + row * x.shape[1];
}

template <class Real>
void compute(const ForwardArgs& exact, const ForwardArgs& scale) {
  for (std::int64_t i = 0; i < exact.x.shape[0]; ++i) {
    const Row<Real> row(row_at<Real>(exact.x, i), exact.x.shape[1], exact.correction);
    static_cast<Real*>(exact.y.data)[i] = result(exact.reduction, row);
    if (scale.y.given())
      static_cast<Real*>(scale.y.data)[i] =
          std::max(magnitude(result_scale(exact.reduction, row)), kLeast<Real>);
  }
}

template <class Real>
void compute(const BackwardArgs& exact, const BackwardArgs& scale) {
  const std::int64_t cols = exact.grad_x.shape[1];
  const std::vector<Real> nothing(cols, Real(0));  // where x is not read
  for (std::int64_t i = 0; i < exact.grad_x.shape[0]; ++i) {
    const Real* const x = exact.x.given() ? row_at<Real>(exact.x, i) : nothing.data();
    const Row<Real> row(x, cols, exact.correction);
    const Real grad = static_cast<const Real*>(exact.grad_y.data)[i];
    const Real sharing = sharers(exact.reduction, row);
    for (std::int64_t j = 0; j < cols; ++j) {
      const Gradient<Real> of = gradient(exact.reduction, row, j, grad, sharing);
      static_cast<Real*>(exact.grad_x.data)[i * cols + j] = of.value;
      if (scale.grad_x.given())
        static_cast<Real*>(scale.grad_x.data)[i * cols + j] =
            std::max(magnitude(of.scale), kLeast<Real>);
    }
  }
}

void emit_array(std::string_view name, const TensorView& view, const EmitArray& emit) {
  const std::int64_t rows = view.shape[0], cols = view.rank > 1 ? view.shape[1] : 1;
  const auto* const values = static_cast<const double*>(view.data);
  emit(name, rows, cols, std::vector<double>(values, values + rows * cols));
}

}  // namespace

void forward_reference(const ForwardArgs& exact, const ForwardArgs& scale, const Rounding&) {
  exact.x.dtype == DType::f128 ? compute<quad>(exact, scale) : compute<double>(exact, scale);
}
void backward_reference(const BackwardArgs& exact, const BackwardArgs& scale, const Rounding&) {
  exact.grad_x.dtype == DType::f128 ? compute<quad>(exact, scale) : compute<double>(exact, scale);
}

// Nothing stands between the elements and the results.
void forward_intermediates(const ForwardArgs& exact, const Rounding&, const EmitArray& emit) {
  compute<double>(exact, {});
  emit_array("y", exact.y, emit);
}
void backward_intermediates(const BackwardArgs& exact, const Rounding&, const EmitArray& emit) {
  compute<double>(exact, {});
  emit_array("grad_x", exact.grad_x, emit);
}

}  // namespace isobit::reduce
