// SPDX-License-Identifier: Apache-2.0
// Which of several devices is the one that calls use now: for what is kept for each.
#pragma once

#if defined(__CUDACC__)
#include "isobit/simt/cuda/current_device.h"
#else
namespace isobit::simt {
inline int current_device() { return 0; }  // of others nothing is kept
}  // namespace isobit::simt
#endif
