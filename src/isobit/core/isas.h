// SPDX-License-Identifier: Apache-2.0
// What exists once for each instruction set that this build has kernels for, in a namespace of its
// name. CMake defines ISOBIT_FOR_ISAS(DO, ...), which is DO(scalar, ...) and so on.
#pragma once

#include "isobit/core/machine.h"

// Declarations in each.
#define ISOBIT_IN_EACH_ISA(...) ISOBIT_FOR_ISAS(ISOBIT_IN_ISA_, __VA_ARGS__)
#define ISOBIT_IN_ISA_(known, ...) \
  namespace known {                \
  __VA_ARGS__                      \
  }

// Returns what an expression means for `isa`; for one that is not there, as for scalar.
#define ISOBIT_RETURN_FOR_ISA(isa, ...)                    \
  ISOBIT_FOR_ISAS(ISOBIT_RETURN_IF_ISA_, isa, __VA_ARGS__) \
  return scalar::__VA_ARGS__
#define ISOBIT_RETURN_IF_ISA_(known, isa, ...) \
  if ((isa) == ::isobit::Isa::known) return known::__VA_ARGS__;
