// SPDX-License-Identifier: Apache-2.0
// A shorter way into the library for small calls of norms from Python, past PyTorch's dispatcher,
// which takes longer than they do. It serves plain CPU tensors where nothing watches: no mode, no
// transform. For all else it returns None, for errors too, and the operators take the call.
// Calls of all operators by their records are in fast_records.cpp.
//
// A module of Python's limited API, without a symbol of PyTorch's.
#include <algorithm>
#include <tuple>

#include "isobit/torch/fast_records.h"
#include "isobit/torch/norms.h"

namespace isobit::torch::fast {
namespace {

// What Python does for a norm. The first three are called as forward() is below; calls that are
// recorded make a graph. The others serve recorded small calls that are not served here.
struct Ways {
  PyObject* recorded_small = nullptr;
  PyObject* recorded_large = nullptr;
  PyObject* large = nullptr;
  PyObject* forward = nullptr;    // (ctx, input, weight, [bias,] eps[, residual])
  PyObject* gradients = nullptr;  // (ctx, what was kept, grad_y[, grad_sum])
};

// A norm of its input, or of input + residual: then the sum is a second result.
template <class NormOf, bool kAddsOf>
struct Form {
  using Norm = NormOf;
  static constexpr bool kAdds = kAddsOf;
  static constexpr int kWeights = Norm::kHasBias ? 2 : 1;
  inline static Ways ways;
  static bool connected() { return api != nullptr && ways.large != nullptr; }
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
      if (i != kEps && given[i] != Py_None && requires_grad(given[i])) return true;
    return false;
  }

