// SPDX-License-Identifier: Apache-2.0
// The transpose operator: its rules, its arguments, and what it is made of.
#include "isobit/ops/transpose/transpose.h"

#include <algorithm>
#include <array>

#include "isobit/core/check.h"
#include "isobit/core/error.h"
#include "isobit/dispatch/definition.h"
#include "isobit/ops/transpose/cases.h"
#include "isobit/ops/transpose/problem.h"
#include "isobit/ops/transpose/reference.h"

namespace isobit::transpose {
namespace {

constexpr Dim kDims[] = {{.name = "batch", .usual = 4, .in_parity = 7, .batch = true},
                         {.name = "rows", .usual = 512, .in_parity = 37},
                         {.name = "cols", .usual = 768, .in_parity = 100}};

constexpr Argument kArguments[] = {
    argument<&Args::x>("x", Role::input, "batch rows cols", Elements::like_x, Presence::required,
                       Drawn::family)
        .with_any_strides()
        .means("(..., rows, cols) in any dtype and of any strides"),
    argument<&Args::y>("y", Role::output, "batch cols rows", Elements::like_y, Presence::required)
        .with_any_strides()
        .means("(..., cols, rows) in x's dtype, or floating beside a floating x; of any strides"),
};

// The loops over both arrays, outermost first. A call that keeps the rules allocates nothing.
struct Axes {
  std::array<Axis, kMaxRank> all{};
  int count = 0;

  void add(const Axis& axis) { all[static_cast<std::size_t>(count++)] = axis; }
  void remove(int at) {
    std::copy(all.begin() + at + 1, all.begin() + count, all.begin() + at);
    --count;
  }
};

// In the order of y's strides, with those that both arrays allow to be one as one.
Axes axes_of(const Args& args) {
  Axes axes;
  const int last = args.x.rank - 1;
  for (int i = 0; i <= last; ++i) {
    const int in_y = i == last ? last - 1 : i == last - 1 ? last : i;
    if (args.x.shape[i] == 1) continue;
    const Axis axis{args.x.shape[i], args.x.strides[i], args.y.strides[in_y]};
    int at = axes.count;
    axes.add(axis);
    for (; at > 0 && axes.all[at - 1].y_stride < axis.y_stride; --at)
      axes.all[at] = axes.all[at - 1];
    axes.all[at] = axis;
  }
  for (int i = 1; i < axes.count;) {
    Axis &outer = axes.all[i - 1], &inner = axes.all[i];
    if (outer.x_stride == inner.x_stride * inner.extent &&
        outer.y_stride == inner.y_stride * inner.extent) {
      inner.extent *= outer.extent;
      axes.remove(i - 1);
    } else {
      ++i;
    }
  }
  return axes;
}

// Takes the axis out along which `stride` is smallest, but not 0; the last of several.
Axis take_nearest(Axes& axes, std::int64_t Axis::* stride, const Axis& otherwise) {
  if (axes.count == 0) return otherwise;
  int nearest = axes.count - 1;
  for (int i = 0; i < axes.count; ++i) {
    const std::int64_t here = axes.all[i].*stride, best = axes.all[nearest].*stride;
    if (here > 0 && (best == 0 || here < best)) nearest = i;
  }
  const Axis taken = axes.all[nearest];
  axes.remove(nearest);
  return taken;
}

Problem check(const Args& args) {
  const Checker checker("transpose");
  checker.any_strides("x", args.x, Access::read);
  checker.any_strides("y", args.y, Access::write);
  checker.dtype("x", args.x, kDTypes);
  if (is_floating(args.x.dtype))
    checker.dtype("y", args.y, {DType::f32, DType::f16, DType::bf16, DType::f64});
  else
    checker.same_dtype("y", args.y, "x", args.x.dtype);
  require(args.x.rank >= 2, "transpose: x has 1 dimension; must have at least 2");
  TensorView expected = args.x;
  std::swap(expected.shape[args.x.rank - 1], expected.shape[args.x.rank - 2]);
  checker.same_shape("y", args.y, "the transposed x", expected);
  checker.no_overlap({{"y", args.y, checker.span(args.y)}}, {{"x", args.x, checker.span(args.x)}});

  Problem problem{.x_dtype = args.x.dtype,
                  .y_dtype = args.y.dtype,
                  .x = static_cast<const std::byte*>(args.x.data),
                  .y = static_cast<std::byte*>(args.y.data),
                  .rows = {},
                  .cols = {}};
  if (std::find(args.x.shape.begin(), args.x.shape.begin() + args.x.rank, 0) !=
      args.x.shape.begin() + args.x.rank) {
    problem.rows.extent = 0;
    return problem;
  }
  Axes axes = axes_of(args);
  problem.cols = take_nearest(axes, &Axis::x_stride, {1, 1, 1});
  problem.rows = take_nearest(axes, &Axis::y_stride, {1, 0, 1});
  problem.outer = axes.all;
  problem.outer_count = axes.count;
  return problem;
}

Extents extents(const Args& args) {
  Extents result{1, args.x.shape[args.x.rank - 2], args.x.shape[args.x.rank - 1]};
  for (int i = 0; i + 2 < args.x.rank; ++i) result[0] *= args.x.shape[i];
  return result;
}

const Definition<Args, Problem>& definition() {
  static const Definition<Args, Problem> kDefinition = {
      .op = "transpose",
      .pass = "fwd",
      .summary =
          "y[..., j, i] = x[..., i, j]. Where the dtypes are equal, y has the very bytes of "
          "x; else each element is rounded once.",
      .version = 1,
      .dims = kDims,
      .arguments = kArguments,
      .options = {},
      .check = check,
      .extents = extents,
      .variants = cpu_variants(),
      .cost = cost,
      .cases = cases,
      .reference = reference,
      .intermediates = intermediates,
      .limit = limit,
      .moves_bytes = [](const Args& args) { return args.x.dtype == args.y.dtype; }};
  return kDefinition;
}

}  // namespace

void run(const Args& args, const Execution& execution) {
  isobit::run(definition(), args, execution);
}

const Operation& operation() {
  static const TypedOperation<Args, Problem> kOperation(definition());
  return kOperation;
}

}  // namespace isobit::transpose
