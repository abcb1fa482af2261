// SPDX-License-Identifier: Apache-2.0
// The variant for GPUs: an angle a thread. A position that no table has gives NaN.
#include <cstdint>

#include "isobit/dispatch/threads.h"
#include "isobit/ops/rope_tables/formula.h"
#include "isobit/ops/rope_tables/problem.h"
#include "isobit/simt/simt.h"
#include "isobit/tile/in_turn.h"
#include "isobit/tile/scalar.h"

namespace isobit::rope_tables {
namespace {

constexpr int kWidest = 1024;  // threads of a block

using Scalar = tile::Scalar<double>;

template <class T>
struct Naive {
  static constexpr int kMostThreads = kWidest;
  const double* wide;   // of inv_freq, where it is f64,
  const float* single;  // or f32; else it is computed
  const std::int64_t* positions;
  std::int64_t position_step, offset;
  T *cos, *sin;
  std::int64_t cos_stride, sin_stride, rows, pairs;
  double base;

  ISOBIT_EITHER std::int64_t count() const { return rows * pairs; }
  ISOBIT_DEVICE void operator()() const {
    const Two<Scalar> ratio = frequency_ratio<Scalar>(base, pairs);
    tile::in_turn(count(), [&](std::int64_t at) {
      const std::int64_t row = at / pairs, i = at - row * pairs;
      const std::int64_t position = positions == nullptr ? row : positions[row * position_step];
      // Where there is no such position, no angle is below the end.
      const bool inside = position >= 0 && position < kMostPositions - offset;
      const double angle_of = inside ? static_cast<double>(position + offset) : kMostPositions;
      const double frequency_of = !inside             ? 1.0
                                  : wide != nullptr   ? wide[i]
                                  : single != nullptr ? static_cast<double>(single[i])
                                                      : frequency<Scalar>(ratio, i);
      const auto found = turn<Scalar>(angle_of, frequency_of);
      cos[row * cos_stride + i] = simt::Conversions::narrow<T>(static_cast<T>(found.cosine));
      sin[row * sin_stride + i] = simt::Conversions::narrow<T>(static_cast<T>(found.sine));
    });
  }
};

constexpr int kBlocks[] = {0, 1, 2, 4, 8};
constexpr Knob kKnobs[] = {
    threads_knob(kWidest),
    {"blocks", kBlocks,
     "blocks per multiprocessor, which take angles in turn; 0: as many as there are angles for"},
};

template <class T>
void launch(const Problem& problem, const Plan& plan, const Execution& execution) {
  const Matrix &cos = problem.cos, &sin = problem.sin;
  const bool wide = problem.inv_freq_dtype == DType::f64;
  const auto* given = problem.inv_freq.data;
  const Naive<T> kernel{wide ? reinterpret_cast<const double*>(given) : nullptr,
                        wide ? nullptr : reinterpret_cast<const float*>(given),
                        problem.positions,
                        problem.position_step,
                        problem.offset,
                        reinterpret_cast<T*>(cos.data),
                        reinterpret_cast<T*>(sin.data),
                        cos.stride,
                        sin.stride,
                        cos.rows,
                        cos.cols,
                        problem.base};
  tile::launch_in_turn(kernel, plan[0], plan[1], execution);
}

void run(const Args&, const Problem& problem, const Plan& plan, const Execution& execution) {
  if (problem.dtype == DType::f64)
    launch<double>(problem, plan, execution);
  else
    launch<float>(problem, plan, execution);
}

constexpr RopeTablesVariant kVariants[] = {
    {.name = "naive",
     .knobs = kKnobs,
     .choose = [](const Problem&, const Machine&) -> Plan { return {256, 0}; },
     .run = run},
};

}  // namespace

std::span<const RopeTablesVariant> cuda_variants() { return kVariants; }

}  // namespace isobit::rope_tables
