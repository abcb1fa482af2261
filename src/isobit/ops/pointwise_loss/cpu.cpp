// SPDX-License-Identifier: Apache-2.0
// The CPU variants: whole vectors, and one element at a time. How a call is dealt to threads.
#include <algorithm>

#include "isobit/ops/pointwise_loss/cpu_kernels.h"
#include "isobit/ops/pointwise_loss/formula.h"
#include "isobit/ops/pointwise_loss/problem.h"
#include "isobit/simd/tasks.h"
#include "isobit/simd/vec.h"

namespace isobit::pointwise_loss {
namespace {

// Many rows are dealt out whole; fewer are cut, at whole cache lines.
void deal(const Problem& problem, const Execution& execution, Kernel kernel) {
  constexpr std::int64_t kCut = 64;
  constexpr std::int64_t kWork = 4;  // an element takes as long as so many that are copied
  const std::int64_t size = size_of(problem.dtype), of_loss = size == 8 ? 8 : 4;
  const auto rectangle = [&](std::int64_t first_row, std::int64_t last_row, std::int64_t from,
                             std::int64_t to) {
    for (std::int64_t row = first_row; row < last_row && from < to; ++row) {
      const auto at = [&](const Matrix& matrix, std::int64_t each) {
        return matrix.data == nullptr ? nullptr : matrix.data + (row * matrix.stride + from) * each;
      };
      kernel(problem.kind, problem.beta,
             {at(problem.x, size), at(problem.target, size), at(problem.weight, size),
              at(problem.pos_weight, size), at(problem.loss, of_loss), at(problem.grad_x, size)},
             to - from);
    }
  };
  const Matrix& x = problem.x;
  const std::int64_t tasks =
      simd::task_count(execution.machine, kWork * x.rows * x.cols, std::max(x.rows, x.cols / kCut));
  if (x.rows >= tasks)
    simd::in_parts(execution, tasks, x.rows, 1,
                   [&](std::int64_t begin, std::int64_t end) { rectangle(begin, end, 0, x.cols); });
  else
    simd::in_parts(execution, tasks, x.cols, kCut,
                   [&](std::int64_t begin, std::int64_t end) { rectangle(0, x.rows, begin, end); });
}

// The specification: what the element's formula says, element by element.
template <class T>
void one_by_one(Kind kind, double beta, const Arrays& arrays, std::int64_t count) {
  using S = simd::ScalarOf<T>;
  using Real = typename S::Real;
  const Rule<Real> rule = {kind, static_cast<Real>(beta), arrays.weight != nullptr,
                           arrays.pos_weight != nullptr};
  const auto at = [](const std::byte* array, std::int64_t i) {
    return array == nullptr ? Real(1) : widen<Real>(reinterpret_cast<const T*>(array)[i]);
  };
  auto* const losses = reinterpret_cast<Real*>(arrays.loss);
  for (std::int64_t i = 0; i < count; ++i) {
    const Element<S> element{at(arrays.x, i), at(arrays.target, i), at(arrays.weight, i),
                             at(arrays.pos_weight, i)};
    if (arrays.grad_x == nullptr)
      losses[i] = narrow<Real>(loss<S>(rule, element));
    else
      reinterpret_cast<T*>(arrays.grad_x)[i] = narrow<T>(gradient<S>(rule, element, losses[i]));
  }
}

Kernel kernel_for(DType dtype, Isa isa) { ISOBIT_RETURN_FOR_ISA(isa, kernel(dtype)); }

Kernel scalar_kernel(DType dtype) {
  switch (dtype) {
    case DType::f64:  return one_by_one<double>;
    case DType::f16:  return one_by_one<f16>;
    case DType::bf16: return one_by_one<bf16>;
    default:          return one_by_one<float>;
  }
}

template <class Args>
constexpr Variant<Args, Problem> kVariants[] = {
    {.name = "simd",
     .run =
         [](const Args&, const Problem& problem, const Plan&, const Execution& execution) {
           deal(problem, execution, kernel_for(problem.dtype, execution.machine.isa));
         }},
    {.name = "scalar",
     .run =
         [](const Args&, const Problem& problem, const Plan&, const Execution& execution) {
           deal(problem, execution, scalar_kernel(problem.dtype));
         }},
};

}  // namespace

std::span<const ForwardVariant> cpu_forward_variants() { return kVariants<ForwardArgs>; }
std::span<const BackwardVariant> cpu_backward_variants() { return kVariants<BackwardArgs>; }

}  // namespace isobit::pointwise_loss
