// SPDX-License-Identifier: Apache-2.0
// What group_norm and batch_norm share of their descriptions.
#pragma once

#include <string_view>

#include "isobit/dispatch/definition.h"
#include "isobit/ops/channel_norm/cases.h"
#include "isobit/ops/channel_norm/problem.h"
#include "isobit/ops/channel_norm/reference.h"

namespace isobit::channel_norm {

inline constexpr std::string_view kX = "batch channels extent";

template <class Args>
inline constexpr Argument kXArgument =
    argument<&Args::x>("x", Role::input, kX, Elements::like_x, Presence::required, Drawn::family)
        .with_any_strides()
        .means("(batch, channels, extent) in f32, f16, bf16 or f64, and of any strides");
template <class Args>
inline constexpr Argument kWeight =
    argument<&Args::weight>("weight", Role::input, "channels", Elements::like_weight,
                            Presence::optional, Drawn::weight)
        .means("(channels) in the dtype of x or f32, or NULL; adjacent");
template <class Args>
inline constexpr Argument kBias =
    argument<&Args::bias>("bias", Role::input, "channels", Elements::like_weight,
                          Presence::optional, Drawn::normal)
        .means("like weight, or NULL");
template <class Args>
inline constexpr Argument kY =
    argument<&Args::y>("y", Role::output, kX, Elements::like_x, Presence::required)
        .with_any_strides()
        .means("like x, and of any strides; may be x");
template <class Args>
inline constexpr Argument kGradY =
    argument<&Args::grad_y>("grad_y", Role::input, kX, Elements::like_x, Presence::required,
                            Drawn::gradient)
        .with_any_strides()
        .means("like x, and of any strides");
template <class Args>
inline constexpr Argument kGradX =
    argument<&Args::grad_x>("grad_x", Role::output, kX, Elements::like_x, Presence::optional)
        .with_any_strides()
        .means("like x, and of any strides, or NULL");
template <class Args>
inline constexpr Argument kGradWeight =
    argument<&Args::grad_weight>("grad_weight", Role::output, "channels", Elements::like_weight,
                                 Presence::optional)
        .means("(channels) in the dtype of weight, or NULL; adjacent");
template <class Args>
inline constexpr Argument kGradBias =
    argument<&Args::grad_bias>("grad_bias", Role::output, "channels", Elements::like_weight,
                               Presence::optional)
        .means("like grad_weight, or NULL");
inline constexpr Dim kNumbers = {.name = "numbers",
                                 .derived = [](const Extents&, const void*) { return kMoments; }};
template <class Args>
constexpr Argument moments(std::string_view dims) {
  return argument<&Args::moments>("moments", Role::output, dims, Elements::statistic,
                                  Presence::extra)
      .with_any_strides()
      .added_later()
      .means("three numbers for each mean, of its dtype, or NULL; backward takes them");
}
template <class Args>
constexpr Argument given_moments(std::string_view dims) {
  return argument<&Args::moments>("moments", Role::input, dims, Elements::statistic,
                                  Presence::optional, Drawn::produced)
      .with_any_strides()
      .added_later()
      .means("as forward gave them, or NULL; then x is summed again, to the same bits");
}
template <class Args>
inline constexpr Option kEps =
    option<&Args::eps>("eps", 1e-5).means("added to the variance; of any sign");

inline Extents extents_of(const TensorView& x) { return {x.shape[0], x.shape[1], x.shape[2]}; }

// All of the passes that does not differ between the two.
template <class Args>
Definition<Args, ForwardProblem> forward_definition(std::string_view op) {
  Definition<Args, ForwardProblem> result{};
  constexpr bool kGroups = requires(const Args& args) { args.groups; };
  result.op = op;
  result.pass = "fwd";
  result.version = 1;
  result.check = [](const Args& args) {
    return check_forward(kGroups ? "group_norm" : "batch_norm", in_common(args));
  };
  result.variants = cpu_forward_variants<Args>();
  result.cost = [](const Args& args) { return forward_cost(in_common(args)); };
  result.cases = [](std::string_view grid) { return forward_cases(kGroups, grid); };
  result.reference = [](const Args& exact, const Args& scale, const Rounding&) {
    forward_reference(in_common(exact), in_common(scale));
  };
  result.intermediates = [](const Args& exact, const Rounding&, const EmitArray& emit) {
    forward_intermediates(in_common(exact), emit);
  };
  return result;
}
template <class Args>
Definition<Args, BackwardProblem> backward_definition(std::string_view op) {
  Definition<Args, BackwardProblem> result{};
  constexpr bool kGroups = requires(const Args& args) { args.groups; };
  result.op = op;
  result.pass = "bwd";
  result.version = 1;
  result.check = [](const Args& args) {
    return check_backward(kGroups ? "group_norm" : "batch_norm", in_common(args));
  };
  result.variants = cpu_backward_variants<Args>();
  result.cost = [](const Args& args) { return backward_cost(in_common(args)); };
  result.cases = [](std::string_view grid) { return backward_cases(kGroups, grid); };
  result.reference = [](const Args& exact, const Args& scale, const Rounding&) {
    backward_reference(in_common(exact), in_common(scale));
  };
  result.intermediates = [](const Args& exact, const Rounding&, const EmitArray& emit) {
    backward_intermediates(in_common(exact), emit);
  };
  return result;
}

}  // namespace isobit::channel_norm
