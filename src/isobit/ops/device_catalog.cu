// SPDX-License-Identifier: Apache-2.0
// Compiled once for each back end: what it lists is that back end's.
#include "isobit/ops/device_catalog.h"

#include "isobit/norm_linear/variants.h"
#include "isobit/norms/variants.h"
#include "isobit/ops/activation/problem.h"
#include "isobit/ops/adam/problem.h"
#include "isobit/ops/attention/problem.h"
#include "isobit/ops/channel_norm/problem.h"
#include "isobit/ops/convolution/problem.h"
#include "isobit/ops/cross_entropy/problem.h"
#include "isobit/ops/dropout/problem.h"
#include "isobit/ops/elementwise/problem.h"
#include "isobit/ops/embedding/problem.h"
#include "isobit/ops/interpolate/problem.h"
#include "isobit/ops/layernorm/norm.h"
#include "isobit/ops/layernorm_linear/fused.h"
#include "isobit/ops/linear_cross_entropy/problem.h"
#include "isobit/ops/lion/problem.h"
#include "isobit/ops/matmul/problem.h"
#include "isobit/ops/pointwise_loss/problem.h"
#include "isobit/ops/pool2d/problem.h"
#include "isobit/ops/random/problem.h"
#include "isobit/ops/reduce/problem.h"
#include "isobit/ops/rmsnorm/norm.h"
#include "isobit/ops/rmsnorm_linear/fused.h"
#include "isobit/ops/rope/problem.h"
#include "isobit/ops/rope_tables/problem.h"
#include "isobit/ops/scan/problem.h"
#include "isobit/ops/sgd/problem.h"
#include "isobit/ops/softmax/problem.h"
#include "isobit/ops/transpose/problem.h"
#include "isobit/ops/vector_norm/problem.h"
#include "isobit/simt/simt.h"

namespace isobit {

const DeviceLibrary& device_library() {
  static const DeviceVariants kOperations[] = {
      device_variants("elementwise", "fwd", elementwise::cuda_variants()),
      device_variants("layernorm", "fwd", norms::cuda_forward_variants<layernorm::Norm>()),
      device_variants("layernorm", "bwd", norms::cuda_backward_variants<layernorm::Norm>()),
      device_variants("rmsnorm", "fwd", norms::cuda_forward_variants<rmsnorm::Norm>()),
      device_variants("rmsnorm", "bwd", norms::cuda_backward_variants<rmsnorm::Norm>()),
      device_variants("transpose", "fwd", transpose::cuda_variants()),
      device_variants("activation", "fwd", activation::cuda_forward_variants()),
      device_variants("activation", "bwd", activation::cuda_backward_variants()),
      device_variants("rope", "fwd", rope::cuda_forward_variants()),
      device_variants("rope", "bwd", rope::cuda_backward_variants()),
      device_variants("rope_tables", "fwd", rope_tables::cuda_variants()),
      device_variants("random", "fwd", random::cuda_variants()),
      device_variants("dropout", "fwd", dropout::cuda_variants()),
      device_variants("pointwise_loss", "fwd", pointwise_loss::cuda_forward_variants()),
      device_variants("pointwise_loss", "bwd", pointwise_loss::cuda_backward_variants()),
      device_variants("scan", "fwd", scan::cuda_variants()),
      device_variants("matmul", "fwd", matmul::cuda_forward_variants()),
      device_variants("matmul", "bwd", matmul::cuda_backward_variants()),
      device_variants("layernorm_linear", "fwd",
                      norm_linear::cuda_forward_variants<layernorm_linear::Fused>()),
      device_variants("layernorm_linear", "bwd",
                      norm_linear::cuda_backward_variants<layernorm_linear::Fused>()),
      device_variants("rmsnorm_linear", "fwd",
                      norm_linear::cuda_forward_variants<rmsnorm_linear::Fused>()),
      device_variants("rmsnorm_linear", "bwd",
                      norm_linear::cuda_backward_variants<rmsnorm_linear::Fused>()),
      device_variants("conv1d", "fwd",
                      convolution::cuda_forward_variants<convolution::ForwardArgs1d>()),
      device_variants("conv1d", "bwd",
                      convolution::cuda_backward_variants<convolution::BackwardArgs1d>()),
      device_variants("conv2d", "fwd",
                      convolution::cuda_forward_variants<convolution::ForwardArgs>()),
      device_variants("conv2d", "bwd",
                      convolution::cuda_backward_variants<convolution::BackwardArgs>()),
      device_variants("attention", "fwd", attention::cuda_forward_variants()),
      device_variants("attention", "bwd", attention::cuda_backward_variants()),
      device_variants("softmax", "fwd", softmax::cuda_forward_variants()),
      device_variants("softmax", "bwd", softmax::cuda_backward_variants()),
      device_variants("pool2d", "fwd", pool2d::cuda_forward_variants()),
      device_variants("pool2d", "bwd", pool2d::cuda_backward_variants()),
      device_variants("cross_entropy", "fwd", cross_entropy::cuda_forward_variants()),
      device_variants("cross_entropy", "bwd", cross_entropy::cuda_backward_variants()),
      device_variants("linear_cross_entropy", "fwd", linear_cross_entropy::cuda_forward_variants()),
      device_variants("linear_cross_entropy", "bwd",
                      linear_cross_entropy::cuda_backward_variants()),
      device_variants("embedding", "fwd", embedding::cuda_forward_variants()),
      device_variants("embedding", "bwd", embedding::cuda_backward_variants()),
      device_variants("group_norm", "fwd",
                      channel_norm::cuda_forward_variants<channel_norm::GroupForwardArgs>()),
      device_variants("group_norm", "bwd",
                      channel_norm::cuda_backward_variants<channel_norm::GroupBackwardArgs>()),
      device_variants("batch_norm", "fwd",
                      channel_norm::cuda_forward_variants<channel_norm::BatchForwardArgs>()),
      device_variants("batch_norm", "bwd",
                      channel_norm::cuda_backward_variants<channel_norm::BatchBackwardArgs>()),
      device_variants("sgd", "fwd", sgd::cuda_variants()),
      device_variants("adam", "fwd", adam::cuda_variants()),
      device_variants("lion", "fwd", lion::cuda_variants()),
      device_variants("vector_norm", "fwd", vector_norm::cuda_variants()),
      device_variants("interpolate", "fwd", interpolate::cuda_forward_variants()),
      device_variants("interpolate", "bwd", interpolate::cuda_backward_variants()),
      device_variants("reduce", "fwd", reduce::cuda_forward_variants()),
      device_variants("reduce", "bwd", reduce::cuda_backward_variants()),
  };
  static const DeviceLibrary kLibrary = {simt::kDevice, simt::missing, simt::gpu,
                                         simt::about,   simt::kMemory, kOperations};
  return kLibrary;
}

}  // namespace isobit
