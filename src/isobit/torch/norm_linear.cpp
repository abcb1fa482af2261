// SPDX-License-Identifier: Apache-2.0
// A norm and the linear layer that it feeds, of PyTorch's tensors, by the C ABI.
#include "isobit/torch/norm_linear.h"

#include <vector>

#include "isobit/torch/call.h"
#include "isobit/torch/stack.h"

namespace isobit::torch {
namespace {

struct LayerNormLinear {
  static constexpr const char *kName = "layer_norm_linear",
                              *kBackwardName = "layer_norm_linear_backward";
  static constexpr bool kHasBias = true;
  using Forward = isobit_layernorm_linear_forward_args;
  using Backward = isobit_layernorm_linear_backward_args;
  static constexpr auto* kForward = isobit_layernorm_linear_forward;
  static constexpr auto* kBackward = isobit_layernorm_linear_backward;
};

struct RmsNormLinear {
  static constexpr const char *kName = "rms_norm_linear",
                              *kBackwardName = "rms_norm_linear_backward";
  static constexpr bool kHasBias = false;
  using Forward = isobit_rmsnorm_linear_forward_args;
  using Backward = isobit_rmsnorm_linear_backward_args;
  static constexpr auto* kForward = isobit_rmsnorm_linear_forward;
  static constexpr auto* kBackward = isobit_rmsnorm_linear_backward;
};

// What the linear layer's arrays are held to.
struct Layer {
  const Call& call;
  const Tensor& weight;

  Layer(const Call& of, const Tensor& matrix) : call(of), weight(matrix) {
    require_one_device(call.op, "weight", weight, "input", call.device);
    require_dtype(call.op, "weight", weight.dtype(), kFloats);
    require(weight.rank() == 2 && weight.shape()[1] == call.shape.back(), call.op,
            ": weight has shape ", weight.shape(), "; must be (out_features, ", call.shape.back(),
            "), since input has shape ", call.shape);
  }

