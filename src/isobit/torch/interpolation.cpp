// SPDX-License-Identifier: Apache-2.0
// Interpolation of PyTorch's tensors by the C ABI, of any strides. Results have the channels last
// in memory where what they are made of has.
#include "isobit/torch/interpolation.h"

#include "isobit/torch/call.h"
#include "isobit/torch/images.h"
#include "isobit/torch/stack.h"

namespace isobit::torch {
namespace {

// What follows the tensor and the size of every call, in the order of the schema.
template <class Args>
Args take_rule(Stack& given) {
  auto args = empty_args<Args>();
  args.mode = static_cast<std::int32_t>(given.integer());
  args.align_corners = given.flag();
  args.scale_h = given.number();
  args.scale_w = given.number();
  return args;
}

// An array of the size that is asked for, like another.
Tensor images_of_size(const char* op, const char* name, const Tensor& like, const Sizes& size) {
  require_dtype(op, name, like.dtype(), kFloats);
  require(like.rank() == 4, op, ": ", name, " has ", std::int64_t{like.rank()},
          " dimensions; must have 4");
  require(size.size() == 2, op, ": size has ", std::ssize(size), " numbers; must have 2");
  for (const std::int64_t extent : size)
    require(extent >= 1, op, ": size is ", extent, "; must be at least 1");
  const Shape shape = like.shape();
  return images_like(like, has_channels_last(like), {shape[0], shape[1], size[0], size[1]},
                     like.dtype());
}

}  // namespace

void interpolate(StableIValue* stack, std::uint64_t, std::uint64_t) {
  Stack given(stack);
  const Tensor x = given.tensor();
  const Sizes size = given.integers();
  auto args = take_rule<isobit_interpolate_forward_args>(given);
  Tensor y = images_of_size("interpolate", "x", x, size);
  const Given of_x(x), of_y(y, Access::write);
  args.x = of_x.get();
  args.y = of_y.get();
  const Lent lent(x);
  check(isobit_interpolate_forward(&args, lent.context()));
  put(stack, y);
}

void interpolate_backward(StableIValue* stack, std::uint64_t, std::uint64_t) {
  Stack given(stack);
  const Tensor grad = given.tensor();
  const Sizes size = given.integers();
  auto args = take_rule<isobit_interpolate_backward_args>(given);
  Tensor x = images_of_size("interpolate_backward", "grad_y", grad, size);
  const Given of_grad(grad), of_x(x, Access::write);
  args.grad_y = of_grad.get();
  args.grad_x = of_x.get();
  const Lent lent(grad);
  check(isobit_interpolate_backward(&args, lent.context()));
  put(stack, x);
}

}  // namespace isobit::torch
