// SPDX-License-Identifier: Apache-2.0
// Attention of PyTorch's tensors by the C ABI, and its gradients.
#include "isobit/torch/attention.h"

#include <utility>
#include <vector>

#include "isobit/torch/call.h"
#include "isobit/torch/dropout.h"
#include "isobit/torch/stack.h"

namespace isobit::torch {
namespace {

void require_arrays(const char* op, const Tensor& q, const Tensor& k, const Tensor& v) {
  const Named all[] = {{"q", q}, {"k", k}, {"v", v}};
  for (const auto& [name, tensor] : all) {
    require_dtype(op, name, tensor.dtype(), kFloats);
    require(tensor.rank() == 4, op, ": ", name, " has ", std::int64_t{tensor.rank()},
            " dimensions; must have 4: batch, heads, sequence, elements");
  }
}

// What both passes take beside tensors, in the order of the schema.
template <class Args>
void take_options(const char* op, Stack& given, Args& args) {
  const Tensor seed = given.optional_tensor();
  args.causal = static_cast<std::int32_t>(given.integer());
  args.window = given.integer();
  args.scale = given.number();
  args.softcap = given.number();
  args.dropout = given.number();
  if (args.dropout != 0) args.dropout_seed = Dropout(op, args.dropout, seed).seed;
}

// Tokens by tokens where those of `like` lie so, as PyTorch's attention has it: who splits rows
// into heads and joins them again copies nothing.
Tensor new_lying_as(const Tensor& like, Shape shape) {
  const Shape extents = like.shape(), strides = like.strides();
  if (extents[1] <= 1 || extents[2] <= 1 || strides[1] >= strides[2])
    return new_output(like, shape, like.dtype());
  const std::int64_t by_tokens[] = {shape[0], shape[2], shape[1], shape[3]};
  auto turned = dense_strides(by_tokens);
  std::swap(turned[1], turned[2]);
  return new_strided_output(like, shape, Shape(turned.data(), shape.size()), like.dtype());
}

std::vector<std::int64_t> shape_of(const Tensor& tensor) {
  return {tensor.shape().begin(), tensor.shape().end()};
}

}  // namespace

void attention(StableIValue* stack, std::uint64_t, std::uint64_t) {
  constexpr const char* kName = "attention";
  Stack given(stack);
  const Tensor q = given.tensor(), k = given.tensor(), v = given.tensor();
  const Tensor bias = given.optional_tensor(), mask = given.optional_tensor();
  auto args = empty_args<isobit_attention_forward_args>();
  take_options(kName, given, args);
  const Tensor slopes = given.optional_tensor(), key_begin = given.optional_tensor(),
               key_end = given.optional_tensor(), query_starts = given.optional_tensor(),
               key_starts = given.optional_tensor(), blocks = given.optional_tensor();
  args.arithmetic = static_cast<std::int32_t>(given.integer());
  require_arrays(kName, q, k, v);
  require_views(kName, {{"q", q},
                        {"k", k},
                        {"v", v},
                        {"bias", bias},
                        {"mask", mask},
                        {"slopes", slopes},
                        {"key_begin", key_begin},
                        {"key_end", key_end},
                        {"query_starts", query_starts},
                        {"key_starts", key_starts},
                        {"blocks", blocks}});
  std::vector<std::int64_t> shape = shape_of(q);
  shape.back() = v.shape().back();
  Tensor y = new_lying_as(q, shape);
  shape.pop_back();
  const bool is_double = isobit_dtype(q.dtype()) == ISOBIT_F64;
  const std::int32_t real = is_double ? aoti_torch_dtype_float64() : aoti_torch_dtype_float32();
  Tensor lse = new_output(q, shape, real), max = new_output(q, shape, real),
         sum = new_output(q, shape, real);
  const Given of_q(q), of_k(k), of_v(v), of_bias(bias), of_mask(mask), of_slopes(slopes),
      of_begin(key_begin), of_end(key_end), of_query_starts(query_starts),
      of_key_starts(key_starts), of_blocks(blocks), to_y(y, Access::write),
      to_lse(lse, Access::write), to_max(max, Access::write), to_sum(sum, Access::write);
  args.q = of_q.get();
  args.k = of_k.get();
  args.v = of_v.get();
  args.bias = of_bias.get();
  args.mask = of_mask.get();
  args.slopes = of_slopes.get();
  args.key_begin = of_begin.get();
  args.key_end = of_end.get();
  args.query_starts = of_query_starts.get();
  args.key_starts = of_key_starts.get();
  args.blocks = of_blocks.get();
  args.y = to_y.get();
  args.lse = to_lse.get();
  args.max = to_max.get();
  args.sum = to_sum.get();
  const Lent lent(q);
  check(isobit_attention_forward(&args, lent.context()));
  put(put(put(put(stack, y), lse), max), sum);
}

// Gradients that are not wanted are tensors without elements.
void attention_backward(StableIValue* stack, std::uint64_t, std::uint64_t) {
  constexpr const char* kName = "attention_backward";
  static constexpr std::int64_t kNothing[] = {0};
  Stack given(stack);
  const Tensor grad_y = given.tensor(), grad_lse = given.optional_tensor();
  const Tensor q = given.tensor(), k = given.tensor(), v = given.tensor();
  const Tensor bias = given.optional_tensor(), mask = given.optional_tensor();
  const Tensor y = given.tensor(), max = given.tensor(), sum = given.tensor();
  auto args = empty_args<isobit_attention_backward_args>();
  take_options(kName, given, args);
  const bool needs_q = given.flag(), needs_k = given.flag(), needs_v = given.flag(),
             needs_bias = given.flag();
  const Tensor slopes = given.optional_tensor(), key_begin = given.optional_tensor(),
               key_end = given.optional_tensor(), query_starts = given.optional_tensor(),
               key_starts = given.optional_tensor();
  args.arithmetic = static_cast<std::int32_t>(given.integer());
  require_arrays(kName, q, k, v);
  require_views(kName, {{"q", q},
                        {"k", k},
                        {"v", v},
                        {"bias", bias},
                        {"mask", mask},
                        {"grad_y", grad_y},
                        {"grad_lse", grad_lse},
                        {"y", y},
                        {"max", max},
                        {"sum", sum},
                        {"slopes", slopes},
                        {"key_begin", key_begin},
                        {"key_end", key_end},
                        {"query_starts", query_starts},
                        {"key_starts", key_starts}});
  const auto gradient = [&](const Tensor& of, bool needed) {
    return needed ? new_lying_as(of, of.shape()) : new_output(q, Shape(kNothing), q.dtype());
  };
  Tensor grad_q = gradient(q, needs_q), grad_k = gradient(k, needs_k),
         grad_v = gradient(v, needs_v),
         grad_bias = new_output(q, needs_bias && bias ? bias.shape() : Shape(kNothing), q.dtype());
  const Given of_grad(grad_y), of_lse(grad_lse), of_q(q), of_k(k), of_v(v), of_bias(bias),
      of_mask(mask), of_slopes(slopes), of_begin(key_begin), of_end(key_end),
      of_query_starts(query_starts), of_key_starts(key_starts), of_y(y), of_max(max), of_sum(sum),
      to_q(grad_q, Access::write), to_k(grad_k, Access::write), to_v(grad_v, Access::write),
      to_bias(grad_bias, Access::write);
  args.grad_y = of_grad.get();
  args.grad_lse = of_lse.get();
  args.q = of_q.get();
  args.k = of_k.get();
  args.v = of_v.get();
  args.bias = of_bias.get();
  args.mask = of_mask.get();
  args.slopes = of_slopes.get();
  args.key_begin = of_begin.get();
  args.key_end = of_end.get();
  args.query_starts = of_query_starts.get();
  args.key_starts = of_key_starts.get();
  args.y = of_y.get();
  args.max = of_max.get();
  args.sum = of_sum.get();
  args.grad_q = needs_q ? to_q.get() : nullptr;
  args.grad_k = needs_k ? to_k.get() : nullptr;
  args.grad_v = needs_v ? to_v.get() : nullptr;
  args.grad_bias = needs_bias && bias ? to_bias.get() : nullptr;
  const Lent lent(q);
  check(isobit_attention_backward(&args, lent.context()));
  put(put(put(put(stack, grad_q), grad_k), grad_v), grad_bias);
}

}  // namespace isobit::torch
