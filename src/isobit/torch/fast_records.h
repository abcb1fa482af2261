// SPDX-License-Identifier: Apache-2.0
// Calls of operators by their records in Python, and the derivatives of these calls.
#pragma once

#include "isobit/torch/fast_calls.h"

namespace isobit::torch::fast {

// Functions of the module: fast.py says what connect_records() and standing() are given, and
// derived.py what call() is.
PyObject* connect_records(PyObject*, PyObject* const* given, Py_ssize_t count);
PyObject* standing(PyObject*, PyObject* const* given, Py_ssize_t count);
PyObject* call(PyObject*, PyObject* const* given, Py_ssize_t count);

}  // namespace isobit::torch::fast
