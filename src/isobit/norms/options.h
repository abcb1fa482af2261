// SPDX-License-Identifier: Apache-2.0
// How norms describe their dims, arguments and options.
#pragma once

#include <array>
#include <span>

#include "isobit/core/tensor_view.h"
#include "isobit/dispatch/description.h"

namespace isobit::norms {

namespace described {

inline constexpr auto kInput = Role::input;
inline constexpr auto kOutput = Role::output;
inline constexpr std::string_view kMatrix = "rows cols", kPerColumn = "cols", kPerRow = "rows";
inline constexpr auto kLikeX = Elements::like_x;
inline constexpr auto kLikeWeight = Elements::like_weight;
inline constexpr auto kLikeY = Elements::like_y;
inline constexpr auto kStatistic = Elements::statistic;
inline constexpr auto kRequired = Presence::required;
inline constexpr auto kOptional = Presence::optional;
inline constexpr auto kExtra = Presence::extra;

}  // namespace described

inline constexpr Dim kDims[] = {{.name = "rows", .usual = 64, .in_parity = 37, .batch = true},
                                {.name = "cols", .usual = 768, .in_parity = 1000}};

// Of a call that passed its check: the last hidden_dims dimensions of x are one row.
template <class Args>
Extents extents(const Args& args) {
  const auto rank = static_cast<std::size_t>(args.x.rank);
  const std::size_t first = rank - static_cast<std::size_t>(args.hidden_dims);
  Extents result{1, 1};
  for (std::size_t i = 0; i < rank; ++i) result[i < first ? 0 : 1] *= args.x.shape[i];
  return result;
}

class ArgumentList {
 public:
  constexpr void add(const Argument& argument) { arguments_[count_++] = argument; }
  constexpr std::span<const Argument> span() const { return {arguments_.data(), count_}; }

 private:
  std::array<Argument, 10> arguments_{};
  std::size_t count_ = 0;
};

// In the order in which they are drawn, which the golden hashes depend on. A norm without mean or
// bias has no such member.
template <class Args>
constexpr ArgumentList forward_arguments() {
  using namespace described;
  ArgumentList list;
  list.add(argument<&Args::x>("x", kInput, kMatrix, kLikeX, kRequired, Drawn::family)
               .means("(..., hidden) in f32, f16, bf16 or f64"));
  list.add(
      argument<&Args::weight>("weight", kInput, kPerColumn, kLikeWeight, kOptional, Drawn::weight)
          .means("(hidden), in x's dtype or f32"));
  if constexpr (requires { &Args::bias; })
    list.add(
        argument<&Args::bias>("bias", kInput, kPerColumn, kLikeWeight, kOptional, Drawn::normal)
            .means("(hidden), in weight's dtype"));
  list.add(argument<&Args::residual>("residual", kInput, kMatrix, kLikeX, kExtra, Drawn::family)
               .means("like x"));
  list.add(argument<&Args::y>("y", kOutput, kMatrix, kLikeY, kRequired)
               .means("(..., hidden) in f32, f16 or bf16 (f64 beside f64); may be x or residual"));
  list.add(argument<&Args::sum>("sum", kOutput, kMatrix, kLikeX, kExtra)
               .means("like x: dropout(x) + residual; may be x or residual"));
  if constexpr (requires { &Args::mean; })
    list.add(argument<&Args::mean>("mean", kOutput, kPerRow, kStatistic, kOptional)
                 .means("(rows) in f32 (f64 beside f64)"));
  list.add(argument<&Args::rstd>("rstd", kOutput, kPerRow, kStatistic, kOptional)
               .means("(rows) in f32 (f64 beside f64)"));
  return list;
}

template <class Args>
constexpr ArgumentList backward_arguments() {
  using namespace described;
  ArgumentList list;
  list.add(argument<&Args::x>("x", kInput, kMatrix, kLikeX, kRequired, Drawn::family)
               .means("(..., hidden): what was normalised, so sum where there was one"));
  list.add(argument<&Args::grad_y>("grad_y", kInput, kMatrix, kLikeY, kRequired, Drawn::gradient)
               .means("like forward's y"));
  list.add(
      argument<&Args::weight>("weight", kInput, kPerColumn, kLikeWeight, kOptional, Drawn::weight)
          .means("(hidden)"));
  if constexpr (requires { &Args::mean; })
    list.add(argument<&Args::mean>("mean", kInput, kPerRow, kStatistic, kOptional, Drawn::produced)
                 .means("(rows), as forward gave it; both statistics or neither"));
  list.add(argument<&Args::rstd>("rstd", kInput, kPerRow, kStatistic, kOptional, Drawn::produced)
               .means("(rows), as forward gave it"));
  list.add(argument<&Args::grad_sum>("grad_sum", kInput, kMatrix, kLikeX, kExtra, Drawn::normal)
               .means("like x: the gradient that flows into sum elsewhere"));
  list.add(argument<&Args::grad_x>("grad_x", kOutput, kMatrix, kLikeX, kOptional)
               .means("like x; may be x, grad_y or grad_sum"));
  list.add(argument<&Args::grad_residual>("grad_residual", kOutput, kMatrix, kLikeX, kExtra)
               .means("the same; with dropout only: without, it equals grad_x"));
  list.add(argument<&Args::grad_weight>("grad_weight", kOutput, kPerColumn, kLikeWeight, kOptional)
               .means("(hidden), in weight's dtype; without weight in x's dtype or f32"));
  if constexpr (requires { &Args::grad_bias; })
    list.add(argument<&Args::grad_bias>("grad_bias", kOutput, kPerColumn, kLikeWeight, kOptional)
                 .means("(hidden), like grad_weight"));
  return list;
}

template <class Args>
constexpr std::array<Option, 5> options() {
  return {option<&Args::eps>("eps", 1e-5).means("any number in the range of float"),
          option<&Args::zero_centered>("zero_centered", 0)
              .once_called("zero_centred")
              .means("weight is stored less 1"),
          option<&Args::dropout>("dropout", 0)
              .changing_plans(PlanDependence::presence)
              .means("the probability with which an element of x is dropped; below 1"),
          option<&Args::dropout_seed>("dropout_seed", 0)
              .means("what is dropped depends on it, the row and the column alone"),
          option<&Args::hidden_dims>("hidden_dims", 1)
              .outside_the_lab()
              .defaulting_at_zero()
              .means("so many last dimensions of x are normalised together")};
}

}  // namespace isobit::norms
