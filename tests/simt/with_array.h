// SPDX-License-Identifier: Apache-2.0
// The kernel that tests of the emulator write.
#pragma once

#include "isobit/simt/simt.h"

namespace isobit::simt {

// A kernel from a lambda, with one shared array of floats.
template <class Body>
struct WithArray {
  static constexpr int kMostThreads = simt::kMostThreads;
  int count;
  Body body;
  float* memory(auto& carver) const { return carver.template take<float>(count); }
  void operator()(float* shared) const { body(shared); }
};

}  // namespace isobit::simt
