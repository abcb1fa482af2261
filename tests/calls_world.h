// SPDX-License-Identifier: Apache-2.0
// The arrays and arguments of a right call of every entry.
#pragma once

#include <cstdint>

#include "calls_of_classes.h"
#include "isobit/isobit.h"

namespace isobit::calls {

// A right call of every entry, for a case to spoil.
class World : public CallsOfClasses {
 public:
  using CallsOfClasses::CallsOfClasses;

  isobit_tensor x = matrix(0), residual = matrix(1), grad_y = matrix(2);
  isobit_tensor weight = vector(3, kCols), bias = vector(4, kCols);
  isobit_tensor y = matrix(5), grad_x = matrix(6);
  isobit_tensor mean = vector(7, rows_), rstd = vector(8, rows_);
  isobit_tensor grad_weight = vector(9, kCols), grad_bias = vector(10, kCols);
  isobit_tensor transposed = {slot(11), slot_, ISOBIT_F32, 2, {kCols, rows_}, {rows_, 1}};
  isobit_tensor sum = matrix(12), grad_sum = matrix(13), grad_residual = matrix(14);

  isobit_layernorm_forward_args forward = {.struct_size = sizeof forward,
                                           .x = &x,
                                           .weight = &weight,
                                           .bias = &bias,
                                           .residual = nullptr,
                                           .y = &y,
                                           .sum = nullptr,
                                           .mean = &mean,
                                           .rstd = &rstd,
                                           .eps = 1e-5,
                                           .dropout = 0,
                                           .dropout_seed = 0,
                                           .hidden_dims = 1,
                                           .zero_centered = 0};
  isobit_layernorm_backward_args backward = {.struct_size = sizeof backward,
                                             .x = &x,
                                             .grad_y = &grad_y,
                                             .weight = &weight,
                                             .mean = &mean,
                                             .rstd = &rstd,
                                             .grad_sum = nullptr,
                                             .grad_x = &grad_x,
                                             .grad_residual = nullptr,
                                             .grad_weight = &grad_weight,
                                             .grad_bias = &grad_bias,
                                             .eps = 1e-5,
                                             .dropout = 0,
                                             .dropout_seed = 0,
                                             .hidden_dims = 1,
                                             .zero_centered = 0};
  isobit_rmsnorm_forward_args rms_forward = {.struct_size = sizeof rms_forward,
                                             .x = &x,
                                             .weight = &weight,
                                             .residual = &residual,
                                             .y = &y,
                                             .sum = &sum,
                                             .rstd = &rstd,
                                             .eps = 1e-5,
                                             .dropout = 0.5,
                                             .dropout_seed = 7,
                                             .hidden_dims = 1,
                                             .zero_centered = 1};
  isobit_rmsnorm_backward_args rms_backward = {.struct_size = sizeof rms_backward,
                                               .x = &x,
                                               .grad_y = &grad_y,
                                               .weight = &weight,
                                               .rstd = &rstd,
                                               .grad_sum = &grad_sum,
                                               .grad_x = &grad_x,
                                               .grad_residual = &grad_residual,
                                               .grad_weight = &grad_weight,
                                               .eps = 1e-5,
                                               .dropout = 0.5,
                                               .dropout_seed = 7,
                                               .hidden_dims = 1,
                                               .zero_centered = 1};
  isobit_elementwise_add_args add = {sizeof add, &x, &residual, &y};
  isobit_elementwise_increment_args increment = {sizeof increment, &x, &y};
  isobit_activation_forward_args activation = {
      .struct_size = sizeof activation, .x = &x, .gate = &residual, .y = &y, .function = 6};
  isobit_activation_backward_args activation_backward = {.struct_size = sizeof activation_backward,
                                                         .x = &x,
                                                         .grad_y = &grad_y,
                                                         .gate = &residual,
                                                         .grad_x = &grad_x,
                                                         .grad_gate = &grad_residual,
                                                         .function = 4};
  isobit_softmax_forward_args softmax = {
      .struct_size = sizeof softmax, .x = &x, .mask = nullptr, .y = &y, .scale = 1, .log = 0};
  isobit_softmax_backward_args softmax_backward = {.struct_size = sizeof softmax_backward,
                                                   .y = &x,
                                                   .grad_y = &grad_y,
                                                   .mask = nullptr,
                                                   .grad_x = &grad_x,
                                                   .scale = 1,
                                                   .log = 1};
  isobit_tensor q = heads(0), k = heads(1), y_q = heads(5), y_k = heads(6);
  isobit_tensor cos = table(3), sin = table(4);
  isobit_rope_forward_args rope = {.struct_size = sizeof rope,
                                   .q = &q,
                                   .k = &k,
                                   .cos = &cos,
                                   .sin = &sin,
                                   .positions = nullptr,
                                   .y_q = &y_q,
                                   .y_k = &y_k,
                                   .base = 10000,
                                   .offset_positions = 0,
                                   .rotary_dim = 0,
                                   .style = 1};
  isobit_rope_backward_args rope_backward = {.struct_size = sizeof rope_backward,
                                             .grad_y_q = &q,
                                             .grad_y_k = &k,
                                             .cos = nullptr,
                                             .sin = nullptr,
                                             .positions = nullptr,
                                             .grad_q = &y_q,
                                             .grad_k = &y_k,
                                             .base = 10000,
                                             .offset_positions = 5,
                                             .rotary_dim = 6,
                                             .style = 0};
  isobit_rope_tables_args rope_tables = {.struct_size = sizeof rope_tables,
                                         .inv_freq = nullptr,
                                         .positions = nullptr,
                                         .cos = &cos,
                                         .sin = &sin,
                                         .base = 0,
                                         .offset_positions = 7};
  isobit_pointwise_loss_forward_args pointwise_loss = {.struct_size = sizeof pointwise_loss,
                                                       .x = &x,
                                                       .target = &residual,
                                                       .weight = &residual,
                                                       .pos_weight = &residual,
                                                       .loss = &y,
                                                       .beta = 0,
                                                       .function = 4};
  isobit_pointwise_loss_backward_args pointwise_loss_backward = {
      .struct_size = sizeof pointwise_loss_backward,
      .x = &x,
      .target = &residual,
      .weight = &residual,
      .pos_weight = nullptr,
      .grad_loss = &grad_y,
      .grad_x = &grad_x,
      .beta = 0.5,
      .function = 3};
  isobit_dropout_args dropout = {
      .struct_size = sizeof dropout, .x = &x, .y = &y, .p = 0.5, .dropout_seed = 7};
  isobit_random_args random = {.struct_size = sizeof random,
                               .y = &y,
                               .low = -2,
                               .high = 2,
                               .mean = 0,
                               .std = 1,
                               .p = 0,
                               .random_seed = 7,
                               .random_offset = 3,
                               .distribution = 2};
  isobit_tensor line_x = lines(0), line_y = lines(5);
  isobit_tensor channel_weight = vector(3, kCols), channel_bias = vector(4, kCols);
  isobit_tensor to_channel_weight = vector(9, kCols), to_channel_bias = vector(10, kCols);
  isobit_scan_sum_args scan_sum = {.struct_size = sizeof scan_sum,
                                   .x = &line_x,
                                   .init = nullptr,
                                   .reset = nullptr,
                                   .y = &line_y,
                                   .exclusive = 0,
                                   .reverse = 1};
  isobit_scan_prod_args scan_prod = {.struct_size = sizeof scan_prod,
                                     .x = &line_x,
                                     .init = nullptr,
                                     .reset = nullptr,
                                     .y = &line_y,
                                     .exclusive = 0,
                                     .reverse = 1};
  isobit_scan_max_args scan_max = {.struct_size = sizeof scan_max,
                                   .x = &line_x,
                                   .init = nullptr,
                                   .reset = nullptr,
                                   .y = &line_y,
                                   .index = nullptr,
                                   .exclusive = 0,
                                   .reverse = 1};
  isobit_scan_min_args scan_min = {.struct_size = sizeof scan_min,
                                   .x = &line_x,
                                   .init = nullptr,
                                   .reset = nullptr,
                                   .y = &line_y,
                                   .index = nullptr,
                                   .exclusive = 0,
                                   .reverse = 1};
  isobit_scan_logsumexp_args scan_logsumexp = {.struct_size = sizeof scan_logsumexp,
                                               .x = &line_x,
                                               .init = nullptr,
                                               .reset = nullptr,
                                               .y = &line_y,
                                               .exclusive = 0,
                                               .reverse = 1};
  isobit_transpose_args transpose = {sizeof transpose, &x, &transposed};
  isobit_tensor left = matrix(0),
                right = {slot(1), slot_, ISOBIT_F32, 2, {kCols, kCols}, {kCols, 1}};
  isobit_tensor addend = matrix(2), per_col = vector(4, kCols), product = matrix(5),
                pre = matrix(6);
  isobit_matmul_args matmul = {.struct_size = sizeof matmul,
                               .a = &left,
                               .b = &right,
                               .bias = &per_col,
                               .c = &addend,
                               .residual = &addend,
                               .y = &product,
                               .pre = &pre,
                               .alpha = 2,
                               .beta = 0.5,
                               .activation = 2,
                               .arithmetic = 0};
  isobit_tensor grad_left = matrix(5), grad_addend = matrix(6),
                grad_right = {slot(3), slot_, ISOBIT_F32, 2, {kCols, kCols}, {kCols, 1}},
                grad_per_col = vector(7, kCols);
  isobit_matmul_backward_args matmul_backward = {.struct_size = sizeof matmul_backward,
                                                 .grad_y = &addend,
                                                 .a = &left,
                                                 .b = &right,
                                                 .pre = &addend,
                                                 .grad_a = &grad_left,
                                                 .grad_b = &grad_right,
                                                 .grad_bias = &grad_per_col,
                                                 .grad_c = &grad_addend,
                                                 .alpha = 2,
                                                 .beta = 0.5,
                                                 .activation = 2,
                                                 .arithmetic = 0};
  isobit_layernorm_linear_forward_args layernorm_linear = {.struct_size = sizeof layernorm_linear,
                                                           .x = &left,
                                                           .norm_weight = &per_col,
                                                           .norm_bias = &per_col,
                                                           .weight = &right,
                                                           .bias = &per_col,
                                                           .x_residual = &addend,
                                                           .residual = &addend,
                                                           .z = &product,
                                                           .pre = &pre,
                                                           .sum = nullptr,
                                                           .y = nullptr,
                                                           .mean = nullptr,
                                                           .rstd = nullptr,
                                                           .eps = 1e-5,
                                                           .dropout = 0,
                                                           .dropout_seed = 0,
                                                           .zero_centered = 0,
                                                           .activation = 2,
                                                           .arithmetic = 0};
  isobit_layernorm_linear_backward_args layernorm_linear_backward = {
      .struct_size = sizeof layernorm_linear_backward,
      .grad_z = &addend,
      .x = &left,
      .norm_weight = &per_col,
      .norm_bias = &per_col,
      .weight = &right,
      .pre = &addend,
      .grad_sum = nullptr,
      .grad_x = &grad_left,
      .grad_x_residual = nullptr,
      .grad_norm_weight = nullptr,
      .grad_norm_bias = nullptr,
      .grad_weight = &grad_right,
      .grad_bias = &grad_per_col,
      .eps = 1e-5,
      .dropout = 0,
      .dropout_seed = 0,
      .zero_centered = 0,
      .activation = 2,
      .arithmetic = 0};
  isobit_rmsnorm_linear_forward_args rmsnorm_linear = {.struct_size = sizeof rmsnorm_linear,
                                                       .x = &left,
                                                       .norm_weight = &per_col,
                                                       .weight = &right,
                                                       .bias = &per_col,
                                                       .x_residual = &addend,
                                                       .residual = &addend,
                                                       .z = &product,
                                                       .pre = &pre,
                                                       .sum = nullptr,
                                                       .y = nullptr,
                                                       .rstd = nullptr,
                                                       .eps = 1e-5,
                                                       .dropout = 0,
                                                       .dropout_seed = 0,
                                                       .zero_centered = 0,
                                                       .activation = 2,
                                                       .arithmetic = 0};
  isobit_rmsnorm_linear_backward_args rmsnorm_linear_backward = {
      .struct_size = sizeof rmsnorm_linear_backward,
      .grad_z = &addend,
      .x = &left,
      .norm_weight = &per_col,
      .weight = &right,
      .pre = &addend,
      .grad_sum = nullptr,
      .grad_x = &grad_left,
      .grad_x_residual = nullptr,
      .grad_norm_weight = nullptr,
      .grad_weight = &grad_right,
      .grad_bias = &grad_per_col,
      .eps = 1e-5,
      .dropout = 0,
      .dropout_seed = 0,
      .zero_centered = 0,
      .activation = 2,
      .arithmetic = 0};
  // One channel and one filter: rows of 8 elements, or images of 2 x 4.
  isobit_tensor signal = signals(0), signal_residual = signals(1), signal_grad = signals(2),
                filtered = signals(5), signal_pre = signals(6), to_signal = signals(6),
                taps = {slot(3), slot_, ISOBIT_F32, 3, {1, 1, 3}, {3, 3, 1}},
                to_taps = {slot(9), slot_, ISOBIT_F32, 3, {1, 1, 3}, {3, 3, 1}},
                of_filter = vector(4, 1), to_filter = vector(10, 1);
  isobit_tensor image = images(0), image_residual = images(1), image_grad = images(2),
                convolved = images(5), image_pre = images(6), to_image = images(6),
                window = {slot(3), slot_, ISOBIT_F32, 4, {1, 1, 3, 3}, {9, 9, 3, 1}},
                to_window = {slot(9), slot_, ISOBIT_F32, 4, {1, 1, 3, 3}, {9, 9, 3, 1}};
  isobit_conv1d_args conv1d = {.struct_size = sizeof conv1d,
                               .x = &signal,
                               .weight = &taps,
                               .bias = &of_filter,
                               .residual = &signal_residual,
                               .y = &filtered,
                               .pre = &signal_pre,
                               .stride = 1,
                               .dilation = 1,
                               .padding = 1,
                               .extra_padding = 0,
                               .groups = 1,
                               .padding_mode = 0,
                               .activation = 2};
  isobit_conv1d_backward_args conv1d_backward = {.struct_size = sizeof conv1d_backward,
                                                 .grad_y = &signal_grad,
                                                 .x = &signal,
                                                 .weight = &taps,
                                                 .grad_x = &to_signal,
                                                 .grad_weight = &to_taps,
                                                 .grad_bias = &to_filter,
                                                 .stride = 1,
                                                 .dilation = 1,
                                                 .padding = 1,
                                                 .extra_padding = 0,
                                                 .groups = 1,
                                                 .padding_mode = 0};
  isobit_conv2d_args conv2d = {.struct_size = sizeof conv2d,
                               .x = &image,
                               .weight = &window,
                               .bias = &of_filter,
                               .residual = &image_residual,
                               .y = &convolved,
                               .pre = &image_pre,
                               .stride_h = 1,
                               .stride_w = 1,
                               .dilation_h = 1,
                               .dilation_w = 1,
                               .padding_h = 1,
                               .padding_w = 1,
                               .extra_padding_h = 0,
                               .extra_padding_w = 0,
                               .groups = 1,
                               .padding_mode = 0,
                               .activation = 2};
  isobit_conv2d_backward_args conv2d_backward = {.struct_size = sizeof conv2d_backward,
                                                 .grad_y = &image_grad,
                                                 .x = &image,
                                                 .weight = &window,
                                                 .grad_x = &to_image,
                                                 .grad_weight = &to_window,
                                                 .grad_bias = &to_filter,
                                                 .stride_h = 1,
                                                 .stride_w = 1,
                                                 .dilation_h = 1,
                                                 .dilation_w = 1,
                                                 .padding_h = 1,
                                                 .padding_w = 1,
                                                 .extra_padding_h = 0,
                                                 .extra_padding_w = 0,
                                                 .groups = 1,
                                                 .padding_mode = 0};
  isobit_tensor places = places_like(7), kept_places = places_like(13);
  isobit_pool2d_forward_args pool2d = pooled<isobit_pool2d_forward_args>([this](auto& args) {
    args.x = &image;
    args.y = &convolved;
    args.index = &places;
  });
  isobit_pool2d_backward_args pool2d_backward =
      pooled<isobit_pool2d_backward_args>([this](auto& args) {
        args.grad_y = &image_grad;
        args.index = &kept_places;
        args.grad_x = &to_image;
      });
  isobit_interpolate_forward_args interpolate = {.struct_size = sizeof interpolate,
                                                 .x = &image,
                                                 .y = &convolved,
                                                 .scale_h = 0,
                                                 .scale_w = 0,
                                                 .mode = 2,
                                                 .align_corners = 0};
  isobit_interpolate_backward_args interpolate_backward = {
      sizeof interpolate_backward, &image_grad, &to_image, 0, 0, 2, 0};
  isobit_tensor query = sequence(0), key = sequence(1), value = sequence(2),
                grad_attended = sequence(3), attended = sequence(5), grad_query = sequence(6),
                grad_key = sequence(11), grad_value = sequence(12);
  isobit_tensor grad_lse = per_query(4), largest = per_query(8), total = per_query(9);
  isobit_tensor to_lse = per_query(7), to_largest = per_query(13), to_total = per_query(14);
  isobit_attention_forward_args attention = {.struct_size = sizeof attention,
                                             .q = &query,
                                             .k = &key,
                                             .v = &value,
                                             .bias = nullptr,
                                             .mask = nullptr,
                                             .y = &attended,
                                             .lse = &to_lse,
                                             .max = &to_largest,
                                             .sum = &to_total,
                                             .window = 2,
                                             .scale = 0,
                                             .softcap = 3,
                                             .dropout = 0.25,
                                             .dropout_seed = 7,
                                             .causal = 1,
                                             .slopes = nullptr,
                                             .key_begin = nullptr,
                                             .key_end = nullptr,
                                             .query_starts = nullptr,
                                             .key_starts = nullptr,
                                             .blocks = nullptr,
                                             .arithmetic = 0};
  isobit_attention_backward_args attention_backward = {.struct_size = sizeof attention_backward,
                                                       .grad_y = &grad_attended,
                                                       .grad_lse = &grad_lse,
                                                       .q = &query,
                                                       .k = &key,
                                                       .v = &value,
                                                       .bias = nullptr,
                                                       .mask = nullptr,
                                                       .y = &attended,
                                                       .max = &largest,
                                                       .sum = &total,
                                                       .grad_q = &grad_query,
                                                       .grad_k = &grad_key,
                                                       .grad_v = &grad_value,
                                                       .grad_bias = nullptr,
                                                       .window = 2,
                                                       .scale = 0,
                                                       .softcap = 3,
                                                       .dropout = 0.25,
                                                       .dropout_seed = 7,
                                                       .causal = 1,
                                                       .slopes = nullptr,
                                                       .key_begin = nullptr,
                                                       .key_end = nullptr,
                                                       .query_starts = nullptr,
                                                       .key_starts = nullptr,
                                                       .arithmetic = 0};
  // Options in the order of operators.h.
  isobit_sgd_args sgd = {sizeof sgd, &x,  &grad_y, &residual, &grad_x, &sum, nullptr,
                         0.5,        0.5, 0.25,    0.125,     1,       0};
  isobit_adam_args adam = {sizeof adam,
                           &x,
                           &grad_y,
                           &residual,
                           &grad_sum,
                           nullptr,
                           &grad_x,
                           &sum,
                           &grad_residual,
                           nullptr,
                           nullptr,
                           0.5,
                           0.5,
                           0.75,
                           0.125,
                           0.25,
                           3,
                           1,
                           0};
  isobit_lion_args lion = {sizeof lion, &x,  &grad_y, &residual, &grad_x, &sum,
                           nullptr,     0.5, 0.5,     0.75,      0.25,    1};
  isobit_vector_norm_args vector_norm = {
      .struct_size = sizeof vector_norm, .x = &x, .norm = &mean, .order = 0};
  isobit_reduce_forward_args reduce = {
      .struct_size = sizeof reduce, .x = &x, .y = &mean, .correction = 1, .reduction = 3};
  isobit_reduce_backward_args reduce_backward = {sizeof reduce_backward, &x, &mean, &grad_x, 1, 2};
  isobit_context context = {sizeof context, 0, {}, {}, ISOBIT_CPU, nullptr};
};

}  // namespace isobit::calls
