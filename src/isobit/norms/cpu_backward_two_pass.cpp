// SPDX-License-Identifier: Apache-2.0
// First the terms of every row, then the column sums by columns and gradients by rows.
#include <algorithm>

#include "isobit/norms/cpu_backward_parts.h"
#include "isobit/norms/cpu_staged_gradients.h"
#include "isobit/simd/fence.h"

namespace isobit::norms {
namespace {

struct Workspace {
  std::byte *terms, *trees = nullptr;

  Workspace(const BackwardProblem& problem, Pieces& pieces)
      : terms(pieces.take(row_terms_bytes(problem.dtype) * problem.rows)) {
    if (problem.wants_sums())
      trees = pieces.take(ColumnTree::arrays(runs_of(problem)) *
                          SumsArray(real_of(problem.dtype), problem.cols).bytes());
  }

  static std::int64_t blocks(const BackwardProblem& problem) {
    return (problem.cols + order::kBlock - 1) / order::kBlock;
  }
};

// A tree for each part of the columns, in the part of the workspace that its columns name: parts
// are whole blocks, so their padding never adds up to more than the whole's.
void sum_columns(const BackwardProblem& problem, const BackwardKernels& kernels,
                 const Workspace& workspace, const Execution& execution) {
  const Tools& tools = tools_of(execution.machine.isa);
  const DType real = real_of(problem.dtype);
  const std::int64_t arrays = ColumnTree::arrays(runs_of(problem)),
                     terms = row_terms_bytes(problem.dtype);
  const std::int64_t tasks = task_count(problem, execution.machine, Workspace::blocks(problem));
  simd::in_parts(
      execution, tasks, problem.cols, order::kBlock, [&](std::int64_t begin, std::int64_t end) {
        const SumsArray sums(real, end - begin);
        ColumnTree tree(tools, sums, workspace.trees + 2 * arrays * begin * size_of(real));
        for (std::int64_t first = 0; first < problem.rows; first += order::kRun) {
          const Tile tile{first, std::min(problem.rows, first + order::kRun), begin, end};
          kernels.sums(problem, tile, workspace.terms + first * terms,
                       sums.sums(tree.next(), true));
          tree.push();
        }
        std::byte* total = tree.total();
        finish(problem, tools, total, total != nullptr ? sums.bias(total) : nullptr, begin, end);
      });
}

}  // namespace

std::string two_pass_declines(const BackwardProblem& problem, const Machine&) {
  return StagedGradients::needed(problem)
             ? "does not support mixed types, residual or dropout; one_pass does"
             : "";
}

std::size_t two_pass_workspace(const BackwardProblem& problem, const Plan&, const Machine&) {
  Pieces pieces;
  weights_in(stored_weights(problem), pieces);
  Workspace(problem, pieces);
  return pieces.taken();
}

void run_two_pass(BackwardKernelsOf kernels_of, const BackwardProblem& problem, const Plan& plan,
                  const Execution& execution) {
  Pieces pieces(execution.workspace);
  const StoredWeights stored = stored_weights(problem);
  const Weights weights = weights_in(stored, pieces);
  convert_weights(stored, weights, execution);
  const Workspace workspace(problem, pieces);
  const bool streaming = plan[0] != 0;
  const BackwardKernels kernels = kernels_of(execution.machine.isa, problem.dtype, streaming);
  const std::int64_t terms = row_terms_bytes(problem.dtype);
  const auto by_rows = [&](const auto& body) {
    simd::in_parts(execution, task_count(problem, execution.machine, problem.rows), problem.rows, 1,
                   body);
  };
  by_rows([&](std::int64_t begin, std::int64_t end) {
    kernels.terms(problem, weights, begin, end, workspace.terms + begin * terms);
  });
  if (problem.wants_sums()) sum_columns(problem, kernels, workspace, execution);
  if (problem.wants_rows())
    by_rows([&](std::int64_t begin, std::int64_t end) {
      kernels.grad_x(problem, weights, {begin, end, 0, problem.cols},
                     workspace.terms + begin * terms);
      if (streaming) simd::fence();
    });
}

}  // namespace isobit::norms
