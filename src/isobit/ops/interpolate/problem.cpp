// SPDX-License-Identifier: Apache-2.0
// The rules of a call, and how it becomes a Problem.
#include "isobit/ops/interpolate/problem.h"

#include <string_view>

#include "isobit/core/check.h"
#include "isobit/core/error.h"

namespace isobit::interpolate {
namespace {

constexpr std::int64_t kMost = (std::int64_t{1} << 31) - 1;

template <class... Parts>
void hold(bool condition, const Parts&... parts) {
  require(condition, "interpolate: ", parts...);
}

// One side's numbers, by the names that they have in calls.
struct Names {
  std::string_view sources, results, scale;
};

template <class Args>
Axis axis_of(const Checker& checker, const Args& args, const Names& names, std::int64_t sources,
             std::int64_t results, double scale) {
  for (const auto& [name, extent] :
       {std::pair(names.sources, sources), std::pair(names.results, results)})
    hold(1 <= extent && extent <= kMost, name, " is ", extent, "; allowed: 1 to 2^31 - 1");
  checker.finite(names.scale, scale, DType::f64);
  hold(scale >= 0, names.scale, " is ", scale, "; must be at least 0");
  hold(scale == 0 || !args.align_corners, names.scale, " is ", scale,
       ", but with align_corners the sizes alone say where results lie; must be 0");
  return {sources, results, args.mode, args.align_corners, scale};
}

// What both passes have: x or its gradient, and y or its gradient.
template <class Args>
Problem shared(const Checker& checker, const Args& args, std::string_view x_name,
               const TensorView& x, std::string_view y_name, const TensorView& y,
               std::string_view results) {
  const int mode = static_cast<int>(args.mode);
  hold(0 <= mode && mode <= 3, "mode is ", mode, "; allowed: 0 to 3");
  hold(!args.align_corners || mode >= 2, "align_corners is given, but mode ",
       mode == 0 ? "nearest" : "nearest_exact", " has no corners to align");
  for (const auto& [name, view] : {std::pair(x_name, &x), std::pair(y_name, &y)})
    hold(view->rank == 4, name, " has ", view->rank, " dimensions; must have 4");
  checker.dtype(x_name, x, {DType::f32, DType::f16, DType::bf16, DType::f64});
  checker.same_dtype(y_name, y, x_name, x.dtype);
  TensorView expected = x;
  for (const int side : {2, 3}) expected.shape[side] = y.shape[side];
  checker.same_shape(y_name, y, results, expected);
  Problem problem;
  problem.dtype = x.dtype;
  problem.batch = x.shape[0];
  problem.channels = x.shape[1];
  problem.h = axis_of(checker, args, {"height", "out_height", "scale_h"}, x.shape[2], y.shape[2],
                      args.scale_h);
  problem.w = axis_of(checker, args, {"width", "out_width", "scale_w"}, x.shape[3], y.shape[3],
                      args.scale_w);
  problem.x = images(x);
  problem.y = images(y);
  return problem;
}

}  // namespace

Problem check_forward(const ForwardArgs& args) {
  const Checker checker("interpolate");
  checker.any_strides("x", args.x, Access::read);
  checker.any_strides("y", args.y, Access::write);
  const Problem problem = shared(checker, args, "x", args.x, "y", args.y, "such a result of x");
  checker.no_overlap({{"y", args.y, Checker::span(args.y)}},
                     {{"x", args.x, Checker::span(args.x)}});
  return problem;
}

Problem check_backward(const BackwardArgs& args) {
  const Checker checker("interpolate");
  checker.any_strides("grad_y", args.grad_y, Access::read);
  checker.any_strides("grad_x", args.grad_x, Access::write);
  const Problem problem = shared(checker, args, "grad_x", args.grad_x, "grad_y", args.grad_y,
                                 "such a result of grad_x");
  checker.no_overlap({{"grad_x", args.grad_x, Checker::span(args.grad_x)}},
                     {{"grad_y", args.grad_y, Checker::span(args.grad_y)}});
  return problem;
}

}  // namespace isobit::interpolate
