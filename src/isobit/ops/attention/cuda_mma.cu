// SPDX-License-Identifier: Apache-2.0
// The variant for GPUs with tensor cores: what it takes, and how large its tiles are.
#include "isobit/ops/attention/cuda_mma.h"

namespace isobit::attention {
namespace {

constexpr int kQueriesOf[] = {64, 128};

// Calls run with the kernel of a plan: with fewer queries where there is no memory for more.
template <class Run>
void with_mma(const Problem& p, int queries, const Machine& machine, std::byte* workspace,
              const Run& run) {
  with_type(p.dtype, [&]<class T>(T) {
    if constexpr (sizeof(T) == 2) {
      const FlashMma<T, 8> large(p, workspace);
      if (queries == 128 && large.shared_bytes() <= machine.gpu.shared_bytes)
        run(large);
      else
        run(FlashMma<T, 4>(p, workspace));
    }
  });
}

std::string declines_mma(const Problem& p, const Machine& machine) {
  if (p.arithmetic != Arithmetic::tensor) return "has no arithmetic but tensor";
  if (machine.device == Device::sass) return "the executor of machine code has no tensor cores";
  std::int64_t needed = 0;
  with_mma(p, 64, machine, nullptr, [&](const auto& kernel) { needed = kernel.shared_bytes(); });
  return without_room(p, needed, machine);
}

// Large tiles read less, where there are enough of them for all multiprocessors.
Plan choose_mma(const Problem& p, const Machine& machine) {
  return {p.batch * p.heads * (p.seq_q / 128) >= machine.gpu.multiprocessors ? 128 : 64};
}

std::size_t mma_workspace(const Problem& p, const Plan& plan, const Machine& machine) {
  if (p.empty()) return 0;
  std::int64_t count = 0;
  with_mma(p, plan[0], machine, nullptr,
           [&](const auto& kernel) { count = room_for_runs(kernel, machine); });
  return static_cast<std::size_t>(count) * sizeof(float);
}

void run_mma(const ForwardArgs&, const Problem& p, const Plan& plan, const Execution& execution) {
  if (p.empty()) return;
  with_mma(p, plan[0], execution.machine, execution.workspace,
           [&]<class Kernel>(const Kernel& kernel) {
             simt::launch(
                 static_cast<simt::Stream>(execution.stream),
                 {.blocks = blocks_of(kernel, execution.machine), .threads = Kernel::kMostThreads},
                 kernel);
           });
}

constexpr Knob kKnobs[] = {
    {"queries", kQueriesOf, "queries of a block; 64 where there is no memory for more"}};

}  // namespace

ForwardVariant cuda_mma_variant() {
  return {.name = "flash_mma",
          .knobs = kKnobs,
          .declines = declines_mma,
          .choose = choose_mma,
          .workspace = mma_workspace,
          .run = run_mma};
}

}  // namespace isobit::attention
