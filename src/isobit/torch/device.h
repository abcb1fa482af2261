// SPDX-License-Identifier: Apache-2.0
// What the adapters for CPU and CUDA do each in its own way: cpu.cpp and cuda.cpp define it.
#pragma once

#include <memory>

#include "isobit/torch/tensor.h"

namespace isobit::torch {

// What PyTorch lends to a call on x's device, for as long as the call lasts.
class Lent {
 public:
  explicit Lent(const Tensor& x);
  ~Lent();
  const isobit_context* context() const { return &context_; }

 private:
  struct Resources;
  std::unique_ptr<Resources> resources_;
  isobit_context context_{};
};

// Memory for a result on x's device.
Tensor new_output(const Tensor& x, Shape shape, std::int32_t dtype);

// The same with other strides, of elements that are dense all the same.
Tensor new_strided_output(const Tensor& x, Shape shape, Shape strides, std::int32_t dtype);

}  // namespace isobit::torch
