// SPDX-License-Identifier: Apache-2.0
// The entries of the C interface as values: which arrays and numbers stand in the struct of each.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "isobit/dispatch/operation.h"
#include "isobit/isobit.h"

namespace isobit::fuzz {

// A number in an entry's struct.
struct Number {
  enum class Type { real, i32, i64 };
  std::size_t offset;
  Type type;
};

struct Entry {
  std::string_view function, operation;
  // In the order of the struct, behind its size; those that were added later, at its end.
  std::vector<const Argument*> arrays;
  std::vector<Number> numbers;
  std::size_t struct_size;
  isobit_status (*call)(const void* args, const isobit_context* context);
  std::string_view copied = {};  // the array that is read before anything is written
};

// The arguments of an operation with these names, which a blank divides.
std::vector<const Argument*> arguments(std::string_view op, std::string_view pass,
                                       std::string_view names);

template <class Args, class T>
Number number(T Args::* member) {
  static_assert(std::is_arithmetic_v<T>);
  const Args args{};
  const auto offset = reinterpret_cast<const std::byte*>(&(args.*member)) -
                      reinterpret_cast<const std::byte*>(&args);
  return {static_cast<std::size_t>(offset), std::is_floating_point_v<T> ? Number::Type::real
                                            : sizeof(T) == 4            ? Number::Type::i32
                                                                        : Number::Type::i64};
}

template <auto kFunction, class Args, class... Numbers>
Entry entry_of(isobit_status (*)(const Args*, const isobit_context*), std::string_view function,
               std::string_view op, std::vector<const Argument*> arrays,
               Numbers Args::*... numbers) {
  return {function,
          op,
          std::move(arrays),
          {number(numbers)...},
          sizeof(Args),
          [](const void* args, const isobit_context* context) {
            return kFunction(static_cast<const Args*>(args), context);
          }};
}

// kFunction, whose struct holds its size, these arrays of the operation, then these numbers.
template <auto kFunction, class... Numbers>
Entry entry(std::string_view function, std::string_view op, std::string_view pass,
            std::string_view arrays, Numbers... numbers) {
  return entry_of<kFunction>(kFunction, function, op, arguments(op, pass, arrays), numbers...);
}

std::span<const Entry> entries();

// Whose arguments the entry's arrays are.
const Operation& operation_of(const Entry& entry);

}  // namespace isobit::fuzz
