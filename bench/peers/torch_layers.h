// SPDX-License-Identifier: Apache-2.0
// The layers of models as PyTorch's eager CPU operators compute them: a norm with a linear layer,
// attention, convolutions.
#pragma once

#include <ATen/Parallel.h>
#include <ATen/native/layer_norm.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_backward.h>
#include <ATen/ops/add.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/convolution.h>
#include <ATen/ops/convolution_backward.h>
#include <ATen/ops/cummax.h>
#include <ATen/ops/cummin.h>
#include <ATen/ops/cumprod.h>
#include <ATen/ops/cumsum.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/exp.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/gelu_backward.h>
#include <ATen/ops/log.h>
#include <ATen/ops/logcumsumexp.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/rms_norm.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/silu_backward.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/tanh.h>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "bench/peers/adapter.h"

namespace isobit::peers {
namespace {

at::ScalarType scalar_type_named(std::string_view name) {
  if (name == "f32") return at::kFloat;
  if (name == "f16") return at::kHalf;
  if (name == "bf16") return at::kBFloat16;
  if (name == "f64") return at::kDouble;
  if (name == "i32") return at::kInt;
  if (name == "i64") return at::kLong;
  if (name == "bool") return at::kBool;
  if (name == "u8") return at::kByte;
  throw Declined("no " + std::string(name) + " here");
}

// A norm and the linear layer behind it, whose results have one dtype; what is between them, and
// what forward keeps for backward, lives from call to call as outputs do.
class Linear {
 public:
  Linear(const IsobitPeerCase& c, bool centered) : c_(c), centered_(centered) {
    decline_unless_known(c, {"eps"});
    for (const char* name : {"x_residual", "residual", "pre", "sum", "y", "mean", "rstd",
                             "grad_sum", "grad_x_residual"})
      if (find(c, name) != nullptr) throw Declined("no " + std::string(name) + " here");
    if (std::string_view(c.y_dtype) != c.dtype || std::string_view(c.weight_dtype) != c.dtype)
      throw Declined("all arrays must have one dtype");
    y_ = at::empty({dim(c, "rows"), dim(c, "cols")}, x_.options());
  }

  Call forward() const {
    return [norm = norm_into_y(), y = y_, weight = view("weight", "features", "cols"),
            bias = vector("bias", "features"), z = view("z", "rows", "features")]() mutable {
      norm();
      at::addmm_out(z, bias, y, weight.t());
    };
  }

  Call backward() const {
    if (!centered_) throw Declined("no gradients of rms_norm by a kernel of its own");
    norm_into_y()();  // forward's, which keeps y, mean and rstd
    return
        [y = y_, x = x_, mean = mean_, rstd = rstd_, rows = dim(c_, "rows"), cols = dim(c_, "cols"),
         grad_y = at::empty_like(y_), gamma = vector("norm_weight", "cols"),
         weight = view("weight", "features", "cols"), grad_z = view("grad_z", "rows", "features"),
         grad_x = view("grad_x", "rows", "cols"), grad_gamma = vector("grad_norm_weight", "cols"),
         grad_beta = vector("grad_norm_bias", "cols"),
         grad_weight = view("grad_weight", "features", "cols"),
         grad_bias = vector("grad_bias", "features")]() mutable {
          at::mm_out(grad_y, grad_z, weight);
          at::mm_out(grad_weight, grad_z.t(), y);
          at::sum_out(grad_bias, grad_z, at::IntArrayRef{0});
          at::native::LayerNormBackwardKernel(at::kCPU, grad_y, x, mean, rstd, gamma, rows, cols,
                                              &grad_x, &grad_gamma, &grad_beta);
        };
  }

 private:
  at::Tensor view(const char* name, const char* rows, const char* cols) const {
    return at::from_blob(array(c_, name), {dim(c_, rows), dim(c_, cols)}, x_.options());
  }
  at::Tensor vector(const char* name, const char* count) const {
    return at::from_blob(array(c_, name), {dim(c_, count)}, x_.options());
  }
  Call norm_into_y() const {
    const double eps = option(c_, "eps").number;
    const at::Tensor gamma = vector("norm_weight", "cols");
    if (!centered_)
      return [x = x_, gamma, eps, y = y_, cols = dim(c_, "cols")]() mutable {
        y.copy_(at::rms_norm(x, {cols}, gamma, eps));
      };
    return [x = x_, gamma, beta = vector("norm_bias", "cols"), rows = dim(c_, "rows"),
            cols = dim(c_, "cols"), eps, y = y_, mean = mean_, rstd = rstd_]() mutable {
      at::native::LayerNormKernel(at::kCPU, x, gamma, beta, rows, cols, eps, &y, &mean, &rstd);
    };
  }