  std::int64_t features() const { return weight.shape()[0]; }
  std::vector<std::int64_t> shape() const {
    std::vector<std::int64_t> result(call.shape.begin(), call.shape.end());
    result.back() = features();
    return result;
  }
  // One element for each feature.
  Argument per_feature(const char* name, const Tensor& tensor) const {
    if (tensor) {
      const std::int64_t expected[] = {features()};
      require_one_device(call.op, name, tensor, "input", call.device);
      require(same(tensor.shape(), expected), call.op, ": ", name, " has shape ", tensor.shape(),
              "; must be ", Shape(expected), ", since weight has shape ", weight.shape());
      require_dtype(call.op, name, tensor.dtype(), kFloats);
    }
    return {tensor, kAllDims};
  }
  // Rows like those of the result.
  Argument rows(const char* name, const Tensor& tensor) const {
    if (tensor) {
      const std::vector<std::int64_t> expected = shape();
      require_one_device(call.op, name, tensor, "input", call.device);
      require(same(tensor.shape(), expected), call.op, ": ", name, " has shape ", tensor.shape(),
              "; must be ", Shape(expected));
      require_dtype(call.op, name, tensor.dtype(), kFloats);
    }
    return {tensor, 1};
  }
};

template <class Norm, bool kKeepsPre>
void forward(StableIValue* stack) {
  Stack given(stack);
  const Tensor input = given.tensor(), norm_weight = given.optional_tensor();
  const Tensor norm_bias = Norm::kHasBias ? given.optional_tensor() : Tensor();
  const Tensor weight = given.tensor(), bias = given.optional_tensor(),
               residual = given.optional_tensor();
  auto args = empty_args<typename Norm::Forward>();
  args.eps = given.number();
  args.zero_centered = given.flag();
  args.activation = static_cast<std::int32_t>(given.integer());
  args.arithmetic = static_cast<std::int32_t>(given.integer());
  const Call call(Norm::kName, input, 1);
  const Layer layer(call, weight);
  const Argument x = call.rows("input", input), gamma = call.columns("norm_weight", norm_weight),
                 beta = call.columns("norm_bias", norm_bias),
                 biases = layer.per_feature("bias", bias),
                 residuals = layer.rows("residual", residual);
  const isobit_tensor matrix = strided(weight);
  Tensor z = new_output(input, layer.shape(), weight.dtype());
  Tensor pre = kKeepsPre ? new_output(input, layer.shape(), weight.dtype()) : Tensor();
  const Argument of_z(z, 1, Access::write), of_pre(pre, 1, Access::write);
  args.x = x.get();
  args.norm_weight = gamma.get();
  if constexpr (Norm::kHasBias) args.norm_bias = beta.get();
  args.weight = &matrix;
  args.bias = biases.get();
  args.residual = residuals.get();
  args.z = of_z.get();
  args.pre = of_pre.get();
  const Lent lent(input);
  check(Norm::kForward(&args, lent.context()));
  StableIValue* results = put(stack, z);
  if constexpr (kKeepsPre) put(results, pre);
}

// Gradients that are not wanted are tensors without elements.
template <class Norm>
void backward(StableIValue* stack) {
  Stack given(stack);
  const Tensor grad_z = given.tensor(), input = given.tensor(),
               norm_weight = given.optional_tensor();
  const Tensor norm_bias = Norm::kHasBias ? given.optional_tensor() : Tensor();
  const Tensor weight = given.tensor(), pre = given.optional_tensor();
  auto args = empty_args<typename Norm::Backward>();
  args.eps = given.number();
  args.zero_centered = given.flag();
  args.activation = static_cast<std::int32_t>(given.integer());
  const bool needs_input = given.flag(), needs_norm_weight = given.flag();
  const bool needs_norm_bias = Norm::kHasBias && given.flag();
  const bool needs_weight = given.flag();
  constexpr std::int32_t kNone = -1;
  const std::int32_t bias_dtype = given.optional_dtype(kNone);
  args.arithmetic = static_cast<std::int32_t>(given.integer());
  const Call call(Norm::kBackwardName, input, 1);
  const Layer layer(call, weight);
  const Argument x = call.rows("input", input), gamma = call.columns("norm_weight", norm_weight),
                 beta = call.columns("norm_bias", norm_bias),
                 gradient = layer.rows("grad_z", grad_z), pres = layer.rows("pre", pre);
  const isobit_tensor matrix = strided(weight);
  const bool needs_bias = bias_dtype != kNone;
  const std::int64_t features[] = {layer.features()}, none[] = {0};
  const std::int32_t norm_dtype = norm_weight ? norm_weight.dtype()
                                  : norm_bias ? norm_bias.dtype()
                                              : input.dtype();
  Output grad_input = Output::rows(call, needs_input, input.dtype());
  Output grad_gamma = Output::columns(call, needs_norm_weight, norm_dtype);
  Output grad_beta = Output::columns(call, needs_norm_bias, norm_dtype);
  Tensor grad_weight =
      new_output(input, needs_weight ? weight.shape() : Shape(none), weight.dtype());
  Tensor grad_bias = new_output(input, Shape(needs_bias ? features : none),
                                needs_bias ? bias_dtype : weight.dtype());
  const Argument to_weight = needs_weight ? Argument(grad_weight, 1, Access::write) : Argument();
  const Argument to_bias = needs_bias ? Argument(grad_bias, kAllDims, Access::write) : Argument();
  args.grad_z = gradient.get();
  args.x = x.get();
  args.norm_weight = gamma.get();
  if constexpr (Norm::kHasBias) args.norm_bias = beta.get();
  args.weight = &matrix;
  args.pre = pres.get();
  args.grad_x = grad_input.argument.get();
  args.grad_norm_weight = grad_gamma.argument.get();
  if constexpr (Norm::kHasBias) args.grad_norm_bias = grad_beta.argument.get();
  args.grad_weight = to_weight.get();
  args.grad_bias = to_bias.get();
  const Lent lent(input);
  check(Norm::kBackward(&args, lent.context()));
  StableIValue* results = put(stack, grad_input.tensor, grad_gamma.tensor);
  if constexpr (Norm::kHasBias) results = put(results, grad_beta.tensor);
  put(results, grad_weight, grad_bias);
}

}  // namespace

void layer_norm_linear(StableIValue* stack, std::uint64_t, std::uint64_t) {
  forward<LayerNormLinear, false>(stack);
}
void rms_norm_linear(StableIValue* stack, std::uint64_t, std::uint64_t) {
  forward<RmsNormLinear, false>(stack);
}
void activated_layer_norm_linear(StableIValue* stack, std::uint64_t, std::uint64_t) {
  forward<LayerNormLinear, true>(stack);
}
void activated_rms_norm_linear(StableIValue* stack, std::uint64_t, std::uint64_t) {
  forward<RmsNormLinear, true>(stack);
}
void layer_norm_linear_backward(StableIValue* stack, std::uint64_t, std::uint64_t) {
  backward<LayerNormLinear>(stack);
}
void rms_norm_linear_backward(StableIValue* stack, std::uint64_t, std::uint64_t) {
  backward<RmsNormLinear>(stack);
}

}  // namespace isobit::torch
