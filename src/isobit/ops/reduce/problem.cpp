// SPDX-License-Identifier: Apache-2.0
// The rules of reduce, and how dimensions become loops.
#include "isobit/ops/reduce/problem.h"

#include <algorithm>
#include <string_view>

#include "isobit/core/check.h"
#include "isobit/core/error.h"

namespace isobit::reduce {
namespace {

constexpr int kKinds = 11;

std::int64_t stride_of(const TensorView& view, int dim) {
  return view.given() ? view.strides[dim] : 0;
}

// The dims [first, last) of x as loops.
Axes axes_of(const TensorView& x, const TensorView& y, const TensorView& grad_x, int first,
             int last) {
  Axes axes;
  for (int i = first; i < last; ++i) {
    if (x.shape[i] == 1) continue;
    const Axis axis{x.shape[i], stride_of(x, i), i < y.rank ? y.strides[i] : 0,
                    stride_of(grad_x, i)};
    Axis* const outer = axes.count == 0 ? nullptr : &axes.all[axes.count - 1];
    if (outer != nullptr && outer->x == axis.x * axis.extent && outer->y == axis.y * axis.extent &&
        outer->grad_x == axis.grad_x * axis.extent)
      *outer = {outer->extent * axis.extent, axis.x, axis.y, axis.grad_x};
    else
      axes.all[axes.count++] = axis;
  }
  if (axes.count == 0) axes.all[axes.count++] = {1, 1, 1, 1};
  return axes;
}

// Brings the loop to the end along which rows lie side by side. Results are independent of each
// other, so their order is free.
bool take_neighbours(Axes& kept, bool writes) {
  for (int i = kept.count - 1; i >= 0; --i) {
    const Axis& axis = kept.all[i];
    if (axis.extent == 1 || axis.x != 1 || (writes && axis.grad_x != 1)) continue;
    std::rotate(kept.all + i, kept.all + i + 1, kept.all + kept.count);
    return true;
  }
  return false;
}

std::int64_t extent(const TensorView& view, int first, int last) {
  std::int64_t result = 1;
  for (int i = first; i < last; ++i) result *= view.shape[i];
  return result;
}

// What both passes ask of x and of what is like y.
Problem checked(const Checker& checker, const char* x_name, const TensorView& x, const char* y_name,
                const TensorView& y, Access y_access, Kind kind, double correction) {
  const int code = static_cast<int>(kind);
  require(0 <= code && code < kKinds, "reduce: reduction is ", code, "; allowed: 0 to ",
          kKinds - 1);
  checker.dtype(x_name, x, {DType::f32, DType::f16, DType::bf16, DType::f64});
  require(y.given(), "reduce: ", y_name, " is missing");
  checker.any_strides(y_name, y, y_access);
  if (x.dtype == DType::f64)
    checker.dtype(y_name, y, {DType::f64});
  else
    checker.dtype(y_name, y, {x.dtype, DType::f32});
  require(y.rank < x.rank, "reduce: ", y_name, " has ", y.rank, " dimensions, ", x_name, " ",
          x.rank, "; ", x_name, " must have more: those that are reduced");
  TensorView kept = x;
  kept.rank = y.rank;
  const bool of_x = std::string_view(x_name) == "x";
  checker.same_shape(y_name, y, of_x ? "the kept part of x" : "the kept part of grad_x", kept);
  Problem problem;
  problem.kind = kind;
  problem.correction = checker.finite("correction", correction, DType::f64);
  problem.dtype = x.dtype;
  problem.y_dtype = y.dtype;
  problem.x = static_cast<const std::byte*>(x.data);
  problem.y = static_cast<std::byte*>(y.data);
  problem.rows = extent(x, 0, y.rank);
  problem.cols = extent(x, y.rank, x.rank);
  return problem;
}

void take_axes(Problem& problem, const TensorView& x, const TensorView& y,
               const TensorView& grad_x) {
  problem.kept = axes_of(x, y, grad_x, 0, y.rank);
  problem.reduced = axes_of(x, {}, grad_x, y.rank, x.rank);
  if (problem.cols == 0) {
    problem.reduced = {};
    problem.reduced.all[problem.reduced.count++] = {0, 1, 0, 1};
  }
  const bool neighbours = take_neighbours(problem.kept, grad_x.given());
  const Axis& innermost = problem.reduced.innermost();
  problem.side_by_side = neighbours && (innermost.x != 1 || innermost.extent == 1);
}

}  // namespace

Problem check_forward(const ForwardArgs& args) {
  const Checker checker("reduce");
  checker.any_strides("x", args.x, Access::read);
  Problem problem =
      checked(checker, "x", args.x, "y", args.y, Access::write, args.reduction, args.correction);
  checker.no_overlap({{"y", args.y, Checker::span(args.y)}},
                     {{"x", args.x, Checker::span(args.x)}});
  take_axes(problem, args.x, args.y, {});
  return problem;
}

Problem check_backward(const BackwardArgs& args) {
  const Checker checker("reduce");
  require(args.grad_x.given(), "reduce: grad_x is missing");
  checker.any_strides("grad_x", args.grad_x, Access::write);
  Problem problem = checked(checker, "grad_x", args.grad_x, "grad_y", args.grad_y, Access::read,
                            args.reduction, args.correction);
  require(args.x.given() || !reads_x(args.reduction), "reduce: x is missing");
  if (args.x.given()) {
    checker.any_strides("x", args.x, Access::read);
    checker.same_shape("x", args.x, "grad_x", args.grad_x);
    checker.same_dtype("x", args.x, "grad_x", args.grad_x.dtype);
  }
  checker.no_overlap({{"grad_x", args.grad_x, Checker::span(args.grad_x)}},
                     {{"x", args.x, args.x.given() ? Checker::span(args.x) : Matrix{}},
                      {"grad_y", args.grad_y, Checker::span(args.grad_y)}});
  problem.grad_x = static_cast<std::byte*>(args.grad_x.data);
  // What is not read has the places of what is written.
  const TensorView& x = reads_x(args.reduction) ? args.x : args.grad_x;
  problem.x = static_cast<const std::byte*>(x.data);
  take_axes(problem, x, args.grad_y, args.grad_x);
  if (problem.cols == 0) problem.rows = 0;  // nothing is left to do
  return problem;
}

}  // namespace isobit::reduce
