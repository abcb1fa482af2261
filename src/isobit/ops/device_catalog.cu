// SPDX-License-Identifier: Apache-2.0
// Compiled once for each back end: what it lists is that back end's.
#include "isobit/ops/device_catalog.h"

#include "isobit/ops/elementwise/problem.h"
#include "isobit/ops/layernorm/problem.h"
#include "isobit/ops/rmsnorm/problem.h"
#include "isobit/simt/simt.h"

namespace isobit {

const DeviceLibrary& device_library() {
  static const DeviceVariants kOperations[] = {
      device_variants("elementwise", "fwd", elementwise::cuda_variants()),
      device_variants("layernorm", "fwd", layernorm::cuda_forward_variants()),
      device_variants("layernorm", "bwd", layernorm::cuda_backward_variants()),
      device_variants("rmsnorm", "fwd", rmsnorm::cuda_forward_variants()),
      device_variants("rmsnorm", "bwd", rmsnorm::cuda_backward_variants()),
  };
  static const DeviceLibrary kLibrary = {simt::kDevice, simt::missing, simt::gpu, simt::kMemory,
                                         kOperations};
  return kLibrary;
}

}  // namespace isobit
