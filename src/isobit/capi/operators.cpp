// SPDX-License-Identifier: Apache-2.0
// The functions of isobit/operators.h: each hands its struct's members on, by name.
// Made by tools/faces.py from the operators' descriptions; changes belong there.
#include "isobit/capi/call.h"
#include "isobit/ops/activation/activation.h"
#include "isobit/ops/elementwise/elementwise.h"
#include "isobit/ops/layernorm/layernorm.h"
#include "isobit/ops/matmul/matmul.h"
#include "isobit/ops/rmsnorm/rmsnorm.h"
#include "isobit/ops/rope/rope.h"
#include "isobit/ops/rope_tables/rope_tables.h"
#include "isobit/ops/scan/scan.h"
#include "isobit/ops/transpose/transpose.h"

using namespace isobit;

isobit_status isobit_elementwise_add(const isobit_elementwise_add_args* args,
                                     const isobit_context* context) {
  return capi::call("elementwise", args, context,
                    [](const auto& given, const capi::Reader& read, const Execution& execution) {
                      elementwise::Args args;
                      args.x = read("x", given.x);
                      args.residual = read("residual", given.residual);
                      args.y = read("y", given.y);
                      args.kind = elementwise::Kind::add;
                      elementwise::run(args, execution);
                    });
}

isobit_status isobit_elementwise_increment(const isobit_elementwise_increment_args* args,
                                           const isobit_context* context) {
  return capi::call("elementwise", args, context,
                    [](const auto& given, const capi::Reader& read, const Execution& execution) {
                      elementwise::Args args;
                      args.x = read("x", given.x);
                      args.y = read("y", given.y);
                      args.kind = elementwise::Kind::increment;
                      elementwise::run(args, execution);
                    });
}

isobit_status isobit_layernorm_forward(const isobit_layernorm_forward_args* args,
                                       const isobit_context* context) {
  return capi::call("layernorm", args, context,
                    [](const auto& given, const capi::Reader& read, const Execution& execution) {
                      layernorm::ForwardArgs args;
                      args.x = read("x", given.x);
                      args.weight = read("weight", given.weight);
                      args.bias = read("bias", given.bias);
                      args.residual = read("residual", given.residual);
                      args.y = read("y", given.y);
                      args.sum = read("sum", given.sum);
                      args.mean = read("mean", given.mean);
                      args.rstd = read("rstd", given.rstd);
                      args.eps = given.eps;
                      args.dropout = given.dropout;
                      args.dropout_seed = given.dropout_seed;
                      args.hidden_dims = given.hidden_dims == 0 ? 1 : given.hidden_dims;
                      args.zero_centered = given.zero_centered != 0;
                      layernorm::forward(args, execution);
                    });
}

isobit_status isobit_layernorm_backward(const isobit_layernorm_backward_args* args,
                                        const isobit_context* context) {
  return capi::call("layernorm backward", args, context,
                    [](const auto& given, const capi::Reader& read, const Execution& execution) {
                      layernorm::BackwardArgs args;
                      args.x = read("x", given.x);
                      args.grad_y = read("grad_y", given.grad_y);
                      args.weight = read("weight", given.weight);
                      args.mean = read("mean", given.mean);
                      args.rstd = read("rstd", given.rstd);
                      args.grad_sum = read("grad_sum", given.grad_sum);
                      args.grad_x = read("grad_x", given.grad_x);
                      args.grad_residual = read("grad_residual", given.grad_residual);
                      args.grad_weight = read("grad_weight", given.grad_weight);
                      args.grad_bias = read("grad_bias", given.grad_bias);
                      args.eps = given.eps;
                      args.dropout = given.dropout;
                      args.dropout_seed = given.dropout_seed;
                      args.hidden_dims = given.hidden_dims == 0 ? 1 : given.hidden_dims;
                      args.zero_centered = given.zero_centered != 0;
                      layernorm::backward(args, execution);
                    });
}

isobit_status isobit_rmsnorm_forward(const isobit_rmsnorm_forward_args* args,
                                     const isobit_context* context) {
  return capi::call("rmsnorm", args, context,
                    [](const auto& given, const capi::Reader& read, const Execution& execution) {
                      rmsnorm::ForwardArgs args;
                      args.x = read("x", given.x);
                      args.weight = read("weight", given.weight);
                      args.residual = read("residual", given.residual);
                      args.y = read("y", given.y);
                      args.sum = read("sum", given.sum);
                      args.rstd = read("rstd", given.rstd);
                      args.eps = given.eps;
                      args.dropout = given.dropout;
                      args.dropout_seed = given.dropout_seed;
                      args.hidden_dims = given.hidden_dims == 0 ? 1 : given.hidden_dims;
                      args.zero_centered = given.zero_centered != 0;
                      rmsnorm::forward(args, execution);
                    });
}

