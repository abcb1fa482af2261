// SPDX-License-Identifier: Apache-2.0
// What LayerNorm tells src/isobit/norms of itself.
#pragma once

#include <string_view>

#include "isobit/ops/layernorm/layernorm.h"

namespace isobit::layernorm {

struct Formula;  // formula.h
template <class Real>
struct Normalised;  // reference.cpp

struct Norm {
  using ForwardArgs = layernorm::ForwardArgs;
  using BackwardArgs = layernorm::BackwardArgs;
  using Formula = layernorm::Formula;
  template <class Real>
  using Normalised = layernorm::Normalised<Real>;

  static constexpr std::string_view kName = "layernorm", kBackward = "layernorm backward";

  // Operations of an element, an fma counted as two. kStatistics: mean 1, centre 1, mean of that 1,
  // variance 2, centre again 1. kScaleGiven: x_hat of x with given statistics. kGradX: mean of g,
  // mean of g * x_hat, r * fma(-x_hat, c2, g - c1).
  static constexpr double kStatistics = 6, kScaleGiven = 2, kGradX = 1 + 2 + 4;
};

}  // namespace isobit::layernorm
