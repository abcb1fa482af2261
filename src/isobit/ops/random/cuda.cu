// SPDX-License-Identifier: Apache-2.0
// The variant for GPUs: a thread makes four numbers of the four words of a counter.
#include <cstdint>

#include "isobit/dispatch/threads.h"
#include "isobit/ops/random/formula.h"
#include "isobit/ops/random/problem.h"
#include "isobit/simt/simt.h"
#include "isobit/tile/in_turn.h"
#include "isobit/tile/scalar.h"

namespace isobit::random {
namespace {

constexpr int kWidest = 512;  // threads of a block

using Scalar = tile::Scalar<double>;

template <class T>
struct Fours {
  static constexpr int kMostThreads = kWidest;
  Args args;
  T* y;
  std::int64_t stride, cols, elements;

  Fours(const Args& args, const Matrix& y)
      : args(args),
        y(reinterpret_cast<T*>(y.data)),
        stride(y.stride),
        cols(y.cols),
        elements(y.rows * y.cols) {}

  ISOBIT_EITHER std::int64_t count() const {
    if (elements == 0) return 0;
    return (elements + static_cast<std::int64_t>(args.random_offset % 4) + 3) / 4;
  }
  ISOBIT_DEVICE void operator()() const {
    const Constants c = constants_of<Scalar, T>(args);
    const auto skip = static_cast<std::int64_t>(c.offset % 4);  // of the first group
    tile::in_turn(count(), [&](std::int64_t at) {
      const std::uint64_t group = (c.offset + 4 * static_cast<std::uint64_t>(at)) / 4;
      const Words words = words_of(c.seed, group, 0);
      Words more{};
      if constexpr (sizeof(T) == 8) more = words_of(c.seed, group, 1);
      ISOBIT_UNROLL(4)
      for (int j = 0; j < 4; ++j) {
        const std::int64_t i = 4 * at + j - skip;
        if (i < 0 || i >= elements) continue;
        const double draw = draw_of<T>(c.distribution, words[j], more[j]);
        const std::int64_t row = i / cols;
        y[row * stride + (i - row * cols)] = stored<T>(number_of<Scalar>(c, draw));
      }
    });
  }
};

constexpr int kBlocks[] = {0, 1, 2, 4, 8};
constexpr Knob kKnobs[] = {
    threads_knob(kWidest),
    {"blocks", kBlocks,
     "blocks per multiprocessor, which take fours in turn; 0: as many as there are fours for"},
};

void run(const Args& args, const Problem& problem, const Plan& plan, const Execution& execution) {
  tile::with_type(problem.dtype, [&]<class T>(Type<T>) {
    tile::launch_in_turn(Fours<T>(args, problem.y), plan[0], plan[1], execution);
  });
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
