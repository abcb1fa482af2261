// SPDX-License-Identifier: Apache-2.0
// The tables of variants. Each is a template that one short file of the operator instantiates.
// `Fused` is the type of ops/NAME/fused.h.
#pragma once

#include <span>

#include "isobit/dispatch/variant.h"
#include "isobit/norm_linear/problem.h"

namespace isobit::norm_linear {

template <class Fused>
using ForwardVariants = std::span<const Variant<typename Fused::ForwardArgs, ForwardProblem>>;
template <class Fused>
using BackwardVariants = std::span<const Variant<typename Fused::BackwardArgs, BackwardProblem>>;

// cpu_variants.h, in ops/NAME/cpu.cpp.
template <class Fused>
ForwardVariants<Fused> cpu_forward_variants();
template <class Fused>
BackwardVariants<Fused> cpu_backward_variants();

// cuda_variants.h, in ops/NAME/cuda.cu: in device libraries.
template <class Fused>
ForwardVariants<Fused> cuda_forward_variants();
template <class Fused>
BackwardVariants<Fused> cuda_backward_variants();

}  // namespace isobit::norm_linear
