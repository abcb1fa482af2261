// SPDX-License-Identifier: Apache-2.0
// What a caller of rope includes: rotary position embeddings of queries and keys, forward and
// backward.
#pragma once

#include "isobit/core/execution.h"
#include "isobit/core/tensor_view.h"

namespace isobit {
class Operation;
}

namespace isobit::rope {

// Which elements of a head are turned together: i and i + pairs, or 2i and 2i + 1.
enum class Style { half, interleaved };

// Each pair (a, b) of a head becomes (a cos - b sin, b cos + a sin), with the cosine and sine of
// its token's position: offset_positions + positions, or offset_positions + the place in the
// sequence. Without tables, those of rope_tables with this base. Outputs may be their inputs.
struct ForwardArgs {
  TensorView q;               // (batch, seq, heads, head_dim)
  TensorView k = {};          // (batch, seq, kv_heads, head_dim), optional
  TensorView cos = {};        // (table, pairs), f32, or f64 beside f64, optional
  TensorView sin = {};        // like cos
  TensorView positions = {};  // (batch, seq) or (seq), i64, optional
  TensorView y_q;             // like q
  TensorView y_k = {};        // like k
  Style style = Style::half;
  double base = 10000;
  std::int64_t offset_positions = 0;
  std::int64_t rotary_dim = 0;  // elements of a head that turn; 0: all pairs of it
};

// The same by the opposite angles: grad_q and grad_k from grad_y_q and grad_y_k.
struct BackwardArgs {
  TensorView grad_y_q;
  TensorView grad_y_k = {};
  TensorView cos = {}, sin = {}, positions = {};
  TensorView grad_q;
  TensorView grad_k = {};
  Style style = Style::half;
  double base = 10000;
  std::int64_t offset_positions = 0;
  std::int64_t rotary_dim = 0;
};

void forward(const ForwardArgs& args, const Execution& execution);
void backward(const BackwardArgs& args, const Execution& execution);

const Operation& forward_operation();
const Operation& backward_operation();

}  // namespace isobit::rope
