// SPDX-License-Identifier: Apache-2.0
// The CPU variants: by tables, by whole vectors, and one element at a time. How a call is dealt to
// threads.
#include <algorithm>
#include <cstddef>
#include <string>
#include <type_traits>

#include "isobit/ops/activation/cpu_kernels.h"
#include "isobit/ops/activation/formula.h"
#include "isobit/ops/activation/problem.h"
#include "isobit/simd/tasks.h"
#include "isobit/simd/vec.h"

namespace isobit::activation {
namespace {

// Many rows are dealt out whole; fewer are cut, at whole cache lines, so that threads never share
// one. run(arrays, count) is called for adjacent elements.
template <class Run>
void deal(const Problem& problem, const Execution& execution, const Run& run) {
  constexpr std::int64_t kCut = 64;
  constexpr std::int64_t kWork = 4;  // an element takes as long as so many that are copied
  const std::int64_t size = size_of(problem.dtype);
  const auto rectangle = [&](std::int64_t first_row, std::int64_t last_row, std::int64_t from,
                             std::int64_t to) {
    for (std::int64_t row = first_row; row < last_row && from < to; ++row) {
      const auto at = [&](const Matrix& matrix) {
        return matrix.data == nullptr ? nullptr : matrix.data + (row * matrix.stride + from) * size;
      };
      run(Arrays{at(problem.x), at(problem.gate), at(problem.grad_y), at(problem.y),
                 at(problem.grad_gate)},
          to - from);
    }
  };
  const Matrix& y = problem.y;
  const std::int64_t tasks =
      simd::task_count(execution.machine, kWork * y.rows * y.cols, std::max(y.rows, y.cols / kCut));
  if (y.rows >= tasks)
    simd::in_parts(execution, tasks, y.rows, 1,
                   [&](std::int64_t begin, std::int64_t end) { rectangle(begin, end, 0, y.cols); });
  else
    simd::in_parts(execution, tasks, y.cols, kCut,
                   [&](std::int64_t begin, std::int64_t end) { rectangle(0, y.rows, begin, end); });
}

// The specification: what the element's formula says, element by element.
template <class T>
void scalar_loop(Function function, const Arrays& arrays, std::int64_t count) {
  using S = simd::ScalarOf<T>;
  using Real = typename S::Real;
  const auto element = [](const std::byte* array, std::int64_t i) {
    return widen<Real>(reinterpret_cast<const T*>(array)[i]);
  };
  const auto put = [](std::byte* array, std::int64_t i, Real value) {
    reinterpret_cast<T*>(array)[i] = narrow<T>(value);
  };
  for (std::int64_t i = 0; i < count; ++i) {
    const Real x = element(arrays.x, i);
    const Real gate = arrays.gate == nullptr ? Real(0) : element(arrays.gate, i);
    if (arrays.grad_y == nullptr) {
      put(arrays.y, i,
          arrays.gate == nullptr ? value<S>(function, x) : gated_value<S>(function, x, gate));
    } else if (const Real grad = element(arrays.grad_y, i); arrays.gate == nullptr) {
      put(arrays.y, i, gradient<S>(function, grad, x));
    } else {
      if (arrays.grad_gate != nullptr)
        put(arrays.grad_gate, i, gate_gradient<S>(function, grad, x, gate));
      put(arrays.y, i, gated_value<S>(function, grad, gate));
    }
  }
}

template <class Args>
void run_scalar(const Args&, const Problem& problem, const Plan&, const Execution& execution) {
  visit(problem.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    if constexpr (!std::is_same_v<T, quad> && !std::is_same_v<T, std::int32_t>)
      deal(problem, execution, [&](const Arrays& arrays, std::int64_t count) {
        scalar_loop<T>(problem.function, arrays, count);
      });
  });
}

Kernel forward_kernel_for(const Problem& problem, Isa isa) {
  ISOBIT_RETURN_FOR_ISA(
      isa, forward_kernel(problem.function, problem.dtype, problem.gate.data != nullptr));
}
Kernel backward_kernel_for(const Problem& problem, Isa isa) {
  ISOBIT_RETURN_FOR_ISA(
      isa, backward_kernel(problem.function, problem.dtype, problem.gate.data != nullptr));
}

LookupKernel lookup_kernel_for(const Problem& problem, bool products, Isa isa) {
  ISOBIT_RETURN_FOR_ISA(isa,
                        lookup_kernel(problem.dtype, products, problem.grad_gate.data != nullptr));
}

template <class Args>
Kernel formula_for(const Problem& problem, Isa isa) {
  return std::is_same_v<Args, ForwardArgs> ? forward_kernel_for(problem, isa)
                                           : backward_kernel_for(problem, isa);
}

template <class Args>
void run_simd(const Args&, const Problem& problem, const Plan& plan, const Execution& execution) {
  const Kernel kernel = formula_for<Args>(problem, execution.machine.isa);
  deal(problem, execution,
       [&](const Arrays& arrays, std::int64_t count) { kernel(arrays, count, plan[0] != 0); });
}

template <class Args>
void run_lookup(const Args& args, const Problem& problem, const Plan& plan,
                const Execution& execution) {
  constexpr bool kBackward = std::is_same_v<Args, BackwardArgs>;
  const Isa isa = execution.machine.isa;
  const bool gated = problem.gate.data != nullptr;
  const auto found = tables(problem.function, problem.dtype, isa,
                            {.results = !kBackward && !gated,
                             .values = gated,
                             .slopes = kBackward && (!gated || problem.grad_gate.data != nullptr)});
  if (!found) return run_simd<Args>(args, problem, plan, execution);
  const LookupKernel kernel = lookup_kernel_for(problem, kBackward || gated, isa);
  const Kernel formula = formula_for<Args>(problem, isa);
  deal(problem, execution, [&](const Arrays& arrays, std::int64_t count) {
    kernel(arrays, count, plan[0] != 0, *found, formula);
  });
}

// Of log they would be factors where the formula divides.
template <class Args>
constexpr bool divides(Function function) {
  return function == Function::log && std::is_same_v<Args, BackwardArgs>;
}

template <class Args>
std::string declines_lookup(const Problem& problem, const Machine&) {
  if (size_of(problem.dtype) != 2) return "its tables are those of f16 and bf16";
  if (divides<Args>(problem.function)) return "the gradient of log is a quotient";
  return {};
}

// The tables of a function are made once, in the time of 65536 elements. What is declined does not
// suit either: a reason in words is for those who ask by name, and allocates.
template <class Args>
bool suits_lookup(const Problem& problem, const Machine&) {
  return size_of(problem.dtype) == 2 && !divides<Args>(problem.function) &&
         problem.y.rows * problem.y.cols >= 1024;
}

constexpr int kBooleans[] = {0, 1};
constexpr Knob kStreamKnobs[] = {
    {"stream", kBooleans, "streaming stores, which bypass the caches"}};

Plan choose_stream(const Problem& problem, const Machine& machine) {
  std::int64_t arrays = 0;
  for (const Matrix* matrix :
       {&problem.x, &problem.gate, &problem.grad_y, &problem.y, &problem.grad_gate})
    arrays += matrix->data != nullptr;
  return {machine.leaves_caches(arrays * problem.y.rows * problem.y.cols * size_of(problem.dtype))};
}

template <class Args>
constexpr Variant<Args, Problem> kVariants[] = {
    {.name = "lookup",
     .knobs = kStreamKnobs,
     .each_isa = true,
     .declines = declines_lookup<Args>,
     .suits = suits_lookup<Args>,
     .choose = choose_stream,
     .run = run_lookup<Args>},
    {.name = "simd", .knobs = kStreamKnobs, .choose = choose_stream, .run = run_simd<Args>},
    {.name = "scalar", .run = run_scalar<Args>},
};

}  // namespace

std::span<const ForwardVariant> cpu_forward_variants() { return kVariants<ForwardArgs>; }
std::span<const BackwardVariant> cpu_backward_variants() { return kVariants<BackwardArgs>; }

}  // namespace isobit::activation
