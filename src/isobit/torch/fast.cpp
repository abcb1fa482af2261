// SPDX-License-Identifier: Apache-2.0
// A shorter way into the library for small calls from Python, past PyTorch's dispatcher, which
// takes longer than they do. It serves plain CPU tensors where nothing watches: no mode, no
// transform. For all else it returns None, for errors too, and the operators take the call.
//
// A module of Python's limited API, without a symbol of PyTorch's: tensors are read and made
// through DLPack's exchange API, which torch.Tensor carries.
#define Py_LIMITED_API 0x030a0000  // Python 3.10
#include <ATen/dlpack.h>
#include <Python.h>

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <memory>
#include <new>

#include "isobit/torch/norms.h"

namespace {

using isobit::torch::LayerNorm, isobit::torch::RmsNorm;

constexpr std::int64_t kSmall = 32768;  // elements; above, threads and memory are operators' care
constexpr int kMostDims = 8;

struct Decref {
  void operator()(PyObject* object) const { Py_DECREF(object); }
};
using Owned = std::unique_ptr<PyObject, Decref>;

// What connect() was given.
const DLPackExchangeAPI* api = nullptr;
PyObject* tensor_types[2] = {};  // torch.Tensor and torch.nn.Parameter, not what derives from them
PyObject* watchers = nullptr;    // functions that return 0 or False where nothing watches
PyObject* grad_enabled = nullptr;
PyObject* forward_ad = nullptr;

// What is called for a layer norm, and for an RMS norm.
struct Operators {
  PyObject* recorded = nullptr;  // makes a graph
  PyObject* forward = nullptr;
  PyObject* backward = nullptr;
};
Operators operators[2];
template <class Norm>
constexpr int kIndex = Norm::kHasBias ? 0 : 1;

struct Names {
  PyObject* requires_grad = PyUnicode_InternFromString("requires_grad");
  PyObject* level = PyUnicode_InternFromString("_current_level");
};

const Names& names() {
  static const Names kNames;
  return kNames;
}

// A result of Python's as a condition; a failure counts as true, since it makes the call go the
// other way, where it is told.
bool truth(PyObject* result) {
  const Owned owned(result);
  const int is_true = owned ? PyObject_IsTrue(result) : -1;
  if (is_true < 0) PyErr_Clear();
  return is_true != 0;
}

bool watched() {
  for (Py_ssize_t i = 0, count = PyTuple_Size(watchers); i < count; ++i)
    if (truth(PyObject_CallNoArgs(PyTuple_GetItem(watchers, i)))) return true;
  const Owned level(PyObject_GetAttr(forward_ad, names().level));
  if (!level) PyErr_Clear();
  return !level || PyLong_AsLong(level.get()) >= 0;
}

// A new tensor in one piece of memory, which PyTorch gives back when it has no more use for it.
struct Result {
  DLManagedTensorVersioned managed{};
  std::int64_t shape[kMostDims], strides[kMostDims];

  static constexpr std::size_t kAlignment = 64;

