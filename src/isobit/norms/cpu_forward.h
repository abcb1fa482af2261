// SPDX-License-Identifier: Apache-2.0
// The forward pass of any norm on the CPU: how rows are composed, dealt to threads, and walked.
#pragma once

#include "isobit/dispatch/plan.h"
#include "isobit/norms/cpu_kernels.h"
#include "isobit/norms/cpu_workspace.h"

namespace isobit::norms {

// Finds the kernel of one norm.
using ForwardKernelOf = ForwardKernel (*)(Isa isa, DType dtype, Schedule schedule);

inline constexpr int kSchedules[] = {0, 1, 2, 3, 4};
inline constexpr Knob kForwardKnobs[] = {{"schedule", kSchedules,
                                          "0: cached stores; 4: also prefetch of the next rows of "
                                          "input and output; else streaming stores, and prefetch "
                                          "of four rows ahead (1), the next row (2) or the next "
                                          "pair (3)"}};

Plan choose_forward(const ForwardProblem& problem, const Machine& machine);
std::size_t forward_workspace(const ForwardProblem& problem, const Plan& plan,
                              const Machine& machine);
void run_forward(ForwardKernelOf kernel_of, const ForwardProblem& problem, const Plan& plan,
                 const Execution& execution);

}  // namespace isobit::norms
