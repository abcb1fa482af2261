// SPDX-License-Identifier: Apache-2.0
// Products of PyTorch's tensors by matrices that were packed before, on the CPU alone.
#include "isobit/torch/packed.h"

#include "isobit/torch/call.h"
#include "isobit/torch/stack.h"

namespace isobit::torch {
namespace {

void require_on_cpu(const char* op, const char* name, const Tensor& tensor) {
  const Device device = tensor.device();
  require(device.type == aoti_torch_device_type_cpu(), op, ": ", name, " is on ", device,
          "; matrices are packed for cpu");
}

void require_matrix(const char* op, const char* name, const Tensor& tensor) {
  require_on_cpu(op, name, tensor);
  require_dtype(op, name, tensor.dtype(), kFloats);
  require(tensor.rank() == 2, op, ": ", name, " has ", std::int64_t{tensor.rank()},
          " dimensions; must have 2");
}

isobit_packed_matrix* packed_at(std::int64_t address) {
  return reinterpret_cast<isobit_packed_matrix*>(static_cast<std::intptr_t>(address));
}

}  // namespace

void pack_matrix(StableIValue* stack, std::uint64_t, std::uint64_t) {
  const Tensor b = Stack(stack).tensor();
  require_matrix("pack_matrix", "b", b);
  const isobit_tensor matrix = strided(b);
  const Lent lent(b);
  isobit_packed_matrix* packed = nullptr;
  check(isobit_matmul_pack(&matrix, lent.context(), &packed));
  *stack = static_cast<StableIValue>(reinterpret_cast<std::intptr_t>(packed));
}

void packed_matmul(StableIValue* stack, std::uint64_t, std::uint64_t) {
  constexpr const char* kName = "packed_matmul";
  Stack given(stack);
  const Tensor a = given.tensor(), bias = given.optional_tensor();
  const isobit_packed_matrix* const packed = packed_at(given.integer());
  const std::int64_t cols = given.integer();
  auto args = empty_args<isobit_matmul_args>();
  args.alpha = 1;
  args.activation = static_cast<std::int32_t>(given.integer());
  args.arithmetic = static_cast<std::int32_t>(given.integer());
  require_matrix(kName, "a", a);
  require_views(kName, {{"a", a}, {"bias", bias}});
  const std::int64_t shape[] = {a.shape()[0], cols};
  Tensor y = new_output(a, shape, a.dtype());
  const isobit_tensor of_a = strided(a), of_y = strided(y, Access::write);
  const isobit_tensor of_bias = bias ? strided(bias) : isobit_tensor{};
  args.a = &of_a;
  args.bias = bias ? &of_bias : nullptr;
  args.y = &of_y;
  const Lent lent(a);
  check(isobit_matmul_packed(&args, packed, lent.context()));
  put(stack, y);
}

void packed_bytes(StableIValue* stack, std::uint64_t, std::uint64_t) {
  *stack = static_cast<StableIValue>(isobit_packed_matrix_bytes(packed_at(Stack(stack).integer())));
}

void free_packed(StableIValue* stack, std::uint64_t, std::uint64_t) {
  isobit_packed_matrix_free(packed_at(Stack(stack).integer()));
}

}  // namespace isobit::torch
