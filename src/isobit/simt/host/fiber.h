// SPDX-License-Identifier: Apache-2.0
// Many stacks on one processor: every emulated thread runs on one.
#pragma once

#include <cstddef>
#include <memory>

namespace isobit::simt::host {

// Where something runs, or stopped running. A fiber without a stack is whoever called first.
class Fiber {
 public:
  Fiber();
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  // Has the next switch to this fiber call `entry`, which never returns. What ran on it before is
  // forgotten, not unwound.
  void prepare(void (*entry)());
  // The first thing that `entry` does; `from` is the fiber that switched to this one.
  static void begin(Fiber& from);
  bool has_on_stack(const void* address) const {
    return address >= stack_ && address < stack_ + stack_bytes_;
  }
  // Runs `to` and returns when something switches back; a fiber that is `done` never does.
  void switch_to(Fiber& to, bool done = false);

 private:
  struct Context;
  void take_stack();

  std::unique_ptr<Context> context_;
  std::byte* stack_ = nullptr;
  std::size_t stack_bytes_ = 0;
  bool owns_stack_ = false;
  void* shadow_ = nullptr;  // AddressSanitizer's stack beside this one
};

}  // namespace isobit::simt::host
