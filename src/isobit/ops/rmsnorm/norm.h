// SPDX-License-Identifier: Apache-2.0
// What RMSNorm tells src/isobit/norms of itself.
#pragma once

#include <string_view>

#include "isobit/ops/rmsnorm/rmsnorm.h"

namespace isobit::rmsnorm {

struct Formula;  // formula.h
template <class Real>
struct Normalised;  // reference.cpp

struct Norm {
  using ForwardArgs = rmsnorm::ForwardArgs;
  using BackwardArgs = rmsnorm::BackwardArgs;
  using Formula = rmsnorm::Formula;
  template <class Real>
  using Normalised = rmsnorm::Normalised<Real>;

  static constexpr std::string_view kName = "rmsnorm", kBackward = "rmsnorm backward";

  // Operations of an element, an fma counted as two. kStatistics: the mean of squares. kScaleGiven:
  // x_hat of x with given statistics. kGradX: mean of g * x_hat, r * fma(-x_hat, c2, g).
  static constexpr double kStatistics = 2, kScaleGiven = 1, kGradX = 2 + 3;
};

}  // namespace isobit::rmsnorm
