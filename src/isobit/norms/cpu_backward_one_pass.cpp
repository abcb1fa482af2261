// SPDX-License-Identifier: Apache-2.0
// One sweep over the rows computes everything. Each task owns aligned groups of runs; a group's
// sums are a subtree of the canonical tree.
#include <algorithm>
#include <bit>

#include "isobit/norms/cpu_backward_parts.h"
#include "isobit/norms/cpu_staged_gradients.h"
#include "isobit/simd/fence.h"
#include "isobit/simd/row_sums.h"

namespace isobit::norms {
namespace {

struct Groups {
  std::int64_t runs, size, count, tasks;

  Groups(const BackwardProblem& problem, const Machine& machine)
      : runs(runs_of(problem)),
        size(group_size(runs, machine.threads)),
        count((runs + size - 1) / size),
        tasks(task_count(problem, machine, count)) {}

  // The largest power of two that divides the runs evenly among the threads, or deals out four
  // groups a thread.
  static std::int64_t group_size(std::int64_t runs, std::int64_t threads) {
    const std::int64_t share = std::max<std::int64_t>(1, runs / std::max<std::int64_t>(1, threads));
    if (std::has_single_bit(static_cast<std::uint64_t>(share)) && share * threads == runs)
      return share;
    return static_cast<std::int64_t>(
        std::bit_floor(static_cast<std::uint64_t>(std::max<std::int64_t>(1, share / 4))));
  }
};

class OnePass {
 public:
  // Without memory in `pieces` this only counts.
  OnePass(const BackwardProblem& problem, const Plan& plan, const Machine& machine, Pieces& pieces)
      : problem_(problem),
        streaming_(plan[0] != 0),
        tools_(tools_of(machine.isa)),
        groups_(problem, machine),
        sums_(real_of(problem.dtype), problem.cols),
        weights_(weights_in(stored_weights(problem), pieces)) {
    if (problem.wants_sums()) {
      roots_ = pieces.take(groups_.count * sums_.bytes());
      trees_ = pieces.take(groups_.tasks * tree_bytes());
    }
    if (StagedGradients::needed(problem)) {
      Pieces of_one;
      StagedGradients(problem, tools_, streaming_, of_one);
      staging_bytes_ = static_cast<std::int64_t>(of_one.taken());
      staging_ = pieces.take(groups_.tasks * staging_bytes_);
    }
  }

  void run(const BackwardKernels& kernels, const Execution& execution) const {
    convert_weights(stored_weights(problem_), weights_, execution);
    execution.parallel_for(groups_.tasks, [&](std::int64_t task) {
      const simd::FloatMode mode;
      Pieces own(staging_ + task * staging_bytes_);
      const StagedGradients staged(problem_, tools_, streaming_, own);
      for (std::int64_t g = groups_.count * task / groups_.tasks;
           g < groups_.count * (task + 1) / groups_.tasks; ++g) {
        ColumnTree tree(tools_, sums_, trees_ + task * tree_bytes());
        for (std::int64_t r = g * groups_.size; r < std::min(groups_.runs, (g + 1) * groups_.size);
             ++r) {
          sweep_run(kernels, staged, r, tree);
          if (problem_.wants_sums()) tree.push();
        }
        if (problem_.wants_sums())
          std::copy_n(tree.total(), sums_.bytes(), roots_ + g * sums_.bytes());
      }
      if (streaming_) simd::fence();
    });
    if (problem_.wants_sums()) fold_roots(execution);
  }

 private:
  std::int64_t tree_bytes() const { return ColumnTree::arrays(groups_.size) * sums_.bytes(); }

