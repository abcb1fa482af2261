// SPDX-License-Identifier: Apache-2.0
#include "isobit/torch/fast_records.h"

#include <algorithm>

namespace isobit::torch::fast {
namespace {

// What connect_records() was given, and the function in Python that apply() replaced.
PyObject* recorded = nullptr;  // (record, arguments, *tensors), makes a graph
PyObject* backward_in_python = nullptr;
PyObject* like_of = nullptr;       // (shape, dtype)
PyObject* namespace_of = nullptr;  // (**values)

PyObject* at(PyObject* tuple, Py_ssize_t i) { return PyTuple_GetItem(tuple, i); }
Py_ssize_t place_at(PyObject* places, Py_ssize_t i) { return PyLong_AsSsize_t(at(places, i)); }

// How a call of an operator stands, by those of its arguments that are tensors.
enum Standing : long {
  kOther = 0,     // there is something to be looked at
  kPlain = 1,     // they are plain, on one device, and nobody else is to see the call
  kRecorded = 2,  // and derivatives may be asked of it
};

Standing standing_of(PyObject* arguments, PyObject* places) {
  if (api == nullptr || watched() || truth(PyObject_CallNoArgs(autocasts))) return kOther;
  const bool records = truth(PyObject_CallNoArgs(grad_enabled));
  Standing standing = kPlain;
  DLDevice device{};
  bool first = true;
  for (Py_ssize_t i = 0, count = PyTuple_Size(places); i < count; ++i) {
    PyObject* const each = at(arguments, place_at(places, i));
    if (each == Py_None) continue;
    DLTensor tensor{};
    if (each == nullptr || !see(each, tensor)) {
      PyErr_Clear();
      return kOther;
    }
    if (first) device = tensor.device;
    first = false;
    if (tensor.device.device_type != device.device_type ||
        tensor.device.device_id != device.device_id)
      return kOther;
    if (records && requires_grad(each)) standing = kRecorded;
  }
  return standing;
}

// The record of an operator, by its layout: Operator.layout of records.py has these in this order.
class Record {
 public:
  explicit Record(PyObject* record) : layout_(PyObject_GetAttr(record, names().layout)) {
    if (!layout_ || PyTuple_Size(layout_.get()) == kCount) return;
    PyErr_SetString(PyExc_TypeError, "a record's layout has another length");
    layout_.reset();
  }
  explicit operator bool() const { return layout_ != nullptr; }

  PyObject* underived() const { return part(0); }
  PyObject* defaults() const { return part(1); }   // of all arguments
  PyObject* places() const { return part(2); }     // of the tensors among them
  PyObject* tensors() const { return part(3); }    // their names
  PyObject* options() const { return part(4); }    // places among the arguments
  PyObject* known() const { return part(5); }      // places among tensors and results
  PyObject* kept() const { return part(6); }       // the same
  PyObject* recalled() const { return part(7); }   // the names of options, known and kept
  PyObject* gradients() const { return part(8); }  // or None
  PyObject* spares() const { return part(9); }     // or None

 private:
  static constexpr Py_ssize_t kCount = 10;
  PyObject* part(Py_ssize_t i) const { return at(layout_.get(), i); }

