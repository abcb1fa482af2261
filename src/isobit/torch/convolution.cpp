// SPDX-License-Identifier: Apache-2.0
// Convolutions of PyTorch's tensors by the C ABI, of any strides. Results have the channels last in
// memory where what they are made of has.
#include "isobit/torch/convolution.h"

#include <vector>

#include "isobit/torch/call.h"
#include "isobit/torch/images.h"
#include "isobit/torch/stack.h"

namespace isobit::torch {
namespace {

constexpr int kMostDims = 2;  // beside the batch and channels

int dims_of(const char* op, const char* name, const Tensor& tensor) {
  const int dims = tensor.rank() - 2;
  require(dims == 1 || dims == kMostDims, op, ": ", name, " has ", std::int64_t{tensor.rank()},
          " dimensions; must have 3 or 4");
  return dims;
}

void require_rank(const char* op, const char* name, const Tensor& tensor, const char* first,
                  const Tensor& of) {
  require(tensor.rank() == of.rank(), op, ": ", name, " has ", std::int64_t{tensor.rank()},
          " dimensions; ", first, " has ", std::int64_t{of.rank()});
}

// One element that stands for all of a tensor of which nothing but its shape counts.
class Unread {
 public:
  Unread(const Tensor& like, const Sizes& sizes)
      : element_(empty_like(like, Sizes{1}, like.dtype())),
        tensor_(strided(element_, sizes, Sizes(sizes.size(), 0))) {}
  const isobit_tensor* get() const { return &tensor_; }

 private:
  Tensor element_;
  isobit_tensor tensor_;
};

// What follows the tensors of every call, in the order of the schema.
struct Windows {
  Sizes stride, padding, extra, dilation;
  std::int64_t groups;

  Windows(const char* op, int dims, Stack& given)
      : stride(given.integers()),
        padding(given.integers()),
        extra(given.integers()),
        dilation(given.integers()),
        groups(given.integer()) {
    for (const auto& [name, values] : {std::pair<const char*, const Sizes&>("stride", stride),
                                       {"padding", padding},
                                       {"extra_padding", extra},
                                       {"dilation", dilation}})
      require(std::ssize(values) == dims, op, ": ", name, " has ", std::ssize(values),
              " numbers; must have ", std::int64_t{dims});
    // To C 0 is the default, and a mistake here.
    for (const auto& [name, values] :
         {std::pair<const char*, const Sizes&>("stride", stride), {"dilation", dilation}})
      for (const std::int64_t value : values)
        require(value > 0, op, ": ", name, " is ", value, "; must be at least 1");
    require(groups > 0, op, ": groups is ", groups, "; must be at least 1");
  }

  void put(isobit_conv1d_args& args) const { put_one(args); }
  void put(isobit_conv1d_backward_args& args) const { put_one(args); }
  void put(isobit_conv2d_args& args) const { put_two(args); }
  void put(isobit_conv2d_backward_args& args) const { put_two(args); }

