// SPDX-License-Identifier: Apache-2.0
// The backward variants on the CPU: which there are, when each suits, and how rows and columns are
// dealt to threads.
#include <algorithm>
#include <bit>

#include "isobit/core/order.h"
#include "isobit/ops/layernorm/cpu_kernels.h"
#include "isobit/ops/layernorm/cpu_scalar.h"
#include "isobit/simd/tasks.h"

namespace isobit::layernorm {
namespace {

using simd::in_parts;

constexpr int kBooleans[] = {0, 1};
constexpr Knob kKnobs[] = {
    {"stream", kBooleans, "stores that bypass the caches, and the next rows fetched ahead"}};

Plan choose(const BackwardProblem& problem, const Machine& machine) {
  return {machine.leaves_caches(problem.rows * problem.cols * size_of(problem.dtype))};
}

BackwardKernels kernels(Isa isa, const BackwardProblem& problem, const Plan& plan) {
  const bool streaming = plan[0] != 0;
#if defined(__x86_64__)
  if (isa == Isa::avx512)
    return avx512::backward_kernels(problem.dtype, problem.weight_dtype, streaming);
  if (isa == Isa::avx2)
    return avx2::backward_kernels(problem.dtype, problem.weight_dtype, streaming);
#endif
  return scalar::backward_kernels(problem.dtype, problem.weight_dtype, streaming);
}

std::int64_t task_count(const BackwardProblem& problem, const Machine& machine,
                        std::int64_t units) {
  return simd::task_count(machine, problem.rows * problem.cols, units);
}

std::int64_t runs_of(const BackwardProblem& problem) {
  return (problem.rows + order::kRun - 1) / order::kRun;
}

// The sums of some columns: weight's, then bias's, each padded to whole cache lines.
struct SumsArray {
  std::int64_t cols, pitch;
  explicit SumsArray(std::int64_t cols)
      : cols(cols), pitch((cols + order::kLanes - 1) / order::kLanes * order::kLanes) {}
  std::int64_t floats() const { return 2 * pitch; }

  void add(const BackwardKernels& kernels, float* into, const float* from) const {
    kernels.add(into, from, cols);
    kernels.add(into + pitch, from + pitch, cols);
  }
};

// The pair tree of order.h over such sums: what is pushed is folded as soon as its partner is
// there.
class ColumnTree {
 public:
  ColumnTree(const BackwardKernels& kernels, const SumsArray& sums, float* memory)
      : kernels_(kernels), sums_(sums), memory_(memory) {}

  // How many arrays of sums the tree over so many runs needs.
  static std::int64_t arrays(std::int64_t runs) {
    return std::bit_width(static_cast<std::uint64_t>(runs)) + 1;
  }

  // Where the next run's sums are to be written before push().
  float* next() { return at(depth_); }

  void push() {
    ++depth_;
    for (std::int64_t count = count_++; count & 1; count >>= 1) fold();
  }

  // The total, or null where nothing was pushed.
  float* total() {
    while (depth_ > 1) fold();
    return depth_ == 1 ? memory_ : nullptr;
  }

 private:
  float* at(std::int64_t i) { return memory_ + i * sums_.floats(); }
  void fold() {
    --depth_;
    sums_.add(kernels_, at(depth_ - 1), at(depth_));
  }

  const BackwardKernels& kernels_;
  const SumsArray& sums_;
  float* memory_;
  std::int64_t depth_ = 0, count_ = 0;
};

// Writes the weight gradients of columns [begin, end) from their sums; no sums at all are +0.
void finish(const BackwardProblem& problem, const BackwardKernels& kernels,
            const float* weight_sums, const float* bias_sums, std::int64_t begin,
            std::int64_t end) {
  const std::int64_t size = size_of(problem.weight_dtype);
  const auto write = [&](void* to, const float* sums) {
    if (to == nullptr) return;
    std::byte* from_begin = static_cast<std::byte*>(to) + begin * size;
    if (sums != nullptr)
      kernels.finish(problem.weight_dtype, from_begin, sums, end - begin);
    else
      std::fill(from_begin, from_begin + (end - begin) * size, std::byte{0});
  };
  write(problem.grad_weight, weight_sums);
  write(problem.grad_bias, bias_sums);
}

// One sweep over the rows computes everything. Each task owns aligned groups of runs; a group's
// sums are a subtree.
struct OnePass {
  std::int64_t runs, group, groups, tasks;
  SumsArray sums;

