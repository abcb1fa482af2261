// SPDX-License-Identifier: Apache-2.0
// Norms of channels as PyTorch's eager CPU operators compute them, which also return the
// statistics; backward is given those.
#pragma once

#include <ATen/ops/from_blob.h>
#include <ATen/ops/native_batch_norm.h>
#include <ATen/ops/native_batch_norm_backward.h>
#include <ATen/ops/native_group_norm.h>
#include <ATen/ops/native_group_norm_backward.h>

#include <tuple>

#include "bench/peers/adapter.h"
#include "bench/peers/torch_layers.h"

namespace isobit::peers {
namespace {

class ChannelNorm {
 public:
  explicit ChannelNorm(const IsobitPeerCase& c)
      : c_(c),
        batch_(dim(c, "batch")),
        channels_(dim(c, "channels")),
        extent_(dim(c, "extent")),
        eps_(option(c, "eps").number) {}

  Call batch(bool forward) const {
    const bool training = option(c_, "training").number != 0;
    const at::Tensor x = images("x"), weight = of_channels("weight", c_.weight_dtype),
                     mean = statistic("running_mean"), var = statistic("running_var");
    if (forward)
      return [=, momentum = option(c_, "momentum").number, eps = eps_,
              bias = of_channels("bias", c_.weight_dtype), y = images("y"),
              kept = std::tuple<at::Tensor, at::Tensor>()]() mutable {
        std::tie(y, std::get<0>(kept), std::get<1>(kept)) =
            at::native_batch_norm(x, weight, bias, mean, var, training, momentum, eps);
      };
    const auto kept = at::native_batch_norm(x, weight, {}, mean, var, training, 0, eps_);
    return [=, grad = images("grad_y"), eps = eps_,
            found = std::tuple<at::Tensor, at::Tensor, at::Tensor>()]() mutable {
      found = at::native_batch_norm_backward(grad, x, weight, mean, var, std::get<1>(kept),
                                             std::get<2>(kept), training, eps, {true, true, true});
    };
  }

  Call group(bool forward) const {
    const auto groups = static_cast<std::int64_t>(option(c_, "groups").number);
    const at::Tensor x = images("x"), weight = of_channels("weight", c_.weight_dtype);
    const auto compute = [=, batch = batch_, channels = channels_, extent = extent_,
                          eps = eps_](const at::Tensor& bias) {
      return at::native_group_norm(x, weight, bias, batch, channels, extent, groups, eps);
    };
    if (forward)
      return [=, bias = of_channels("bias", c_.weight_dtype), y = images("y")]() mutable {
        y = std::get<0>(compute(bias));
      };
    return [=, kept = compute({}), grad = images("grad_y"), batch = batch_, channels = channels_,
            extent = extent_, found = std::tuple<at::Tensor, at::Tensor, at::Tensor>()]() mutable {
      found = at::native_group_norm_backward(grad, x, std::get<1>(kept), std::get<2>(kept), weight,
                                             batch, channels, extent, groups, {true, true, true});
    };
  }

 private:
  at::Tensor images(const char* name) const {
    return at::from_blob(array(c_, name), {batch_, channels_, extent_},
                         at::TensorOptions(scalar_type_named(c_.dtype)));
  }
  // Undefined where the case has none.
  at::Tensor of_channels(const char* name, const char* dtype) const {
    if (find(c_, name) == nullptr) return {};
    return at::from_blob(array(c_, name), {channels_}, at::TensorOptions(scalar_type_named(dtype)));
  }
  // A copy, since PyTorch moves them where they are, in the weights' type, as it wants them.
  at::Tensor statistic(const char* name) const {
    const bool wide = scalar_type_named(c_.dtype) == at::kDouble;
    const at::Tensor given = of_channels(name, wide ? "f64" : "f32");
    return given.defined() ? given.to(scalar_type_named(c_.weight_dtype), false, true) : given;
  }

  const IsobitPeerCase& c_;
  std::int64_t batch_, channels_, extent_;
  double eps_;
};

}  // namespace
}  // namespace isobit::peers
