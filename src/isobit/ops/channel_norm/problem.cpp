// SPDX-License-Identifier: Apache-2.0
// The rules of group_norm and batch_norm, and how a call becomes a Problem.
#include "isobit/ops/channel_norm/problem.h"

#include "isobit/core/check.h"
#include "isobit/core/error.h"

namespace isobit::channel_norm {
namespace {

// Strides of dims of one index are not asked for: 1 lets more of a row stand side by side.
Images images(const TensorView& view) {
  if (!view.given()) return {};
  return {static_cast<std::byte*>(view.data), view.strides[0], view.strides[1],
          view.shape[2] == 1 ? 1 : view.strides[2]};
}

class Check {
 public:
  template <class Call>
  Check(std::string_view op, const Call& call) : op_(op), checker_(op), x_(call.x) {
    checker_.any_strides("x", x_, Access::read);
    require(x_.rank == 3, op_, ": x has ", x_.rank, " dimensions; must have 3");
    checker_.dtype("x", x_, {DType::f32, DType::f16, DType::bf16, DType::f64});
    given_.dtype = x_.dtype;
    given_.batch = x_.shape[0];
    given_.channels = x_.shape[1];
    given_.extent = x_.shape[2];
    given_.groups = call.groups;
    given_.x = images(x_);
    given_.training = call.training;
    given_.eps = checker_.finite("eps", call.eps, given_.real());
    weight = per_channel("weight", call.weight);
    given_.weight = weight.data;
    running_mean = statistics("running_mean", call.running_mean);
    running_var = statistics("running_var", call.running_var);
    given_.running_mean = running_mean.data;
    given_.running_var = running_var.data;
    if (call.groups != 0)
      require(call.groups > 0 && given_.channels % call.groups == 0, op_, ": x has ",
              given_.channels, " channels, which ", call.groups, " groups cannot share");
  }

  // (channels), in the type that all such arrays share.
  Matrix per_channel(std::string_view name, const TensorView& view) {
    if (view.given()) {
      checker_.dtype(name, view, {x_.dtype, DType::f32});
      if (!first_.empty()) checker_.same_dtype(name, view, first_, given_.weight_dtype);
      if (first_.empty()) first_ = name;
      given_.weight_dtype = view.dtype;
    }
    return checker_.vector(name, view, given_.channels, "channels");
  }
  // A number for each channel.
  Matrix statistics(std::string_view name, const TensorView& view) const {
    if (view.given()) checker_.dtype(name, view, {given_.real()});
    return checker_.vector(name, view, given_.channels, "channels");
  }
  // A number for each channel, or for each group of each image.
  OfRows of_rows(std::string_view name, const TensorView& view) const {
    if (!view.given()) return {};
    if (given_.groups == 0) return {statistics(name, view).data, 0};
    checker_.dtype(name, view, {given_.real()});
    checker_.any_strides(name, view, Access::write);
    TensorView expected;
    expected.rank = 2;
    expected.shape[0] = given_.batch;
    expected.shape[1] = given_.groups;
    checker_.same_shape(name, view, "the groups of x", expected);
    return {static_cast<std::byte*>(view.data), given_.groups, view.strides[0], view.strides[1]};
  }
  OfRows moments(const TensorView& view, Access access) const {
    if (!view.given()) return {};
    require(given_.training, op_, ": moments is given, but without training nothing is summed");
    checker_.dtype("moments", view, {given_.real()});
    checker_.any_strides("moments", view, access);
    const bool channels = given_.groups == 0;
    TensorView expected;
    expected.rank = channels ? 2 : 3;
    expected.shape[0] = channels ? given_.channels : given_.batch;
    expected.shape[1] = channels ? kMoments : given_.groups;
    expected.shape[2] = kMoments;
    checker_.same_shape("moments", view, "what x has of them", expected);
    const int last = expected.rank - 1;
    return {static_cast<std::byte*>(view.data), given_.groups, view.strides[0],
            view.strides[last - 1], view.strides[last]};
  }
  Images like_x(std::string_view name, const TensorView& view, Access access) const {
    checker_.any_strides(name, view, access);
    checker_.same_shape(name, view, "x", x_);
    checker_.same_dtype(name, view, "x", x_.dtype);
    return images(view);
  }
  Matrix span(const TensorView& view) const {
    return view.given() ? Checker::span(view) : Matrix{};
  }
  void needs_running(std::string_view why) const {
    require(running_mean.data != nullptr, op_, ": running_mean is missing", why);
    require(running_var.data != nullptr, op_, ": running_var is missing", why);
  }

