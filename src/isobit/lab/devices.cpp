// SPDX-License-Identifier: Apache-2.0
// The emulator is linked where the build has one.
#include "isobit/lab/devices.h"

#if defined(ISOBIT_EMULATOR)
#include "isobit/ops/device_catalog.h"
#endif

namespace isobit::lab {

void attach_devices() {
#if defined(ISOBIT_EMULATOR)
  attach(device_library());
#endif
}

}  // namespace isobit::lab
