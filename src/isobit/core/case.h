// SPDX-License-Identifier: Apache-2.0
// What an operator tells about its cases: which grids to verify, and what a call must move and
// compute.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "isobit/core/dtype.h"

namespace isobit {

// A dtype of x and, beside it, of the weights.
struct TypePair {
  DType x, weight;
};

// Every combination of its lists is a case. Where rows x cols is no product, both lists are empty
// and `shapes` holds the pairs.
struct CaseGrid {
  std::vector<std::int64_t> rows = {}, cols = {};
  std::vector<TypePair> types = {};
  std::vector<std::string_view> inputs = {};  // families of input, by name
  std::vector<double> eps = {};
  std::vector<std::array<std::int64_t, 2>> shapes = {};  // {rows, cols}
};

// The floor of a call: bytes that must move, and arithmetic operations.
struct Cost {
  double bytes = 0;
  double flops = 0;
};

// Receives one named array of a reference's computation, rows x cols of it.
using EmitArray = std::function<void(std::string_view name, std::int64_t rows, std::int64_t cols,
                                     std::span<const double> values)>;

}  // namespace isobit
