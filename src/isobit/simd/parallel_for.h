// SPDX-License-Identifier: Apache-2.0
// Threads for callers that bring none of their own.
#pragma once

#include "isobit/core/execution.h"

namespace isobit::simd {

// The process's own threads, started at first use and again in a forked child.
ParallelFor threads();

// Memory from the pool and the C library.
Allocator heap();

// This machine, its threads and its heap; at most `threads` threads, 0 for all processors.
Execution here(int threads = 0);

}  // namespace isobit::simd
