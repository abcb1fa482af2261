// SPDX-License-Identifier: Apache-2.0
// Softmax of PyTorch's tensors by the C ABI, along their last dimension, and its gradient.
#include "isobit/torch/softmax.h"

#include "isobit/torch/call.h"
#include "isobit/torch/stack.h"

namespace isobit::torch {
namespace {

constexpr std::int32_t kFlags[] = {ISOBIT_BOOL, ISOBIT_U8};

void require_like(const char* op, const char* name, const Tensor& tensor, DTypes allowed,
                  const char* other, const Tensor& like) {
  if (!tensor) return;
  require(same(tensor.shape(), like.shape()), op, ": ", name, " has shape ", tensor.shape(), "; ",
          other, " has shape ", like.shape());
  require_one_device(op, name, tensor, other, like.device());
  require_dtype(op, name, tensor.dtype(), allowed);
}

// A single number is a row.
std::int64_t hidden_dims(const Tensor& x) { return x.shape().empty() ? kAllDims : 1; }

}  // namespace

void softmax(StableIValue* stack, std::uint64_t, std::uint64_t) {
  constexpr const char* kName = "softmax";
  Stack given(stack);
  const Tensor x = given.tensor(), mask = given.optional_tensor();
  auto args = empty_args<isobit_softmax_forward_args>();
  args.scale = given.number();
  args.log = given.flag();
  const std::int32_t dtype = given.optional_dtype(x.dtype());
  require_dtype(kName, "x", x.dtype(), kFloats);
  require_dtype(kName, "dtype", dtype, kFloats);
  require_like(kName, "mask", mask, kFlags, "x", x);
  Tensor y = new_output(x, x.shape(), dtype);
  const std::int64_t hidden = hidden_dims(x);
  const Argument in(x, hidden), masks(mask, hidden), out(y, hidden, Access::write);
  args.x = in.get();
  args.mask = masks.get();
  args.y = out.get();
  const Lent lent(x);
  check(isobit_softmax_forward(&args, lent.context()));
  put(stack, y);
}

void softmax_backward(StableIValue* stack, std::uint64_t, std::uint64_t) {
  constexpr const char* kName = "softmax_backward";
  Stack given(stack);
  const Tensor grad_y = given.tensor(), y = given.tensor(), mask = given.optional_tensor();
  auto args = empty_args<isobit_softmax_backward_args>();
  args.scale = given.number();
  args.log = given.flag();
  const std::int32_t dtype = given.optional_dtype(y.dtype());
  require_dtype(kName, "y", y.dtype(), kFloats);
  require_dtype(kName, "dtype", dtype, kFloats);
  require_like(kName, "grad_y", grad_y, kFloats, "y", y);
  require_like(kName, "mask", mask, kFlags, "y", y);
  Tensor grad_x = new_output(y, y.shape(), dtype);
  const std::int64_t hidden = hidden_dims(y);
  const Argument result(y, hidden), gradient(grad_y, hidden), masks(mask, hidden),
      out(grad_x, hidden, Access::write);
  args.y = result.get();
  args.grad_y = gradient.get();
  args.mask = masks.get();
  args.grad_x = out.get();
  const Lent lent(y);
  check(isobit_softmax_backward(&args, lent.context()));
  put(stack, grad_x);
}

}  // namespace isobit::torch
