// SPDX-License-Identifier: Apache-2.0
// The variants for GPUs: both operators by their defaults. Sums are added and rounded by kernels of
// their own.
#include <string>
#include <type_traits>

#include "isobit/ops/cross_entropy/cuda_totals.h"
#include "isobit/ops/linear_cross_entropy/pieces.h"
#include "isobit/simt/simt.h"
#include "isobit/tile/in_turn.h"

namespace isobit::linear_cross_entropy {
namespace {

constexpr int kThreads = 256;

// An element a thread, which is written where it lies in rows of any distance.
template <class T, class Real>
struct Write {
  static constexpr int kMostThreads = kThreads;
  T* to;
  const Real* sums;  // null for zeros
  std::int64_t elements, cols, stride;

  ISOBIT_EITHER std::int64_t count() const { return elements; }
  ISOBIT_DEVICE void operator()() const {
    tile::in_turn(count(), [&](std::int64_t i) {
      to[i / cols * stride + i % cols] =
          simt::Conversions::template narrow<T>(sums == nullptr ? Real(0) : sums[i]);
    });
  }
};

template <class Real>
struct Add {
  static constexpr int kMostThreads = kThreads;
  Real* into;
  const Real* from;
  std::int64_t elements;

  ISOBIT_EITHER std::int64_t count() const { return elements; }
  ISOBIT_DEVICE void operator()() const {
    tile::in_turn(count(), [&](std::int64_t i) { into[i] = into[i] + from[i]; });
  }
};

template <class Kernel>
void launch(const Kernel& kernel, const Execution& execution) {
  tile::launch_in_turn(kernel, kThreads, 0, execution);
}

struct Tables {
  static auto product_forward() { return matmul::cuda_forward_variants(); }
  static auto product_backward() { return matmul::cuda_backward_variants(); }
  static auto losses_forward() { return cross_entropy::cuda_forward_variants(); }
  static auto losses_backward() { return cross_entropy::cuda_backward_variants(); }

  template <class Variants, class Problem>
  static auto step_of(Variants variants, const Problem& problem, const Machine& machine) {
    return default_step(variants, problem, machine);
  }

  static void add_totals(const cross_entropy::ForwardProblem& losses, const Execution& execution) {
    cross_entropy::launch_totals(losses, execution);
  }
  static void add(std::byte* into, const std::byte* from, std::int64_t count, DType real,
                  const Execution& execution) {
    if (real == DType::f64)
      launch(Add<double>{reinterpret_cast<double*>(into), reinterpret_cast<const double*>(from),
                         count},
             execution);
    else
      launch(
          Add<float>{reinterpret_cast<float*>(into), reinterpret_cast<const float*>(from), count},
          execution);
  }
  // Rows of adjacent sums, rounded to the type of the result; without sums it is 0.
  static void write(const TensorView& result, const std::byte* sums, const Execution& execution) {
    if (sums == result.data) return;
    tile::with_type(result.dtype, [&]<class T>(Type<T>) {
      using Real = tile::RealOf<T>;
      launch(Write<T, Real>{static_cast<T*>(result.data), reinterpret_cast<const Real*>(sums),
                            result.shape[0] * result.shape[1], result.shape[1], result.strides[0]},
             execution);
    });
  }
};

// Where no variant of cross_entropy takes so many classes.
template <class Problem>
std::string declines(const Problem& problem, const Machine& machine) {
  const auto variants = [] {
    if constexpr (std::is_same_v<Problem, ForwardProblem>)
      return Tables::losses_forward();
    else
      return Tables::losses_backward();
  }();
  std::string reason;
  for (const auto& variant : variants) {
    reason = variant.declines(problem.losses, machine);
    if (reason.empty()) break;
  }
  return reason;
}

template <class Way, Rows kRows>
auto variant_here(std::string_view name) {
  auto result = variant<Way, kRows>(name, false);
  result.declines = declines<typename Way::Problem>;
  return result;
}

}  // namespace

std::span<const ForwardVariant> cuda_forward_variants() {
  static const ForwardVariant kVariants[] = {
      variant_here<ForwardPieces<Tables>, Rows::of_plan>("pieces"),
      variant_here<ForwardPieces<Tables>, Rows::all>("unfused")};
  return kVariants;
}
std::span<const BackwardVariant> cuda_backward_variants() {
  static const BackwardVariant kVariants[] = {
      variant_here<BackwardPieces<Tables>, Rows::of_panel>("pieces"),
      variant_here<BackwardPieces<Tables>, Rows::all>("unfused")};
  return kVariants;
}

}  // namespace isobit::linear_cross_entropy