  void sweep_run(const BackwardKernels& kernels, const StagedGradients& staged, std::int64_t run,
                 ColumnTree& tree) const {
    const std::int64_t first = run * order::kRun;
    const std::int64_t last = std::min(problem_.rows, first + order::kRun);
    // Terms of short rows are found side by side.
    alignas(RowTerms<double>) std::byte terms[order::kRun * sizeof(RowTerms<double>)];
    const bool is_staged = StagedGradients::needed(problem_);
    const std::int64_t together =
        simd::is_short(problem_.cols) && !is_staged ? order::kRun : kSweptRows;
    for (std::int64_t row = first; row < last; row += together) {
      const std::int64_t count = std::min(last - row, together);
      const ColumnSums sums = problem_.wants_sums() ? sums_.sums(tree.next(), row == first)
                                                    : ColumnSums{nullptr, nullptr, true};
      if (is_staged) {
        const BackwardProblem rows = staged.rows_from(row, count);
        kernels.terms(rows, weights_, 0, count, terms);
        sweep(kernels, rows, {0, count, 0, problem_.cols}, terms, sums);
        staged.finish(rows, row);
      } else {
        kernels.terms(problem_, weights_, row, row + count, terms);
        sweep(kernels, problem_, {row, row + count, 0, problem_.cols}, terms, sums);
      }
    }
  }

  void sweep(const BackwardKernels& kernels, const BackwardProblem& problem, const Tile& tile,
             const std::byte* terms, const ColumnSums& sums) const {
    if (!problem.wants_sums())
      kernels.grad_x(problem, weights_, tile, terms);
    else if (problem.wants_rows())
      kernels.both(problem, weights_, tile, terms, sums);
    else
      kernels.sums(problem, tile, terms, sums);
  }

  // Adjacent pairs of groups, level by level, an odd one carried up; columns are dealt to the
  // threads.
  void fold_roots(const Execution& execution) const {
    const DType real = real_of(problem_.dtype);
    simd::in_parts(execution, groups_.tasks, problem_.cols, order::kLanes,
                   [&](std::int64_t begin, std::int64_t end) {
                     const auto at = [&](std::int64_t g) {
                       return roots_ + g * sums_.bytes() + begin * size_of(real);
                     };
                     for (std::int64_t step = 1; step < groups_.count; step *= 2)
                       for (std::int64_t g = 0; g + step < groups_.count; g += 2 * step) {
                         tools_.add(real, at(g), at(g + step), end - begin);
                         tools_.add(real, sums_.bias(at(g)), sums_.bias(at(g + step)), end - begin);
                       }
                     std::byte* total = groups_.count > 0 ? at(0) : nullptr;
                     finish(problem_, tools_, total, total != nullptr ? sums_.bias(total) : nullptr,
                            begin, end);
                   });
  }

  const BackwardProblem& problem_;
  const bool streaming_;
  const Tools& tools_;
  const Groups groups_;
  const SumsArray sums_;
  const Weights weights_;
  std::byte *roots_ = nullptr, *trees_ = nullptr, *staging_ = nullptr;
  std::int64_t staging_bytes_ = 0;
};

}  // namespace

// Two passes read x and grad_y once more, so they pay only where one pass has too few runs for the
// threads.
bool one_pass_suits(const BackwardProblem& problem, const Machine& machine) {
  return !problem.wants_sums() || runs_of(problem) >= task_count(problem, machine, problem.cols) ||
         StagedGradients::needed(problem);
}

std::size_t one_pass_workspace(const BackwardProblem& problem, const Plan& plan,
                               const Machine& machine) {
  Pieces pieces;
  OnePass(problem, plan, machine, pieces);
  return pieces.taken();
}

void run_one_pass(BackwardKernelsOf kernels_of, const BackwardProblem& problem, const Plan& plan,
                  const Execution& execution) {
  Pieces pieces(execution.workspace);
  const bool staged = StagedGradients::needed(problem);
  const DType dtype = staged ? real_of(problem.dtype) : problem.dtype;
  const bool streaming = plan[0] != 0 && !staged;  // what is staged stays in the caches
  OnePass(problem, plan, execution.machine, pieces)
      .run(kernels_of(execution.machine.isa, dtype, streaming), execution);
}

}  // namespace isobit::norms
