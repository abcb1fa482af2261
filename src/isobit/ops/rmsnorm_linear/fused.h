// SPDX-License-Identifier: Apache-2.0
// What this operator tells src/isobit/norm_linear of itself.
#pragma once

#include <string_view>

#include "isobit/ops/rmsnorm/norm.h"
#include "isobit/ops/rmsnorm_linear/rmsnorm_linear.h"

namespace isobit::rmsnorm_linear {

struct Fused {
  using ForwardArgs = rmsnorm_linear::ForwardArgs;
  using BackwardArgs = rmsnorm_linear::BackwardArgs;
  using Norm = rmsnorm::Norm;

  static constexpr std::string_view kName = "rmsnorm_linear", kBackward = "rmsnorm_linear backward";
};

}  // namespace isobit::rmsnorm_linear
