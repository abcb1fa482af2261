// SPDX-License-Identifier: Apache-2.0
// The variant for GPUs: a thread has the four columns of a counter.
#include <cstdint>

#include "isobit/dispatch/threads.h"
#include "isobit/ops/dropout/formula.h"
#include "isobit/ops/dropout/problem.h"
#include "isobit/simt/simt.h"
#include "isobit/tile/in_turn.h"

namespace isobit::dropout {
namespace {

constexpr int kWidest = 1024;  // threads of a block

template <class T>
struct Fours {
  static constexpr int kMostThreads = kWidest;
  using Real = tile::RealOf<T>;
  const T* x;
  T* y;
  std::int64_t x_stride, y_stride, rows, cols, groups;  // groups: of a row
  Mask<Real> mask;

  explicit Fours(const Problem& problem)
      : x(reinterpret_cast<const T*>(problem.x.data)),
        y(reinterpret_cast<T*>(problem.y.data)),
        x_stride(problem.x.stride),
        y_stride(problem.y.stride),
        rows(problem.y.rows),
        cols(problem.y.cols),
        groups((cols + 3) / 4),
        mask(Mask<Real>::of(problem.p, problem.seed)) {}

  ISOBIT_EITHER std::int64_t count() const { return rows * groups; }
  ISOBIT_DEVICE void operator()() const {
    tile::in_turn(count(), [&](std::int64_t at) {
      const std::int64_t row = at / groups, group = at - row * groups;
      const Words words = mask.words(row, group);
      ISOBIT_UNROLL(4)
      for (int i = 0; i < 4; ++i) {
        const std::int64_t col = 4 * group + i;
        if (col >= cols) break;
        const Real value = simt::Conversions::widen<Real>(x[row * x_stride + col]);
        y[row * y_stride + col] = simt::Conversions::narrow<T>(mask.value(words[i], value));
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

void run(const Args&, const Problem& problem, const Plan& plan, const Execution& execution) {
  tile::with_type(problem.dtype, [&]<class T>(Type<T>) {
    tile::launch_in_turn(Fours<T>(problem), plan[0], plan[1], execution);
  });
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
