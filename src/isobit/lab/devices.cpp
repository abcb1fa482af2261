// SPDX-License-Identifier: Apache-2.0
// The emulator is linked where the build has one; the library for GPUs is looked for.
#include "isobit/lab/devices.h"

#include <fmt/format.h>

#include "isobit/dispatch/cuda_library.h"
#if defined(ISOBIT_EMULATOR)
#include "isobit/ops/device_catalog.h"
#endif

namespace isobit::lab {

void attach_devices() {
#if defined(ISOBIT_EMULATOR)
  attach(device_library());
#endif
  cuda_library();
}

std::string missing_device(Device device) {
  if (device == Device::emu) return "this build has no emulator of GPUs";
  return fmt::format("there is no GPU to use: {}; `isobit doctor` says more",
                     cuda_library().missing);
}

}  // namespace isobit::lab
