// SPDX-License-Identifier: Apache-2.0
// One operation after the other, each by its own variant, on any device: what one gives the next
// is an array between them.
#pragma once

#include <algorithm>

#include "isobit/core/pieces.h"
#include "isobit/dispatch/step.h"
#include "isobit/norm_linear/variants.h"
#include "isobit/norms/variants.h"

namespace isobit::norm_linear {

// `Tables` has the variants of both operators on a device, and step_of() to choose one of a table.
// Without memory in `pieces` the constructors only count.
template <class Tables>
class UnfusedForward {
 public:
  UnfusedForward(const ForwardProblem& problem, const Machine& machine, Pieces& pieces)
      : norm_(with_y(problem, pieces)),
        product_(product_of(problem, y_of(problem, norm_.y))),
        norm_step_(Tables::step_of(Tables::norm_forward(), norm_, machine)),
        product_step_(Tables::step_of(Tables::product_forward(), product_, machine)),
        workspace_(pieces.take(static_cast<std::int64_t>(
            std::max(norm_step_.workspace(machine), product_step_.workspace(machine))))) {}
  UnfusedForward(const UnfusedForward&) = delete;

  void run(const Execution& execution) const {
    norm_step_.run(execution, workspace_);
    product_step_.run(execution, workspace_);
  }

 private:
  static norms::ForwardProblem with_y(const ForwardProblem& problem, Pieces& pieces) {
    norms::ForwardProblem norm = problem.norm;
    const auto& [dtype, rows, cols, features, weight, activation, arithmetic] = problem.product;
    if (!norm.y) norm.y = {pieces.take(rows * cols * size_of(dtype)), rows, cols, cols};
    return norm;
  }
  static TensorView y_of(const ForwardProblem& problem, const Matrix& y) {
    return problem.norm.y ? view_of(y, problem.product.dtype) : problem.product.y_at(y.data);
  }

  norms::ForwardProblem norm_;
  matmul::Problem product_;
  Step<typename Tables::Norm::ForwardArgs, norms::ForwardProblem> norm_step_;
  Step<matmul::ForwardArgs, matmul::Problem> product_step_;
  std::byte* workspace_;
};

template <class Tables>
class UnfusedBackward {
 public:
  UnfusedBackward(const BackwardProblem& problem, const Machine& machine, Pieces& pieces)
      : problem_(problem),
        grad_y_(problem.wants_norm() ? array(pieces) : nullptr),
        y_(problem.grad_weight.given() ? array(pieces) : nullptr),
        norm_(with_grad_y()),
        again_(with_y()),
        products_(products()),
        norm_step_(Tables::step_of(Tables::norm_backward(), norm_, machine)),
        again_step_(Tables::step_of(Tables::norm_forward(), again_, machine)),
        products_step_(Tables::step_of(Tables::product_backward(), products_, machine)),
        workspace_(pieces.take(static_cast<std::int64_t>(
            std::max({norm_step_.workspace(machine), again_step_.workspace(machine),
                      products_step_.workspace(machine)})))) {}
  UnfusedBackward(const UnfusedBackward&) = delete;

  // grad_x may be x, so that it comes last.
  void run(const Execution& execution) const {
    if (products_.wants_b) again_step_.run(execution, workspace_);
    products_step_.run(execution, workspace_);
    if (products_.wants_a) norm_step_.run(execution, workspace_);
  }

 private:
  std::byte* array(Pieces& pieces) const {
    const Product& product = problem_.product;
    return pieces.take(product.rows * product.cols * size_of(product.dtype));
  }
  Matrix rows_at(std::byte* data) const {
    return {data, problem_.product.rows, problem_.product.cols, problem_.product.cols};
  }
  norms::BackwardProblem with_grad_y() const {
    norms::BackwardProblem norm = problem_.norm;
    norm.grad_y = rows_at(grad_y_);
    return norm;
  }
  norms::ForwardProblem with_y() const {
    norms::ForwardProblem again = problem_.again;
    again.y = rows_at(y_);
    return again;
  }
  matmul::BackwardProblem products() const {
    matmul::BackwardProblem products;
    products.wants_a = problem_.wants_norm();
    products.wants_b = problem_.grad_weight.given();
    const Product& product = problem_.product;
    if (products.wants_a) products.to_a = gradient_of_y(problem_, product.y_at(grad_y_));
    if (products.wants_b) products.to_b = gradient_of_weight(problem_, product.y_at(y_));
    products.rows = gradient_of_bias(problem_);
    return products;
  }

  const BackwardProblem& problem_;
  std::byte *grad_y_, *y_;
  norms::BackwardProblem norm_;
  norms::ForwardProblem again_;
  matmul::BackwardProblem products_;
  Step<typename Tables::Norm::BackwardArgs, norms::BackwardProblem> norm_step_;
  Step<typename Tables::Norm::ForwardArgs, norms::ForwardProblem> again_step_;
  Step<matmul::BackwardArgs, matmul::BackwardProblem> products_step_;
  std::byte* workspace_;
};

// The variants of a table by these.
template <class Way, class Problem>
std::size_t unfused_workspace(const Problem& problem, const Plan&, const Machine& machine) {
  Pieces pieces;
  const Way way(problem, machine, pieces);
  return pieces.taken();
}
template <class Way, class Args, class Problem>
void run_unfused(const Args&, const Problem& problem, const Plan&, const Execution& execution) {
  Pieces pieces(execution.workspace);
  Way(problem, execution.machine, pieces).run(execution);
}

}  // namespace isobit::norm_linear
