// SPDX-License-Identifier: Apache-2.0
// Backward by blocks of rows: the gradient of y exists for a block at a time, and y itself is made
// again where it is packed.
#pragma once

#include <algorithm>
#include <bit>

#include "isobit/core/order.h"
#include "isobit/dispatch/plan.h"
#include "isobit/dispatch/step.h"
#include "isobit/norm_linear/cpu_rows.h"
#include "isobit/norms/cpu_column_sums.h"
#include "isobit/norms/variants.h"
#include "isobit/ops/matmul/cpu_rows.h"
#include "isobit/simd/float_mode.h"

namespace isobit::norm_linear {

// Powers of two times a run of rows: the sums of a block are a subtree of the sums over rows.
inline constexpr int kBlockRows[] = {16, 32, 64, 128, 256, 512, 1024, 2048};
inline constexpr Knob kBlockKnobs[] = {
    {"rows", kBlockRows, "of a block, whose gradient of y exists at a time"}};

Plan choose_block(const BackwardProblem& problem, const Machine& machine);

BackwardProblem block_of(const BackwardProblem& problem, std::int64_t first, std::int64_t count);

// Without memory in `pieces` this only counts.
template <class Tables>
class FusedBackward {
 public:
  FusedBackward(const NormKernels& kernels, const BackwardProblem& problem, const Plan& plan,
                const Machine& machine, Pieces& pieces)
      : problem_(problem),
        tools_(norms::tools_of(machine.isa)),
        stored_(norms::stored_weights(problem.norm)),
        sums_(stored_.real, problem.norm.cols),
        block_(std::min<std::int64_t>(plan[0], problem.norm.rows)),
        weights_(norms::weights_in(stored_, pieces)),
        y_(problem.again, kernels, machine.isa, pieces) {
    const std::int64_t blocks = block_ == 0 ? 0 : (problem.norm.rows + block_ - 1) / block_;
    const Product& product = problem.product;
    if (problem.wants_norm()) grad_y_ = pieces.take(block_ * product.cols * size_of(product.dtype));
    if (problem.norm.wants_sums())
      trees_ = pieces.take(norms::ColumnTree::arrays(blocks) * sums_.bytes());
    std::size_t most = 0;
    if (problem.grad_weight.given()) {
      const matmul::Problem to_weight = gradient_of_weight();
      most = std::max(most,
                      packed().workspace(to_weight, packed().choose(to_weight, machine), machine));
    }
    if (problem.grad_bias.given())
      most =
          std::max(most, matmul::rows_workspace(norm_linear::gradient_of_bias(problem), machine));
    if (problem.wants_norm() && blocks > 0) {
      // The last block may be another one than the others.
      for (const std::int64_t first : {std::int64_t{0}, (blocks - 1) * block_}) {
        std::byte somewhere{};
        const BackwardProblem block = block_at(first, &somewhere);
        const matmul::Problem to_y = gradient_of_y(block);
        const auto product_step = default_step(Tables::product_forward(), to_y, machine);
        const auto norm_step = norm_step_of(block, machine);
        most = std::max({most, product_step.workspace(machine), norm_step.workspace(machine)});
      }
    }
    workspace_ = pieces.take(static_cast<std::int64_t>(most));
  }
  FusedBackward(const FusedBackward&) = delete;

  // grad_x may be x, so that the gradient of the weight comes first.
  void run(const Execution& execution) {
    const Machine& machine = execution.machine;
    if (problem_.grad_weight.given()) {
      y_.prepare(execution);
      const matmul::Problem to_weight = gradient_of_weight();
      Step<matmul::ForwardArgs, matmul::Problem>{to_weight, packed(),
                                                 packed().choose(to_weight, machine)}
          .run(execution, workspace_);
    }
    if (problem_.grad_bias.given()) {
      Execution own = execution;
      own.workspace = workspace_;
      matmul::add_rows(norm_linear::gradient_of_bias(problem_), own);
    }
    if (problem_.wants_norm()) run_blocks(execution);
  }

 private:
  static const matmul::ForwardVariant& packed() {
    static const matmul::ForwardVariant kPacked = matmul::packed_variant();
    return kPacked;
  }

  matmul::Problem gradient_of_weight() const {
    matmul::Problem product =
        norm_linear::gradient_of_weight(problem_, problem_.product.y_at(nullptr));
    product.made_b = y_.made();
    return product;
  }
  matmul::Problem gradient_of_y(const BackwardProblem& block) const {
    return norm_linear::gradient_of_y(block, block.product.y_at(grad_y_));
  }

  // Planned for all rows: what a block reads and writes comes from memory if that of all does.
  auto norm_step_of(const BackwardProblem& block, const Machine& machine) const {
    auto step = default_step(Tables::norm_backward(), block.norm, machine);
    step.plan = step.variant.choose(problem_.norm, machine);
    return step;
  }

  // What is added up over blocks stays in the type that it is computed in, and so do the weights.
  BackwardProblem block_at(std::int64_t first, std::byte* sums) const {
    const std::int64_t count = std::min(block_, problem_.norm.rows - first);
    BackwardProblem block = block_of(problem_, first, count);
    norms::BackwardProblem& norm = block.norm;
    norm.grad_y = {grad_y_, count, norm.cols, norm.cols};
    norm.weight = norm.weight == nullptr ? nullptr : weights_.weight;
    norm.zero_centered = false;
    norm.weight_dtype = stored_.real;
    // Found for the gradient of the weight, which comes first.
    if (problem_.grad_weight.given()) norm.found = y_.terms(first);
    if (norm.grad_weight != nullptr) norm.grad_weight = sums;
    if (norm.grad_bias != nullptr) norm.grad_bias = sums_.bias(sums);
    return block;
  }

  void run_blocks(const Execution& execution) {
    const simd::FloatMode mode;  // of the sums over blocks
    const norms::BackwardProblem& norm = problem_.norm;
    norms::convert_weights(stored_, weights_, execution);
    norms::ColumnTree tree(tools_, sums_, trees_);
    for (std::int64_t first = 0; first < norm.rows; first += block_) {
      const BackwardProblem block = block_at(first, norm.wants_sums() ? tree.next() : nullptr);
      const matmul::Problem to_y = gradient_of_y(block);
      default_step(Tables::product_forward(), to_y, execution.machine).run(execution, workspace_);
      norm_step_of(block, execution.machine).run(execution, workspace_);
      if (norm.wants_sums()) tree.push();
    }
    if (norm.wants_sums()) finish(tree.total());
  }

  void finish(std::byte* total) const {
    const norms::BackwardProblem& norm = problem_.norm;
    const auto write = [&](void* to, const std::byte* sums) {
      if (to == nullptr) return;
      if (sums != nullptr)
        tools_.finish(stored_.real, sums, norm.weight_dtype, to, norm.cols);
      else
        std::fill_n(static_cast<std::byte*>(to), norm.cols * size_of(norm.weight_dtype),
                    std::byte{0});
    };
    write(norm.grad_weight, total);
    write(norm.grad_bias, total == nullptr ? nullptr : sums_.bias(total));
  }

  const BackwardProblem& problem_;
  const norms::Tools& tools_;
  const norms::StoredWeights stored_;
  const norms::SumsArray sums_;
  const std::int64_t block_;
  const norms::Weights weights_;
  MadeRows y_;
  std::byte *grad_y_ = nullptr, *trees_ = nullptr, *workspace_ = nullptr;
};

}  // namespace isobit::norm_linear
