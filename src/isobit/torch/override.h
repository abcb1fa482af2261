// SPDX-License-Identifier: Apache-2.0
// PyTorch's own layer norm for CPU tensors, replaced in the whole process.
#pragma once

namespace isobit::torch {

void set_override(bool on);

}  // namespace isobit::torch
