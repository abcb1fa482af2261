// SPDX-License-Identifier: Apache-2.0
// Products of PyTorch's tensors by the C ABI: matrices of equal batches, of any strides.
#include "isobit/torch/product.h"

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
  Tensor grad_a = new_output(a, needs_a ? a.shape() : Shape(none), a.dtype());
  Tensor grad_b = new_output(b, needs_b ? b.shape() : Shape(none), b.dtype());
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
