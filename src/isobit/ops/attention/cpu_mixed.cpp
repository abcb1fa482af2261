// SPDX-License-Identifier: Apache-2.0
// mixed: packed sequences of which some have few queries, as prompts and single tokens are one call
// of a server. Each goes the way that suits it, decode's or flash's.
#include "isobit/ops/attention/cpu_parts.h"

namespace isobit::attention {
namespace {

bool is_for_flash(const Problem& problem, const Lengths& lengths) {
  return !is_for_decode(problem, lengths);
}

std::string declines(const Problem& problem, const Machine&) {
  return decode_declines_call(problem);
}

// Whether some have keys that are better read where they lie.
bool suits(const Problem& problem, const Machine&) {
  for (std::int64_t s = 0; problem.query_starts && s < problem.sequences; ++s)
    if (const Lengths lengths = problem.lengths(s);
        lengths.pairs() > 0 && is_for_decode(problem, lengths))
      return true;
  return false;
}

std::size_t workspace(const Problem& problem, const Plan&, const Machine& machine) {
  return std::max(decode_workspace(problem, machine, is_for_decode),
                  flash_workspace(problem, kFlashPlan, machine, is_for_flash));
}

void run(const ForwardArgs&, const Problem& problem, const Plan&, const Execution& execution) {
  run_decode(problem, execution, is_for_decode);
  run_flash(problem, kFlashPlan, execution, is_for_flash);
}

}  // namespace

ForwardVariant mixed_variant() {
  return {.name = "mixed",
          .each_isa = true,
          .declines = declines,
          .suits = suits,
          .workspace = workspace,
          .run = run};
}

}  // namespace isobit::attention
