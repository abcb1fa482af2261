// SPDX-License-Identifier: Apache-2.0
// Every operator as a struct and a function; isobit.hpp includes this file.
// Made by tools/faces.py from the operators' descriptions; changes belong there.
#ifndef ISOBIT_HPP
#include "isobit/isobit.hpp"
#endif

#ifndef ISOBIT_OPERATORS_HPP
#define ISOBIT_OPERATORS_HPP

namespace isobit {

// y = x + residual (add) or x + 1 (increment), rounded once; integers wrap around.
struct ElementwiseAdd {
  Tensor x = {}, residual = {};
  Output y = {};
};

namespace detail {
inline isobit_elementwise_add_args arguments(const ElementwiseAdd& given) {
  isobit_elementwise_add_args args = {};
  args.struct_size = sizeof args;
  args.x = given.x.get();
  args.residual = given.residual.get();
  args.y = given.y.get();
  return args;
}
}  // namespace detail

inline void add(const ElementwiseAdd& given, const Context& context = {}) {
  const isobit_elementwise_add_args args = detail::arguments(given);
  detail::check(isobit_elementwise_add(&args, &context));
}

// y = x + residual (add) or x + 1 (increment), rounded once; integers wrap around.
struct ElementwiseIncrement {
  Tensor x = {};
  Output y = {};
};

namespace detail {
inline isobit_elementwise_increment_args arguments(const ElementwiseIncrement& given) {
  isobit_elementwise_increment_args args = {};
  args.struct_size = sizeof args;
  args.x = given.x.get();
  args.y = given.y.get();
  return args;
}
}  // namespace detail

inline void increment(const ElementwiseIncrement& given, const Context& context = {}) {
  const isobit_elementwise_increment_args args = detail::arguments(given);
  detail::check(isobit_elementwise_increment(&args, &context));
}

// y = (x - mean) / sqrt(variance + eps) * weight + bias, each row (the last dimensions) by
// itself. With residual or dropout, s = dropout(x) + residual takes the place of x, rounded to
// the dtype of x. `hidden` stands for the last hidden_dims dimensions of x, whose elements must
// then be adjacent; rows are evenly spaced.
struct LayerNormForward {
  Tensor x = {}, weight = {}, bias = {}, residual = {};
  Output y = {}, sum = {}, mean = {}, rstd = {};
  double eps = 1e-05;
  double dropout = 0;
  std::uint64_t dropout_seed = 0;
  std::int64_t hidden_dims = 1;
  bool zero_centered = false;
};

namespace detail {
inline isobit_layernorm_forward_args arguments(const LayerNormForward& given) {
  isobit_layernorm_forward_args args = {};
  args.struct_size = sizeof args;
  args.x = given.x.get();
  args.weight = given.weight.get();
  args.bias = given.bias.get();
  args.residual = given.residual.get();
  args.y = given.y.get();
  args.sum = given.sum.get();
  args.mean = given.mean.get();
  args.rstd = given.rstd.get();
  args.eps = given.eps;
  args.dropout = given.dropout;
  args.dropout_seed = given.dropout_seed;
  args.hidden_dims = given.hidden_dims;
  args.zero_centered = given.zero_centered;
  return args;
}
}  // namespace detail

inline void layernorm_forward(const LayerNormForward& given, const Context& context = {}) {
  const isobit_layernorm_forward_args args = detail::arguments(given);
  detail::check(isobit_layernorm_forward(&args, &context));
}

// The gradients of layernorm_forward. Without mean and rstd both are computed from x again,
// which costs no memory traffic and is more exact than what any float can hold.
struct LayerNormBackward {
  Tensor x = {}, grad_y = {}, weight = {}, mean = {}, rstd = {}, grad_sum = {};
  Output grad_x = {}, grad_residual = {}, grad_weight = {}, grad_bias = {};
  double eps = 1e-05;
  double dropout = 0;
  std::uint64_t dropout_seed = 0;
  std::int64_t hidden_dims = 1;
  bool zero_centered = false;
};

namespace detail {
inline isobit_layernorm_backward_args arguments(const LayerNormBackward& given) {
  isobit_layernorm_backward_args args = {};
  args.struct_size = sizeof args;
  args.x = given.x.get();
  args.grad_y = given.grad_y.get();
  args.weight = given.weight.get();
  args.mean = given.mean.get();
  args.rstd = given.rstd.get();
  args.grad_sum = given.grad_sum.get();
  args.grad_x = given.grad_x.get();
  args.grad_residual = given.grad_residual.get();
  args.grad_weight = given.grad_weight.get();
  args.grad_bias = given.grad_bias.get();
  args.eps = given.eps;
  args.dropout = given.dropout;
  args.dropout_seed = given.dropout_seed;
  args.hidden_dims = given.hidden_dims;
  args.zero_centered = given.zero_centered;
  return args;
}
}  // namespace detail

inline void layernorm_backward(const LayerNormBackward& given, const Context& context = {}) {
  const isobit_layernorm_backward_args args = detail::arguments(given);
  detail::check(isobit_layernorm_backward(&args, &context));
}

// y = x / sqrt(mean(x^2) + eps) * weight, each row (the last dimensions) by itself. With
// residual or dropout, s = dropout(x) + residual takes the place of x, rounded to the dtype of
// x. `hidden` stands for the last hidden_dims dimensions of x, whose elements must then be
// adjacent; rows are evenly spaced.
struct RmsNormForward {
  Tensor x = {}, weight = {}, residual = {};
  Output y = {}, sum = {}, rstd = {};
  double eps = 1e-05;
  double dropout = 0;
  std::uint64_t dropout_seed = 0;
  std::int64_t hidden_dims = 1;
  bool zero_centered = false;
};

namespace detail {
inline isobit_rmsnorm_forward_args arguments(const RmsNormForward& given) {
  isobit_rmsnorm_forward_args args = {};
  args.struct_size = sizeof args;
  args.x = given.x.get();
  args.weight = given.weight.get();
  args.residual = given.residual.get();
  args.y = given.y.get();
  args.sum = given.sum.get();
  args.rstd = given.rstd.get();
  args.eps = given.eps;
  args.dropout = given.dropout;
  args.dropout_seed = given.dropout_seed;
  args.hidden_dims = given.hidden_dims;
  args.zero_centered = given.zero_centered;
  return args;
}
}  // namespace detail

inline void rmsnorm_forward(const RmsNormForward& given, const Context& context = {}) {
  const isobit_rmsnorm_forward_args args = detail::arguments(given);
  detail::check(isobit_rmsnorm_forward(&args, &context));
}

// The gradients of rmsnorm_forward. Without rstd it is computed from x again, which costs no
// memory traffic and is more exact than what any float can hold.
struct RmsNormBackward {
  Tensor x = {}, grad_y = {}, weight = {}, rstd = {}, grad_sum = {};
  Output grad_x = {}, grad_residual = {}, grad_weight = {};
  double eps = 1e-05;
  double dropout = 0;
  std::uint64_t dropout_seed = 0;
  std::int64_t hidden_dims = 1;
  bool zero_centered = false;
};

namespace detail {
inline isobit_rmsnorm_backward_args arguments(const RmsNormBackward& given) {
  isobit_rmsnorm_backward_args args = {};
  args.struct_size = sizeof args;
  args.x = given.x.get();
  args.grad_y = given.grad_y.get();
  args.weight = given.weight.get();
  args.rstd = given.rstd.get();
  args.grad_sum = given.grad_sum.get();
  args.grad_x = given.grad_x.get();
  args.grad_residual = given.grad_residual.get();
  args.grad_weight = given.grad_weight.get();
  args.eps = given.eps;
  args.dropout = given.dropout;
  args.dropout_seed = given.dropout_seed;
  args.hidden_dims = given.hidden_dims;
  args.zero_centered = given.zero_centered;
  return args;
}
}  // namespace detail

inline void rmsnorm_backward(const RmsNormBackward& given, const Context& context = {}) {
  const isobit_rmsnorm_backward_args args = detail::arguments(given);
  detail::check(isobit_rmsnorm_backward(&args, &context));
}

// y[..., j, i] = x[..., i, j]. Where the dtypes are equal, y has the very bytes of x; else each
// element is rounded once.
struct Transpose {
  Tensor x = {};
  Output y = {};
};

namespace detail {
inline isobit_transpose_args arguments(const Transpose& given) {
  isobit_transpose_args args = {};
  args.struct_size = sizeof args;
  args.x = given.x.get();
  args.y = given.y.get();
  return args;
}
}  // namespace detail

inline void transpose(const Transpose& given, const Context& context = {}) {
  const isobit_transpose_args args = detail::arguments(given);
  detail::check(isobit_transpose(&args, &context));
}

// y = f(x), or x * f(gate), of each element; f is exp, log, sigmoid, tanh, gelu, gelu_tanh or
// silu.
struct ActivationForward {
  Tensor x = {}, gate = {};
  Output y = {};
  int32_t function = 0;
};

namespace detail {
inline isobit_activation_forward_args arguments(const ActivationForward& given) {
  isobit_activation_forward_args args = {};
  args.struct_size = sizeof args;
  args.x = given.x.get();
  args.gate = given.gate.get();
  args.y = given.y.get();
  args.function = given.function;
  return args;
}
}  // namespace detail

inline void activation_forward(const ActivationForward& given, const Context& context = {}) {
  const isobit_activation_forward_args args = detail::arguments(given);
  detail::check(isobit_activation_forward(&args, &context));
}

// The gradients of activation_forward: grad_x = grad_y * f'(x); with a gate, grad_y * f(gate),
// and grad_gate = grad_y * x * f'(gate).
struct ActivationBackward {
  Tensor x = {}, grad_y = {}, gate = {};
  Output grad_x = {}, grad_gate = {};
  int32_t function = 0;
};

namespace detail {
inline isobit_activation_backward_args arguments(const ActivationBackward& given) {
  isobit_activation_backward_args args = {};
  args.struct_size = sizeof args;
  args.x = given.x.get();
  args.grad_y = given.grad_y.get();
  args.gate = given.gate.get();
  args.grad_x = given.grad_x.get();
  args.grad_gate = given.grad_gate.get();
  args.function = given.function;
  return args;
}
}  // namespace detail

inline void activation_backward(const ActivationBackward& given, const Context& context = {}) {
  const isobit_activation_backward_args args = detail::arguments(given);
  detail::check(isobit_activation_backward(&args, &context));
}

// Rotary position embeddings of queries, and of keys with as many heads or others: each pair (a,
// b) of a head becomes (a cos - b sin, b cos + a sin).
struct RopeForward {
  Tensor q = {}, k = {}, cos = {}, sin = {}, positions = {};
  Output y_q = {}, y_k = {};
  double base = 10000;
  std::int64_t offset_positions = 0;
  std::int64_t rotary_dim = 0;
  int32_t style = 0;
};

namespace detail {
inline isobit_rope_forward_args arguments(const RopeForward& given) {
  isobit_rope_forward_args args = {};
  args.struct_size = sizeof args;
  args.q = given.q.get();
  args.k = given.k.get();
  args.cos = given.cos.get();
  args.sin = given.sin.get();
  args.positions = given.positions.get();
  args.y_q = given.y_q.get();
  args.y_k = given.y_k.get();
  args.base = given.base;
  args.offset_positions = given.offset_positions;
  args.rotary_dim = given.rotary_dim;
  args.style = given.style;
  return args;
}
}  // namespace detail

inline void rope_forward(const RopeForward& given, const Context& context = {}) {
  const isobit_rope_forward_args args = detail::arguments(given);
  detail::check(isobit_rope_forward(&args, &context));
}

// The gradients of rope_forward: each pair (a, b) of a head's gradient becomes (a cos + b sin, b
// cos - a sin).
struct RopeBackward {
  Tensor grad_y_q = {}, grad_y_k = {}, cos = {}, sin = {}, positions = {};
  Output grad_q = {}, grad_k = {};
  double base = 10000;
  std::int64_t offset_positions = 0;
  std::int64_t rotary_dim = 0;
  int32_t style = 0;
};

namespace detail {
inline isobit_rope_backward_args arguments(const RopeBackward& given) {
  isobit_rope_backward_args args = {};
  args.struct_size = sizeof args;
  args.grad_y_q = given.grad_y_q.get();
  args.grad_y_k = given.grad_y_k.get();
  args.cos = given.cos.get();
  args.sin = given.sin.get();
  args.positions = given.positions.get();
  args.grad_q = given.grad_q.get();
  args.grad_k = given.grad_k.get();
  args.base = given.base;
  args.offset_positions = given.offset_positions;
  args.rotary_dim = given.rotary_dim;
  args.style = given.style;
  return args;
}
}  // namespace detail

inline void rope_backward(const RopeBackward& given, const Context& context = {}) {
  const isobit_rope_backward_args args = detail::arguments(given);
  detail::check(isobit_rope_backward(&args, &context));
}

// The cosines and sines that rope turns by: of the angles position * inv_freq, in f64, rounded
// once.
struct RopeTables {
  Tensor inv_freq = {}, positions = {};
  Output cos = {}, sin = {};
  double base = 10000;
  std::int64_t offset_positions = 0;
};

namespace detail {
inline isobit_rope_tables_args arguments(const RopeTables& given) {
  isobit_rope_tables_args args = {};
  args.struct_size = sizeof args;
  args.inv_freq = given.inv_freq.get();
  args.positions = given.positions.get();
  args.cos = given.cos.get();
  args.sin = given.sin.get();
  args.base = given.base;
  args.offset_positions = given.offset_positions;
  return args;
}
}  // namespace detail

inline void rope_tables(const RopeTables& given, const Context& context = {}) {
  const isobit_rope_tables_args args = detail::arguments(given);
  detail::check(isobit_rope_tables(&args, &context));
}

// Random numbers, each a function of the seed and of its place: uniform, normal, normal within
// bounds, or 0 and 1.
struct Random {
  Output y = {};
  double low = 0;
  double high = 1;
  double mean = 0;
  double std = 1;
  double p = 0.5;
  std::uint64_t random_seed = 0;
  std::uint64_t random_offset = 0;
  int32_t distribution = 0;
};

namespace detail {
inline isobit_random_args arguments(const Random& given) {
  isobit_random_args args = {};
  args.struct_size = sizeof args;
  args.y = given.y.get();
  args.low = given.low;
  args.high = given.high;
  args.mean = given.mean;
  args.std = given.std;
  args.p = given.p;
  args.random_seed = given.random_seed;
  args.random_offset = given.random_offset;
  args.distribution = given.distribution;
  return args;
}
}  // namespace detail

inline void random(const Random& given, const Context& context = {}) {
  const isobit_random_args args = detail::arguments(given);
  detail::check(isobit_random(&args, &context));
}

// Each element of x is 0 with probability p, else x / (1 - p); which ones depends on the seed
// and on their places.
struct Dropout {
  Tensor x = {};
  Output y = {};
  double p = 0.5;
  std::uint64_t dropout_seed = 0;
};

namespace detail {
inline isobit_dropout_args arguments(const Dropout& given) {
  isobit_dropout_args args = {};
  args.struct_size = sizeof args;
  args.x = given.x.get();
  args.y = given.y.get();
  args.p = given.p;
  args.dropout_seed = given.dropout_seed;
  return args;
}
}  // namespace detail

inline void dropout(const Dropout& given, const Context& context = {}) {
  const isobit_dropout_args args = detail::arguments(given);
  detail::check(isobit_dropout(&args, &context));
}

// The loss of each element and its target: squared, absolute, either by distance, or the cross
// entropy of a logit.
struct PointwiseLossForward {
  Tensor x = {}, target = {}, weight = {}, pos_weight = {};
  Output loss = {};
  double beta = 1;
  int32_t function = 0;
};

namespace detail {
inline isobit_pointwise_loss_forward_args arguments(const PointwiseLossForward& given) {
  isobit_pointwise_loss_forward_args args = {};
  args.struct_size = sizeof args;
  args.x = given.x.get();
  args.target = given.target.get();
  args.weight = given.weight.get();
  args.pos_weight = given.pos_weight.get();
  args.loss = given.loss.get();
  args.beta = given.beta;
  args.function = given.function;
  return args;
}
}  // namespace detail

inline void pointwise_loss_forward(const PointwiseLossForward& given, const Context& context = {}) {
  const isobit_pointwise_loss_forward_args args = detail::arguments(given);
  detail::check(isobit_pointwise_loss_forward(&args, &context));
}

// The gradient of pointwise_loss_forward by x.
struct PointwiseLossBackward {
  Tensor x = {}, target = {}, weight = {}, pos_weight = {}, grad_loss = {};
  Output grad_x = {};
  double beta = 1;
  int32_t function = 0;
};

namespace detail {
inline isobit_pointwise_loss_backward_args arguments(const PointwiseLossBackward& given) {
  isobit_pointwise_loss_backward_args args = {};
  args.struct_size = sizeof args;
  args.x = given.x.get();
  args.target = given.target.get();
  args.weight = given.weight.get();
  args.pos_weight = given.pos_weight.get();
  args.grad_loss = given.grad_loss.get();
  args.grad_x = given.grad_x.get();
  args.beta = given.beta;
  args.function = given.function;
  return args;
}
}  // namespace detail

inline void pointwise_loss_backward(const PointwiseLossBackward& given,
                                    const Context& context = {}) {
  const isobit_pointwise_loss_backward_args args = detail::arguments(given);
  detail::check(isobit_pointwise_loss_backward(&args, &context));
}

// Running sums, products, maxima, minima or logsumexps along the dimension before the last.
struct ScanSum {
  Tensor x = {}, init = {}, reset = {};
  Output y = {};
  bool exclusive = false;
  bool reverse = false;
};

namespace detail {
inline isobit_scan_sum_args arguments(const ScanSum& given) {
  isobit_scan_sum_args args = {};
  args.struct_size = sizeof args;
  args.x = given.x.get();
  args.init = given.init.get();
  args.reset = given.reset.get();
  args.y = given.y.get();
  args.exclusive = given.exclusive;
  args.reverse = given.reverse;
  return args;
}
}  // namespace detail

inline void sum(const ScanSum& given, const Context& context = {}) {
  const isobit_scan_sum_args args = detail::arguments(given);
  detail::check(isobit_scan_sum(&args, &context));
}

// Running sums, products, maxima, minima or logsumexps along the dimension before the last.
struct ScanProd {
  Tensor x = {}, init = {}, reset = {};
  Output y = {};
  bool exclusive = false;
  bool reverse = false;
};

namespace detail {
inline isobit_scan_prod_args arguments(const ScanProd& given) {
  isobit_scan_prod_args args = {};
  args.struct_size = sizeof args;
  args.x = given.x.get();
  args.init = given.init.get();
  args.reset = given.reset.get();
  args.y = given.y.get();
  args.exclusive = given.exclusive;
  args.reverse = given.reverse;
  return args;
}
}  // namespace detail

inline void prod(const ScanProd& given, const Context& context = {}) {
  const isobit_scan_prod_args args = detail::arguments(given);
  detail::check(isobit_scan_prod(&args, &context));
}

// Running sums, products, maxima, minima or logsumexps along the dimension before the last.
struct ScanMax {
  Tensor x = {}, init = {}, reset = {};
  Output y = {}, index = {};
  bool exclusive = false;
  bool reverse = false;
};

namespace detail {
inline isobit_scan_max_args arguments(const ScanMax& given) {
  isobit_scan_max_args args = {};
  args.struct_size = sizeof args;
  args.x = given.x.get();
  args.init = given.init.get();
  args.reset = given.reset.get();
  args.y = given.y.get();
  args.index = given.index.get();
  args.exclusive = given.exclusive;
  args.reverse = given.reverse;
  return args;
}
}  // namespace detail

inline void max(const ScanMax& given, const Context& context = {}) {
  const isobit_scan_max_args args = detail::arguments(given);
  detail::check(isobit_scan_max(&args, &context));
}

// Running sums, products, maxima, minima or logsumexps along the dimension before the last.
struct ScanMin {
  Tensor x = {}, init = {}, reset = {};
  Output y = {}, index = {};
  bool exclusive = false;
  bool reverse = false;
};

namespace detail {
inline isobit_scan_min_args arguments(const ScanMin& given) {
  isobit_scan_min_args args = {};
  args.struct_size = sizeof args;
  args.x = given.x.get();
  args.init = given.init.get();
  args.reset = given.reset.get();
  args.y = given.y.get();
  args.index = given.index.get();
  args.exclusive = given.exclusive;
  args.reverse = given.reverse;
  return args;
}
}  // namespace detail

inline void min(const ScanMin& given, const Context& context = {}) {
  const isobit_scan_min_args args = detail::arguments(given);
  detail::check(isobit_scan_min(&args, &context));
}

// Running sums, products, maxima, minima or logsumexps along the dimension before the last.
struct ScanLogsumexp {
  Tensor x = {}, init = {}, reset = {};
  Output y = {};
  bool exclusive = false;
  bool reverse = false;
};

namespace detail {
inline isobit_scan_logsumexp_args arguments(const ScanLogsumexp& given) {
  isobit_scan_logsumexp_args args = {};
  args.struct_size = sizeof args;
  args.x = given.x.get();
  args.init = given.init.get();
  args.reset = given.reset.get();
  args.y = given.y.get();
  args.exclusive = given.exclusive;
  args.reverse = given.reverse;
  return args;
}
}  // namespace detail

inline void logsumexp(const ScanLogsumexp& given, const Context& context = {}) {
  const isobit_scan_logsumexp_args args = detail::arguments(given);
  detail::check(isobit_scan_logsumexp(&args, &context));
}

// y = activation(alpha a b + beta c + bias) + residual, of matrices or batches of them.
struct Matmul {
  Tensor a = {}, b = {}, bias = {}, c = {}, residual = {};
  Output y = {}, pre = {};
  double alpha = 1;
  double beta = 0;
  int32_t activation = 0;
  int32_t arithmetic = 0;
};

namespace detail {
inline isobit_matmul_args arguments(const Matmul& given) {
  isobit_matmul_args args = {};
  args.struct_size = sizeof args;
  args.a = given.a.get();
  args.b = given.b.get();
  args.bias = given.bias.get();
  args.c = given.c.get();
  args.residual = given.residual.get();
  args.y = given.y.get();
  args.pre = given.pre.get();
  args.alpha = given.alpha;
  args.beta = given.beta;
  args.activation = given.activation;
  args.arithmetic = given.arithmetic;
  return args;
}
}  // namespace detail

inline void matmul(const Matmul& given, const Context& context = {}) {
  const isobit_matmul_args args = detail::arguments(given);
  detail::check(isobit_matmul(&args, &context));
}

// The gradients of matmul: with s = grad_y activation'(pre), grad_a = alpha s b', grad_b = alpha
// a' s, grad_bias the sum of s over its rows, grad_c = beta s.
struct MatmulBackward {
  Tensor grad_y = {}, a = {}, b = {}, pre = {};
  Output grad_a = {}, grad_b = {}, grad_bias = {}, grad_c = {};
  double alpha = 1;
  double beta = 0;
  int32_t activation = 0;
  int32_t arithmetic = 0;
};

namespace detail {
inline isobit_matmul_backward_args arguments(const MatmulBackward& given) {
  isobit_matmul_backward_args args = {};
  args.struct_size = sizeof args;
  args.grad_y = given.grad_y.get();
  args.a = given.a.get();
  args.b = given.b.get();
  args.pre = given.pre.get();
  args.grad_a = given.grad_a.get();
  args.grad_b = given.grad_b.get();
  args.grad_bias = given.grad_bias.get();
  args.grad_c = given.grad_c.get();
  args.alpha = given.alpha;
  args.beta = given.beta;
  args.activation = given.activation;
  args.arithmetic = given.arithmetic;
  return args;
}
}  // namespace detail

inline void matmul_backward(const MatmulBackward& given, const Context& context = {}) {
  const isobit_matmul_backward_args args = detail::arguments(given);
  detail::check(isobit_matmul_backward(&args, &context));
}

// z = activation(y weight' + bias) + residual, where y = LayerNorm(x), with norm_weight and
// norm_bias, rounded to the dtype of weight. With x_residual or dropout, s = dropout(x) +
// x_residual takes the place of x, rounded to the dtype of x.
struct LayerNormLinearForward {
  Tensor x = {}, norm_weight = {}, norm_bias = {}, weight = {}, bias = {}, x_residual = {},
         residual = {};
  Output z = {}, pre = {}, sum = {}, y = {}, mean = {}, rstd = {};
  double eps = 1e-05;
  double dropout = 0;
  std::uint64_t dropout_seed = 0;
  bool zero_centered = false;
  int32_t activation = 0;
  int32_t arithmetic = 0;
};

namespace detail {
inline isobit_layernorm_linear_forward_args arguments(const LayerNormLinearForward& given) {
  isobit_layernorm_linear_forward_args args = {};
  args.struct_size = sizeof args;
  args.x = given.x.get();
  args.norm_weight = given.norm_weight.get();
  args.norm_bias = given.norm_bias.get();
  args.weight = given.weight.get();
  args.bias = given.bias.get();
  args.x_residual = given.x_residual.get();
  args.residual = given.residual.get();
  args.z = given.z.get();
  args.pre = given.pre.get();
  args.sum = given.sum.get();
  args.y = given.y.get();
  args.mean = given.mean.get();
  args.rstd = given.rstd.get();
  args.eps = given.eps;
  args.dropout = given.dropout;
  args.dropout_seed = given.dropout_seed;
  args.zero_centered = given.zero_centered;
  args.activation = given.activation;
  args.arithmetic = given.arithmetic;
  return args;
}
}  // namespace detail

inline void layernorm_linear_forward(const LayerNormLinearForward& given,
                                     const Context& context = {}) {
  const isobit_layernorm_linear_forward_args args = detail::arguments(given);
  detail::check(isobit_layernorm_linear_forward(&args, &context));
}

// The gradients of layernorm_linear_forward. Of forward's results it takes pre alone, and that
// only where there is an activation: statistics and y are computed from x again.
struct LayerNormLinearBackward {
  Tensor grad_z = {}, x = {}, norm_weight = {}, norm_bias = {}, weight = {}, pre = {},
         grad_sum = {};
  Output grad_x = {}, grad_x_residual = {}, grad_norm_weight = {}, grad_norm_bias = {},
         grad_weight = {}, grad_bias = {};
  double eps = 1e-05;
  double dropout = 0;
  std::uint64_t dropout_seed = 0;
  bool zero_centered = false;
  int32_t activation = 0;
  int32_t arithmetic = 0;
};

namespace detail {
inline isobit_layernorm_linear_backward_args arguments(const LayerNormLinearBackward& given) {
  isobit_layernorm_linear_backward_args args = {};
  args.struct_size = sizeof args;
  args.grad_z = given.grad_z.get();
  args.x = given.x.get();
  args.norm_weight = given.norm_weight.get();
  args.norm_bias = given.norm_bias.get();
  args.weight = given.weight.get();
  args.pre = given.pre.get();
  args.grad_sum = given.grad_sum.get();
  args.grad_x = given.grad_x.get();
  args.grad_x_residual = given.grad_x_residual.get();
  args.grad_norm_weight = given.grad_norm_weight.get();
  args.grad_norm_bias = given.grad_norm_bias.get();
  args.grad_weight = given.grad_weight.get();
  args.grad_bias = given.grad_bias.get();
  args.eps = given.eps;
  args.dropout = given.dropout;
  args.dropout_seed = given.dropout_seed;
  args.zero_centered = given.zero_centered;
  args.activation = given.activation;
  args.arithmetic = given.arithmetic;
  return args;
}
}  // namespace detail

inline void layernorm_linear_backward(const LayerNormLinearBackward& given,
                                      const Context& context = {}) {
  const isobit_layernorm_linear_backward_args args = detail::arguments(given);
  detail::check(isobit_layernorm_linear_backward(&args, &context));
}

// z = activation(y weight' + bias) + residual, where y = RMSNorm(x), with norm_weight, rounded
// to the dtype of weight. With x_residual or dropout, s = dropout(x) + x_residual takes the
// place of x, rounded to the dtype of x.
struct RmsNormLinearForward {
  Tensor x = {}, norm_weight = {}, weight = {}, bias = {}, x_residual = {}, residual = {};
  Output z = {}, pre = {}, sum = {}, y = {}, rstd = {};
  double eps = 1e-05;
  double dropout = 0;
  std::uint64_t dropout_seed = 0;
  bool zero_centered = false;
  int32_t activation = 0;
  int32_t arithmetic = 0;
};

namespace detail {
inline isobit_rmsnorm_linear_forward_args arguments(const RmsNormLinearForward& given) {
  isobit_rmsnorm_linear_forward_args args = {};
  args.struct_size = sizeof args;
  args.x = given.x.get();
  args.norm_weight = given.norm_weight.get();
  args.weight = given.weight.get();
  args.bias = given.bias.get();
  args.x_residual = given.x_residual.get();
  args.residual = given.residual.get();
  args.z = given.z.get();
  args.pre = given.pre.get();
  args.sum = given.sum.get();
  args.y = given.y.get();
  args.rstd = given.rstd.get();
  args.eps = given.eps;
  args.dropout = given.dropout;
  args.dropout_seed = given.dropout_seed;
  args.zero_centered = given.zero_centered;
  args.activation = given.activation;
  args.arithmetic = given.arithmetic;
  return args;
}
}  // namespace detail

inline void rmsnorm_linear_forward(const RmsNormLinearForward& given, const Context& context = {}) {
  const isobit_rmsnorm_linear_forward_args args = detail::arguments(given);
  detail::check(isobit_rmsnorm_linear_forward(&args, &context));
}

// The gradients of rmsnorm_linear_forward. Of forward's results it takes pre alone, and that
// only where there is an activation: statistics and y are computed from x again.
struct RmsNormLinearBackward {
  Tensor grad_z = {}, x = {}, norm_weight = {}, weight = {}, pre = {}, grad_sum = {};
  Output grad_x = {}, grad_x_residual = {}, grad_norm_weight = {}, grad_weight = {}, grad_bias = {};
  double eps = 1e-05;
  double dropout = 0;
  std::uint64_t dropout_seed = 0;
  bool zero_centered = false;
  int32_t activation = 0;
  int32_t arithmetic = 0;
};

namespace detail {
inline isobit_rmsnorm_linear_backward_args arguments(const RmsNormLinearBackward& given) {
  isobit_rmsnorm_linear_backward_args args = {};
  args.struct_size = sizeof args;
  args.grad_z = given.grad_z.get();
  args.x = given.x.get();
  args.norm_weight = given.norm_weight.get();
  args.weight = given.weight.get();
  args.pre = given.pre.get();
  args.grad_sum = given.grad_sum.get();
  args.grad_x = given.grad_x.get();
  args.grad_x_residual = given.grad_x_residual.get();
  args.grad_norm_weight = given.grad_norm_weight.get();
  args.grad_weight = given.grad_weight.get();
  args.grad_bias = given.grad_bias.get();
  args.eps = given.eps;
  args.dropout = given.dropout;
  args.dropout_seed = given.dropout_seed;
  args.zero_centered = given.zero_centered;
  args.activation = given.activation;
  args.arithmetic = given.arithmetic;
  return args;
}
}  // namespace detail

inline void rmsnorm_linear_backward(const RmsNormLinearBackward& given,
                                    const Context& context = {}) {
  const isobit_rmsnorm_linear_backward_args args = detail::arguments(given);
  detail::check(isobit_rmsnorm_linear_backward(&args, &context));
}

// y = activation(pre) + residual; pre = the sums of x times weight over windows of one
// dimension, plus bias.
struct Conv1d {
  Tensor x = {}, weight = {}, bias = {}, residual = {};
  Output y = {}, pre = {};
  std::int64_t stride = 1;
  std::int64_t dilation = 1;
  std::int64_t padding = 0;
  std::int64_t extra_padding = 0;
  std::int64_t groups = 1;
  int32_t padding_mode = 0;
  int32_t activation = 0;
};

namespace detail {
inline isobit_conv1d_args arguments(const Conv1d& given) {
  isobit_conv1d_args args = {};
  args.struct_size = sizeof args;
  args.x = given.x.get();
  args.weight = given.weight.get();
  args.bias = given.bias.get();
  args.residual = given.residual.get();
  args.y = given.y.get();
  args.pre = given.pre.get();
  args.stride = given.stride;
  args.dilation = given.dilation;
  args.padding = given.padding;
  args.extra_padding = given.extra_padding;
  args.groups = given.groups;
  args.padding_mode = given.padding_mode;
  args.activation = given.activation;
  return args;
}
}  // namespace detail

inline void conv1d(const Conv1d& given, const Context& context = {}) {
  const isobit_conv1d_args args = detail::arguments(given);
  detail::check(isobit_conv1d(&args, &context));
}

// The gradients of conv1d without an activation; grad_x alone is a transposed convolution.
struct Conv1dBackward {
  Tensor grad_y = {}, x = {}, weight = {};
  Output grad_x = {}, grad_weight = {}, grad_bias = {};
  std::int64_t stride = 1;
  std::int64_t dilation = 1;
  std::int64_t padding = 0;
  std::int64_t extra_padding = 0;
  std::int64_t groups = 1;
  int32_t padding_mode = 0;
};

namespace detail {
inline isobit_conv1d_backward_args arguments(const Conv1dBackward& given) {
  isobit_conv1d_backward_args args = {};
  args.struct_size = sizeof args;
  args.grad_y = given.grad_y.get();
  args.x = given.x.get();
  args.weight = given.weight.get();
  args.grad_x = given.grad_x.get();
  args.grad_weight = given.grad_weight.get();
  args.grad_bias = given.grad_bias.get();
  args.stride = given.stride;
  args.dilation = given.dilation;
  args.padding = given.padding;
  args.extra_padding = given.extra_padding;
  args.groups = given.groups;
  args.padding_mode = given.padding_mode;
  return args;
}
}  // namespace detail

inline void conv1d_backward(const Conv1dBackward& given, const Context& context = {}) {
  const isobit_conv1d_backward_args args = detail::arguments(given);
  detail::check(isobit_conv1d_backward(&args, &context));
}

// y = activation(pre) + residual; pre = the sums of x times weight over windows of images, plus
// bias.
struct Conv2d {
  Tensor x = {}, weight = {}, bias = {}, residual = {};
  Output y = {}, pre = {};
  std::int64_t stride_h = 1;
  std::int64_t stride_w = 1;
  std::int64_t dilation_h = 1;
  std::int64_t dilation_w = 1;
  std::int64_t padding_h = 0;
  std::int64_t padding_w = 0;
  std::int64_t extra_padding_h = 0;
  std::int64_t extra_padding_w = 0;
  std::int64_t groups = 1;
  int32_t padding_mode = 0;
  int32_t activation = 0;
};

namespace detail {
inline isobit_conv2d_args arguments(const Conv2d& given) {
  isobit_conv2d_args args = {};
  args.struct_size = sizeof args;
  args.x = given.x.get();
  args.weight = given.weight.get();
  args.bias = given.bias.get();
  args.residual = given.residual.get();
  args.y = given.y.get();
  args.pre = given.pre.get();
  args.stride_h = given.stride_h;
  args.stride_w = given.stride_w;
  args.dilation_h = given.dilation_h;
  args.dilation_w = given.dilation_w;
  args.padding_h = given.padding_h;
  args.padding_w = given.padding_w;
  args.extra_padding_h = given.extra_padding_h;
  args.extra_padding_w = given.extra_padding_w;
  args.groups = given.groups;
  args.padding_mode = given.padding_mode;
  args.activation = given.activation;
  return args;
}
}  // namespace detail

inline void conv2d(const Conv2d& given, const Context& context = {}) {
  const isobit_conv2d_args args = detail::arguments(given);
  detail::check(isobit_conv2d(&args, &context));
}

// The gradients of conv2d without an activation; grad_x alone is a transposed convolution.
struct Conv2dBackward {
  Tensor grad_y = {}, x = {}, weight = {};
  Output grad_x = {}, grad_weight = {}, grad_bias = {};
  std::int64_t stride_h = 1;
  std::int64_t stride_w = 1;
  std::int64_t dilation_h = 1;
  std::int64_t dilation_w = 1;
  std::int64_t padding_h = 0;
  std::int64_t padding_w = 0;
  std::int64_t extra_padding_h = 0;
  std::int64_t extra_padding_w = 0;
  std::int64_t groups = 1;
  int32_t padding_mode = 0;
};

namespace detail {
inline isobit_conv2d_backward_args arguments(const Conv2dBackward& given) {
  isobit_conv2d_backward_args args = {};
  args.struct_size = sizeof args;
  args.grad_y = given.grad_y.get();
  args.x = given.x.get();
  args.weight = given.weight.get();
  args.grad_x = given.grad_x.get();
  args.grad_weight = given.grad_weight.get();
  args.grad_bias = given.grad_bias.get();
  args.stride_h = given.stride_h;
  args.stride_w = given.stride_w;
  args.dilation_h = given.dilation_h;
  args.dilation_w = given.dilation_w;
  args.padding_h = given.padding_h;
  args.padding_w = given.padding_w;
  args.extra_padding_h = given.extra_padding_h;
  args.extra_padding_w = given.extra_padding_w;
  args.groups = given.groups;
  args.padding_mode = given.padding_mode;
  return args;
}
}  // namespace detail

inline void conv2d_backward(const Conv2dBackward& given, const Context& context = {}) {
  const isobit_conv2d_backward_args args = detail::arguments(given);
  detail::check(isobit_conv2d_backward(&args, &context));
}

// y = softmax(q k' scale + bias) v, of each query over the keys that it sees.
struct AttentionForward {
  Tensor q = {}, k = {}, v = {}, bias = {}, mask = {}, slopes = {}, key_begin = {}, key_end = {},
         query_starts = {}, key_starts = {}, blocks = {};
  Output y = {}, lse = {}, max = {}, sum = {};
  std::int64_t window = 0;
  double scale = 0;
  double softcap = 0;
  double dropout = 0;
  std::uint64_t dropout_seed = 0;
  int32_t causal = 0;
  int32_t arithmetic = 0;
};

namespace detail {
inline isobit_attention_forward_args arguments(const AttentionForward& given) {
  isobit_attention_forward_args args = {};
  args.struct_size = sizeof args;
  args.q = given.q.get();
  args.k = given.k.get();
  args.v = given.v.get();
  args.bias = given.bias.get();
  args.mask = given.mask.get();
  args.y = given.y.get();
  args.lse = given.lse.get();
  args.max = given.max.get();
  args.sum = given.sum.get();
  args.slopes = given.slopes.get();
  args.key_begin = given.key_begin.get();
  args.key_end = given.key_end.get();
  args.query_starts = given.query_starts.get();
  args.key_starts = given.key_starts.get();
  args.blocks = given.blocks.get();
  args.window = given.window;
  args.scale = given.scale;
  args.softcap = given.softcap;
  args.dropout = given.dropout;
  args.dropout_seed = given.dropout_seed;
  args.causal = given.causal;
  args.arithmetic = given.arithmetic;
  return args;
}
}  // namespace detail

inline void attention_forward(const AttentionForward& given, const Context& context = {}) {
  const isobit_attention_forward_args args = detail::arguments(given);
  detail::check(isobit_attention_forward(&args, &context));
}

// The gradients of attention, from what forward gave: weights are made anew, and never stored as
// a whole.
struct AttentionBackward {
  Tensor grad_y = {}, grad_lse = {}, q = {}, k = {}, v = {}, bias = {}, mask = {}, y = {}, max = {},
         sum = {}, slopes = {}, key_begin = {}, key_end = {}, query_starts = {}, key_starts = {};
  Output grad_q = {}, grad_k = {}, grad_v = {}, grad_bias = {};
  std::int64_t window = 0;
  double scale = 0;
  double softcap = 0;
  double dropout = 0;
  std::uint64_t dropout_seed = 0;
  int32_t causal = 0;
  int32_t arithmetic = 0;
};

namespace detail {
inline isobit_attention_backward_args arguments(const AttentionBackward& given) {
  isobit_attention_backward_args args = {};
  args.struct_size = sizeof args;
  args.grad_y = given.grad_y.get();
  args.grad_lse = given.grad_lse.get();
  args.q = given.q.get();
  args.k = given.k.get();
  args.v = given.v.get();
  args.bias = given.bias.get();
  args.mask = given.mask.get();
  args.y = given.y.get();
  args.max = given.max.get();
  args.sum = given.sum.get();
  args.grad_q = given.grad_q.get();
  args.grad_k = given.grad_k.get();
  args.grad_v = given.grad_v.get();
  args.grad_bias = given.grad_bias.get();
  args.slopes = given.slopes.get();
  args.key_begin = given.key_begin.get();
  args.key_end = given.key_end.get();
  args.query_starts = given.query_starts.get();
  args.key_starts = given.key_starts.get();
  args.window = given.window;
  args.scale = given.scale;
  args.softcap = given.softcap;
  args.dropout = given.dropout;
  args.dropout_seed = given.dropout_seed;
  args.causal = given.causal;
  args.arithmetic = given.arithmetic;
  return args;
}
}  // namespace detail

inline void attention_backward(const AttentionBackward& given, const Context& context = {}) {
  const isobit_attention_backward_args args = detail::arguments(given);
  detail::check(isobit_attention_backward(&args, &context));
}

// y = exp(scale x) / sum of exp(scale x) over each row, the last dimension, or with log its
// logarithm. Where a mask is 0 there is no element: y is 0, or -infinity.
struct SoftmaxForward {
  Tensor x = {}, mask = {};
  Output y = {};
  double scale = 1;
  bool log = false;
};

namespace detail {
inline isobit_softmax_forward_args arguments(const SoftmaxForward& given) {
  isobit_softmax_forward_args args = {};
  args.struct_size = sizeof args;
  args.x = given.x.get();
  args.mask = given.mask.get();
  args.y = given.y.get();
  args.scale = given.scale;
  args.log = given.log;
  return args;
}
}  // namespace detail

inline void softmax_forward(const SoftmaxForward& given, const Context& context = {}) {
  const isobit_softmax_forward_args args = detail::arguments(given);
  detail::check(isobit_softmax_forward(&args, &context));
}

// The gradient of softmax_forward, from its result: scale y (grad_y - sum of grad_y y), or with
// log scale (grad_y - exp(y) sum of grad_y). 0 where a mask is 0.
struct SoftmaxBackward {
  Tensor y = {}, grad_y = {}, mask = {};
  Output grad_x = {};
  double scale = 1;
  bool log = false;
};

namespace detail {
inline isobit_softmax_backward_args arguments(const SoftmaxBackward& given) {
  isobit_softmax_backward_args args = {};
  args.struct_size = sizeof args;
  args.y = given.y.get();
  args.grad_y = given.grad_y.get();
  args.mask = given.mask.get();
  args.grad_x = given.grad_x.get();
  args.scale = given.scale;
  args.log = given.log;
  return args;
}
}  // namespace detail

inline void softmax_backward(const SoftmaxBackward& given, const Context& context = {}) {
  const isobit_softmax_backward_args args = detail::arguments(given);
  detail::check(isobit_softmax_backward(&args, &context));
}

// The largest element or the mean of each window of images.
struct Pool2dForward {
  Tensor x = {};
  Output y = {}, index = {};
  std::int64_t window_h = 0;
  std::int64_t window_w = 0;
  std::int64_t bins_h = 1;
  std::int64_t bins_w = 1;
  std::int64_t stride_h = 0;
  std::int64_t stride_w = 0;
  std::int64_t padding_h = 0;
  std::int64_t padding_w = 0;
  std::int64_t dilation_h = 1;
  std::int64_t dilation_w = 1;
  std::int64_t divisor = 0;
  int32_t reduction = 0;
  bool ceil_mode = false;
  bool count_include_pad = false;
};

namespace detail {
inline isobit_pool2d_forward_args arguments(const Pool2dForward& given) {
  isobit_pool2d_forward_args args = {};
  args.struct_size = sizeof args;
  args.x = given.x.get();
  args.y = given.y.get();
  args.index = given.index.get();
  args.window_h = given.window_h;
  args.window_w = given.window_w;
  args.bins_h = given.bins_h;
  args.bins_w = given.bins_w;
  args.stride_h = given.stride_h;
  args.stride_w = given.stride_w;
  args.padding_h = given.padding_h;
  args.padding_w = given.padding_w;
  args.dilation_h = given.dilation_h;
  args.dilation_w = given.dilation_w;
  args.divisor = given.divisor;
  args.reduction = given.reduction;
  args.ceil_mode = given.ceil_mode;
  args.count_include_pad = given.count_include_pad;
  return args;
}
}  // namespace detail

inline void pool2d_forward(const Pool2dForward& given, const Context& context = {}) {
  const isobit_pool2d_forward_args args = detail::arguments(given);
  detail::check(isobit_pool2d_forward(&args, &context));
}

// The gradient of pool2d_forward: the sums of the gradients of windows that an element was the
// largest of, or had a part in the mean of.
struct Pool2dBackward {
  Tensor grad_y = {}, index = {};
  Output grad_x = {};
  std::int64_t window_h = 0;
  std::int64_t window_w = 0;
  std::int64_t bins_h = 1;
  std::int64_t bins_w = 1;
  std::int64_t stride_h = 0;
  std::int64_t stride_w = 0;
  std::int64_t padding_h = 0;
  std::int64_t padding_w = 0;
  std::int64_t dilation_h = 1;
  std::int64_t dilation_w = 1;
  std::int64_t divisor = 0;
  int32_t reduction = 0;
  bool ceil_mode = false;
  bool count_include_pad = false;
};

namespace detail {
inline isobit_pool2d_backward_args arguments(const Pool2dBackward& given) {
  isobit_pool2d_backward_args args = {};
  args.struct_size = sizeof args;
  args.grad_y = given.grad_y.get();
  args.index = given.index.get();
  args.grad_x = given.grad_x.get();
  args.window_h = given.window_h;
  args.window_w = given.window_w;
  args.bins_h = given.bins_h;
  args.bins_w = given.bins_w;
  args.stride_h = given.stride_h;
  args.stride_w = given.stride_w;
  args.padding_h = given.padding_h;
  args.padding_w = given.padding_w;
  args.dilation_h = given.dilation_h;
  args.dilation_w = given.dilation_w;
  args.divisor = given.divisor;
  args.reduction = given.reduction;
  args.ceil_mode = given.ceil_mode;
  args.count_include_pad = given.count_include_pad;
  return args;
}
}  // namespace detail

inline void pool2d_backward(const Pool2dBackward& given, const Context& context = {}) {
  const isobit_pool2d_backward_args args = detail::arguments(given);
  detail::check(isobit_pool2d_backward(&args, &context));
}

// The loss of each row of logits beside the class that it should have named, w[target] ((1 -
// label_smoothing) (lse - x[target]) + z_loss lse^2) + label_smoothing / cols * sum of w[c] (lse
// - x[c]), with lse = log(sum of exp(x)) and w the weights. Where a target is ignore_index it is
// 0; any other that is no class is an error, on a device NaN.
struct CrossEntropyForward {
  Tensor x = {}, target = {}, weight = {};
  Output loss = {}, lse = {}, largest = {}, sum = {}, total = {}, count = {};
  std::int64_t ignore_index = -100;
  double label_smoothing = 0;
  double z_loss = 0;
};

namespace detail {
inline isobit_cross_entropy_forward_args arguments(const CrossEntropyForward& given) {
  isobit_cross_entropy_forward_args args = {};
  args.struct_size = sizeof args;
  args.x = given.x.get();
  args.target = given.target.get();
  args.weight = given.weight.get();
  args.loss = given.loss.get();
  args.lse = given.lse.get();
  args.largest = given.largest.get();
  args.sum = given.sum.get();
  args.total = given.total.get();
  args.count = given.count.get();
  args.ignore_index = given.ignore_index;
  args.label_smoothing = given.label_smoothing;
  args.z_loss = given.z_loss;
  return args;
}
}  // namespace detail

inline void cross_entropy_forward(const CrossEntropyForward& given, const Context& context = {}) {
  const isobit_cross_entropy_forward_args args = detail::arguments(given);
  detail::check(isobit_cross_entropy_forward(&args, &context));
}

// The gradient of the logits of cross_entropy_forward, from those of its losses. 0 in rows whose
// target is ignore_index.
struct CrossEntropyBackward {
  Tensor grad_loss = {}, x = {}, target = {}, weight = {}, largest = {}, sum = {};
  Output grad_x = {};
  std::int64_t ignore_index = -100;
  double label_smoothing = 0;
  double z_loss = 0;
};

namespace detail {
inline isobit_cross_entropy_backward_args arguments(const CrossEntropyBackward& given) {
  isobit_cross_entropy_backward_args args = {};
  args.struct_size = sizeof args;
  args.grad_loss = given.grad_loss.get();
  args.x = given.x.get();
  args.target = given.target.get();
  args.weight = given.weight.get();
  args.largest = given.largest.get();
  args.sum = given.sum.get();
  args.grad_x = given.grad_x.get();
  args.ignore_index = given.ignore_index;
  args.label_smoothing = given.label_smoothing;
  args.z_loss = given.z_loss;
  return args;
}
}  // namespace detail

inline void cross_entropy_backward(const CrossEntropyBackward& given, const Context& context = {}) {
  const isobit_cross_entropy_backward_args args = detail::arguments(given);
  detail::check(isobit_cross_entropy_backward(&args, &context));
}

// The losses of cross_entropy_forward of logits = x weight' + bias, each rounded to the dtype of
// x, with its bits. Only some rows of logits exist at a time.
struct LinearCrossEntropyForward {
  Tensor x = {}, weight = {}, bias = {}, target = {}, class_weight = {};
  Output loss = {}, lse = {}, largest = {}, sum = {}, total = {}, count = {};
  std::int64_t ignore_index = -100;
  double label_smoothing = 0;
  double z_loss = 0;
};

namespace detail {
inline isobit_linear_cross_entropy_forward_args arguments(const LinearCrossEntropyForward& given) {
  isobit_linear_cross_entropy_forward_args args = {};
  args.struct_size = sizeof args;
  args.x = given.x.get();
  args.weight = given.weight.get();
  args.bias = given.bias.get();
  args.target = given.target.get();
  args.class_weight = given.class_weight.get();
  args.loss = given.loss.get();
  args.lse = given.lse.get();
  args.largest = given.largest.get();
  args.sum = given.sum.get();
  args.total = given.total.get();
  args.count = given.count.get();
  args.ignore_index = given.ignore_index;
  args.label_smoothing = given.label_smoothing;
  args.z_loss = given.z_loss;
  return args;
}
}  // namespace detail

inline void linear_cross_entropy_forward(const LinearCrossEntropyForward& given,
                                         const Context& context = {}) {
  const isobit_linear_cross_entropy_forward_args args = detail::arguments(given);
  detail::check(isobit_linear_cross_entropy_forward(&args, &context));
}

// The gradients of linear_cross_entropy_forward, with the bits of matmul's of those of the
// logits, which are made anew, some rows at a time.
struct LinearCrossEntropyBackward {
  Tensor grad_loss = {}, x = {}, weight = {}, bias = {}, target = {}, class_weight = {},
         largest = {}, sum = {};
  Output grad_x = {}, grad_weight = {}, grad_bias = {};
  std::int64_t ignore_index = -100;
  double label_smoothing = 0;
  double z_loss = 0;
};

namespace detail {
inline isobit_linear_cross_entropy_backward_args arguments(
    const LinearCrossEntropyBackward& given) {
  isobit_linear_cross_entropy_backward_args args = {};
  args.struct_size = sizeof args;
  args.grad_loss = given.grad_loss.get();
  args.x = given.x.get();
  args.weight = given.weight.get();
  args.bias = given.bias.get();
  args.target = given.target.get();
  args.class_weight = given.class_weight.get();
  args.largest = given.largest.get();
  args.sum = given.sum.get();
  args.grad_x = given.grad_x.get();
  args.grad_weight = given.grad_weight.get();
  args.grad_bias = given.grad_bias.get();
  args.ignore_index = given.ignore_index;
  args.label_smoothing = given.label_smoothing;
  args.z_loss = given.z_loss;
  return args;
}
}  // namespace detail

inline void linear_cross_entropy_backward(const LinearCrossEntropyBackward& given,
                                          const Context& context = {}) {
  const isobit_linear_cross_entropy_backward_args args = detail::arguments(given);
  detail::check(isobit_linear_cross_entropy_backward(&args, &context));
}

// y[i] = weight[index[i]]: rows of a table by their numbers, the very bytes. An index that is no
// token is an error; on a device its row is NaN.
struct EmbeddingForward {
  Tensor weight = {}, index = {};
  Output y = {};
};

namespace detail {
inline isobit_embedding_forward_args arguments(const EmbeddingForward& given) {
  isobit_embedding_forward_args args = {};
  args.struct_size = sizeof args;
  args.weight = given.weight.get();
  args.index = given.index.get();
  args.y = given.y.get();
  return args;
}
}  // namespace detail

inline void embedding_forward(const EmbeddingForward& given, const Context& context = {}) {
  const isobit_embedding_forward_args args = detail::arguments(given);
  detail::check(isobit_embedding_forward(&args, &context));
}

// The gradient of embedding's table: for each token the sum of grad_y over the rows where it
// occurs, in their order. 0 for tokens that do not, and for padding_idx.
struct EmbeddingBackward {
  Tensor grad_y = {}, index = {};
  Output grad_weight = {};
  std::int64_t padding_idx = -1;
  bool scale_grad_by_freq = false;
};

namespace detail {
inline isobit_embedding_backward_args arguments(const EmbeddingBackward& given) {
  isobit_embedding_backward_args args = {};
  args.struct_size = sizeof args;
  args.grad_y = given.grad_y.get();
  args.index = given.index.get();
  args.grad_weight = given.grad_weight.get();
  args.padding_idx = given.padding_idx;
  args.scale_grad_by_freq = given.scale_grad_by_freq;
  return args;
}
}  // namespace detail

inline void embedding_backward(const EmbeddingBackward& given, const Context& context = {}) {
  const isobit_embedding_backward_args args = detail::arguments(given);
  detail::check(isobit_embedding_backward(&args, &context));
}

// y = (x - mean) / sqrt(variance + eps) * weight + bias, with mean and variance of each group of
// adjacent channels of an image, and a weight and a bias for each channel.
struct GroupNormForward {
  Tensor x = {}, weight = {}, bias = {};
  Output y = {}, mean = {}, rstd = {}, moments = {};
  std::int64_t groups = 1;
  double eps = 1e-05;
};

namespace detail {
inline isobit_group_norm_forward_args arguments(const GroupNormForward& given) {
  isobit_group_norm_forward_args args = {};
  args.struct_size = sizeof args;
  args.x = given.x.get();
  args.weight = given.weight.get();
  args.bias = given.bias.get();
  args.y = given.y.get();
  args.mean = given.mean.get();
  args.rstd = given.rstd.get();
  args.moments = given.moments.get();
  args.groups = given.groups;
  args.eps = given.eps;
  return args;
}
}  // namespace detail

inline void group_norm_forward(const GroupNormForward& given, const Context& context = {}) {
  const isobit_group_norm_forward_args args = detail::arguments(given);
  detail::check(isobit_group_norm_forward(&args, &context));
}

// The gradients of group_norm_forward. The statistics are those of the moments that forward gave
// or, without them, computed from x again.
struct GroupNormBackward {
  Tensor x = {}, grad_y = {}, weight = {}, moments = {};
  Output grad_x = {}, grad_weight = {}, grad_bias = {};
  std::int64_t groups = 1;
  double eps = 1e-05;
};

namespace detail {
inline isobit_group_norm_backward_args arguments(const GroupNormBackward& given) {
  isobit_group_norm_backward_args args = {};
  args.struct_size = sizeof args;
  args.x = given.x.get();
  args.grad_y = given.grad_y.get();
  args.weight = given.weight.get();
  args.grad_x = given.grad_x.get();
  args.grad_weight = given.grad_weight.get();
  args.grad_bias = given.grad_bias.get();
  args.moments = given.moments.get();
  args.groups = given.groups;
  args.eps = given.eps;
  return args;
}
}  // namespace detail

inline void group_norm_backward(const GroupNormBackward& given, const Context& context = {}) {
  const isobit_group_norm_backward_args args = detail::arguments(given);
  detail::check(isobit_group_norm_backward(&args, &context));
}

// y = (x - mean) / sqrt(variance + eps) * weight + bias for each channel: in training with mean
// and variance of the channel over all images, otherwise with the running ones.
struct BatchNormForward {
  Tensor x = {}, weight = {}, bias = {}, running_mean = {}, running_var = {};
  Output y = {}, mean = {}, rstd = {}, next_mean = {}, next_var = {}, moments = {};
  double momentum = 0.1;
  double eps = 1e-05;
  bool training = false;
};

namespace detail {
inline isobit_batch_norm_forward_args arguments(const BatchNormForward& given) {
  isobit_batch_norm_forward_args args = {};
  args.struct_size = sizeof args;
  args.x = given.x.get();
  args.weight = given.weight.get();
  args.bias = given.bias.get();
  args.running_mean = given.running_mean.get();
  args.running_var = given.running_var.get();
  args.y = given.y.get();
  args.mean = given.mean.get();
  args.rstd = given.rstd.get();
  args.next_mean = given.next_mean.get();
  args.next_var = given.next_var.get();
  args.moments = given.moments.get();
  args.momentum = given.momentum;
  args.eps = given.eps;
  args.training = given.training;
  return args;
}
}  // namespace detail

inline void batch_norm_forward(const BatchNormForward& given, const Context& context = {}) {
  const isobit_batch_norm_forward_args args = detail::arguments(given);
  detail::check(isobit_batch_norm_forward(&args, &context));
}

// The gradients of batch_norm_forward. In training the statistics are those of the moments that
// forward gave or, without them, computed from x again; otherwise the running ones.
struct BatchNormBackward {
  Tensor x = {}, grad_y = {}, weight = {}, running_mean = {}, running_var = {}, moments = {};
  Output grad_x = {}, grad_weight = {}, grad_bias = {};
  double eps = 1e-05;
  bool training = false;
};

namespace detail {
inline isobit_batch_norm_backward_args arguments(const BatchNormBackward& given) {
  isobit_batch_norm_backward_args args = {};
  args.struct_size = sizeof args;
  args.x = given.x.get();
  args.grad_y = given.grad_y.get();
  args.weight = given.weight.get();
  args.running_mean = given.running_mean.get();
  args.running_var = given.running_var.get();
  args.grad_x = given.grad_x.get();
  args.grad_weight = given.grad_weight.get();
  args.grad_bias = given.grad_bias.get();
  args.moments = given.moments.get();
  args.eps = given.eps;
  args.training = given.training;
  return args;
}
}  // namespace detail

inline void batch_norm_backward(const BatchNormBackward& given, const Context& context = {}) {
  const isobit_batch_norm_backward_args args = detail::arguments(given);
  detail::check(isobit_batch_norm_backward(&args, &context));
}

// A step of gradient descent, along the gradient or its average.
struct Sgd {
  Tensor param = {}, grad = {}, momentum_buffer = {};
  Output new_param = {}, new_momentum_buffer = {}, narrow = {};
  double lr = 0.001;
  double momentum = 0;
  double dampening = 0;
  double weight_decay = 0;
  bool nesterov = false;
  bool maximize = false;
};

namespace detail {
inline isobit_sgd_args arguments(const Sgd& given) {
  isobit_sgd_args args = {};
  args.struct_size = sizeof args;
  args.param = given.param.get();
  args.grad = given.grad.get();
  args.momentum_buffer = given.momentum_buffer.get();
  args.new_param = given.new_param.get();
  args.new_momentum_buffer = given.new_momentum_buffer.get();
  args.narrow = given.narrow.get();
  args.lr = given.lr;
  args.momentum = given.momentum;
  args.dampening = given.dampening;
  args.weight_decay = given.weight_decay;
  args.nesterov = given.nesterov;
  args.maximize = given.maximize;
  return args;
}
}  // namespace detail

inline void sgd(const Sgd& given, const Context& context = {}) {
  const isobit_sgd_args args = detail::arguments(given);
  detail::check(isobit_sgd(&args, &context));
}

// A step of Adam or, with decoupled, AdamW: the parameter moves by the average of gradients over
// the root of that of their squares.
struct Adam {
  Tensor param = {}, grad = {}, exp_avg = {}, exp_avg_sq = {}, max_exp_avg_sq = {};
  Output new_param = {}, new_exp_avg = {}, new_exp_avg_sq = {}, new_max_exp_avg_sq = {},
         narrow = {};
  double lr = 0.001;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-08;
  double weight_decay = 0;
  std::int64_t step = 1;
  bool decoupled = false;
  bool maximize = false;
};

namespace detail {
inline isobit_adam_args arguments(const Adam& given) {
  isobit_adam_args args = {};
  args.struct_size = sizeof args;
  args.param = given.param.get();
  args.grad = given.grad.get();
  args.exp_avg = given.exp_avg.get();
  args.exp_avg_sq = given.exp_avg_sq.get();
  args.max_exp_avg_sq = given.max_exp_avg_sq.get();
  args.new_param = given.new_param.get();
  args.new_exp_avg = given.new_exp_avg.get();
  args.new_exp_avg_sq = given.new_exp_avg_sq.get();
  args.new_max_exp_avg_sq = given.new_max_exp_avg_sq.get();
  args.narrow = given.narrow.get();
  args.lr = given.lr;
  args.beta1 = given.beta1;
  args.beta2 = given.beta2;
  args.eps = given.eps;
  args.weight_decay = given.weight_decay;
  args.step = given.step;
  args.decoupled = given.decoupled;
  args.maximize = given.maximize;
  return args;
}
}  // namespace detail

inline void adam(const Adam& given, const Context& context = {}) {
  const isobit_adam_args args = detail::arguments(given);
  detail::check(isobit_adam(&args, &context));
}

// A step of Lion: the parameter moves by lr against the sign of an average of gradients.
struct Lion {
  Tensor param = {}, grad = {}, exp_avg = {};
  Output new_param = {}, new_exp_avg = {}, narrow = {};
  double lr = 0.0001;
  double beta1 = 0.9;
  double beta2 = 0.99;
  double weight_decay = 0;
  bool maximize = false;
};

namespace detail {
inline isobit_lion_args arguments(const Lion& given) {
  isobit_lion_args args = {};
  args.struct_size = sizeof args;
  args.param = given.param.get();
  args.grad = given.grad.get();
  args.exp_avg = given.exp_avg.get();
  args.new_param = given.new_param.get();
  args.new_exp_avg = given.new_exp_avg.get();
  args.narrow = given.narrow.get();
  args.lr = given.lr;
  args.beta1 = given.beta1;
  args.beta2 = given.beta2;
  args.weight_decay = given.weight_decay;
  args.maximize = given.maximize;
  return args;
}
}  // namespace detail

inline void lion(const Lion& given, const Context& context = {}) {
  const isobit_lion_args args = detail::arguments(given);
  detail::check(isobit_lion(&args, &context));
}

// The length of each row: the root of its sum of squares, its sum of magnitudes, or its largest
// magnitude.
struct VectorNorm {
  Tensor x = {};
  Output norm = {};
  int32_t order = 0;
};

namespace detail {
inline isobit_vector_norm_args arguments(const VectorNorm& given) {
  isobit_vector_norm_args args = {};
  args.struct_size = sizeof args;
  args.x = given.x.get();
  args.norm = given.norm.get();
  args.order = given.order;
  return args;
}
}  // namespace detail

inline void vector_norm(const VectorNorm& given, const Context& context = {}) {
  const isobit_vector_norm_args args = detail::arguments(given);
  detail::check(isobit_vector_norm(&args, &context));
}

// Images of another size, whose elements are the nearest of x or weighted sums of 2 x 2 or 4 x 4
// of them.
struct InterpolateForward {
  Tensor x = {};
  Output y = {};
  double scale_h = 0;
  double scale_w = 0;
  int32_t mode = 0;
  bool align_corners = false;
};

namespace detail {
inline isobit_interpolate_forward_args arguments(const InterpolateForward& given) {
  isobit_interpolate_forward_args args = {};
  args.struct_size = sizeof args;
  args.x = given.x.get();
  args.y = given.y.get();
  args.scale_h = given.scale_h;
  args.scale_w = given.scale_w;
  args.mode = given.mode;
  args.align_corners = given.align_corners;
  return args;
}
}  // namespace detail

inline void interpolate_forward(const InterpolateForward& given, const Context& context = {}) {
  const isobit_interpolate_forward_args args = detail::arguments(given);
  detail::check(isobit_interpolate_forward(&args, &context));
}

// The gradient of interpolate_forward: the weighted sums of the gradients of results that an
// element had a part in.
struct InterpolateBackward {
  Tensor grad_y = {};
  Output grad_x = {};
  double scale_h = 0;
  double scale_w = 0;
  int32_t mode = 0;
  bool align_corners = false;
};

namespace detail {
inline isobit_interpolate_backward_args arguments(const InterpolateBackward& given) {
  isobit_interpolate_backward_args args = {};
  args.struct_size = sizeof args;
  args.grad_y = given.grad_y.get();
  args.grad_x = given.grad_x.get();
  args.scale_h = given.scale_h;
  args.scale_w = given.scale_w;
  args.mode = given.mode;
  args.align_corners = given.align_corners;
  return args;
}
}  // namespace detail

inline void interpolate_backward(const InterpolateBackward& given, const Context& context = {}) {
  const isobit_interpolate_backward_args args = detail::arguments(given);
  detail::check(isobit_interpolate_backward(&args, &context));
}

// The sum, the mean, the variance, its root, a norm, or the largest or smallest of the elements
// of x at each index of the dimensions that y keeps.
struct ReduceForward {
  Tensor x = {};
  Output y = {};
  double correction = 1;
  int32_t reduction = 0;
};

namespace detail {
inline isobit_reduce_forward_args arguments(const ReduceForward& given) {
  isobit_reduce_forward_args args = {};
  args.struct_size = sizeof args;
  args.x = given.x.get();
  args.y = given.y.get();
  args.correction = given.correction;
  args.reduction = given.reduction;
  return args;
}
}  // namespace detail

inline void reduce_forward(const ReduceForward& given, const Context& context = {}) {
  const isobit_reduce_forward_args args = detail::arguments(given);
  detail::check(isobit_reduce_forward(&args, &context));
}

// The gradient of reduce_forward. What it must know of x it finds again.
struct ReduceBackward {
  Tensor x = {}, grad_y = {};
  Output grad_x = {};
  double correction = 1;
  int32_t reduction = 0;
};

namespace detail {
inline isobit_reduce_backward_args arguments(const ReduceBackward& given) {
  isobit_reduce_backward_args args = {};
  args.struct_size = sizeof args;
  args.x = given.x.get();
  args.grad_y = given.grad_y.get();
  args.grad_x = given.grad_x.get();
  args.correction = given.correction;
  args.reduction = given.reduction;
  return args;
}
}  // namespace detail

inline void reduce_backward(const ReduceBackward& given, const Context& context = {}) {
  const isobit_reduce_backward_args args = detail::arguments(given);
  detail::check(isobit_reduce_backward(&args, &context));
}

}  // namespace isobit

#endif
