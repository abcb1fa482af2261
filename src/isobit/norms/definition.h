// SPDX-License-Identifier: Apache-2.0
// The definitions of a norm's two passes: what all norms share, and what one tells of itself.
#pragma once

#include "isobit/core/order.h"
#include "isobit/dispatch/definition.h"
#include "isobit/norms/cases.h"
#include "isobit/norms/check.h"
#include "isobit/norms/options.h"
#include "isobit/norms/reference.h"
#include "isobit/norms/variants.h"

namespace isobit::norms {

template <class Norm>
Definition<typename Norm::ForwardArgs, ForwardProblem> forward_definition(
    std::string_view summary) {
  using Args = typename Norm::ForwardArgs;
  static constexpr auto kArguments = forward_arguments<Args>();
  static constexpr auto kOptions = options<Args>();
  return {.op = Norm::kName,
          .pass = "fwd",
          .summary = summary,
          .version = order::kVersion,
          .dims = kDims,
          .arguments = kArguments.span(),
          .options = kOptions,
          .check = [](const Args& args) { return check_forward(Norm::kName, args); },
          .extents = extents<Args>,
          .variants = cpu_forward_variants<Norm>(),
          .cost = forward_cost<Norm>,
          .cases = [](std::string_view grid) { return forward_cases(Norm::kName, grid); },
          .reference = Reference<Norm>::forward,
          .intermediates = Reference<Norm>::forward_intermediates};
}

template <class Norm>
Definition<typename Norm::BackwardArgs, BackwardProblem> backward_definition(
    std::string_view summary) {
  using Args = typename Norm::BackwardArgs;
  static constexpr auto kArguments = backward_arguments<Args>();
  static constexpr auto kOptions = options<Args>();
  return {.op = Norm::kName,
          .pass = "bwd",
          .summary = summary,
          .version = order::kVersion,
          .dims = kDims,
          .arguments = kArguments.span(),
          .options = kOptions,
          .check = [](const Args& args) { return check_backward(Norm::kBackward, args); },
          .extents = extents<Args>,
          .variants = cpu_backward_variants<Norm>(),
          .cost = backward_cost<Norm>,
          .cases = [](std::string_view grid) { return backward_cases(Norm::kName, grid); },
          .reference = Reference<Norm>::backward,
          .intermediates = Reference<Norm>::backward_intermediates};
}

}  // namespace isobit::norms
