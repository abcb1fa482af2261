// SPDX-License-Identifier: Apache-2.0
// The CPU variants: whole vectors, and one element at a time. How a call is dealt to threads.
#include <algorithm>
#include <type_traits>

#include "isobit/ops/dropout/cpu_kernels.h"
#include "isobit/ops/dropout/formula.h"
#include "isobit/ops/dropout/problem.h"
#include "isobit/simd/tasks.h"

namespace isobit::dropout {
namespace {

// Many rows are dealt out whole; fewer are cut, at whole cache lines and counters.
constexpr std::int64_t kCut = 64;

void deal(const Problem& problem, const Execution& execution, Kernel kernel) {
  const Matrix &x = problem.x, &y = problem.y;
  const std::int64_t size = size_of(problem.dtype);
  const auto rectangle = [&](std::int64_t first_row, std::int64_t last_row, std::int64_t from,
                             std::int64_t to) {
    for (std::int64_t row = first_row; row < last_row && from < to; ++row)
      kernel(problem.p, problem.seed,
             {row, from, to - from, x.data + (row * x.stride + from) * size,
              y.data + (row * y.stride + from) * size});
  };
  const std::int64_t tasks =
      simd::task_count(execution.machine, y.rows * y.cols, std::max(y.rows, y.cols / kCut));
  if (y.rows >= tasks)
    simd::in_parts(execution, tasks, y.rows, 1,
                   [&](std::int64_t begin, std::int64_t end) { rectangle(begin, end, 0, y.cols); });
  else
    simd::in_parts(execution, tasks, y.cols, kCut,
                   [&](std::int64_t begin, std::int64_t end) { rectangle(0, y.rows, begin, end); });
}

Kernel kernel_for(DType dtype, Isa isa) { ISOBIT_RETURN_FOR_ISA(isa, kernel(dtype)); }

// The specification: element by element.
template <class T>
void one_by_one(double p, std::uint64_t seed, const Columns& columns) {
  using Real = std::conditional_t<sizeof(T) == 8, double, float>;
  const auto mask = Mask<Real>::of(p, seed);
  for (std::int64_t i = 0; i < columns.count; ++i) {
    const std::int64_t col = columns.first + i;
    const std::uint32_t word = mask.words(columns.row, col / 4)[col % 4];
    const Real x = widen<Real>(reinterpret_cast<const T*>(columns.x)[i]);
    reinterpret_cast<T*>(columns.y)[i] = narrow<T>(mask.value(word, x));
  }
}

Kernel scalar_kernel(DType dtype) {
  switch (dtype) {
    case DType::f64:  return one_by_one<double>;
    case DType::f16:  return one_by_one<f16>;
    case DType::bf16: return one_by_one<bf16>;
    default:          return one_by_one<float>;
  }
}

constexpr DropoutVariant kVariants[] = {
    {.name = "simd",
     .run =
         [](const Args&, const Problem& problem, const Plan&, const Execution& execution) {
           deal(problem, execution, kernel_for(problem.dtype, execution.machine.isa));
         }},
    {.name = "scalar",
     .run =
         [](const Args&, const Problem& problem, const Plan&, const Execution& execution) {
           deal(problem, execution, scalar_kernel(problem.dtype));
         }},
};

}  // namespace

std::span<const DropoutVariant> cpu_variants() { return kVariants; }

}  // namespace isobit::dropout
