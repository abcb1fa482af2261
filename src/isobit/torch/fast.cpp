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
#include <tuple>

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

// What Python does for a norm, called as forward() is below. Calls that are recorded make a graph.
struct Ways {
  PyObject* recorded_small = nullptr;
  PyObject* recorded_large = nullptr;
  PyObject* large = nullptr;
};

// A norm of its input, or of input + residual: then the sum is a second result.
template <class NormOf, bool kAddsOf>
struct Form {
  using Norm = NormOf;
  static constexpr bool kAdds = kAddsOf;
  static constexpr int kWeights = Norm::kHasBias ? 2 : 1;
  inline static Ways ways;
};

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

// Python's tuple of these.
template <class... Each>
PyObject* tuple_of(Each*... each) {
  PyObject* tuple = PyTuple_New(sizeof...(each));
  Py_ssize_t i = 0;
  if (tuple != nullptr) (PyTuple_SetItem(tuple, i++, Py_NewRef(each)), ...);
  return tuple;
}

// A forward call: (input, weight, [bias,] eps[, residual]).
template <class Form>
struct Call {
  using Norm = typename Form::Norm;
  static constexpr int kEps = 1 + Form::kWeights;
  static constexpr int kCount = kEps + 1 + Form::kAdds;

  PyObject* const* given;
  Array x{}, weight{}, bias{}, residual{};
  double eps = 0;

  bool read() {
    if (given[0] == Py_None || !PyFloat_Check(given[kEps])) return false;
    eps = PyFloat_AsDouble(given[kEps]);
    if (Form::kAdds && !(residual.read(given[kEps + 1]) && residual.given())) return false;
    return x.read(given[0]) && weight.read(given[1]) && (!Norm::kHasBias || bias.read(given[2])) &&
           fits(weight, x) && fits(bias, x) && (!Form::kAdds || residual.same_shape(x));
  }

  bool needs_grad() const {
    if (!truth(PyObject_CallNoArgs(grad_enabled))) return false;
    for (int i = 0; i < kCount; ++i)
      if (i != kEps && given[i] != Py_None &&
          truth(PyObject_GetAttr(given[i], names().requires_grad)))
        return true;
    return false;
  }

  PyObject* pass_to(PyObject* function) const {
    const Owned arguments(PyTuple_New(kCount));
    if (!arguments) return nullptr;
    for (int i = 0; i < kCount; ++i) PyTuple_SetItem(arguments.get(), i, Py_NewRef(given[i]));
    return PyObject_CallObject(function, arguments.get());
  }

  PyObject* run() {
    Array y, sum;
    Owned result, second;
    if (!y.make_like(x, result) || (Form::kAdds && !sum.make_like(x, second))) return no_result();
    typename Norm::Forward args{};
    args.struct_size = sizeof args;
    args.x = x.rows();
    args.weight = weight.vector();
    if constexpr (Norm::kHasBias) args.bias = bias.vector();
    args.residual = residual.rows();
    args.y = y.rows();
    args.sum = sum.rows();
    args.eps = eps;
    const isobit_context context = one_thread();
    if (Norm::kForward(&args, &context) != ISOBIT_OK) return no_result();
    return Form::kAdds ? tuple_of(result.get(), second.get()) : result.release();
  }
};

// (input, weight, [bias,] eps[, residual]), within a recorded call
template <class Form>
PyObject* forward(PyObject*, PyObject* const* given, Py_ssize_t count) {
  Call<Form> call{given};
  const bool serves = api != nullptr && count == call.kCount && call.read() && call.x.small();
  return serves ? call.run() : no_result();
}

// (normalized_shape, input, weight, [bias,] eps[, residual]), with a graph where one is due
template <class Form>
PyObject* norm(PyObject*, PyObject* const* given, Py_ssize_t count) {
  Call<Form> call{given + 1};
  if (api == nullptr || count != 1 + call.kCount || watched() || !call.read() ||
      !is_last(given[0], call.x))
    return no_result();
  const bool small = call.x.small();
  if (call.needs_grad())
    return call.pass_to(small ? Form::ways.recorded_small : Form::ways.recorded_large);
  return small ? call.run() : call.pass_to(Form::ways.large);
}

