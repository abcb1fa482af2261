// SPDX-License-Identifier: Apache-2.0
// The pinned arithmetic environment: round to nearest even, denormals kept, whatever the caller had
// set.
#pragma once

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace isobit::simd {

// Sets the mode for a scope, on the thread that makes it.
class FloatMode {
 public:
#if defined(__x86_64__)
  FloatMode() : saved_(_mm_getcsr()) { _mm_setcsr(kDefault); }
  ~FloatMode() { _mm_setcsr(saved_); }

 private:
  static constexpr unsigned kDefault = 0x1f80;  // all exceptions masked, no flush to zero
  unsigned saved_;
#elif defined(__aarch64__)
  FloatMode() {
    asm volatile("mrs %0, fpcr" : "=r"(saved_));
    asm volatile("msr fpcr, %0" ::"r"(0ul));
  }
  ~FloatMode() { asm volatile("msr fpcr, %0" ::"r"(saved_)); }

 private:
  unsigned long saved_;
#endif

 public:
  FloatMode(const FloatMode&) = delete;
  FloatMode& operator=(const FloatMode&) = delete;
};

}  // namespace isobit::simd
