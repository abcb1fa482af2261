// SPDX-License-Identifier: Apache-2.0
// The CPU variants: sums in vectors, where threads share long rows too, and the specification.
#include <algorithm>
#include <type_traits>

#include "isobit/core/order.h"
#include "isobit/ops/vector_norm/cpu_kernels.h"
#include "isobit/ops/vector_norm/formula.h"
#include "isobit/ops/vector_norm/problem.h"
#include "isobit/simd/tasks.h"

namespace isobit::vector_norm {
namespace {

// So many elements of a row are a part: its sum is a subtree of the row's.
constexpr std::int64_t kPart = 64 * order::kBlock;

std::int64_t parts_of(const Problem& problem) {
  return std::max<std::int64_t>(1, (problem.cols + kPart - 1) / kPart);
}

template <class Real>
void put(const Problem& problem, std::int64_t row, Real norm) {
  reinterpret_cast<Real*>(problem.norm)[row] = narrow<Real>(norm);
}

Kernel kernel_for(DType dtype, bool fetches, Isa isa) {
  ISOBIT_RETURN_FOR_ISA(isa, kernel(dtype, fetches));
}

// Of what the parts of a row have given.
template <class Real>
Real joined(Order order, const double* parts, std::int64_t count) {
  if (order == Order::max) {
    Real result = 0;
    for (std::int64_t i = 0; i < count; ++i) result = larger(result, static_cast<Real>(parts[i]));
    return result;
  }
  order::PairTree<Real> tree;
  for (std::int64_t i = 0; i < count; ++i) tree.push(static_cast<Real>(parts[i]));
  return tree.total();
}

template <class Real>
void run_in(const Problem& problem, const Execution& execution) {
  const bool fetches =
      execution.machine.leaves_second_caches(problem.rows * problem.cols * size_of(problem.dtype));
  const Kernel kernel = kernel_for(problem.dtype, fetches, execution.machine.isa);
  const std::int64_t parts = parts_of(problem), units = problem.rows * parts;
  auto* const found = reinterpret_cast<double*>(execution.workspace);
  const auto row_at = [&](std::int64_t row) {
    return problem.x.data + row * problem.x.stride * size_of(problem.dtype);
  };
  const std::int64_t tasks = simd::task_count(execution.machine, problem.rows * problem.cols,
                                              std::max<std::int64_t>(1, units));
  simd::in_parts(execution, tasks, units, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t unit = begin; unit < end; ++unit) {
      const std::int64_t row = unit / parts, first = unit % parts * kPart;
      found[unit] = kernel(row_at(row) + first * size_of(problem.dtype),
                           std::min(kPart, problem.cols - first), problem.order, 0);
    }
  });
  const simd::FloatMode mode;
  for (std::int64_t row = 0; row < problem.rows; ++row) {
    const Real sum = joined<Real>(problem.order, found + row * parts, parts);
    if (problem.order != Order::l2) {
      put(problem, row, sum);
      continue;
    }
    put(problem, row,
        root_of(
            sum,
            [&] { return static_cast<Real>(kernel(row_at(row), problem.cols, Order::max, 0)); },
            [&](const Factors<Real>& factors) {
              const int exponent = std::ilogb(factors.first) + std::ilogb(factors.second);
              // Of a row whose scale is 1 the squares are those that were summed.
              if (exponent == 0) return sum;
              return static_cast<Real>(kernel(row_at(row), problem.cols, Order::l2, exponent));
            }));
  }
}

template <class T>
void run_scalar_in(const Problem& problem, const Execution& execution) {
  using Real = std::conditional_t<sizeof(T) == 8, double, float>;
  simd::in_parts(
      execution,
      simd::task_count(execution.machine, problem.rows * problem.cols,
                       std::max<std::int64_t>(1, problem.rows)),
      problem.rows, 1, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t row = begin; row < end; ++row) {
          const T* const x = reinterpret_cast<const T*>(problem.x.data) + row * problem.x.stride;
          const auto at = [&](std::int64_t i) { return widen<Real>(x[i]); };
          const auto largest = [&] {
            Real result = 0;
            for (std::int64_t i = 0; i < problem.cols; ++i)
              result = larger(result, std::fabs(at(i)));
            return result;
          };
          if (problem.order == Order::max) {
            put(problem, row, largest());
          } else if (problem.order == Order::l1) {
            put(problem, row,
                order::sum<Real>(problem.cols, [&](std::int64_t i) { return std::fabs(at(i)); }));
          } else {
            put(problem, row,
                root_of(order::dot<Real>(problem.cols, at, at), largest,
                        [&](const Factors<Real>& factors) {
                          const auto scaled = [&](std::int64_t i) { return factors.times(at(i)); };
                          return order::dot<Real>(problem.cols, scaled, scaled);
                        }));
          }
        }
      });
}

constexpr NormVariant kVariants[] = {
    {.name = "simd",
     .workspace =
         [](const Problem& problem, const Plan&, const Machine&) {
           return static_cast<std::size_t>(problem.rows * parts_of(problem)) * sizeof(double);
         },
     .run =
         [](const Args&, const Problem& problem, const Plan&, const Execution& execution) {
           if (problem.dtype == DType::f64)
             run_in<double>(problem, execution);
           else
             run_in<float>(problem, execution);
         }},
    {.name = "scalar",
     .run =
         [](const Args&, const Problem& problem, const Plan&, const Execution& execution) {
           switch (problem.dtype) {
             case DType::f16:  return run_scalar_in<f16>(problem, execution);
             case DType::bf16: return run_scalar_in<bf16>(problem, execution);
             case DType::f64:  return run_scalar_in<double>(problem, execution);
             default:          return run_scalar_in<float>(problem, execution);
           }
         }},
};

}  // namespace

std::span<const NormVariant> cpu_variants() { return kVariants; }

}  // namespace isobit::vector_norm
