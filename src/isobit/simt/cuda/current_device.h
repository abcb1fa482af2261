// SPDX-License-Identifier: Apache-2.0
// See ../current_device.h.
#pragma once

#include <cuda_runtime.h>

#include "isobit/simt/cuda/memory.h"

namespace isobit::simt {

inline int current_device() {
  int device = 0;
  detail::checked("cudaGetDevice", cudaGetDevice(&device));
  return device;
}

}  // namespace isobit::simt
