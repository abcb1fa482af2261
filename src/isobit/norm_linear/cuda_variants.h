// SPDX-License-Identifier: Apache-2.0
// The variants on GPUs.
#pragma once

#include <string>

#include "isobit/norm_linear/cuda_atomic.h"
#include "isobit/norm_linear/cuda_fused.h"
#include "isobit/norm_linear/unfused.h"
#include "isobit/norm_linear/variants.h"

namespace isobit::norm_linear {

namespace detail {

// What both operations have on a GPU, each by its default.
template <class NormOf>
struct CudaTables {
  using Norm = NormOf;
  static auto norm_forward() { return norms::cuda_forward_variants<Norm>(); }
  static auto norm_backward() { return norms::cuda_backward_variants<Norm>(); }
  static auto product_forward() { return matmul::cuda_forward_variants(); }
  static auto product_backward() { return matmul::cuda_backward_variants(); }

  template <class Variants, class Problem>
  static auto step_of(Variants variants, const Problem& problem, const Machine& machine) {
    return default_step(variants, problem, machine);
  }
};

template <class Problem>
std::string declines_tensor_cores(const Problem& problem, const Machine& machine) {
  if (machine.device == Device::sass && problem.product.arithmetic == matmul::Arithmetic::tensor)
    return "the executor of machine code has no tensor cores";
  return {};
}

}  // namespace detail

template <class Fused>
ForwardVariants<Fused> cuda_forward_variants() {
  using Args = typename Fused::ForwardArgs;
  using Unfused = UnfusedForward<detail::CudaTables<typename Fused::Norm>>;
  static const Variant<Args, ForwardProblem> kVariants[] = {
      {.name = "unfused",
       .declines = detail::declines_tensor_cores<ForwardProblem>,
       .workspace = unfused_workspace<Unfused, ForwardProblem>,
       .run = run_unfused<Unfused, Args, ForwardProblem>},
      {.name = "fused",
       .knobs = matmul::kTileKnobs,
       .declines = FusedForward<Fused>::declines,
       .choose = FusedForward<Fused>::choose,
       .workspace = FusedForward<Fused>::workspace,
       .run = FusedForward<Fused>::run},
  };
  return kVariants;
}

template <class Fused>
BackwardVariants<Fused> cuda_backward_variants() {
  using Args = typename Fused::BackwardArgs;
  using Tables = detail::CudaTables<typename Fused::Norm>;
  using Unfused = UnfusedBackward<Tables>;
  using InTiles = FusedBackward<Fused, Tables>;
  static const Variant<Args, BackwardProblem> kVariants[] = {
      {.name = "unfused",
       .declines = detail::declines_tensor_cores<BackwardProblem>,
       .workspace = unfused_workspace<Unfused, BackwardProblem>,
       .run = run_unfused<Unfused, Args, BackwardProblem>},
      {.name = "fused",
       .knobs = matmul::kTileKnobs,
       .declines = InTiles::declines,
       .choose = InTiles::choose,
       .workspace = InTiles::workspace,
       .run = InTiles::run},
      {.name = "atomic",
       .knobs = AtomicBackward<Fused>::kKnobs,
       .bits = Bits::unordered,
       .declines = AtomicBackward<Fused>::declines,
       .choose = AtomicBackward<Fused>::choose,
       .workspace = AtomicBackward<Fused>::workspace,
       .run = AtomicBackward<Fused>::run},
  };
  return kVariants;
}

}  // namespace isobit::norm_linear
