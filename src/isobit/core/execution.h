// SPDX-License-Identifier: Apache-2.0
// What a caller lends to a call: threads and memory. Operators own neither.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "isobit/core/machine.h"

namespace isobit {

// Runs body(context, task) for every task in [0, tasks), in any order, and returns when all are
// done. A body may wait for what another that has begun is about to do. Bodies never throw; `run`
// may, once no body is running any more.
struct ParallelFor {
  using Body = void (*)(void* context, std::int64_t task);
  void (*run)(void* self, std::int64_t tasks, Body body, void* context) = nullptr;
  void* self = nullptr;

  template <class Function>
  void operator()(std::int64_t tasks, Function&& function) const {
    const Body body = [](void* context, std::int64_t task) {
      (*static_cast<std::remove_reference_t<Function>*>(context))(task);
    };
    if (tasks <= 1 || run == nullptr) {
      for (std::int64_t task = 0; task < tasks; ++task) function(task);
    } else {
      run(self, tasks, body, &function);
    }
  }
};

// Returns memory of any alignment, or null.
struct Allocator {
  void* (*allocate)(void* self, std::size_t bytes) = nullptr;
  void (*release)(void* self, void* memory, std::size_t bytes) = nullptr;
  void* self = nullptr;
};

struct Execution {
  Machine machine;
  void* stream = nullptr;  // of a GPU: a cudaStream_t
  ParallelFor parallel_for;
  Allocator allocator;
  std::byte* workspace = nullptr;  // what the variant asked for; filled in by run()
};

}  // namespace isobit
