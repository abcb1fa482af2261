// SPDX-License-Identifier: Apache-2.0
// All that libisobit_cuda.so and libisobit_hip.so show: dispatch/gpu_library.cpp asks for it.
#include <string_view>

#include "isobit/ops/device_catalog.h"

#if defined(__HIP__)
#define ISOBIT_ENTRY isobit_hip_library
#else
#define ISOBIT_ENTRY isobit_cuda_library
#endif

// Null for another version or other structs, of which cmake/interface.cmake has a fingerprint.
extern "C" __attribute__((visibility("default"))) const isobit::DeviceLibrary* ISOBIT_ENTRY(
    const char* identity) {
  const bool known = std::string_view(identity) == ISOBIT_VERSION " " ISOBIT_INTERFACE;
  return known ? &isobit::device_library() : nullptr;
}
