// SPDX-License-Identifier: Apache-2.0
// Element by element: one level of blocks, and the specification.
#include <cmath>

#include "isobit/core/amx.h"
#include "isobit/ops/matmul/cpu_slopes.h"

namespace isobit::matmul {
namespace {

// One level of blocks: sums of a block of y stay in the first cache while panels pass.
void run_blocked(const ForwardArgs&, const Problem& problem, const Plan&,
                 const Execution& execution) {
  if (problem.empty()) return;
  constexpr std::int64_t kSide = 32;
  const Grid grid = grid_of(problem, execution.machine, kSide, kSide);
  const auto block = [&]<class T, class Real>(const Arrays& arrays, std::int64_t row,
                                              std::int64_t col, T, Real) {
    const std::int64_t rows = std::min(kSide, problem.m - row),
                       cols = std::min(kSide, problem.n - col);
    order::PairTree<Real> runs[kSide][kSide];
    Real run[kSide][kSide];
    for (std::int64_t k = 0; k < problem.k; k += order::kPanel) {
      Real chains[kSide][kSide] = {};
      const std::int64_t end = std::min<std::int64_t>(problem.k, k + order::kPanel);
      for (std::int64_t at = k; at < end; ++at)
        for (std::int64_t i = 0; i < rows; ++i) {
          const Real a = widen<Real>(*reinterpret_cast<const T*>(arrays.a.moved(row + i, at).data));
          for (std::int64_t j = 0; j < cols; ++j)
            chains[i][j] = std::fma(
                a, widen<Real>(*reinterpret_cast<const T*>(arrays.b.moved(at, col + j).data)),
                chains[i][j]);
        }
      for (std::int64_t i = 0; i < rows; ++i)
        for (std::int64_t j = 0; j < cols; ++j) {
          run[i][j] = k % kRunK == 0 ? chains[i][j] : run[i][j] + chains[i][j];
          if (end % kRunK == 0 || end == problem.k) runs[i][j].push(run[i][j]);
        }
    }
    for (std::int64_t i = 0; i < rows; ++i)
      for (std::int64_t j = 0; j < cols; ++j)
        finish_element<Real>(problem, arrays, row + i, col + j, runs[i][j].total());
  };
  for_each_region(problem, execution, grid, kSide, kSide, [&](std::int64_t, const Region& region) {
    const Arrays arrays = problem.arrays(region.product);
    for (std::int64_t i = 0; i < region.rows; i += kSide)
      for (std::int64_t j = 0; j < region.cols; j += kSide)
        with_types(problem.dtype(), [&]<class T, class Real>(T, Real) {
          block(arrays, region.row + i, region.col + j, T{}, Real{});
        });
  });
}

std::string declines_blocked(const Problem& problem, const Machine&) {
  return problem.arithmetic == Arithmetic::tensor ? "has no tensor arithmetic" : "";
}

// A derived operand comes as rows.
Problem with_rows(const Problem& problem) {
  return problem.derived == Derived::b ? problem.transposed() : problem;
}

// A row of s for each task.
std::size_t naive_workspace(const Problem& given, const Plan&, const Machine& machine) {
  if (given.empty() || given.derived == Derived::none) return 0;
  const Problem problem = with_rows(given);
  const Grid grid = grid_of(problem, machine, 1, problem.n);
  return static_cast<std::size_t>(grid.tasks * problem.k * size_of(problem.real()));
}

// The specification: one element of y after the other.
void run_naive(const ForwardArgs&, const Problem& given, const Plan&, const Execution& execution) {
  if (given.empty()) return;
  const Problem problem = with_rows(given);
  const Grid grid = grid_of(problem, execution.machine, 1, problem.n);
  const auto compute = [&]<class T, class Real>(std::byte* room, const Region& region, T, Real) {
    const Arrays arrays = problem.arrays(region.product);
    const auto at = [](const Array& array, std::int64_t row, std::int64_t col) {
      return widen<Real>(*reinterpret_cast<const T*>(array.moved(row, col).data));
    };
    auto* const s = reinterpret_cast<Real*>(room);
    for (std::int64_t i = region.row; i < region.row + region.rows; ++i) {
      const bool derived = problem.derived == Derived::a;
      for (std::int64_t k = 0; derived && k < problem.k; ++k)
        s[k] = widen<Real>(narrow<T>(slope_element<Real>(problem, arrays.a, arrays.slope, i, k)));
      for (std::int64_t j = region.col; j < region.col + region.cols; ++j) {
        const auto row = [&](std::int64_t k) { return derived ? s[k] : at(arrays.a, i, k); };
        const auto col = [&](std::int64_t k) { return at(arrays.b, k, j); };
        const auto sum = [&] {
          if constexpr (std::is_same_v<T, bf16>)
            if (problem.arithmetic == Arithmetic::tensor) return amx::product(problem.k, row, col);
          return order::product<Real>(problem.k, row, col);
        };
        finish_element<Real>(problem, arrays, i, j, sum());
      }
    }
  };
  for_each_region(
      problem, execution, grid, 1, problem.n, [&](std::int64_t task, const Region& region) {
        std::byte* const room = execution.workspace + task * problem.k * size_of(problem.real());
        with_types(problem.dtype(),
                   [&]<class T, class Real>(T, Real) { compute(room, region, T{}, Real{}); });
      });
}

}  // namespace

ForwardVariant blocked_variant() {
  return {.name = "blocked", .declines = declines_blocked, .run = run_blocked};
}
ForwardVariant naive_variant() {
  return {.name = "naive", .workspace = naive_workspace, .run = run_naive};
}

}  // namespace isobit::matmul
