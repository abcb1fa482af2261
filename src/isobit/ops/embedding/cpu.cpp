// SPDX-License-Identifier: Apache-2.0
// The CPU variants: whole vectors, and the specification. How positions are grouped by token, and
// how rows and occurrences are dealt to threads.
#include <algorithm>
#include <cstring>
#include <numeric>
#include <type_traits>

#include "isobit/core/order.h"
#include "isobit/core/pieces.h"
#include "isobit/ops/embedding/cpu_kernels.h"
#include "isobit/ops/embedding/problem.h"
#include "isobit/simd/fence.h"
#include "isobit/simd/tasks.h"

namespace isobit::embedding {
namespace {

std::int64_t token_at(const Given& given, std::int64_t i) {
  return given.wide_index ? reinterpret_cast<const std::int64_t*>(given.index)[i]
                          : reinterpret_cast<const std::int32_t*>(given.index)[i];
}

// Forward ---------------------------------------------------------------------------------------

// copy(from, to, bytes) for every row.
template <class Copy>
void copy_rows(const ForwardProblem& problem, const Execution& execution, const Copy& copy) {
  const std::int64_t size = size_of(problem.dtype), bytes = problem.cols * size;
  const std::int64_t tasks =
      simd::task_count(execution.machine, problem.rows * problem.cols, problem.rows);
  simd::in_parts(execution, tasks, problem.rows, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row)
      copy(problem.weight.data + token_at(problem, row) * problem.weight.stride * size,
           problem.y.data + row * problem.y.stride * size, bytes);
    simd::fence();
  });
}

CopyKernel copy_kernel_for(Isa isa) { ISOBIT_RETURN_FOR_ISA(isa, copy_kernel()); }

void run_simd(const ForwardArgs&, const ForwardProblem& problem, const Plan& plan,
              const Execution& execution) {
  const CopyKernel copy = copy_kernel_for(execution.machine.isa);
  const bool streaming = plan[0] != 0;
  copy_rows(problem, execution, [&](const std::byte* from, std::byte* to, std::int64_t bytes) {
    copy(from, to, bytes, streaming);
  });
}

void run_scalar(const ForwardArgs&, const ForwardProblem& problem, const Plan&,
                const Execution& execution) {
  copy_rows(problem, execution, [](const std::byte* from, std::byte* to, std::int64_t bytes) {
    std::memcpy(to, from, static_cast<std::size_t>(bytes));
  });
}

// Backward --------------------------------------------------------------------------------------

// A call's workspace: for each token where its occurrences end, the places of all occurrences token
// after token, the tokens that have several chunks, and the sums of these.
struct Room {
  Pieces memory;
  std::int64_t *ends, *places, *frequent;
  std::int64_t pitch;  // bytes of a sum
  std::byte* sums;

  explicit Room(const BackwardProblem& problem, std::byte* workspace = nullptr)
      : memory(workspace),
        ends(numbers(problem.tokens)),
        places(numbers(problem.rows)),
        frequent(numbers(problem.rows / kChunk)),
        pitch((problem.cols * size_of(problem.real()) + 63) / 64 * 64),
        sums(memory.take(slots_of(problem.rows) * pitch)) {}

 private:
  std::int64_t* numbers(std::int64_t count) {
    return reinterpret_cast<std::int64_t*>(
        memory.take(count * static_cast<std::int64_t>(sizeof(std::int64_t))));
  }
};

// The positions of a call, grouped by token: a counting sort, which keeps their order.
struct Occurring : Room {
  std::int64_t frequent_count = 0;

  Occurring(const BackwardProblem& problem, std::byte* workspace) : Room(problem, workspace) {
    std::fill(ends, ends + problem.tokens, 0);
    if (problem.wide_index)
      sort(problem, reinterpret_cast<const std::int64_t*>(problem.index));
    else
      sort(problem, reinterpret_cast<const std::int32_t*>(problem.index));
    for (std::int64_t token = 0; token < problem.tokens; ++token)
      if (count(token) > kChunk) frequent[frequent_count++] = token;
  }

  std::int64_t begin(std::int64_t token) const { return token == 0 ? 0 : ends[token - 1]; }
  std::int64_t count(std::int64_t token) const { return ends[token] - begin(token); }

 private:
  template <class Index>
  void sort(const BackwardProblem& problem, const Index* index) {
    for (std::int64_t i = 0; i < problem.rows; ++i)
      if (index[i] != problem.padding_idx) ++ends[index[i]];
    std::exclusive_scan(ends, ends + problem.tokens, ends, std::int64_t{0});
    // Where a token's next occurrence goes; behind the last of them where they end.
    for (std::int64_t i = 0; i < problem.rows; ++i)
      if (index[i] != problem.padding_idx) places[ends[index[i]]++] = i;
  }
};

