// SPDX-License-Identifier: Apache-2.0
// The CPU variants: one element at a time, four at a time, and whole vectors.
#include <algorithm>
#include <type_traits>

#include "isobit/ops/elementwise/cpu_kernels.h"
#include "isobit/ops/elementwise/formula.h"
#include "isobit/ops/elementwise/problem.h"
#include "isobit/simd/tasks.h"

namespace isobit::elementwise {
namespace {

template <class T, Kind kKind>
void scalar_loop(const T* x, const T* residual, T* y, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i)
    y[i] = sum<Conversions>(x[i], kKind == Kind::add ? residual[i] : one<T>());
}

// Four independent elements a turn, all read before the first is written.
template <class T, Kind kKind>
void unrolled_loop(const T* x, const T* residual, T* y, std::int64_t count) {
  std::int64_t i = 0;
  for (; i + 4 <= count; i += 4) {
    T sums[4];
    for (int k = 0; k < 4; ++k)
      sums[k] = sum<Conversions>(x[i + k], kKind == Kind::add ? residual[i + k] : one<T>());
    for (int k = 0; k < 4; ++k) y[i + k] = sums[k];
  }
  scalar_loop<T, kKind>(x + i, residual + i, y + i, count - i);
}

enum class Loop { scalar, unrolled };

template <Loop kLoop>
Kernel plain_kernel(Kind kind, DType dtype) {
  return visit(dtype, [&](auto type) -> Kernel {
    using T = typename decltype(type)::type;
    if constexpr (std::is_same_v<T, quad>) {
      return nullptr;
    } else {
      const auto bind = [](auto kind_constant) -> Kernel {
        return [](const void* x, const void* residual, void* y, std::int64_t count, bool) {
          constexpr Kind kKind = decltype(kind_constant)::value;
          constexpr auto kBody =
              kLoop == Loop::scalar ? scalar_loop<T, kKind> : unrolled_loop<T, kKind>;
          kBody(static_cast<const T*>(x), static_cast<const T*>(residual), static_cast<T*>(y),
                count);
        };
      };
      return kind == Kind::add ? bind(std::integral_constant<Kind, Kind::add>{})
                               : bind(std::integral_constant<Kind, Kind::increment>{});
    }
  });
}

Kernel simd_kernel(const Problem& problem, Isa isa) {
  ISOBIT_RETURN_FOR_ISA(isa, kernel(problem.kind, problem.dtype));
}

// Many rows are dealt out whole; fewer are cut, at whole cache lines, so that threads never share
// one.
void run_kernel(Kernel kernel, bool streaming, const Problem& problem, const Execution& execution) {
  constexpr std::int64_t kCut = 64;
  const Matrix &x = problem.x, &y = problem.y;
  const Matrix& residual = problem.kind == Kind::add ? problem.residual : x;
  const std::int64_t size = size_of(problem.dtype);
  const auto run = [&](std::int64_t first_row, std::int64_t last_row, std::int64_t from,
                       std::int64_t to) {
    for (std::int64_t row = first_row; row < last_row && from < to; ++row)
      kernel(x.data + (row * x.stride + from) * size,
             residual.data + (row * residual.stride + from) * size,
             y.data + (row * y.stride + from) * size, to - from, streaming);
  };
  const std::int64_t tasks =
      simd::task_count(execution.machine, y.rows * y.cols, std::max(y.rows, y.cols / kCut));
  if (y.rows >= tasks)
    simd::in_parts(execution, tasks, y.rows, 1,
                   [&](std::int64_t begin, std::int64_t end) { run(begin, end, 0, y.cols); });
  else
    simd::in_parts(execution, tasks, y.cols, kCut,
                   [&](std::int64_t begin, std::int64_t end) { run(0, y.rows, begin, end); });
}

constexpr int kBooleans[] = {0, 1};
constexpr Knob kSimdKnobs[] = {{"stream", kBooleans, "streaming stores, which bypass the caches"}};

Plan choose_simd(const Problem& problem, const Machine& machine) {
  const std::int64_t arrays = problem.kind == Kind::add ? 3 : 2;
  return {machine.leaves_caches(arrays * problem.y.rows * problem.y.cols * size_of(problem.dtype))};
}

constexpr ElementwiseVariant kVariants[] = {
    {.name = "simd",
     .knobs = kSimdKnobs,
     .choose = choose_simd,
     .run =
         [](const Args&, const Problem& problem, const Plan& plan, const Execution& execution) {
           run_kernel(simd_kernel(problem, execution.machine.isa), plan[0] != 0, problem,
                      execution);
         }},
    {.name = "unrolled4",
     .run =
         [](const Args&, const Problem& problem, const Plan&, const Execution& execution) {
           run_kernel(plain_kernel<Loop::unrolled>(problem.kind, problem.dtype), false, problem,
                      execution);
         }},
    {.name = "scalar",
     .run =
         [](const Args&, const Problem& problem, const Plan&, const Execution& execution) {
           run_kernel(plain_kernel<Loop::scalar>(problem.kind, problem.dtype), false, problem,
                      execution);
         }},
};

}  // namespace

std::span<const ElementwiseVariant> cpu_variants() { return kVariants; }

}  // namespace isobit::elementwise
