// SPDX-License-Identifier: Apache-2.0
// What is compiled once for each instruction set: parts of normalised rows, made for a product.
#pragma once

#include "isobit/core/isas.h"
#include "isobit/norms/cpu_kernels.h"

namespace isobit::norm_linear {

// Rows whose statistics are known. `terms` are norms::RowTerms of the type that is computed in.
struct Rows {
  Matrix x;
  norms::Weights weights;
  const void* terms;
  bool numbers;  // whether all weights are finite
};

struct PartKernels {
  bool (*numbers)(const norms::Weights& weights, std::int64_t cols);
  // Writes a part of y, row after row `pitch` elements apart.
  void (*part)(const Rows& rows, const norms::Tile& tile, void* to, std::int64_t pitch);
};

// By the formula of a norm: cpu_parts.h, instantiated in ops/NAME/cpu_kernels.cpp.
ISOBIT_IN_EACH_ISA(template <class Formula>
                   struct Parts { static PartKernels kernels(DType x, DType y); };)

}  // namespace isobit::norm_linear
