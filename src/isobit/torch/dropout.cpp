// SPDX-License-Identifier: Apache-2.0
// Dropout of PyTorch's tensors by the C ABI; the gradient is the same call.
#include "isobit/torch/dropout.h"

#include <algorithm>

namespace isobit::torch {

void dropout(StableIValue* stack, std::uint64_t, std::uint64_t) {
  constexpr const char* kName = "dropout";
  Stack given(stack);
  const Tensor x = given.tensor();
  const Tensor seed = given.optional_tensor();
  const Dropout options(kName, given.number(), seed);
  require_dtype(kName, "x", x.dtype(), kFloats);
  const int hidden = std::min(x.rank(), 1);  // a number is a row of one
  Tensor y = new_output(x, x.shape(), x.dtype());
  const Argument from(x, hidden), to(y, hidden, Access::write);
  auto args = empty_args<isobit_dropout_args>();
  args.x = from.get();
  args.y = to.get();
  args.p = options.probability;
  args.dropout_seed = options.seed;
  const Lent lent(x);
  check(isobit_dropout(&args, lent.context()));
  put(stack, y);
}

}  // namespace isobit::torch
