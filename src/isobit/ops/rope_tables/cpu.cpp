// SPDX-License-Identifier: Apache-2.0
// The CPU variants: whole vectors, and one angle at a time. How rows are dealt to threads.
#include <algorithm>

#include "isobit/core/error.h"
#include "isobit/ops/rope_tables/cpu_kernels.h"
#include "isobit/ops/rope_tables/formula.h"
#include "isobit/ops/rope_tables/problem.h"
#include "isobit/simd/tasks.h"
#include "isobit/simd/vec.h"

namespace isobit::rope_tables {
namespace {

using Scalar = simd::scalar::F64;

// Each before the first table is written.
void check_positions(const Problem& problem) {
  if (problem.positions == nullptr) return;
  const std::int64_t end = kMostPositions - problem.offset;
  for (std::int64_t row = 0; row < problem.cos.rows; ++row) {
    const std::int64_t position = problem.positions[row * problem.position_step];
    require(position >= 0 && position < end, "rope_tables: positions[", row, "] is ", position,
            "; allowed: 0 to ", end - 1);
  }
}

void fill_frequencies(const Problem& problem, double* frequencies) {
  const std::int64_t pairs = problem.cos.cols;
  if (problem.inv_freq.data == nullptr) {
    const Two<Scalar> ratio = frequency_ratio<Scalar>(problem.base, pairs);
    for (std::int64_t i = 0; i < pairs; ++i) frequencies[i] = frequency<Scalar>(ratio, i);
  } else if (problem.inv_freq_dtype == DType::f64) {
    std::copy_n(reinterpret_cast<const double*>(problem.inv_freq.data), pairs, frequencies);
  } else {
    std::copy_n(reinterpret_cast<const float*>(problem.inv_freq.data), pairs, frequencies);
  }
}

void run_rows(const Problem& problem, const Execution& execution, Kernel kernel) {
  check_positions(problem);
  auto* frequencies = reinterpret_cast<double*>(execution.workspace);
  const Matrix &cos = problem.cos, &sin = problem.sin;
  {
    const simd::FloatMode mode;
    fill_frequencies(problem, frequencies);
  }
  const std::int64_t size = size_of(problem.dtype);
  const std::int64_t tasks = simd::task_count(execution.machine, cos.rows * cos.cols, cos.rows);
  simd::in_parts(execution, tasks, cos.rows, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) {
      const std::int64_t position =
          problem.positions == nullptr ? row : problem.positions[row * problem.position_step];
      kernel(static_cast<double>(problem.offset + position), frequencies,
             cos.data + row * cos.stride * size, sin.data + row * sin.stride * size, cos.cols);
    }
  });
}

Kernel kernel_for(DType dtype, Isa isa) { ISOBIT_RETURN_FOR_ISA(isa, kernel(dtype)); }

// The specification: one angle after the other.
template <class T>
void one_by_one(double position, const double* frequencies, std::byte* cosines, std::byte* sines,
                std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    const auto found = turn<Scalar>(position, frequencies[i]);
    reinterpret_cast<T*>(cosines)[i] = narrow<T>(found.cosine);
    reinterpret_cast<T*>(sines)[i] = narrow<T>(found.sine);
  }
}

std::size_t room_for_frequencies(const Problem& problem, const Plan&, const Machine&) {
  return static_cast<std::size_t>(problem.cos.cols) * sizeof(double);
}

constexpr RopeTablesVariant kVariants[] = {
    {.name = "simd",
     .workspace = room_for_frequencies,
     .run =
         [](const Args&, const Problem& problem, const Plan&, const Execution& execution) {
           run_rows(problem, execution, kernel_for(problem.dtype, execution.machine.isa));
         }},
    {.name = "scalar",
     .workspace = room_for_frequencies,
     .run =
         [](const Args&, const Problem& problem, const Plan&, const Execution& execution) {
           run_rows(problem, execution,
                    problem.dtype == DType::f64 ? one_by_one<double> : one_by_one<float>);
         }},
};

}  // namespace

std::span<const RopeTablesVariant> cpu_variants() { return kVariants; }

}  // namespace isobit::rope_tables
