// SPDX-License-Identifier: Apache-2.0
// Pooling of PyTorch's tensors by the C ABI, of any strides. Results have the channels last in
// memory where what they are made of has.
#include "isobit/torch/pooling.h"

#include "isobit/torch/call.h"
#include "isobit/torch/images.h"
#include "isobit/torch/stack.h"

namespace isobit::torch {
namespace {

// What follows the tensors of every call, in the order of the schema. A window of 0: bins.
struct Windows {
  const char* op;
  Sizes window, bins, stride, padding, dilation;
  bool ceil_mode;

  Windows(const char* name, Stack& given)
      : op(name),
        window(given.integers()),
        bins(given.integers()),
        stride(given.integers()),
        padding(given.integers()),
        dilation(given.integers()),
        ceil_mode(given.flag()) {
    for (const auto& [list, values] : {std::pair<const char*, const Sizes&>("kernel", window),
                                       {"bins", bins},
                                       {"stride", stride},
                                       {"padding", padding},
                                       {"dilation", dilation}})
      require(values.size() == 2, op, ": ", list, " has ", std::ssize(values),
              " numbers; must have 2");
    // To C 0 is the default of these, and a mistake here.
    for (std::size_t i = 0; i < 2; ++i) {
      require(dilation[i] != 0, op, ": dilation is 0; must be at least 1");
      require(window[i] == 0 || stride[i] != 0, op, ": stride is 0; must be at least 1");
      require(window[i] != 0 || bins[i] != 0, op, ": output_size is 0; must be at least 1");
    }
  }

  template <class Args>
  Args args(std::int32_t reduction) const {
    auto args = empty_args<Args>();
    args.reduction = reduction;
    args.window_h = window[0];
    args.window_w = window[1];
    args.bins_h = bins[0];
    args.bins_w = bins[1];
    args.stride_h = stride[0];
    args.stride_w = stride[1];
    args.padding_h = padding[0];
    args.padding_w = padding[1];
    args.dilation_h = dilation[0];
    args.dilation_w = dilation[1];
    args.ceil_mode = ceil_mode;
    return args;
  }

