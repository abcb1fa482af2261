// SPDX-License-Identifier: Apache-2.0
// Finds libisobit_cuda.so, which brings the variants for NVIDIA's GPUs: a process without it, or
// without a GPU, goes on without them.
#pragma once

#include <string>

#include "isobit/dispatch/device_library.h"

namespace isobit {

struct CudaLibrary {
  const DeviceLibrary* library = nullptr;  // attached, with a GPU to run on
  std::string file;                        // where it was found; empty where it was not
  std::string missing;                     // why there is no library
};

// Looks when it is first asked: for the file that ISOBIT_CUDA_LIBRARY names, or else beside the
// code that asks, or else where the system looks.
const CudaLibrary& cuda_library();

}  // namespace isobit
