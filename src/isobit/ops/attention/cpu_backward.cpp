// SPDX-License-Identifier: Apache-2.0
// Backward by matmul's packed panels: heads of k are shared out among threads, or where those are
// few a head's keys, and then its queries.
#include "isobit/ops/attention/cpu_backward.h"

namespace isobit::attention {
namespace {

// A task holds the sums of a head's keys and queries that wait for others.
constexpr double kMostSums = 256 << 20;

Shares shares_of(const Problem& p, const Machine& machine) {
  const std::int64_t panels =
      std::max(parts_of(p.seq_k, kPanel), p.group() * parts_of(p.seq_q, kPanel));
  const std::int64_t units = p.calls() * p.kv_heads * panels;
  const std::int64_t tasks =
      simd::task_count(machine, worth_of(p), std::max<std::int64_t>(1, units));
  const Problem all = longest(p);
  const Sizes sizes(all, matmul::pack_kernels_for(p.dtype, machine.isa), 1);
  const double bytes_of_key = static_cast<double>(sizes.sums * size_of(p.real())) /
                              static_cast<double>(std::max<std::int64_t>(1, all.seq_k));
  const double most = kMostSums / static_cast<double>(tasks) / std::max(1.0, bytes_of_key);
  return {p, tasks, static_cast<std::int64_t>(most)};
}

std::size_t workspace(const Problem& problem, const Plan&, const Machine& machine) {
  const Shares shares = shares_of(problem, machine);
  if (shares.jobs == 0) return 0;
  const matmul::PackKernels& pack = matmul::pack_kernels_for(problem.dtype, machine.isa);
  const Sizes brief(shares.brief, pack, 1), lasting(shares.lasting, pack, shares.tasks);
  const std::int64_t side_by_side = shares.tasks * (brief.job + brief.room),
                     together = lasting.job + shares.tasks * lasting.room;
  return static_cast<std::size_t>(
      std::max(shares.any_brief ? side_by_side : 0, shares.any_lasting ? together : 0) *
      size_of(problem.real()));
}

template <class T, class Real>
void run_typed(const Problem& problem, const Execution& execution) {
  const simd::FloatMode mode;  // of the numbers that all tasks share
  const Shares shares = shares_of(problem, execution.machine);
  const std::int64_t tasks = shares.tasks;
  const matmul::PackKernels& pack = matmul::pack_kernels_for(problem.dtype, execution.machine.isa);
  auto* const memory = reinterpret_cast<Real*>(execution.workspace);
  const auto run_job = [&](std::int64_t job, std::int64_t inner, Real* of_job, Real* rooms,
                           const auto& share) {
    const std::int64_t sequence = job / problem.kv_heads, head = job % problem.kv_heads;
    const Problem alone = problem.of(sequence);
    const Backward<T, Real> backward(alone, execution.machine.isa, inner);
    backward.clear_absent(problem, sequence, head);
    backward.run(of_job, rooms, sequence, head, share);
  };
  const auto is_brief = [&](std::int64_t job) {
    return shares.is_brief(problem.lengths(job / problem.kv_heads));
  };
  if (shares.any_lasting) {
    const Sizes sizes(shares.lasting, pack, tasks);
    for (std::int64_t job = 0; job < shares.jobs; ++job)
      if (!is_brief(job))
        run_job(job, tasks, memory, memory + sizes.job, [&](std::int64_t count, const auto& body) {
          deal(execution, std::min(tasks, count), count, body);
        });
  }
  if (!shares.any_brief) return;
  const Sizes sizes(shares.brief, pack, 1);
  Real* const rooms = memory + tasks * sizes.job;
  deal(execution, tasks, shares.jobs, [&](std::int64_t task, std::int64_t job) {
    if (is_brief(job))
      run_job(job, 1, memory + task * sizes.job, rooms + task * sizes.room,
              [](std::int64_t count, const auto& body) {
                for (std::int64_t i = 0; i < count; ++i) body(std::int64_t{0}, i);
              });
  });
}

void run(const BackwardArgs&, const Problem& problem, const Plan&, const Execution& execution) {
  with_types(problem.dtype,
             [&]<class T, class Real>(T, Real) { run_typed<T, Real>(problem, execution); });
}

}  // namespace

BackwardVariant flash_backward_variant() {
  return {.name = "flash", .each_isa = true, .workspace = workspace, .run = run};
}

}  // namespace isobit::attention
