// SPDX-License-Identifier: Apache-2.0
// All that libisobit_cuda.so and libisobit_hip.so show: dispatch/gpu_library.cpp asks for it.
#include <string_view>

#include "isobit/ops/device_catalog.h"

#if defined(__HIP__)
#define ISOBIT_ENTRY isobit_hip_library
#else
#define ISOBIT_ENTRY isobit_cuda_library
#endif

// Null for another version, whose structs may differ.
extern "C" __attribute__((visibility("default"))) const isobit::DeviceLibrary* ISOBIT_ENTRY(
    const char* version) {
  return std::string_view(version) == ISOBIT_VERSION ? &isobit::device_library() : nullptr;
}
