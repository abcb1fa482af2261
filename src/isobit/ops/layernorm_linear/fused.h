// SPDX-License-Identifier: Apache-2.0
// What this operator tells src/isobit/norm_linear of itself.
#pragma once

#include <string_view>

#include "isobit/ops/layernorm/norm.h"
#include "isobit/ops/layernorm_linear/layernorm_linear.h"

namespace isobit::layernorm_linear {

struct Fused {
  using ForwardArgs = layernorm_linear::ForwardArgs;
  using BackwardArgs = layernorm_linear::BackwardArgs;
  using Norm = layernorm::Norm;

  static constexpr std::string_view kName = "layernorm_linear",
                                    kBackward = "layernorm_linear backward";
};

}  // namespace isobit::layernorm_linear
