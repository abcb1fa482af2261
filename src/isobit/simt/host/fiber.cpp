// SPDX-License-Identifier: Apache-2.0
// A switch of stacks: fifteen instructions on x86-64; elsewhere the C library's, which also asks
// the kernel for signal masks.
#include "isobit/simt/host/fiber.h"

#include <sys/mman.h>

#include <new>
#if !defined(__x86_64__)
#include <ucontext.h>
#endif

// AddressSanitizer is told of each switch, where it is linked.
extern "C" {
[[gnu::weak]] void __sanitizer_start_switch_fiber(void** shadow, const void* stack, std::size_t);
[[gnu::weak]] void __sanitizer_finish_switch_fiber(void* shadow, const void** stack, std::size_t*);
[[gnu::weak]] void __asan_unpoison_memory_region(const volatile void*, std::size_t);
}

#if defined(__x86_64__)
extern "C" void isobit_swap_stacks(void** from, void* to);
asm(R"(
.text
.p2align 4
.hidden isobit_swap_stacks
.globl isobit_swap_stacks
.type isobit_swap_stacks,@function
isobit_swap_stacks:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp,(%rdi)
  movq %rsi,%rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size isobit_swap_stacks,.-isobit_swap_stacks
)");
#endif

namespace isobit::simt::host {
namespace {

constexpr std::size_t kPage = 4096, kPlace = 5 * 64;

std::size_t stack_size() { return __sanitizer_start_switch_fiber ? 256 << 10 : 64 << 10; }

}  // namespace

#if defined(__x86_64__)
struct Fiber::Context {
  void* stack_pointer = nullptr;

  void prepare(void (*entry)(), std::byte* stack, std::size_t bytes) {
    auto* top = reinterpret_cast<void**>(stack + bytes);
    *--top = nullptr;  // the entry finds the stack as after a call
    *--top = reinterpret_cast<void*>(entry);
    for (int saved = 0; saved < 6; ++saved) *--top = nullptr;
    stack_pointer = top;
  }
  void swap(Context& to) { isobit_swap_stacks(&stack_pointer, to.stack_pointer); }
};
#else
struct Fiber::Context {
  ucontext_t state;

  void prepare(void (*entry)(), std::byte* stack, std::size_t bytes) {
    getcontext(&state);
    state.uc_stack.ss_sp = stack;
    state.uc_stack.ss_size = bytes;
    state.uc_link = nullptr;
    makecontext(&state, entry, 0);
  }
  void swap(Context& to) { swapcontext(&state, &to.state); }
};
#endif

Fiber::Fiber() : context_(std::make_unique<Context>()) {}

Fiber::~Fiber() {
  if (owns_stack_) munmap(stack_ - kPage, stack_bytes_ + kPage);
}

// A page that nobody may touch lies below: an overflow faults, instead of spoiling another stack.
void Fiber::take_stack() {
  const std::size_t bytes = stack_size();
  void* memory = mmap(nullptr, bytes + kPage, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  mprotect(memory, kPage, PROT_NONE);
  stack_ = static_cast<std::byte*>(memory) + kPage;
  stack_bytes_ = bytes;
  owns_stack_ = true;
}

void Fiber::prepare(void (*entry)()) {
  if (!owns_stack_) take_stack();
  // Stacks that began at equal places in their pages would compete for few lines of the cache.
  static std::size_t next_place = 0;
  const std::size_t unused = next_place++ * kPlace % kPage;
  if (__asan_unpoison_memory_region) __asan_unpoison_memory_region(stack_, stack_bytes_);
  shadow_ = nullptr;
  context_->prepare(entry, stack_, stack_bytes_ - unused);
}

void Fiber::begin(Fiber& from) {
  if (!__sanitizer_finish_switch_fiber) return;
  const void* stack = nullptr;
  std::size_t bytes = 0;
  __sanitizer_finish_switch_fiber(nullptr, &stack, &bytes);
  if (from.stack_ == nullptr) {  // the caller's own stack, met for the first time
    from.stack_ = static_cast<std::byte*>(const_cast<void*>(stack));
    from.stack_bytes_ = bytes;
  }
}

void Fiber::switch_to(Fiber& to, bool done) {
  if (__sanitizer_start_switch_fiber)
    __sanitizer_start_switch_fiber(done ? nullptr : &shadow_, to.stack_, to.stack_bytes_);
  context_->swap(*to.context_);
  if (__sanitizer_finish_switch_fiber) __sanitizer_finish_switch_fiber(shadow_, nullptr, nullptr);
}

}  // namespace isobit::simt::host