  const Checker& checker() const { return checker_; }
  const Given& given() const { return given_; }

  Matrix weight, running_mean, running_var;

 private:
  std::string_view op_;
  Checker checker_;
  const TensorView& x_;
  Given given_;
  std::string_view first_;  // of those that share a type
};

std::int64_t elements(const TensorView& view) {
  return view.shape[0] * view.shape[1] * view.shape[2];
}

}  // namespace

ForwardProblem check_forward(std::string_view op, const ForwardCall& call) {
  Check check(op, call);
  const Matrix bias = check.per_channel("bias", call.bias);
  const OfRows mean = check.of_rows("mean", call.mean);
  const OfRows rstd = check.of_rows("rstd", call.rstd);
  const OfRows moments = check.moments(call.moments, Access::write);
  const Matrix next_mean = check.statistics("next_mean", call.next_mean);
  const Matrix next_var = check.statistics("next_var", call.next_var);
  const Images y = check.like_x("y", call.y, Access::write);
  const double momentum = check.checker().finite("momentum", call.momentum, check.given().real());
  if (!call.training) {
    check.needs_running("; without training nothing else is known");
    require(!next_mean && !next_var, op, ": ", next_mean ? "next_mean" : "next_var",
            " is given, but without training nothing changes");
  } else if (call.groups == 0) {
    require(!next_mean || check.running_mean, op,
            ": running_mean is missing; next_mean is what becomes of it");
    require(!next_var || check.running_var, op,
            ": running_var is missing; next_var is what becomes of it");
  }
  check.checker().no_overlap({{"y", call.y, check.span(call.y), {"x"}},
                              {"mean", call.mean, check.span(call.mean)},
                              {"rstd", call.rstd, check.span(call.rstd)},
                              {"moments", call.moments, check.span(call.moments)},
                              {"next_mean", call.next_mean, next_mean, {"running_mean"}},
                              {"next_var", call.next_var, next_var, {"running_var"}}},
                             {{"x", call.x, check.span(call.x)},
                              {"weight", call.weight, check.weight},
                              {"bias", call.bias, bias},
                              {"running_mean", call.running_mean, check.running_mean},
                              {"running_var", call.running_var, check.running_var}});
  ForwardProblem problem{{check.given()}, y,       bias.data, mean, rstd, moments, next_mean.data,
                         next_var.data,   momentum};
  // Nothing is left to do, whatever the extents.
  if (elements(call.x) == 0 && !mean && !rstd && !moments && !next_mean && !next_var)
    problem.batch = problem.channels = 0;
  return problem;
}

BackwardProblem check_backward(std::string_view op, const BackwardCall& call) {
  Check check(op, call);
  const Images grad_y = check.like_x("grad_y", call.grad_y, Access::read);
  const Images grad_x =
      call.grad_x.given() ? check.like_x("grad_x", call.grad_x, Access::write) : Images{};
  const Matrix grad_weight = check.per_channel("grad_weight", call.grad_weight);
  const Matrix grad_bias = check.per_channel("grad_bias", call.grad_bias);
  const OfRows moments = check.moments(call.moments, Access::read);
  if (!call.training) check.needs_running("; without training nothing else is known");
  check.checker().no_overlap({{"grad_x", call.grad_x, check.span(call.grad_x)},
                              {"grad_weight", call.grad_weight, grad_weight},
                              {"grad_bias", call.grad_bias, grad_bias}},
                             {{"x", call.x, check.span(call.x)},
                              {"grad_y", call.grad_y, check.span(call.grad_y)},
                              {"weight", call.weight, check.weight},
                              {"running_mean", call.running_mean, check.running_mean},
                              {"running_var", call.running_var, check.running_var},
                              {"moments", call.moments, check.span(call.moments)}});
  const bool sums = grad_weight || grad_bias;
  BackwardProblem problem{{check.given()}, grad_y,           grad_x,
                          moments,         grad_weight.data, grad_bias.data};
  if (elements(call.x) == 0 || (!sums && !grad_x)) {
    problem.batch = 0;
    if (!sums) problem.channels = 0;
  }
  return problem;
}

}  // namespace isobit::channel_norm
