// SPDX-License-Identifier: Apache-2.0
// The CPU variants: blocks in vectors, and the specification. How rows and pieces of rows are dealt
// to threads.
#include <algorithm>
#include <atomic>

#include "isobit/core/pieces.h"
#include "isobit/ops/scan/cpu_kernels.h"
#include "isobit/ops/scan/cpu_serial.h"
#include "isobit/simd/tasks.h"
#include "isobit/simd/vec.h"
#include "isobit/simd/wait.h"

namespace isobit::scan {
namespace {

// [begin, end) of a row, from the end it is scanned from.
Segment segment_of(const Problem& problem, const Place& row, std::int64_t begin, std::int64_t end) {
  const std::int64_t first = problem.reverse ? end - 1 : begin, step = problem.reverse ? -1 : 1;
  return {.at = problem.moved(row, problem.along, first),
          .x = step * problem.along.x,
          .y = step * problem.along.y,
          .index = step * problem.along.index,
          .length = end - begin,
          .first = first,
          .step = step,
          .exclusive = problem.exclusive};
}

// Where the first segment begins that does so at `at` or later.
std::int64_t next_segment(const Problem& problem, const Place& row, std::int64_t at) {
  if (at == 0) return 0;
  while (at < problem.along.extent &&
         (row.reset == nullptr || row.reset[at * problem.along.reset] == std::byte{0}))
    ++at;
  return at;
}

// Calls run(segment) for all that begin in [begin, end).
template <class Run>
void for_each_segment(const Problem& problem, const Place& row, std::int64_t begin,
                      std::int64_t end, const Run& run) {
  begin = next_segment(problem, row, begin);
  while (begin < end) {
    const std::int64_t after = next_segment(problem, row, begin + 1);
    run(segment_of(problem, row, begin, after));
    begin = after;
  }
}

// Calls run(segment) for all of a call; rows are dealt out, and where they are few and in segments,
// these.
template <class Run>
void for_all_segments(const Problem& problem, const Execution& execution, const Run& run) {
  const std::int64_t rows = problem.rows(), length = problem.along.extent;
  if (problem.elements() == 0) return;
  const std::int64_t tasks =
      simd::task_count(execution.machine, problem.elements(), std::max(rows, length / kBlock));
  if (rows >= tasks || problem.first.reset == nullptr)
    return simd::in_parts(execution, std::min(tasks, rows), rows, 1,
                          [&](std::int64_t row, std::int64_t end) {
                            for (; row < end; ++row)
                              for_each_segment(problem, problem.place(row), 0, length, run);
                          });
  simd::in_parts(execution, tasks, length, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = 0; row < rows; ++row)
      for_each_segment(problem, problem.place(row), begin, end, run);
  });
}

template <class M, class X, class Y>
void scan_one_by_one(const Segment& segment) {
  using Real = typename M::Real;
  using Value = typename M::Value;
  const auto* x = reinterpret_cast<const X*>(segment.at.x);
  const auto read = [&](std::int64_t i) {
    return lifted<M>(in_real<Real>(x[i * segment.x]), segment.first + i * segment.step);
  };
  const bool has_init = segment.at.init != nullptr;
  const Value init =
      has_init ? lifted<M>(in_real<Real>(*reinterpret_cast<const Y*>(segment.at.init)), -1)
               : M::neutral();
  const auto put = [&](std::int64_t i, const Value& value) {
    reinterpret_cast<Y*>(segment.at.y)[i * segment.y] = from_real<Y>(M::number(value));
    if constexpr (Indexed<M>)
      if (segment.at.index != nullptr) segment.at.index[i * segment.index] = M::index(value);
  };
  // An exclusive scan may be in place: what is read next is written last.
  Value waiting = init;
  scan_serially<M>(segment.length, read, [&](std::int64_t i, const Value& value) {
    const Value result = has_init ? M::combine(init, value) : value;
    put(i, segment.exclusive ? waiting : result);
    waiting = result;
  });
}

void run_serial(const Args&, const Problem& problem, const Plan&, const Execution& execution) {
  visit_types(problem.x_dtype, problem.y_dtype, [&]<class X, class Y>(Type<X>, Type<Y>) {
    with_monoid<simd::ScalarOf, Y>(problem.kind, [&]<class M>(M) {
      for_all_segments(problem, execution, scan_one_by_one<M, X, Y>);
    });
  });
}

Kernel kernel_for(const Problem& problem, Isa isa) {
  ISOBIT_RETURN_FOR_ISA(isa, kernel(problem.kind, problem.x_dtype, problem.y_dtype));
}

constexpr int kBooleans[] = {0, 1};
constexpr int kPieces[] = {8, 64};
constexpr Knob kBlocksKnobs[] = {
    {"stream", kBooleans, "streaming stores, which bypass the caches"},
    {"piece", kPieces,
     "blocks of 512 elements that a thread takes at a time of a row that is shared"},
};

Plan choose_blocks(const Problem& problem, const Machine& machine) {
  const std::int64_t blocks = problem.along.extent / kBlock / machine.threads;
  int piece = kPieces[0];
  for (const int more : kPieces)
    if (more <= blocks) piece = more;
  return {machine.leaves_caches(problem.elements() *
                                (size_of(problem.x_dtype) + size_of(problem.y_dtype))),
          piece};
}

