// SPDX-License-Identifier: Apache-2.0
// Rows in pieces, on any device: their logits, and what is made of these before the next ones take
// their place.
#pragma once

#include <algorithm>
#include <string_view>

#include "isobit/core/array_tree.h"
#include "isobit/core/pieces.h"
#include "isobit/dispatch/plan.h"
#include "isobit/dispatch/step.h"
#include "isobit/ops/linear_cross_entropy/problem.h"

namespace isobit::linear_cross_entropy {

// Of backward: the terms of one chain of a product, so that pieces are added as its chains are.
inline constexpr int kPanel = 512;
inline constexpr std::int64_t kPanelsOfRun = 16;

inline constexpr int kForwardRows[] = {64, 128, 256, 512, 1024, 2048};
inline constexpr Knob kForwardKnobs[] = {{"rows", kForwardRows, "whose logits exist at a time"}};

// The logits of some rows.
class Logits {
 public:
  // For `most` rows. Without memory in `pieces` they are somewhere.
  Logits(const Product& product, std::int64_t most, Pieces& pieces)
      : product_(product), data_(pieces.take(most * product.classes * size_of(product.dtype))) {}

  TensorView view(std::int64_t count) const {
    return matrix_view(data_, 0, product_.dtype, count, product_.classes, product_.classes);
  }
  matmul::Problem made_of(std::int64_t first, std::int64_t count) const {
    return matmul::problem_of({.a = rows_of(product_.x, first, count),
                               .b = turned(product_.weight),
                               .bias = product_.bias,
                               .y = view(count)},
                              product_.dtype);
  }
  // What both passes of cross_entropy take of a call, of these rows alone.
  void take_rows(cross_entropy::Given& given, std::int64_t first, std::int64_t count) const {
    given.x = matrix(count);
    given.rows = count;
    given.target += first;
  }
  Matrix matrix(std::int64_t count) const {
    return {data_, count, product_.classes, product_.classes};
  }

 private:
  const Product& product_;
  std::byte* data_;
};

template <class Byte>
void move_on(Byte*& numbers, std::int64_t count, DType real) {
  if (numbers != nullptr) numbers += count * size_of(real);
}

// `Tables` has the variants of both operators on a device, step_of() to choose one of a table, and
// what is done to sums. Without memory in `pieces` the constructors only count.
template <class Tables>
class ForwardPieces {
 public:
  using Args = ForwardArgs;
  using Problem = ForwardProblem;

  ForwardPieces(const ForwardProblem& problem, std::int64_t rows, const Machine& machine,
                Pieces& pieces)
      : problem_(problem),
        rows_(std::min(rows, problem.product.rows)),
        logits_(problem.product, rows_, pieces) {
    std::size_t most = 0;
    for_each_size([&](std::int64_t first) {
      const Piece piece(*this, first, machine);
      most = std::max(
          {most, piece.product_step.workspace(machine), piece.losses_step.workspace(machine)});
    });
    workspace_ = pieces.take(static_cast<std::int64_t>(most));
  }
  ForwardPieces(const ForwardPieces&) = delete;

  void run(const Execution& execution) const {
    for (std::int64_t first = 0; first < problem_.product.rows; first += rows_) {
      const Piece piece(*this, first, execution.machine);
      piece.product_step.run(execution, workspace_);
      piece.losses_step.run(execution, workspace_);
    }
    Tables::add_totals(problem_.losses, execution);
  }

 private:
  struct Piece {
    matmul::Problem product;
    cross_entropy::ForwardProblem losses;
    Step<matmul::ForwardArgs, matmul::Problem> product_step;
    Step<cross_entropy::ForwardArgs, cross_entropy::ForwardProblem> losses_step;

    Piece(const ForwardPieces& all, std::int64_t first, const Machine& machine)
        : product(all.logits_.made_of(first, all.count(first))),
          losses(all.losses_of(first)),
          product_step(Tables::step_of(Tables::product_forward(), product, machine)),
          losses_step(Tables::step_of(Tables::losses_forward(), losses, machine)) {}
    Piece(const Piece&) = delete;
  };

  std::int64_t count(std::int64_t first) const {
    return std::min(rows_, problem_.product.rows - first);
  }
  cross_entropy::ForwardProblem losses_of(std::int64_t first) const {
    cross_entropy::ForwardProblem losses = problem_.losses;
    logits_.take_rows(losses, first, count(first));
    for (std::byte* cross_entropy::ForwardProblem::* numbers :
         {&cross_entropy::ForwardProblem::loss, &cross_entropy::ForwardProblem::lse,
          &cross_entropy::ForwardProblem::largest, &cross_entropy::ForwardProblem::sum})
      move_on(losses.*numbers, first, losses.real());
    losses.total = losses.count = nullptr;
    return losses;
  }
  // The last piece may be another one than the others.
  template <class Visit>
  void for_each_size(const Visit& visit) const {
    if (rows_ == 0) return;
    visit(0);
    visit((problem_.product.rows - 1) / rows_ * rows_);
  }