 private:
  template <class Args>
  void put_one(Args& args) const {
    args.stride = stride[0];
    args.padding = padding[0];
    args.extra_padding = extra[0];
    args.dilation = dilation[0];
    args.groups = groups;
  }
  template <class Args>
  void put_two(Args& args) const {
    args.stride_h = stride[0];
    args.stride_w = stride[1];
    args.padding_h = padding[0];
    args.padding_w = padding[1];
    args.extra_padding_h = extra[0];
    args.extra_padding_w = extra[1];
    args.dilation_h = dilation[0];
    args.dilation_w = dilation[1];
    args.groups = groups;
  }
};

isobit_status call(const isobit_conv1d_args& args, const isobit_context* context) {
  return isobit_conv1d(&args, context);
}
isobit_status call(const isobit_conv2d_args& args, const isobit_context* context) {
  return isobit_conv2d(&args, context);
}
isobit_status call(const isobit_conv1d_backward_args& args, const isobit_context* context) {
  return isobit_conv1d_backward(&args, context);
}
isobit_status call(const isobit_conv2d_backward_args& args, const isobit_context* context) {
  return isobit_conv2d_backward(&args, context);
}

template <class Args>
void run(const Tensor& on, const Windows& windows, const auto& fill) {
  auto args = empty_args<Args>();
  windows.put(args);
  fill(args);
  const Lent lent(on);
  check(call(args, lent.context()));
}
template <class One, class Two>
void run(int dims, const Tensor& on, const Windows& windows, const auto& fill) {
  if (dims == 1)
    run<One>(on, windows, fill);
  else
    run<Two>(on, windows, fill);
}

Tensor result_of(const Tensor& a, const Tensor& b, const Sizes& sizes) {
  return images_like(a, has_channels_last(a) || has_channels_last(b), sizes, a.dtype());
}

// At least 0: what leaves nothing, the call tells.
std::int64_t results(std::int64_t extent, std::int64_t taps, const Windows& windows,
                     std::size_t dim) {
  const std::int64_t room = extent + 2 * windows.padding[dim] + windows.extra[dim] -
                            windows.dilation[dim] * (taps - 1) - 1;
  return room < 0 ? 0 : room / windows.stride[dim] + 1;
}

}  // namespace

void convolution(StableIValue* stack, std::uint64_t, std::uint64_t) {
  constexpr const char* kName = "convolution";
  Stack given(stack);
  const Tensor x = given.tensor(), weight = given.tensor(), bias = given.optional_tensor();
  require_dtype(kName, "x", x.dtype(), kFloats);
  const int dims = dims_of(kName, "x", x);
  require_views(kName, {{"x", x}, {"weight", weight}, {"bias", bias}});
  require_rank(kName, "weight", weight, "x", x);
  const Windows windows(kName, dims, given);
  Sizes sizes = {x.shape()[0], weight.shape()[0]};
  for (int i = 0; i < dims; ++i)
    sizes.push_back(
        results(x.shape()[i + 2], weight.shape()[i + 2], windows, static_cast<std::size_t>(i)));
  Tensor y = result_of(x, weight, sizes);
  const Given of_x(x), of_weight(weight), of_bias(bias), of_y(y, Access::write);
  run<isobit_conv1d_args, isobit_conv2d_args>(dims, x, windows, [&](auto& args) {
    args.x = of_x.get();
    args.weight = of_weight.get();
    args.bias = of_bias.get();
    args.y = of_y.get();
  });
  put(stack, y);
}

void convolution_input(StableIValue* stack, std::uint64_t, std::uint64_t) {
  constexpr const char* kName = "convolution_input";
  Stack given(stack);
  const Tensor grad = given.tensor(), weight = given.tensor();
  const Sizes inner = given.integers();
  require_dtype(kName, "grad_y", grad.dtype(), kFloats);
  const int dims = dims_of(kName, "grad_y", grad);
  require_views(kName, {{"grad_y", grad}, {"weight", weight}});
  require_rank(kName, "weight", weight, "grad_y", grad);
  require(std::ssize(inner) == dims, kName, ": size has ", std::ssize(inner),
          " numbers; must have ", std::int64_t{dims});
  for (const std::int64_t size : inner)
    require(size >= 0, kName, ": size is ", size, "; must be at least 0");
  const Windows windows(kName, dims, given);
  Sizes sizes = {grad.shape()[0], weight.shape()[1] * windows.groups};
  sizes.insert(sizes.end(), inner.begin(), inner.end());
  Tensor x = result_of(grad, weight, sizes);
  const Unread shape(grad, sizes);
  const Given of_grad(grad), of_weight(weight), of_x(x, Access::write);
  run<isobit_conv1d_backward_args, isobit_conv2d_backward_args>(dims, grad, windows,
                                                                [&](auto& args) {
                                                                  args.grad_y = of_grad.get();
                                                                  args.x = shape.get();
                                                                  args.weight = of_weight.get();
                                                                  args.grad_x = of_x.get();
                                                                });
  put(stack, x);
}

void convolution_weight(StableIValue* stack, std::uint64_t, std::uint64_t) {
  constexpr const char* kName = "convolution_weight";
  Stack given(stack);
  const Tensor grad = given.tensor(), x = given.tensor();
  const Sizes kernel = given.integers();
  require_dtype(kName, "grad_y", grad.dtype(), kFloats);
  const int dims = dims_of(kName, "grad_y", grad);
  require_views(kName, {{"grad_y", grad}, {"x", x}});
  require_rank(kName, "x", x, "grad_y", grad);
  require(std::ssize(kernel) == dims, kName, ": kernel has ", std::ssize(kernel),
          " numbers; must have ", std::int64_t{dims});
  for (const std::int64_t taps : kernel)
    require(taps >= 1, kName, ": kernel is ", taps, "; must be at least 1");
  const Windows windows(kName, dims, given);
  Sizes sizes = {grad.shape()[1], x.shape()[1] / windows.groups};
  sizes.insert(sizes.end(), kernel.begin(), kernel.end());
  Tensor weight = result_of(x, grad, sizes);
  const Unread shape(grad, sizes);
  const Given of_grad(grad), of_x(x), of_weight(weight, Access::write);
  run<isobit_conv1d_backward_args, isobit_conv2d_backward_args>(
      dims, grad, windows, [&](auto& args) {
        args.grad_y = of_grad.get();
        args.x = of_x.get();
        args.weight = shape.get();
        args.grad_weight = of_weight.get();
      });
  put(stack, weight);
}

// All three at once; that of a bias is a tensor without elements where it has no dtype.
void convolution_backward(StableIValue* stack, std::uint64_t, std::uint64_t) {
  constexpr const char* kName = "convolution_backward";
  Stack given(stack);
  const Tensor grad = given.tensor(), x = given.tensor(), weight = given.tensor();
  constexpr std::int32_t kNone = -1;
  const std::int32_t dtype = given.optional_dtype(kNone);
  require_dtype(kName, "grad_y", grad.dtype(), kFloats);
  const int dims = dims_of(kName, "grad_y", grad);
  require_views(kName, {{"grad_y", grad}, {"x", x}, {"weight", weight}});
  require_rank(kName, "x", x, "grad_y", grad);
  require_rank(kName, "weight", weight, "grad_y", grad);
  const Windows windows(kName, dims, given);
  const auto like = [](const Tensor& tensor) {
    const Shape shape = tensor.shape();
    return Sizes(shape.begin(), shape.end());
  };
  const bool has_bias = dtype != kNone;
  Tensor grad_x = result_of(grad, weight, like(x)), grad_weight = result_of(x, grad, like(weight));
  Tensor grad_bias =
      new_output(grad, Sizes{has_bias ? grad.shape()[1] : 0}, has_bias ? dtype : grad.dtype());
  const Given of_grad(grad), of_x(x), of_weight(weight), to_x(grad_x, Access::write),
      to_weight(grad_weight, Access::write), to_bias(grad_bias, Access::write);
  run<isobit_conv1d_backward_args, isobit_conv2d_backward_args>(
      dims, grad, windows, [&](auto& args) {
        args.grad_y = of_grad.get();
        args.x = of_x.get();
        args.weight = of_weight.get();
        args.grad_x = to_x.get();
        args.grad_weight = to_weight.get();
        args.grad_bias = has_bias ? to_bias.get() : nullptr;
      });
  put(stack, grad_x, grad_weight, grad_bias);
}

// The sum over all but the channels: windows of one element, which are as many as there are.
void convolution_bias(StableIValue* stack, std::uint64_t, std::uint64_t) {
  constexpr const char* kName = "convolution_bias";
  Stack given(stack);
  const Tensor grad = given.tensor();
  const std::int32_t dtype = given.optional_dtype(grad.dtype());
  require_dtype(kName, "grad_y", grad.dtype(), kFloats);
  const int dims = dims_of(kName, "grad_y", grad);
  const Shape shape = grad.shape();
  const std::int64_t filters = shape[1];
  Tensor bias = new_output(grad, Sizes{filters}, dtype);
  Sizes sizes(shape.begin(), shape.end()), taps(sizes.size(), 1);
  sizes[1] = taps[1] = 1;
  taps[0] = filters;
  const Unread x(grad, sizes), weight(grad, taps);
  const Given of_grad(grad), of_bias(bias, Access::write);
  const auto fill = [&](auto& args) {
    args.grad_y = of_grad.get();
    args.x = x.get();
    args.weight = weight.get();
    args.grad_bias = of_bias.get();
  };
  const Lent lent(grad);
  if (dims == 1) {
    auto args = empty_args<isobit_conv1d_backward_args>();
    fill(args);
    check(call(args, lent.context()));
  } else {
    auto args = empty_args<isobit_conv2d_backward_args>();
    fill(args);
    check(call(args, lent.context()));
  }
  put(stack, bias);
}

}  // namespace isobit::torch
