// SPDX-License-Identifier: Apache-2.0
// Products of PyTorch's tensors by the C ABI: matrices of equal batches, of any strides.
#include "isobit/torch/product.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "isobit/torch/call.h"
#include "isobit/torch/stack.h"

namespace isobit::torch {
namespace {

void require_matrices(const char* op, const Tensor& a, const Tensor& b) {
  require_dtype(op, "a", a.dtype(), kFloats);
  require_dtype(op, "b", b.dtype(), kFloats);
  const std::int64_t rank = a.rank(), most = ISOBIT_MAX_RANK;
  require(rank >= 2 && rank <= most && b.rank() == rank, op, ": a has ", rank, " dimensions and b ",
          std::int64_t{b.rank()}, "; must be equal, and 2 to ", most);
}

// A gradient lies as what it is of, where that is dense or transposed: PyTorch keeps a weight's
// gradient only if it lies as the weight, and else copies it.
Tensor gradient_of(const Tensor& matrix) {
  const Shape shape = matrix.shape(), strides = matrix.strides();
  const std::size_t col = shape.size() - 1, row = col - 1;
  std::vector<std::int64_t> turned(shape.begin(), shape.end());
  std::swap(turned[row], turned[col]);
  auto expected = dense_strides(turned);
  std::swap(expected[row], expected[col]);
  bool is_transposed =
      shape[row] > 1 && shape[col] > 1 && std::ranges::find(shape, 0) == shape.end();
  for (std::size_t i = 0; i < shape.size(); ++i)
    is_transposed &= shape[i] == 1 || strides[i] == expected[i];
  if (!is_transposed) return new_output(matrix, shape, matrix.dtype());
  return new_strided_output(matrix, shape, Shape(expected.data(), shape.size()), matrix.dtype());
}

template <bool kKeepsPre>
void multiply(const char* op, StableIValue* stack) {
  Stack given(stack);
  const Tensor a = given.tensor(), b = given.tensor(), bias = given.optional_tensor();
  auto args = empty_args<isobit_matmul_args>();
  args.alpha = 1;
  args.activation = static_cast<std::int32_t>(given.integer());
  const std::int32_t dtype = given.optional_dtype(a.dtype());
  args.arithmetic = static_cast<std::int32_t>(given.integer());
  require_dtype(op, "out_dtype", dtype, kFloats);
  require_matrices(op, a, b);
  require_views(op, {{"a", a}, {"b", b}, {"bias", bias}});
  const Shape sizes = a.shape();
  std::vector<std::int64_t> shape(sizes.begin(), sizes.end());
  shape.back() = b.shape().back();
  Tensor y = new_output(a, shape, dtype);
  Tensor pre = kKeepsPre ? new_output(a, shape, dtype) : Tensor();
  const Given of_a(a), of_b(b), of_bias(bias), of_y(y, Access::write), of_pre(pre, Access::write);
  args.a = of_a.get();
  args.b = of_b.get();
  args.bias = of_bias.get();
  args.y = of_y.get();
  args.pre = of_pre.get();
  const Lent lent(a);
  check(isobit_matmul(&args, lent.context()));
  StableIValue* results = put(stack, y);
  if constexpr (kKeepsPre) put(results, pre);
}

}  // namespace

void matmul(StableIValue* stack, std::uint64_t, std::uint64_t) { multiply<false>("matmul", stack); }
void activated_matmul(StableIValue* stack, std::uint64_t, std::uint64_t) {
  multiply<true>("activated_matmul", stack);
}

// Gradients that are not wanted are tensors without elements.
void matmul_backward(StableIValue* stack, std::uint64_t, std::uint64_t) {
  constexpr const char* kName = "matmul_backward";
  Stack given(stack);
  const Tensor grad_y = given.tensor(), a = given.tensor(), b = given.tensor();
  const Tensor pre = given.optional_tensor();
  auto args = empty_args<isobit_matmul_backward_args>();
  args.alpha = 1;
  args.activation = static_cast<std::int32_t>(given.integer());
  const bool needs_a = given.flag(), needs_b = given.flag();
  constexpr std::int32_t kNone = -1;
  const std::int32_t bias_dtype = given.optional_dtype(kNone);
  args.arithmetic = static_cast<std::int32_t>(given.integer());
  require_matrices(kName, a, b);
  require_views(kName, {{"a", a}, {"b", b}, {"grad_y", grad_y}, {"pre", pre}});
  require_dtype(kName, "grad_y", grad_y.dtype(), kFloats);
  const std::int64_t columns[] = {b.shape().back()}, none[] = {0};
  const auto gradient = [&](const Tensor& of, bool is_needed) {
    return is_needed ? gradient_of(of) : new_output(of, Shape(none), of.dtype());
  };
  Tensor grad_a = gradient(a, needs_a), grad_b = gradient(b, needs_b);
  const bool needs_bias = bias_dtype != kNone;
  Tensor grad_bias =
      new_output(b, Shape(needs_bias ? columns : none), needs_bias ? bias_dtype : b.dtype());
  const Given of_grad(grad_y), of_a(a), of_b(b), of_pre(pre), to_a(grad_a, Access::write),
      to_b(grad_b, Access::write), to_bias(grad_bias, Access::write);
  args.grad_y = of_grad.get();
  args.a = of_a.get();
  args.b = of_b.get();
  args.pre = of_pre.get();
  args.grad_a = needs_a ? to_a.get() : nullptr;
  args.grad_b = needs_b ? to_b.get() : nullptr;
  args.grad_bias = needs_bias ? to_bias.get() : nullptr;
  const Lent lent(a);
  check(isobit_matmul_backward(&args, lent.context()));
  put(stack, grad_a, grad_b, grad_bias);
}

}  // namespace isobit::torch
