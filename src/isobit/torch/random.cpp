// SPDX-License-Identifier: Apache-2.0
// Random numbers in the place of a tensor's elements by the C ABI.
#include "isobit/torch/random.h"

#include "isobit/torch/call.h"

namespace isobit::torch {
namespace {

bool dense(const Tensor& tensor) {
  const Shape shape = tensor.shape(), strides = tensor.strides();
  std::int64_t step = 1;
  for (std::size_t i = shape.size(); i-- > 0; step *= shape[i])
    if (shape[i] > 1 && strides[i] != step) return false;
  return true;
}

}  // namespace

// Seed and offset are integers of 64 bits, whatever PyTorch says of their sign.
void random_in_place(StableIValue* stack, std::uint64_t, std::uint64_t) {
  constexpr const char* kName = "random_";
  Stack given(stack);
  const Tensor y = given.tensor();
  auto args = empty_args<isobit_random_args>();
  args.distribution = static_cast<std::int32_t>(given.integer());
  args.low = given.number();
  args.high = given.number();
  args.mean = given.number();
  args.std = given.number();
  args.p = given.number();
  args.random_seed = static_cast<std::uint64_t>(given.integer());
  args.random_offset = static_cast<std::uint64_t>(given.integer());
  require_dtype(kName, "y", y.dtype(), kFloats);
  require(dense(y), kName, ": the elements of y must be adjacent and in order");
  const Argument out(y, kAllDims, Access::write);
  args.y = out.get();
  const Lent lent(y);
  check(isobit_random(&args, lent.context()));
}

}  // namespace isobit::torch
