// SPDX-License-Identifier: Apache-2.0
// What tests of packed sequences and of keys in blocks share: where sequences begin, and their rows
// of arrays of all.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "attention_calls.h"
#include "isobit/core/error.h"

namespace isobit::attention {

using Numbers = std::vector<std::int64_t>;

inline TensorView of(const Numbers& numbers, std::int64_t rows = 0) {
  const std::int64_t count = std::ssize(numbers);
  TensorView view{
      const_cast<std::int64_t*>(numbers.data()), count * 8, DType::i64, 1, {count}, {1}};
  if (rows > 0) {
    view.rank = 2;
    view.shape = {rows, count / rows};
    view.strides = {count / rows, 1};
  }
  return view;
}

inline Numbers starts_of(const Numbers& lengths) {
  Numbers starts = {0};
  for (std::int64_t length : lengths) starts.push_back(starts.back() + length);
  return starts;
}

// Rows [begin, end) of each head, of arrays of `rows` rows a head.
inline Floats part(const Floats& all, std::int64_t heads, std::int64_t rows, std::int64_t cols,
                   std::int64_t begin, std::int64_t end) {
  Floats found;
  for (std::int64_t h = 0; h < heads; ++h) {
    const auto head = all.begin() + h * rows * cols;
    found.insert(found.end(), head + begin * cols, head + end * cols);
  }
  return found;
}
inline std::string said_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const InvalidArgument& error) { return error.what(); }
  return "";
}

}  // namespace isobit::attention
