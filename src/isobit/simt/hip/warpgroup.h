// SPDX-License-Identifier: Apache-2.0
// What no AMD GPU has: whatever uses it is never launched there. host/warpgroup.h says what the
// names mean.
#pragma once

#include "isobit/simt/boxes.h"
#include "isobit/simt/hip/device.h"

namespace isobit::simt {

using BoxMap = Matrices;
template <class T>
BoxMap box_map(const Matrices& matrices) {
  return matrices;
}

ISOBIT_DEVICE void copy_box(void*, const BoxMap&, int, int, int, Arrival*) { __builtin_trap(); }
ISOBIT_DEVICE void arrive(Arrival*) { __builtin_trap(); }
template <int kSums>
ISOBIT_DEVICE void begin_products(float (&)[kSums]) {
  __builtin_trap();
}
template <int kSums, int kSteps>
ISOBIT_DEVICE void begin_products(float (&)[kSums], unsigned (&)[kSteps][4]) {
  __builtin_trap();
}
template <class T, bool kAAlongK, bool kBAlongK>
ISOBIT_DEVICE void multiply_add(float (&)[64], const T*, const T*) {
  __builtin_trap();
}
template <class T, bool kBAlongK>
ISOBIT_DEVICE void multiply_add(float (&)[32], const unsigned (&)[4], const T*) {
  __builtin_trap();
}
ISOBIT_DEVICE void commit_products() { __builtin_trap(); }
template <int kStillOpen, int kSums>
ISOBIT_DEVICE void wait_products(float (&)[kSums]) {
  __builtin_trap();
}

template <int kCount>
ISOBIT_DEVICE void have_fewer_registers() {
  __builtin_trap();
}
template <int kCount>
ISOBIT_DEVICE void have_more_registers() {
  __builtin_trap();
}

}  // namespace isobit::simt
