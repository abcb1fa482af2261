// SPDX-License-Identifier: Apache-2.0
// Right calls through the C interface, for tests that change one thing about them.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "isobit/isobit.h"

namespace isobit::calls {

constexpr std::int64_t kRows = 3, kCols = 8;
constexpr std::int64_t kSlot = 1024;  // bytes that belong to each array
constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();

// A right call of every entry, for a case to spoil.
class World {
  std::int64_t rows_, slot_;  // first: the tensors point into the memory
  std::vector<float> memory_ = std::vector<float>(15 * slot_ / 4);

 public:
  explicit World(std::int64_t rows = kRows)
      : rows_(rows), slot_(std::max(kSlot, rows * kCols * 4)) {
    for (std::size_t i = 0; i < memory_.size(); ++i) memory_[i] = std::sin(static_cast<float>(i));
  }
  World(const World&) = delete;
  World& operator=(const World&) = delete;

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
  isobit_tensor line_x = lines(0), line_y = lines(5);
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
                               .activation = 2};
  isobit_context context = {sizeof context, 0, {}, {}, ISOBIT_CPU, nullptr};

  const std::vector<float>& memory() const { return memory_; }
  float* slot(int index) { return memory_.data() + index * slot_ / 4; }

 private:
  isobit_tensor matrix(int index) {
    return {slot(index), slot_, ISOBIT_F32, 2, {rows_, kCols}, {kCols, 1}};
  }
  // Rows with one column inside them.
  isobit_tensor lines(int index) {
    return {slot(index), slot_, ISOBIT_F32, 3, {rows_, kCols, 1}, {kCols, 1, 1}};
  }
  // Of one head, whose tables have a column for two of its elements.
  isobit_tensor heads(int index) {
    return {
        slot(index), slot_, ISOBIT_F32, 4, {1, rows_, 1, kCols}, {rows_ * kCols, kCols, kCols, 1}};
  }
  isobit_tensor table(int index) {
    return {slot(index), slot_, ISOBIT_F32, 2, {rows_, kCols / 2}, {kCols / 2, 1}};
  }
  isobit_tensor vector(int index, std::int64_t count) {
    return {slot(index), slot_, ISOBIT_F32, 1, {count}, {1}};
  }
};

inline isobit_status forward(const World& world) {
  return isobit_layernorm_forward(&world.forward, &world.context);
}
inline isobit_status backward(const World& world) {
  return isobit_layernorm_backward(&world.backward, &world.context);
}
inline isobit_status rms_forward(const World& world) {
  return isobit_rmsnorm_forward(&world.rms_forward, &world.context);
}
inline isobit_status rms_backward(const World& world) {
  return isobit_rmsnorm_backward(&world.rms_backward, &world.context);
}
inline isobit_status add(const World& world) {
  return isobit_elementwise_add(&world.add, &world.context);
}
inline isobit_status increment(const World& world) {
  return isobit_elementwise_increment(&world.increment, &world.context);
}
inline isobit_status activation(const World& world) {
  return isobit_activation_forward(&world.activation, &world.context);
}
inline isobit_status activation_backward(const World& world) {
  return isobit_activation_backward(&world.activation_backward, &world.context);
}
inline isobit_status scan_sum(const World& world) {
  return isobit_scan_sum(&world.scan_sum, &world.context);
}
inline isobit_status scan_prod(const World& world) {
  return isobit_scan_prod(&world.scan_prod, &world.context);
}
inline isobit_status scan_max(const World& world) {
  return isobit_scan_max(&world.scan_max, &world.context);
}
inline isobit_status scan_min(const World& world) {
  return isobit_scan_min(&world.scan_min, &world.context);
}
inline isobit_status scan_logsumexp(const World& world) {
  return isobit_scan_logsumexp(&world.scan_logsumexp, &world.context);
}
inline isobit_status transpose(const World& world) {
  return isobit_transpose(&world.transpose, &world.context);
}

inline isobit_status matmul(const World& world) {
  return isobit_matmul(&world.matmul, &world.context);
}

inline isobit_status rope(const World& world) {
  return isobit_rope_forward(&world.rope, &world.context);
}
inline isobit_status rope_backward(const World& world) {
  return isobit_rope_backward(&world.rope_backward, &world.context);
}
inline isobit_status rope_tables(const World& world) {
  return isobit_rope_tables(&world.rope_tables, &world.context);
}

// Every entry of the library.
struct Entry {
  const char* name;
  isobit_status (*call)(const World&);
};
constexpr Entry kEntries[] = {
    {"layernorm", forward},
    {"layernorm backward", backward},
    {"rmsnorm", rms_forward},
    {"rmsnorm backward", rms_backward},
    {"elementwise", add},
    {"elementwise", increment},
    {"transpose", transpose},
    {"activation", activation},
    {"activation backward", activation_backward},
    {"rope", rope},
    {"rope backward", rope_backward},
    {"rope_tables", rope_tables},
    {"scan", scan_sum},
    {"scan", scan_prod},
    {"scan", scan_max},
    {"scan", scan_min},
    {"scan", scan_logsumexp},
    {"matmul", matmul},
};

inline void move(isobit_tensor& tensor, std::ptrdiff_t bytes) {
  tensor.data = static_cast<std::byte*>(tensor.data) + bytes;
}

// A right call with one change to it.
struct Call {
  isobit_status (*entry)(const World&);
  std::function<void(World&)> change;
  std::string says;
};

}  // namespace isobit::calls
