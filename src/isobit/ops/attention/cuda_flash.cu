// SPDX-License-Identifier: Apache-2.0
// The variant for GPUs that computes tiles of queries: which it takes, and how large they are.
#include "isobit/ops/attention/cuda_flash.h"

namespace isobit::attention {
namespace {

constexpr int kQueries[] = {64, 128};

std::int64_t rounded(std::int64_t count, std::int64_t part) {
  return (count + part - 1) / part * part;
}

// Bytes of shared memory with `queries` of them, or of f64 half as many.
std::int64_t shared_bytes(const Problem& p, std::int64_t queries) {
  const std::int64_t size = size_of(p.real()), count = size == 8 ? queries / 2 : queries;
  const std::int64_t in_chunk = 16 / size;
  const std::int64_t numbers = rounded(p.head_dim, kDepth) * (count + in_chunk) + kPanel * count +
                               rounded(p.value_dim, kColumns) * count +
                               kDepth * (kPanel + in_chunk);
  return numbers * size + (p.blocks ? 2 * kPanel * 8 : 0);
}

std::string declines_flash(const Problem& p, const Machine& machine) {
  if (p.arithmetic == Arithmetic::tensor) return kNotTensor;
  return without_room(p, shared_bytes(p, kQueries[0]), machine);
}

bool suits_flash(const Problem& p, const Machine&) { return !suits_decode(p); }

int queries_of(const Problem& p, int wanted, const Machine& machine) {
  return shared_bytes(p, wanted) <= machine.gpu.shared_bytes ? wanted : kQueries[0];
}

// Large tiles read less, where there are enough of them for all multiprocessors.
Plan choose_flash(const Problem& p, const Machine& machine) {
  const std::int64_t tiles = p.batch * p.heads * (p.seq_q / 128);
  return {queries_of(p, tiles >= machine.gpu.multiprocessors ? 128 : 64, machine)};
}

// Calls run with the kernel of a plan.
template <class Run>
void with_flash(const Problem& p, const Plan& plan, const Machine& machine, std::byte* workspace,
                const Run& run) {
  with_type(p.dtype, [&]<class T>(T) {
    constexpr int kFew = sizeof(T) == 8 ? 2 : 4;
    if (queries_of(p, plan[0], machine) == 64)
      run(Flash<T, kFew>(p, workspace));
    else
      run(Flash<T, 2 * kFew>(p, workspace));
  });
}

std::size_t flash_workspace(const Problem& p, const Plan& plan, const Machine& machine) {
  if (p.empty()) return 0;
  std::int64_t count = 0;
  with_flash(p, plan, machine, nullptr,
             [&](const auto& kernel) { count = room_for_runs(kernel, machine); });
  return static_cast<std::size_t>(count * size_of(p.real()));
}

void run_flash(const ForwardArgs&, const Problem& p, const Plan& plan, const Execution& execution) {
  if (p.empty()) return;
  with_flash(p, plan, execution.machine, execution.workspace, [&](const auto& kernel) {
    simt::launch(static_cast<simt::Stream>(execution.stream),
                 {.blocks = blocks_of(kernel, execution.machine), .threads = kBlock}, kernel);
  });
}

constexpr Knob kKnobs[] = {
    {"queries", kQueries,
     "queries of a block, of f64 half as many; 64 where there is no memory for more"}};

}  // namespace

ForwardVariant cuda_flash_variant() {
  return {.name = "flash",
          .knobs = kKnobs,
          .declines = declines_flash,
          .suits = suits_flash,
          .choose = choose_flash,
          .workspace = flash_workspace,
          .run = run_flash};
}

}  // namespace isobit::attention