  // At least 0: what leaves nothing, or is out of range, the call tells.
  std::int64_t results(std::int64_t extent, std::size_t side) const {
    constexpr std::int64_t kMost = (std::int64_t{1} << 31) - 1;
    if (window[side] == 0) return bins[side] < 0 ? 0 : bins[side];
    const std::int64_t limits[] = {extent, window[side], stride[side], padding[side],
                                   dilation[side]};
    for (const std::int64_t number : limits)
      if (number < 0 || number > kMost) return 0;
    const std::int64_t more = ceil_mode ? stride[side] - 1 : 0;
    const std::int64_t room =
        extent + 2 * padding[side] - dilation[side] * (window[side] - 1) - 1 + more;
    if (room < 0) return 0;
    const std::int64_t count = room / stride[side] + 1;
    const bool late = ceil_mode && (count - 1) * stride[side] >= extent + padding[side];
    return late ? count - 1 : count;
  }
  Sizes results_of(const Tensor& x) const {
    const Shape shape = x.shape();
    return {shape[0], shape[1], results(shape[2], 0), results(shape[3], 1)};
  }
};

void require_images(const char* op, const char* name, const Tensor& tensor) {
  require_dtype(op, name, tensor.dtype(), kFloats);
  require(tensor.rank() == 4, op, ": ", name, " has ", std::int64_t{tensor.rank()},
          " dimensions; must have 4");
}

// The shape of x, of whose last two extents a gradient is told.
Sizes shape_of_x(const char* op, const Tensor& grad, const Sizes& size) {
  require(size.size() == 2, op, ": size has ", std::ssize(size), " numbers; must have 2");
  for (const std::int64_t extent : size)
    require(extent >= 0, op, ": size is ", extent, "; must be at least 0");
  return {grad.shape()[0], grad.shape()[1], size[0], size[1]};
}

enum Reduction { kMax, kAverage };

// Of a mean, what follows the windows.
template <class Args>
void take_divisor(Stack& given, Args& args) {
  args.count_include_pad = given.flag();
  args.divisor = given.integer();
}

}  // namespace

void max_pool(StableIValue* stack, std::uint64_t, std::uint64_t) {
  constexpr const char* kName = "max_pool";
  Stack given(stack);
  const Tensor x = given.tensor();
  const Windows windows(kName, given);
  const bool finds = given.flag();
  require_images(kName, "x", x);
  const Sizes sizes = windows.results_of(x);
  const bool last = has_channels_last(x);
  Tensor y = images_like(x, last, sizes, x.dtype());
  Tensor index = images_like(x, last && finds, finds ? sizes : Sizes{0}, aoti_torch_dtype_int64());
  const Given of_x(x), of_y(y, Access::write), of_index(index, Access::write);
  auto args = windows.args<isobit_pool2d_forward_args>(kMax);
  args.x = of_x.get();
  args.y = of_y.get();
  args.index = finds ? of_index.get() : nullptr;
  const Lent lent(x);
  check(isobit_pool2d_forward(&args, lent.context()));
  put(stack, y, index);
}

void max_pool_backward(StableIValue* stack, std::uint64_t, std::uint64_t) {
  constexpr const char* kName = "max_pool_backward";
  Stack given(stack);
  const Tensor grad = given.tensor(), index = given.tensor();
  const Sizes size = given.integers();
  const Windows windows(kName, given);
  require_images(kName, "grad_y", grad);
  require_views(kName, {{"grad_y", grad}, {"index", index}});
  require(index.dtype() == aoti_torch_dtype_int64(), kName, ": index has dtype ",
          dtype_name(index.dtype()), "; must be torch.int64");
  const Sizes sizes = shape_of_x(kName, grad, size);
  Tensor x =
      images_like(grad, has_channels_last(grad) || has_channels_last(index), sizes, grad.dtype());
  const Given of_grad(grad), of_index(index), of_x(x, Access::write);
  auto args = windows.args<isobit_pool2d_backward_args>(kMax);
  args.grad_y = of_grad.get();
  args.index = of_index.get();
  args.grad_x = of_x.get();
  const Lent lent(grad);
  check(isobit_pool2d_backward(&args, lent.context()));
  put(stack, x);
}

void average_pool(StableIValue* stack, std::uint64_t, std::uint64_t) {
  constexpr const char* kName = "average_pool";
  Stack given(stack);
  const Tensor x = given.tensor();
  const Windows windows(kName, given);
  auto args = windows.args<isobit_pool2d_forward_args>(kAverage);
  take_divisor(given, args);
  require_images(kName, "x", x);
  Tensor y = images_like(x, has_channels_last(x), windows.results_of(x), x.dtype());
  const Given of_x(x), of_y(y, Access::write);
  args.x = of_x.get();
  args.y = of_y.get();
  const Lent lent(x);
  check(isobit_pool2d_forward(&args, lent.context()));
  put(stack, y);
}

void average_pool_backward(StableIValue* stack, std::uint64_t, std::uint64_t) {
  constexpr const char* kName = "average_pool_backward";
  Stack given(stack);
  const Tensor grad = given.tensor();
  const Sizes size = given.integers();
  const Windows windows(kName, given);
  auto args = windows.args<isobit_pool2d_backward_args>(kAverage);
  take_divisor(given, args);
  require_images(kName, "grad_y", grad);
  Tensor x =
      images_like(grad, has_channels_last(grad), shape_of_x(kName, grad, size), grad.dtype());
  const Given of_grad(grad), of_x(x, Access::write);
  args.grad_y = of_grad.get();
  args.grad_x = of_x.get();
  const Lent lent(grad);
  check(isobit_pool2d_backward(&args, lent.context()));
  put(stack, x);
}

}  // namespace isobit::torch
