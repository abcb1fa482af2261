// SPDX-License-Identifier: Apache-2.0
// Cross entropy of PyTorch's tensors by the C ABI, of classes along the last dimension or of what a
// linear layer makes of it, and the gradients of both.
#include "isobit/torch/cross_entropy.h"

#include <utility>
#include <vector>

#include "isobit/torch/call.h"
#include "isobit/torch/stack.h"

namespace isobit::torch {
namespace {

constexpr std::int32_t kIndices[] = {ISOBIT_I64};

// What every call takes: rows x, a target for each, and weights of classes.
class Rows {
 public:
  Rows(const char* name, Tensor rows, Tensor targets, Tensor weights)
      : x(std::move(rows)), target(std::move(targets)), weight(std::move(weights)), op_(name) {
    require_dtype(op_, "x", x.dtype(), kFloats);
    require(!x.shape().empty(), op_, ": x is a number; must have a last dimension");
    of_rows("target", target, kIndices);
    if (weight) {
      require_one_device(op_, "weight", weight, "x", x.device());
      const std::int32_t allowed[] = {isobit_dtype(real())};
      require_dtype(op_, "weight", weight.dtype(), allowed);
    }
  }

  // The type of PyTorch's that is computed in.
  std::int32_t real() const {
    return isobit_dtype(x.dtype()) == ISOBIT_F64 ? x.dtype() : aoti_torch_dtype_float32();
  }
  Shape shape() const { return x.shape().first(x.shape().size() - 1); }

  void of_rows(const char* name, const Tensor& tensor, DTypes allowed) const {
    require(same(tensor.shape(), shape()), op_, ": ", name, " has shape ", tensor.shape(),
            "; x has shape ", x.shape());
    require_one_device(op_, name, tensor, "x", x.device());
    require_dtype(op_, name, tensor.dtype(), allowed);
  }
  void numbers_of_rows(const char* name, const Tensor& tensor) const {
    const std::int32_t allowed[] = {isobit_dtype(real())};
    of_rows(name, tensor, allowed);
  }

  Tensor x, target, weight;

 private:
  const char* op_;
};

template <class Args>
void take_options(Stack& given, Args& args) {
  args.ignore_index = given.integer();
  args.label_smoothing = given.number();
  args.z_loss = given.number();
}

// What forward gives. Of totals that nobody wants each row has nothing, so that rows know nothing
// of each other.
class Losses {
 public:
  Losses(const Rows& rows, bool totals) {
    std::vector<std::int64_t> nothing(rows.shape().begin(), rows.shape().end());
    nothing.push_back(0);
    const Shape one = totals ? Shape() : Shape(nothing);
    const auto make = [&](int i, Shape shape, bool wanted) {
      results_[i] = new_output(rows.x, shape, rows.real());
      if (wanted) arguments_[i] = Argument(results_[i], kAllDims, Access::write);
    };
    for (const int i : {0, 1, 2}) make(i, rows.shape(), true);
    for (const int i : {3, 4}) make(i, one, totals);
  }

  template <class Args>
  void give(Args& args) const {
    args.loss = arguments_[0].get();
    args.largest = arguments_[1].get();
    args.sum = arguments_[2].get();
    args.total = arguments_[3].get();
    args.count = arguments_[4].get();
  }
  void put_on(StableIValue* stack) {
    auto& [loss, largest, sum, total, count] = results_;
    put(stack, loss, largest, sum, total, count);
  }

 private:
  Tensor results_[5];
  Argument arguments_[5];
};

// The layer before the losses.
struct Linear {
  Tensor weight, bias;

