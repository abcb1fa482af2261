// SPDX-License-Identifier: Apache-2.0
// Group norms and batch norms of PyTorch's tensors (batch, channels, ...) by the C ABI, to which
// all further dimensions are one. Results have the channels last in memory where x has.
#include "isobit/torch/channel_norm.h"

#include "isobit/torch/call.h"
#include "isobit/torch/images.h"
#include "isobit/torch/stack.h"

namespace isobit::torch {
namespace {

// What (batch, channels, ...) is with all further dimensions as one, if that has even steps.
struct Extent {
  std::int64_t size = 1, step = 1;
  bool is_even = true;

  explicit Extent(const Tensor& tensor) {
    const Shape shape = tensor.shape(), strides = tensor.strides();
    for (std::size_t i = shape.size(); i-- > 2; size *= shape[i]) {
      if (shape[i] == 1) continue;
      if (size == 1) step = strides[i];
      is_even = is_even && strides[i] == step * size;
    }
  }
};

// A tensor as (batch, channels, extent), where it lies or, where steps are not even, copied.
class Images {
 public:
  explicit Images(const Tensor& tensor, Access access = Access::read) {
    if (!tensor) return;
    given_ = true;
    if (!Extent(tensor).is_even) copy_ = copied(tensor, tensor.dtype());
    const Tensor& lying = copy_ ? copy_ : tensor;
    const Extent extent(lying);
    const std::int64_t sizes[] = {lying.shape()[0], lying.shape()[1], extent.size};
    const std::int64_t strides[] = {lying.strides()[0], lying.strides()[1], extent.step};
    view_ = strided(lying, sizes, strides, access);
  }
  const isobit_tensor* get() const { return given_ ? &view_ : nullptr; }

 private:
  Tensor copy_;
  isobit_tensor view_{};
  bool given_ = false;
};

// What both passes of both operators hold their arrays to: x, its shape and its channels.
class Channels {
 public:
  Channels(const char* op, const Tensor& x) : op_(op), x_(x) {
    require_dtype(op, "x", x.dtype(), kFloats);
    require(x.rank() >= 2, op, ": x has ", std::int64_t{x.rank()},
            " dimensions; must have at least 2");
  }

  // The type of PyTorch's that is computed in.
  std::int32_t real() const {
    return isobit_dtype(x_.dtype()) == ISOBIT_F64 ? x_.dtype() : aoti_torch_dtype_float32();
  }
  void like_x(const char* name, const Tensor& tensor) const {
    require_one_device(op_, name, tensor, "x", x_.device());
    require(same(tensor.shape(), x_.shape()), op_, ": ", name, " has shape ", tensor.shape(),
            "; x has shape ", x_.shape());
    const std::int32_t allowed[] = {isobit_dtype(x_.dtype())};
    require_dtype(op_, name, tensor.dtype(), allowed);
  }
  // A number of each channel, of x's type or float32.
  Argument weights(const char* name, const Tensor& tensor) const {
    if (!tensor) return {};
    of_channels(name, tensor);
    require_dtype_beside(op_, name, tensor.dtype(), x_.dtype());
    return {tensor, kAllDims};
  }
  // The same of the type that is computed in.
  Argument statistics(const char* name, const Tensor& tensor) const {
    if (!tensor) return {};
    of_channels(name, tensor);
    const std::int32_t allowed[] = {isobit_dtype(real())};
    require_dtype(op_, name, tensor.dtype(), allowed);
    return {tensor, kAllDims};
  }

  // What forward gave of the rows that it summed.
  Given moments(const Tensor& tensor) const {
    if (tensor) require_one_device(op_, "moments", tensor, "x", x_.device());
    return Given(tensor);
  }

