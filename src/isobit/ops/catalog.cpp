// SPDX-License-Identifier: Apache-2.0
// The one place that a new operator must be added to.
#include "isobit/ops/catalog.h"

#include "isobit/ops/activation/activation.h"
#include "isobit/ops/adam/adam.h"
#include "isobit/ops/attention/attention.h"
#include "isobit/ops/batch_norm/batch_norm.h"
#include "isobit/ops/conv1d/conv1d.h"
#include "isobit/ops/conv2d/conv2d.h"
#include "isobit/ops/cross_entropy/cross_entropy.h"
#include "isobit/ops/dropout/dropout.h"
#include "isobit/ops/elementwise/elementwise.h"
#include "isobit/ops/embedding/embedding.h"
#include "isobit/ops/group_norm/group_norm.h"
#include "isobit/ops/interpolate/interpolate.h"
#include "isobit/ops/layernorm/layernorm.h"
#include "isobit/ops/layernorm_linear/layernorm_linear.h"
#include "isobit/ops/linear_cross_entropy/linear_cross_entropy.h"
#include "isobit/ops/lion/lion.h"
#include "isobit/ops/matmul/matmul.h"
#include "isobit/ops/pointwise_loss/pointwise_loss.h"
#include "isobit/ops/pool2d/pool2d.h"
#include "isobit/ops/random/random.h"
#include "isobit/ops/reduce/reduce.h"
#include "isobit/ops/rmsnorm/rmsnorm.h"
#include "isobit/ops/rmsnorm_linear/rmsnorm_linear.h"
#include "isobit/ops/rope/rope.h"
#include "isobit/ops/rope_tables/rope_tables.h"
#include "isobit/ops/scan/scan.h"
#include "isobit/ops/sgd/sgd.h"
#include "isobit/ops/softmax/softmax.h"
#include "isobit/ops/transpose/transpose.h"
#include "isobit/ops/vector_norm/vector_norm.h"

namespace isobit {

std::span<const Operation* const> catalog() {
  static const Operation* const kOperations[] = {
      &elementwise::operation(),
      &layernorm::forward_operation(),
      &layernorm::backward_operation(),
      &rmsnorm::forward_operation(),
      &rmsnorm::backward_operation(),
      &transpose::operation(),
      &activation::forward_operation(),
      &activation::backward_operation(),
      &rope::forward_operation(),
      &rope::backward_operation(),
      &rope_tables::operation(),
      &random::operation(),
      &dropout::operation(),
      &pointwise_loss::forward_operation(),
      &pointwise_loss::backward_operation(),
      &scan::operation(),
      &matmul::forward_operation(),
      &matmul::backward_operation(),
      &layernorm_linear::forward_operation(),
      &layernorm_linear::backward_operation(),
      &rmsnorm_linear::forward_operation(),
      &rmsnorm_linear::backward_operation(),
      &conv1d::forward_operation(),
      &conv1d::backward_operation(),
      &conv2d::forward_operation(),
      &conv2d::backward_operation(),
      &attention::forward_operation(),
      &attention::backward_operation(),
      &softmax::forward_operation(),
      &softmax::backward_operation(),
      &pool2d::forward_operation(),
      &pool2d::backward_operation(),
      &cross_entropy::forward_operation(),
      &cross_entropy::backward_operation(),
      &linear_cross_entropy::forward_operation(),
      &linear_cross_entropy::backward_operation(),
      &embedding::forward_operation(),
      &embedding::backward_operation(),
      &group_norm::forward_operation(),
      &group_norm::backward_operation(),
      &batch_norm::forward_operation(),
      &batch_norm::backward_operation(),
      &sgd::operation(),
      &adam::operation(),
      &lion::operation(),
      &vector_norm::operation(),
      &interpolate::forward_operation(),
      &interpolate::backward_operation(),
      &reduce::forward_operation(),
      &reduce::backward_operation(),
  };
  return kOperations;
}

}  // namespace isobit
