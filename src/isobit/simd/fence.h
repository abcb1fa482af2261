// SPDX-License-Identifier: Apache-2.0
// What streaming stores need before others may read what they wrote.
#pragma once

#include "isobit/core/inline.h"

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace isobit::simd {

// Orders this thread's streaming stores before whatever follows. It waits until they are done: once
// a task, not once a row. Elsewhere than on x86 they are plain stores.
ISOBIT_INLINE void fence() {
#if defined(__x86_64__)
  _mm_sfence();
#endif
}

}  // namespace isobit::simd
