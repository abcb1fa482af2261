// SPDX-License-Identifier: Apache-2.0
// The embedding operator: its rules, its arguments, and what its two passes are made of.
#include "isobit/ops/embedding/embedding.h"

#include <algorithm>
#include <string>

#include "isobit/core/error.h"
#include "isobit/dispatch/definition.h"
#include "isobit/ops/embedding/cases.h"
#include "isobit/ops/embedding/problem.h"
#include "isobit/ops/embedding/reference.h"

namespace isobit::embedding {
namespace {

// A row of y depends on its index alone.
constexpr Dim kForwardDims[] = {{.name = "rows", .usual = 64, .in_parity = 37, .batch = true},
                                {.name = "tokens", .usual = 100, .in_parity = 19},
                                {.name = "cols", .usual = 256, .in_parity = 100}};
// What a part of the rows gives cannot be added: means, and sums in another order.
constexpr Dim kBackwardDims[] = {{.name = "rows", .usual = 64, .in_parity = 900},
                                 {.name = "tokens", .usual = 100, .in_parity = 3},
                                 {.name = "cols", .usual = 256, .in_parity = 100}};

template <class Args>
constexpr Argument kIndex = argument<&Args::index>("index", Role::input, "rows", Elements::index,
                                                   Presence::required, Drawn::index)
                                .below_extent_of("tokens")
                                .means("(...) in i64 or i32, a token for each row; adjacent");

constexpr Argument kForwardArguments[] = {
    argument<&ForwardArgs::weight>("weight", Role::input, "tokens cols", Elements::like_x,
                                   Presence::required, Drawn::family)
        .means("(tokens, cols) in f32, f16, bf16 or f64; rows evenly spaced"),
    kIndex<ForwardArgs>,
    argument<&ForwardArgs::y>("y", Role::output, "rows cols", Elements::like_x, Presence::required)
        .means("(..., cols) in weight's dtype; rows evenly spaced"),
};

constexpr Argument kBackwardArguments[] = {
    argument<&BackwardArgs::grad_y>("grad_y", Role::input, "rows cols", Elements::like_x,
                                    Presence::required, Drawn::family)
        .means("(..., cols) in f32, f16, bf16 or f64; rows evenly spaced"),
    kIndex<BackwardArgs>,
    argument<&BackwardArgs::grad_weight>("grad_weight", Role::output, "tokens cols",
                                         Elements::like_x, Presence::required)
        .means("(tokens, cols) in grad_y's dtype; rows evenly spaced"),
};

constexpr Option kBackwardOptions[] = {
    option<&BackwardArgs::padding_idx>("padding_idx", -1)
        .means("the token whose row of grad_weight is 0, whatever occurs; -1 for none"),
    option<&BackwardArgs::scale_grad_by_freq>("scale_grad_by_freq", 0)
        .means("rows of grad_weight are divided by how often their token occurs"),
};

constexpr DType kDTypes[] = {DType::f32, DType::f16, DType::bf16, DType::f64};

// Checks what both passes take: rows of `cols` elements beside an index, and a table of tokens.
struct Check {
  Checker checker{"embedding"};
  Given given{};
  Matrix index;

