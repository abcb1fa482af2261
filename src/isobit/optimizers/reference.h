// SPDX-License-Identifier: Apache-2.0
// What the references of all optimisers share: a walk over the elements in a wider type.
#pragma once

#include <functional>
#include <string_view>
#include <vector>

#include "isobit/core/case.h"
#include "isobit/core/magnitude.h"
#include "isobit/optimizers/views.h"

namespace isobit::optimizers::reference {

using isobit::magnitude;

// One element of each array; what is absent is 0.
template <class Real>
struct Element {
  Real param = 0, grad = 0, state[kStates] = {};
};

// Of the type that is computed in: the unit of its roundings, and the smallest normal number.
inline double unit_of(const Rounding& rounding) {
  return rounding.dtype == DType::f64 ? 0x1p-53 : 0x1p-24;
}
inline double least_of(const Rounding& rounding) {
  return rounding.dtype == DType::f64 ? 0x1p-1022 : 0x1p-126;
}

// rule(given, results, scales) for each element, whose gradients are of no use in the latter two.
template <class Real, class Rule>
void for_each_element(const Views& exact, const Views& scale, const Rule& rule) {
  const auto at = [](const TensorView& view, std::int64_t row, std::int64_t col) -> Real& {
    return static_cast<Real*>(view.data)[row * view.strides[0] + col];
  };
  const auto read = [&](const TensorView& view, std::int64_t row, std::int64_t col) {
    return view.given() ? at(view, row, col) : Real(0);
  };
  const auto write = [&](const Views& to, std::int64_t row, std::int64_t col,
                         const Element<Real>& values) {
    if (to.new_param.given()) at(to.new_param, row, col) = values.param;
    if (to.narrow.given()) at(to.narrow, row, col) = values.param;
    for (int k = 0; k < kStates; ++k)
      if (to.new_state[k].given()) at(to.new_state[k], row, col) = values.state[k];
  };
  for (std::int64_t row = 0; row < exact.param.shape[0]; ++row)
    for (std::int64_t col = 0; col < exact.param.shape[1]; ++col) {
      Element<Real> given, results, scales;
      given.param = read(exact.param, row, col);
      given.grad = read(exact.grad, row, col);
      for (int k = 0; k < kStates; ++k) given.state[k] = read(exact.state[k], row, col);
      rule(given, results, scales);
      write(exact, row, col, results);
      write(scale, row, col, scales);
    }
}

// What a reference has written, by name.
inline void emit(const Views& exact, const std::string_view (&new_state)[kStates],
                 const EmitArray& emit_array) {
  const std::int64_t rows = exact.param.shape[0], cols = exact.param.shape[1];
  const auto one = [&](std::string_view name, const TensorView& view) {
    if (!view.given()) return;
    std::vector<double> values;
    for (std::int64_t row = 0; row < rows; ++row)
      for (std::int64_t col = 0; col < cols; ++col)
        values.push_back(static_cast<const double*>(view.data)[row * view.strides[0] + col]);
    emit_array(name, rows, cols, values);
  };
  one("new_param", exact.new_param);
  for (int k = 0; k < kStates; ++k) one(new_state[k], exact.new_state[k]);
  one("narrow", exact.narrow);
}

}  // namespace isobit::optimizers::reference