isobit_status isobit_rmsnorm_backward(const isobit_rmsnorm_backward_args* args,
                                      const isobit_context* context) {
  return capi::call("rmsnorm backward", args, context,
                    [](const auto& given, const capi::Reader& read, const Execution& execution) {
                      rmsnorm::BackwardArgs args;
                      args.x = read("x", given.x);
                      args.grad_y = read("grad_y", given.grad_y);
                      args.weight = read("weight", given.weight);
                      args.rstd = read("rstd", given.rstd);
                      args.grad_sum = read("grad_sum", given.grad_sum);
                      args.grad_x = read("grad_x", given.grad_x);
                      args.grad_residual = read("grad_residual", given.grad_residual);
                      args.grad_weight = read("grad_weight", given.grad_weight);
                      args.eps = given.eps;
                      args.dropout = given.dropout;
                      args.dropout_seed = given.dropout_seed;
                      args.hidden_dims = given.hidden_dims == 0 ? 1 : given.hidden_dims;
                      args.zero_centered = given.zero_centered != 0;
                      rmsnorm::backward(args, execution);
                    });
}

isobit_status isobit_transpose(const isobit_transpose_args* args, const isobit_context* context) {
  return capi::call("transpose", args, context,
                    [](const auto& given, const capi::Reader& read, const Execution& execution) {
                      transpose::Args args;
                      args.x = read("x", given.x);
                      args.y = read("y", given.y);
                      transpose::run(args, execution);
                    });
}

isobit_status isobit_activation_forward(const isobit_activation_forward_args* args,
                                        const isobit_context* context) {
  return capi::call("activation", args, context,
                    [](const auto& given, const capi::Reader& read, const Execution& execution) {
                      activation::ForwardArgs args;
                      args.x = read("x", given.x);
                      args.gate = read("gate", given.gate);
                      args.y = read("y", given.y);
                      args.function = decltype(args.function){given.function};
                      activation::forward(args, execution);
                    });
}

isobit_status isobit_activation_backward(const isobit_activation_backward_args* args,
                                         const isobit_context* context) {
  return capi::call("activation backward", args, context,
                    [](const auto& given, const capi::Reader& read, const Execution& execution) {
                      activation::BackwardArgs args;
                      args.x = read("x", given.x);
                      args.grad_y = read("grad_y", given.grad_y);
                      args.gate = read("gate", given.gate);
                      args.grad_x = read("grad_x", given.grad_x);
                      args.grad_gate = read("grad_gate", given.grad_gate);
                      args.function = decltype(args.function){given.function};
                      activation::backward(args, execution);
                    });
}

isobit_status isobit_rope_forward(const isobit_rope_forward_args* args,
                                  const isobit_context* context) {
  return capi::call("rope", args, context,
                    [](const auto& given, const capi::Reader& read, const Execution& execution) {
                      rope::ForwardArgs args;
                      args.q = read("q", given.q);
                      args.k = read("k", given.k);
                      args.cos = read("cos", given.cos);
                      args.sin = read("sin", given.sin);
                      args.positions = read("positions", given.positions);
                      args.y_q = read("y_q", given.y_q);
                      args.y_k = read("y_k", given.y_k);
                      args.base = given.base == 0 ? 10000 : given.base;
                      args.offset_positions = given.offset_positions;
                      args.rotary_dim = given.rotary_dim;
                      args.style = decltype(args.style){given.style};
                      rope::forward(args, execution);
                    });
}

isobit_status isobit_rope_backward(const isobit_rope_backward_args* args,
                                   const isobit_context* context) {
  return capi::call("rope backward", args, context,
                    [](const auto& given, const capi::Reader& read, const Execution& execution) {
                      rope::BackwardArgs args;
                      args.grad_y_q = read("grad_y_q", given.grad_y_q);
                      args.grad_y_k = read("grad_y_k", given.grad_y_k);
                      args.cos = read("cos", given.cos);
                      args.sin = read("sin", given.sin);
                      args.positions = read("positions", given.positions);
                      args.grad_q = read("grad_q", given.grad_q);
                      args.grad_k = read("grad_k", given.grad_k);
                      args.base = given.base == 0 ? 10000 : given.base;
                      args.offset_positions = given.offset_positions;
                      args.rotary_dim = given.rotary_dim;
                      args.style = decltype(args.style){given.style};
                      rope::backward(args, execution);
                    });
}

