// SPDX-License-Identifier: Apache-2.0
// The functions of numbers of 16 bits as tables: there are only 65536 such numbers.
#pragma once

#include <cstdint>
#include <optional>

#include "isobit/core/dtype.h"
#include "isobit/core/machine.h"
#include "isobit/ops/activation/activation.h"

namespace isobit::activation {

// What a function gives of x, at the place that the bits of x say.
struct Tables {
  const std::uint16_t* results = nullptr;  // f(x), rounded to the type of x
  // f(x) and f'(x) in f32. NaN stands for what is no normal number: products with it need the
  // formula.
  const float* values = nullptr;
  const float* slopes = nullptr;
};

struct WantedTables {
  bool results = false, values = false, slopes = false;
};

// The tables that are wanted, made by the formula when they are wanted first, and kept. Nothing
// where one cannot be had at once, because another thread is making it or memory is lacking.
std::optional<Tables> tables(Function function, DType dtype, Isa isa, const WantedTables& wanted);

}  // namespace isobit::activation
