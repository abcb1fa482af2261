// SPDX-License-Identifier: Apache-2.0
// Many tensors that are walked in one call, each as one row whatever its shape, with all threads
// over all of them together.
#pragma once

#include <deque>
#include <functional>
#include <vector>

#include "isobit/torch/call.h"

namespace isobit::torch {

// What belongs to one parameter, by the places of its lists. All its tensors are walked in the
// order of the first one's memory, or are copied where that cannot be.
class Flat {
 public:
  Flat(const char* op, const Tensor& first) : op_(op), first_(first), dense_(is_dense(first)) {}

  // Empty where the tensor is absent. `name` is of the list that it comes from.
  isobit_tensor add(const char* name, const Tensor& tensor, Access access);
  // What was written into copies goes to where it belongs.
  void finish() const;

  std::int64_t elements() const { return elements_; }

 private:
  struct Copy {
    const Tensor& of;
    Tensor tensor;
  };

  static bool is_dense(const Tensor& tensor);
  bool lies_alike(const Tensor& tensor) const;

  const char* op_;
  const Tensor& first_;
  bool dense_;
  std::int64_t elements_ = 0;
  std::deque<Copy> written_, read_;
};

// Elements [from, from + count) of a flat view; of an absent one nothing.
isobit_tensor part(const isobit_tensor& view, std::int64_t from, std::int64_t count);

// Calls run(item, from, count, context) until each of the items, which have so many elements, is
// done: on the processor in equal parts for its threads, and on a GPU one item after the other.
using Part = std::function<isobit_status(std::size_t item, std::int64_t from, std::int64_t count,
                                         const isobit_context* context)>;
void run_parts(const std::vector<std::int64_t>& elements, const isobit_context* context,
               const Part& run);

}  // namespace isobit::torch
