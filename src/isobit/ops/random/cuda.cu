// SPDX-License-Identifier: Apache-2.0
// The variant for GPUs: a thread makes four numbers of the four words of a counter.
#include <algorithm>
#include <cstdint>

#include "isobit/ops/random/formula.h"
#include "isobit/ops/random/problem.h"
#include "isobit/simt/simt.h"
#include "isobit/tile/scalar.h"

namespace isobit::random {
namespace {

using Scalar = tile::Scalar<double>;

template <class T>
struct Fours {
  static constexpr int kMostThreads = 256;
  Args args;
  T* y;
  std::int64_t stride, cols, count, groups;

  ISOBIT_DEVICE void operator()() const {
    const Constants c = constants_of<Scalar, T>(args);
    const auto skip = static_cast<std::int64_t>(c.offset % 4);  // of the first group
    const std::int64_t step = simt::blocks() * simt::threads();
    for (std::int64_t at = simt::block() * simt::threads() + simt::thread(); at < groups;
         at += step) {
      const std::uint64_t group = (c.offset + 4 * static_cast<std::uint64_t>(at)) / 4;
      const Words words = words_of(c.seed, group, 0);
      Words more{};
      if constexpr (sizeof(T) == 8) more = words_of(c.seed, group, 1);
      ISOBIT_UNROLL(4)
      for (int j = 0; j < 4; ++j) {
        const std::int64_t i = 4 * at + j - skip;
        if (i < 0 || i >= count) continue;
        const double draw = draw_of<T>(c.distribution, words[j], more[j]);
        const std::int64_t row = i / cols;
        y[row * stride + (i - row * cols)] = stored<T>(number_of<Scalar>(c, draw));
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
void launch(const Args& args, const Problem& problem, const Plan& plan,
            const Execution& execution) {
  const Matrix& y = problem.y;
  const std::int64_t count = y.rows * y.cols;
  if (count == 0) return;
  const std::int64_t groups = (count + static_cast<std::int64_t>(args.random_offset % 4) + 3) / 4;
  const Fours<T> kernel{args, reinterpret_cast<T*>(y.data), y.stride, y.cols, count, groups};
  const std::int64_t most =
      plan[1] == 0 ? simt::kMostBlocks : plan[1] * execution.machine.gpu.multiprocessors;
  simt::launch(static_cast<simt::Stream>(execution.stream),
               {.blocks = std::min((groups + plan[0] - 1) / plan[0], most), .threads = plan[0]},
               kernel);
}

void run(const Args& args, const Problem& problem, const Plan& plan, const Execution& execution) {
  switch (problem.dtype) {
    case DType::f64:  return launch<double>(args, problem, plan, execution);
    case DType::f16:  return launch<f16>(args, problem, plan, execution);
    case DType::bf16: return launch<bf16>(args, problem, plan, execution);
    default:          return launch<float>(args, problem, plan, execution);
  }
}

constexpr RandomVariant kVariants[] = {
    {.name = "fours",
     .knobs = kKnobs,
     .choose = [](const Problem&, const Machine&) -> Plan { return {256, 8}; },
     .run = run},
};

}  // namespace

std::span<const RandomVariant> cuda_variants() { return kVariants; }

}  // namespace isobit::random
