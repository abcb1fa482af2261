// SPDX-License-Identifier: Apache-2.0
// What a caller of embedding includes: rows of a table by their numbers, and the gradient of the
// table.
#pragma once

#include "isobit/core/execution.h"
#include "isobit/core/tensor_view.h"

namespace isobit {
class Operation;
}

namespace isobit::embedding {

// y[i] = weight[index[i]]: the very bytes. On the processor an index that is no token is an error;
// on a device its row is NaN.
struct ForwardArgs {
  TensorView weight;  // (tokens, cols)
  TensorView index;   // (...) in i64 or i32
  TensorView y;       // (..., cols)
};

// grad_weight[t] = the sum of grad_y[i] over the i with index[i] = t, in their order: that of
// core/order.h for sums over rows. Rows of tokens that do not occur are 0.
struct BackwardArgs {
  TensorView grad_y;                // (..., cols)
  TensorView index;                 // as in forward; on a device, what is no token has no part
  TensorView grad_weight;           // (tokens, cols)
  std::int64_t padding_idx = -1;    // the token whose row is 0, whatever occurs; -1 for none
  bool scale_grad_by_freq = false;  // rows are divided by how often their token occurs
};

void forward(const ForwardArgs& args, const Execution& execution);
void backward(const BackwardArgs& args, const Execution& execution);

const Operation& forward_operation();
const Operation& backward_operation();

}  // namespace isobit::embedding