  const ForwardProblem& problem_;
  std::int64_t rows_;
  Logits logits_;
  std::byte* workspace_ = nullptr;
};

// In pieces of a panel, or all rows as one.
template <class Tables>
class BackwardPieces {
 public:
  using Args = BackwardArgs;
  using Problem = BackwardProblem;

  BackwardPieces(const BackwardProblem& problem, std::int64_t rows, const Machine& machine,
                 Pieces& pieces)
      : problem_(problem),
        rows_(std::min(rows, problem.product.rows)),
        real_(problem.losses.real()),
        weight_count_(problem.product.classes * problem.product.cols),
        logits_(problem.product, rows_, pieces),
        weights_(tree(problem.grad_weight, weight_count_, runs(), pieces)),
        biases_(tree(problem.grad_bias, problem.product.classes, count_of_pieces(), pieces)) {
    std::size_t most = 0;
    for_each_kind([&](std::int64_t first) {
      const Piece piece(*this, first, machine);
      most = std::max(most, piece.workspace(machine));
    });
    workspace_ = pieces.take(static_cast<std::int64_t>(most));
  }
  BackwardPieces(const BackwardPieces&) = delete;

  // grad_x may be x, so that it comes last.
  void run(const Execution& execution) {
    const auto add_to = [&](std::int64_t count) {
      return [&execution, count, this](std::byte* into, const std::byte* from) {
        Tables::add(into, from, count, real_, execution);
      };
    };
    const auto add_weights = add_to(weight_count_), add_biases = add_to(problem_.product.classes);
    const std::int64_t pieces = count_of_pieces();
    for (std::int64_t i = 0; i < pieces; ++i) {
      const Piece piece(*this, i * rows_, execution.machine);
      piece.run(execution, workspace_);
      if (problem_.grad_weight.given() && ((i + 1) % kPanelsOfRun == 0 || i + 1 == pieces))
        weights_.push(add_weights);
      if (problem_.grad_bias.given()) biases_.push(add_biases);
    }
    if (problem_.grad_weight.given())
      Tables::write(problem_.grad_weight, weights_.total(add_weights), execution);
    if (problem_.grad_bias.given())
      Tables::write(as_row(problem_.grad_bias), biases_.total(add_biases), execution);
  }

 private:
  using ProductStep = Step<matmul::ForwardArgs, matmul::Problem>;

  struct Piece {
    const BackwardProblem& problem;
    matmul::Problem product, to_weight, to_x;
    cross_entropy::BackwardProblem losses;
    matmul::BackwardProblem to_bias;
    ProductStep product_step, weight_step, x_step;
    Step<cross_entropy::BackwardArgs, cross_entropy::BackwardProblem> losses_step;
    Step<matmul::BackwardArgs, matmul::BackwardProblem> bias_step;

    Piece(const BackwardPieces& all, std::int64_t first, const Machine& machine)
        : problem(all.problem_),
          product(all.logits_.made_of(first, all.count(first))),
          to_weight(all.to_weight(first)),
          to_x(all.to_x(first)),
          losses(all.losses_of(first)),
          to_bias(all.to_bias(first)),
          product_step(Tables::step_of(Tables::product_forward(), product, machine)),
          weight_step(Tables::step_of(Tables::product_forward(), to_weight, machine)),
          x_step(Tables::step_of(Tables::product_forward(), to_x, machine)),
          losses_step(Tables::step_of(Tables::losses_backward(), losses, machine)),
          bias_step(Tables::step_of(Tables::product_backward(), to_bias, machine)) {}
    Piece(const Piece&) = delete;

    // Calls visit(step) with each step of the call, in their order.
    template <class Visit>
    void for_each_step(const Visit& visit) const {
      visit(product_step);
      visit(losses_step);
      if (problem.grad_weight.given()) visit(weight_step);
      if (problem.grad_bias.given()) visit(bias_step);
      if (problem.grad_x.given()) visit(x_step);
    }
    std::size_t workspace(const Machine& machine) const {
      std::size_t most = 0;
      for_each_step([&](const auto& step) { most = std::max(most, step.workspace(machine)); });
      return most;
    }
    void run(const Execution& execution, std::byte* workspace) const {
      for_each_step([&](const auto& step) { step.run(execution, workspace); });
    }
  };

  std::int64_t count_of_pieces() const {
    return rows_ == 0 ? 0 : (problem_.product.rows + rows_ - 1) / rows_;
  }
  std::int64_t runs() const { return (count_of_pieces() + kPanelsOfRun - 1) / kPanelsOfRun; }
  std::int64_t count(std::int64_t first) const {
    return std::min(rows_, problem_.product.rows - first);
  }