  Owned layout_;
};

// A namespace of the first `count` names: value(i) is that of the i-th, which belongs to somebody
// else.
template <class Value>
PyObject* named(PyObject* names, Py_ssize_t count, const Value& value) {
  const Owned dict(PyDict_New()), nothing(PyTuple_New(0));
  if (!dict || !nothing) return nullptr;
  for (Py_ssize_t i = 0; i < count; ++i) {
    PyObject* const one = value(i);
    if (one == nullptr || PyDict_SetItem(dict.get(), at(names, i), one) != 0) return nullptr;
  }
  return PyObject_Call(namespace_of, nothing.get(), dict.get());
}

// What is kept of a tensor of which shape and type are known.
PyObject* like(PyObject* tensor) {
  if (tensor == nullptr || tensor == Py_None) return Py_XNewRef(tensor);
  Tuple both(2);
  both.take(PyObject_GetAttr(tensor, names().shape));
  both.take(PyObject_GetAttr(tensor, names().dtype));
  return both.call(like_of);
}

// (ctx, record, arguments, *tensors), the autograd function's forward
PyObject* forward(PyObject*, PyObject* const* given, Py_ssize_t count) {
  constexpr Py_ssize_t kBefore = 3;
  if (count < kBefore) {
    PyErr_SetString(PyExc_TypeError, "a record's forward takes a record, arguments and tensors");
    return nullptr;
  }
  PyObject *const ctx = given[0], *const arguments = given[2];
  const Record record(given[1]);
  if (!record) return nullptr;
  Owned output(PyObject_CallObject(record.underived(), arguments));
  if (!output) return nullptr;
  const auto each = [&, tensors = count - kBefore](Py_ssize_t place) -> PyObject* {
    if (place < tensors) return given[kBefore + place];
    return PyTuple_Check(output.get()) ? at(output.get(), place - tensors) : output.get();
  };

  Tuple options(PyTuple_Size(record.options())), likes(PyTuple_Size(record.known()));
  for (Py_ssize_t i = 0; i < options.size(); ++i)
    options.add(at(arguments, place_at(record.options(), i)));
  for (Py_ssize_t i = 0; i < likes.size(); ++i) likes.take(like(each(place_at(record.known(), i))));
  if (!options || !likes) return nullptr;
  Owned spared;  // names of what need not be kept
  if (record.spares() != Py_None) {
    const Owned chosen(named(record.recalled(), options.size(),
                             [&](Py_ssize_t i) { return at(options.get(), i); }));
    spared.reset(chosen ? PyObject_CallFunctionObjArgs(record.spares(), chosen.get(), nullptr)
                        : nullptr);
    if (!spared) return nullptr;
  }
  Tuple kept(PyTuple_Size(record.kept()));
  for (Py_ssize_t i = 0; i < kept.size(); ++i) {
    PyObject* const name = at(record.recalled(), options.size() + likes.size() + i);
    const int is_spared = spared ? PySequence_Contains(spared.get(), name) : 0;
    if (is_spared < 0) return nullptr;
    kept.add(is_spared ? Py_None : each(place_at(record.kept(), i)));
  }
  if (!kept || PyObject_SetAttr(ctx, names().record, given[1]) != 0 ||
      PyObject_SetAttr(ctx, names().options, options.get()) != 0 ||
      PyObject_SetAttr(ctx, names().likes, likes.get()) != 0 ||
      PyObject_SetAttr(ctx, names().kept, kept.get()) != 0 ||
      PyObject_SetAttr(ctx, names().materializes, Py_False) != 0)
    return nullptr;
  return output.release();
}

// What a call has kept.
PyObject* recall(PyObject* ctx, const Record& record) {
  const Owned options(PyObject_GetAttr(ctx, names().options));
  const Owned likes(options ? PyObject_GetAttr(ctx, names().likes) : nullptr);
  const Owned saved(likes ? PyObject_GetAttr(ctx, names().saved) : nullptr);
  if (!saved) return nullptr;
  const Py_ssize_t first = PyTuple_Size(options.get()), second = PyTuple_Size(likes.get());
  return named(record.recalled(), PyTuple_Size(record.recalled()), [&](Py_ssize_t i) {
    return i < first            ? at(options.get(), i)
           : i < first + second ? at(likes.get(), i - first)
                                : at(saved.get(), i - first - second);
  });
}

// (*grads) of a node
PyObject* apply(PyObject* ctx, PyObject* const* grads, Py_ssize_t count) {
  const Owned its(PyObject_GetAttr(ctx, names().record));
  if (!its) return nullptr;
  const Record record(its.get());
  if (!record) return nullptr;
  if (record.gradients() == Py_None ||
      std::all_of(grads, grads + count, [](PyObject* each) { return each == Py_None; })) {
    Tuple arguments(1 + count);
    arguments.add(ctx);
    arguments.add(grads, count);
    return arguments.call(backward_in_python);
  }
  const Owned call(recall(ctx, record));
  const Owned needs(call ? PyObject_GetAttr(ctx, names().needs) : nullptr);
  if (!needs) return nullptr;
  PyObject* const tensors = record.tensors();
  const Py_ssize_t all = PyTuple_Size(needs.get()), own = PyTuple_Size(tensors), before = all - own;
  const Owned wanted(
      named(tensors, own, [&](Py_ssize_t i) { return at(needs.get(), before + i); }));
  if (!wanted) return nullptr;
  Tuple arguments(2 + count);
  arguments.add(call.get());
  arguments.add(wanted.get());
  arguments.add(grads, count);
  const Owned found(arguments.call(record.gradients()));
  if (!found) return nullptr;
  Tuple results(all);
  for (Py_ssize_t i = 0; i < all; ++i) {
    PyObject* one = nullptr;
    if (i >= before) one = PyDict_GetItemWithError(found.get(), at(tensors, i - before));
    if (one == nullptr && PyErr_Occurred() != nullptr) return nullptr;
    results.add(one == nullptr ? Py_None : one);
  }
  return results.release();
}

// All arguments: those given, and defaults.
PyObject* complete(PyObject* given, PyObject* defaults) {
  const Py_ssize_t count = PyTuple_Size(given), all = PyTuple_Size(defaults);
  Tuple tuple(std::max(count, all));
  for (Py_ssize_t i = 0; i < std::max(count, all); ++i)
    tuple.add(at(i < count ? given : defaults, i));
  return tuple.release();
}

}  // namespace

PyObject* connect_records(PyObject*, PyObject* const* given, Py_ssize_t count) {
  static PyMethodDef forward_method = method<forward>("forward");
  static PyMethodDef apply_method = method<apply>("apply");
  if (count != 4) {
    PyErr_SetString(PyExc_TypeError, "connect_records takes 4 arguments");
    return nullptr;
  }
  PyObject* const function = given[0];
  Owned backward(PyObject_GetAttrString(function, "backward"));
  if (!backward || !replace(function, &forward_method, &apply_method)) return nullptr;
  backward_in_python = backward.release();  // while the process lives
  recorded = Py_NewRef(given[1]);
  like_of = Py_NewRef(given[2]);
  namespace_of = Py_NewRef(given[3]);
  Py_RETURN_NONE;
}

PyObject* standing(PyObject*, PyObject* const* given, Py_ssize_t count) {
  const bool right = count == 2 && PyTuple_Check(given[0]) && PyTuple_Check(given[1]);
  return PyLong_FromLong(right ? standing_of(given[0], given[1]) : kOther);
}

PyObject* call(PyObject*, PyObject* const* given, Py_ssize_t count) {
  if (count != 2 || recorded == nullptr || !PyTuple_Check(given[1])) return no_result();
  const Record record(given[0]);
  if (!record) return nullptr;
  const Owned arguments(complete(given[1], record.defaults()));
  if (!arguments) return nullptr;
  const Standing standing = standing_of(arguments.get(), record.places());
  if (standing == kOther) return no_result();
  if (standing == kPlain) return PyObject_CallObject(record.underived(), arguments.get());
  const Py_ssize_t tensors = PyTuple_Size(record.places());
  Tuple all(2 + tensors);
  all.add(given[0]);
  all.add(arguments.get());
  for (Py_ssize_t i = 0; i < tensors; ++i)
    all.add(at(arguments.get(), place_at(record.places(), i)));
  return all.call(recorded);
}

}  // namespace isobit::torch::fast
