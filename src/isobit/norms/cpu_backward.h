// SPDX-License-Identifier: Apache-2.0
// The backward pass of any norm on the CPU: in one pass over the rows or in two, and how rows and
// columns are dealt to threads.
#pragma once

#include "isobit/dispatch/plan.h"
#include "isobit/norms/cpu_kernels.h"
#include "isobit/norms/cpu_workspace.h"

namespace isobit::norms {

// Finds the kernels of one norm.
using BackwardKernelsOf = BackwardKernels (*)(Isa isa, DType dtype, bool streaming);

inline constexpr int kStreams[] = {0, 1};
inline constexpr Knob kBackwardKnobs[] = {
    {"stream", kStreams, "streaming stores, and prefetch of the next rows"}};

Plan choose_backward(const BackwardProblem& problem, const Machine& machine);

// One sweep over the rows computes everything. It wants a run of rows for each thread.
bool one_pass_suits(const BackwardProblem& problem, const Machine& machine);
std::size_t one_pass_workspace(const BackwardProblem& problem, const Plan& plan,
                               const Machine& machine);
void run_one_pass(BackwardKernelsOf kernels_of, const BackwardProblem& problem, const Plan& plan,
                  const Execution& execution);

// First the terms of every row, then the column sums by columns and gradients by rows: what few
// long rows need.
std::string two_pass_declines(const BackwardProblem& problem, const Machine& machine);
std::size_t two_pass_workspace(const BackwardProblem& problem, const Plan& plan,
                               const Machine& machine);
void run_two_pass(BackwardKernelsOf kernels_of, const BackwardProblem& problem, const Plan& plan,
                  const Execution& execution);

}  // namespace isobit::norms
