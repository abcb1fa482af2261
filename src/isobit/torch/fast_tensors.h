// SPDX-License-Identifier: Apache-2.0
// Tensors of PyTorch's that fast.cpp reads and makes, without a symbol of PyTorch's: through
// DLPack's exchange API, which torch.Tensor carries.
#pragma once

#define Py_LIMITED_API 0x030a0000  // Python 3.10
#include <ATen/dlpack.h>
#include <Python.h>

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <memory>
#include <new>

#include "isobit/isobit.h"

namespace isobit::torch::fast {

constexpr std::int64_t kSmall = 32768;  // elements; above, threads and memory are operators' care
constexpr int kMostDims = 8;

struct Decref {
  void operator()(PyObject* object) const { Py_DECREF(object); }
};
using Owned = std::unique_ptr<PyObject, Decref>;

// What connect() was given.
inline const DLPackExchangeAPI* api = nullptr;
// torch.Tensor and torch.nn.Parameter, not what derives from them
inline PyObject* tensor_types[2] = {};

// PyTorch's view of a tensor of its own, or false: of another type, or one that DLPack does not
// know.
inline bool see(PyObject* object, DLTensor& tensor) {
  const auto* type = reinterpret_cast<PyObject*>(Py_TYPE(object));
  if (type != tensor_types[0] && type != tensor_types[1]) return false;
  if (api->dltensor_from_py_object_no_sync(object, &tensor) == 0) return true;
  PyErr_Clear();
  return false;
}

// A new tensor in one piece of memory, which PyTorch gives back when it has no more use for it.
struct Result {
  DLManagedTensorVersioned managed{};
  std::int64_t shape[kMostDims], strides[kMostDims];
  void* memory = nullptr;  // all of this, and the elements after it

  static constexpr std::size_t kAlignment = 64;

  static Result* make(const DLTensor& like, std::int64_t bytes) {
    constexpr std::size_t kHead = (sizeof(Result) + kAlignment - 1) / kAlignment * kAlignment;
    std::size_t room = kAlignment + kHead + static_cast<std::size_t>(bytes);
    void* const memory = std::malloc(room);  // posix_memalign never reuses what was just freed
    void* place = memory;
    if (memory == nullptr || std::align(kAlignment, kHead, place, room) == nullptr) return nullptr;
    auto* result = new (place) Result;
    result->memory = memory;
    DLManagedTensorVersioned& managed = result->managed;
    managed.version = {DLPACK_MAJOR_VERSION, DLPACK_MINOR_VERSION};
    managed.deleter = [](DLManagedTensorVersioned* self) {
      std::free(reinterpret_cast<Result*>(self)->memory);
    };
    managed.dl_tensor = like;
    managed.dl_tensor.data = static_cast<std::byte*>(place) + kHead;
    managed.dl_tensor.byte_offset = 0;
    managed.dl_tensor.shape = std::copy_n(like.shape, like.ndim, result->shape) - like.ndim;
    managed.dl_tensor.strides = result->strides;
    std::int64_t step = 1;
    for (int i = like.ndim - 1; i >= 0; --i) {
      result->strides[i] = step;
      step *= like.shape[i];
    }
    return result;
  }
};
static_assert(offsetof(Result, managed) == 0, "the deleter is given its address");

// A tensor of adjacent elements on the CPU, or an absent one.
class Array {
 public:
  bool read(PyObject* object) { return object == Py_None || (see(object, tensor_) && look()); }

  // A new tensor of the same shape and type.
  bool make_like(const Array& like, Owned& object) {
    Result* result = Result::make(like.tensor_, like.view_.bytes);
    if (result == nullptr) return false;
    tensor_ = result->managed.dl_tensor;
    void* made = nullptr;
    if (api->managed_tensor_to_py_object_no_sync(&result->managed, &made) != 0) {
      PyErr_Clear();
      return false;
    }
    object.reset(static_cast<PyObject*>(made));
    return look();
  }

  bool given() const { return view_.dtype != 0; }
  bool small() const { return elements_ <= kSmall; }
  int dims() const { return tensor_.ndim; }
  std::int64_t* shape() const { return tensor_.shape; }
  std::int64_t cols() const { return tensor_.shape[tensor_.ndim - 1]; }
  bool same_shape(const Array& other) const {
    return dims() == other.dims() && std::equal(shape(), shape() + dims(), other.shape());
  }

  // As the C ABI wants it: rows of the last dimension, or one vector.
  const isobit_tensor* rows() {
    if (!given()) return nullptr;
    view_.rank = 2;
    view_.shape[0] = cols() == 0 ? 0 : elements_ / cols();
    view_.shape[1] = view_.strides[0] = cols();
    view_.strides[1] = 1;
    return &view_;
  }
  const isobit_tensor* vector() {
    if (!given()) return nullptr;
    view_.rank = 1;
    view_.shape[0] = elements_;
    view_.strides[0] = 1;
    return &view_;
  }

 private:
  // A view with neg bit never comes through here: its elements are every other real.
  bool look() {
    if (tensor_.device.device_type != kDLCPU || tensor_.ndim < 1 || tensor_.ndim > kMostDims ||
        tensor_.dtype.lanes != 1)
      return false;
    elements_ = 1;
    for (int i = tensor_.ndim - 1; i >= 0; --i) {
      if (tensor_.strides != nullptr && tensor_.strides[i] != elements_) return false;
      elements_ *= tensor_.shape[i];
    }
    if (elements_ == 0) return false;
    const int bits = tensor_.dtype.bits;
    if (tensor_.dtype.code == kDLFloat)
      view_.dtype = bits == 32 ? ISOBIT_F32 : bits == 64 ? ISOBIT_F64 : bits == 16 ? ISOBIT_F16 : 0;
    else if (tensor_.dtype.code == kDLBfloat)
      view_.dtype = ISOBIT_BF16;
    view_.data = static_cast<std::byte*>(tensor_.data) + tensor_.byte_offset;
    view_.bytes = elements_ * bits / 8;
    return view_.dtype != 0;
  }

  DLTensor tensor_{};
  std::int64_t elements_ = 0;
  isobit_tensor view_{};
};

}  // namespace isobit::torch::fast
