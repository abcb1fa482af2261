// SPDX-License-Identifier: Apache-2.0
// What conv1d and conv2d share of their descriptions.
#pragma once

#include <string_view>

#include "isobit/dispatch/definition.h"
#include "isobit/ops/convolution/cases.h"
#include "isobit/ops/convolution/problem.h"
#include "isobit/ops/convolution/reference.h"

namespace isobit::convolution {

inline constexpr std::string_view kPaddingModes[] = {"zeros", "reflect", "replicate", "circular"};
inline constexpr std::string_view kActivations[] = {"none", "relu", "gelu", "gelu_tanh", "silu"};

// Dims of the arrays, and what they mean in words.
struct Words {
  std::string_view x, weight, y;
  std::string_view x_means, weight_means, y_means, grad_y_means;
};

template <int kDims>
inline constexpr Words kWords = {};
template <>
inline constexpr Words kWords<1> = {
    .x = "batch channels length",
    .weight = "filters group_channels kernel",
    .y = "batch filters out_length",
    .x_means = "(batch, channels, length) in f32, f16, bf16 or f64, and of any strides",
    .weight_means = "(filters, channels / groups, kernel) in the dtype of x, and of any strides",
    .y_means =
        "(batch, filters, out_length) in the dtype of x, f32 beside f16 and bf16, or f16 or "
        "bf16 beside f32; may be residual",
    .grad_y_means = "(batch, filters, out_length) in the dtype of x, and of any strides"};
template <>
inline constexpr Words kWords<2> = {
    .x = "batch channels height width",
    .weight = "filters group_channels kernel_h kernel_w",
    .y = "batch filters out_height out_width",
    .x_means = "(batch, channels, height, width) in f32, f16, bf16 or f64, and of any strides",
    .weight_means =
        "(filters, channels / groups, kernel_h, kernel_w) in the dtype of x, and of any "
        "strides",
    .y_means =
        "(batch, filters, out_height, out_width) in the dtype of x, f32 beside f16 and bf16, or "
        "f16 or "
        "bf16 beside f32; may be residual",
    .grad_y_means =
        "(batch, filters, out_height, out_width) in the dtype of x, and of any strides"};

template <class ForwardArgs, const Words& kOf>
inline constexpr Argument kForwardArguments[] = {
    argument<&ForwardArgs::x>("x", Role::input, kOf.x, Elements::like_x, Presence::required,
                              Drawn::family)
        .with_any_strides()
        .means(kOf.x_means),
    argument<&ForwardArgs::weight>("weight", Role::input, kOf.weight, Elements::like_x,
                                   Presence::required, Drawn::family)
        .with_any_strides()
        .means(kOf.weight_means),
    argument<&ForwardArgs::bias>("bias", Role::input, "filters", Elements::like_weight,
                                 Presence::extra, Drawn::weight)
        .with_any_strides()
        .means("(filters) in the dtype of x or f32 (beside f64: f64), or NULL"),
    argument<&ForwardArgs::residual>("residual", Role::input, kOf.y, Elements::like_y,
                                     Presence::extra, Drawn::family)
        .with_any_strides()
        .means("like y, or NULL; added last"),
    argument<&ForwardArgs::y>("y", Role::output, kOf.y, Elements::like_y, Presence::required)
        .with_any_strides()
        .means(kOf.y_means),
    argument<&ForwardArgs::pre>("pre", Role::output, kOf.y, Elements::like_y, Presence::extra)
        .with_any_strides()
        .means("like y, or NULL; what the activation is applied to, rounded"),
};

template <class BackwardArgs, const Words& kOf>
inline constexpr Argument kBackwardArguments[] = {
    argument<&BackwardArgs::grad_y>("grad_y", Role::input, kOf.y, Elements::like_x,
                                    Presence::required, Drawn::gradient)
        .with_any_strides()
        .means(kOf.grad_y_means),
    argument<&BackwardArgs::x>("x", Role::input, kOf.x, Elements::like_x, Presence::required,
                               Drawn::family)
        .with_any_strides()
        .means("as in forward; its elements are read for grad_weight alone"),
    argument<&BackwardArgs::weight>("weight", Role::input, kOf.weight, Elements::like_x,
                                    Presence::required, Drawn::family)
        .with_any_strides()
        .means("as in forward; its elements are read for grad_x alone"),
    argument<&BackwardArgs::grad_x>("grad_x", Role::output, kOf.x, Elements::like_x,
                                    Presence::optional)
        .with_any_strides()
        .means("like x, or NULL"),
    argument<&BackwardArgs::grad_weight>("grad_weight", Role::output, kOf.weight, Elements::like_x,
                                         Presence::optional)
        .with_any_strides()
        .means("like weight, or NULL"),
    argument<&BackwardArgs::grad_bias>("grad_bias", Role::output, "filters", Elements::like_weight,
                                       Presence::extra)
        .with_any_strides()
        .means("(filters) in the dtype of x or f32 (beside f64: f64), or NULL"),
};

// A number that windows depend on.
template <auto kMember>
constexpr Option number(std::string_view name, double usual, std::string_view meaning) {
  const Option plain =
      option<kMember>(name, usual).changing_plans(PlanDependence::value).means(meaning);
  return usual == 0 ? plain : plain.defaulting_at_zero();
}

template <class Args>
inline constexpr Option kGroups =
    number<&Args::groups>("groups", 1, "groups of channels and filters, each for itself");
template <class Args>
inline constexpr Option kPaddingMode =
    option<&Args::padding_mode>("padding_mode", 0, kPaddingModes)
        .means("what windows see beyond the edge: 0 zeros, 1 reflect, 2 replicate, 3 circular");
template <class Args>
inline constexpr Option kActivation = option<&Args::activation>("activation", 0, kActivations)
                                          .means("0 none, 1 relu, 2 gelu, 3 gelu_tanh, 4 silu");

// All of the passes that does not differ between the dimensions.
template <class Args, int kDims>
Definition<Args, Problem> forward_definition() {
  Definition<Args, Problem> result{};
  result.op = kDims == 1 ? "conv1d" : "conv2d";
  result.pass = "fwd";
  result.version = 1;
  result.arguments = kForwardArguments<Args, kWords<kDims>>;
  result.check = [](const Args& args) { return check_forward(in_two(args), kDims); };
  result.variants = cpu_forward_variants<Args>();
  result.cost = [](const Args& args) { return forward_cost(in_two(args)); };
  result.cases = [](std::string_view grid) { return forward_cases(kDims, grid); };
  result.reference = [](const Args& exact, const Args& scale, const Rounding&) {
    forward_reference(in_two(exact), in_two(scale));
  };
  result.intermediates = [](const Args& exact, const Rounding&, const EmitArray& emit) {
    forward_intermediates(in_two(exact), emit);
  };
  result.limit = [](const Args& args) { return forward_limit(in_two(args)); };
  return result;
}
template <class Args, int kDims>
Definition<Args, BackwardProblem> backward_definition() {
  Definition<Args, BackwardProblem> result{};
  result.op = kDims == 1 ? "conv1d" : "conv2d";
  result.pass = "bwd";
  result.version = 1;
  result.arguments = kBackwardArguments<Args, kWords<kDims>>;
  result.check = [](const Args& args) { return check_backward(in_two(args), kDims); };
  result.variants = cpu_backward_variants<Args>();
  result.cost = [](const Args& args) { return backward_cost(in_two(args)); };
  result.cases = [](std::string_view grid) { return backward_cases(kDims, grid); };
  result.reference = [](const Args& exact, const Args& scale, const Rounding&) {
    backward_reference(in_two(exact), in_two(scale));
  };
  result.intermediates = [](const Args& exact, const Rounding&, const EmitArray& emit) {
    backward_intermediates(in_two(exact), emit);
  };
  result.limit = [](const Args& args) { return backward_limit(in_two(args)); };
  return result;
}

}  // namespace isobit::convolution
