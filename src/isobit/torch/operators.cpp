// SPDX-License-Identifier: Apache-2.0
// Calls the C ABI with PyTorch's tensors: shapes are checked and outputs made here, the rest there.
#include "isobit/torch/operators.h"

#include <algorithm>
#include <cstring>
#include <span>
#include <string_view>

#include "isobit/torch/attention.h"
#include "isobit/torch/call.h"
#include "isobit/torch/channel_norm.h"
#include "isobit/torch/convolution.h"
#include "isobit/torch/cross_entropy.h"
#include "isobit/torch/dropout.h"
#include "isobit/torch/embedding.h"
#include "isobit/torch/interpolation.h"
#include "isobit/torch/norm_linear.h"
#include "isobit/torch/norms.h"
#include "isobit/torch/pointwise_loss.h"
#include "isobit/torch/pooling.h"
#include "isobit/torch/product.h"
#include "isobit/torch/random.h"
#include "isobit/torch/reduce.h"
#include "isobit/torch/rotary.h"
#include "isobit/torch/scan.h"
#include "isobit/torch/softmax.h"
#include "isobit/torch/stack.h"
#include "isobit/torch/transpose.h"

namespace isobit::torch {
namespace {

// kAdds: dropout(input) + residual is what is normalised, and a second result.
template <class Norm, bool kAdds>
void forward(StableIValue* stack, std::uint64_t, std::uint64_t) {
  Stack given(stack);
  const Tensor input = given.tensor();
  const Tensor weight = given.optional_tensor();
  const Tensor bias = Norm::kHasBias ? given.optional_tensor() : Tensor();
  auto args = empty_args<typename Norm::Forward>();
  args.eps = given.number();
  const Call call(kAdds ? Norm::kAddsName : Norm::kName, input, given.integer());
  args.zero_centered = given.flag();
  const std::int32_t dtype = input.dtype();
  const std::int32_t out_dtype = given.optional_dtype(dtype);
  if (!among(out_dtype, kFloats))
    require(false, call.op, ": out_dtype is ", dtype_name(out_dtype), "; must be ",
            choice_of(kFloats));
  Tensor residual;
  Output sum;
  if constexpr (kAdds) {
    residual = given.optional_tensor();
    const Dropout dropout(call.op, given);
    args.dropout = dropout.probability;
    args.dropout_seed = dropout.seed;
    if (residual || dropout.probability != 0)
      sum = Output::rows(call, true, dtype);
    else  // nothing is added, and the C ABI writes no copies
      sum.tensor = copied(input, dtype);
  }
  const Argument residuals = call.rows("residual", residual);
  const Argument x = call.rows("input", input), weights = call.columns("weight", weight),
                 biases = call.columns("bias", bias);
  Output y = Output::rows(call, true, out_dtype);

  args.x = x.get();
  args.weight = weights.get();
  if constexpr (Norm::kHasBias) args.bias = biases.get();
  args.residual = residuals.get();
  args.y = y.argument.get();
  args.sum = sum.argument.get();
  const Lent lent(input);
  check(Norm::kForward(&args, lent.context()));
  put(stack, y.tensor);
  if constexpr (kAdds) put(stack + 1, sum.tensor);
}

// Of a bias without a weight beside it: no digit is lost before its own dtype is known.
std::int32_t widened(std::int32_t dtype) {
  return aoti_torch_dtype_element_size(dtype) == 2 ? aoti_torch_dtype_float32() : dtype;
}

// kAdds: input is forward's second result. The gradient of the residual is a result of its own only
// with dropout; without, it equals the first.
template <class Norm, bool kAdds>
void backward(StableIValue* stack, std::uint64_t, std::uint64_t) {
  Stack given(stack);
  const Tensor grad_y = given.tensor(), input = given.tensor();
  const Tensor weight = given.optional_tensor();
  auto args = empty_args<typename Norm::Backward>();
  args.eps = given.number();
  const Call call(kAdds ? Norm::kAddsName : Norm::kName, input, given.integer());
  args.zero_centered = given.flag();
  const bool needs_input = given.flag(), needs_weight = given.flag();
  const bool needs_bias = Norm::kHasBias && given.flag();
  const std::int32_t dtype = input.dtype();
  const std::int32_t weight_dtype = weight ? weight.dtype() : widened(dtype);
  Tensor grad_sum;
  Output grad_residual;
  if constexpr (kAdds) {
    grad_sum = given.optional_tensor();
    const Dropout dropout(call.op, given);
    args.dropout = dropout.probability;
    args.dropout_seed = dropout.seed;
    grad_residual = Output::rows(call, given.flag(), dtype);
  }
  const Argument x = call.rows("input", input), gradient = call.rows("grad_y", grad_y),
                 sums = call.rows("grad_sum", grad_sum), weights = call.columns("weight", weight);
  Output grad_input = Output::rows(call, needs_input, dtype);
  Output grad_weight = Output::columns(call, needs_weight, weight_dtype);
  Output grad_bias;
  if constexpr (Norm::kHasBias) grad_bias = Output::columns(call, needs_bias, weight_dtype);

  args.x = x.get();
  args.grad_y = gradient.get();
  args.weight = weights.get();
  args.grad_sum = sums.get();
  args.grad_x = grad_input.argument.get();
  args.grad_residual = grad_residual.argument.get();
  args.grad_weight = grad_weight.argument.get();
  if constexpr (Norm::kHasBias) args.grad_bias = grad_bias.argument.get();
  const Lent lent(input);
  check(Norm::kBackward(&args, lent.context()));
  StableIValue* results = put(stack, grad_input.tensor, grad_weight.tensor);
  if constexpr (Norm::kHasBias) results = put(results, grad_bias.tensor);
  if constexpr (kAdds) put(results, grad_residual.tensor);
}

constexpr std::int32_t kNumbers[] = {ISOBIT_F32, ISOBIT_F16, ISOBIT_BF16, ISOBIT_F64, ISOBIT_I32};

// Of any shape, a single number too; args has all but x and y.
template <class Args>
void elementwise(StableIValue* stack, const Tensor& x, Args& args,
                 isobit_status (*run)(const Args*, const isobit_context*)) {
  const std::int64_t hidden_dims = x.shape().empty() ? kAllDims : 1;
  Tensor y = new_output(x, x.shape(), x.dtype());
  const Argument in(x, hidden_dims), out(y, hidden_dims, Access::write);
  args.x = in.get();
  args.y = out.get();
  const Lent lent(x);
  check(run(&args, lent.context()));
  put(stack, y);
}

void add(StableIValue* stack, std::uint64_t, std::uint64_t) {
  Stack given(stack);
  const Tensor x = given.tensor(), residual = given.tensor();
  require(same(residual.shape(), x.shape()), "add: residual has shape ", residual.shape(),
          "; x has shape ", x.shape());
  require_one_device("add", "residual", residual, "x", x.device());
  require_dtype("add", "x", x.dtype(), kNumbers);
  require_dtype("add", "residual", residual.dtype(), kNumbers);
  const Argument other(residual, x.shape().empty() ? kAllDims : 1);
  auto args = empty_args<isobit_elementwise_add_args>();
  args.residual = other.get();
  elementwise(stack, x, args, isobit_elementwise_add);
}

void increment(StableIValue* stack, std::uint64_t, std::uint64_t) {
  const Tensor x = Stack(stack).tensor();
  require_dtype("increment", "x", x.dtype(), kNumbers);
  auto args = empty_args<isobit_elementwise_increment_args>();
  elementwise(stack, x, args, isobit_elementwise_increment);
}

// As isobit_activation_*_args number them.
constexpr std::int64_t kActivations = 7;

std::int32_t activation_of(const char* op, std::int64_t function) {
  require(0 <= function && function < kActivations, op, ": function is ", function,
          "; allowed: 0 to ", kActivations - 1);
  return static_cast<std::int32_t>(function);
}

void require_like_x(const char* op, const char* name, const Tensor& tensor, const Tensor& x) {
  require(same(tensor.shape(), x.shape()), op, ": ", name, " has shape ", tensor.shape(),
          "; x has shape ", x.shape());
  require_one_device(op, name, tensor, "x", x.device());
  require_dtype(op, name, tensor.dtype(), kFloats);
}

// Of any shape, a single number too. kGated: with a gate behind x.
template <bool kGated>
void activation(StableIValue* stack, std::uint64_t, std::uint64_t) {
  constexpr const char* kName = kGated ? "gated_activation" : "activation";
  Stack given(stack);
  const Tensor x = given.tensor();
  require_dtype(kName, "x", x.dtype(), kFloats);
  const Tensor gate = kGated ? given.tensor() : Tensor();
  if (kGated) require_like_x(kName, "gate", gate, x);
  auto args = empty_args<isobit_activation_forward_args>();
  args.function = activation_of(kName, given.integer());
  const std::int64_t hidden_dims = x.shape().empty() ? kAllDims : 1;
  Tensor y = new_output(x, x.shape(), x.dtype());
  const Argument in(x, hidden_dims), gates(gate, hidden_dims), out(y, hidden_dims, Access::write);
  args.x = in.get();
  args.gate = gates.get();
  args.y = out.get();
  const Lent lent(x);
  check(isobit_activation_forward(&args, lent.context()));
  put(stack, y);
}

template <bool kGated>
void activation_backward(StableIValue* stack, std::uint64_t, std::uint64_t) {
  constexpr const char* kName = kGated ? "gated_activation_backward" : "activation_backward";
  Stack given(stack);
  const Tensor grad_y = given.tensor(), x = given.tensor();
  require_dtype(kName, "x", x.dtype(), kFloats);
  require_like_x(kName, "grad_y", grad_y, x);
  const Tensor gate = kGated ? given.tensor() : Tensor();
  if (kGated) require_like_x(kName, "gate", gate, x);
  auto args = empty_args<isobit_activation_backward_args>();
  args.function = activation_of(kName, given.integer());
  const std::int64_t hidden_dims = x.shape().empty() ? kAllDims : 1;
  Tensor grad_x = new_output(x, x.shape(), x.dtype());
  Tensor grad_gate = kGated ? new_output(x, x.shape(), x.dtype()) : Tensor();
  const Argument in(x, hidden_dims), gradient(grad_y, hidden_dims), gates(gate, hidden_dims),
      out(grad_x, hidden_dims, Access::write), gate_out(grad_gate, hidden_dims, Access::write);
  args.x = in.get();
  args.grad_y = gradient.get();
  args.gate = gates.get();
  args.grad_x = out.get();
  args.grad_gate = gate_out.get();
  const Lent lent(x);
  check(isobit_activation_backward(&args, lent.context()));
  StableIValue* results = put(stack, grad_x);
  if constexpr (kGated) put(results, grad_gate);
}

// What has its default need not be given: reading a number from Python costs PyTorch 0.1 us.
#define OPTIONS "float eps, int hidden_dims=1, bool zero_centered=False, "
#define ADDED ", Tensor? residual=None, float dropout=0.0, Tensor? seed=None"
#define ADDED_BACKWARD \
  ", Tensor? grad_sum=None, float dropout=0.0, Tensor? seed=None, bool needs_residual=False"
#define ROTATION \
  "Tensor cos, Tensor sin, Tensor? positions=None, int style=0, int offset=0, bool backward=False"
#define MULTIPLIED                                                                        \
  "Tensor a, Tensor b, Tensor? bias=None, int activation=0, ScalarType? out_dtype=None, " \
  "int arithmetic=0"
#define LINEAR                                                                               \
  "Tensor weight, Tensor? bias, Tensor? residual, float eps, bool zero_centered=False, int " \
  "activation=0, int arithmetic=0"
#define LINEAR_BACKWARD \
  "Tensor weight, Tensor? pre, float eps, bool zero_centered=False, int activation=0, "
#define WINDOWS "int[] stride, int[] padding, int[] extra_padding, int[] dilation, int groups=1)"
#define ATTENDED "int causal=0, int window=0, float scale=0.0, float softcap=0.0, float dropout=0.0"
#define POOLED \
  "int[] kernel, int[] bins, int[] stride, int[] padding, int[] dilation, bool ceil_mode=False"
#define AVERAGED ", bool count_include_pad=False, int divisor=0"
#define RESAMPLED                                                                             \
  "int[] size, int mode, bool align_corners=False, float scale_h=0.0, float scale_w=0.0) -> " \
  "Tensor"
#define SCANNED "int kind, int dim, bool exclusive=False, bool reverse=False"

constexpr Operator kOperators[] = {
    {"layer_norm",
     "(Tensor input, Tensor? weight, Tensor? bias, " OPTIONS
     "ScalarType? out_dtype=None) -> Tensor",
     forward<LayerNorm, false>},
    {"layer_norm_backward",
     "(Tensor grad_y, Tensor input, Tensor? weight, " OPTIONS
     "bool needs_input=True, bool needs_weight=True, bool needs_bias=True)"
     " -> (Tensor, Tensor, Tensor)",
     backward<LayerNorm, false>},
    {"add_layer_norm",
     "(Tensor input, Tensor? weight, Tensor? bias, " OPTIONS "ScalarType? out_dtype=None" ADDED
     ") -> (Tensor, Tensor)",
     forward<LayerNorm, true>},
    {"add_layer_norm_backward",
     "(Tensor grad_y, Tensor sum, Tensor? weight, " OPTIONS
     "bool needs_input=True, bool needs_weight=True, bool needs_bias=True" ADDED_BACKWARD
     ") -> (Tensor, Tensor, Tensor, Tensor)",
     backward<LayerNorm, true>},
    {"rms_norm", "(Tensor input, Tensor? weight, " OPTIONS "ScalarType? out_dtype=None) -> Tensor",
     forward<RmsNorm, false>},
    {"rms_norm_backward",
     "(Tensor grad_y, Tensor input, Tensor? weight, " OPTIONS
     "bool needs_input=True, bool needs_weight=True) -> (Tensor, Tensor)",
     backward<RmsNorm, false>},
    {"add_rms_norm",
     "(Tensor input, Tensor? weight, " OPTIONS "ScalarType? out_dtype=None" ADDED
     ") -> (Tensor, Tensor)",
     forward<RmsNorm, true>},
    {"add_rms_norm_backward",
     "(Tensor grad_y, Tensor sum, Tensor? weight, " OPTIONS
     "bool needs_input=True, bool needs_weight=True" ADDED_BACKWARD ") -> (Tensor, Tensor, Tensor)",
     backward<RmsNorm, true>},
    {"add", "(Tensor x, Tensor residual) -> Tensor", add},
    {"increment", "(Tensor x) -> Tensor", increment},
    {"activation", "(Tensor x, int function) -> Tensor", activation<false>},
    {"activation_backward", "(Tensor grad_y, Tensor x, int function) -> Tensor",
     activation_backward<false>},
    {"gated_activation", "(Tensor x, Tensor gate, int function) -> Tensor", activation<true>},
    {"gated_activation_backward",
     "(Tensor grad_y, Tensor x, Tensor gate, int function) -> (Tensor, Tensor)",
     activation_backward<true>},
    {"rope", "(Tensor q, Tensor? k, " ROTATION ") -> (Tensor, Tensor)", rope},
    {"rope_", "(Tensor(a!) q, Tensor(b!)? k, " ROTATION ") -> ()", rope_in_place},
    {"rope_tables",
     "(Tensor inv_freq, int length, int offset=0, Tensor? positions=None, ScalarType? dtype=None)"
     " -> (Tensor, Tensor)",
     rope_tables},
    {"dropout", "(Tensor x, Tensor? seed, float p) -> Tensor", dropout},
    {"pointwise_loss",
     "(Tensor x, Tensor target, Tensor? weight, Tensor? pos_weight, int kind, float beta) -> "
     "Tensor",
     pointwise_loss},
    {"pointwise_loss_backward",
     "(Tensor grad_loss, Tensor x, Tensor target, Tensor? weight, Tensor? pos_weight, int kind, "
     "float beta) -> Tensor",
     pointwise_loss_backward},
    {"random_",
     "(Tensor(a!) y, int distribution, float low, float high, float mean, float std, float p, "
     "int seed, int offset) -> ()",
     random_in_place},
    {"scan",
     "(Tensor x, Tensor? init, Tensor? reset, " SCANNED ", ScalarType? dtype=None) -> Tensor",
     scan},
    {"scan_extreme", "(Tensor x, Tensor? init, " SCANNED ") -> (Tensor, Tensor)", scan_extreme},
    {"matmul", "(" MULTIPLIED ") -> Tensor", matmul},
    {"activated_matmul", "(" MULTIPLIED ") -> (Tensor, Tensor)", activated_matmul},
    {"matmul_backward",
     "(Tensor grad_y, Tensor a, Tensor b, Tensor? pre, int activation=0, bool needs_a=True, "
     "bool needs_b=True, ScalarType? bias_dtype=None, int arithmetic=0) -> (Tensor, Tensor, "
     "Tensor)",
     matmul_backward},
    {"layer_norm_linear",
     "(Tensor input, Tensor? norm_weight, Tensor? norm_bias, " LINEAR ") -> Tensor",
     layer_norm_linear},
    {"activated_layer_norm_linear",
     "(Tensor input, Tensor? norm_weight, Tensor? norm_bias, " LINEAR ") -> (Tensor, Tensor)",
     activated_layer_norm_linear},
    {"layer_norm_linear_backward",
     "(Tensor grad_z, Tensor input, Tensor? norm_weight, Tensor? norm_bias, " LINEAR_BACKWARD
     "bool needs_input=True, bool needs_norm_weight=True, bool needs_norm_bias=True, "
     "bool needs_weight=True, ScalarType? bias_dtype=None, int arithmetic=0)"
     " -> (Tensor, Tensor, Tensor, Tensor, Tensor)",
     layer_norm_linear_backward},
    {"rms_norm_linear", "(Tensor input, Tensor? norm_weight, " LINEAR ") -> Tensor",
     rms_norm_linear},
    {"activated_rms_norm_linear",
     "(Tensor input, Tensor? norm_weight, " LINEAR ") -> (Tensor, Tensor)",
     activated_rms_norm_linear},
    {"rms_norm_linear_backward",
     "(Tensor grad_z, Tensor input, Tensor? norm_weight, " LINEAR_BACKWARD
     "bool needs_input=True, bool needs_norm_weight=True, bool needs_weight=True, "
     "ScalarType? bias_dtype=None, int arithmetic=0) -> (Tensor, Tensor, Tensor, Tensor)",
     rms_norm_linear_backward},
    {"convolution", "(Tensor x, Tensor weight, Tensor? bias, " WINDOWS " -> Tensor", convolution},
    {"convolution_input", "(Tensor grad_y, Tensor weight, int[] size, " WINDOWS " -> Tensor",
     convolution_input},
    {"convolution_weight", "(Tensor grad_y, Tensor x, int[] kernel, " WINDOWS " -> Tensor",
     convolution_weight},
    {"convolution_backward",
     "(Tensor grad_y, Tensor x, Tensor weight, ScalarType? bias_dtype, " WINDOWS
     " -> (Tensor, Tensor, Tensor)",
     convolution_backward},
    {"convolution_bias", "(Tensor grad_y, ScalarType? dtype=None) -> Tensor", convolution_bias},
    {"attention",
     "(Tensor q, Tensor k, Tensor v, Tensor? bias=None, Tensor? mask=None, "
     "Tensor? seed=None, " ATTENDED
     ", Tensor? slopes=None, Tensor? key_begin=None, Tensor? key_end=None, "
     "Tensor? query_starts=None, Tensor? key_starts=None, Tensor? blocks=None, int arithmetic=0)"
     " -> (Tensor, Tensor, Tensor, Tensor)",
     attention},
    {"attention_backward",
     "(Tensor grad_y, Tensor? grad_lse, Tensor q, Tensor k, Tensor v, Tensor? bias, Tensor? mask, "
     "Tensor y, Tensor max, Tensor sum, Tensor? seed=None, " ATTENDED
     ", bool needs_q=True, bool needs_k=True, bool needs_v=True, bool needs_bias=False, "
     "Tensor? slopes=None, Tensor? key_begin=None, Tensor? key_end=None, "
     "Tensor? query_starts=None, Tensor? key_starts=None, int arithmetic=0)"
     " -> (Tensor, Tensor, Tensor, Tensor)",
     attention_backward},
    {"max_pool", "(Tensor x, " POOLED ", bool with_index=True) -> (Tensor, Tensor)", max_pool},
    {"max_pool_backward", "(Tensor grad_y, Tensor index, int[] size, " POOLED ") -> Tensor",
     max_pool_backward},
    {"average_pool", "(Tensor x, " POOLED AVERAGED ") -> Tensor", average_pool},
    {"average_pool_backward", "(Tensor grad_y, int[] size, " POOLED AVERAGED ") -> Tensor",
     average_pool_backward},
    {"interpolate", "(Tensor x, " RESAMPLED, interpolate},
    {"interpolate_backward", "(Tensor grad_y, " RESAMPLED, interpolate_backward},
    {"softmax",
     "(Tensor x, Tensor? mask=None, float scale=1.0, bool log=False, ScalarType? dtype=None)"
     " -> Tensor",
     softmax},
    {"softmax_backward",
     "(Tensor grad_y, Tensor y, Tensor? mask=None, float scale=1.0, bool log=False, "
     "ScalarType? dtype=None) -> Tensor",
     softmax_backward},
    {"cross_entropy",
     "(Tensor x, Tensor target, Tensor? weight=None, int ignore_index=-100, "
     "float label_smoothing=0.0, float z_loss=0.0, bool totals=False)"
     " -> (Tensor, Tensor, Tensor, Tensor, Tensor)",
     cross_entropy},
    {"cross_entropy_backward",
     "(Tensor grad_loss, Tensor x, Tensor target, Tensor? weight, Tensor largest, Tensor sum, "
     "int ignore_index=-100, float label_smoothing=0.0, float z_loss=0.0) -> Tensor",
     cross_entropy_backward},
    {"linear_cross_entropy",
     "(Tensor x, Tensor weight, Tensor? bias, Tensor target, Tensor? class_weight=None, "
     "int ignore_index=-100, float label_smoothing=0.0, float z_loss=0.0, bool totals=False)"
     " -> (Tensor, Tensor, Tensor, Tensor, Tensor)",
     linear_cross_entropy},
    {"linear_cross_entropy_backward",
     "(Tensor grad_loss, Tensor x, Tensor weight, Tensor? bias, Tensor target, "
     "Tensor? class_weight, Tensor largest, Tensor sum, int ignore_index=-100, "
     "float label_smoothing=0.0, float z_loss=0.0, bool needs_x=True, bool needs_weight=True, "
     "ScalarType? bias_dtype=None) -> (Tensor, Tensor, Tensor)",
     linear_cross_entropy_backward},
    {"embedding",
     "(Tensor weight, Tensor index, int padding_idx=-1, bool scale_grad_by_freq=False) -> Tensor",
     embedding},
    {"embedding_backward",
     "(Tensor grad_y, Tensor index, int tokens, int padding_idx=-1, "
     "bool scale_grad_by_freq=False) -> Tensor",
     embedding_backward},
    {"transpose", "(Tensor x, int dim0, int dim1, ScalarType? dtype=None) -> Tensor", transpose},
};

#undef OPTIONS
#undef ADDED
#undef ROTATION
#undef ATTENDED
#undef AVERAGED
#undef POOLED
#undef SCANNED
#undef WINDOWS
#undef MULTIPLIED
#undef LINEAR
#undef LINEAR_BACKWARD
#undef ADDED_BACKWARD

constexpr std::string_view kPrefixes[] = {"", "_"};

// Those whose schemas stand beside their calls.
constexpr std::span<const Operator> kAll[] = {
    kOperators,
    kChannelNorms,
    kReductions,
};

}  // namespace

void define_operators(Registration& definitions) {
  for (const std::span<const Operator> some : kAll)
    for (const auto& [name, signature, kernel] : some)
      for (std::string_view prefix : kPrefixes) definitions.define(joined(prefix, name, signature));
}

void implement_operators(Registration& implementations) {
  for (const std::span<const Operator> some : kAll)
    for (const auto& [name, signature, kernel] : some)
      for (std::string_view prefix : kPrefixes)
        implementations.implement(joined(prefix, name).c_str(), kernel);
}

}  // namespace isobit::torch
