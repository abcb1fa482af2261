// SPDX-License-Identifier: Apache-2.0
// What the definitions of all optimisers share: rules of their arguments, extents and costs.
#pragma once

#include <algorithm>
#include <limits>
#include <string_view>

#include "isobit/core/error.h"
#include "isobit/dispatch/definition.h"
#include "isobit/optimizers/cases.h"
#include "isobit/optimizers/constants.h"
#include "isobit/optimizers/problem.h"
#include "isobit/simd/float_mode.h"

namespace isobit::optimizers {

inline constexpr Dim kDims[] = {{.name = "rows", .usual = 64, .in_parity = 37, .batch = true},
                                {.name = "cols", .usual = 768, .in_parity = 1000}};

// What an optimiser calls its states.
struct Names {
  std::string_view state[kStates], new_state[kStates];
};

class Check {
 public:
  Check(std::string_view op, const Views& views, const Names& names)
      : views_(views), names_(names), checker_(op), op_(op) {
    checker_.dtype("param", views.param, {DType::f32, DType::f16, DType::bf16, DType::f64});
    arrays_.dtype = views.param.dtype;
    arrays_.param = checker_.matrix("param", views.param, Access::read);
    arrays_.grad = checker_.matrix_like("grad", views.grad, Access::read, "param", views.param);
    arrays_.grad_dtype = views.grad.dtype;
    const bool beside = arrays_.dtype == DType::f32 &&
                        (views.grad.dtype == DType::f16 || views.grad.dtype == DType::bf16);
    if (!beside) checker_.same_dtype("grad", views.grad, "param", arrays_.dtype);
    for (int k = 0; k < kStates; ++k)
      if (views.state[k].given())
        arrays_.state[k] = like_param(names.state[k], views.state[k], Access::read);
    arrays_.new_param = like_param("new_param", views.new_param, Access::write);
    for (int k = 0; k < kStates; ++k)
      if (views.new_state[k].given())
        arrays_.new_state[k] = like_param(names.new_state[k], views.new_state[k], Access::write);
    if (views.narrow.given()) {
      arrays_.narrow =
          checker_.matrix_like("narrow", views.narrow, Access::write, "param", views.param);
      checker_.same_dtype("narrow", views.narrow, "grad", arrays_.grad_dtype);
    }
    no_overlap();
    join();
  }

  const Arrays& arrays() const { return arrays_; }

  // Of a state that this call must have, both what is read and what is written.
  void require_state(int k) const {
    require(views_.state[k].given(), op_, ": ", names_.state[k], " is missing");
    require_new_state(k);
  }
  void require_new_state(int k) const {
    require(views_.new_state[k].given(), op_, ": ", names_.new_state[k], " is missing");
  }

  double at_least_zero(std::string_view name, double value) const {
    checker_.finite(name, value, arrays_.dtype);
    require(value >= 0, op_, ": ", name, " is ", value, "; must be at least 0");
    return value;
  }
  double below_one(std::string_view name, double value) const {
    require(value >= 0 && value < 1, op_, ": ", name, " is ", value,
            "; must be at least 0 and below 1");
    return value;
  }
  double finite(std::string_view name, double value) const {
    return checker_.finite(name, value, arrays_.dtype);
  }
  // As kernels have it, in the pinned float mode.
  double rounded(double value) const {
    return arrays_.dtype == DType::f64 ? value : static_cast<double>(static_cast<float>(value));
  }

 private:
  Matrix like_param(std::string_view name, const TensorView& view, Access access) const {
    const Matrix matrix = checker_.matrix_like(name, view, access, "param", views_.param);
    checker_.same_dtype(name, view, "param", views_.param.dtype);
    return matrix;
  }

  void no_overlap() const {
    const Views& v = views_;
    const Arrays& a = arrays_;
    const Names& n = names_;
    checker_.no_overlap({{"new_param", v.new_param, a.new_param, {"param"}},
                         {n.new_state[0], v.new_state[0], a.new_state[0], {n.state[0]}},
                         {n.new_state[1], v.new_state[1], a.new_state[1], {n.state[1]}},
                         {n.new_state[2], v.new_state[2], a.new_state[2], {n.state[2]}},
                         {"narrow", v.narrow, a.narrow}},
                        {{"param", v.param, a.param},
                         {"grad", v.grad, a.grad},
                         {n.state[0], v.state[0], a.state[0]},
                         {n.state[1], v.state[1], a.state[1]},
                         {n.state[2], v.state[2], a.state[2]}});
  }

  // One row where all rows are adjacent.
  void join() {
    Matrix* const all[] = {&arrays_.param,       &arrays_.grad,         &arrays_.new_param,
                           &arrays_.narrow,      &arrays_.state[0],     &arrays_.state[1],
                           &arrays_.state[2],    &arrays_.new_state[0], &arrays_.new_state[1],
                           &arrays_.new_state[2]};
    const bool adjacent = std::ranges::all_of(all, [](const Matrix* matrix) {
      return matrix->data == nullptr || matrix->rows <= 1 || matrix->stride == matrix->cols;
    });
    if (!adjacent) return;
    for (Matrix* matrix : all) {
      matrix->cols *= matrix->rows;
      matrix->rows = 1;
    }
  }

  const Views& views_;
  const Names& names_;
  Checker checker_;
  std::string_view op_;
  Arrays arrays_{};
};

template <class Args>
Extents extents(const Args& args) {
  Extents result{1, args.param.shape[args.param.rank - 1]};
  for (int i = 0; i + 1 < args.param.rank; ++i) result[0] *= args.param.shape[i];
  return result;
}

// Every array once; about twenty operations an element.
inline Cost cost(const Views& views) {
  double elements = 1;
  for (int i = 0; i < views.param.rank; ++i) elements *= static_cast<double>(views.param.shape[i]);
  double bytes = 0;
  const auto add = [&](const TensorView& view) {
    if (view.given()) bytes += elements * static_cast<double>(size_of(view.dtype));
  };
  for (const TensorView* view : {&views.param, &views.grad, &views.new_param, &views.narrow})
    add(*view);
  for (int k = 0; k < kStates; ++k) {
    add(views.state[k]);
    add(views.new_state[k]);
  }
  return {bytes, 20 * elements};
}

}  // namespace isobit::optimizers