double divisor_of(const BackwardProblem& problem, std::int64_t count) {
  return problem.by_frequency && count > 0 ? static_cast<double>(count) : 0;
}

std::byte* row_of(const BackwardProblem& problem, std::int64_t token) {
  return problem.grad_weight.data + token * problem.grad_weight.stride * size_of(problem.dtype);
}

std::size_t room(const BackwardProblem& problem, const Plan&, const Machine&) {
  return Room(problem).memory.taken();
}

struct Kernels {
  SumKernel sum, kept_sum;
  AddKernel add;
  RoundKernel round;

  Kernels(const BackwardProblem& problem, Isa isa)
      : sum(sum_for(problem, isa, false)),
        kept_sum(sum_for(problem, isa, true)),
        add(add_for(problem, isa)),
        round(round_for(problem, isa)) {}

 private:
  static SumKernel sum_for(const BackwardProblem& problem, Isa isa, bool kept) {
    ISOBIT_RETURN_FOR_ISA(isa, sum_kernel(problem.dtype, kept));
  }
  static AddKernel add_for(const BackwardProblem& problem, Isa isa) {
    ISOBIT_RETURN_FOR_ISA(isa, add_kernel(problem.dtype));
  }
  static RoundKernel round_for(const BackwardProblem& problem, Isa isa) {
    ISOBIT_RETURN_FOR_ISA(isa, round_kernel(problem.dtype));
  }
};

// Work is dealt out along a line on which a token takes one unit for its row and one for each
// occurrence, so that neither many rare tokens nor one frequent one fall to a single thread.
class Backward {
 public:
  Backward(const BackwardProblem& problem, const Execution& execution, bool streaming)
      : problem_(problem),
        execution_(execution),
        streaming_(streaming),
        kernels_(problem, execution.machine.isa),
        occurring_(problem, execution.workspace) {}

  void run() const {
    if (problem_.tokens == 0 || problem_.cols == 0) return;
    const std::int64_t units = place_of(problem_.tokens);
    simd::in_parts(execution_, simd::task_count(execution_.machine, units * problem_.cols, units),
                   units, 1, [&](std::int64_t begin, std::int64_t end) {
                     add_up(begin, end);
                     simd::fence();
                   });
    if (occurring_.frequent_count == 0) return;
    constexpr std::int64_t kColumns = 64;
    const std::int64_t tasks =
        simd::task_count(execution_.machine, slots_of(problem_.rows) * problem_.cols,
                         (problem_.cols + kColumns - 1) / kColumns);
    simd::in_parts(execution_, tasks, problem_.cols, kColumns,
                   [&](std::int64_t begin, std::int64_t end) {
                     join(begin, end);
                     simd::fence();
                   });
  }

 private:
  // Where a token begins on the line.
  std::int64_t place_of(std::int64_t token) const { return occurring_.begin(token) + token; }

  // The token that has a place of the line.
  std::int64_t token_of(std::int64_t place) const {
    std::int64_t low = 0, high = problem_.tokens - 1;
    while (low < high) {
      const std::int64_t middle = low + (high - low) / 2;
      if (place_of(middle + 1) > place)
        high = middle;
      else
        low = middle + 1;
    }
    return low;
  }

  std::byte* sum_at(std::int64_t occurrence, bool first) const {
    return occurring_.sums + slot_of(occurrence, first) * occurring_.pitch;
  }

  // What begins in a part of the line: tokens, or chunks of those that have several.
  void add_up(std::int64_t begin, std::int64_t end) const {
    for (std::int64_t token = token_of(begin); token < problem_.tokens; ++token) {
      const std::int64_t place = place_of(token), count = occurring_.count(token);
      if (place >= end) return;
      if (count <= kChunk) {
        if (place >= begin)
          kernels_.sum(some(token, 0, count),
                       {row_of(problem_, token), divisor_of(problem_, count), streaming_});
        continue;
      }
      const std::int64_t passed = std::max<std::int64_t>(0, begin - place);
      for (std::int64_t i = (passed + kChunk - 1) / kChunk * kChunk; i < count && place + i < end;
           i += kChunk)
        kernels_.kept_sum(some(token, i, std::min(kChunk, count - i)),
                          {sum_at(occurring_.begin(token) + i, i == 0), 0, false});
    }
  }

  Occurrences some(std::int64_t token, std::int64_t first, std::int64_t count) const {
    return {problem_.grad_y.data, problem_.grad_y.stride, problem_.cols,
            occurring_.places + occurring_.begin(token) + first, count};
  }

