// SPDX-License-Identifier: Apache-2.0
// The tables of a norm's variants. Each is a template that one short file of the operator
// instantiates; that file alone knows the formula. `Norm` is the type of ops/NAME/norm.h.
#pragma once

#include <span>

#include "isobit/dispatch/variant.h"
#include "isobit/norms/problem.h"

namespace isobit::norms {

template <class Norm>
using ForwardVariants = std::span<const Variant<typename Norm::ForwardArgs, ForwardProblem>>;
template <class Norm>
using BackwardVariants = std::span<const Variant<typename Norm::BackwardArgs, BackwardProblem>>;

// cpu_variants.h, in ops/NAME/cpu.cpp.
template <class Norm>
ForwardVariants<Norm> cpu_forward_variants();
template <class Norm>
BackwardVariants<Norm> cpu_backward_variants();

// cuda_forward.h and cuda_backward.h, in ops/NAME/cuda_*.cu: in device libraries.
template <class Norm>
ForwardVariants<Norm> cuda_forward_variants();
template <class Norm>
BackwardVariants<Norm> cuda_backward_variants();

}  // namespace isobit::norms