  PyObject* pass_to(PyObject* function) const { return call_with(function, given, kCount); }

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
  const bool serves = Form::connected() && count == call.kCount && call.read() && call.x.small();
  return serves ? call.run() : no_result();
}

// (normalized_shape, input, weight, [bias,] eps[, residual]), with a graph where one is due
template <class Form>
PyObject* norm(PyObject*, PyObject* const* given, Py_ssize_t count) {
  Call<Form> call{given + 1};
  if (!Form::connected() || count != 1 + call.kCount || watched() || !call.read() ||
      !is_last(given[0], call.x))
    return no_result();
  const bool small = call.x.small();
  if (call.needs_grad())
    return call.pass_to(small ? Form::ways.recorded_small : Form::ways.recorded_large);
  return small ? call.run() : call.pass_to(Form::ways.large);
}

// The tensors of a backward call; grad_sum only where the norm adds.
struct Incoming {
  PyObject *grad_y, *x, *weight, *eps, *grad_sum;
};

// Every gradient, weights' in weight's type, or false.
template <class Form>
bool find_gradients(const Incoming& given, Owned (&results)[3]) {
  using Norm = typename Form::Norm;
  if (!Form::connected() || !PyFloat_Check(given.eps) || watched()) return false;
  Array grad_y, x, weight, grad_sum, grads[3];
  if (!grad_y.read(given.grad_y) || !x.read(given.x) || !weight.read(given.weight) ||
      (Form::kAdds && !grad_sum.read(given.grad_sum)))
    return false;
  if (!grad_y.given() || !x.given() || !weight.given() || !grad_y.same_shape(x) ||
      (grad_sum.given() && !grad_sum.same_shape(x)) || !fits(weight, x) || !x.small())
    return false;
  if (!grads[0].make_like(x, results[0])) return false;
  for (int i = 1; i <= Form::kWeights; ++i)
    if (!grads[i].make_like(weight, results[i])) return false;

  typename Norm::Backward args{};
  args.struct_size = sizeof args;
  args.x = x.rows();
  args.grad_y = grad_y.rows();
  args.weight = weight.vector();
  args.grad_sum = grad_sum.rows();
  args.grad_x = grads[0].rows();
  args.grad_weight = grads[1].vector();
  if constexpr (Norm::kHasBias) args.grad_bias = grads[2].vector();
  args.eps = PyFloat_AsDouble(given.eps);
  const isobit_context context = one_thread();
  return Norm::kBackward(&args, &context) == ISOBIT_OK;
}

// (grad_y, what was normalised, weight, eps[, grad_sum])
template <class Form>
PyObject* backward(PyObject*, PyObject* const* given, Py_ssize_t count) {
  constexpr Py_ssize_t kCount = 4 + Form::kAdds;
  Owned results[3];
  if (count != kCount || !find_gradients<Form>({given[0], given[1], given[2], given[3],
                                                Form::kAdds ? given[kCount - 1] : nullptr},
                                               results))
    return no_result();
  if constexpr (Form::Norm::kHasBias)
    return tuple_of(results[0].get(), results[1].get(), results[2].get());
  else
    return tuple_of(results[0].get(), results[1].get());
}

// What PyTorch calls for recorded small calls, as an autograd function's forward and as its node's
// apply: no statement of Python's runs between PyTorch and the kernels.

// (ctx, input, weight, [bias,] eps[, residual])
template <class Form>
PyObject* recorded_forward(PyObject*, PyObject* const* given, Py_ssize_t count) {
  Call<Form> call{given + 1};
  if (count != 1 + call.kCount || !call.read() || !call.x.small())
    return call_with(Form::ways.forward, given, count);
  Owned result(call.run());
  if (!result) return nullptr;
  if (result.get() == Py_None) return call_with(Form::ways.forward, given, count);
  PyObject* const ctx = given[0];
  PyObject* const normalised = Form::kAdds ? PyTuple_GetItem(result.get(), 1) : given[1];
  const Owned kept(tuple_of(normalised, given[2]));
  if (!kept || PyObject_SetAttr(ctx, names().kept, kept.get()) != 0 ||
      PyObject_SetAttr(ctx, names().eps, call.given[call.kEps]) != 0 ||
      (Form::kAdds && PyObject_SetAttr(ctx, names().materializes, Py_False) != 0))
    return nullptr;
  return result.release();
}

// Whether the gradients of all tensors are wanted, and nothing else.
template <class Form>
bool needs_all(PyObject* ctx) {
  const Owned needs(PyObject_GetAttr(ctx, names().needs));
  if (!needs) PyErr_Clear();
  if (!needs || PyTuple_Size(needs.get()) != Call<Form>::kCount) return false;
  for (int i = 0; i < Call<Form>::kCount; ++i)
    if (PyTuple_GetItem(needs.get(), i) != (i == Call<Form>::kEps ? Py_False : Py_True))
      return false;
  return true;
}

// (grad_y[, grad_sum]) of a node. What was kept is asked for once: hooks may compute it.
template <class Form>
PyObject* recorded_apply(PyObject* ctx, PyObject* const* given, Py_ssize_t count) {
  if (count != 1 + Form::kAdds) {
    PyErr_SetString(PyExc_TypeError, "a norm's node takes a gradient of each result");
    return nullptr;
  }
  const Owned saved(PyObject_GetAttr(ctx, names().saved));
  if (!saved) return nullptr;
  Owned eps, results[3];
  if (!truth(PyObject_CallNoArgs(grad_enabled)) && needs_all<Form>(ctx)) {
    eps.reset(PyObject_GetAttr(ctx, names().eps));
    if (!eps) return nullptr;
    if (find_gradients<Form>({given[0], PyTuple_GetItem(saved.get(), 0),
                              PyTuple_GetItem(saved.get(), 1), eps.get(), given[count - 1]},
                             results)) {
      PyObject* const x = results[0].get();
      if constexpr (Form::Norm::kHasBias && Form::kAdds)
        return tuple_of(x, results[1].get(), results[2].get(), Py_None, x);
      else if constexpr (Form::Norm::kHasBias)
        return tuple_of(x, results[1].get(), results[2].get(), Py_None);
      else if constexpr (Form::kAdds)
        return tuple_of(x, results[1].get(), Py_None, x);
      else
        return tuple_of(x, results[1].get(), Py_None);
    }
  }
  PyObject* arguments[4] = {ctx, saved.get()};
  std::copy_n(given, count, arguments + 2);
  return call_with(Form::ways.gradients, arguments, 2 + count);
}

using Forms = std::tuple<Form<LayerNorm, false>, Form<LayerNorm, true>, Form<RmsNorm, false>,
                         Form<RmsNorm, true>>;

// of: (an autograd function for small calls, then Ways but for `forward`). The function's forward
// and its node's apply become those above.
template <class Form>
bool take(PyObject* of) {
  static PyMethodDef forward_method = method<recorded_forward<Form>>("forward");
  static PyMethodDef apply_method = method<recorded_apply<Form>>("apply");
  if (!PyTuple_Check(of) || PyTuple_Size(of) != 5) {
    PyErr_SetString(PyExc_TypeError, "connect_norms takes a tuple of 5 of each norm");
    return false;
  }
  PyObject* const function = PyTuple_GetItem(of, 0);
  PyObject* const python = PyObject_GetAttrString(function, "forward");
  if (python == nullptr || !replace(function, &forward_method, &apply_method)) return false;
  Py_INCREF(of);  // while the process lives
  const auto part = [&](Py_ssize_t i) { return PyTuple_GetItem(of, i); };
  Form::ways = {part(1), part(2), part(3), python, part(4)};
  return true;
}

// What take() takes of each form.
PyObject* connect_norms(PyObject*, PyObject* const* given, Py_ssize_t count) {
  if (count != std::tuple_size_v<Forms>) {
    PyErr_SetString(PyExc_TypeError, "connect_norms takes 4 arguments");
    return nullptr;
  }
  auto take_all = [&]<class... Each>(std::tuple<Each...>) { return (take<Each>(*given++) && ...); };
  if (!take_all(Forms())) return nullptr;
  Py_RETURN_NONE;
}

// (Tensor, Parameter, watchers, is_grad_enabled, is_any_autocast_enabled, forward_ad)
PyObject* connect(PyObject*, PyObject* const* given, Py_ssize_t count) {
  constexpr Py_ssize_t kCount = 6;
  if (count != kCount) {
    PyErr_SetString(PyExc_TypeError, "connect takes 6 arguments");
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
  autocasts = given[4];
  forward_ad = given[5];
  api = offered;
  Py_RETURN_NONE;
}

}  // namespace
}  // namespace isobit::torch::fast

PyMODINIT_FUNC PyInit__isobit_fast() {
  using namespace isobit::torch::fast;
  using isobit::torch::LayerNorm, isobit::torch::RmsNorm;
  static PyMethodDef methods[] = {
      method<connect>("connect"),
      method<connect_norms>("connect_norms"),
      method<connect_records>("connect_records"),
      method<standing>("standing"),
      method<call>("call"),
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