  OnePass(const BackwardProblem& problem, const Machine& machine)
      : runs(runs_of(problem)),
        group(group_size(runs, machine.threads)),
        groups((runs + group - 1) / group),
        tasks(task_count(problem, machine, groups)),
        sums(problem.cols) {}

  // The largest power of two that divides the runs evenly among the threads, or deals out four
  // groups a thread.
  static std::int64_t group_size(std::int64_t runs, std::int64_t threads) {
    const std::int64_t share = std::max<std::int64_t>(1, runs / std::max<std::int64_t>(1, threads));
    if (std::has_single_bit(static_cast<std::uint64_t>(share)) && share * threads == runs)
      return share;
    return static_cast<std::int64_t>(
        std::bit_floor(static_cast<std::uint64_t>(std::max<std::int64_t>(1, share / 4))));
  }

  std::int64_t task_floats() const { return ColumnTree::arrays(group) * sums.floats(); }

  static std::size_t workspace(const BackwardProblem& problem, const Plan&,
                               const Machine& machine) {
    if (!problem.wants_sums()) return 0;
    const OnePass pass(problem, machine);
    return sizeof(float) * (pass.groups * pass.sums.floats() + pass.tasks * pass.task_floats());
  }

  void run(const BackwardProblem& problem, const BackwardKernels& kernels,
           const Execution& execution) const {
    auto* roots = reinterpret_cast<float*>(execution.workspace);
    float* trees = roots + groups * sums.floats();
    execution.parallel_for(tasks, [&](std::int64_t task) {
      const simd::FloatMode mode;
      for (std::int64_t g = groups * task / tasks; g < groups * (task + 1) / tasks; ++g) {
        ColumnTree tree(kernels, sums, trees + task * task_floats());
        for (std::int64_t r = g * group; r < std::min(runs, (g + 1) * group); ++r)
          sweep_run(problem, kernels, r, problem.wants_sums() ? tree.next() : nullptr, tree);
        if (problem.wants_sums())
          std::copy_n(tree.total(), sums.floats(), roots + g * sums.floats());
      }
    });
    if (problem.wants_sums()) fold_roots(problem, kernels, roots, execution);
  }

 private:
  void sweep_run(const BackwardProblem& problem, const BackwardKernels& kernels, std::int64_t run,
                 float* to, ColumnTree& tree) const {
    constexpr std::int64_t kTogether = 4;
    RowTerms terms[kTogether];
    const std::int64_t first = run * order::kRun,
                       last = std::min(problem.rows, first + order::kRun);
    for (std::int64_t row = first; row < last; row += kTogether) {
      const Tile tile{row, std::min(last, row + kTogether), 0, problem.cols};
      kernels.terms(problem, tile.first_row, tile.last_row, terms);
      if (to == nullptr)
        kernels.grad_x(problem, tile, terms);
      else if (problem.wants_grad_x)
        kernels.both(problem, tile, terms, to, to + sums.pitch, row == first);
      else
        kernels.sums(problem, tile, terms, to, to + sums.pitch, row == first);
    }
    if (to != nullptr) tree.push();
  }

  // Adjacent pairs of groups, level by level, an odd one carried up; columns are dealt to the
  // threads.
  void fold_roots(const BackwardProblem& problem, const BackwardKernels& kernels, float* roots,
                  const Execution& execution) const {
    in_parts(
        execution, tasks, problem.cols, order::kLanes, [&](std::int64_t begin, std::int64_t end) {
          const auto at = [&](std::int64_t g) { return roots + g * sums.floats() + begin; };
          for (std::int64_t step = 1; step < groups; step *= 2)
            for (std::int64_t g = 0; g + step < groups; g += 2 * step)
              for (std::int64_t half : {std::int64_t{0}, sums.pitch})
                kernels.add(at(g) + half, at(g + step) + half, end - begin);
          const float* total = groups > 0 ? at(0) : nullptr;
          finish(problem, kernels, total, groups > 0 ? total + sums.pitch : nullptr, begin, end);
        });
  }
};

// First the terms of every row, then the column sums by columns and grad_x by rows: what few long
// rows need.
struct TwoPass {
  static std::size_t workspace(const BackwardProblem& problem, const Plan&, const Machine&) {
    const std::size_t terms = padded(sizeof(RowTerms) * static_cast<std::size_t>(problem.rows));
    if (!problem.wants_sums()) return terms;
    return terms +
           sizeof(float) * ColumnTree::arrays(runs_of(problem)) * SumsArray(problem.cols).floats();
  }

