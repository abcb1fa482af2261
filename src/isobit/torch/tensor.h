// SPDX-License-Identifier: Apache-2.0
// A tensor of PyTorch behind its stable C interface, and its rows as the C ABI names memory.
#pragma once

#include <torch/csrc/stable/c/shim.h>

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <utility>

#include "isobit/isobit.h"

namespace isobit::torch {

using Shape = std::span<const std::int64_t>;
inline constexpr int kMaxRank = 64;  // of PyTorch's tensors

// Throws what a failed call of the shim meant, with PyTorch's own words where it tells them.
void check(AOTITorchError code);

struct Device {
  std::int32_t type, index;  // PyTorch's numbers
  bool operator==(const Device&) const = default;
};

// Owns a reference. An absent tensor is one without handle.
class Tensor {
 public:
  Tensor() = default;
  explicit Tensor(AtenTensorHandle handle) : handle_(handle) {}
  Tensor(Tensor&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Tensor& operator=(Tensor&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~Tensor() {
    if (handle_ != nullptr) aoti_torch_delete_tensor_object(handle_);
  }

  explicit operator bool() const { return handle_ != nullptr; }
  AtenTensorHandle get() const { return handle_; }
  AtenTensorHandle release() { return std::exchange(handle_, nullptr); }
  Tensor another() const;  // one more reference to it
  bool defined() const;

  int rank() const;
  Shape shape() const;  // as long as the tensor lives, like its strides
  Shape strides() const;
  std::int32_t dtype() const;  // PyTorch's number
  Device device() const;
  const void* input() const;
  void* output() const;

 private:
  AtenTensorHandle handle_ = nullptr;
};

// The elements of one tensor to the places of another, of the same shape.
void copy(const Tensor& to, const Tensor& from);

// The same elements one after the other, in new memory.
Tensor copied(const Tensor& tensor, std::int32_t dtype);

// The strides of adjacent elements.
std::array<std::int64_t, kMaxRank> dense_strides(Shape shape);

// A tensor of adjacent elements from PyTorch's allocator.
Tensor empty_like(const Tensor& like, Shape shape, std::int32_t dtype);

// The same with other strides, of elements that do not overlap.
Tensor empty_strided_like(const Tensor& like, Shape shape, Shape strides, std::int32_t dtype);

// The C ABI's number of one of PyTorch's types, 0 where it has none.
std::int32_t isobit_dtype(std::int32_t dtype);
// torch.float32
std::string dtype_name(std::int32_t dtype);
// The C ABI's numbers of the types that an operator takes.
using DTypes = std::span<const std::int32_t>;
// float32, float16 or bfloat16
std::string choice_of(DTypes dtypes);

enum class Access { read, write };

// An argument of the C ABI with the tensor's own dimensions and strides, for operators that take
// any; nothing is copied. The tensor has at most ISOBIT_MAX_RANK dimensions, and outlives it.
isobit_tensor strided(const Tensor& tensor, Access access = Access::read);
// The same with other dimensions and strides over the tensor's memory.
isobit_tensor strided(const Tensor& tensor, Shape sizes, Shape strides,
                      Access access = Access::read);

// The same of a tensor that may be absent, which gives null.
class Given {
 public:
  explicit Given(const Tensor& tensor, Access access = Access::read)
      : tensor_(tensor ? strided(tensor, access) : isobit_tensor{}), given_(bool(tensor)) {}
  const isobit_tensor* get() const { return given_ ? &tensor_ : nullptr; }

 private:
  isobit_tensor tensor_;
  bool given_;
};

// An argument of the C ABI: all dimensions but the last `hidden_dims` as rows, these as columns. A
// tensor that cannot be walked so is copied first. Absent tensors give null.
class Argument {
 public:
  Argument() = default;
  Argument(const Tensor& tensor, std::int64_t hidden_dims, Access access = Access::read);

  const isobit_tensor* get() const { return view_.rank == 0 ? nullptr : &view_; }

 private:
  bool walk(const Tensor& tensor, std::int64_t hidden_dims);

  Tensor copy_;
  isobit_tensor view_{};
};

// The same for what is one vector to the C ABI, whatever its dimensions: weights and their
// gradients.
inline constexpr std::int64_t kAllDims = -1;

}  // namespace isobit::torch
