// SPDX-License-Identifier: Apache-2.0
// What a caller of attention includes: softmax(q k' scale) v, and its gradients.
#pragma once

#include <cstdint>

#include "isobit/core/execution.h"
#include "isobit/core/tensor_view.h"

namespace isobit {
class Operation;
}

namespace isobit::attention {

// Which keys a query sees. Query i stands at position i, or where the last query stands at the last
// key (bottom_right) at i + seq_k - seq_q; it sees keys up to its position.
enum class Causal { no, top_left, bottom_right };

// How products are summed: the same bits everywhere; or by the tensor cores of a GPU, of 16 bits
// alone, and on processors as AMX does it, of forward in bf16 alone.
enum class Arithmetic { canonical, tensor };

// What both passes take beside their arrays.
struct Options {
  Causal causal = Causal::no;
  std::int64_t window = 0;  // keys less than this far from the query's position; 0: all
  double scale = 0;         // of q k'; 0: 1 / sqrt(head_dim)
  double softcap = 0;       // scores become softcap tanh(scores / softcap); 0: they do not
  double dropout = 0;       // probability that a weight is dropped
  std::uint64_t dropout_seed = 0;
};

// A sequence has the keys from key_begin to before key_end: others are not there, whatever k and v
// hold. Keys are counted from key_begin where they are summed and dropped, so that bits are those
// of the sequence alone; positions are those in all of k. A score is q k' scale, capped, plus bias,
// minus slope |i + seq_k - seq_q - j| of query i and key j, whatever causal says. A key that is not
// allowed (by causal, window, mask, or a score of -infinity) is not there, whatever k and v hold; a
// query without keys gives +0. Query head h reads head h / (heads / kv_heads) of k and v. All
// arrays may have any strides.
// Packed sequences lie one behind the other in arrays whose batch is 1: sequence s has the queries
// from query_starts[s] to before query_starts[s + 1], and the keys that key_starts says, or blocks.
// It is the call of it alone, the s-th of a batch as dropout counts. What lies behind the last is
// no sequence: queries have no keys there, and gradients are +0.
// With blocks, k and v are a pool, (blocks, kv_heads, keys of a block, elements): key j of sequence
// s lies in block blocks[s, j / keys of a block], and key_end[s] is the number of its keys. The
// last query of bottom_right stands at the last of these.
struct ForwardArgs : Options {
  TensorView q;          // (batch, heads, seq_q, head_dim)
  TensorView k;          // (batch, kv_heads, seq_k, head_dim)
  TensorView v;          // (batch, kv_heads, seq_k, value_dim)
  TensorView bias = {};  // (batch, heads, seq_q, seq_k), optional
  TensorView mask = {};  // the same in bool, optional: true where a key is allowed
  TensorView y;          // (batch, heads, seq_q, value_dim)
  TensorView lse = {};   // (batch, heads, seq_q), optional: log of the sum of e^score
  // For backward: e^score is 2^max times a weight, and `sum` is that of the weights.
  TensorView max = {}, sum = {};                  // like lse, optional
  TensorView slopes = {};                         // (batch, heads) in f32, f64 beside f64, optional
  TensorView key_begin = {}, key_end = {};        // (batch) in i64, each optional
  TensorView query_starts = {}, key_starts = {};  // (sequences + 1) in i64, optional
  TensorView blocks = {};                         // (sequences, places) in i64, optional
  Arithmetic arithmetic = Arithmetic::canonical;
};

struct BackwardArgs : Options {
  TensorView grad_y;                                 // like y
  TensorView grad_lse = {};                          // like lse, optional
  TensorView q, k, v;                                // as in forward
  TensorView bias = {}, mask = {};                   // as in forward, optional
  TensorView y, max, sum;                            // as forward gave them
  TensorView grad_q = {}, grad_k = {}, grad_v = {};  // like q, k and v, each optional
  TensorView grad_bias = {};  // like bias, of which no element may serve twice; optional
  TensorView slopes = {};     // as in forward, optional; they have no gradient
  TensorView key_begin = {}, key_end = {};        // as in forward, each optional
  TensorView query_starts = {}, key_starts = {};  // as in forward, both or neither
  Arithmetic arithmetic = Arithmetic::canonical;
};

void forward(const ForwardArgs& args, const Execution& execution);
void backward(const BackwardArgs& args, const Execution& execution);

const Operation& forward_operation();
const Operation& backward_operation();

}  // namespace isobit::attention
