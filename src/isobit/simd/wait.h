// SPDX-License-Identifier: Apache-2.0
// Waiting for another thread that is about to be done.
#pragma once

#include <thread>

namespace isobit::simd {

inline void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Returns when condition() holds; after so many looks it lets others run between them.
template <class Condition>
void wait_until(const Condition& condition) {
  constexpr int kSpins = 2000;
  for (int spin = 0; !condition(); ++spin) spin < kSpins ? pause() : std::this_thread::yield();
}

}  // namespace isobit::simd
