// SPDX-License-Identifier: Apache-2.0
// The rules of a call, and how it becomes a Problem.
#include "isobit/ops/pool2d/problem.h"

#include <algorithm>
#include <string_view>

#include "isobit/core/check.h"
#include "isobit/core/error.h"

namespace isobit::pool2d {
namespace {

constexpr std::int64_t kMost = (std::int64_t{1} << 31) - 1;

template <class... Parts>
void hold(bool condition, const Parts&... parts) {
  require(condition, "pool2d: ", parts...);
}

// One side's numbers, by the names that they have in calls.
struct Numbers {
  std::string_view extent_name, tail;  // "height" and "_h"
  std::int64_t window, bins, stride, padding, dilation;
};

// At least 1, and no more than a count of 32 bits.
void within(std::string_view name, std::string_view tail, std::int64_t value, std::int64_t least) {
  hold(least <= value && value <= kMost, name, tail, " is ", value, "; allowed: ", least,
       " to 2^31 - 1");
}

Axis axis_of(const Numbers& n, std::int64_t extent, bool ceil_mode) {
  within(n.extent_name, "", extent, 1);
  within("window", n.tail, n.window, 0);
  within("stride", n.tail, n.stride, 0);
  within("padding", n.tail, n.padding, 0);
  within("dilation", n.tail, n.dilation, 1);
  within("bins", n.tail, n.bins, 1);
  Axis axis;
  axis.sources = extent;
  if (n.window == 0) {
    hold(n.stride == 0, "stride", n.tail, " is ", n.stride, ", but bins have none: window", n.tail,
         " is 0");
    hold(n.padding == 0, "padding", n.tail, " is ", n.padding, ", but bins have none: window",
         n.tail, " is 0");
    hold(n.dilation == 1, "dilation", n.tail, " is ", n.dilation, ", but bins have none: window",
         n.tail, " is 0");
    axis.results = n.bins;
    axis.bins = true;
    return axis;
  }
  hold(n.bins == 1, "bins", n.tail, " is ", n.bins, " beside window", n.tail, " ", n.window,
       "; must be 1, or window", n.tail, " 0");
  const std::int64_t reach = n.dilation * (n.window - 1) + 1;
  hold(n.padding <= reach / 2, "padding", n.tail, " is ", n.padding,
       "; allowed: at most half of what a window spans, ", n.dilation, " * (", n.window,
       " - 1) + 1 = ", reach);
  axis.results = results_of(extent, n.window, n.bins, n.stride, n.padding, n.dilation, ceil_mode);
  const std::int64_t stride = n.stride == 0 ? n.window : n.stride;
  hold(axis.results >= 1, n.extent_name, " ", extent, ", window", n.tail, " ", n.window,
       ", dilation", n.tail, " ", n.dilation, " and padding", n.tail, " ", n.padding,
       " leave no window: (", extent, " + 2 * ", n.padding, " - ", n.dilation, " * (", n.window,
       " - 1) - 1", ceil_mode ? " + stride - 1" : "", ") / ", stride, " + 1 = ", axis.results,
       "; must be at least 1");
  axis.taps = n.window;
  axis.stride = stride;
  axis.dilation = n.dilation;
  axis.padding = n.padding;
  return axis;
}

// One window over whole planes whose rows follow each other in memory: each plane is one row.
void merge_rows(Problem& problem) {
  Axis &h = problem.h, &w = problem.w;
  const auto whole = [](const Axis& axis) {
    const bool window = axis.taps == axis.sources && axis.padding == 0 && axis.dilation == 1;
    return axis.results == 1 && (axis.bins || window);
  };
  const bool one_line = h.sources == 1 || problem.x.h == w.sources * problem.x.w;
  if (!whole(h) || !whole(w) || !one_line || h.sources > kMost / w.sources) return;
  w = {.sources = h.sources * w.sources, .bins = true};
  h = {.bins = true};
}

Matrix span(const TensorView& view) { return view.given() ? Checker::span(view) : Matrix{}; }

// What both passes have: x or its gradient, and y or its gradient.
template <class Args>
Problem shared(const Checker& checker, const Args& args, std::string_view x_name,
               const TensorView& x, std::string_view y_name, const TensorView& y,
               std::string_view windows) {
  const int reduction = static_cast<int>(args.reduction);
  hold(0 <= reduction && reduction <= 1, "reduction is ", reduction, "; allowed: 0 to 1");
  hold(x.rank == 4, x_name, " has ", x.rank, " dimensions; must have 4");
  checker.dtype(x_name, x, {DType::f32, DType::f16, DType::bf16, DType::f64});
  checker.same_dtype(y_name, y, x_name, x.dtype);
  const bool is_max = args.reduction == Reduction::max;
  if (is_max) {
    hold(args.divisor == 0, "divisor is ", args.divisor, ", but reduction max does not divide");
    hold(!args.count_include_pad, "count_include_pad is given, but reduction max does not divide");
  } else {
    for (const auto& [tail, dilation] :
         {std::pair<std::string_view, std::int64_t>("_h", args.dilation_h),
          {"_w", args.dilation_w}})
      hold(dilation == 1, "dilation", tail, " is ", dilation,
           "; reduction average has none: must be 1");
  }
  hold(args.divisor == 0 || !args.count_include_pad, "divisor is ", args.divisor,
       " beside count_include_pad; must be 0, or nothing is counted");
  hold(!args.ceil_mode || args.window_h != 0 || args.window_w != 0,
       "ceil_mode is given, but bins always reach the end: window_h and window_w are 0");
  Problem problem;
  problem.reduction = args.reduction;
  problem.dtype = x.dtype;
  problem.batch = x.shape[0];
  problem.channels = x.shape[1];
  problem.h = axis_of(
      {"height", "_h", args.window_h, args.bins_h, args.stride_h, args.padding_h, args.dilation_h},
      x.shape[2], args.ceil_mode);
  problem.w = axis_of(
      {"width", "_w", args.window_w, args.bins_w, args.stride_w, args.padding_w, args.dilation_w},
      x.shape[3], args.ceil_mode);
  problem.with_padding = args.count_include_pad;
  problem.divisor = args.divisor;
  TensorView expected;
  expected.rank = 4;
  expected.shape[0] = problem.batch;
  expected.shape[1] = problem.channels;
  expected.shape[2] = problem.h.results;
  expected.shape[3] = problem.w.results;
  checker.same_shape(y_name, y, windows, expected);
  if (args.index.given()) {
    hold(is_max, "index is given, but reduction average finds none");
    checker.dtype("index", args.index, {DType::i64});
    checker.same_shape("index", args.index, y_name, y);
  }
  problem.x = images(x);
  problem.y = images(y);
  problem.index = images(args.index);
  merge_rows(problem);
  return problem;
}

}  // namespace

std::int64_t results_of(std::int64_t extent, std::int64_t window, std::int64_t bins,
                        std::int64_t stride, std::int64_t padding, std::int64_t dilation,
                        bool ceil_mode) {
  if (window == 0) return bins;
  const std::int64_t step = stride == 0 ? window : stride;
  const std::int64_t limits[] = {extent, window, step, padding, dilation};
  if (std::ranges::any_of(limits, [](std::int64_t n) { return n < 0 || n > kMost; }) || step < 1)
    return 0;
  const std::int64_t room =
      extent + 2 * padding - dilation * (window - 1) - 1 + (ceil_mode ? step - 1 : 0);
  if (room < 0) return 0;
  const std::int64_t results = room / step + 1;
  // The last window begins before the padding behind the image, if not in it.
  return ceil_mode && (results - 1) * step >= extent + padding ? results - 1 : results;
}

Problem check_forward(const ForwardArgs& args) {
  const Checker checker("pool2d");
  checker.any_strides("x", args.x, Access::read);
  checker.any_strides("y", args.y, Access::write);
  if (args.index.given()) checker.any_strides("index", args.index, Access::write);
  const Problem problem = shared(checker, args, "x", args.x, "y", args.y, "the windows of x");
  checker.no_overlap({{"y", args.y, span(args.y)}, {"index", args.index, span(args.index)}},
                     {{"x", args.x, span(args.x)}});
  return problem;
}

Problem check_backward(const BackwardArgs& args) {
  const Checker checker("pool2d");
  checker.any_strides("grad_y", args.grad_y, Access::read);
  checker.any_strides("grad_x", args.grad_x, Access::write);
  if (args.index.given()) checker.any_strides("index", args.index, Access::read);
  const Problem problem =
      shared(checker, args, "grad_x", args.grad_x, "grad_y", args.grad_y, "the windows of grad_x");
  hold(args.reduction != Reduction::max || args.index.given(),
       "index is missing; reduction max needs what forward gave");
  checker.no_overlap(
      {{"grad_x", args.grad_x, span(args.grad_x)}},
      {{"grad_y", args.grad_y, span(args.grad_y)}, {"index", args.index, span(args.index)}});
  return problem;
}

}  // namespace isobit::pool2d
