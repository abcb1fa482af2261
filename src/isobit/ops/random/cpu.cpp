// SPDX-License-Identifier: Apache-2.0
// The CPU variants: whole vectors, and one number at a time. How elements are dealt to threads.
#include <algorithm>

#include "isobit/ops/random/cpu_kernels.h"
#include "isobit/ops/random/problem.h"
#include "isobit/simd/tasks.h"
#include "isobit/simd/vec.h"

namespace isobit::random {
namespace {

using Scalar = simd::scalar::F64;

// Of whole groups of four words and whole cache lines, so that threads do not make words twice.
constexpr std::int64_t kStep = 64;

Kernel kernel_for(DType dtype, Isa isa) { ISOBIT_RETURN_FOR_ISA(isa, kernel(dtype)); }

// The specification: one number after the other.
template <class T>
void one_by_one(const Constants& c, std::uint64_t first, std::byte* bytes, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    const std::uint64_t place = c.offset + first + static_cast<std::uint64_t>(i);
    const std::uint32_t word = words_of(c.seed, place / 4, 0)[place % 4];
    const std::uint32_t more = words_of(c.seed, place / 4, 1)[place % 4];
    const double draw = draw_of<T>(c.distribution, word, more);
    reinterpret_cast<T*>(bytes)[i] = stored<T>(number_of<Scalar>(c, draw));
  }
}

template <class T>
void run_elements(const Args& args, const Problem& problem, const Execution& execution,
                  Kernel kernel) {
  const Matrix& y = problem.y;
  const std::int64_t count = y.rows * y.cols;
  if (count == 0) return;
  Constants constants;
  {
    const simd::FloatMode mode;
    constants = constants_of<Scalar, T>(args);
  }
  const std::int64_t tasks = simd::task_count(execution.machine, count, count);
  simd::in_parts(execution, tasks, count, kStep, [&](std::int64_t begin, std::int64_t end) {
    while (begin < end) {
      const std::int64_t row = begin / y.cols, col = begin - row * y.cols;
      const std::int64_t here = std::min(y.cols - col, end - begin);
      const std::int64_t at = (row * y.stride + col) * static_cast<std::int64_t>(sizeof(T));
      kernel(constants, static_cast<std::uint64_t>(begin), y.data + at, here);
      begin += here;
    }
  });
}

// kernel_of(Type<T>) is what computes elements of that type.
template <class KernelOf>
void run_type(const Args& args, const Problem& problem, const Execution& execution,
              const KernelOf& kernel_of) {
  const auto of = [&]<class T>(Type<T> type) {
    run_elements<T>(args, problem, execution, kernel_of(type));
  };
  switch (problem.dtype) {
    case DType::f64:  return of(Type<double>{});
    case DType::f16:  return of(Type<f16>{});
    case DType::bf16: return of(Type<bf16>{});
    default:          return of(Type<float>{});
  }
}

constexpr RandomVariant kVariants[] = {
    {.name = "simd",
     .run =
         [](const Args& args, const Problem& problem, const Plan&, const Execution& execution) {
           run_type(args, problem, execution, [&]<class T>(Type<T>) {
             return kernel_for(problem.dtype, execution.machine.isa);
           });
         }},
    {.name = "scalar",
     .run =
         [](const Args& args, const Problem& problem, const Plan&, const Execution& execution) {
           run_type(args, problem, execution,
                    []<class T>(Type<T>) -> Kernel { return one_by_one<T>; });
         }},
};

}  // namespace

std::span<const RandomVariant> cpu_variants() { return kVariants; }

}  // namespace isobit::random
