// SPDX-License-Identifier: Apache-2.0
// The adapter for CPU tensors: PyTorch's threads, and memory that large results and workspaces come
// from.
#include <unistd.h>

#include <algorithm>
#include <numeric>

#include "isobit/simd/pool.h"
#include "isobit/torch/device.h"
#include "isobit/torch/operators.h"
#include "isobit/torch/optimizers.h"
#include "isobit/torch/override.h"
#include "isobit/torch/packed.h"
#include "isobit/torch/stack.h"

namespace isobit::torch {
namespace {

// Of isobit's tasks, those that one of PyTorch's threads takes.
struct Tasks {
  isobit_task task;
  void* context;
};

void run(void*, std::int64_t tasks, isobit_task task, void* context) {
  Tasks all{task, context};
  const auto some = [](std::int64_t begin, std::int64_t end, void* self) {
    const Tasks& tasks = *static_cast<Tasks*>(self);
    for (std::int64_t i = begin; i < end; ++i) tasks.task(tasks.context, i);
  };
  check(torch_parallel_for(0, tasks, 1, some, &all));
}

int threads() {
  std::uint32_t count = 1;
  check(torch_get_num_threads(&count));
  return static_cast<int>(std::clamp<std::uint32_t>(count, 1, ISOBIT_MAX_THREADS));
}

// What waits for the next results, at most.
std::int64_t most_waiting() {
  return static_cast<std::int64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGESIZE) / 8;
}

void set_pool_limit(StableIValue* stack, std::uint64_t, std::uint64_t) {
  pool::set_limit(Stack(stack).integer());
}

void pool_limit(StableIValue* stack, std::uint64_t, std::uint64_t) {
  *stack = static_cast<StableIValue>(pool::limit());
}

void pool_use(StableIValue* stack, std::uint64_t, std::uint64_t) {
  const pool::Use use = pool::use();
  stack[0] = static_cast<StableIValue>(use.lent);
  stack[1] = static_cast<StableIValue>(use.waiting);
}

void empty_pool(StableIValue*, std::uint64_t, std::uint64_t) { pool::empty(); }

void override_aten(StableIValue* stack, std::uint64_t, std::uint64_t) {
  set_override(Stack(stack).flag());
}

// Made when the file is loaded; Python looks whether it succeeded.
struct Library {
  Registration definitions = Registration::definitions("isobit");
  Registration cpu = Registration::implementations("isobit", "CPU");
  Registration any = Registration::implementations("isobit", "CompositeExplicitAutograd");

  Library() {
    pool::set_limit(most_waiting());
    define_operators(definitions);
    implement_operators(cpu);
    define_optimizers(definitions);
    implement_optimizers(cpu);
    serve("_set_pool_limit", "(int bytes) -> ()", set_pool_limit);
    serve("_pool_limit", "() -> int", pool_limit);
    serve("_pool_use", "() -> (int, int)", pool_use);
    serve("_empty_pool", "() -> ()", empty_pool);
    serve("_override_aten", "(bool on) -> ()", override_aten);
    serve("_pack_matrix", "(Tensor b) -> int", pack_matrix);
    serve("_packed_matmul",
          "(Tensor a, Tensor? bias, int packed, int cols, int activation, int arithmetic) -> "
          "Tensor",
          packed_matmul);
    serve("_packed_bytes", "(int packed) -> int", packed_bytes);
    serve("_free_packed", "(int packed) -> ()", free_packed);
  }

  void serve(const char* name, const std::string& signature, Kernel kernel) {
    definitions.define(name + signature);
    any.implement(name, kernel);
  }
} library;

}  // namespace

struct Lent::Resources {};

Lent::Lent(const Tensor&) {
  context_.struct_size = sizeof context_;
  context_.allocator = {[](void*, std::size_t bytes) { return pool::allocate(bytes); },
                        [](void*, void* memory, std::size_t) { pool::release(memory); }, nullptr};
  context_.threads = threads();
  context_.parallel_for = {run, nullptr};
}

Lent::~Lent() = default;

Tensor new_output(const Tensor& x, Shape shape, std::int32_t dtype) {
  return new_strided_output(x, shape, dense_strides(shape), dtype);
}

Tensor new_strided_output(const Tensor& x, Shape shape, Shape strides, std::int32_t dtype) {
  const std::int64_t bytes = std::accumulate(
      shape.begin(), shape.end(), static_cast<std::int64_t>(aoti_torch_dtype_element_size(dtype)),
      std::multiplies<>());
  void* block = pool::take(bytes);
  if (block == nullptr) return empty_strided_like(x, shape, strides, dtype);
  const auto give = [](void* data, void* size) {
    pool::give(data, reinterpret_cast<std::intptr_t>(size));
  };
  const Device device = x.device();
  AtenTensorHandle handle = nullptr;
  const AOTITorchError code = torch_from_blob(
      block, std::ssize(shape), shape.data(), strides.data(), 0, dtype, device.type, device.index,
      &handle, aoti_torch_layout_strided(), nullptr, 0, give, reinterpret_cast<void*>(bytes));
  if (code != AOTI_TORCH_SUCCESS) pool::give(block, bytes);
  check(code);
  return Tensor(handle);
}

}  // namespace isobit::torch
