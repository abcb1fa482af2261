// SPDX-License-Identifier: Apache-2.0
// The forward pass of any norm on the CPU: how rows are composed, dealt to threads, and walked.
#pragma once

#include "isobit/dispatch/plan.h"
#include "isobit/norms/cpu_kernels.h"
#include "isobit/norms/cpu_workspace.h"

namespace isobit::norms {

// Finds the kernel of one norm.
using ForwardKernelOf = ForwardKernel (*)(Isa isa, DType dtype, Schedule schedule);

inline constexpr int kSchedules[] = {0, 1, 2, 3};
inline constexpr Knob kForwardKnobs[] = {{"schedule", kSchedules,
                                          "0: for the caches; else stores past them, and 1: four "
                                          "rows ahead, 2: the next row, 3: the next "
                                          "pair"}};

Plan choose_forward(const ForwardProblem& problem, const Machine& machine);
std::size_t forward_workspace(const ForwardProblem& problem, const Plan& plan,
                              const Machine& machine);
void run_forward(ForwardKernelOf kernel_of, const ForwardProblem& problem, const Plan& plan,
                 const Execution& execution);

}  // namespace isobit::norms
