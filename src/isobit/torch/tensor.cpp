// SPDX-License-Identifier: Apache-2.0
// Asks PyTorch about tensors, through functions that every version from 2.11 on has.
#include "isobit/torch/tensor.h"

#include <algorithm>
#include <iterator>
#include <stdexcept>
#include <string>

#include "isobit/torch/device.h"

// In PyTorch 2.13 and later; before, a failure has no words.
extern "C" __attribute__((weak)) const char* torch_exception_get_what_without_backtrace();

namespace isobit::torch {
namespace {

// PyTorch's types, the C ABI's where it has the type, and what users call them.
struct DType {
  std::int32_t theirs, ours;
  const char* name;
};

constexpr std::int32_t kNone = 0;  // not of the C ABI

std::span<const DType> dtypes() {
  static const DType kDTypes[] = {
      {aoti_torch_dtype_float32(), ISOBIT_F32, "float32"},
      {aoti_torch_dtype_float16(), ISOBIT_F16, "float16"},
      {aoti_torch_dtype_bfloat16(), ISOBIT_BF16, "bfloat16"},
      {aoti_torch_dtype_float64(), ISOBIT_F64, "float64"},
      {aoti_torch_dtype_int32(), ISOBIT_I32, "int32"},
      {aoti_torch_dtype_int64(), ISOBIT_I64, "int64"},
      {aoti_torch_dtype_bool(), ISOBIT_BOOL, "bool"},
      {aoti_torch_dtype_uint8(), ISOBIT_U8, "uint8"},
      {aoti_torch_dtype_int8(), kNone, "int8"},
      {aoti_torch_dtype_int16(), kNone, "int16"},
      {aoti_torch_dtype_uint16(), kNone, "uint16"},
      {aoti_torch_dtype_uint32(), kNone, "uint32"},
      {aoti_torch_dtype_uint64(), kNone, "uint64"},
      {aoti_torch_dtype_complex32(), kNone, "complex32"},
      {aoti_torch_dtype_complex64(), kNone, "complex64"},
      {aoti_torch_dtype_complex128(), kNone, "complex128"},
      {aoti_torch_dtype_float8_e4m3fn(), kNone, "float8_e4m3fn"},
      {aoti_torch_dtype_float8_e4m3fnuz(), kNone, "float8_e4m3fnuz"},
      {aoti_torch_dtype_float8_e5m2(), kNone, "float8_e5m2"},
      {aoti_torch_dtype_float8_e5m2fnuz(), kNone, "float8_e5m2fnuz"},
  };
  return kDTypes;
}

// By PyTorch's number or by ours; null where there is none.
const DType* find_dtype(std::int32_t DType::* number, std::int32_t value) {
  const auto found = std::ranges::find(dtypes(), value, number);
  return found == dtypes().end() ? nullptr : &*found;
}

}  // namespace

std::int32_t isobit_dtype(std::int32_t dtype) {
  const DType* found = find_dtype(&DType::theirs, dtype);
  return found == nullptr ? kNone : found->ours;
}

std::string dtype_name(std::int32_t dtype) {
  const DType* found = find_dtype(&DType::theirs, dtype);
  return found == nullptr ? "of PyTorch's number " + std::to_string(dtype)
                          : std::string("torch.") + found->name;
}

std::string choice_of(DTypes dtypes) {
  std::string out;
  for (std::size_t i = 0; i < dtypes.size(); ++i) {
    out += i == 0 ? "" : i + 1 < dtypes.size() ? ", " : " or ";
    out += find_dtype(&DType::ours, dtypes[i])->name;
  }
  return out;
}

void check(AOTITorchError code) {
  if (code == AOTI_TORCH_SUCCESS) return;
  const char* words = nullptr;
  if (torch_exception_get_what_without_backtrace != nullptr)
    words = torch_exception_get_what_without_backtrace();
  throw std::runtime_error(std::string("isobit: PyTorch rejected a call: ") +
                           (words != nullptr ? words : "this version gives no reason"));
}

Tensor Tensor::another() const {
  AtenTensorHandle handle = nullptr;
  check(aoti_torch_new_tensor_handle(handle_, &handle));
  return Tensor(handle);
}

int Tensor::rank() const {
  std::int64_t rank = 0;
  check(aoti_torch_get_dim(handle_, &rank));
  return static_cast<int>(rank);
}

bool Tensor::defined() const {
  bool defined = false;
  check(aoti_torch_is_defined(handle_, &defined));
  return defined;
}

Shape Tensor::shape() const {
  std::int64_t* sizes = nullptr;
  check(aoti_torch_get_sizes(handle_, &sizes));
  return {sizes, static_cast<std::size_t>(rank())};
}

Shape Tensor::strides() const {
  std::int64_t* strides = nullptr;
  check(aoti_torch_get_strides(handle_, &strides));
  return {strides, static_cast<std::size_t>(rank())};
}

std::int32_t Tensor::dtype() const {
  std::int32_t dtype = 0;
  check(aoti_torch_get_dtype(handle_, &dtype));
  return dtype;
}

Device Tensor::device() const {
  Device device{};
  check(aoti_torch_get_device_type(handle_, &device.type));
  check(aoti_torch_get_device_index(handle_, &device.index));
  return device;
}

const void* Tensor::input() const {
  const void* data = nullptr;
  check(torch_get_const_data_ptr(handle_, &data));
  return data;
}

void* Tensor::output() const {
  void* data = nullptr;
  check(torch_get_mutable_data_ptr(handle_, &data));
  return data;
}

void copy(const Tensor& to, const Tensor& from) {
  const bool non_blocking = false;
  StableIValue stack[] = {reinterpret_cast<StableIValue>(to.another().release()),
                          reinterpret_cast<StableIValue>(from.another().release()),
                          StableIValue{non_blocking}};
  check(torch_call_dispatcher("aten::copy_", "", stack, TORCH_TARGET_VERSION));
  Tensor(reinterpret_cast<AtenTensorHandle>(stack[0]));  // given back: it is `to` again
}

Tensor copied(const Tensor& tensor, std::int32_t dtype) {
  Tensor result = new_output(tensor, tensor.shape(), dtype);
  copy(result, tensor);
  return result;
}

std::array<std::int64_t, kMaxRank> dense_strides(Shape shape) {
  std::array<std::int64_t, kMaxRank> strides;
  std::int64_t step = 1;
  for (std::size_t i = shape.size(); i-- > 0;) {
    strides[i] = step;
    if (shape[i] > 1) step *= shape[i];
  }
  return strides;
}

Tensor empty_strided_like(const Tensor& like, Shape shape, Shape strides, std::int32_t dtype) {
  const Device device = like.device();
  AtenTensorHandle handle = nullptr;
  check(aoti_torch_empty_strided(static_cast<std::int64_t>(shape.size()), shape.data(),
                                 strides.data(), dtype, device.type, device.index, &handle));
  return Tensor(handle);
}

Tensor empty_like(const Tensor& like, Shape shape, std::int32_t dtype) {
  return empty_strided_like(like, shape, dense_strides(shape), dtype);
}

isobit_tensor strided(const Tensor& tensor, Access access) {
  return strided(tensor, tensor.shape(), tensor.strides(), access);
}

isobit_tensor strided(const Tensor& tensor, Shape sizes, Shape strides, Access access) {
  const std::int32_t dtype = tensor.dtype();
  isobit_tensor view{};
  view.data = access == Access::write ? tensor.output() : const_cast<void*>(tensor.input());
  view.dtype = isobit_dtype(dtype);
  view.rank = std::max(1, static_cast<int>(sizes.size()));
  view.shape[0] = view.strides[0] = 1;  // of a single number
  std::int64_t elements = 1;            // from the first to the last
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    view.shape[i] = sizes[i];
    view.strides[i] = strides[i];
    elements += (sizes[i] - 1) * strides[i];
  }
  if (std::ranges::find(sizes, 0) != sizes.end()) elements = 0;
  view.bytes = elements * static_cast<std::int64_t>(aoti_torch_dtype_element_size(dtype));
  return view;
}