// (grad_y, what was normalised, weight, eps[, grad_sum]): every gradient, weights' in weight's type
template <class Form>
PyObject* backward(PyObject*, PyObject* const* given, Py_ssize_t count) {
  using Norm = typename Form::Norm;
  constexpr Py_ssize_t kCount = 4 + Form::kAdds;
  if (api == nullptr || count != kCount || !PyFloat_Check(given[3]) || watched())
    return no_result();
  Array grad_y, x, weight, grad_sum, grads[3];
  if (!grad_y.read(given[0]) || !x.read(given[1]) || !weight.read(given[2]) ||
      (Form::kAdds && !grad_sum.read(given[kCount - 1])))
    return no_result();
  if (!grad_y.given() || !x.given() || !weight.given() || !grad_y.same_shape(x) ||
      (grad_sum.given() && !grad_sum.same_shape(x)) || !fits(weight, x) || !x.small())
    return no_result();
  Owned results[3];
  if (!grads[0].make_like(x, results[0])) return no_result();
  for (int i = 1; i <= Form::kWeights; ++i)
    if (!grads[i].make_like(weight, results[i])) return no_result();

  typename Norm::Backward args{};
  args.struct_size = sizeof args;
  args.x = x.rows();
  args.grad_y = grad_y.rows();
  args.weight = weight.vector();
  args.grad_sum = grad_sum.rows();
  args.grad_x = grads[0].rows();
  args.grad_weight = grads[1].vector();
  if constexpr (Norm::kHasBias) args.grad_bias = grads[2].vector();
  args.eps = PyFloat_AsDouble(given[3]);
  const isobit_context context = one_thread();
  if (Norm::kBackward(&args, &context) != ISOBIT_OK) return no_result();
  if constexpr (Norm::kHasBias)
    return tuple_of(results[0].get(), results[1].get(), results[2].get());
  else
    return tuple_of(results[0].get(), results[1].get());
}

using Forms = std::tuple<Form<LayerNorm, false>, Form<LayerNorm, true>, Form<RmsNorm, false>,
                         Form<RmsNorm, true>>;

// (Tensor, Parameter, watchers, is_grad_enabled, forward_ad, and of each form a tuple: its Ways)
PyObject* connect(PyObject*, PyObject* const* given, Py_ssize_t count) {
  constexpr Py_ssize_t kForms = 5, kCount = kForms + std::tuple_size_v<Forms>;
  if (count != kCount) {
    PyErr_SetString(PyExc_TypeError, "connect takes 9 arguments");
    return nullptr;
  }
  const Owned capsule(PyObject_GetAttrString(given[0], "__dlpack_c_exchange_api__"));
  if (!capsule) return nullptr;
  void* pointer = PyCapsule_GetPointer(capsule.get(), "dlpack_exchange_api");
  if (pointer == nullptr) return nullptr;
  const auto* offered = static_cast<const DLPackExchangeAPI*>(pointer);
  if (offered->header.version.major != DLPACK_MAJOR_VERSION) {
    PyErr_SetString(PyExc_ImportError, "PyTorch uses another version of DLPack");
    return nullptr;
  }
  for (Py_ssize_t i = 0; i < kCount; ++i) Py_INCREF(given[i]);  // while the process lives
  tensor_types[0] = given[0];
  tensor_types[1] = given[1];
  watchers = given[2];
  grad_enabled = given[3];
  forward_ad = given[4];
  auto take = [of = given + kForms]<class... Each>(std::tuple<Each...>) mutable {
    const auto part = [&](Py_ssize_t i) { return PyTuple_GetItem(*of, i); };
    ((Each::ways = {part(0), part(1), part(2)}, ++of), ...);
  };
  take(Forms());
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
      method<norm<Form<LayerNorm, false>>>("layer_norm"),
      method<forward<Form<LayerNorm, false>>>("layer_norm_forward"),
      method<backward<Form<LayerNorm, false>>>("layer_norm_backward"),
      method<norm<Form<LayerNorm, true>>>("add_layer_norm"),
      method<forward<Form<LayerNorm, true>>>("add_layer_norm_forward"),
      method<backward<Form<LayerNorm, true>>>("add_layer_norm_backward"),
      method<norm<Form<RmsNorm, false>>>("rms_norm"),
      method<forward<Form<RmsNorm, false>>>("rms_norm_forward"),
      method<backward<Form<RmsNorm, false>>>("rms_norm_backward"),
      method<norm<Form<RmsNorm, true>>>("add_rms_norm"),
      method<forward<Form<RmsNorm, true>>>("add_rms_norm_forward"),
      method<backward<Form<RmsNorm, true>>>("add_rms_norm_backward"),
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
