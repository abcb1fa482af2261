// SPDX-License-Identifier: Apache-2.0
// How both passes describe their dims, arguments and options. An operator whose norm has no bias or
// mean has no such members.
#pragma once

#include <array>
#include <span>

#include "isobit/core/tensor_view.h"
#include "isobit/dispatch/description.h"
#include "isobit/ops/matmul/matmul.h"

namespace isobit::norm_linear {

inline constexpr Dim kDims[] = {{.name = "rows", .usual = 512, .in_parity = 37, .batch = true},
                                {.name = "cols", .usual = 768, .in_parity = 600},
                                {.name = "features", .usual = 768, .in_parity = 50}};

// Of a call that passed its check.
template <class Args>
Extents extents(const Args& args) {
  Extents result{1, args.x.shape[static_cast<std::size_t>(args.x.rank - 1)], args.weight.shape[0]};
  for (std::size_t i = 0; i + 1 < static_cast<std::size_t>(args.x.rank); ++i)
    result[0] *= args.x.shape[i];
  return result;
}

class ArgumentList {
 public:
  constexpr void add(const Argument& argument) { arguments_[count_++] = argument; }
  constexpr std::span<const Argument> span() const { return {arguments_.data(), count_}; }

 private:
  std::array<Argument, 16> arguments_{};
  std::size_t count_ = 0;
};

// In the order in which they are drawn, which the golden hashes depend on.
template <class Args>
constexpr ArgumentList forward_arguments() {
  constexpr auto kInput = Role::input, kOutput = Role::output;
  constexpr auto kX = Elements::like_x, kNorm = Elements::like_weight, kWeight = Elements::like_y;
  constexpr auto kOptional = Presence::optional, kExtra = Presence::extra;
  ArgumentList list;
  list.add(argument<&Args::x>("x", kInput, "rows cols", kX, Presence::required, Drawn::family)
               .means("(..., cols) in f32, f16, bf16 or f64"));
  list.add(
      argument<&Args::norm_weight>("norm_weight", kInput, "cols", kNorm, kOptional, Drawn::weight)
          .means("(cols), in the dtype of x or f32, or NULL"));
  if constexpr (requires { &Args::norm_bias; })
    list.add(
        argument<&Args::norm_bias>("norm_bias", kInput, "cols", kNorm, kOptional, Drawn::normal)
            .means("(cols), in the dtype of norm_weight, or NULL"));
  list.add(argument<&Args::weight>("weight", kInput, "features cols", kWeight, Presence::required,
                                   Drawn::normal)
               .with_any_strides()
               .means("(features, cols) in f32, f16 or bf16 (beside f64: f64), of any strides"));
  list.add(argument<&Args::bias>("bias", kInput, "features", kNorm, kOptional, Drawn::normal)
               .with_any_strides()
               .means("(features) in the dtype of weight or f32 (beside f64: f64), or NULL"));
  list.add(argument<&Args::x_residual>("x_residual", kInput, "rows cols", kX, kExtra, Drawn::family)
               .means("like x, or NULL"));
  list.add(
      argument<&Args::residual>("residual", kInput, "rows features", kWeight, kExtra, Drawn::normal)
          .means("like z, or NULL; added last"));
  list.add(argument<&Args::z>("z", kOutput, "rows features", kWeight, Presence::required)
               .means("(..., features) in the dtype of weight; may be residual"));
  list.add(argument<&Args::pre>("pre", kOutput, "rows features", kWeight, kExtra)
               .means("like z, or NULL; what the activation is applied to, rounded"));
  list.add(argument<&Args::sum>("sum", kOutput, "rows cols", kX, kExtra)
               .means("like x: dropout(x) + x_residual; may be x or x_residual"));
  list.add(argument<&Args::y>("y", kOutput, "rows cols", kWeight, kExtra)
               .means("like x in the dtype of weight, or NULL; the normalised rows"));
  if constexpr (requires { &Args::mean; })
    list.add(argument<&Args::mean>("mean", kOutput, "rows", Elements::statistic, kExtra)
                 .means("(rows) in f32 (f64 beside f64), or NULL"));
  list.add(argument<&Args::rstd>("rstd", kOutput, "rows", Elements::statistic, kExtra)
               .means("(rows) in f32 (f64 beside f64), or NULL"));
  return list;
}

template <class Args>
constexpr ArgumentList backward_arguments() {
  constexpr auto kInput = Role::input, kOutput = Role::output;
  constexpr auto kX = Elements::like_x, kNorm = Elements::like_weight, kWeight = Elements::like_y;
  constexpr auto kOptional = Presence::optional, kExtra = Presence::extra;
  ArgumentList list;
  list.add(argument<&Args::grad_z>("grad_z", kInput, "rows features", kWeight, Presence::required,
                                   Drawn::gradient)
               .means("like forward's z"));
  list.add(argument<&Args::x>("x", kInput, "rows cols", kX, Presence::required, Drawn::family)
               .means("(..., cols): what was normalised, so sum where there was one"));
  list.add(
      argument<&Args::norm_weight>("norm_weight", kInput, "cols", kNorm, kOptional, Drawn::weight)
          .means("(cols)"));
  if constexpr (requires { &Args::norm_bias; })
    list.add(
        argument<&Args::norm_bias>("norm_bias", kInput, "cols", kNorm, kOptional, Drawn::normal)
            .means("(cols), for grad_weight"));
  list.add(argument<&Args::weight>("weight", kInput, "features cols", kWeight, Presence::required,
                                   Drawn::normal)
               .with_any_strides()
               .means("(features, cols), of any strides"));
  list.add(argument<&Args::pre>("pre", kInput, "rows features", kWeight, kExtra, Drawn::normal)
               .means("like grad_z: what forward put there; NULL without an activation"));
  list.add(argument<&Args::grad_sum>("grad_sum", kInput, "rows cols", kX, kExtra, Drawn::normal)
               .means("like x: the gradient that flows into sum elsewhere"));
  list.add(argument<&Args::grad_x>("grad_x", kOutput, "rows cols", kX, kOptional)
               .means("like x, or NULL; may be x or grad_sum"));
  list.add(argument<&Args::grad_x_residual>("grad_x_residual", kOutput, "rows cols", kX, kExtra)
               .means("the same; with dropout only: without, it equals grad_x"));
  list.add(argument<&Args::grad_norm_weight>("grad_norm_weight", kOutput, "cols", kNorm, kOptional)
               .means("(cols), in the dtype of norm_weight, or NULL"));
  if constexpr (requires { &Args::grad_norm_bias; })
    list.add(argument<&Args::grad_norm_bias>("grad_norm_bias", kOutput, "cols", kNorm, kOptional)
                 .means("(cols), like grad_norm_weight, or NULL"));
  list.add(argument<&Args::grad_weight>("grad_weight", kOutput, "features cols", kWeight, kOptional)
               .means("(features, cols) in the dtype of weight, or NULL"));
  list.add(argument<&Args::grad_bias>("grad_bias", kOutput, "features", kNorm, kOptional)
               .with_any_strides()
               .means("(features) in the dtype of weight or f32 (beside f64: f64), or NULL"));
  return list;
}

inline constexpr std::string_view kActivations[] = {"none", "relu", "gelu", "gelu_tanh", "silu"};
inline constexpr std::string_view kArithmetics[] = {"canonical", "tensor"};

template <class Args>
constexpr std::array<Option, 6> options() {
  return {option<&Args::eps>("eps", 1e-5).means("any number in the range of float"),
          option<&Args::zero_centered>("zero_centered", 0).means("norm_weight is stored less 1"),
          option<&Args::dropout>("dropout", 0)
              .changing_plans(PlanDependence::presence)
              .means("the probability with which an element of x is dropped; below 1"),
          option<&Args::dropout_seed>("dropout_seed", 0)
              .means("what is dropped depends on it, the row and the column alone"),
          option<&Args::activation>("activation", 0, kActivations)
              .means("0 none, 1 relu, 2 gelu, 3 gelu_tanh, 4 silu"),
          option<&Args::arithmetic>("arithmetic", 0, kArithmetics)
              .means("0 canonical, the same bits everywhere; 1 tensor, those of a GPU's tensor "
                     "cores or of AMX")};
}

}  // namespace isobit::norm_linear
