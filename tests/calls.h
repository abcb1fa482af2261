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
  isobit_tensor sum = matrix(12), grad_sum = matrix(13), grad_residual = matrix(14);

  isobit_layernorm_forward_args forward = {.struct_size = sizeof forward,
                                           .x = &x,
                                           .residual = nullptr,
                                           .weight = &weight,
                                           .bias = &bias,
                                           .y = &y,
                                           .sum = nullptr,
                                           .mean = &mean,
                                           .rstd = &rstd,
                                           .eps = 1e-5,
                                           .dropout = 0,
                                           .dropout_seed = 0,
                                           .hidden_dims = 1,
                                           .zero_centred = 0};
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
                                             .zero_centred = 0};
  isobit_rmsnorm_forward_args rms_forward = {.struct_size = sizeof rms_forward,
                                             .x = &x,
                                             .residual = &residual,
                                             .weight = &weight,
                                             .y = &y,
                                             .sum = &sum,
                                             .rstd = &rstd,
                                             .eps = 1e-5,
                                             .dropout = 0.5,
                                             .dropout_seed = 7,
                                             .hidden_dims = 1,
                                             .zero_centred = 1};
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
                                               .zero_centred = 1};
  isobit_elementwise_add_args add = {sizeof add, &x, &residual, &y};
  isobit_elementwise_increment_args increment = {sizeof increment, &x, &y};
  isobit_context context = {sizeof context, 0, {}, {}, ISOBIT_CPU, nullptr};

  const std::vector<float>& memory() const { return memory_; }
  float* slot(int index) { return memory_.data() + index * slot_ / 4; }

 private:
  isobit_tensor matrix(int index) {
    return {slot(index), slot_, ISOBIT_F32, 2, {rows_, kCols}, {kCols, 1}};
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

// Every entry of the library.
struct Entry {
  const char* name;
  isobit_status (*call)(const World&);
};
constexpr Entry kEntries[] = {
    {"layernorm", forward},   {"layernorm backward", backward},
    {"rmsnorm", rms_forward}, {"rmsnorm backward", rms_backward},
    {"elementwise", add},     {"elementwise", increment},
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
