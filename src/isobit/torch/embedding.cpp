// SPDX-License-Identifier: Apache-2.0
// Rows of a table of PyTorch's by the C ABI, and the gradient of the table.
#include "isobit/torch/embedding.h"

#include <vector>

#include "isobit/torch/call.h"
#include "isobit/torch/stack.h"

namespace isobit::torch {
namespace {

constexpr std::int32_t kIndices[] = {ISOBIT_I64, ISOBIT_I32};

void require_index(const char* op, const Tensor& index, const char* first, Device device) {
  require_one_device(op, "index", index, first, device);
  require_dtype(op, "index", index.dtype(), kIndices);
}

// The index with the dimensions that it has, for messages, where it need not be copied.
class Indices {
 public:
  explicit Indices(const Tensor& index) : flat_(index, kAllDims) {
    const Shape shape = index.shape(), strides = index.strides();
    const auto dense = dense_strides(shape);
    if (!shape.empty() && shape.size() <= ISOBIT_MAX_RANK &&
        same(strides, Shape(dense).first(shape.size())))
      own_ = strided(index);
  }
  const isobit_tensor* get() const { return own_.rank == 0 ? flat_.get() : &own_; }

 private:
  Argument flat_;
  isobit_tensor own_{};
};

}  // namespace

// padding_idx and scale_grad_by_freq are the gradient's.
void embedding(StableIValue* stack, std::uint64_t, std::uint64_t) {
  Stack values(stack);
  const Tensor weight = values.tensor(), index = values.tensor();
  require_dtype("embedding", "weight", weight.dtype(), kFloats);
  require(weight.rank() == 2, "embedding: weight has shape ", weight.shape(),
          "; must have two dimensions, of tokens and of columns");
  require_index("embedding", index, "weight", weight.device());
  std::vector<std::int64_t> shape(index.shape().begin(), index.shape().end());
  shape.push_back(weight.shape()[1]);
  Tensor y = new_output(weight, shape, weight.dtype());
  const Argument table(weight, 1), out(y, 1, Access::write);
  const Indices indices(index);
  auto args = empty_args<isobit_embedding_forward_args>();
  args.weight = table.get();
  args.index = indices.get();
  args.y = out.get();
  const Lent lent(weight);
  check(isobit_embedding_forward(&args, lent.context()));
  put(stack, y);
}

void embedding_backward(StableIValue* stack, std::uint64_t, std::uint64_t) {
  constexpr const char* kName = "embedding_backward";
  Stack values(stack);
  const Tensor grad_y = values.tensor(), index = values.tensor();
  const std::int64_t tokens = values.integer();
  auto args = empty_args<isobit_embedding_backward_args>();
  args.padding_idx = values.integer();
  args.scale_grad_by_freq = values.flag();
  require_dtype(kName, "grad_y", grad_y.dtype(), kFloats);
  require_index(kName, index, "grad_y", grad_y.device());
  const Shape given = grad_y.shape();
  require(!given.empty() && same(given.first(given.size() - 1), index.shape()), kName,
          ": grad_y has shape ", given, "; index has shape ", index.shape());
  require(tokens >= 0, kName, ": tokens is ", tokens, "; must not be negative");
  const std::int64_t shape[] = {tokens, given.back()};
  Tensor grad_weight = new_output(grad_y, shape, grad_y.dtype());
  const Argument gradient(grad_y, 1), out(grad_weight, 1, Access::write);
  const Indices indices(index);
  args.grad_y = gradient.get();
  args.index = indices.get();
  args.grad_weight = out.get();
  const Lent lent(grad_y);
  check(isobit_embedding_backward(&args, lent.context()));
  put(stack, grad_weight);
}

}  // namespace isobit::torch