  // The first piece begins a sum, the next ones are added to it, and the last may have fewer rows.
  template <class Visit>
  void for_each_kind(const Visit& visit) const {
    const std::int64_t pieces = count_of_pieces();
    for (std::int64_t i = 0; i < std::min<std::int64_t>(pieces, 2); ++i) visit(i * rows_);
    if (pieces > 2) visit((pieces - 1) * rows_);
  }

  static TensorView as_row(const TensorView& view) {
    return matrix_view(view.data, view.bytes, view.dtype, 1, view.shape[0], view.shape[0]);
  }
  // Sums stand in the result itself where they have its type and its place.
  ArrayTree tree(const TensorView& result, std::int64_t count, std::int64_t pushed,
                 Pieces& pieces) const {
    if (!result.given()) return {nullptr, nullptr, 0};
    const std::int64_t bytes = (count * size_of(real_) + 63) / 64 * 64;
    const bool in_place =
        result.dtype == real_ && (result.rank == 1 || result.strides[0] == result.shape[1]);
    const std::int64_t arrays = std::max<std::int64_t>(1, ArrayTree::arrays(pushed));
    std::byte* first = in_place ? nullptr : pieces.take(bytes);
    if (first == nullptr) first = static_cast<std::byte*>(result.data);  // or none is written yet
    return {first, pieces.take((arrays - 1) * bytes), bytes};
  }

  cross_entropy::BackwardProblem losses_of(std::int64_t first) const {
    cross_entropy::BackwardProblem losses = problem_.losses;
    logits_.take_rows(losses, first, count(first));
    for (const std::byte* cross_entropy::BackwardProblem::* numbers :
         {&cross_entropy::BackwardProblem::grad_loss, &cross_entropy::BackwardProblem::largest,
          &cross_entropy::BackwardProblem::sum})
      move_on(losses.*numbers, first, real_);
    losses.grad_x = logits_.matrix(count(first));
    return losses;
  }
  // The first piece of a run begins a sum, the others are added to it.
  matmul::Problem to_weight(std::int64_t first) const {
    const Product& product = problem_.product;
    const TensorView sum =
        matrix_view(weights_.next(), 0, real_, product.classes, product.cols, product.cols);
    const bool begins = rows_ == 0 || first / rows_ % kPanelsOfRun == 0;
    return matmul::problem_of({.a = turned(logits_.view(count(first))),
                               .b = rows_of(product.x, first, count(first)),
                               .c = sum,
                               .y = sum,
                               .beta = begins ? 0. : 1.},
                              product.dtype);
  }
  matmul::BackwardProblem to_bias(std::int64_t first) const {
    matmul::BackwardArgs args;
    args.grad_y = logits_.view(count(first));
    args.a.dtype = problem_.product.dtype;
    args.grad_bias = vector_view(biases_.next(), 0, real_, problem_.product.classes);
    matmul::BackwardProblem products;
    products.rows = matmul::rows_problem(args, {});
    return products;
  }
  // Where nobody wants it, of a y that is never written.
  matmul::Problem to_x(std::int64_t first) const {
    const TensorView& y = problem_.grad_x.given() ? problem_.grad_x : problem_.product.x;
    return matmul::problem_of({.a = logits_.view(count(first)),
                               .b = problem_.product.weight,
                               .y = rows_of(y, first, count(first))},
                              problem_.product.dtype);
  }

  const BackwardProblem& problem_;
  std::int64_t rows_;
  DType real_;
  std::int64_t weight_count_;
  Logits logits_;
  ArrayTree weights_, biases_;
  std::byte* workspace_ = nullptr;
};

// A variant by one of these. Pieces have the plan's rows, or a panel's, or there is one of all.
enum class Rows { of_plan, of_panel, all };

template <class Way, Rows kRows>
std::int64_t rows_of_piece(const typename Way::Problem& problem, const Plan& plan) {
  if (kRows == Rows::all) return problem.product.rows;
  return kRows == Rows::of_panel ? kPanel : plan[0];
}

template <class Way, Rows kRows>
Variant<typename Way::Args, typename Way::Problem> variant(std::string_view name, bool each_isa) {
  using Args = typename Way::Args;
  using Problem = typename Way::Problem;
  Variant<Args, Problem> result = {
      .name = name,
      .each_isa = each_isa,
      .workspace =
          [](const Problem& problem, const Plan& plan, const Machine& machine) {
            Pieces pieces;
            const Way way(problem, rows_of_piece<Way, kRows>(problem, plan), machine, pieces);
            return pieces.taken();
          },
      .run =
          [](const Args&, const Problem& problem, const Plan& plan, const Execution& execution) {
            Pieces pieces(execution.workspace);
            Way(problem, rows_of_piece<Way, kRows>(problem, plan), execution.machine, pieces)
                .run(execution);
          }};
  if (kRows == Rows::of_plan) {
    result.knobs = kForwardKnobs;
    result.choose = [](const Problem&, const Machine&) -> Plan { return {kPanel}; };
  }
  return result;
}

}  // namespace isobit::linear_cross_entropy
