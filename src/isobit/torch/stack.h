// SPDX-License-Identifier: Apache-2.0
// The arguments of a call by PyTorch's dispatcher, taken in the order of the operator's schema.
#pragma once

#include <cstring>
#include <vector>

#include "isobit/torch/tensor.h"

namespace isobit::torch {

class Stack {
 public:
  explicit Stack(StableIValue* values) : next_(values) {}

  Tensor tensor() { return as_tensor(*next_++); }
  double number() { return as<double>(*next_++); }
  std::int64_t integer() { return as<std::int64_t>(*next_++); }
  bool flag() { return as<bool>(*next_++); }
  std::vector<std::int64_t> integers() { return list<std::int64_t>(); }
  std::vector<bool> flags() { return list<bool>(); }
  std::vector<Tensor> tensors() {
    std::vector<Tensor> result;
    for (const StableIValue value : list<StableIValue>()) result.push_back(as_tensor(value));
    return result;
  }

  // None, or what autograd of PyTorch's own operators passes for it: an undefined tensor.
  Tensor optional_tensor() {
    StableIValue value = 0;
    if (!optional(value)) return {};
    Tensor tensor = as_tensor(value);
    return tensor.defined() ? std::move(tensor) : Tensor();
  }
  std::int32_t optional_dtype(std::int32_t otherwise) {
    StableIValue value = 0;
    return optional(value) ? as<std::int32_t>(value) : otherwise;
  }

 private:
  static Tensor as_tensor(StableIValue value) {
    return Tensor(reinterpret_cast<AtenTensorHandle>(value));
  }
  template <class T>
  static T as(StableIValue value) {
    T result;
    std::memcpy(&result, &value, sizeof result);
    return result;
  }

  // What may be absent comes in a box of its own.
  bool optional(StableIValue& value) {
    auto* box = reinterpret_cast<StableIValue*>(*next_++);
    if (box == nullptr) return false;
    value = *box;
    delete box;
    return true;
  }

  template <class T>
  std::vector<T> list() {
    auto* given = reinterpret_cast<StableListHandle>(*next_++);
    std::size_t size = 0;
    check(torch_list_size(given, &size));
    std::vector<T> values(size);
    for (std::size_t i = 0; i < size; ++i) {
      StableIValue value = 0;
      check(torch_list_get_item(given, i, &value));
      values[i] = as<T>(value);
    }
    check(torch_delete_list(given));
    return values;
  }

  StableIValue* next_;
};

// Lays the results where the arguments were; returns where the next one goes.
template <class... Tensors>
StableIValue* put(StableIValue* stack, Tensors&&... results) {
  ((*stack++ = reinterpret_cast<StableIValue>(results.release())), ...);
  return stack;
}

}  // namespace isobit::torch
