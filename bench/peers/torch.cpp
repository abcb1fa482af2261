// SPDX-License-Identifier: Apache-2.0
// PyTorch's eager CPU operators as a peer, writing into memory that lives from call to call.
#include <ATen/Parallel.h>
#include <ATen/native/layer_norm.h>
#include <ATen/ops/add.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/rms_norm.h>
#include <c10/core/InferenceMode.h>
#include <torch/headeronly/version.h>

#include <string>
#include <string_view>

#include "bench/peers/adapter.h"

namespace isobit::peers {
namespace {

at::ScalarType scalar_type_named(std::string_view name) {
  if (name == "f32") return at::kFloat;
  if (name == "f16") return at::kHalf;
  if (name == "bf16") return at::kBFloat16;
  if (name == "f64") return at::kDouble;
  if (name == "i32") return at::kInt;
  throw Declined("no " + std::string(name) + " here");
}

// The case's arrays as tensors.
class Setting {
 public:
  // `normalised` is the array that stands for x.
  explicit Setting(const IsobitPeerCase& c, std::string_view normalised = "x")
      : case_(c),
        normalised_(normalised),
        dtype_(scalar_type_named(c.dtype)),
        weight_dtype_(scalar_type_named(c.weight_dtype)) {}

  void require_layernorm_types() const {
    const bool mixed = weight_dtype_ == at::kFloat && at::isReducedFloatingType(dtype_);
    if (!at::isFloatingType(dtype_) || (weight_dtype_ != dtype_ && !mixed))
      throw Declined(std::string("no x in ") + case_.dtype + " with weights in " +
                     case_.weight_dtype);
  }

  at::Tensor matrix(std::string_view name) const {
    return view(name == "x" ? normalised_ : name, {case_.rows, case_.cols}, dtype_);
  }
  at::Tensor per_col(std::string_view name) const {
    return view(name, {case_.cols}, weight_dtype_);
  }
  at::Tensor per_row(std::string_view name) const {
    return view(name, {case_.rows}, dtype_ == at::kDouble ? at::kDouble : at::kFloat);
  }
  // PyTorch keeps mean and rstd in the weight's dtype: a copy where that is not the case's.
  at::Tensor statistic(std::string_view name) const { return per_row(name).to(weight_dtype_); }

 private:
  at::Tensor view(std::string_view name, at::IntArrayRef sizes, at::ScalarType dtype) const {
    return at::from_blob(array(case_, name), sizes, at::TensorOptions(dtype));
  }

  const IsobitPeerCase& case_;
  std::string_view normalised_;
  at::ScalarType dtype_, weight_dtype_;
};

// These call the kernels below native_layer_norm and native_layer_norm_backward: the public
// functions allocate what they return, and their out= forms copy it from there.
Call layernorm_forward(const Setting& s, const IsobitPeerCase& c) {
  return [x = s.matrix("x"), weight = s.per_col("weight"), bias = s.per_col("bias"), rows = c.rows,
          cols = c.cols, eps = c.eps, y = s.matrix("y"), mean = s.statistic("mean"),
          rstd = s.statistic("rstd")]() mutable {
    at::native::LayerNormKernel(at::kCPU, x, weight, bias, rows, cols, eps, &y, &mean, &rstd);
  };
}

Call layernorm_backward(const Setting& s, const IsobitPeerCase& c) {
  return [grad_y = s.matrix("grad_y"), x = s.matrix("x"), mean = s.statistic("mean"),
          rstd = s.statistic("rstd"), weight = s.per_col("weight"), rows = c.rows, cols = c.cols,
          grad_x = s.matrix("grad_x"), grad_weight = s.per_col("grad_weight"),
          grad_bias = s.per_col("grad_bias")]() mutable {
    at::native::LayerNormBackwardKernel(at::kCPU, grad_y, x, mean, rstd, weight, rows, cols,
                                        &grad_x, &grad_weight, &grad_bias);
  };
}

// A composite of operators that allocate, as users have it; there is no form with an output.
Call rmsnorm_forward(const Setting& s, const IsobitPeerCase& c) {
  return [x = s.matrix("x"), weight = s.per_col("weight"), cols = c.cols, eps = c.eps,
          y = s.matrix("y")]() mutable { y = at::rms_norm(x, {cols}, weight, eps); };
}

// x + residual into sum, of which the norm then makes y.
Call of_sum(const Setting& s, Call norm) {
  return [x = s.matrix("x"), residual = s.matrix("residual"), sum = s.matrix("sum"),
          norm = std::move(norm)]() mutable {
    at::add_out(sum, x, residual);
    norm();
  };
}

// The gradient that flows into sum elsewhere is added to the norm's.
Call with_grad_sum(const Setting& s, Call norm) {
  return [grad_x = s.matrix("grad_x"), grad_sum = s.matrix("grad_sum"),
          norm = std::move(norm)]() mutable {
    norm();
    at::add_out(grad_x, grad_x, grad_sum);
  };
}

Call elementwise(const Setting& s, std::string_view kind) {
  const at::Tensor x = s.matrix("x");
  at::Tensor y = s.matrix("y");
  if (kind == "add")
    return [x, residual = s.matrix("residual"), y]() mutable { at::add_out(y, x, residual); };
  if (kind == "increment")
    return [x, one = at::ones({}, x.options()), y]() mutable { at::add_out(y, x, one); };
  throw Declined("no elementwise " + std::string(kind) + " here");
}

Call choose(const IsobitPeerCase& c) {
  const std::string op = c.op, pass = c.pass;
  const Setting s(c);
  if (op == "layernorm") s.require_layernorm_types();
  const bool sums = find(c, "residual") != nullptr;
  const Setting norm(c, sums ? "sum" : "x");
  if (op == "layernorm" && pass == "fwd")
    return sums ? of_sum(s, layernorm_forward(norm, c)) : layernorm_forward(norm, c);
  if (op == "rmsnorm" && pass == "fwd")
    return sums ? of_sum(s, rmsnorm_forward(norm, c)) : rmsnorm_forward(norm, c);
  if (op == "layernorm" && pass == "bwd")
    return find(c, "grad_sum") != nullptr ? with_grad_sum(s, layernorm_backward(s, c))
                                          : layernorm_backward(s, c);
  if (op == "elementwise" && pass == "fwd") return elementwise(s, c.kind);
  throw Declined("no " + op + ' ' + pass + " here");
}

Call prepare(const IsobitPeerCase& c) {
  const c10::InferenceMode no_autograd;
  // The setting is the whole process's, so that other peers may have changed it between the calls.
  return [run = choose(c), threads = c.threads] {
    const c10::InferenceMode no_autograd;
    if (at::get_num_threads() != threads) at::set_num_threads(threads);
    run();
  };
}

}  // namespace
}  // namespace isobit::peers

extern "C" __attribute__((visibility("default"))) const IsobitPeer* isobit_peer() {
  using namespace isobit::peers;
  static const IsobitPeer peer = adapt<prepare>("torch", TORCH_VERSION);
  return &peer;
}
