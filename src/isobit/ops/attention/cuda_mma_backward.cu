// SPDX-License-Identifier: Apache-2.0
// The variant of backward for GPUs with tensor cores: what it takes, and how large its tiles are.
#include "isobit/ops/attention/cuda_mma_backward.h"

namespace isobit::attention {
namespace {

constexpr int kRowsOf[] = {32, 64};

// Calls run with both kernels of a plan, those of queries first; with fewer rows where there is no
// memory for more.
template <class Run>
void with_gradients(const Problem& p, int rows, const Machine& machine, std::byte* workspace,
                    const Run& run) {
  with_type(p.dtype, [&]<class T>(T) {
    if constexpr (sizeof(T) == 2) {
      auto* const means = reinterpret_cast<float*>(workspace);
      const GradientsMma<T, 4, false> of_queries(p, means);
      const GradientsMma<T, 4, true> of_keys(p, means);
      const std::int64_t most = machine.gpu.shared_bytes;
      if (rows == 64 && of_queries.shared_bytes() <= most)
        run(of_queries);
      else
        run(GradientsMma<T, 2, false>(p, means));
      if (rows == 64 && of_keys.shared_bytes() <= most)
        run(of_keys);
      else
        run(GradientsMma<T, 2, true>(p, means));
    }
  });
}

std::string declines_gradients(const Problem& p, const Machine& machine) {
  if (p.arithmetic != Arithmetic::tensor) return "has no arithmetic but tensor";
  if (machine.device == Device::sass) return "the executor of machine code has no tensor cores";
  std::int64_t needed = 0;
  with_gradients(p, 32, machine, nullptr,
                 [&](const auto& kernel) { needed = std::max(needed, kernel.shared_bytes()); });
  return without_room(p, needed, machine);
}

Plan choose_gradients(const Problem&, const Machine&) { return {64}; }

std::size_t room_for_means(const Problem& p, const Plan&, const Machine&) {
  return static_cast<std::size_t>(p.batch * p.heads * p.seq_q) * sizeof(float);
}

void run_gradients(const BackwardArgs&, const Problem& p, const Plan& plan,
                   const Execution& execution) {
  with_gradients(p, plan[0], execution.machine, execution.workspace,
                 [&]<class Kernel>(const Kernel& kernel) {
                   if (kernel.tiles() == 0) return;
                   simt::launch(static_cast<simt::Stream>(execution.stream),
                                {.blocks = std::min(kernel.tiles(), simt::kMostBlocks),
                                 .threads = Kernel::kMostThreads},
                                kernel);
                 });
}

constexpr Knob kKnobs[] = {
    {"rows", kRowsOf, "queries, or keys, of a block; 32 where there is no memory for more"}};

}  // namespace

BackwardVariant cuda_mma_backward_variant() {
  return {.name = "flash_mma",
          .knobs = kKnobs,
          .declines = declines_gradients,
          .choose = choose_gradients,
          .workspace = room_for_means,
          .run = run_gradients};
}

}  // namespace isobit::attention