Argument::Argument(const Tensor& tensor, std::int64_t hidden_dims, Access access) {
  if (!tensor) return;
  const Tensor* walked = &tensor;
  if (!walk(tensor, hidden_dims)) {
    copy_ = copied(tensor, tensor.dtype());
    walk(copy_, hidden_dims);
    walked = &copy_;
  }
  view_.data = access == Access::write ? walked->output() : const_cast<void*>(walked->input());
}

// Fills in all but the data; false where rows are not evenly spaced or columns not adjacent.
bool Argument::walk(const Tensor& tensor, std::int64_t hidden_dims) {
  const Shape sizes = tensor.shape(), strides = tensor.strides();
  const int rank = static_cast<int>(sizes.size());
  const int hidden = hidden_dims == kAllDims ? rank : static_cast<int>(hidden_dims);

  std::int64_t cols = 1, rows = 1, row_stride = 0;
  bool adjacent = true, even = true;
  int i = rank;
  while (--i >= rank - hidden) {
    adjacent &= sizes[i] == 1 || strides[i] == cols;
    cols *= sizes[i];
  }
  for (; i >= 0; --i) {
    if (sizes[i] == 1) continue;
    if (rows == 1) row_stride = strides[i];
    even &= strides[i] == row_stride * rows;
    rows *= sizes[i];
  }
  if (rows <= 1) row_stride = cols;
  const bool empty = rows == 0 || cols == 0;
  if (!empty && !(adjacent && even)) return false;

  const std::int32_t dtype = tensor.dtype();
  const std::int64_t elements = empty ? 0 : (rows - 1) * row_stride + cols;
  view_.bytes = elements * static_cast<std::int64_t>(aoti_torch_dtype_element_size(dtype));
  view_.dtype = isobit_dtype(dtype);
  if (hidden_dims == kAllDims) {
    view_.rank = 1;
    view_.shape[0] = cols;
    view_.strides[0] = 1;
  } else {
    view_.rank = 2;
    view_.shape[0] = rows;
    view_.shape[1] = cols;
    view_.strides[0] = empty ? cols : row_stride;
    view_.strides[1] = 1;
  }
  return true;
}

}  // namespace isobit::torch