  static void run(const BackwardProblem& problem, const BackwardKernels& kernels,
                  const Execution& execution) {
    auto* terms = reinterpret_cast<RowTerms*>(execution.workspace);
    const auto by_rows = [&](const auto& body) {
      in_parts(execution, task_count(problem, execution.machine, problem.rows), problem.rows, 1,
               body);
    };
    by_rows([&](std::int64_t begin, std::int64_t end) {
      kernels.terms(problem, begin, end, terms + begin);
    });
    if (problem.wants_sums()) sum_columns(problem, kernels, terms, execution);
    if (problem.wants_grad_x)
      by_rows([&](std::int64_t begin, std::int64_t end) {
        kernels.grad_x(problem, {begin, end, 0, problem.cols}, terms + begin);
      });
  }

 private:
  static std::size_t padded(std::size_t bytes) { return (bytes + 63) / 64 * 64; }

  // A tree for each part of the columns, in the part of the workspace that its columns name.
  static void sum_columns(const BackwardProblem& problem, const BackwardKernels& kernels,
                          const RowTerms* terms, const Execution& execution) {
    const std::int64_t blocks = (problem.cols + order::kBlock - 1) / order::kBlock;
    const std::int64_t arrays = ColumnTree::arrays(runs_of(problem));
    auto* memory =
        reinterpret_cast<float*>(execution.workspace + padded(sizeof(RowTerms) * problem.rows));
    in_parts(execution, task_count(problem, execution.machine, blocks), problem.cols, order::kBlock,
             [&](std::int64_t begin, std::int64_t end) {
               const SumsArray sums(end - begin);
               ColumnTree tree(kernels, sums, memory + 2 * arrays * begin);
               for (std::int64_t first = 0; first < problem.rows; first += order::kRun) {
                 const Tile tile{first, std::min(problem.rows, first + order::kRun), begin, end};
                 float* to = tree.next();
                 kernels.sums(problem, tile, terms + first, to, to + sums.pitch, true);
                 tree.push();
               }
               const float* total = tree.total();
               finish(problem, kernels, total, total != nullptr ? total + sums.pitch : nullptr,
                      begin, end);
             });
  }
};

void run_scalar(const BackwardProblem& problem, const Execution& execution) {
  auto* statistics = reinterpret_cast<Statistics*>(execution.workspace);
  const std::int64_t row_tasks = task_count(problem, execution.machine, problem.rows);
  in_parts(execution, row_tasks, problem.rows, 1, [&](std::int64_t begin, std::int64_t end) {
    scalar_statistics(problem, begin, end, statistics);
  });
  in_parts(execution, task_count(problem, execution.machine, problem.cols), problem.cols, 1,
           [&](std::int64_t begin, std::int64_t end) {
             scalar_weight_gradients(problem, statistics, begin, end);
           });
  if (problem.wants_grad_x)
    in_parts(execution, row_tasks, problem.rows, 1, [&](std::int64_t begin, std::int64_t end) {
      scalar_grad_x(problem, statistics, begin, end);
    });
}

// Two passes read x and grad_y once more, so they pay only where one pass has too few runs for the
// threads.
bool enough_runs(const BackwardProblem& problem, const Machine& machine) {
  return !problem.wants_sums() || runs_of(problem) >= task_count(problem, machine, problem.cols);
}

constexpr BackwardVariant kVariants[] = {
    {.name = "simd.one_pass",
     .knobs = kKnobs,
     .suits = enough_runs,
     .choose = choose,
     .workspace = OnePass::workspace,
     .run =
         [](const BackwardArgs&, const BackwardProblem& problem, const Plan& plan,
            const Execution& execution) {
           OnePass(problem, execution.machine)
               .run(problem, kernels(execution.machine.isa, problem, plan), execution);
         }},
    {.name = "simd.two_pass",
     .knobs = kKnobs,
     .choose = choose,
     .workspace = TwoPass::workspace,
     .run =
         [](const BackwardArgs&, const BackwardProblem& problem, const Plan& plan,
            const Execution& execution) {
           TwoPass::run(problem, kernels(execution.machine.isa, problem, plan), execution);
         }},
    {.name = "scalar",
     .workspace =
         [](const BackwardProblem& problem, const Plan&, const Machine&) {
           return sizeof(Statistics) * static_cast<std::size_t>(problem.rows);
         },
     .run = [](const BackwardArgs&, const BackwardProblem& problem, const Plan&,
               const Execution& execution) { run_scalar(problem, execution); }},
};

}  // namespace

std::span<const BackwardVariant> cpu_backward_variants() { return kVariants; }

}  // namespace isobit::layernorm
