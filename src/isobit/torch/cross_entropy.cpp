// SPDX-License-Identifier: Apache-2.0
// Cross entropy of PyTorch's tensors by the C ABI, of classes along the last dimension, and its
// gradient.
#include "isobit/torch/cross_entropy.h"

#include <vector>

#include "isobit/torch/call.h"
#include "isobit/torch/stack.h"

namespace isobit::torch {
namespace {

constexpr std::int32_t kIndices[] = {ISOBIT_I64};

// What both passes take: logits, targets and weights.
class Logits {
 public:
  Logits(const char* name, Tensor logits, Tensor targets, Tensor weights)
      : x(std::move(logits)), target(std::move(targets)), weight(std::move(weights)), op_(name) {
    require_dtype(op_, "x", x.dtype(), kFloats);
    require(!x.shape().empty(), op_, ": x is a number; must have a dimension of classes");
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
  Shape rows() const { return x.shape().first(x.shape().size() - 1); }

  void of_rows(const char* name, const Tensor& tensor, DTypes allowed) const {
    require(same(tensor.shape(), rows()), op_, ": ", name, " has shape ", tensor.shape(),
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

}  // namespace

void cross_entropy(StableIValue* stack, std::uint64_t, std::uint64_t) {
  Stack values(stack);
  Tensor x = values.tensor(), target = values.tensor();
  const Logits given("cross_entropy", std::move(x), std::move(target), values.optional_tensor());
  auto args = empty_args<isobit_cross_entropy_forward_args>();
  take_options(values, args);
  const bool totals = values.flag();
  // Of totals that nobody wants each row has nothing, so that rows know nothing of each other.
  std::vector<std::int64_t> nothing(given.rows().begin(), given.rows().end());
  nothing.push_back(0);
  const Shape one = totals ? Shape() : Shape(nothing);
  const std::int32_t real = given.real();
  Tensor loss = new_output(given.x, given.rows(), real);
  Tensor largest = new_output(given.x, given.rows(), real);
  Tensor sum = new_output(given.x, given.rows(), real);
  Tensor total = new_output(given.x, one, real), count = new_output(given.x, one, real);
  const Argument logits(given.x, 1), targets(given.target, kAllDims),
      weights(given.weight, kAllDims), losses(loss, kAllDims, Access::write),
      most(largest, kAllDims, Access::write), sums(sum, kAllDims, Access::write);
  Argument totalled, counted;
  if (totals) {
    totalled = Argument(total, kAllDims, Access::write);
    counted = Argument(count, kAllDims, Access::write);
  }
  args.x = logits.get();
  args.target = targets.get();
  args.weight = weights.get();
  args.loss = losses.get();
  args.largest = most.get();
  args.sum = sums.get();
  args.total = totalled.get();
  args.count = counted.get();
  const Lent lent(given.x);
  check(isobit_cross_entropy_forward(&args, lent.context()));
  put(stack, loss, largest, sum, total, count);
}

void cross_entropy_backward(StableIValue* stack, std::uint64_t, std::uint64_t) {
  Stack values(stack);
  const Tensor grad_loss = values.tensor();
  Tensor x = values.tensor(), target = values.tensor();
  const Logits given("cross_entropy_backward", std::move(x), std::move(target),
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

}  // namespace isobit::torch
