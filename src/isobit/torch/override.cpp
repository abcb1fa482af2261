// SPDX-License-Identifier: Apache-2.0
// Stands in for aten::native_layer_norm and its gradient, which F.layer_norm, nn.LayerNorm and
// callers from C++ come down to. PyTorch's own return when the registration ends.
#include "isobit/torch/override.h"

#include <mutex>
#include <optional>

#include "isobit/torch/call.h"
#include "isobit/torch/registration.h"
#include "isobit/torch/stack.h"

namespace isobit::torch {
namespace {

// mean and rstd: a value a row, with ones for the dimensions that were normalised.
Tensor new_statistic(const Call& call, std::int32_t dtype) {
  std::array<std::int64_t, kMaxRank> shape;
  shape.fill(1);
  std::copy(call.shape.begin(), call.shape.end() - call.hidden_dims, shape.begin());
  return empty_like(call.input, Shape(shape).first(call.shape.size()), dtype);
}

std::int32_t statistic_dtype(const Tensor& input) {
  const std::int32_t f64 = aoti_torch_dtype_float64();
  return input.dtype() == f64 ? f64 : aoti_torch_dtype_float32();
}

Tensor as_statistic(Tensor given, std::int32_t dtype) {
  return given.dtype() == dtype ? std::move(given) : copied(given, dtype);
}

Call call_of(const Tensor& input, const std::vector<std::int64_t>& normalized_shape) {
  const Call call("layer_norm", input, std::ssize(normalized_shape));
  require(same(normalized_shape, call.hidden()), "layer_norm: normalized_shape is ",
          Shape(normalized_shape), "; input has shape ", call.shape);
  return call;
}

// (Tensor input, SymInt[] normalized_shape, Tensor? weight, Tensor? bias, float eps)
// -> (Tensor, Tensor, Tensor)
void forward(StableIValue* stack, std::uint64_t, std::uint64_t) {
  Stack given(stack);
  const Tensor input = given.tensor();
  const Call call = call_of(input, given.integers());
  const Tensor weight = given.optional_tensor(), bias = given.optional_tensor();
  auto args = empty_args<isobit_layernorm_forward_args>();
  args.eps = given.number();

  const Argument x = call.rows("input", input), weights = call.columns("weight", weight),
                 biases = call.columns("bias", bias);
  Output y = Output::rows(call, true, input.dtype());
  Tensor mean = new_statistic(call, statistic_dtype(input));
  Tensor rstd = new_statistic(call, statistic_dtype(input));
  const Argument means(mean, kAllDims, Access::write), rstds(rstd, kAllDims, Access::write);
  args.x = x.get();
  args.weight = weights.get();
  args.bias = biases.get();
  args.y = y.argument.get();
  args.mean = means.get();
  args.rstd = rstds.get();
  const Lent lent(input);
  check(isobit_layernorm_forward(&args, lent.context()));
  put(stack, y.tensor, mean, rstd);
}

// (Tensor grad_out, Tensor input, SymInt[] normalized_shape, Tensor mean, Tensor rstd,
// Tensor? weight, Tensor? bias, bool[3] output_mask) -> (Tensor, Tensor, Tensor)
void backward(StableIValue* stack, std::uint64_t, std::uint64_t) {
  Stack given(stack);
  const Tensor grad_y = given.tensor(), input = given.tensor();
  const Call call = call_of(input, given.integers());
  // Those of a forward pass before the replacement have the input's dtype.
  const Tensor mean = as_statistic(given.tensor(), statistic_dtype(input));
  const Tensor rstd = as_statistic(given.tensor(), statistic_dtype(input));
  const Tensor weight = given.optional_tensor(), bias = given.optional_tensor();
  const std::vector<bool> needs = given.flags();

  const std::int32_t dtype = input.dtype(), weight_dtype = weight ? weight.dtype() : dtype;
  const Argument x = call.rows("input", input), gradient = call.rows("grad_out", grad_y),
                 weights = call.columns("weight", weight), means(mean, kAllDims),
                 rstds(rstd, kAllDims);
  Output grad_input = Output::rows(call, needs[0], dtype);
  Output grad_weight = Output::columns(call, needs[1], weight_dtype);
  Output grad_bias = Output::columns(call, needs[2], weight_dtype);
  auto args = empty_args<isobit_layernorm_backward_args>();
  args.x = x.get();
  args.grad_y = gradient.get();
  args.weight = weights.get();
  args.mean = means.get();
  args.rstd = rstds.get();
  args.grad_x = grad_input.argument.get();
  args.grad_weight = grad_weight.argument.get();
  args.grad_bias = grad_bias.argument.get();
  const Lent lent(input);
  check(isobit_layernorm_backward(&args, lent.context()));
  put(stack, grad_input.tensor, grad_weight.tensor, grad_bias.tensor);
}

}  // namespace

void set_override(bool on) {
  static std::mutex mutex;
  static std::optional<Registration> registration;
  const std::lock_guard lock(mutex);
  if (on == registration.has_value()) return;
  registration.reset();
  if (!on) return;
  registration = Registration::implementations("aten", "CPU");
  registration->implement("native_layer_norm", forward);
  registration->implement("native_layer_norm_backward", backward);
  if (registration->ok()) return;
  registration.reset();
  throw std::runtime_error("override: PyTorch does not allow replacing aten::native_layer_norm");
}

}  // namespace isobit::torch