  static Result* make(const DLTensor& like, std::int64_t bytes) {
    constexpr std::size_t kHead = (sizeof(Result) + kAlignment - 1) / kAlignment * kAlignment;
    void* memory = nullptr;
    if (posix_memalign(&memory, kAlignment, kHead + static_cast<std::size_t>(bytes)) != 0)
      return nullptr;
    auto* result = new (memory) Result;
    DLManagedTensorVersioned& managed = result->managed;
    managed.version = {DLPACK_MAJOR_VERSION, DLPACK_MINOR_VERSION};
    managed.deleter = [](DLManagedTensorVersioned* self) { std::free(self); };
    managed.dl_tensor = like;
    managed.dl_tensor.data = static_cast<std::byte*>(memory) + kHead;
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
  bool read(PyObject* object) {
    if (object == Py_None) return true;
    const auto* type = reinterpret_cast<PyObject*>(Py_TYPE(object));
    if (type != tensor_types[0] && type != tensor_types[1]) return false;
    if (api->dltensor_from_py_object_no_sync(object, &tensor_) != 0) {
      PyErr_Clear();
      return false;
    }
    return look();
  }

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

isobit_context one_thread() {
  isobit_context context{};
  context.struct_size = sizeof context;
  context.threads = 1;
  return context;
}

bool needs_grad(PyObject* const* objects, int count) {
  if (!truth(PyObject_CallNoArgs(grad_enabled))) return false;
  for (int i = 0; i < count; ++i)
    if (objects[i] != Py_None && truth(PyObject_GetAttr(objects[i], names().requires_grad)))
      return true;
  return false;
}

// (8,) or 8, and the last dimension of x is 8.
bool is_last(PyObject* normalized_shape, const Array& x) {
  if (PyTuple_Check(normalized_shape)) {
    if (PyTuple_Size(normalized_shape) != 1) return false;
    normalized_shape = PyTuple_GetItem(normalized_shape, 0);
  }
  return PyLong_CheckExact(normalized_shape) && PyLong_AsLongLong(normalized_shape) == x.cols();
}

bool fits(const Array& weight, const Array& x) {
  return !weight.given() || (weight.dims() == 1 && weight.cols() == x.cols());
}

PyObject* no_result() { Py_RETURN_NONE; }

template <class Norm>
constexpr int kWeights = Norm::kHasBias ? 2 : 1;

// A forward call: (input, weight, [bias,] eps).
template <class Norm>
struct Call {
  PyObject* const* given;
  Array x{}, weight{}, bias{};
  double eps = 0;

  bool read() {
    PyObject* number = given[1 + kWeights<Norm>];
    if (given[0] == Py_None || !PyFloat_Check(number)) return false;
    eps = PyFloat_AsDouble(number);
    return x.read(given[0]) && weight.read(given[1]) && (!Norm::kHasBias || bias.read(given[2])) &&
           fits(weight, x) && fits(bias, x);
  }

  // The same arguments for what Python can call.
  PyObject* pass_to(PyObject* function) const {
    return PyObject_CallFunctionObjArgs(function, given[0], given[1], given[2],
                                        Norm::kHasBias ? given[3] : nullptr, nullptr);
  }

  PyObject* run() {
    if (!x.small()) return pass_to(operators[kIndex<Norm>].forward);
    Array y;
    Owned result;
    if (!y.make_like(x, result)) return no_result();
    typename Norm::Forward args{};
    args.struct_size = sizeof args;
    args.x = x.rows();
    args.weight = weight.vector();
    if constexpr (Norm::kHasBias) args.bias = bias.vector();
    args.y = y.rows();
    args.eps = eps;
    const isobit_context context = one_thread();
    return Norm::kForward(&args, &context) == ISOBIT_OK ? result.release() : no_result();
  }
};

// (input, weight, [bias,] eps), within a recorded call
template <class Norm>
PyObject* forward(PyObject*, PyObject* const* given, Py_ssize_t count) {
  Call<Norm> call{given};
  if (api == nullptr || count != 2 + kWeights<Norm> || !call.read()) return no_result();
  return call.run();
}

// (normalized_shape, input, weight, [bias,] eps), with a graph where one is due
template <class Norm>
PyObject* norm(PyObject*, PyObject* const* given, Py_ssize_t count) {
  Call<Norm> call{given + 1};
  if (api == nullptr || count != 3 + kWeights<Norm> || watched() || !call.read() ||
      !is_last(given[0], call.x))
    return no_result();
  const bool records = needs_grad(call.given, 1 + kWeights<Norm>);
  return records ? call.pass_to(operators[kIndex<Norm>].recorded) : call.run();
}

// (grad_y, input, weight, eps): every gradient, weights' in weight's type
template <class Norm>
PyObject* backward(PyObject*, PyObject* const* given, Py_ssize_t count) {
  if (api == nullptr || count != 4 || !PyFloat_Check(given[3]) || watched()) return no_result();
  Array grad_y, x, weight, grads[3];
  if (!grad_y.read(given[0]) || !x.read(given[1]) || !weight.read(given[2]) || !grad_y.given() ||
      !x.given() || !weight.given() || !grad_y.same_shape(x) || !fits(weight, x))
    return no_result();
  if (!x.small())
    return PyObject_CallFunctionObjArgs(operators[kIndex<Norm>].backward, given[0], given[1],
                                        given[2], given[3], nullptr);
  constexpr int kResults = Norm::kHasBias ? 3 : 2;
  Owned results[3];
  if (!grads[0].make_like(x, results[0])) return no_result();
  for (int i = 1; i < kResults; ++i)
    if (!grads[i].make_like(weight, results[i])) return no_result();

  typename Norm::Backward args{};
  args.struct_size = sizeof args;
  args.x = x.rows();
  args.grad_y = grad_y.rows();
  args.weight = weight.vector();
  args.grad_x = grads[0].rows();
  args.grad_weight = grads[1].vector();
  if constexpr (Norm::kHasBias) args.grad_bias = grads[2].vector();
  args.eps = PyFloat_AsDouble(given[3]);
  const isobit_context context = one_thread();
  if (Norm::kBackward(&args, &context) != ISOBIT_OK) return no_result();
  PyObject* tuple = PyTuple_New(kResults);
  if (tuple == nullptr) return nullptr;
  for (int i = 0; i < kResults; ++i) PyTuple_SetItem(tuple, i, results[i].release());
  return tuple;
}

// (Tensor, Parameter, watchers, is_grad_enabled, forward_ad, and for each norm what records it, its
// operator and that of its gradients)
PyObject* connect(PyObject*, PyObject* const* given, Py_ssize_t count) {
  constexpr Py_ssize_t kCount = 11;
  if (count != kCount) {
    PyErr_SetString(PyExc_TypeError, "connect takes 11 arguments");
    return nullptr;
  }
  const Owned capsule(PyObject_GetAttrString(given[0], "__dlpack_c_exchange_api__"));
  if (!capsule) return nullptr;
  void* pointer = PyCapsule_GetPointer(capsule.get(), "dlpack_exchange_api");
  if (pointer == nullptr) return nullptr;
  const auto* offered = static_cast<const DLPackExchangeAPI*>(pointer);
  if (offered->header.version.major != DLPACK_MAJOR_VERSION) {
    PyErr_SetString(PyExc_ImportError, "PyTorch speaks another version of DLPack");
    return nullptr;
  }
  for (Py_ssize_t i = 0; i < kCount; ++i) Py_INCREF(given[i]);  // while the process lives
  tensor_types[0] = given[0];
  tensor_types[1] = given[1];
  watchers = given[2];
  grad_enabled = given[3];
  forward_ad = given[4];
  operators[kIndex<LayerNorm>] = {given[5], given[6], given[7]};
  operators[kIndex<RmsNorm>] = {given[8], given[9], given[10]};
  api = offered;
  Py_RETURN_NONE;
}

template <auto* kFunction>
constexpr PyMethodDef method(const char* name) {
  return {name, reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(kFunction)), METH_FASTCALL,
          nullptr};
}

}  // namespace

PyMODINIT_FUNC PyInit__isobit_fast() {
  static PyMethodDef methods[] = {
      method<connect>("connect"),
      method<norm<LayerNorm>>("layer_norm"),
      method<forward<LayerNorm>>("layer_norm_forward"),
      method<backward<LayerNorm>>("layer_norm_backward"),
      method<norm<RmsNorm>>("rms_norm"),
      method<forward<RmsNorm>>("rms_norm_forward"),
      method<backward<RmsNorm>>("rms_norm_backward"),
      {},
  };
  static PyModuleDef module = {PyModuleDef_HEAD_INIT,
                               "_isobit_fast",
                               nullptr,
                               -1,
                               methods,
                               nullptr,
                               nullptr,
                               nullptr,
                               nullptr};
  return PyModule_Create(&module);
}
