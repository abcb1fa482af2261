// SPDX-License-Identifier: Apache-2.0
// Right calls through the C interface, for tests that change one thing about them.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <iterator>
#include <limits>
#include <string>
#include <vector>

#include "calls_world.h"
#include "isobit/isobit.h"

namespace isobit::calls {

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
inline isobit_status interpolate(const World& world) {
  return isobit_interpolate_forward(&world.interpolate, &world.context);
}
inline isobit_status interpolate_backward(const World& world) {
  return isobit_interpolate_backward(&world.interpolate_backward, &world.context);
}
inline isobit_status pool2d(const World& world) {
  return isobit_pool2d_forward(&world.pool2d, &world.context);
}
inline isobit_status pool2d_backward(const World& world) {
  return isobit_pool2d_backward(&world.pool2d_backward, &world.context);
}
inline isobit_status softmax(const World& world) {
  return isobit_softmax_forward(&world.softmax, &world.context);
}
inline isobit_status softmax_backward(const World& world) {
  return isobit_softmax_backward(&world.softmax_backward, &world.context);
}
inline isobit_status cross_entropy(const World& world) {
  return isobit_cross_entropy_forward(&world.cross_entropy, &world.context);
}
inline isobit_status cross_entropy_backward(const World& world) {
  return isobit_cross_entropy_backward(&world.cross_entropy_backward, &world.context);
}
inline isobit_status linear_cross_entropy(const World& world) {
  return isobit_linear_cross_entropy_forward(&world.linear_cross_entropy, &world.context);
}
inline isobit_status linear_cross_entropy_backward(const World& world) {
  return isobit_linear_cross_entropy_backward(&world.linear_cross_entropy_backward, &world.context);
}
inline isobit_status embedding(const World& world) {
  return isobit_embedding_forward(&world.embedding, &world.context);
}
inline isobit_status embedding_backward(const World& world) {
  return isobit_embedding_backward(&world.embedding_backward, &world.context);
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

// By a matrix that is packed for it, which takes memory of its own.
inline isobit_status matmul_packed(const World& world) {
  isobit_packed_matrix* packed = nullptr;
  isobit_status status = isobit_matmul_pack(world.matmul.b, nullptr, &packed);
  if (status != ISOBIT_OK) return status;
  isobit_matmul_args args = world.matmul;
  args.b = nullptr;
  status = isobit_matmul_packed(&args, packed, &world.context);
  isobit_packed_matrix_free(packed);
  return status;
}

inline isobit_status matmul_backward(const World& world) {
  return isobit_matmul_backward(&world.matmul_backward, &world.context);
}

inline isobit_status layernorm_linear(const World& world) {
  return isobit_layernorm_linear_forward(&world.layernorm_linear, &world.context);
}
inline isobit_status layernorm_linear_backward(const World& world) {
  return isobit_layernorm_linear_backward(&world.layernorm_linear_backward, &world.context);
}
inline isobit_status rmsnorm_linear(const World& world) {
  return isobit_rmsnorm_linear_forward(&world.rmsnorm_linear, &world.context);
}
inline isobit_status rmsnorm_linear_backward(const World& world) {
  return isobit_rmsnorm_linear_backward(&world.rmsnorm_linear_backward, &world.context);
}

inline isobit_status conv1d(const World& world) {
  return isobit_conv1d(&world.conv1d, &world.context);
}
inline isobit_status conv1d_backward(const World& world) {
  return isobit_conv1d_backward(&world.conv1d_backward, &world.context);
}
inline isobit_status conv2d(const World& world) {
  return isobit_conv2d(&world.conv2d, &world.context);
}
inline isobit_status conv2d_backward(const World& world) {
  return isobit_conv2d_backward(&world.conv2d_backward, &world.context);
}

inline isobit_status attention(const World& world) {
  return isobit_attention_forward(&world.attention, &world.context);
}
inline isobit_status attention_backward(const World& world) {
  return isobit_attention_backward(&world.attention_backward, &world.context);
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

inline isobit_status dropout(const World& world) {
  return isobit_dropout(&world.dropout, &world.context);
}
inline isobit_status pointwise_loss(const World& world) {
  return isobit_pointwise_loss_forward(&world.pointwise_loss, &world.context);
}
inline isobit_status pointwise_loss_backward(const World& world) {
  return isobit_pointwise_loss_backward(&world.pointwise_loss_backward, &world.context);
}
inline isobit_status random(const World& world) {
  return isobit_random(&world.random, &world.context);
}

inline isobit_status sgd(const World& world) { return isobit_sgd(&world.sgd, &world.context); }
inline isobit_status adam(const World& world) { return isobit_adam(&world.adam, &world.context); }
inline isobit_status lion(const World& world) { return isobit_lion(&world.lion, &world.context); }
inline isobit_status vector_norm(const World& world) {
  return isobit_vector_norm(&world.vector_norm, &world.context);
}

// Every entry of the library.
struct Entry {
  const char* name;
  isobit_status (*call)(const World&);
};
// Groups of two of the channels of lines.
inline isobit_status group_norm(const World& world) {
  isobit_group_norm_forward_args args = {.struct_size = sizeof args,
                                         .x = &world.line_x,
                                         .weight = &world.channel_weight,
                                         .bias = &world.channel_bias,
                                         .y = &world.line_y,
                                         .mean = nullptr,
                                         .rstd = nullptr,
                                         .groups = kCols / 2,
                                         .eps = 1e-5,
                                         .moments = nullptr};
  return isobit_group_norm_forward(&args, &world.context);
}
inline isobit_status group_norm_backward(const World& world) {
  isobit_group_norm_backward_args args = {.struct_size = sizeof args,
                                          .x = &world.line_x,
                                          .grad_y = &world.line_x,
                                          .weight = &world.channel_weight,
                                          .grad_x = &world.line_y,
                                          .grad_weight = &world.to_channel_weight,
                                          .grad_bias = &world.to_channel_bias,
                                          .groups = kCols / 2,
                                          .eps = 1e-5,
                                          .moments = nullptr};
  return isobit_group_norm_backward(&args, &world.context);
}
inline isobit_status batch_norm(const World& world) {
  isobit_batch_norm_forward_args args = {.struct_size = sizeof args,
                                         .x = &world.line_x,
                                         .weight = nullptr,
                                         .bias = nullptr,
                                         .running_mean = &world.channel_weight,
                                         .running_var = &world.channel_bias,
                                         .y = &world.line_y,
                                         .mean = nullptr,
                                         .rstd = nullptr,
                                         .next_mean = &world.to_channel_weight,
                                         .next_var = &world.to_channel_bias,
                                         .momentum = 0.1,
                                         .eps = 1e-5,
                                         .training = 1,
                                         .moments = nullptr};
  return isobit_batch_norm_forward(&args, &world.context);
}
inline isobit_status batch_norm_backward(const World& world) {
  isobit_batch_norm_backward_args args = {.struct_size = sizeof args,
                                          .x = &world.line_x,
                                          .grad_y = &world.line_x,
                                          .weight = &world.channel_weight,
                                          .running_mean = nullptr,
                                          .running_var = nullptr,
                                          .grad_x = &world.line_y,
                                          .grad_weight = &world.to_channel_weight,
                                          .grad_bias = &world.to_channel_bias,
                                          .eps = 1e-5,
                                          .training = 1,
                                          .moments = nullptr};
  return isobit_batch_norm_backward(&args, &world.context);
}

inline isobit_status reduce(const World& world) {
  return isobit_reduce_forward(&world.reduce, &world.context);
}
inline isobit_status reduce_backward(const World& world) {
  return isobit_reduce_backward(&world.reduce_backward, &world.context);
}

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
    {"pool2d", pool2d},
    {"pool2d backward", pool2d_backward},
    {"interpolate", interpolate},
    {"interpolate backward", interpolate_backward},
    {"softmax", softmax},
    {"softmax backward", softmax_backward},
    {"cross_entropy", cross_entropy},
    {"cross_entropy backward", cross_entropy_backward},
    {"linear_cross_entropy", linear_cross_entropy},
    {"linear_cross_entropy backward", linear_cross_entropy_backward},
    {"embedding", embedding},
    {"embedding backward", embedding_backward},
    {"rope", rope},
    {"rope backward", rope_backward},
    {"rope_tables", rope_tables},
    {"random", random},
    {"dropout", dropout},
    {"pointwise_loss", pointwise_loss},
    {"pointwise_loss backward", pointwise_loss_backward},
    {"scan", scan_sum},
    {"scan", scan_prod},
    {"scan", scan_max},
    {"scan", scan_min},
    {"scan", scan_logsumexp},
    {"matmul", matmul},
    {"matmul backward", matmul_backward},
    {"layernorm_linear", layernorm_linear},
    {"layernorm_linear backward", layernorm_linear_backward},
    {"rmsnorm_linear", rmsnorm_linear},
    {"rmsnorm_linear backward", rmsnorm_linear_backward},
    {"conv1d", conv1d},
    {"conv1d backward", conv1d_backward},
    {"conv2d", conv2d},
    {"conv2d backward", conv2d_backward},
    {"attention", attention},
    {"attention backward", attention_backward},
    {"group_norm", group_norm},
    {"group_norm backward", group_norm_backward},
    {"batch_norm", batch_norm},
    {"batch_norm backward", batch_norm_backward},
    {"sgd", sgd},
    {"adam", adam},
    {"lion", lion},
    {"vector_norm", vector_norm},
    {"reduce", reduce},
    {"reduce backward", reduce_backward},
};
// Those, and what makes objects that outlive a call.
constexpr auto kEntriesAndObjects = [] {
  std::array<Entry, std::size(kEntries) + 1> all{};
  std::copy(std::begin(kEntries), std::end(kEntries), all.begin());
  all.back() = {"matmul", matmul_packed};
  return all;
}();

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
