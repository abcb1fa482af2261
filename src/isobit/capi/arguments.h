// SPDX-License-Identifier: Apache-2.0
// What the structs of isobit/operators.h say, as the operators' own arguments.
// Made by tools/faces.py from the operators' descriptions; changes belong there.
#pragma once

#include <cstddef>

#include "isobit/capi/call.h"
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

namespace isobit::capi {

inline elementwise::Args arguments(const isobit_elementwise_add_args& given, const Reader& read) {
  elementwise::Args args;
  args.x = read("x", given.x);
  args.residual = read("residual", given.residual);
  args.y = read("y", given.y);
  args.kind = elementwise::Kind::add;
  return args;
}

inline elementwise::Args arguments(const isobit_elementwise_increment_args& given,
                                   const Reader& read) {
  elementwise::Args args;
  args.x = read("x", given.x);
  args.y = read("y", given.y);
  args.kind = elementwise::Kind::increment;
  return args;
}

inline layernorm::ForwardArgs arguments(const isobit_layernorm_forward_args& given,
                                        const Reader& read) {
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
  return args;
}

inline layernorm::BackwardArgs arguments(const isobit_layernorm_backward_args& given,
                                         const Reader& read) {
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
  return args;
}

inline rmsnorm::ForwardArgs arguments(const isobit_rmsnorm_forward_args& given,
                                      const Reader& read) {
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
  return args;
}

inline rmsnorm::BackwardArgs arguments(const isobit_rmsnorm_backward_args& given,
                                       const Reader& read) {
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
  return args;
}

inline transpose::Args arguments(const isobit_transpose_args& given, const Reader& read) {
  transpose::Args args;
  args.x = read("x", given.x);
  args.y = read("y", given.y);
  return args;
}

inline activation::ForwardArgs arguments(const isobit_activation_forward_args& given,
                                         const Reader& read) {
  activation::ForwardArgs args;
  args.x = read("x", given.x);
  args.gate = read("gate", given.gate);
  args.y = read("y", given.y);
  args.function = decltype(args.function){given.function};
  return args;
}

inline activation::BackwardArgs arguments(const isobit_activation_backward_args& given,
                                          const Reader& read) {
  activation::BackwardArgs args;
  args.x = read("x", given.x);
  args.grad_y = read("grad_y", given.grad_y);
  args.gate = read("gate", given.gate);
  args.grad_x = read("grad_x", given.grad_x);
  args.grad_gate = read("grad_gate", given.grad_gate);
  args.function = decltype(args.function){given.function};
  return args;
}

inline rope::ForwardArgs arguments(const isobit_rope_forward_args& given, const Reader& read) {
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
  return args;
}

inline rope::BackwardArgs arguments(const isobit_rope_backward_args& given, const Reader& read) {
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
  return args;
}

inline rope_tables::Args arguments(const isobit_rope_tables_args& given, const Reader& read) {
  rope_tables::Args args;
  args.inv_freq = read("inv_freq", given.inv_freq);
  args.positions = read("positions", given.positions);
  args.cos = read("cos", given.cos);
  args.sin = read("sin", given.sin);
  args.base = given.base == 0 ? 10000 : given.base;
  args.offset_positions = given.offset_positions;
  return args;
}

inline random::Args arguments(const isobit_random_args& given, const Reader& read) {
  random::Args args;
  args.y = read("y", given.y);
  args.low = given.low;
  args.high = given.high;
  args.mean = given.mean;
  args.std = given.std;
  args.p = given.p;
  args.random_seed = given.random_seed;
  args.random_offset = given.random_offset;
  args.distribution = decltype(args.distribution){given.distribution};
  return args;
}

inline dropout::Args arguments(const isobit_dropout_args& given, const Reader& read) {
  dropout::Args args;
  args.x = read("x", given.x);
  args.y = read("y", given.y);
  args.p = given.p;
  args.dropout_seed = given.dropout_seed;
  return args;
}

inline pointwise_loss::ForwardArgs arguments(const isobit_pointwise_loss_forward_args& given,
                                             const Reader& read) {
  pointwise_loss::ForwardArgs args;
  args.x = read("x", given.x);
  args.target = read("target", given.target);
  args.weight = read("weight", given.weight);
  args.pos_weight = read("pos_weight", given.pos_weight);
  args.loss = read("loss", given.loss);
  args.beta = given.beta;
  args.function = decltype(args.function){given.function};
  return args;
}

inline pointwise_loss::BackwardArgs arguments(const isobit_pointwise_loss_backward_args& given,
                                              const Reader& read) {
  pointwise_loss::BackwardArgs args;
  args.x = read("x", given.x);
  args.target = read("target", given.target);
  args.weight = read("weight", given.weight);
  args.pos_weight = read("pos_weight", given.pos_weight);
  args.grad_loss = read("grad_loss", given.grad_loss);
  args.grad_x = read("grad_x", given.grad_x);
  args.beta = given.beta;
  args.function = decltype(args.function){given.function};
  return args;
}

inline scan::Args arguments(const isobit_scan_sum_args& given, const Reader& read) {
  scan::Args args;
  args.x = read("x", given.x);
  args.init = read("init", given.init);
  args.reset = read("reset", given.reset);
  args.y = read("y", given.y);
  args.kind = scan::Kind::sum;
  args.exclusive = given.exclusive != 0;
  args.reverse = given.reverse != 0;
  return args;
}

inline scan::Args arguments(const isobit_scan_prod_args& given, const Reader& read) {
  scan::Args args;
  args.x = read("x", given.x);
  args.init = read("init", given.init);
  args.reset = read("reset", given.reset);
  args.y = read("y", given.y);
  args.kind = scan::Kind::prod;
  args.exclusive = given.exclusive != 0;
  args.reverse = given.reverse != 0;
  return args;
}

inline scan::Args arguments(const isobit_scan_max_args& given, const Reader& read) {
  scan::Args args;
  args.x = read("x", given.x);
  args.init = read("init", given.init);
  args.reset = read("reset", given.reset);
  args.y = read("y", given.y);
  args.index = read("index", given.index);
  args.kind = scan::Kind::max;
  args.exclusive = given.exclusive != 0;
  args.reverse = given.reverse != 0;
  return args;
}

inline scan::Args arguments(const isobit_scan_min_args& given, const Reader& read) {
  scan::Args args;
  args.x = read("x", given.x);
  args.init = read("init", given.init);
  args.reset = read("reset", given.reset);
  args.y = read("y", given.y);
  args.index = read("index", given.index);
  args.kind = scan::Kind::min;
  args.exclusive = given.exclusive != 0;
  args.reverse = given.reverse != 0;
  return args;
}

inline scan::Args arguments(const isobit_scan_logsumexp_args& given, const Reader& read) {
  scan::Args args;
  args.x = read("x", given.x);
  args.init = read("init", given.init);
  args.reset = read("reset", given.reset);
  args.y = read("y", given.y);
  args.kind = scan::Kind::logsumexp;
  args.exclusive = given.exclusive != 0;
  args.reverse = given.reverse != 0;
  return args;
}

inline matmul::ForwardArgs arguments(const isobit_matmul_args& given, const Reader& read) {
  matmul::ForwardArgs args;
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
  args.arithmetic = decltype(args.arithmetic){given.arithmetic};
  return args;
}

inline matmul::BackwardArgs arguments(const isobit_matmul_backward_args& given,
                                      const Reader& read) {
  matmul::BackwardArgs args;
  args.grad_y = read("grad_y", given.grad_y);
  args.a = read("a", given.a);
  args.b = read("b", given.b);
  args.pre = read("pre", given.pre);
  args.grad_a = read("grad_a", given.grad_a);
  args.grad_b = read("grad_b", given.grad_b);
  args.grad_bias = read("grad_bias", given.grad_bias);
  args.grad_c = read("grad_c", given.grad_c);
  args.alpha = given.alpha;
  args.beta = given.beta;
  args.activation = decltype(args.activation){given.activation};
  args.arithmetic = decltype(args.arithmetic){given.arithmetic};
  return args;
}

inline layernorm_linear::ForwardArgs arguments(const isobit_layernorm_linear_forward_args& given,
                                               const Reader& read) {
  layernorm_linear::ForwardArgs args;
  args.x = read("x", given.x);
  args.norm_weight = read("norm_weight", given.norm_weight);
  args.norm_bias = read("norm_bias", given.norm_bias);
  args.weight = read("weight", given.weight);
  args.bias = read("bias", given.bias);
  args.x_residual = read("x_residual", given.x_residual);
  args.residual = read("residual", given.residual);
  args.z = read("z", given.z);
  args.pre = read("pre", given.pre);
  args.sum = read("sum", given.sum);
  args.y = read("y", given.y);
  args.mean = read("mean", given.mean);
  args.rstd = read("rstd", given.rstd);
  args.eps = given.eps;
  args.dropout = given.dropout;
  args.dropout_seed = given.dropout_seed;
  args.zero_centered = given.zero_centered != 0;
  args.activation = decltype(args.activation){given.activation};
  args.arithmetic = decltype(args.arithmetic){given.arithmetic};
  return args;
}

inline layernorm_linear::BackwardArgs arguments(const isobit_layernorm_linear_backward_args& given,
                                                const Reader& read) {
  layernorm_linear::BackwardArgs args;
  args.grad_z = read("grad_z", given.grad_z);
  args.x = read("x", given.x);
  args.norm_weight = read("norm_weight", given.norm_weight);
  args.norm_bias = read("norm_bias", given.norm_bias);
  args.weight = read("weight", given.weight);
  args.pre = read("pre", given.pre);
  args.grad_sum = read("grad_sum", given.grad_sum);
  args.grad_x = read("grad_x", given.grad_x);
  args.grad_x_residual = read("grad_x_residual", given.grad_x_residual);
  args.grad_norm_weight = read("grad_norm_weight", given.grad_norm_weight);
  args.grad_norm_bias = read("grad_norm_bias", given.grad_norm_bias);
  args.grad_weight = read("grad_weight", given.grad_weight);
  args.grad_bias = read("grad_bias", given.grad_bias);
  args.eps = given.eps;
  args.dropout = given.dropout;
  args.dropout_seed = given.dropout_seed;
  args.zero_centered = given.zero_centered != 0;
  args.activation = decltype(args.activation){given.activation};
  args.arithmetic = decltype(args.arithmetic){given.arithmetic};
  return args;
}

inline rmsnorm_linear::ForwardArgs arguments(const isobit_rmsnorm_linear_forward_args& given,
                                             const Reader& read) {
  rmsnorm_linear::ForwardArgs args;
  args.x = read("x", given.x);
  args.norm_weight = read("norm_weight", given.norm_weight);
  args.weight = read("weight", given.weight);
  args.bias = read("bias", given.bias);
  args.x_residual = read("x_residual", given.x_residual);
  args.residual = read("residual", given.residual);
  args.z = read("z", given.z);
  args.pre = read("pre", given.pre);
  args.sum = read("sum", given.sum);
  args.y = read("y", given.y);
  args.rstd = read("rstd", given.rstd);
  args.eps = given.eps;
  args.dropout = given.dropout;
  args.dropout_seed = given.dropout_seed;
  args.zero_centered = given.zero_centered != 0;
  args.activation = decltype(args.activation){given.activation};
  args.arithmetic = decltype(args.arithmetic){given.arithmetic};
  return args;
}

inline rmsnorm_linear::BackwardArgs arguments(const isobit_rmsnorm_linear_backward_args& given,
                                              const Reader& read) {
  rmsnorm_linear::BackwardArgs args;
  args.grad_z = read("grad_z", given.grad_z);
  args.x = read("x", given.x);
  args.norm_weight = read("norm_weight", given.norm_weight);
  args.weight = read("weight", given.weight);
  args.pre = read("pre", given.pre);
  args.grad_sum = read("grad_sum", given.grad_sum);
  args.grad_x = read("grad_x", given.grad_x);
  args.grad_x_residual = read("grad_x_residual", given.grad_x_residual);
  args.grad_norm_weight = read("grad_norm_weight", given.grad_norm_weight);
  args.grad_weight = read("grad_weight", given.grad_weight);
  args.grad_bias = read("grad_bias", given.grad_bias);
  args.eps = given.eps;
  args.dropout = given.dropout;
  args.dropout_seed = given.dropout_seed;
  args.zero_centered = given.zero_centered != 0;
  args.activation = decltype(args.activation){given.activation};
  args.arithmetic = decltype(args.arithmetic){given.arithmetic};
  return args;
}

inline conv1d::ForwardArgs arguments(const isobit_conv1d_args& given, const Reader& read) {
  conv1d::ForwardArgs args;
  args.x = read("x", given.x);
  args.weight = read("weight", given.weight);
  args.bias = read("bias", given.bias);
  args.residual = read("residual", given.residual);
  args.y = read("y", given.y);
  args.pre = read("pre", given.pre);
  args.stride = given.stride == 0 ? 1 : given.stride;
  args.dilation = given.dilation == 0 ? 1 : given.dilation;
  args.padding = given.padding;
  args.extra_padding = given.extra_padding;
  args.groups = given.groups == 0 ? 1 : given.groups;
  args.padding_mode = decltype(args.padding_mode){given.padding_mode};
  args.activation = decltype(args.activation){given.activation};
  return args;
}

inline conv1d::BackwardArgs arguments(const isobit_conv1d_backward_args& given,
                                      const Reader& read) {
  conv1d::BackwardArgs args;
  args.grad_y = read("grad_y", given.grad_y);
  args.x = read("x", given.x);
  args.weight = read("weight", given.weight);
  args.grad_x = read("grad_x", given.grad_x);
  args.grad_weight = read("grad_weight", given.grad_weight);
  args.grad_bias = read("grad_bias", given.grad_bias);
  args.stride = given.stride == 0 ? 1 : given.stride;
  args.dilation = given.dilation == 0 ? 1 : given.dilation;
  args.padding = given.padding;
  args.extra_padding = given.extra_padding;
  args.groups = given.groups == 0 ? 1 : given.groups;
  args.padding_mode = decltype(args.padding_mode){given.padding_mode};
  return args;
}

inline conv2d::ForwardArgs arguments(const isobit_conv2d_args& given, const Reader& read) {
  conv2d::ForwardArgs args;
  args.x = read("x", given.x);
  args.weight = read("weight", given.weight);
  args.bias = read("bias", given.bias);
  args.residual = read("residual", given.residual);
  args.y = read("y", given.y);
  args.pre = read("pre", given.pre);
  args.stride_h = given.stride_h == 0 ? 1 : given.stride_h;
  args.stride_w = given.stride_w == 0 ? 1 : given.stride_w;
  args.dilation_h = given.dilation_h == 0 ? 1 : given.dilation_h;
  args.dilation_w = given.dilation_w == 0 ? 1 : given.dilation_w;
  args.padding_h = given.padding_h;
  args.padding_w = given.padding_w;
  args.extra_padding_h = given.extra_padding_h;
  args.extra_padding_w = given.extra_padding_w;
  args.groups = given.groups == 0 ? 1 : given.groups;
  args.padding_mode = decltype(args.padding_mode){given.padding_mode};
  args.activation = decltype(args.activation){given.activation};
  return args;
}

inline conv2d::BackwardArgs arguments(const isobit_conv2d_backward_args& given,
                                      const Reader& read) {
  conv2d::BackwardArgs args;
  args.grad_y = read("grad_y", given.grad_y);
  args.x = read("x", given.x);
  args.weight = read("weight", given.weight);
  args.grad_x = read("grad_x", given.grad_x);
  args.grad_weight = read("grad_weight", given.grad_weight);
  args.grad_bias = read("grad_bias", given.grad_bias);
  args.stride_h = given.stride_h == 0 ? 1 : given.stride_h;
  args.stride_w = given.stride_w == 0 ? 1 : given.stride_w;
  args.dilation_h = given.dilation_h == 0 ? 1 : given.dilation_h;
  args.dilation_w = given.dilation_w == 0 ? 1 : given.dilation_w;
  args.padding_h = given.padding_h;
  args.padding_w = given.padding_w;
  args.extra_padding_h = given.extra_padding_h;
  args.extra_padding_w = given.extra_padding_w;
  args.groups = given.groups == 0 ? 1 : given.groups;
  args.padding_mode = decltype(args.padding_mode){given.padding_mode};
  return args;
}

template <>
inline constexpr std::size_t kFirstSize<isobit_attention_forward_args> =
    offsetof(isobit_attention_forward_args, slopes);

inline attention::ForwardArgs arguments(const isobit_attention_forward_args& given,
                                        const Reader& read) {
  attention::ForwardArgs args;
  args.q = read("q", given.q);
  args.k = read("k", given.k);
  args.v = read("v", given.v);
  args.bias = read("bias", given.bias);
  args.mask = read("mask", given.mask);
  args.y = read("y", given.y);
  args.lse = read("lse", given.lse);
  args.max = read("max", given.max);
  args.sum = read("sum", given.sum);
  args.slopes = read("slopes", given.slopes);
  args.key_begin = read("key_begin", given.key_begin);
  args.key_end = read("key_end", given.key_end);
  args.query_starts = read("query_starts", given.query_starts);
  args.key_starts = read("key_starts", given.key_starts);
  args.blocks = read("blocks", given.blocks);
  args.window = given.window;
  args.scale = given.scale;
  args.softcap = given.softcap;
  args.dropout = given.dropout;
  args.dropout_seed = given.dropout_seed;
  args.causal = decltype(args.causal){given.causal};
  args.arithmetic = decltype(args.arithmetic){given.arithmetic};
  return args;
}

template <>
inline constexpr std::size_t kFirstSize<isobit_attention_backward_args> =
    offsetof(isobit_attention_backward_args, slopes);

inline attention::BackwardArgs arguments(const isobit_attention_backward_args& given,
                                         const Reader& read) {
  attention::BackwardArgs args;
  args.grad_y = read("grad_y", given.grad_y);
  args.grad_lse = read("grad_lse", given.grad_lse);
  args.q = read("q", given.q);
  args.k = read("k", given.k);
  args.v = read("v", given.v);
  args.bias = read("bias", given.bias);
  args.mask = read("mask", given.mask);
  args.y = read("y", given.y);
  args.max = read("max", given.max);
  args.sum = read("sum", given.sum);
  args.grad_q = read("grad_q", given.grad_q);
  args.grad_k = read("grad_k", given.grad_k);
  args.grad_v = read("grad_v", given.grad_v);
  args.grad_bias = read("grad_bias", given.grad_bias);
  args.slopes = read("slopes", given.slopes);
  args.key_begin = read("key_begin", given.key_begin);
  args.key_end = read("key_end", given.key_end);
  args.query_starts = read("query_starts", given.query_starts);
  args.key_starts = read("key_starts", given.key_starts);
  args.window = given.window;
  args.scale = given.scale;
  args.softcap = given.softcap;
  args.dropout = given.dropout;
  args.dropout_seed = given.dropout_seed;
  args.causal = decltype(args.causal){given.causal};
  args.arithmetic = decltype(args.arithmetic){given.arithmetic};
  return args;
}

inline softmax::ForwardArgs arguments(const isobit_softmax_forward_args& given,
                                      const Reader& read) {
  softmax::ForwardArgs args;
  args.x = read("x", given.x);
  args.mask = read("mask", given.mask);
  args.y = read("y", given.y);
  args.scale = given.scale;
  args.log = given.log != 0;
  return args;
}

inline softmax::BackwardArgs arguments(const isobit_softmax_backward_args& given,
                                       const Reader& read) {
  softmax::BackwardArgs args;
  args.y = read("y", given.y);
  args.grad_y = read("grad_y", given.grad_y);
  args.mask = read("mask", given.mask);
  args.grad_x = read("grad_x", given.grad_x);
  args.scale = given.scale;
  args.log = given.log != 0;
  return args;
}

inline pool2d::ForwardArgs arguments(const isobit_pool2d_forward_args& given, const Reader& read) {
  pool2d::ForwardArgs args;
  args.x = read("x", given.x);
  args.y = read("y", given.y);
  args.index = read("index", given.index);
  args.window_h = given.window_h;
  args.window_w = given.window_w;
  args.bins_h = given.bins_h == 0 ? 1 : given.bins_h;
  args.bins_w = given.bins_w == 0 ? 1 : given.bins_w;
  args.stride_h = given.stride_h;
  args.stride_w = given.stride_w;
  args.padding_h = given.padding_h;
  args.padding_w = given.padding_w;
  args.dilation_h = given.dilation_h == 0 ? 1 : given.dilation_h;
  args.dilation_w = given.dilation_w == 0 ? 1 : given.dilation_w;
  args.divisor = given.divisor;
  args.reduction = decltype(args.reduction){given.reduction};
  args.ceil_mode = given.ceil_mode != 0;
  args.count_include_pad = given.count_include_pad != 0;
  return args;
}

inline pool2d::BackwardArgs arguments(const isobit_pool2d_backward_args& given,
                                      const Reader& read) {
  pool2d::BackwardArgs args;
  args.grad_y = read("grad_y", given.grad_y);
  args.index = read("index", given.index);
  args.grad_x = read("grad_x", given.grad_x);
  args.window_h = given.window_h;
  args.window_w = given.window_w;
  args.bins_h = given.bins_h == 0 ? 1 : given.bins_h;
  args.bins_w = given.bins_w == 0 ? 1 : given.bins_w;
  args.stride_h = given.stride_h;
  args.stride_w = given.stride_w;
  args.padding_h = given.padding_h;
  args.padding_w = given.padding_w;
  args.dilation_h = given.dilation_h == 0 ? 1 : given.dilation_h;
  args.dilation_w = given.dilation_w == 0 ? 1 : given.dilation_w;
  args.divisor = given.divisor;
  args.reduction = decltype(args.reduction){given.reduction};
  args.ceil_mode = given.ceil_mode != 0;
  args.count_include_pad = given.count_include_pad != 0;
  return args;
}

inline cross_entropy::ForwardArgs arguments(const isobit_cross_entropy_forward_args& given,
                                            const Reader& read) {
  cross_entropy::ForwardArgs args;
  args.x = read("x", given.x);
  args.target = read("target", given.target);
  args.weight = read("weight", given.weight);
  args.loss = read("loss", given.loss);
  args.lse = read("lse", given.lse);
  args.largest = read("largest", given.largest);
  args.sum = read("sum", given.sum);
  args.total = read("total", given.total);
  args.count = read("count", given.count);
  args.ignore_index = given.ignore_index;
  args.label_smoothing = given.label_smoothing;
  args.z_loss = given.z_loss;
  return args;
}

inline cross_entropy::BackwardArgs arguments(const isobit_cross_entropy_backward_args& given,
                                             const Reader& read) {
  cross_entropy::BackwardArgs args;
  args.grad_loss = read("grad_loss", given.grad_loss);
  args.x = read("x", given.x);
  args.target = read("target", given.target);
  args.weight = read("weight", given.weight);
  args.largest = read("largest", given.largest);
  args.sum = read("sum", given.sum);
  args.grad_x = read("grad_x", given.grad_x);
  args.ignore_index = given.ignore_index;
  args.label_smoothing = given.label_smoothing;
  args.z_loss = given.z_loss;
  return args;
}

inline linear_cross_entropy::ForwardArgs arguments(
    const isobit_linear_cross_entropy_forward_args& given, const Reader& read) {
  linear_cross_entropy::ForwardArgs args;
  args.x = read("x", given.x);
  args.weight = read("weight", given.weight);
  args.bias = read("bias", given.bias);
  args.target = read("target", given.target);
  args.class_weight = read("class_weight", given.class_weight);
  args.loss = read("loss", given.loss);
  args.lse = read("lse", given.lse);
  args.largest = read("largest", given.largest);
  args.sum = read("sum", given.sum);
  args.total = read("total", given.total);
  args.count = read("count", given.count);
  args.ignore_index = given.ignore_index;
  args.label_smoothing = given.label_smoothing;
  args.z_loss = given.z_loss;
  return args;
}

inline linear_cross_entropy::BackwardArgs arguments(
    const isobit_linear_cross_entropy_backward_args& given, const Reader& read) {
  linear_cross_entropy::BackwardArgs args;
  args.grad_loss = read("grad_loss", given.grad_loss);
  args.x = read("x", given.x);
  args.weight = read("weight", given.weight);
  args.bias = read("bias", given.bias);
  args.target = read("target", given.target);
  args.class_weight = read("class_weight", given.class_weight);
  args.largest = read("largest", given.largest);
  args.sum = read("sum", given.sum);
  args.grad_x = read("grad_x", given.grad_x);
  args.grad_weight = read("grad_weight", given.grad_weight);
  args.grad_bias = read("grad_bias", given.grad_bias);
  args.ignore_index = given.ignore_index;
  args.label_smoothing = given.label_smoothing;
  args.z_loss = given.z_loss;
  return args;
}

inline embedding::ForwardArgs arguments(const isobit_embedding_forward_args& given,
                                        const Reader& read) {
  embedding::ForwardArgs args;
  args.weight = read("weight", given.weight);
  args.index = read("index", given.index);
  args.y = read("y", given.y);
  return args;
}

inline embedding::BackwardArgs arguments(const isobit_embedding_backward_args& given,
                                         const Reader& read) {
  embedding::BackwardArgs args;
  args.grad_y = read("grad_y", given.grad_y);
  args.index = read("index", given.index);
  args.grad_weight = read("grad_weight", given.grad_weight);
  args.padding_idx = given.padding_idx;
  args.scale_grad_by_freq = given.scale_grad_by_freq != 0;
  return args;
}

template <>
inline constexpr std::size_t kFirstSize<isobit_group_norm_forward_args> =
    offsetof(isobit_group_norm_forward_args, moments);

inline group_norm::ForwardArgs arguments(const isobit_group_norm_forward_args& given,
                                         const Reader& read) {
  group_norm::ForwardArgs args;
  args.x = read("x", given.x);
  args.weight = read("weight", given.weight);
  args.bias = read("bias", given.bias);
  args.y = read("y", given.y);
  args.mean = read("mean", given.mean);
  args.rstd = read("rstd", given.rstd);
  args.moments = read("moments", given.moments);
  args.groups = given.groups == 0 ? 1 : given.groups;
  args.eps = given.eps;
  return args;
}

template <>
inline constexpr std::size_t kFirstSize<isobit_group_norm_backward_args> =
    offsetof(isobit_group_norm_backward_args, moments);

inline group_norm::BackwardArgs arguments(const isobit_group_norm_backward_args& given,
                                          const Reader& read) {
  group_norm::BackwardArgs args;
  args.x = read("x", given.x);
  args.grad_y = read("grad_y", given.grad_y);
  args.weight = read("weight", given.weight);
  args.grad_x = read("grad_x", given.grad_x);
  args.grad_weight = read("grad_weight", given.grad_weight);
  args.grad_bias = read("grad_bias", given.grad_bias);
  args.moments = read("moments", given.moments);
  args.groups = given.groups == 0 ? 1 : given.groups;
  args.eps = given.eps;
  return args;
}

template <>
inline constexpr std::size_t kFirstSize<isobit_batch_norm_forward_args> =
    offsetof(isobit_batch_norm_forward_args, moments);

inline batch_norm::ForwardArgs arguments(const isobit_batch_norm_forward_args& given,
                                         const Reader& read) {
  batch_norm::ForwardArgs args;
  args.x = read("x", given.x);
  args.weight = read("weight", given.weight);
  args.bias = read("bias", given.bias);
  args.running_mean = read("running_mean", given.running_mean);
  args.running_var = read("running_var", given.running_var);
  args.y = read("y", given.y);
  args.mean = read("mean", given.mean);
  args.rstd = read("rstd", given.rstd);
  args.next_mean = read("next_mean", given.next_mean);
  args.next_var = read("next_var", given.next_var);
  args.moments = read("moments", given.moments);
  args.momentum = given.momentum;
  args.eps = given.eps;
  args.training = given.training != 0;
  return args;
}

template <>
inline constexpr std::size_t kFirstSize<isobit_batch_norm_backward_args> =
    offsetof(isobit_batch_norm_backward_args, moments);

inline batch_norm::BackwardArgs arguments(const isobit_batch_norm_backward_args& given,
                                          const Reader& read) {
  batch_norm::BackwardArgs args;
  args.x = read("x", given.x);
  args.grad_y = read("grad_y", given.grad_y);
  args.weight = read("weight", given.weight);
  args.running_mean = read("running_mean", given.running_mean);
  args.running_var = read("running_var", given.running_var);
  args.grad_x = read("grad_x", given.grad_x);
  args.grad_weight = read("grad_weight", given.grad_weight);
  args.grad_bias = read("grad_bias", given.grad_bias);
  args.moments = read("moments", given.moments);
  args.eps = given.eps;
  args.training = given.training != 0;
  return args;
}

inline sgd::Args arguments(const isobit_sgd_args& given, const Reader& read) {
  sgd::Args args;
  args.param = read("param", given.param);
  args.grad = read("grad", given.grad);
  args.momentum_buffer = read("momentum_buffer", given.momentum_buffer);
  args.new_param = read("new_param", given.new_param);
  args.new_momentum_buffer = read("new_momentum_buffer", given.new_momentum_buffer);
  args.narrow = read("narrow", given.narrow);
  args.lr = given.lr;
  args.momentum = given.momentum;
  args.dampening = given.dampening;
  args.weight_decay = given.weight_decay;
  args.nesterov = given.nesterov != 0;
  args.maximize = given.maximize != 0;
  return args;
}

inline adam::Args arguments(const isobit_adam_args& given, const Reader& read) {
  adam::Args args;
  args.param = read("param", given.param);
  args.grad = read("grad", given.grad);
  args.exp_avg = read("exp_avg", given.exp_avg);
  args.exp_avg_sq = read("exp_avg_sq", given.exp_avg_sq);
  args.max_exp_avg_sq = read("max_exp_avg_sq", given.max_exp_avg_sq);
  args.new_param = read("new_param", given.new_param);
  args.new_exp_avg = read("new_exp_avg", given.new_exp_avg);
  args.new_exp_avg_sq = read("new_exp_avg_sq", given.new_exp_avg_sq);
  args.new_max_exp_avg_sq = read("new_max_exp_avg_sq", given.new_max_exp_avg_sq);
  args.narrow = read("narrow", given.narrow);
  args.lr = given.lr;
  args.beta1 = given.beta1;
  args.beta2 = given.beta2;
  args.eps = given.eps;
  args.weight_decay = given.weight_decay;
  args.step = given.step;
  args.decoupled = given.decoupled != 0;
  args.maximize = given.maximize != 0;
  return args;
}

inline lion::Args arguments(const isobit_lion_args& given, const Reader& read) {
  lion::Args args;
  args.param = read("param", given.param);
  args.grad = read("grad", given.grad);
  args.exp_avg = read("exp_avg", given.exp_avg);
  args.new_param = read("new_param", given.new_param);
  args.new_exp_avg = read("new_exp_avg", given.new_exp_avg);
  args.narrow = read("narrow", given.narrow);
  args.lr = given.lr;
  args.beta1 = given.beta1;
  args.beta2 = given.beta2;
  args.weight_decay = given.weight_decay;
  args.maximize = given.maximize != 0;
  return args;
}

inline vector_norm::Args arguments(const isobit_vector_norm_args& given, const Reader& read) {
  vector_norm::Args args;
  args.x = read("x", given.x);
  args.norm = read("norm", given.norm);
  args.order = decltype(args.order){given.order};
  return args;
}

inline interpolate::ForwardArgs arguments(const isobit_interpolate_forward_args& given,
                                          const Reader& read) {
  interpolate::ForwardArgs args;
  args.x = read("x", given.x);
  args.y = read("y", given.y);
  args.scale_h = given.scale_h;
  args.scale_w = given.scale_w;
  args.mode = decltype(args.mode){given.mode};
  args.align_corners = given.align_corners != 0;
  return args;
}

inline interpolate::BackwardArgs arguments(const isobit_interpolate_backward_args& given,
                                           const Reader& read) {
  interpolate::BackwardArgs args;
  args.grad_y = read("grad_y", given.grad_y);
  args.grad_x = read("grad_x", given.grad_x);
  args.scale_h = given.scale_h;
  args.scale_w = given.scale_w;
  args.mode = decltype(args.mode){given.mode};
  args.align_corners = given.align_corners != 0;
  return args;
}

inline reduce::ForwardArgs arguments(const isobit_reduce_forward_args& given, const Reader& read) {
  reduce::ForwardArgs args;
  args.x = read("x", given.x);
  args.y = read("y", given.y);
  args.correction = given.correction;
  args.reduction = decltype(args.reduction){given.reduction};
  return args;
}

inline reduce::BackwardArgs arguments(const isobit_reduce_backward_args& given,
                                      const Reader& read) {
  reduce::BackwardArgs args;
  args.x = read("x", given.x);
  args.grad_y = read("grad_y", given.grad_y);
  args.grad_x = read("grad_x", given.grad_x);
  args.correction = given.correction;
  args.reduction = decltype(args.reduction){given.reduction};
  return args;
}

}  // namespace isobit::capi