  void operator()(const char* rows_name, const Matrix& rows, const TensorView& index_view,
                  const char* table_name, const TensorView& table_view, const Matrix& table) {
    require(table_view.rank == 2, "embedding: ", table_name, " has ", table_view.rank,
            " dimensions; must have 2: tokens, cols");
    require(rows.cols == table.cols, "embedding: ", rows_name, " has ", rows.cols, " columns; ",
            table_name, " has ", table.cols);
    require(index_view.given(), "embedding: index is missing");
    checker.dtype("index", index_view, {DType::i64, DType::i32});
    checker.any_strides("index", index_view, Access::read);  // then its extents can be multiplied
    std::int64_t elements = 1;
    for (int i = 0; i < index_view.rank; ++i) elements *= index_view.shape[i];
    require(elements == rows.rows, "embedding: index has ", elements, " elements; ", rows_name,
            " has ", rows.rows, " rows");
    index = checker.vector("index", index_view, rows.rows, "rows");
    given = {rows.rows,        table.rows,     rows.cols,
             table_view.dtype, index.data,     index_view.dtype == DType::i64,
             index_view.shape, index_view.rank};
  }
};

ForwardProblem check_forward(const ForwardArgs& args) {
  Check check;
  const Matrix weight = check.checker.matrix("weight", args.weight, Access::read);
  check.checker.dtype("weight", args.weight, kDTypes);
  const Matrix y = check.checker.matrix("y", args.y, Access::write);
  check.checker.same_dtype("y", args.y, "weight", args.weight.dtype);
  check("y", y, args.index, "weight", args.weight, weight);
  check.checker.no_overlap({{"y", args.y, y}},
                           {{"weight", args.weight, weight}, {"index", args.index, check.index}});
  return {{check.given}, weight, y};
}

BackwardProblem check_backward(const BackwardArgs& args) {
  Check check;
  const Matrix grad_y = check.checker.matrix("grad_y", args.grad_y, Access::read);
  check.checker.dtype("grad_y", args.grad_y, kDTypes);
  const Matrix grad_weight = check.checker.matrix("grad_weight", args.grad_weight, Access::write);
  check.checker.same_dtype("grad_weight", args.grad_weight, "grad_y", args.grad_y.dtype);
  check("grad_y", grad_y, args.index, "grad_weight", args.grad_weight, grad_weight);
  check.checker.no_overlap({{"grad_weight", args.grad_weight, grad_weight}},
                           {{"grad_y", args.grad_y, grad_y}, {"index", args.index, check.index}});
  return {{check.given}, grad_y, grad_weight, args.padding_idx, args.scale_grad_by_freq};
}

// Of element `at` in an array of this shape.
std::string place_of(const Given& given, std::int64_t at) {
  std::string place;
  for (int i = given.index_rank - 1; i >= 0; --i) {
    const std::int64_t extent = given.index_shape[i];
    place = std::to_string(at % extent) + (place.empty() ? "" : ", ") + place;
    at /= extent;
  }
  return place;
}

template <class Index>
void check_index(const Given& given) {
  const auto* const index = reinterpret_cast<const Index*>(given.index);
  const auto wrong = [&](std::int64_t i) {
    return static_cast<std::uint64_t>(std::int64_t{index[i]}) >=
           static_cast<std::uint64_t>(given.tokens);
  };
  constexpr std::int64_t kTurn = 4096;  // without a branch each
  for (std::int64_t begin = 0; begin < given.rows; begin += kTurn) {
    const std::int64_t end = std::min(given.rows, begin + kTurn);
    bool any = false;
    for (std::int64_t i = begin; i < end; ++i) any |= wrong(i);
    if (!any) continue;
    std::int64_t at = begin;
    while (!wrong(at)) ++at;
    require(given.tokens > 0, "embedding: index[", place_of(given, at), "] is ", index[at],
            "; there are no tokens");
    require(false, "embedding: index[", place_of(given, at), "] is ", index[at],
            "; there are tokens from 0 to ", given.tokens - 1);
  }
}

// Where its memory may be read.
template <class Problem>
void check_contents(const Problem& problem) {
  problem.wide_index ? check_index<std::int64_t>(problem) : check_index<std::int32_t>(problem);
}

Extents extents_of(std::int64_t rows, const TensorView& table) {
  return {rows, table.shape[0], table.shape[1]};
}
std::int64_t rows_of(const TensorView& view) {
  std::int64_t rows = 1;
  for (int i = 0; i + 1 < view.rank; ++i) rows *= view.shape[i];
  return rows;
}

const Definition<ForwardArgs, ForwardProblem>& forward_definition() {
  static const Definition<ForwardArgs, ForwardProblem> kDefinition = {
      .op = "embedding",
      .pass = "fwd",
      .summary =
          "y[i] = weight[index[i]]: rows of a table by their numbers, the very bytes. An index "
          "that "
          "is no token is an error; on a device its row is NaN.",
      .version = 1,
      .dims = kForwardDims,
      .arguments = kForwardArguments,
      .options = {},
      .check = check_forward,
      .extents = [](const ForwardArgs& args) { return extents_of(rows_of(args.y), args.weight); },
      .check_contents = check_contents<ForwardProblem>,
      .variants = cpu_forward_variants(),
      .cost = forward_cost,
      .cases = forward_cases,
      .reference = forward_reference,
      .intermediates = forward_intermediates,
      .limit = [](const ForwardArgs&) { return 0.0; },
      .moves_bytes = [](const ForwardArgs&) { return true; }};
  return kDefinition;
}

const Definition<BackwardArgs, BackwardProblem>& backward_definition() {
  static const Definition<BackwardArgs, BackwardProblem> kDefinition = {
      .op = "embedding",
      .pass = "bwd",
      .summary =
          "The gradient of embedding's table: for each token the sum of grad_y over the rows where "
          "it occurs, in their order. 0 for tokens that do not, and for padding_idx.",
      .version = 1,
      .dims = kBackwardDims,
      .arguments = kBackwardArguments,
      .options = kBackwardOptions,
      .check = check_backward,
      .extents =
          [](const BackwardArgs& args) {
            return extents_of(rows_of(args.grad_y), args.grad_weight);
          },
      .check_contents = check_contents<BackwardProblem>,
      .variants = cpu_backward_variants(),
      .cost = backward_cost,
      .cases = backward_cases,
      .reference = backward_reference,
      .intermediates = backward_intermediates};
  return kDefinition;
}

}  // namespace

void forward(const ForwardArgs& args, const Execution& execution) {
  run(forward_definition(), args, execution);
}
void backward(const BackwardArgs& args, const Execution& execution) {
  run(backward_definition(), args, execution);
}

const Operation& forward_operation() {
  static const TypedOperation<ForwardArgs, ForwardProblem> kOperation(forward_definition());
  return kOperation;
}
const Operation& backward_operation() {
  static const TypedOperation<BackwardArgs, BackwardProblem> kOperation(backward_definition());
  return kOperation;
}

}  // namespace isobit::embedding
