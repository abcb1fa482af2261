// SPDX-License-Identifier: Apache-2.0
// Fetching memory that will be read soon.
#pragma once

#include "isobit/core/inline.h"

namespace isobit::simd {

ISOBIT_INLINE void fetch_to_first_cache(const void* address) { __builtin_prefetch(address, 0, 3); }
ISOBIT_INLINE void fetch_to_second_cache(const void* address) { __builtin_prefetch(address, 0, 2); }

}  // namespace isobit::simd
