// SPDX-License-Identifier: Apache-2.0
// Steps of optimisers, which change the tensors that they are given.
#pragma once

#include "isobit/torch/registration.h"

namespace isobit::torch {

void define_optimizers(Registration& definitions);
void implement_optimizers(Registration& implementations);

}  // namespace isobit::torch