  // Of x's shape and order in memory; without elements where it is not wanted.
  Tensor new_like_x(bool wanted) const {
    if (!wanted) return nothing(x_.dtype());
    const Shape shape = x_.shape();
    return images_like(x_, lies_with_channels_last(x_), {shape.begin(), shape.end()}, x_.dtype());
  }
  Tensor new_of_channels(bool wanted, std::int32_t dtype) const {
    return wanted ? new_output(x_, x_.shape().subspan(1, 1), dtype) : nothing(dtype);
  }
  Tensor new_moments(std::int64_t groups) const {
    const std::int64_t shape[] = {x_.shape()[0], groups, kMoments};
    return new_output(x_, shape, real());
  }
  Tensor new_moments_of_channels(bool wanted) const {
    const std::int64_t shape[] = {x_.shape()[1], kMoments};
    return wanted ? new_output(x_, shape, real()) : nothing(real());
  }

 private:
  static constexpr std::int64_t kMoments = 3;  // of each row

  void of_channels(const char* name, const Tensor& tensor) const {
    require_one_device(op_, name, tensor, "x", x_.device());
    require(same(tensor.shape(), x_.shape().subspan(1, 1)), op_, ": ", name, " has shape ",
            tensor.shape(), "; x has shape ", x_.shape());
  }
  Tensor nothing(std::int32_t dtype) const {
    static constexpr std::int64_t kNothing[] = {0};
    return new_output(x_, kNothing, dtype);
  }

