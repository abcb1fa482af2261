// SPDX-License-Identifier: Apache-2.0
// Calls of reduce after their check: rows of elements that are reduced together, and where they
// lie.
#pragma once

#include <cstdint>
#include <span>

#include "isobit/core/dtype.h"
#include "isobit/core/inline.h"
#include "isobit/dispatch/variant.h"
#include "isobit/ops/reduce/reduce.h"

namespace isobit::reduce {

// One loop: how many turns it has, and how many elements each array moves on in a turn: x, y or its
// gradient, the gradient of x.
struct Axis {
  std::int64_t extent = 1, x = 0, y = 0, grad_x = 0;
};

// Loops, the outermost first; one at least. Neighbours that all arrays allow to be one are one.
struct Axes {
  Axis all[kMaxRank];
  int count = 0;

  ISOBIT_INLINE const Axis& innermost() const { return all[count - 1]; }
};

// A walk over the places of loops.
class Walk {
 public:
  std::int64_t x = 0, y = 0, grad_x = 0;

  ISOBIT_INLINE Walk(const Axes& axes, std::int64_t index) : axes_(axes) {
    for (int a = axes.count - 1; a >= 0; --a) {
      const Axis& axis = axes.all[a];
      at_[a] = a == 0 ? index : index % axis.extent;
      index = a == 0 ? 0 : index / axis.extent;
      move(axis, at_[a]);
    }
  }
  // How many turns the innermost loop has from here on.
  ISOBIT_INLINE std::int64_t left() const {
    return axes_.innermost().extent - at_[axes_.count - 1];
  }
  // `turns` are no more than left().
  ISOBIT_INLINE void advance(std::int64_t turns) {
    int a = axes_.count - 1;
    move(axes_.all[a], turns);
    at_[a] += turns;
    for (; a > 0 && at_[a] == axes_.all[a].extent; --a) {
      move(axes_.all[a], -at_[a]);
      at_[a] = 0;
      move(axes_.all[a - 1], 1);
      ++at_[a - 1];
    }
  }

 private:
  ISOBIT_INLINE void move(const Axis& axis, std::int64_t turns) {
    x += turns * axis.x;
    y += turns * axis.y;
    grad_x += turns * axis.grad_x;
  }

  const Axes& axes_;
  std::int64_t at_[kMaxRank];
};

// Rows are the elements that one of y is made of. The last kept loop is the one along which x's
// elements, and those of its gradient, are adjacent, where there is such: then rows lie side by
// side.
struct Problem {
  Kind kind = Kind::sum;
  double correction = 0;
  DType dtype = DType::f32, y_dtype = DType::f32;
  const std::byte* x = nullptr;
  std::byte* y = nullptr;  // in backward its gradient, which is read
  std::byte* grad_x = nullptr;
  Axes kept, reduced;
  std::int64_t rows = 0, cols = 0;
  bool side_by_side = false;

  // What is computed in.
  DType real() const { return dtype == DType::f64 ? DType::f64 : DType::f32; }
};

using ForwardVariant = Variant<ForwardArgs, Problem>;
using BackwardVariant = Variant<BackwardArgs, Problem>;

// Throw where a call breaks a rule.
Problem check_forward(const ForwardArgs& args);
Problem check_backward(const BackwardArgs& args);

std::span<const ForwardVariant> cpu_forward_variants();
std::span<const BackwardVariant> cpu_backward_variants();
std::span<const ForwardVariant> cuda_forward_variants();  // in device libraries
std::span<const BackwardVariant> cuda_backward_variants();

}  // namespace isobit::reduce
