// SPDX-License-Identifier: Apache-2.0
// How a call becomes a Problem: batches as loops, as few as there can be, around products whose
// rows are adjacent.
#include "isobit/ops/matmul/problem.h"

#include <algorithm>

namespace isobit::matmul {
namespace {

Array array_of(const TensorView& view) {
  if (!view.given()) return {};
  Array array{static_cast<std::byte*>(view.data), view.dtype, 0, view.strides[view.rank - 1]};
  if (view.rank > 1) array.row = view.strides[view.rank - 2];
  return array;
}

// Turns of all loops as one, where every array moves on evenly; the last ones as rows of a where
// all of them are multiplied by the same b.
void join_loops(Problem& problem) {
  for (int i = 1; i < problem.loop_count;) {
    Loop &outer = problem.loops[i - 1], &inner = problem.loops[i];
    bool even = true;
    for (std::size_t j = 0; j < inner.steps.size(); ++j)
      even &= outer.steps[j] == inner.steps[j] * inner.extent;
    if (!even) {
      ++i;
      continue;
    }
    inner.extent *= outer.extent;
    std::copy(problem.loops.begin() + i, problem.loops.begin() + problem.loop_count,
              problem.loops.begin() + i - 1);
    --problem.loop_count;
  }
  if (problem.loop_count == 0) return;
  const Loop& last = problem.loops[problem.loop_count - 1];
  const auto is_of_b = [&](std::size_t j) {
    return Arrays::kAll[j] == &Arrays::b ||
           (Arrays::kAll[j] == &Arrays::slope && problem.derived == Derived::b);
  };
  bool rows = true;
  for (std::size_t j = 0; j < last.steps.size(); ++j) {
    const Array& array = problem.first.*Arrays::kAll[j];
    if (!array || Arrays::kAll[j] == &Arrays::bias) continue;
    if (is_of_b(j))
      rows &= last.steps[j] == 0;
    else
      rows &= problem.m == 1 || last.steps[j] == array.row * problem.m;
  }
  if (!rows) return;
  if (problem.m == 1)
    for (std::size_t j = 0; j < last.steps.size(); ++j)
      if (!is_of_b(j)) (problem.first.*Arrays::kAll[j]).row = last.steps[j];
  problem.m *= last.extent;
  --problem.loop_count;
}

// Of views whose shapes have been checked. Without b, rows of a are all that there is.
Problem joined(const ForwardArgs& args, DType element, const TensorView& slope, Derived derived) {
  const int rank = args.a.rank;
  const TensorView* views[] = {&args.a,        &args.b, &args.bias, &args.c,
                               &args.residual, &args.y, &args.pre,  &slope};
  Problem problem;
  problem.element = element;
  problem.derived = derived;
  problem.activation = args.activation;
  problem.arithmetic = args.arithmetic;
  problem.alpha = args.alpha;
  problem.beta = args.beta;
  problem.m = args.a.shape[rank - 2];
  problem.k = args.a.shape[rank - 1];
  problem.n = args.b.given() ? args.b.shape[rank - 1] : problem.k;
  for (std::size_t i = 0; i < std::size(views); ++i)
    problem.first.*Arrays::kAll[i] = array_of(*views[i]);
  if (args.beta == 0) problem.first.c = {};
  for (int i = 0; i + 2 < rank; ++i) {
    if (args.a.shape[i] == 1) continue;
    Loop& loop = problem.loops[problem.loop_count++];
    loop.extent = args.a.shape[i];
    for (std::size_t j = 0; j < loop.steps.size(); ++j)
      if (views[j]->rank == rank && problem.first.*Arrays::kAll[j])
        loop.steps[j] = views[j]->strides[i];
  }
  if (!problem.empty()) join_loops(problem);
  return problem;
}

}  // namespace

Problem problem_of(const ForwardArgs& args, DType element, const TensorView& slope, Derived derived,
                   Activation bend) {
  Problem problem = joined(args, element, slope, derived);
  problem.bend = bend;
  // Rows of y are adjacent elements wherever they can be.
  if (!problem.empty() && problem.n > 1 && problem.first.y.col != 1 &&
      (problem.first.y.row == 1 || problem.m == 1))
    problem = problem.transposed();
  return problem;
}

// With y as it lies: a product that is transposed would have the panels in the place of a.
Problem problem_of(const ForwardArgs& args, const Panels& panels) {
  Problem problem = joined(args, args.a.dtype, {}, Derived::none);
  problem.panels = &panels;
  return problem;
}

Problem rows_problem(const BackwardArgs& args, const TensorView& slope) {
  Problem problem = joined({.a = args.grad_y, .b = {}, .bias = args.grad_bias, .y = args.grad_c},
                           args.a.dtype, slope, Derived::a);
  problem.alpha = args.beta;
  problem.arithmetic = args.arithmetic;
  problem.bend = args.activation;
  return problem;
}

}  // namespace isobit::matmul
