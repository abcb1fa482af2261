// SPDX-License-Identifier: Apache-2.0
// Deals rows to threads. Rows that are not ready (a sum, dropout, an output of another type) go
// through chunks small enough to stay in the caches.
#include "isobit/norms/cpu_forward.h"

#include <algorithm>

#include "isobit/simd/row_sums.h"
#include "isobit/simd/tasks.h"

namespace isobit::norms {
namespace {

Schedule schedule_of(const Plan& plan) { return static_cast<Schedule>(plan[0]); }

// What a task holds for rows that are not ready.
struct Staging {
  bool sum, widened, result;  // which of them it needs
  std::int64_t rows;          // at a time

  Staging(const ForwardProblem& problem, const Machine& machine) {
    const bool mixed = problem.y_dtype != problem.dtype;
    sum = problem.composes() && !problem.sum;
    widened = mixed && problem.dtype != real_of(problem.dtype);
    result = mixed && problem.y_dtype != real_of(problem.dtype);
    // x, sum and y of a chunk together take a quarter of a second cache.
    const std::int64_t row_bytes = std::max<std::int64_t>(1, 3 * problem.cols * 8);
    rows = std::clamp<std::int64_t>(machine.l2_bytes / 4 / row_bytes, 1,
                                    std::max<std::int64_t>(1, problem.rows));
  }

  static bool needed(const ForwardProblem& problem) {
    return problem.composes() || problem.y_dtype != problem.dtype;
  }
};

std::int64_t task_count(const ForwardProblem& problem, const Machine& machine) {
  return simd::task_count(machine, problem.rows * problem.cols, problem.rows);
}

// The rows [begin, end) of one task, chunk by chunk.
class StagedRows {
 public:
  StagedRows(const ForwardProblem& problem, const Staging& staging, Pieces& pieces)
      : problem_(problem), staging_(staging) {
    const std::int64_t elements = staging.rows * problem.cols;
    if (staging.sum) sum_ = pieces.take(elements * size_of(problem.dtype));
    if (staging.widened) widened_ = pieces.take(elements * size_of(real()));
    if (staging.result) result_ = pieces.take(elements * size_of(real()));
  }

  void run(ForwardKernel kernel, const Tools& tools, const Weights& weights, std::int64_t begin,
           std::int64_t end) const {
    for (std::int64_t first = begin; first < end; first += staging_.rows) {
      ForwardProblem chunk = rows_from(first, std::min(staging_.rows, end - first));
      if (problem_.composes()) compose(tools, first, chunk);
      if (staging_.widened) widen(tools, chunk);
      chunk.dtype = problem_.y_dtype == problem_.dtype ? problem_.dtype : real();
      const Matrix y = chunk.y;
      if (staging_.result) chunk.y = staged(result_, chunk.rows);
      kernel(chunk, weights, 0, chunk.rows);
      if (staging_.result)
        for (std::int64_t row = 0; row < chunk.rows; ++row)
          tools.narrow(real(), row_of(chunk.y, row, real()), problem_.y_dtype,
                       row_of(y, row, problem_.y_dtype), problem_.cols);
    }
  }

 private:
  DType real() const { return real_of(problem_.dtype); }

  Matrix staged(std::byte* data, std::int64_t rows) const {
    return {data, rows, problem_.cols, problem_.cols};
  }

  ForwardProblem rows_from(std::int64_t first, std::int64_t count) const {
    ForwardProblem chunk = problem_;
    chunk.rows = count;
    chunk.x = from_row(problem_.x, first, problem_.dtype);
    chunk.sum = problem_.sum ? from_row(problem_.sum, first, problem_.dtype) : staged(sum_, count);
    chunk.y = from_row(problem_.y, first, problem_.y_dtype);
    const auto statistic = [&](void* data) -> void* {
      return data == nullptr ? data : static_cast<std::byte*>(data) + first * size_of(real());
    };
    chunk.mean = statistic(problem_.mean);
    chunk.rstd = statistic(problem_.rstd);
    return chunk;
  }

  void compose(const Tools& tools, std::int64_t first, ForwardProblem& chunk) const {
    for (std::int64_t row = 0; row < chunk.rows; ++row)
      tools.compose(problem_, first + row, row_of(chunk.sum, row, problem_.dtype));
    chunk.x = chunk.sum;
  }

