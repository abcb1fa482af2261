// SPDX-License-Identifier: Apache-2.0
// src/isobit/functions over arrays, once for each instruction set and once for kernels, with what
// they are compared with.
#pragma once

#include <cstdint>
#include <span>

#include "isobit/core/isas.h"

namespace isobit::function_calls {

template <class Real>
using Call = void (*)(const Real* x, Real* y, std::int64_t count);

// f32 and f64 of one function; null where it does not exist. Counts are multiples of 64.
struct Calls {
  Call<float> f32;
  Call<double> f64;
};

// In the order of kFunctions.
ISOBIT_IN_EACH_ISA(std::span<const Calls> calls();)
std::span<const Calls> calls_in_kernels();  // tile::Scalar's

// A function, its truth, and how many units of the last place it may be off. Of what is a sum, a
// unit is that of the terms' sum, which `scale` gives.
struct Function {
  const char* name;
  double (*truth)(double x);
  long double (*fine)(long double x);
  double (*scale)(double x);  // null: the truth
  double f32_limit, f64_limit;
};

extern const std::span<const Function> kFunctions;

// The error of y = function(x), in units of the last place of the truth or of `scale`; infinite
// where one of y and the truth is NaN, or infinite, or y has the wrong sign.
double error_of(const Function& function, float x, float y);
double error_of(const Function& function, double x, double y);

}  // namespace isobit::function_calls
