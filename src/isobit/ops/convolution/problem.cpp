// SPDX-License-Identifier: Apache-2.0
// The rules of a call, and how it becomes a Problem: an array without a height gets one of 1.
#include "isobit/ops/convolution/problem.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <string>

#include "isobit/core/check.h"
#include "isobit/core/error.h"

namespace isobit::convolution {
namespace {

struct Naming {
  std::string_view op;
  int dims;
};
Naming naming_of(int dims) { return {dims == 1 ? "conv1d" : "conv2d", dims}; }

constexpr std::int64_t kMost = std::int64_t{1} << 40;  // of a stride, a dilation, a padding

// One dimension's numbers, by the names that they have in calls.
struct Numbers {
  std::int64_t stride, dilation, padding, extra;
  std::string extent_name, tail;  // "height" and "_h"
};

template <class Args>
std::array<Numbers, 2> numbers_of(const Args& args, const Naming& naming) {
  const bool one = naming.dims == 1;
  return {
      Numbers{args.stride_h, args.dilation_h, args.padding_h, args.extra_padding_h, "height", "_h"},
      Numbers{args.stride_w, args.dilation_w, args.padding_w, args.extra_padding_w,
              one ? "length" : "width", one ? "" : "_w"}};
}

__int128 wide_results(std::int64_t extent, std::int64_t taps, std::int64_t stride,
                      std::int64_t dilation, std::int64_t padding, std::int64_t extra) {
  const __int128 room = __int128{extent} + 2 * __int128{padding} + extra -
                        __int128{dilation} * (__int128{taps} - 1) - 1;
  return room < 0 ? -((-room + stride - 1) / stride) + 1 : room / stride + 1;
}

class Check {
 public:
  explicit Check(const Naming& naming) : naming_(naming), checker_(naming.op) {}

  const Checker& checker() const { return checker_; }

  template <class... Parts>
  void hold(bool condition, const Parts&... parts) const {
    require(condition, naming_.op, ": ", parts...);
  }

  // x and weight, whatever the pass calls them.
  template <class Args>
  Problem shapes(const Args& args) const {
    const int rank = naming_.dims + 2;
    for (const auto& [name, view] :
         {std::pair<std::string_view, const TensorView&>("x", args.x), {"weight", args.weight}})
      hold(view.rank == rank, name, " has ", view.rank, " dimensions; must have ", rank);
    checker_.dtype("x", args.x, {DType::f32, DType::f16, DType::bf16, DType::f64});
    checker_.same_dtype("weight", args.weight, "x", args.x.dtype);
    const std::int64_t channels = args.x.shape[1], filters = args.weight.shape[0];
    hold(args.groups >= 1, "groups is ", args.groups, "; must be at least 1");
    hold(channels % args.groups == 0, "x has ", channels, " channels; groups is ", args.groups,
         ", which must divide them");
    hold(filters % args.groups == 0, "weight has ", filters, " filters; groups is ", args.groups,
         ", which must divide them");
    hold(args.weight.shape[1] == channels / args.groups, "weight has ", args.weight.shape[1],
         " channels; x has ", channels, " in ", args.groups, " groups, so it must have ",
         channels / args.groups);
    const int mode = static_cast<int>(args.padding_mode);
    hold(0 <= mode && mode <= 3, "padding_mode is ", mode, "; allowed: 0 to 3");

    Problem problem;
    problem.element = args.x.dtype;
    problem.mode = args.padding_mode;
    problem.batch = args.x.shape[0];
    problem.groups = args.groups;
    problem.ins = channels / args.groups;
    problem.outs = filters / args.groups;
    const std::array<Numbers, 2> numbers = numbers_of(args, naming_);
    if (naming_.dims == 2) problem.h = axis(args, numbers[0], 2);
    problem.w = axis(args, numbers[1], rank - 1);
    return problem;
  }

