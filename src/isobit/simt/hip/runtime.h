// SPDX-License-Identifier: Apache-2.0
// What of HIP's run-time is looked for when it is first needed: runtime.cpp is linked in its place.
#pragma once

#include <hip/hip_runtime_api.h>

#include <string>

#include "isobit/core/error.h"

namespace isobit::simt::hip {

// Why libamdhip64 cannot be used; empty where it can. Before it was asked, no function of HIP may
// be called.
std::string missing_runtime();
// Why the current GPU cannot run the kernels; empty where it can. Loads them there, so that no
// launch has to.
std::string missing_code();

inline void checked(const char* what, hipError_t error) {
  if (error != hipSuccess) throw DeviceError(text(what, ": ", hipGetErrorString(error)));
}

}  // namespace isobit::simt::hip
