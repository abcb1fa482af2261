// SPDX-License-Identifier: Apache-2.0
// What an operator tells about its cases: which grids to verify, and what a call must move and
// compute.
#pragma once

#include <compare>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string_view>
#include <vector>

#include "isobit/core/dtype.h"

namespace isobit {

// The dtypes of x and, beside it, of the weights and of y.
struct Types {
  DType x, weight, y;

  constexpr Types(DType x, DType weight, DType y) : x(x), weight(weight), y(y) {}
  constexpr Types(DType x, DType weight) : Types(x, weight, x) {}
  friend auto operator<=>(const Types&, const Types&) = default;
};

// Every combination of its lists is a case.
struct CaseGrid {
  // Extents by the names of dims; a free dim without any has its usual one.
  std::map<std::string_view, std::vector<std::int64_t>> dims = {};
  std::vector<Types> types = {};
  std::vector<std::string_view> inputs = {};  // families of input, by name
  // Instead of `dims`, where not every combination is meant: extents in the order of the dims.
  std::vector<std::vector<std::int64_t>> shapes = {};
  // Values of options by name; of others all choices, or the usual number.
  std::map<std::string_view, std::vector<double>> options = {};
  std::vector<std::string_view> with = {""};  // extra arguments, joined by '+'
};

// What a reference, which works in a wider type, must know of the arrays that it stands for.
struct Rounding {
  DType dtype;                 // of x
  DType y_dtype = DType::f32;  // of what is like y
  std::int64_t first = 0;      // which index of the batch dim comes first
};

// The floor of a call: bytes that must move, and arithmetic operations.
struct Cost {
  double bytes = 0;
  double flops = 0;
};

// Receives one named array of a reference's computation as a matrix of rows x cols.
using EmitArray = std::function<void(std::string_view name, std::int64_t rows, std::int64_t cols,
                                     std::span<const double> values)>;

}  // namespace isobit
