// SPDX-License-Identifier: Apache-2.0
// Products of small matrices in the shape of NVIDIA's instructions, which no AMD GPU has: whatever
// uses them is never launched there. host/matrix.h says what the names mean.
#pragma once

#include "isobit/simt/hip/device.h"

namespace isobit::simt {

template <bool kTransposed>
ISOBIT_DEVICE void load_matrices(unsigned (&)[4], const void*) {
  __builtin_trap();
}

template <class T>
ISOBIT_DEVICE void multiply_add(float (&)[4], const unsigned (&)[4], const unsigned (&)[2]) {
  __builtin_trap();
}

}  // namespace isobit::simt