  Linear(const char* op, const Tensor& x, Tensor weights, Tensor biases)
      : weight(std::move(weights)), bias(std::move(biases)) {
    require_views(op, {{"x", x}, {"weight", weight}, {"bias", bias}});
    require(weight.rank() == 2, op, ": weight has ", std::int64_t{weight.rank()},
            " dimensions; must have 2");
  }
};

}  // namespace

void cross_entropy(StableIValue* stack, std::uint64_t, std::uint64_t) {
  Stack values(stack);
  Tensor x = values.tensor(), target = values.tensor();
  const Rows given("cross_entropy", std::move(x), std::move(target), values.optional_tensor());
  auto args = empty_args<isobit_cross_entropy_forward_args>();
  take_options(values, args);
  Losses losses(given, values.flag());
  const Argument logits(given.x, 1), targets(given.target, kAllDims),
      weights(given.weight, kAllDims);
  args.x = logits.get();
  args.target = targets.get();
  args.weight = weights.get();
  losses.give(args);
  const Lent lent(given.x);
  check(isobit_cross_entropy_forward(&args, lent.context()));
  losses.put_on(stack);
}

void cross_entropy_backward(StableIValue* stack, std::uint64_t, std::uint64_t) {
  Stack values(stack);
  const Tensor grad_loss = values.tensor();
  Tensor x = values.tensor(), target = values.tensor();
  const Rows given("cross_entropy_backward", std::move(x), std::move(target),
                   values.optional_tensor());
  const Tensor largest = values.tensor(), sum = values.tensor();
  auto args = empty_args<isobit_cross_entropy_backward_args>();
  take_options(values, args);
  given.numbers_of_rows("grad_loss", grad_loss);
  given.numbers_of_rows("largest", largest);
  given.numbers_of_rows("sum", sum);
  Tensor grad_x = new_output(given.x, given.x.shape(), given.x.dtype());
  const Argument gradient(grad_loss, kAllDims), logits(given.x, 1), targets(given.target, kAllDims),
      weights(given.weight, kAllDims), most(largest, kAllDims), sums(sum, kAllDims),
      out(grad_x, 1, Access::write);
  args.grad_loss = gradient.get();
  args.x = logits.get();
  args.target = targets.get();
  args.weight = weights.get();
  args.largest = most.get();
  args.sum = sums.get();
  args.grad_x = out.get();
  const Lent lent(given.x);
  check(isobit_cross_entropy_backward(&args, lent.context()));
  put(stack, grad_x);
}

void linear_cross_entropy(StableIValue* stack, std::uint64_t, std::uint64_t) {
  constexpr const char* kName = "linear_cross_entropy";
  Stack values(stack);
  Tensor x = values.tensor(), weight = values.tensor(), bias = values.optional_tensor();
  Tensor target = values.tensor();
  const Linear linear(kName, x, std::move(weight), std::move(bias));
  const Rows given(kName, std::move(x), std::move(target), values.optional_tensor());
  auto args = empty_args<isobit_linear_cross_entropy_forward_args>();
  take_options(values, args);
  Losses losses(given, values.flag());
  const Argument rows(given.x, 1), weights(linear.weight, 1), biases(linear.bias, kAllDims),
      targets(given.target, kAllDims), of_classes(given.weight, kAllDims);
  args.x = rows.get();
  args.weight = weights.get();
  args.bias = biases.get();
  args.target = targets.get();
  args.class_weight = of_classes.get();
  losses.give(args);
  const Lent lent(given.x);
  check(isobit_linear_cross_entropy_forward(&args, lent.context()));
  losses.put_on(stack);
}

// Gradients that are not wanted are tensors without elements.
void linear_cross_entropy_backward(StableIValue* stack, std::uint64_t, std::uint64_t) {
  constexpr const char* kName = "linear_cross_entropy_backward";
  constexpr std::int32_t kNone = -1;
  Stack values(stack);
  const Tensor grad_loss = values.tensor();
  Tensor x = values.tensor(), weight = values.tensor(), bias = values.optional_tensor();
  Tensor target = values.tensor();
  const Linear linear(kName, x, std::move(weight), std::move(bias));
  const Rows given(kName, std::move(x), std::move(target), values.optional_tensor());
  const Tensor largest = values.tensor(), sum = values.tensor();
  auto args = empty_args<isobit_linear_cross_entropy_backward_args>();
  take_options(values, args);
  const bool needs_x = values.flag(), needs_weight = values.flag();
  const std::int32_t bias_dtype = values.optional_dtype(kNone);
  const bool needs_bias = bias_dtype != kNone;
  given.numbers_of_rows("grad_loss", grad_loss);
  given.numbers_of_rows("largest", largest);
  given.numbers_of_rows("sum", sum);
  const Tensor& weights = linear.weight;
  const std::int64_t none[] = {0};
  Tensor grad_x = new_output(given.x, needs_x ? given.x.shape() : Shape(none), given.x.dtype());
  Tensor grad_weight =
      new_output(weights, needs_weight ? weights.shape() : Shape(none), weights.dtype());
  Tensor grad_bias = new_output(weights, needs_bias ? weights.shape().first(1) : Shape(none),
                                needs_bias ? bias_dtype : weights.dtype());
  const Argument gradient(grad_loss, kAllDims), rows(given.x, 1), of_weight(weights, 1),
      biases(linear.bias, kAllDims), targets(given.target, kAllDims),
      of_classes(given.weight, kAllDims), most(largest, kAllDims), sums(sum, kAllDims),
      to_x(grad_x, 1, Access::write), to_weight(grad_weight, 1, Access::write),
      to_bias(grad_bias, kAllDims, Access::write);
  args.grad_loss = gradient.get();
  args.x = rows.get();
  args.weight = of_weight.get();
  args.bias = biases.get();
  args.target = targets.get();
  args.class_weight = of_classes.get();
  args.largest = most.get();
  args.sum = sums.get();
  args.grad_x = needs_x ? to_x.get() : nullptr;
  args.grad_weight = needs_weight ? to_weight.get() : nullptr;
  args.grad_bias = needs_bias ? to_bias.get() : nullptr;
  const Lent lent(given.x);
  check(isobit_linear_cross_entropy_backward(&args, lent.context()));
  put(stack, grad_x, grad_weight, grad_bias);
}

}  // namespace isobit::torch
