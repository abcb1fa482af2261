// SPDX-License-Identifier: Apache-2.0
// The forward variants that multiply rows as they are normalised.
#pragma once

#include <string>

#include "isobit/dispatch/plan.h"
#include "isobit/norm_linear/cpu_rows.h"

namespace isobit::norm_linear {

// The bits of the norm followed by the product.
std::string fused_forward_declines(const ForwardProblem& problem, const Machine& machine);
bool fused_forward_suits(const ForwardProblem& problem, const Machine& machine);
Plan choose_fused_forward(const ForwardProblem& problem, const Machine& machine);
std::size_t fused_forward_workspace(const NormKernels& kernels, const ForwardProblem& problem,
                                    const Plan& plan, const Machine& machine);
void run_fused_forward(const NormKernels& kernels, const ForwardProblem& problem, const Plan& plan,
                       const Execution& execution);

// The norm's weight becomes a part of the product's, and its bias of the product's bias: other
// bits, and less to do for each row.
std::string prefolded_declines(const ForwardProblem& problem, const Machine& machine);
std::size_t prefolded_workspace(const NormKernels& kernels, const ForwardProblem& problem,
                                const Machine& machine);
void run_prefolded(const NormKernels& kernels, const ForwardProblem& problem,
                   const Execution& execution);

}  // namespace isobit::norm_linear