  // y of forward or its gradient, beside a checked x and weight.
  void results(std::string_view name, const TensorView& view, const Problem& problem) const {
    TensorView expected;
    expected.rank = naming_.dims + 2;
    expected.shape[0] = problem.batch;
    expected.shape[1] = problem.groups * problem.outs;
    expected.shape[2] = problem.h.results;
    expected.shape[expected.rank - 1] = problem.w.results;
    checker_.same_shape(name, view, "the product of windows of x and weight", expected);
  }
  void result_dtype(std::string_view name, const TensorView& view, const Problem& problem) const {
    switch (problem.element) {
      case DType::f32: checker_.dtype(name, view, {DType::f32, DType::f16, DType::bf16}); break;
      case DType::f64: checker_.dtype(name, view, {DType::f64}); break;
      default:         checker_.dtype(name, view, {problem.element, DType::f32}); break;
    }
  }
  void bias(std::string_view name, const TensorView& view, const Problem& problem,
            Access access) const {
    if (!view.given()) return;
    checker_.any_strides(name, view, access);
    const std::int64_t filters = problem.groups * problem.outs;
    hold(view.rank == 1 && view.shape[0] == filters, name, " has ", view.rank, " dimensions and ",
         view.shape[0], " elements; must have 1 dimension and ", filters, " elements");
    if (problem.element == DType::f64)
      checker_.dtype(name, view, {DType::f64});
    else
      checker_.dtype(name, view, {problem.element, DType::f32});
  }
  void like(std::string_view name, const TensorView& view, Access access, std::string_view other,
            const TensorView& as) const {
    if (!view.given()) return;
    checker_.any_strides(name, view, access);
    checker_.same_dtype(name, view, other, as.dtype);
    checker_.same_shape(name, view, other, as);
  }

  Images images(const TensorView& view) const {
    if (!view.given()) return {};
    Images result{static_cast<std::byte*>(view.data), view.dtype, view.strides[0], view.strides[1]};
    if (naming_.dims == 2) result.h = view.strides[2];
    result.w = view.strides[view.rank - 1];
    return result;
  }
  Weights weights(const TensorView& view, const Problem& problem) const {
    if (!view.given()) return {};
    Weights result{static_cast<std::byte*>(view.data), view.strides[0] * problem.outs,
                   view.strides[0], view.strides[1]};
    if (naming_.dims == 2) result.h = view.strides[2];
    result.w = view.strides[view.rank - 1];
    return result;
  }

 private:
  template <class Args>
  Axis axis(const Args& args, const Numbers& n, int dim) const {
    const auto limit = [&](std::string_view name, std::int64_t value, std::int64_t least) {
      hold(least <= value && value <= kMost, name, n.tail, " is ", value, "; allowed: ", least,
           " to 2^40");
    };
    limit("stride", n.stride, 1);
    limit("dilation", n.dilation, 1);
    limit("padding", n.padding, 0);
    hold(-n.padding <= n.extra && n.extra <= kMost, "extra_padding", n.tail, " is ", n.extra,
         "; allowed: ", -n.padding, " (none behind the last element) to 2^40");
    const std::int64_t extent = args.x.shape[dim], taps = args.weight.shape[dim];
    hold(taps >= 1, "weight has kernel", n.tail, " ", taps, "; must be at least 1");
    const __int128 results = wide_results(extent, taps, n.stride, n.dilation, n.padding, n.extra);
    hold(results >= 1, n.extent_name, " ", extent, ", kernel", n.tail, " ", taps, ", dilation",
         n.tail, " ", n.dilation, " and padding ", n.padding, " + ", n.padding + n.extra,
         " leave no window: (", extent, " + ", n.padding, " + ", n.padding + n.extra, " - ",
         n.dilation, " * (", taps, " - 1) - 1) / ", n.stride,
         " + 1 = ", static_cast<std::int64_t>(std::max<__int128>(results, -(__int128{1} << 62))),
         "; must be at least 1");
    const std::int64_t most = std::max(n.padding, n.padding + n.extra);
    const bool reflects = args.padding_mode == PaddingMode::reflect;
    if (reflects || args.padding_mode == PaddingMode::circular)
      hold(most == 0 || most < extent + (reflects ? 0 : 1), "padding", n.tail, " is ", most, "; ",
           n.extent_name, " ", extent, (reflects ? " reflects less than" : " goes round at most"),
           " that many");
    if (args.padding_mode == PaddingMode::replicate)
      hold(most == 0 || extent > 0, n.extent_name, " is 0; there is nothing to replicate");
    return {static_cast<std::int64_t>(results),
            extent,
            taps,
            n.stride,
            n.dilation,
            n.padding,
            n.padding + n.extra};
  }