  // The chunks' sums by adjacent pairs, in some columns.
  void join(std::int64_t begin, std::int64_t end) const {
    const std::int64_t from = begin * size_of(problem_.real());
    for (std::int64_t i = 0; i < occurring_.frequent_count; ++i) {
      const std::int64_t token = occurring_.frequent[i], count = occurring_.count(token);
      const auto sum = [&](std::int64_t chunk) {
        return sum_at(occurring_.begin(token) + chunk * kChunk, chunk == 0) + from;
      };
      const std::int64_t chunks = (count + kChunk - 1) / kChunk;
      for (std::int64_t step = 1; step < chunks; step *= 2)
        for (std::int64_t chunk = 0; chunk + step < chunks; chunk += 2 * step)
          kernels_.add(sum(chunk), sum(chunk + step), end - begin);
      kernels_.round(sum(0),
                     {row_of(problem_, token) + begin * size_of(problem_.dtype),
                      divisor_of(problem_, count), streaming_},
                     end - begin);
    }
  }

  const BackwardProblem& problem_;
  const Execution& execution_;
  bool streaming_;
  Kernels kernels_;
  Occurring occurring_;
};

void run_simd(const BackwardArgs&, const BackwardProblem& problem, const Plan& plan,
              const Execution& execution) {
  Backward(problem, execution, plan[0] != 0).run();
}

// The specification: order::sum_rows() of each element's occurrences.
template <class T>
void add_in_order(const BackwardProblem& problem, const Execution& execution) {
  using Real = std::conditional_t<sizeof(T) == 8, double, float>;
  const Occurring occurring(problem, execution.workspace);
  const T* const grad_y = reinterpret_cast<const T*>(problem.grad_y.data);
  const std::int64_t tasks = simd::task_count(
      execution.machine, (problem.rows + problem.tokens) * problem.cols, problem.tokens);
  simd::in_parts(execution, tasks, problem.tokens, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t token = begin; token < end; ++token) {
      const std::int64_t* const places = occurring.places + occurring.begin(token);
      const std::int64_t count = occurring.count(token);
      const Real divisor = static_cast<Real>(divisor_of(problem, count));
      T* const grad_weight = reinterpret_cast<T*>(row_of(problem, token));
      for (std::int64_t col = 0; col < problem.cols; ++col) {
        const Real sum = order::sum_rows<Real>(count, [&](Real before, std::int64_t i) {
          return before + widen<Real>(grad_y[places[i] * problem.grad_y.stride + col]);
        });
        grad_weight[col] = narrow<T>(divisor == 0 ? sum : sum / divisor);
      }
    }
  });
}

void run_scalar(const BackwardArgs&, const BackwardProblem& problem, const Plan&,
                const Execution& execution) {
  switch (problem.dtype) {
    case DType::f16:  return add_in_order<f16>(problem, execution);
    case DType::bf16: return add_in_order<bf16>(problem, execution);
    case DType::f64:  return add_in_order<double>(problem, execution);
    default:          return add_in_order<float>(problem, execution);
  }
}

constexpr int kBooleans[] = {0, 1};
constexpr Knob kKnobs[] = {{"stream", kBooleans, "streaming stores, which bypass the caches"}};

Plan choose_forward(const ForwardProblem& problem, const Machine& machine) {
  return {machine.leaves_caches(2 * problem.rows * problem.cols * size_of(problem.dtype))};
}
Plan choose_backward(const BackwardProblem& problem, const Machine& machine) {
  return {machine.leaves_caches((problem.rows + problem.tokens) * problem.cols *
                                size_of(problem.dtype))};
}

constexpr ForwardVariant kForwardVariants[] = {
    {.name = "simd",
     .knobs = kKnobs,
     .each_isa = true,
     .choose = choose_forward,
     .run = [](const ForwardArgs& args, const ForwardProblem& problem, const Plan& plan,
               const Execution& execution) { run_simd(args, problem, plan, execution); }},
    {.name = "scalar",
     .run = [](const ForwardArgs& args, const ForwardProblem& problem, const Plan& plan,
               const Execution& execution) { run_scalar(args, problem, plan, execution); }},
};
constexpr BackwardVariant kBackwardVariants[] = {
    {.name = "simd",
     .knobs = kKnobs,
     .each_isa = true,
     .choose = choose_backward,
     .workspace = room,
     .run = [](const BackwardArgs& args, const BackwardProblem& problem, const Plan& plan,
               const Execution& execution) { run_simd(args, problem, plan, execution); }},
    {.name = "scalar",
     .workspace = room,
     .run = [](const BackwardArgs& args, const BackwardProblem& problem, const Plan& plan,
               const Execution& execution) { run_scalar(args, problem, plan, execution); }},
};

}  // namespace

std::span<const ForwardVariant> cpu_forward_variants() { return kForwardVariants; }
std::span<const BackwardVariant> cpu_backward_variants() { return kBackwardVariants; }

}  // namespace isobit::embedding
