// SPDX-License-Identifier: Apache-2.0
// The adapter for CUDA tensors: PyTorch's current stream, and memory of its caching allocator. It
// compiles without a CUDA toolkit and needs PyTorch's CUDA build to load.
#include <vector>

#include "isobit/torch/device.h"
#include "isobit/torch/operators.h"
#include "isobit/torch/optimizers.h"

namespace isobit::torch {
namespace {

// Workspace comes from PyTorch as tensors of bytes. Given back when the call returns, it stays with
// the stream: PyTorch lends it to work on the same stream only.
struct Workspace {
  const Tensor& like;
  std::vector<Tensor> tensors;

  static void* allocate(void* self, std::size_t bytes) {
    auto& workspace = *static_cast<Workspace*>(self);
    const std::int64_t shape[] = {static_cast<std::int64_t>(bytes)};
    workspace.tensors.push_back(empty_like(workspace.like, shape, aoti_torch_dtype_uint8()));
    return workspace.tensors.back().output();
  }
  static void release(void* self, void* memory, std::size_t) {
    std::erase_if(static_cast<Workspace*>(self)->tensors,
                  [&](const Tensor& tensor) { return tensor.output() == memory; });
  }
};

// Made when the file is loaded, after the adapter for the CPU, which defines the operators.
struct Library {
  Registration cuda = Registration::implementations("isobit", "CUDA");
  Library() {
    implement_operators(cuda);
    implement_optimizers(cuda);
  }
} library;

}  // namespace

struct Lent::Resources {
  Workspace workspace;
  DeviceGuardHandle guard = nullptr;

  explicit Resources(const Tensor& x) : workspace{x, {}} {
    torch::check(aoti_torch_create_device_guard(x.device().index, &guard));
  }
  ~Resources() { aoti_torch_delete_device_guard(guard); }
};

Lent::Lent(const Tensor& x) : resources_(new Resources(x)) {
  context_.struct_size = sizeof context_;
  context_.allocator = {Workspace::allocate, Workspace::release, &resources_->workspace};
  context_.device = ISOBIT_CUDA;
  check(aoti_torch_get_current_cuda_stream(x.device().index, &context_.stream));
}

Lent::~Lent() = default;

Tensor new_output(const Tensor& x, Shape shape, std::int32_t dtype) {
  return empty_like(x, shape, dtype);
}

Tensor new_strided_output(const Tensor& x, Shape shape, Shape strides, std::int32_t dtype) {
  return empty_strided_like(x, shape, strides, dtype);
}

}  // namespace isobit::torch