  const IsobitPeerCase& c_;
  bool centered_;
  at::Tensor x_ = at::from_blob(array(c_, "x"), {dim(c_, "rows"), dim(c_, "cols")},
                                at::TensorOptions(scalar_type_named(c_.dtype)));
  at::Tensor y_, mean_ = at::empty({dim(c_, "rows")}, x_.options()),
                 rstd_ = at::empty({dim(c_, "rows")}, x_.options());
};

at::Tensor heads(const IsobitPeerCase& c, const char* name, const char* heads, const char* seq,
                 const char* elements) {
  return at::from_blob(array(c, name),
                       {dim(c, "batch"), dim(c, heads), dim(c, seq), dim(c, elements)},
                       at::TensorOptions(scalar_type_named(c.dtype)));
}

// As users have it; results are PyTorch's own memory, as there is no form with an output.
Call attention(const IsobitPeerCase& c, std::string_view pass) {
  for (const char* name : {"bias", "mask", "grad_lse"})
    if (find(c, name) != nullptr) throw Declined("no " + std::string(name) + " here");
  const std::string causal = option(c, "causal").text;
  if (causal == "bottom_right") throw Declined("no causal bottom_right here");
  const at::Tensor q = heads(c, "q", "heads", "seq_q", "head_dim"),
                   k = heads(c, "k", "kv_heads", "seq_k", "head_dim"),
                   v = heads(c, "v", "kv_heads", "seq_k", "value_dim");
  const bool is_causal = causal != "no", grouped = dim(c, "heads") != dim(c, "kv_heads");
  if (pass == "fwd")
    return [=, y = at::Tensor()]() mutable {
      y = at::scaled_dot_product_attention(q, k, v, {}, 0.0, is_causal, {}, grouped);
    };
  if (grouped) throw Declined("no gradients of groups of heads here");
  const auto [y, lse] = at::_scaled_dot_product_flash_attention_for_cpu(q, k, v, 0.0, is_causal);
  return [q, k, v, y = y, lse = lse, grad = heads(c, "grad_y", "heads", "seq_q", "value_dim"),
          is_causal, found = std::tuple<at::Tensor, at::Tensor, at::Tensor>()]() mutable {
    found = at::_scaled_dot_product_flash_attention_for_cpu_backward(grad, q, k, v, y, lse, 0.0,
                                                                     is_causal);
  };
}

// Numbers of a convolution's windows, of both dimensions where there are two.
std::vector<std::int64_t> of_windows(const IsobitPeerCase& c, const std::string& name) {
  const auto number = [&](const std::string& each) {
    return static_cast<std::int64_t>(option(c, each).number);
  };
  if (std::string_view(c.op) == "conv1d") return {number(name)};
  return {number(name + "_h"), number(name + "_w")};
}

Call convolution(const IsobitPeerCase& c, bool forward) {
  for (const char* name : {"residual", "pre"})
    if (find(c, name) != nullptr) throw Declined("no " + std::string(name) + " here");
  if (std::string_view(c.y_dtype) != c.dtype) throw Declined("y must have the dtype of x");
  for (const std::int64_t extra : of_windows(c, "extra_padding"))
    if (extra != 0) throw Declined("no padding that is not symmetric here");
  const bool one = std::string_view(c.op) == "conv1d";
  const auto tensor = [&](const char* name, const char* first, const char* second,
                          std::initializer_list<const char*> others) {
    std::vector<std::int64_t> sizes = {dim(c, first), dim(c, second)};
    for (const char* other : others) sizes.push_back(dim(c, other));
    return at::from_blob(array(c, name), sizes, at::TensorOptions(scalar_type_named(c.dtype)));
  };
  const auto of_x = [&](const char* name) {
    return one ? tensor(name, "batch", "channels", {"length"})
               : tensor(name, "batch", "channels", {"height", "width"});
  };
  const auto of_weight = [&](const char* name) {
    return one ? tensor(name, "filters", "group_channels", {"kernel"})
               : tensor(name, "filters", "group_channels", {"kernel_h", "kernel_w"});
  };
  const auto of_y = [&](const char* name) {
    return one ? tensor(name, "batch", "filters", {"out_length"})
               : tensor(name, "batch", "filters", {"out_height", "out_width"});
  };
  const auto of_bias = [&](const char* name) -> at::Tensor {
    if (find(c, name) == nullptr) return {};
    return at::from_blob(array(c, name), {dim(c, "filters")},
                         at::TensorOptions(scalar_type_named(c.weight_dtype)));
  };
  const auto stride = of_windows(c, "stride"), padding = of_windows(c, "padding"),
             dilation = of_windows(c, "dilation");
  const std::vector<std::int64_t> none(stride.size(), 0);
  const auto groups = static_cast<std::int64_t>(option(c, "groups").number);
  const at::Tensor x = of_x("x"), weight = of_weight("weight");
  if (forward)
    return [=, bias = of_bias("bias"), y = of_y("y")]() mutable {
      y = at::convolution(x, weight, bias, stride, padding, dilation, false, none, groups);
    };
  return [=, grad = of_y("grad_y"), grad_x = at::Tensor(), grad_weight = at::Tensor(),
          grad_bias = of_bias("grad_bias")]() mutable {
    const bool bias = grad_bias.defined();
    const std::vector<std::int64_t> filters = {grad.size(1)};
    std::tie(grad_x, grad_weight, grad_bias) = at::convolution_backward(
        grad, x, weight, bias ? at::OptionalIntArrayRef(filters) : std::nullopt, stride, padding,
        dilation, false, none, groups, {true, true, bias});
  };
}

}  // namespace
}  // namespace isobit::peers
