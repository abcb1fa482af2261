// SPDX-License-Identifier: Apache-2.0
// What cpu_kernels.cpp offers once for each instruction set.
#pragma once

#include <cstddef>
#include <cstdint>

#include "isobit/core/dtype.h"
#include "isobit/core/isas.h"

namespace isobit::embedding {

// Copies a row of so many bytes; streaming: past the caches, and a fence must follow.
using CopyKernel = void (*)(const std::byte* from, std::byte* to, std::int64_t bytes,
                            bool streaming);

// The rows of grad_y at some places, at most kChunk.
struct Occurrences {
  const std::byte* grad_y;
  std::int64_t stride, cols;  // elements
  const std::int64_t* places;
  std::int64_t count;
};
// Where their sum goes: as it is, or divided and rounded.
struct Sum {
  std::byte* to;
  double divisor;  // 0 for none
  bool streaming;
};
using SumKernel = void (*)(const Occurrences& occurrences, const Sum& sum);
// into[i] += from[i].
using AddKernel = void (*)(std::byte* into, const std::byte* from, std::int64_t count);
// `count` elements of a sum that is whole, divided and rounded.
using RoundKernel = void (*)(const std::byte* from, const Sum& sum, std::int64_t count);

// kept: a sum is stored in what it is computed in, and others are added to it.
ISOBIT_IN_EACH_ISA(CopyKernel copy_kernel();)
ISOBIT_IN_EACH_ISA(SumKernel sum_kernel(DType dtype, bool kept);)
ISOBIT_IN_EACH_ISA(AddKernel add_kernel(DType dtype);)
ISOBIT_IN_EACH_ISA(RoundKernel round_kernel(DType dtype);)

}  // namespace isobit::embedding
