// SPDX-License-Identifier: Apache-2.0
// Every operator as a struct and a function; isobit.hpp includes this file.
// Made by tools/faces.py from the operators' descriptions; changes belong there.
#ifndef ISOBIT_OPERATORS_HPP
#define ISOBIT_OPERATORS_HPP

#include "isobit/isobit.hpp"

namespace isobit {

// y = x + residual (add) or x + 1 (increment), rounded once; integers wrap around.
struct ElementwiseAdd {
  Tensor x = {}, residual = {};
  Output y = {};
};

inline void add(const ElementwiseAdd& given, const Context& context = {}) {
  isobit_elementwise_add_args args = {};
  args.struct_size = sizeof args;
  args.x = given.x.get();
  args.residual = given.residual.get();
  args.y = given.y.get();
  detail::check(isobit_elementwise_add(&args, &context));
}

// y = x + residual (add) or x + 1 (increment), rounded once; integers wrap around.
struct ElementwiseIncrement {
  Tensor x = {};
  Output y = {};
};

inline void increment(const ElementwiseIncrement& given, const Context& context = {}) {
  isobit_elementwise_increment_args args = {};
  args.struct_size = sizeof args;
  args.x = given.x.get();
  args.y = given.y.get();
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

inline void layernorm_forward(const LayerNormForward& given, const Context& context = {}) {
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

inline void layernorm_backward(const LayerNormBackward& given, const Context& context = {}) {
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

inline void rmsnorm_forward(const RmsNormForward& given, const Context& context = {}) {
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

inline void rmsnorm_backward(const RmsNormBackward& given, const Context& context = {}) {
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
  detail::check(isobit_rmsnorm_backward(&args, &context));
}

// y[..., j, i] = x[..., i, j]. Where the dtypes are equal, y has the very bytes of x; else each
// element is rounded once.
struct Transpose {
  Tensor x = {};
  Output y = {};
};

inline void transpose(const Transpose& given, const Context& context = {}) {
  isobit_transpose_args args = {};
  args.struct_size = sizeof args;
  args.x = given.x.get();
  args.y = given.y.get();
  detail::check(isobit_transpose(&args, &context));
}

// y = f(x), or x * f(gate), of each element; f is exp, log, sigmoid, tanh, gelu, gelu_tanh or
// silu.
struct ActivationForward {
  Tensor x = {}, gate = {};
  Output y = {};
  int32_t function = 0;
};

inline void activation_forward(const ActivationForward& given, const Context& context = {}) {
  isobit_activation_forward_args args = {};
  args.struct_size = sizeof args;
  args.x = given.x.get();
  args.gate = given.gate.get();
  args.y = given.y.get();
  args.function = given.function;
  detail::check(isobit_activation_forward(&args, &context));
}

// The gradients of activation_forward: grad_x = grad_y * f'(x); with a gate, grad_y * f(gate),
// and grad_gate = grad_y * x * f'(gate).
struct ActivationBackward {
  Tensor x = {}, grad_y = {}, gate = {};
  Output grad_x = {}, grad_gate = {};
  int32_t function = 0;
};

inline void activation_backward(const ActivationBackward& given, const Context& context = {}) {
  isobit_activation_backward_args args = {};
  args.struct_size = sizeof args;
  args.x = given.x.get();
  args.grad_y = given.grad_y.get();
  args.gate = given.gate.get();
  args.grad_x = given.grad_x.get();
  args.grad_gate = given.grad_gate.get();
  args.function = given.function;
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

inline void rope_forward(const RopeForward& given, const Context& context = {}) {
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

inline void rope_backward(const RopeBackward& given, const Context& context = {}) {
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

inline void rope_tables(const RopeTables& given, const Context& context = {}) {
  isobit_rope_tables_args args = {};
  args.struct_size = sizeof args;
  args.inv_freq = given.inv_freq.get();
  args.positions = given.positions.get();
  args.cos = given.cos.get();
  args.sin = given.sin.get();
  args.base = given.base;
  args.offset_positions = given.offset_positions;
  detail::check(isobit_rope_tables(&args, &context));
}

// Running sums, products, maxima, minima or logsumexps along the dimension before the last.
struct ScanSum {
  Tensor x = {}, init = {}, reset = {};
  Output y = {};
  bool exclusive = false;
  bool reverse = false;
};

inline void sum(const ScanSum& given, const Context& context = {}) {
  isobit_scan_sum_args args = {};
  args.struct_size = sizeof args;
  args.x = given.x.get();
  args.init = given.init.get();
  args.reset = given.reset.get();
  args.y = given.y.get();
  args.exclusive = given.exclusive;
  args.reverse = given.reverse;
  detail::check(isobit_scan_sum(&args, &context));
}

// Running sums, products, maxima, minima or logsumexps along the dimension before the last.
struct ScanProd {
  Tensor x = {}, init = {}, reset = {};
  Output y = {};
  bool exclusive = false;
  bool reverse = false;
};

inline void prod(const ScanProd& given, const Context& context = {}) {
  isobit_scan_prod_args args = {};
  args.struct_size = sizeof args;
  args.x = given.x.get();
  args.init = given.init.get();
  args.reset = given.reset.get();
  args.y = given.y.get();
  args.exclusive = given.exclusive;
  args.reverse = given.reverse;
  detail::check(isobit_scan_prod(&args, &context));
}

// Running sums, products, maxima, minima or logsumexps along the dimension before the last.
struct ScanMax {
  Tensor x = {}, init = {}, reset = {};
  Output y = {}, index = {};
  bool exclusive = false;
  bool reverse = false;
};

inline void max(const ScanMax& given, const Context& context = {}) {
  isobit_scan_max_args args = {};
  args.struct_size = sizeof args;
  args.x = given.x.get();
  args.init = given.init.get();
  args.reset = given.reset.get();
  args.y = given.y.get();
  args.index = given.index.get();
  args.exclusive = given.exclusive;
  args.reverse = given.reverse;
  detail::check(isobit_scan_max(&args, &context));
}

// Running sums, products, maxima, minima or logsumexps along the dimension before the last.
struct ScanMin {
  Tensor x = {}, init = {}, reset = {};
  Output y = {}, index = {};
  bool exclusive = false;
  bool reverse = false;
};

inline void min(const ScanMin& given, const Context& context = {}) {
  isobit_scan_min_args args = {};
  args.struct_size = sizeof args;
  args.x = given.x.get();
  args.init = given.init.get();
  args.reset = given.reset.get();
  args.y = given.y.get();
  args.index = given.index.get();
  args.exclusive = given.exclusive;
  args.reverse = given.reverse;
  detail::check(isobit_scan_min(&args, &context));
}

// Running sums, products, maxima, minima or logsumexps along the dimension before the last.
struct ScanLogsumexp {
  Tensor x = {}, init = {}, reset = {};
  Output y = {};
  bool exclusive = false;
  bool reverse = false;
};

inline void logsumexp(const ScanLogsumexp& given, const Context& context = {}) {
  isobit_scan_logsumexp_args args = {};
  args.struct_size = sizeof args;
  args.x = given.x.get();
  args.init = given.init.get();
  args.reset = given.reset.get();
  args.y = given.y.get();
  args.exclusive = given.exclusive;
  args.reverse = given.reverse;
  detail::check(isobit_scan_logsumexp(&args, &context));
}

// y = activation(alpha a b + beta c + bias) + residual, of matrices or batches of them.
struct Matmul {
  Tensor a = {}, b = {}, bias = {}, c = {}, residual = {};
  Output y = {}, pre = {};
  double alpha = 1;
  double beta = 0;
  int32_t activation = 0;
};

inline void matmul(const Matmul& given, const Context& context = {}) {
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
  detail::check(isobit_matmul(&args, &context));
}

}  // namespace isobit

#endif