isobit_status isobit_rope_tables(const isobit_rope_tables_args* args,
                                 const isobit_context* context) {
  return capi::call("rope_tables", args, context,
                    [](const auto& given, const capi::Reader& read, const Execution& execution) {
                      rope_tables::Args args;
                      args.inv_freq = read("inv_freq", given.inv_freq);
                      args.positions = read("positions", given.positions);
                      args.cos = read("cos", given.cos);
                      args.sin = read("sin", given.sin);
                      args.base = given.base == 0 ? 10000 : given.base;
                      args.offset_positions = given.offset_positions;
                      rope_tables::run(args, execution);
                    });
}

isobit_status isobit_scan_sum(const isobit_scan_sum_args* args, const isobit_context* context) {
  return capi::call("scan", args, context,
                    [](const auto& given, const capi::Reader& read, const Execution& execution) {
                      scan::Args args;
                      args.x = read("x", given.x);
                      args.init = read("init", given.init);
                      args.reset = read("reset", given.reset);
                      args.y = read("y", given.y);
                      args.kind = scan::Kind::sum;
                      args.exclusive = given.exclusive != 0;
                      args.reverse = given.reverse != 0;
                      scan::run(args, execution);
                    });
}

isobit_status isobit_scan_prod(const isobit_scan_prod_args* args, const isobit_context* context) {
  return capi::call("scan", args, context,
                    [](const auto& given, const capi::Reader& read, const Execution& execution) {
                      scan::Args args;
                      args.x = read("x", given.x);
                      args.init = read("init", given.init);
                      args.reset = read("reset", given.reset);
                      args.y = read("y", given.y);
                      args.kind = scan::Kind::prod;
                      args.exclusive = given.exclusive != 0;
                      args.reverse = given.reverse != 0;
                      scan::run(args, execution);
                    });
}

isobit_status isobit_scan_max(const isobit_scan_max_args* args, const isobit_context* context) {
  return capi::call("scan", args, context,
                    [](const auto& given, const capi::Reader& read, const Execution& execution) {
                      scan::Args args;
                      args.x = read("x", given.x);
                      args.init = read("init", given.init);
                      args.reset = read("reset", given.reset);
                      args.y = read("y", given.y);
                      args.index = read("index", given.index);
                      args.kind = scan::Kind::max;
                      args.exclusive = given.exclusive != 0;
                      args.reverse = given.reverse != 0;
                      scan::run(args, execution);
                    });
}

isobit_status isobit_scan_min(const isobit_scan_min_args* args, const isobit_context* context) {
  return capi::call("scan", args, context,
                    [](const auto& given, const capi::Reader& read, const Execution& execution) {
                      scan::Args args;
                      args.x = read("x", given.x);
                      args.init = read("init", given.init);
                      args.reset = read("reset", given.reset);
                      args.y = read("y", given.y);
                      args.index = read("index", given.index);
                      args.kind = scan::Kind::min;
                      args.exclusive = given.exclusive != 0;
                      args.reverse = given.reverse != 0;
                      scan::run(args, execution);
                    });
}

isobit_status isobit_scan_logsumexp(const isobit_scan_logsumexp_args* args,
                                    const isobit_context* context) {
  return capi::call("scan", args, context,
                    [](const auto& given, const capi::Reader& read, const Execution& execution) {
                      scan::Args args;
                      args.x = read("x", given.x);
                      args.init = read("init", given.init);
                      args.reset = read("reset", given.reset);
                      args.y = read("y", given.y);
                      args.kind = scan::Kind::logsumexp;
                      args.exclusive = given.exclusive != 0;
                      args.reverse = given.reverse != 0;
                      scan::run(args, execution);
                    });
}

isobit_status isobit_matmul(const isobit_matmul_args* args, const isobit_context* context) {
  return capi::call("matmul", args, context,
                    [](const auto& given, const capi::Reader& read, const Execution& execution) {
                      matmul::Args args;
                      args.a = read("a", given.a);
                      args.b = read("b", given.b);
                      args.bias = read("bias", given.bias);
                      args.c = read("c", given.c);
                      args.residual = read("residual", given.residual);
                      args.y = read("y", given.y);
                      args.pre = read("pre", given.pre);
                      args.alpha = given.alpha;
                      args.beta = given.beta;
                      args.activation = decltype(args.activation){given.activation};
                      matmul::run(args, execution);
                    });
}
