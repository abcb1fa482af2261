// SPDX-License-Identifier: Apache-2.0
// Tells PyTorch's dispatcher of functions, for as long as an object lives.
#pragma once

#include <string>
#include <string_view>

#include "isobit/torch/tensor.h"

namespace isobit::torch {

// As PyTorch calls it: arguments lie on the stack, and results take their place.
using Kernel = void (*)(StableIValue* stack, std::uint64_t arguments, std::uint64_t results);

// An operator, by its schema.
struct Operator {
  std::string_view name, signature;
  Kernel kernel;
};

// Failures are told by ok(), as objects of this kind are made before anyone could catch.
class Registration {
 public:
  // New operators of a namespace.
  static Registration definitions(const char* name_space);
  // Functions of a namespace for one dispatch key, such as "CPU".
  static Registration implementations(const char* name_space, const char* key);

  Registration(Registration&& other) noexcept;
  Registration& operator=(Registration&& other) noexcept;
  ~Registration();

  void define(const std::string& schema);
  void implement(const char* name, Kernel kernel);
  bool ok() const { return ok_; }

 private:
  Registration() = default;

  TorchLibraryHandle library_ = nullptr;
  bool ok_ = true;
};

}  // namespace isobit::torch
