// SPDX-License-Identifier: Apache-2.0
// The definitions of both passes.
#pragma once

#include "isobit/dispatch/definition.h"
#include "isobit/norm_linear/cases.h"
#include "isobit/norm_linear/check.h"
#include "isobit/norm_linear/options.h"
#include "isobit/norm_linear/reference.h"
#include "isobit/norm_linear/variants.h"

namespace isobit::norm_linear {

// The first version of both orders that it is made of, the norm's and the product's.
inline constexpr int kVersion = 1;

template <class Problem>
std::string refuses(const Problem& problem, const Machine& machine) {
  matmul::Problem product;
  product.element = problem.product.dtype;
  product.arithmetic = problem.product.arithmetic;
  return matmul::refuses_forward(product, machine);
}

template <class Fused>
Definition<typename Fused::ForwardArgs, ForwardProblem> forward_definition(
    std::string_view summary) {
  using Args = typename Fused::ForwardArgs;
  static constexpr auto kArguments = forward_arguments<Args>();
  static constexpr auto kOptions = options<Args>();
  return {.op = Fused::kName,
          .pass = "fwd",
          .summary = summary,
          .version = kVersion,
          .dims = kDims,
          .arguments = kArguments.span(),
          .options = kOptions,
          .check = check_forward<Fused>,
          .extents = extents<Args>,
          .refuses = refuses<ForwardProblem>,
          .variants = cpu_forward_variants<Fused>(),
          .cost = forward_cost<Fused>,
          .cases = forward_cases,
          .reference = Reference<Fused>::forward,
          .intermediates = Reference<Fused>::forward_intermediates,
          .limit = forward_limit<Args>};
}

template <class Fused>
Definition<typename Fused::BackwardArgs, BackwardProblem> backward_definition(
    std::string_view summary) {
  using Args = typename Fused::BackwardArgs;
  static constexpr auto kArguments = backward_arguments<Args>();
  static constexpr auto kOptions = options<Args>();
  return {.op = Fused::kName,
          .pass = "bwd",
          .summary = summary,
          .version = kVersion,
          .dims = kDims,
          .arguments = kArguments.span(),
          .options = kOptions,
          .check = check_backward<Fused>,
          .extents = extents<Args>,
          .refuses = refuses<BackwardProblem>,
          .variants = cpu_backward_variants<Fused>(),
          .cost = backward_cost<Fused>,
          .cases = backward_cases,
          .reference = Reference<Fused>::backward,
          .intermediates = Reference<Fused>::backward_intermediates,
          .limit = backward_limit<Args>};
}

}  // namespace isobit::norm_linear
