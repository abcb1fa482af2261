// SPDX-License-Identifier: Apache-2.0
// The CPU variants: both operators by their defaults, or by their specifications.
#include <algorithm>
#include <type_traits>

#include "isobit/ops/cross_entropy/cpu_totals.h"
#include "isobit/ops/linear_cross_entropy/pieces.h"
#include "isobit/simd/tasks.h"

namespace isobit::linear_cross_entropy {
namespace {

template <bool kSimplest>
struct Tables {
  static auto product_forward() { return matmul::cpu_forward_variants(); }
  static auto product_backward() { return matmul::cpu_backward_variants(); }
  static auto losses_forward() { return cross_entropy::cpu_forward_variants(); }
  static auto losses_backward() { return cross_entropy::cpu_backward_variants(); }

  template <class Variants, class Problem>
  static auto step_of(Variants variants, const Problem& problem, const Machine& machine) {
    if constexpr (kSimplest)
      return simplest_step(variants, problem, machine);
    else
      return default_step(variants, problem, machine);
  }

  static void add_totals(const cross_entropy::ForwardProblem& losses, const Execution&) {
    cross_entropy::add_totals(losses);
  }

  static void add(std::byte* into, const std::byte* from, std::int64_t count, DType real,
                  const Execution& execution) {
    const auto run = [&]<class Real>(Type<Real>) {
      Real* const to = reinterpret_cast<Real*>(into);
      const Real* const terms = reinterpret_cast<const Real*>(from);
      in_parts(execution, count, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t i = begin; i < end; ++i) to[i] = to[i] + terms[i];
      });
    };
    real == DType::f64 ? run(Type<double>{}) : run(Type<float>{});
  }

  // Rows of adjacent sums, rounded to the type of the result; without sums it is 0.
  static void write(const TensorView& result, const std::byte* sums, const Execution& execution) {
    if (sums == result.data) return;
    const auto run = [&]<class T, class Real>(Type<T>, Type<Real>) {
      T* const to = static_cast<T*>(result.data);
      const std::int64_t cols = result.shape[1];
      in_parts(execution, result.shape[0] * cols, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t i = begin; i < end; ++i)
          to[i / cols * result.strides[0] + i % cols] =
              narrow<T>(sums == nullptr ? Real(0) : reinterpret_cast<const Real*>(sums)[i]);
      });
    };
    switch (result.dtype) {
      case DType::f64:  return run(Type<double>{}, Type<double>{});
      case DType::f16:  return run(Type<f16>{}, Type<float>{});
      case DType::bf16: return run(Type<bf16>{}, Type<float>{});
      default:          return run(Type<float>{}, Type<float>{});
    }
  }

 private:
  template <class Body>
  static void in_parts(const Execution& execution, std::int64_t count, const Body& body) {
    constexpr std::int64_t kLine = 64;
    simd::in_parts(execution, simd::task_count(execution.machine, count, count), count, kLine,
                   body);
  }
};

using Default = Tables<false>;
using Simplest = Tables<true>;

}  // namespace

std::span<const ForwardVariant> cpu_forward_variants() {
  static const ForwardVariant kVariants[] = {
      variant<ForwardPieces<Default>, Rows::of_plan>("pieces", true),
      variant<ForwardPieces<Default>, Rows::all>("unfused", true),
      variant<ForwardPieces<Simplest>, Rows::of_panel>("naive", false)};
  return kVariants;
}
std::span<const BackwardVariant> cpu_backward_variants() {
  static const BackwardVariant kVariants[] = {
      variant<BackwardPieces<Default>, Rows::of_panel>("pieces", true),
      variant<BackwardPieces<Default>, Rows::all>("unfused", true),
      variant<BackwardPieces<Simplest>, Rows::all>("naive", false)};
  return kVariants;
}

}  // namespace isobit::linear_cross_entropy
