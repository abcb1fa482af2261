// SPDX-License-Identifier: Apache-2.0
// The two norms of the C ABI as types, for code that serves both: they differ in their structs and
// in the bias.
#pragma once

#include "isobit/isobit.h"

namespace isobit::torch {

struct LayerNorm {
  static constexpr const char* kName = "layer_norm";
  static constexpr const char* kAddsName = "add_layer_norm";
  static constexpr bool kHasBias = true;
  using Forward = isobit_layernorm_forward_args;
  using Backward = isobit_layernorm_backward_args;
  static constexpr auto* kForward = isobit_layernorm_forward;
  static constexpr auto* kBackward = isobit_layernorm_backward;
};

struct RmsNorm {
  static constexpr const char* kName = "rms_norm";
  static constexpr const char* kAddsName = "add_rms_norm";
  static constexpr bool kHasBias = false;
  using Forward = isobit_rmsnorm_forward_args;
  using Backward = isobit_rmsnorm_backward_args;
  static constexpr auto* kForward = isobit_rmsnorm_forward;
  static constexpr auto* kBackward = isobit_rmsnorm_backward;
};

}  // namespace isobit::torch