// How many threads share one row after the other; 1: none does.
std::int64_t sharing(const Problem& problem, const Plan& plan, const Machine& machine) {
  const std::int64_t piece = std::int64_t{plan[1]} * kBlock;
  const std::int64_t tasks =
      simd::task_count(machine, problem.along.extent, problem.along.extent / piece);
  const bool shared = problem.first.reset == nullptr && problem.rows() < tasks &&
                      !(problem.exclusive && problem.in_place());
  return shared ? tasks : 1;
}

std::size_t blocks_workspace(const Problem& problem, const Plan& plan, const Machine& machine) {
  if (problem.elements() == 0) return 0;
  if (problem.beside())
    return static_cast<std::size_t>(
        machine.threads * kernel_for(problem, Isa::scalar).state_bytes(problem.along.extent));
  const std::int64_t tasks = sharing(problem, plan, machine);
  return tasks == 1 ? 0 : static_cast<std::size_t>((2 * tasks + 1) * kTreeBytes);
}

// Tasks take one piece after the other. Each adds up its piece, waits until all before are added
// up, which tasks that have begun are about to do, hands the sum on and writes the piece's results;
// with each of them it fetches an element of the piece that will probably be its next.
void share_row(const Problem& problem, const Place& row, const Plan& plan, std::int64_t tasks,
               const Kernel& kernel, const Execution& execution) {
  Segment segment = segment_of(problem, row, 0, problem.along.extent);
  segment.types = kernel.types;
  const std::int64_t size = std::int64_t{plan[1]} * kBlock;
  const std::int64_t pieces = (segment.length + size - 1) / size;
  int level = 0;
  while (kBlock << level < size) ++level;
  const auto tree = [&](std::int64_t number) { return execution.workspace + number * kTreeBytes; };
  std::byte* const all = tree(0);
  kernel.start(all);
  std::atomic<std::int64_t> taken{0}, added{0};
  execution.parallel_for(tasks, [&](std::int64_t task) {
    const simd::FloatMode mode;
    std::byte *const before = tree(1 + 2 * task), *const node = tree(2 + 2 * task);
    for (std::int64_t piece = taken++; piece < pieces; piece = taken++) {
      const std::int64_t begin = piece * size, end = std::min(segment.length, begin + size);
      const bool last = piece == pieces - 1;
      if (!last) kernel.total(segment, begin, end, node, tasks * size);
      simd::wait_until([&] { return added.load(std::memory_order_acquire) == piece; });
      kernel.copy(before, all);
      if (!last) kernel.push(all, node, level);
      added.store(piece + 1, std::memory_order_release);
      kernel.scan(segment, begin, end, before, plan[0] != 0, tasks * size);
    }
  });
}

void run_columns(const Problem& problem, const Plan& plan, const Kernel& kernel,
                 const Execution& execution) {
  const std::int64_t length = problem.along.extent, columns = problem.inner.extent;
  // Narrower strips where there are too few for all threads.
  const std::int64_t wanted =
      (problem.rows() + execution.machine.threads - 1) / execution.machine.threads;
  const std::int64_t strip = std::clamp<std::int64_t>((wanted + 63) / 64 * 64, 64, kStrip);
  const std::int64_t strips = (columns + strip - 1) / strip;
  const std::int64_t units = problem.outer_rows() * strips;
  const std::int64_t tasks = simd::task_count(execution.machine, problem.elements(), units);
  const std::int64_t bytes = kernel.state_bytes(length);
  execution.parallel_for(tasks, [&](std::int64_t task) {
    const simd::FloatMode mode;
    for (std::int64_t unit = units * task / tasks; unit < units * (task + 1) / tasks; ++unit) {
      const std::int64_t column = unit % strips * strip;
      const Place place = problem.moved(problem.outer_place(unit / strips), problem.inner, column);
      Segment segment = segment_of(problem, place, 0, length);
      segment.types = kernel.types;
      kernel.columns({.segment = segment,
                      .count = std::min(strip, columns - column),
                      .init = problem.inner.init,
                      .index = problem.inner.index},
                     execution.workspace + task * bytes, plan[0] != 0);
    }
  });
}

void run_blocks(const Args&, const Problem& problem, const Plan& plan, const Execution& execution) {
  if (problem.elements() == 0) return;
  const Kernel kernel = kernel_for(problem, execution.machine.isa);
  if (problem.beside()) return run_columns(problem, plan, kernel, execution);
  const std::int64_t tasks = sharing(problem, plan, execution.machine);
  if (tasks > 1) {
    for (std::int64_t row = 0; row < problem.rows(); ++row)
      share_row(problem, problem.place(row), plan, tasks, kernel, execution);
    return;
  }
  for_all_segments(problem, execution, [&](Segment segment) {
    segment.types = kernel.types;
    kernel.scan(segment, 0, segment.length, nullptr, plan[0] != 0, 2 * kBlock);
  });
}

constexpr ScanVariant kVariants[] = {
    {.name = "blocks",
     .knobs = kBlocksKnobs,
     .each_isa = true,
     .choose = choose_blocks,
     .workspace = blocks_workspace,
     .run = run_blocks},
    {.name = "serial", .run = run_serial},
};

}  // namespace

std::span<const ScanVariant> cpu_variants() { return kVariants; }

}  // namespace isobit::scan
