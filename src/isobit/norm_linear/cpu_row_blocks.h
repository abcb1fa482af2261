// SPDX-License-Identifier: Apache-2.0
// Forward by blocks of rows: a thread normalises one into memory that stays in its second cache,
// and multiplies it by a weight whose columns lie side by side.
#pragma once

#include <algorithm>

#include "isobit/core/pieces.h"
#include "isobit/dispatch/plan.h"
#include "isobit/dispatch/step.h"
#include "isobit/norm_linear/problem.h"
#include "isobit/norms/variants.h"
#include "isobit/simd/tasks.h"

namespace isobit::norm_linear {

inline constexpr int kRowsOfBlocks[] = {16, 32, 64, 128, 256};
inline constexpr Knob kRowBlockKnobs[] = {{"rows", kRowsOfBlocks, "that a thread takes at a time"}};

// Where a weight of few features stays in the second cache beside a block, packing it saves
// nothing.
bool row_blocks_suit(const ForwardProblem& problem, const Machine& machine);
Plan choose_row_blocks(const ForwardProblem& problem, const Machine& machine);

ForwardProblem block_of(const ForwardProblem& problem, std::int64_t first, std::int64_t count);

// The weight with adjacent columns: copied, unless it lies so.
class SideBySide {
 public:
  SideBySide(const Product& product, Pieces& pieces);

  void prepare(const Execution& execution) const;
  const TensorView& weight() const { return weight_; }

 private:
  const Product& product_;
  TensorView weight_;
  std::byte* copy_ = nullptr;
};

// Without memory in `pieces` this only counts.
template <class Tables>
class RowBlocks {
 public:
  RowBlocks(const ForwardProblem& problem, const Plan& plan, const Machine& machine, Pieces& pieces)
      : problem_(problem),
        rows_(problem.norm.rows),
        block_(std::min<std::int64_t>(plan[0], rows_)),
        blocks_(block_ == 0 ? 0 : (rows_ + block_ - 1) / block_),
        tasks_(simd::task_count(machine, rows_ * (problem.product.cols + problem.product.features),
                                std::max<std::int64_t>(1, blocks_))),
        alone_(machine),
        weight_(problem.product, pieces) {
    alone_.threads = 1;
    if (blocks_ == 0) return;
    y_bytes_ = taken(block_ * problem.product.cols * size_of(problem.product.dtype));
    std::size_t most = 0;
    for (const std::int64_t first : {std::int64_t{0}, (blocks_ - 1) * block_}) {
      std::byte somewhere{};
      const Block block(*this, first, &somewhere);
      most =
          std::max({most, block.norm_step.workspace(alone_), block.product_step.workspace(alone_)});
    }
    task_bytes_ = y_bytes_ + taken(static_cast<std::int64_t>(most));
    own_ = pieces.take(tasks_ * task_bytes_);
  }
  RowBlocks(const RowBlocks&) = delete;

  void run(const Execution& execution) const {
    weight_.prepare(execution);
    execution.parallel_for(tasks_, [&](std::int64_t task) {
      const simd::FloatMode mode;
      Execution own = execution;
      own.machine = alone_;
      own.parallel_for = {};
      std::byte* const y = own_ + task * task_bytes_;
      for (std::int64_t i = blocks_ * task / tasks_; i < blocks_ * (task + 1) / tasks_; ++i) {
        const Block block(*this, i * block_, y);
        block.norm_step.run(own, y + y_bytes_);
        block.product_step.run(own, y + y_bytes_);
      }
    });
  }

 private:
  // The rows from one on, and the two steps that compute them by way of y.
  struct Block {
    ForwardProblem problem;
    matmul::Problem product;
    Step<typename Tables::Norm::ForwardArgs, norms::ForwardProblem> norm_step;
    Step<matmul::ForwardArgs, matmul::Problem> product_step;

    Block(const RowBlocks& all, std::int64_t first, std::byte* y)
        : problem(block_at(all, first, y)),
          product(product_of(problem, view_of(problem.norm.y, problem.product.dtype))),
          norm_step(Tables::step_of(Tables::norm_forward(), problem.norm, all.alone_)),
          product_step(Tables::step_of(Tables::product_forward(), product, all.alone_)) {}
    Block(const Block&) = delete;
  };

  static ForwardProblem block_at(const RowBlocks& all, std::int64_t first, std::byte* y) {
    const std::int64_t count = std::min(all.block_, all.rows_ - first);
    ForwardProblem block = block_of(all.problem_, first, count);
    block.norm.y = {y, count, block.norm.cols, block.norm.cols};
    block.product.weight = all.weight_.weight();
    return block;
  }

  static std::int64_t taken(std::int64_t bytes) { return (bytes + 63) / 64 * 64; }

  const ForwardProblem& problem_;
  const std::int64_t rows_, block_, blocks_, tasks_;
  Machine alone_;  // a thread of the machine
  SideBySide weight_;
  std::int64_t y_bytes_ = 0, task_bytes_ = 0;
  std::byte* own_ = nullptr;
};

}  // namespace isobit::norm_linear
