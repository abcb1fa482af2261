// SPDX-License-Identifier: Apache-2.0
// Calls the C ABI with PyTorch's tensors: shapes are checked and outputs made here, the rest there.
#include "isobit/torch/operators.h"

#include <cstring>
#include <string_view>

#include "isobit/torch/call.h"
#include "isobit/torch/norms.h"
#include "isobit/torch/stack.h"

namespace isobit::torch {
namespace {

// What forward and backward are told alike. A seed is an integer in the processor's memory, so that
// it can be a value of a graph.
struct Dropout {
  double probability;
  std::uint64_t seed = 0;

  Dropout(const char* op, Stack& given) : probability(given.number()) {
    const Tensor tensor = given.optional_tensor();
    require(probability == 0 || tensor, op, ": dropout of ", probability, " needs a seed");
    if (!tensor) return;
    require(tensor.dtype() == aoti_torch_dtype_int64() && tensor.shape().empty() &&
                tensor.device().type == aoti_torch_device_type_cpu(),
            op, ": seed must be one int64 in the processor's memory");
    std::memcpy(&seed, tensor.input(), sizeof seed);
  }
};

// kAdds: dropout(input) + residual is what is normalised, and a second result.
template <class Norm, bool kAdds>
void forward(StableIValue* stack, std::uint64_t, std::uint64_t) {
  Stack given(stack);
  const Tensor input = given.tensor();
  const Tensor weight = given.optional_tensor();
  const Tensor bias = Norm::kHasBias ? given.optional_tensor() : Tensor();
  auto args = empty_args<typename Norm::Forward>();
  args.eps = given.number();
  const Call call(Norm::kName, input, given.integer());
  args.zero_centred = given.flag();
  const std::int32_t dtype = input.dtype();
  const std::int32_t out_dtype = given.optional_dtype(dtype);
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
  const Call call(Norm::kName, input, given.integer());
  args.zero_centred = given.flag();
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
  const Argument other(residual, x.shape().empty() ? kAllDims : 1);
  auto args = empty_args<isobit_elementwise_add_args>();
  args.residual = other.get();
  elementwise(stack, x, args, isobit_elementwise_add);
}

void increment(StableIValue* stack, std::uint64_t, std::uint64_t) {
  const Tensor x = Stack(stack).tensor();
  auto args = empty_args<isobit_elementwise_increment_args>();
  elementwise(stack, x, args, isobit_elementwise_increment);
}

struct Operator {
  std::string_view name, signature;
  Kernel kernel;
};

// What has its default need not be given: reading a number from Python costs PyTorch 0.1 us.
#define OPTIONS "float eps, int hidden_dims=1, bool zero_centered=False, "
#define ADDED ", Tensor? residual=None, float dropout=0.0, Tensor? seed=None"
#define ADDED_BACKWARD \
  ", Tensor? grad_sum=None, float dropout=0.0, Tensor? seed=None, bool needs_residual=False"

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
};

#undef OPTIONS
#undef ADDED
#undef ADDED_BACKWARD

constexpr std::string_view kPrefixes[] = {"", "_"};

}  // namespace

void define_operators(Registration& definitions) {
  for (const auto& [name, signature, kernel] : kOperators)
    for (std::string_view prefix : kPrefixes) definitions.define(joined(prefix, name, signature));
}

void implement_operators(Registration& implementations) {
  for (const auto& [name, signature, kernel] : kOperators)
    for (std::string_view prefix : kPrefixes)
      implementations.implement(joined(prefix, name).c_str(), kernel);
}

}  // namespace isobit::torch
