// SPDX-License-Identifier: Apache-2.0
// The variant for GPUs: a thread has the four columns of a counter.
#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "isobit/ops/dropout/formula.h"
#include "isobit/ops/dropout/problem.h"
#include "isobit/simt/simt.h"

namespace isobit::dropout {
namespace {

template <class T>
struct Fours {
  static constexpr int kMostThreads = 256;
  using Real = std::conditional_t<sizeof(T) == 8, double, float>;
  const T* x;
  T* y;
  std::int64_t x_stride, y_stride, rows, cols, groups;  // groups: of a row
  Mask<Real> mask;

  ISOBIT_DEVICE void operator()() const {
    const std::int64_t step = simt::blocks() * simt::threads();
    for (std::int64_t at = simt::block() * simt::threads() + simt::thread(); at < rows * groups;
         at += step) {
      const std::int64_t row = at / groups, group = at - row * groups;
      const Words words = mask.words(row, group);
      ISOBIT_UNROLL(4)
      for (int i = 0; i < 4; ++i) {
        const std::int64_t col = 4 * group + i;
        if (col >= cols) break;
        const Real value = simt::Conversions::widen<Real>(x[row * x_stride + col]);
        y[row * y_stride + col] = simt::Conversions::narrow<T>(mask.value(words[i], value));
      }
    }
  }
};

constexpr int kThreads[] = {64, 128, 256};
constexpr int kBlocks[] = {0, 1, 2, 4, 8};
constexpr Knob kKnobs[] = {
    {"threads", kThreads, "threads per block"},
    {"blocks", kBlocks,
     "blocks per multiprocessor, which take fours in turn; 0: as many as there are fours for"},
};

template <class T>
void launch(const Problem& problem, const Plan& plan, const Execution& execution) {
  const Matrix &x = problem.x, &y = problem.y;
  if (y.rows == 0 || y.cols == 0) return;
  const std::int64_t groups = (y.cols + 3) / 4;
  using Real = typename Fours<T>::Real;
  const Fours<T> kernel{reinterpret_cast<const T*>(x.data),
                        reinterpret_cast<T*>(y.data),
                        x.stride,
                        y.stride,
                        y.rows,
                        y.cols,
                        groups,
                        Mask<Real>::of(problem.p, problem.seed)};
  const std::int64_t most =
      plan[1] == 0 ? simt::kMostBlocks : plan[1] * execution.machine.gpu.multiprocessors;
  simt::launch(
      static_cast<simt::Stream>(execution.stream),
      {.blocks = std::min((y.rows * groups + plan[0] - 1) / plan[0], most), .threads = plan[0]},
      kernel);
}

void run(const Args&, const Problem& problem, const Plan& plan, const Execution& execution) {
  switch (problem.dtype) {
    case DType::f64:  return launch<double>(problem, plan, execution);
    case DType::f16:  return launch<f16>(problem, plan, execution);
    case DType::bf16: return launch<bf16>(problem, plan, execution);
    default:          return launch<float>(problem, plan, execution);
  }
}

constexpr DropoutVariant kVariants[] = {
    {.name = "fours",
     .knobs = kKnobs,
     .choose = [](const Problem&, const Machine&) -> Plan { return {256, 0}; },
     .run = run},
};

}  // namespace

std::span<const DropoutVariant> cuda_variants() { return kVariants; }

}  // namespace isobit::dropout
