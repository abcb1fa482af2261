// SPDX-License-Identifier: Apache-2.0
// What stands beside the processor.
#pragma once

namespace isobit::lab {

// Brings the operations the variants of GPUs, as the emulator executes them. Before anybody asks an
// operation for its variants.
void attach_devices();

}  // namespace isobit::lab
