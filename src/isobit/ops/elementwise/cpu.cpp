// SPDX-License-Identifier: Apache-2.0
// The CPU variants: one element at a time, four at a time, and whole vectors.
#include <algorithm>
#include <bit>
#include <type_traits>

#include "isobit/ops/elementwise/cpu_kernels.h"
#include "isobit/ops/elementwise/problem.h"
#include "isobit/simd/float_mode.h"

namespace isobit::elementwise {
namespace {

// Below this a second thread costs more than it brings (a cold helper takes 50 us to wake).
constexpr std::int64_t kSerialElements = 64 << 10;
// Slices end on whole cache lines of every type, so that threads never share one.
constexpr std::int64_t kSliceStep = 64;

template <class T>
ISOBIT_INLINE T sum(T a, T b) {
  if constexpr (std::is_same_v<T, std::int32_t>) {
    return static_cast<T>(static_cast<std::uint32_t>(a) + static_cast<std::uint32_t>(b));
  } else if constexpr (std::is_same_v<T, double>) {
    const T result = a + b;
    return result == result ? result : std::bit_cast<T>(kNanF64);
  } else {
    return from_float<T>(to_float(a) + to_float(b));
  }
}

template <class T>
T one() {
  if constexpr (std::is_arithmetic_v<T>)
    return T{1};
  else
    return from_float<T>(1.0f);
}

template <class T, Kind kKind>
void scalar_loop(const T* x, const T* residual, T* y, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i)
    y[i] = sum(x[i], kKind == Kind::add ? residual[i] : one<T>());
}

// Four independent elements a turn, all read before the first is written.
template <class T, Kind kKind>
void unrolled_loop(const T* x, const T* residual, T* y, std::int64_t count) {
  std::int64_t i = 0;
  for (; i + 4 <= count; i += 4) {
    T sums[4];
    for (int k = 0; k < 4; ++k)
      sums[k] = sum(x[i + k], kKind == Kind::add ? residual[i + k] : one<T>());
    for (int k = 0; k < 4; ++k) y[i + k] = sums[k];
  }
  scalar_loop<T, kKind>(x + i, residual + i, y + i, count - i);
}

enum class Loop { scalar, unrolled };

template <Loop kLoop>
Kernel plain_kernel(Kind kind, DType dtype) {
  return visit(dtype, [&](auto type) -> Kernel {
    using T = typename decltype(type)::type;
    if constexpr (std::is_same_v<T, __float128>) {
      return nullptr;
    } else {
      const auto bind = [](auto kind_constant) -> Kernel {
        return [](const void* x, const void* residual, void* y, std::int64_t count, bool) {
          constexpr Kind kKind = decltype(kind_constant)::value;
          constexpr auto kBody =
              kLoop == Loop::scalar ? scalar_loop<T, kKind> : unrolled_loop<T, kKind>;
          kBody(static_cast<const T*>(x), static_cast<const T*>(residual), static_cast<T*>(y),
                count);
        };
      };
      return kind == Kind::add ? bind(std::integral_constant<Kind, Kind::add>{})
                               : bind(std::integral_constant<Kind, Kind::increment>{});
    }
  });
}

Kernel simd_kernel(const Problem& problem, Isa isa) {
#if defined(__x86_64__)
  if (isa == Isa::avx512) return avx512::kernel(problem.kind, problem.dtype);
  if (isa == Isa::avx2) return avx2::kernel(problem.kind, problem.dtype);
#endif
  return scalar::kernel(problem.kind, problem.dtype);
}

void run_kernel(Kernel kernel, bool streaming, const Problem& problem, const Execution& execution) {
  const Matrix &x = problem.x, &y = problem.y;
  const Matrix& residual = problem.kind == Kind::add ? problem.residual : x;
  const std::int64_t size = size_of(problem.dtype);
  const std::int64_t threads =
      y.rows * y.cols < kSerialElements ? 1 : std::max(1, execution.machine.threads);
  // Many rows are dealt out whole, a single one is cut into slices.
  const std::int64_t slices = y.rows >= threads ? 1 : threads;
  const std::int64_t width = (y.cols / slices + kSliceStep) / kSliceStep * kSliceStep;
  execution.parallel_for(threads, [&](std::int64_t task) {
    const simd::FloatMode mode;
    const std::int64_t first = slices == 1 ? y.rows * task / threads : 0;
    const std::int64_t last = slices == 1 ? y.rows * (task + 1) / threads : y.rows;
    const std::int64_t from = slices == 1 ? 0 : std::min(y.cols, task * width);
    const std::int64_t to = slices == 1 ? y.cols : std::min(y.cols, from + width);
    for (std::int64_t row = first; row < last && from < to; ++row)
      kernel(x.data + (row * x.stride + from) * size,
             residual.data + (row * residual.stride + from) * size,
             y.data + (row * y.stride + from) * size, to - from, streaming);
  });
}

std::string never_declines(const Problem&, const Machine&) { return {}; }
bool always_suits(const Problem&, const Machine&) { return true; }
Plan no_plan(const Problem&, const Machine&) { return {}; }
std::size_t no_workspace(const Problem&, const Plan&, const Machine&) { return 0; }

constexpr int kBooleans[] = {0, 1};
constexpr Knob kSimdKnobs[] = {{"stream", kBooleans, "stores that bypass the caches"}};

Plan choose_simd(const Problem& problem, const Machine& machine) {
  return {machine.leaves_caches(problem.y.rows * problem.y.cols * size_of(problem.dtype))};
}

constexpr CpuVariant kVariants[] = {
    {"simd", Device::cpu, kSimdKnobs, never_declines, always_suits, choose_simd, no_workspace,
     [](const Args&, const Problem& problem, const Plan& plan, const Execution& execution) {
       run_kernel(simd_kernel(problem, execution.machine.isa), plan[0] != 0, problem, execution);
     }},
    {"unrolled4",
     Device::cpu,
     {},
     never_declines,
     always_suits,
     no_plan,
     no_workspace,
     [](const Args&, const Problem& problem, const Plan&, const Execution& execution) {
       run_kernel(plain_kernel<Loop::unrolled>(problem.kind, problem.dtype), false, problem,
                  execution);
     }},
    {"scalar",
     Device::cpu,
     {},
     never_declines,
     always_suits,
     no_plan,
     no_workspace,
     [](const Args&, const Problem& problem, const Plan&, const Execution& execution) {
       run_kernel(plain_kernel<Loop::scalar>(problem.kind, problem.dtype), false, problem,
                  execution);
     }},
};

}  // namespace

std::span<const CpuVariant> cpu_variants() { return kVariants; }

}  // namespace isobit::elementwise
