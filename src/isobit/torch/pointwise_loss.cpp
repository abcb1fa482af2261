// SPDX-License-Identifier: Apache-2.0
// Losses of PyTorch's tensors, element by element, by the C ABI.
#include "isobit/torch/pointwise_loss.h"

#include <algorithm>

#include "isobit/torch/call.h"

namespace isobit::torch {
namespace {

// What both passes are given, as rows.
struct Inputs {
  const char* op;
  Tensor x, target, weight, pos_weight;
  std::int32_t kind;
  double beta;
  int hidden;

  Inputs(const char* name, Stack& given)
      : op(name),
        x(given.tensor()),
        target(given.tensor()),
        weight(given.optional_tensor()),
        pos_weight(given.optional_tensor()),
        kind(static_cast<std::int32_t>(given.integer())),
        beta(given.number()),
        hidden(std::min(x.rank(), 1)) {  // a number is a row of one
    require_dtype(op, "x", x.dtype(), kFloats);
    like_x("target", target);
    like_x("weight", weight);
    like_x("pos_weight", pos_weight);
  }

  std::int32_t real() const {
    return x.dtype() == aoti_torch_dtype_float64() ? x.dtype() : aoti_torch_dtype_float32();
  }
  void require_shape(const char* name, const Tensor& tensor) const {
    require_one_device(op, name, tensor, "x", x.device());
    require(same(tensor.shape(), x.shape()), op, ": ", name, " has shape ", tensor.shape(),
            "; x has shape ", x.shape());
  }

  template <class Args, class Run>
  void call(const Run& run) const {
    const Argument rows(x, hidden), targets(target, hidden), weights(weight, hidden),
        pos_weights(pos_weight, hidden);
    auto args = empty_args<Args>();
    args.x = rows.get();
    args.target = targets.get();
    args.weight = weights.get();
    args.pos_weight = pos_weights.get();
    args.function = kind;
    args.beta = beta;
    const Lent lent(x);
    check(run(args, lent.context()));
  }

 private:
  void like_x(const char* name, const Tensor& tensor) const {
    if (!tensor) return;
    require_shape(name, tensor);
    require(tensor.dtype() == x.dtype(), op, ": ", name, " has dtype ", dtype_name(tensor.dtype()),
            "; x has dtype ", dtype_name(x.dtype()));
  }
};

}  // namespace

void pointwise_loss(StableIValue* stack, std::uint64_t, std::uint64_t) {
  Stack given(stack);
  const Inputs inputs("pointwise_loss", given);
  Tensor loss = new_output(inputs.x, inputs.x.shape(), inputs.real());
  const Argument to(loss, inputs.hidden, Access::write);
  inputs.call<isobit_pointwise_loss_forward_args>([&](auto& args, const auto* context) {
    args.loss = to.get();
    return isobit_pointwise_loss_forward(&args, context);
  });
  put(stack, loss);
}

void pointwise_loss_backward(StableIValue* stack, std::uint64_t, std::uint64_t) {
  constexpr const char* kName = "pointwise_loss_backward";
  Stack given(stack);
  const Tensor grad_loss = given.tensor();
  const Inputs inputs(kName, given);
  inputs.require_shape("grad_loss", grad_loss);
  require(grad_loss.dtype() == inputs.real(), kName, ": grad_loss has dtype ",
          dtype_name(grad_loss.dtype()), "; must be ", dtype_name(inputs.real()));
  Tensor grad_x = new_output(inputs.x, inputs.x.shape(), inputs.x.dtype());
  const Argument from(grad_loss, inputs.hidden), to(grad_x, inputs.hidden, Access::write);
  inputs.call<isobit_pointwise_loss_backward_args>([&](auto& args, const auto* context) {
    args.grad_loss = from.get();
    args.grad_x = to.get();
    return isobit_pointwise_loss_backward(&args, context);
  });
  put(stack, grad_x);
}

}  // namespace isobit::torch
