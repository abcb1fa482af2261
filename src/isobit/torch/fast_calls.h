// SPDX-License-Identifier: Apache-2.0
// What every short way asks of Python, and what it makes for Python.
#pragma once

#include "isobit/torch/fast_tensors.h"

namespace isobit::torch::fast {

// What connect() was given.
inline PyObject* watchers = nullptr;  // functions that return 0 or False where nothing watches
inline PyObject* grad_enabled = nullptr;
inline PyObject* autocasts = nullptr;
inline PyObject* forward_ad = nullptr;

// Names of attributes.
struct Names {
  PyObject* requires_grad = PyUnicode_InternFromString("requires_grad");
  PyObject* level = PyUnicode_InternFromString("_current_level");
  PyObject* eps = PyUnicode_InternFromString("eps");
  PyObject* kept = PyUnicode_InternFromString("to_save");  // what save_for_backward sets
  PyObject* saved = PyUnicode_InternFromString("saved_tensors");
  PyObject* needs = PyUnicode_InternFromString("needs_input_grad");
  PyObject* materializes = PyUnicode_InternFromString("materialize_grads");
  PyObject* layout = PyUnicode_InternFromString("layout");
  PyObject* record = PyUnicode_InternFromString("record");
  PyObject* options = PyUnicode_InternFromString("options");
  PyObject* likes = PyUnicode_InternFromString("likes");
  PyObject* shape = PyUnicode_InternFromString("shape");
  PyObject* dtype = PyUnicode_InternFromString("dtype");
};

inline const Names& names() {
  static const Names kNames;
  return kNames;
}

template <auto* kFunction>
constexpr PyMethodDef method(const char* name) {
  return {name, reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(kFunction)), METH_FASTCALL,
          nullptr};
}

inline PyObject* no_result() { Py_RETURN_NONE; }

// A tuple of Python's, filled from the front. Where something was missing there is none, and an
// error stands.
class Tuple {
 public:
  explicit Tuple(Py_ssize_t size) : tuple_(PyTuple_New(size)), size_(size) {}
  explicit operator bool() const { return tuple_ != nullptr; }
  Py_ssize_t size() const { return size_; }

  // What belongs to somebody else.
  void add(PyObject* one) { take(Py_XNewRef(one)); }
  void add(PyObject* const* some, Py_ssize_t count) {
    for (Py_ssize_t i = 0; i < count; ++i) add(some[i]);
  }
  // What is the caller's no more.
  void take(PyObject* one) {
    const Owned owned(one);
    if (one == nullptr)
      tuple_.reset();
    else if (tuple_)
      PyTuple_SetItem(tuple_.get(), filled_++, Py_NewRef(one));
  }

  PyObject* get() const { return tuple_.get(); }
  PyObject* release() { return tuple_.release(); }
  PyObject* call(PyObject* function) const {
    return tuple_ ? PyObject_CallObject(function, tuple_.get()) : nullptr;
  }

 private:
  Owned tuple_;
  Py_ssize_t size_, filled_ = 0;
};

template <class... Each>
PyObject* tuple_of(Each*... each) {
  Tuple tuple(sizeof...(each));
  (tuple.add(each), ...);
  return tuple.release();
}

inline PyObject* call_with(PyObject* function, PyObject* const* given, Py_ssize_t count) {
  Tuple arguments(count);
  arguments.add(given, count);
  return arguments.call(function);
}

// Makes these the forward of an autograd function of Python's and the apply of its nodes.
inline bool replace(PyObject* function, PyMethodDef* forward, PyMethodDef* apply) {
  const Owned node(PyObject_GetAttrString(function, "_backward_cls"));
  if (!node) return false;
  const Owned first(PyCFunction_New(forward, nullptr));
  const Owned second(PyDescr_NewMethod(reinterpret_cast<PyTypeObject*>(node.get()), apply));
  return first && second && PyObject_SetAttrString(function, "forward", first.get()) == 0 &&
         PyObject_SetAttrString(node.get(), "apply", second.get()) == 0;
}

// A result of Python's as a condition; a failure counts as true, since it makes the call go the
// other way, where it is told.
inline bool truth(PyObject* result) {
  const Owned owned(result);
  const int is_true = owned ? PyObject_IsTrue(result) : -1;
  if (is_true < 0) PyErr_Clear();
  return is_true != 0;
}

inline bool watched() {
  for (Py_ssize_t i = 0, count = PyTuple_Size(watchers); i < count; ++i)
    if (truth(PyObject_CallNoArgs(PyTuple_GetItem(watchers, i)))) return true;
  const Owned level(PyObject_GetAttr(forward_ad, names().level));
  if (!level) PyErr_Clear();
  return !level || PyLong_AsLong(level.get()) >= 0;
}

inline bool requires_grad(PyObject* tensor) {
  return truth(PyObject_GetAttr(tensor, names().requires_grad));
}

}  // namespace isobit::torch::fast
