// SPDX-License-Identifier: Apache-2.0
// Rows of s, of all products one after the other, in groups. The sums of a group are a node of the
// tree of `order::sum_rows`, so that groups can be added up by any thread.
#include "isobit/ops/matmul/cpu_rows.h"

#include <bit>
#include <cstring>

#include "isobit/core/pieces.h"
#include "isobit/ops/matmul/cpu_slopes.h"

namespace isobit::matmul {
namespace {

constexpr std::int64_t kCols = 4096;  // of a row at a time: its sums stay in the second cache

// That sums rows of a gradient as they lie, where they are rows of s; null where they are not.
SumRowsKernel sum_rows_kernel_for(const Problem& rows, Isa isa) {
  const Arrays& first = rows.first;
  if (first.slope || first.y || (first.a.col != 1 && rows.n > 1)) return nullptr;
  ISOBIT_RETURN_FOR_ISA(isa, sum_rows_kernel(first.a.dtype));
}

class RowSums {
 public:
  RowSums(const Problem& rows, const Machine& machine)
      : rows_(rows), count_(rows.products() * rows.m), real_(size_of(rows.real())) {
    constexpr std::int64_t kMostSums = 1 << 20;
    while (groups() * rows.n > kMostSums && group_ < count_) group_ *= 2;
    tasks_ = simd::task_count(machine, count_ * rows.n, std::max<std::int64_t>(1, groups()));
    const std::int64_t leaves = std::max(parts_of(group_, order::kRun), groups());
    buffers_ = std::bit_width(static_cast<std::uint64_t>(leaves));
  }

  std::size_t workspace() const {
    Pieces pieces;
    return laid_out(pieces).bytes;
  }

  void run(const Execution& execution) const {
    const Isa isa = execution.machine.isa;
    Pieces pieces(execution.workspace);
    const Room room = laid_out(pieces);
    const Slopes slopes(rows_, isa);
    const AddKernel add = add_kernel_for(rows_.real(), isa);
    const Problem to_c = c_problem(rows_), to_bias = bias_problem(rows_);
    const Finish finish_c(to_c, isa), finish_bias(to_bias, isa);
    const bool adds = bool(rows_.first.bias);
    const SumRowsKernel sum_rows = sum_rows_kernel_for(rows_, isa);

    const auto add_group = [&](std::byte* own, std::int64_t group, std::int64_t col) {
      const std::int64_t cols = std::min(kCols, rows_.n - col);
      const auto bytes = static_cast<std::size_t>(cols * real_);
      const std::int64_t last = std::min(count_, (group + 1) * group_);
      std::byte* const line = own;
      Runs runs(own + line_bytes(), line_bytes(), cols, add);
      std::int64_t done = 1;  // rows by a turn
      for (std::int64_t row = group * group_; row < last; row += done) {
        const std::int64_t product = row / rows_.m, i = row % rows_.m;
        const Arrays arrays = rows_.arrays(product);
        const std::int64_t run = std::min<std::int64_t>(order::kRun, last - row);
        if (sum_rows != nullptr && row % order::kRun == 0 && i + run <= rows_.m) {
          const Array from = arrays.a.moved(i, col);
          sum_rows(from.data, from.row, run, runs.now(), cols);
          runs.next();
          done = run;
          continue;
        }
        done = 1;
        slopes.row(arrays.a.moved(i, col), arrays.slope.moved(i, col), cols, line);
        if (adds) {
          if (row % order::kRun == 0) std::memset(runs.now(), 0, bytes);
          add(line, runs.now(), cols);
          if (row % order::kRun == order::kRun - 1 || row + 1 == last) runs.next();
        }
        if (!arrays.y) continue;
        if (rows_.alpha == 0) std::memset(line, 0, bytes);
        finish_c(to_c.arrays(product), i, col, line, 0, 1, cols);
      }
      if (adds) std::memcpy(room.sums + (group * rows_.n + col) * real_, runs.total(), bytes);
    };
    execution.parallel_for(tasks_, [&](std::int64_t task) {
      const simd::FloatMode mode;
      std::byte* const own = room.tasks + task * task_bytes();
      for (std::int64_t group = groups() * task / tasks_; group < groups() * (task + 1) / tasks_;
           ++group)
        for (std::int64_t col = 0; col < rows_.n; col += kCols) add_group(own, group, col);
    });
    if (!adds) return;
    execution.parallel_for(1, [&](std::int64_t) {
      const simd::FloatMode mode;
      for (std::int64_t col = 0; col < rows_.n; col += kCols) {
        const std::int64_t cols = std::min(kCols, rows_.n - col);
        Runs runs(room.tasks, line_bytes(), cols, add);
        for (std::int64_t group = 0; group < groups(); ++group) {
          std::memcpy(runs.now(), room.sums + (group * rows_.n + col) * real_,
                      static_cast<std::size_t>(cols * real_));
          runs.next();
        }
        finish_bias(to_bias.first, 0, col, runs.total(), 0, 1, cols);
      }
    });
  }

 private:
  struct Room {
    std::byte *tasks, *sums;
    std::size_t bytes;
  };
  Room laid_out(Pieces& pieces) const {
    std::byte* const tasks = pieces.take(tasks_ * task_bytes());
    std::byte* const sums = rows_.first.bias ? pieces.take(groups() * rows_.n * real_) : nullptr;
    return {tasks, sums, pieces.taken()};
  }
  std::int64_t groups() const { return parts_of(count_, group_); }
  std::int64_t line_bytes() const { return kCols * real_; }
  // A row of s, and sums of runs.
  std::int64_t task_bytes() const { return (1 + buffers_) * line_bytes(); }

  const Problem& rows_;
  std::int64_t count_, real_;
  std::int64_t group_ = 32 * order::kRun;  // rows: a power of two of runs
  std::int64_t tasks_ = 1, buffers_ = 1;
};

}  // namespace

Problem bias_problem(const Problem& rows) {
  Problem result = rows;
  result.alpha = 1;
  result.m = 1;
  result.loop_count = 0;
  result.first = {};
  result.first.y = rows.first.bias;
  return result;
}

Problem c_problem(const Problem& rows) {
  Problem result = rows;
  result.first.bias = {};
  return result;
}

std::size_t rows_workspace(const Problem& rows, const Machine& machine) {
  return rows.empty() ? 0 : RowSums(rows, machine).workspace();
}

void add_rows(const Problem& rows, const Execution& execution) {
  if (!rows.empty()) return RowSums(rows, execution.machine).run(execution);
  if (!rows.first.bias) return;
  const Problem to_bias = bias_problem(rows);
  for (std::int64_t j = 0; j < rows.n; ++j)
    with_types(rows.real(), [&]<class T, class Real>(T, Real) {
      finish_element<Real>(to_bias, to_bias.first, 0, j, Real(0));
    });
}

}  // namespace isobit::matmul