  void widen(const Tools& tools, ForwardProblem& chunk) const {
    const Matrix widened = staged(widened_, chunk.rows);
    for (std::int64_t row = 0; row < chunk.rows; ++row)
      tools.widen(problem_.dtype, row_of(chunk.x, row, problem_.dtype), real(),
                  row_of(widened, row, real()), problem_.cols, -0.0);
    chunk.x = widened;
  }

  const ForwardProblem& problem_;
  const Staging& staging_;
  std::byte *sum_ = nullptr, *widened_ = nullptr, *result_ = nullptr;
};

}  // namespace

Plan choose_forward(const ForwardProblem& problem, const Machine& machine) {
  const std::int64_t matrices = 1 + bool{problem.residual} + bool{problem.sum};
  const std::int64_t touched =
      matrices * size_of(problem.dtype) + size_of(problem.y_dtype);  // of each element
  const auto fit = [&](int rows) {  // with weight and bias, into a first cache
    const std::int64_t bytes = rows * size_of(problem.dtype) + 2 * size_of(real_of(problem.dtype));
    return problem.cols * bytes <= machine.l1_bytes;
  };
  // Fetching four rows into a first cache won on a Zen 5, whose holds 48 KB, and lost on a Zen 4,
  // whose holds 32.
  const bool large_first_cache = machine.l1_bytes >= 48 << 10;
  const std::int64_t bytes = problem.rows * problem.cols * touched;
  // Short rows gained nothing from fetching, and of longer ones two of input and output are to stay
  // in the second cache, with what is left of those before.
  const bool fetches = machine.stays_in_vast_cache(bytes) && !simd::is_short(problem.cols) &&
                       4 * problem.cols * size_of(problem.dtype) <= machine.l2_bytes / 4;
  const Schedule schedule = fetches                         ? Schedule::fetched
                            : !machine.leaves_caches(bytes) ? Schedule::cached
                            : large_first_cache && fit(4)   ? Schedule::streaming_near
                            : fit(2)                        ? Schedule::streaming_far
                                                            : Schedule::streaming_long_rows;
  return {static_cast<int>(schedule)};
}

std::size_t forward_workspace(const ForwardProblem& problem, const Plan&, const Machine& machine) {
  Pieces pieces;
  weights_in(stored_weights(problem), pieces);
  if (Staging::needed(problem)) {
    const Staging staging(problem, machine);
    for (std::int64_t task = 0; task < task_count(problem, machine); ++task)
      StagedRows(problem, staging, pieces);
  }
  return pieces.taken();
}

void run_forward(ForwardKernelOf kernel_of, const ForwardProblem& problem, const Plan& plan,
                 const Execution& execution) {
  Pieces pieces(execution.workspace);
  const StoredWeights stored = stored_weights(problem);
  const Weights weights = weights_in(stored, pieces);
  convert_weights(stored, weights, execution);
  const Machine& machine = execution.machine;
  const std::int64_t tasks = task_count(problem, machine);
  if (!Staging::needed(problem)) {
    const ForwardKernel kernel = kernel_of(machine.isa, problem.dtype, schedule_of(plan));
    simd::in_parts(execution, tasks, problem.rows, 1, [&](std::int64_t begin, std::int64_t end) {
      kernel(problem, weights, begin, end);
    });
    return;
  }
  const bool same = problem.y_dtype == problem.dtype;
  const ForwardKernel kernel =
      kernel_of(machine.isa, same ? problem.dtype : real_of(problem.dtype), schedule_of(plan));
  const Staging staging(problem, machine);
  const std::size_t shared = pieces.taken();
  Pieces of_one;
  StagedRows(problem, staging, of_one);
  execution.parallel_for(tasks, [&](std::int64_t task) {
    const simd::FloatMode mode;
    Pieces own(execution.workspace + shared + task * of_one.taken());
    StagedRows(problem, staging, own)
        .run(kernel, tools_of(machine.isa), weights, problem.rows * task / tasks,
             problem.rows * (task + 1) / tasks);
  });
}

}  // namespace isobit::norms