  const char* op_;
  const Tensor& x_;
};

// The gradients of x, weight and bias, of which a call wants some.
struct Wanted {
  bool x, weight, bias;
  explicit Wanted(Stack& given) : x(given.flag()), weight(given.flag()), bias(given.flag()) {}
};

// Runs a backward pass whose other arguments are set, and lays its results on the stack.
template <class Args>
void differentiate(StableIValue* stack, const Channels& channels, const Wanted& wanted,
                   const Tensor& grad_y, const Tensor& x, const Tensor& weight,
                   const Tensor& moments, Args& args,
                   isobit_status (*call)(const Args*, const isobit_context*)) {
  const std::int32_t dtype = weight ? weight.dtype() : channels.real();
  Tensor grad_x = channels.new_like_x(wanted.x);
  Tensor grad_weight = channels.new_of_channels(wanted.weight, dtype);
  Tensor grad_bias = channels.new_of_channels(wanted.bias, dtype);
  const Tensor absent;
  const Images of_x(x), of_grad_y(grad_y), to_x(wanted.x ? grad_x : absent, Access::write);
  const Argument weights = channels.weights("weight", weight);
  const Given of_moments = channels.moments(moments);
  Argument to_weight, to_bias;
  if (wanted.weight) to_weight = Argument(grad_weight, kAllDims, Access::write);
  if (wanted.bias) to_bias = Argument(grad_bias, kAllDims, Access::write);
  args.x = of_x.get();
  args.grad_y = of_grad_y.get();
  args.weight = weights.get();
  args.moments = of_moments.get();
  args.grad_x = to_x.get();
  args.grad_weight = to_weight.get();
  args.grad_bias = to_bias.get();
  const Lent lent(x);
  check(call(&args, lent.context()));
  put(stack, grad_x, grad_weight, grad_bias);
}

// To C 0 is the default, and a mistake here.
std::int64_t groups_of(const char* op, Stack& given) {
  const std::int64_t groups = given.integer();
  require(groups != 0, op, ": groups is 0; must be at least 1");
  return groups;
}

}  // namespace

void group_norm(StableIValue* stack, std::uint64_t, std::uint64_t) {
  constexpr const char* kName = "group_norm";
  Stack given(stack);
  const Tensor x = given.tensor(), weight = given.optional_tensor(), bias = given.optional_tensor();
  auto args = empty_args<isobit_group_norm_forward_args>();
  args.groups = groups_of(kName, given);
  args.eps = given.number();
  const Channels channels(kName, x);
  const Argument weights = channels.weights("weight", weight),
                 biases = channels.weights("bias", bias);
  Tensor y = channels.new_like_x(true), moments = channels.new_moments(args.groups);
  const Images of_x(x), of_y(y, Access::write);
  const Given to_moments(moments, Access::write);
  args.x = of_x.get();
  args.weight = weights.get();
  args.bias = biases.get();
  args.y = of_y.get();
  args.moments = to_moments.get();
  const Lent lent(x);
  check(isobit_group_norm_forward(&args, lent.context()));
  put(stack, y, moments);
}

void group_norm_backward(StableIValue* stack, std::uint64_t, std::uint64_t) {
  constexpr const char* kName = "group_norm_backward";
  Stack given(stack);
  const Tensor grad_y = given.tensor(), x = given.tensor(), weight = given.optional_tensor();
  const Tensor moments = given.optional_tensor();
  auto args = empty_args<isobit_group_norm_backward_args>();
  args.groups = groups_of(kName, given);
  args.eps = given.number();
  const Wanted wanted(given);
  const Channels channels(kName, x);
  channels.like_x("grad_y", grad_y);
  differentiate(stack, channels, wanted, grad_y, x, weight, moments, args,
                isobit_group_norm_backward);
}

void batch_norm(StableIValue* stack, std::uint64_t, std::uint64_t) {
  constexpr const char* kName = "batch_norm";
  Stack given(stack);
  const Tensor x = given.tensor(), weight = given.optional_tensor(), bias = given.optional_tensor();
  const Tensor mean = given.optional_tensor(), var = given.optional_tensor();
  auto args = empty_args<isobit_batch_norm_forward_args>();
  args.training = given.flag();
  args.momentum = given.number();
  args.eps = given.number();
  const Channels channels(kName, x);
  const Argument weights = channels.weights("weight", weight),
                 biases = channels.weights("bias", bias),
                 means = channels.statistics("running_mean", mean),
                 vars = channels.statistics("running_var", var);
  const bool moves_mean = args.training && mean, moves_var = args.training && var;
  Tensor y = channels.new_like_x(true);
  Tensor next_mean = channels.new_of_channels(moves_mean, channels.real());
  Tensor next_var = channels.new_of_channels(moves_var, channels.real());
  Tensor moments = channels.new_moments_of_channels(args.training);
  const Images of_x(x), of_y(y, Access::write);
  const Tensor absent;
  const Given to_moments(args.training ? moments : absent, Access::write);
  Argument to_mean, to_var;
  if (moves_mean) to_mean = Argument(next_mean, kAllDims, Access::write);
  if (moves_var) to_var = Argument(next_var, kAllDims, Access::write);
  args.x = of_x.get();
  args.weight = weights.get();
  args.bias = biases.get();
  args.running_mean = means.get();
  args.running_var = vars.get();
  args.y = of_y.get();
  args.next_mean = to_mean.get();
  args.next_var = to_var.get();
  args.moments = to_moments.get();
  const Lent lent(x);
  check(isobit_batch_norm_forward(&args, lent.context()));
  put(stack, y, next_mean, next_var, moments);
}

void batch_norm_backward(StableIValue* stack, std::uint64_t, std::uint64_t) {
  constexpr const char* kName = "batch_norm_backward";
  Stack given(stack);
  const Tensor grad_y = given.tensor(), x = given.tensor(), weight = given.optional_tensor();
  const Tensor mean = given.optional_tensor(), var = given.optional_tensor(),
               moments = given.optional_tensor();
  auto args = empty_args<isobit_batch_norm_backward_args>();
  args.training = given.flag();
  args.eps = given.number();
  const Wanted wanted(given);
  const Channels channels(kName, x);
  channels.like_x("grad_y", grad_y);
  const Argument means = channels.statistics("running_mean", mean),
                 vars = channels.statistics("running_var", var);
  args.running_mean = args.training ? nullptr : means.get();
  args.running_var = args.training ? nullptr : vars.get();
  differentiate(stack, channels, wanted, grad_y, x, weight, moments, args,
                isobit_batch_norm_backward);
}

}  // namespace isobit::torch
