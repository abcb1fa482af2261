// SPDX-License-Identifier: Apache-2.0
// All that libisobit_cuda.so shows: dispatch/cuda_library.cpp asks for it.
#include <string_view>

#include "isobit/ops/device_catalog.h"

// Null for another version, whose structs may differ.
extern "C" __attribute__((visibility("default"))) const isobit::DeviceLibrary* isobit_cuda_library(
    const char* version) {
  return std::string_view(version) == ISOBIT_VERSION ? &isobit::device_library() : nullptr;
}