  Naming naming_;
  Checker checker_;
};

Matrix span(const TensorView& view) { return view.given() ? Checker::span(view) : Matrix{}; }

matmul::Array vector_of(const TensorView& view) {
  if (!view.given()) return {};
  return {static_cast<std::byte*>(view.data), view.dtype, view.strides[0], 0};
}

}  // namespace

std::int64_t results_of(std::int64_t extent, std::int64_t taps, std::int64_t stride,
                        std::int64_t dilation, std::int64_t padding, std::int64_t extra) {
  if (stride < 1) return 0;
  const __int128 results = wide_results(extent, taps, stride, dilation, padding, extra);
  return static_cast<std::int64_t>(std::clamp<__int128>(results, 0, __int128{1} << 62));
}

Problem check_forward(const ForwardArgs& args, int dims) {
  const Naming naming = naming_of(dims);
  const Check check(naming);
  const Checker& checker = check.checker();
  const int code = static_cast<int>(args.activation);
  check.hold(0 <= code && code <= 4, "activation is ", code, "; allowed: 0 to 4");
  checker.any_strides("x", args.x, Access::read);
  checker.any_strides("weight", args.weight, Access::read);
  checker.any_strides("y", args.y, Access::write);
  Problem problem = check.shapes(args);
  check.results("y", args.y, problem);
  check.result_dtype("y", args.y, problem);
  check.bias("bias", args.bias, problem, Access::read);
  check.like("residual", args.residual, Access::read, "y", args.y);
  check.like("pre", args.pre, Access::write, "y", args.y);
  checker.no_overlap({{"y", args.y, span(args.y), {"residual"}}, {"pre", args.pre, span(args.pre)}},
                     {{"x", args.x, span(args.x)},
                      {"weight", args.weight, span(args.weight)},
                      {"bias", args.bias, span(args.bias)},
                      {"residual", args.residual, span(args.residual)}});
  if (args.residual.given() && args.residual.data == args.y.data)
    for (int i = 0; i < args.y.rank; ++i)
      check.hold(args.y.shape[i] <= 1 || args.residual.strides[i] == args.y.strides[i],
                 "y starts where residual does, but has other strides");
  problem.activation = args.activation;
  problem.source = check.images(args.x);
  problem.result = check.images(args.y);
  problem.residual = check.images(args.residual);
  problem.pre = check.images(args.pre);
  problem.weight = check.weights(args.weight, problem);
  problem.bias = vector_of(args.bias);
  return problem;
}

BackwardProblem check_backward(const BackwardArgs& args, int dims) {
  const Naming naming = naming_of(dims);
  const Check check(naming);
  const Checker& checker = check.checker();
  checker.any_strides("grad_y", args.grad_y, Access::read);
  checker.any_strides("x", args.x, Access::read);
  checker.any_strides("weight", args.weight, Access::read);
  const Problem problem = check.shapes(args);
  check.results("grad_y", args.grad_y, problem);
  checker.same_dtype("grad_y", args.grad_y, "x", args.x.dtype);
  check.like("grad_x", args.grad_x, Access::write, "x", args.x);
  check.like("grad_weight", args.grad_weight, Access::write, "weight", args.weight);
  check.bias("grad_bias", args.grad_bias, problem, Access::write);
  checker.no_overlap({{"grad_x", args.grad_x, span(args.grad_x)},
                      {"grad_weight", args.grad_weight, span(args.grad_weight)},
                      {"grad_bias", args.grad_bias, span(args.grad_bias)}},
                     {{"grad_y", args.grad_y, span(args.grad_y)},
                      {"x", args.x, span(args.x)},
                      {"weight", args.weight, span(args.weight)}});

  BackwardProblem result;
  result.wants_x = args.grad_x.given();
  result.wants_weight = args.grad_weight.given();
  result.wants_bias = args.grad_bias.given();
  result.to_weight = problem;
  result.to_weight.source = check.images(args.x);
  result.to_weight.result = check.images(args.grad_y);
  result.to_weight.weight = check.weights(args.grad_weight, problem);

  Problem& to_x = result.to_x;
  to_x = problem;
  to_x.gradient = true;
  std::swap(to_x.ins, to_x.outs);
  std::swap(to_x.h.results, to_x.h.sources);
  std::swap(to_x.w.results, to_x.w.sources);
  to_x.source = check.images(args.grad_y);
  to_x.result = check.images(args.grad_x);
  to_x.weight = check.weights(args.weight, problem);
  std::swap(to_x.weight.in, to_x.weight.out);

  if (result.wants_bias) {  // (batch, out_height, out_width, filters): the last are the columns
    TensorView rows = args.grad_y;
    rows.rank = 4;
    const auto put = [&](int to, int from) {
      rows.shape[to] = from < 0 ? 1 : args.grad_y.shape[from];
      rows.strides[to] = from < 0 ? 0 : args.grad_y.strides[from];
    };
    put(1, naming.dims == 2 ? 2 : -1);
    put(2, naming.dims + 1);
    put(3, 1);
    matmul::BackwardArgs sums;
    sums.grad_y = rows;
    sums.a.dtype = args.x.dtype;
    sums.grad_bias = args.grad_bias;
    result.to_bias = matmul::rows_problem(sums, {});
  }
  return result;
}

}  // namespace isobit::convolution
