// SPDX-License-Identifier: Apache-2.0
// The variants for GPUs: a thread takes a result, or in the backward pass an element of x, whose
// gradient it gathers from the windows that reach over it, in their order. No thread waits for
// another, and none adds to what another writes.
#include <cstdint>
#include <limits>

#include "isobit/dispatch/threads.h"
#include "isobit/ops/pool2d/formula.h"
#include "isobit/ops/pool2d/problem.h"
#include "isobit/simt/simt.h"
#include "isobit/tile/images.h"
#include "isobit/tile/in_turn.h"

namespace isobit::pool2d {
namespace {

constexpr int kWidest = 512;  // threads of a block

using Conversions = simt::Conversions;
using tile::Position;

template <class T>
struct Forward {
  static constexpr int kMostThreads = kWidest;
  using Real = tile::RealOf<T>;
  Problem p;

  ISOBIT_EITHER std::int64_t count() const { return p.planes() * p.h.results * p.w.results; }
  ISOBIT_DEVICE void operator()() const {
    tile::in_turn(count(), [&](std::int64_t at) {
      compute(Position::of(at, p.channels, p.h.results, p.w.results, p.y));
    });
  }

 private:
  ISOBIT_DEVICE void compute(const Position& to) const {
    const bool is_max = p.reduction == Reduction::max;
    const Window of_h = p.h.window(to.row), of_w = p.w.window(to.col);
    const Range down = p.h.seen(of_h), across = p.w.seen(of_w);
    const T* const x = tile::plane<const T>(p.x, to);
    Sum<Real> sum;
    Real largest = -std::numeric_limits<Real>::infinity();
    std::int64_t index = -1;
#pragma unroll 1
    for (std::int64_t i = down.begin; i < down.end; ++i) {
      const std::int64_t row = of_h.first + i * p.h.dilation;
#pragma unroll 1
      for (std::int64_t j = across.begin; j < across.end; ++j) {
        const std::int64_t col = of_w.first + j * p.w.dilation;
        const Real value = Conversions::widen<Real>(x[row * p.x.h + col * p.x.w]);
        if (!is_max) {
          sum.add(i * of_w.taps + j, value);
        } else if (index < 0 || larger(value, largest)) {
          largest = value;
          index = row * p.w.sources + col;
        }
      }
    }
    const Real result =
        is_max ? largest : sum.value() / static_cast<Real>(p.divisor_of(of_h, of_w));
    tile::element<T>(p.y, to) = Conversions::narrow<T>(result);
    if (is_max && p.index.data != nullptr) tile::element<std::int64_t>(p.index, to) = index;
  }
};

template <class T>
struct Backward {
  static constexpr int kMostThreads = kWidest;
  using Real = tile::RealOf<T>;
  Problem p;

  ISOBIT_EITHER std::int64_t count() const { return p.planes() * p.h.sources * p.w.sources; }
  ISOBIT_DEVICE void operator()() const {
    tile::in_turn(count(), [&](std::int64_t at) {
      compute(Position::of(at, p.channels, p.h.sources, p.w.sources, p.x));
    });
  }

 private:
  ISOBIT_DEVICE void compute(const Position& to) const {
    const bool is_max = p.reduction == Reduction::max;
    const Range down = p.h.reaching(to.row), across = p.w.reaching(to.col);
    const T* const grad = tile::plane<const T>(p.y, to);
    const std::int64_t* const index =
        is_max ? tile::plane<const std::int64_t>(p.index, to) : nullptr;
    Sum<Real> sum;
#pragma unroll 1
    for (std::int64_t i = down.begin; i < down.end; ++i) {
      const Window of_h = p.h.window(i);
      if (!p.h.has(of_h, to.row)) continue;
#pragma unroll 1
      for (std::int64_t j = across.begin; j < across.end; ++j) {
        const Window of_w = p.w.window(j);
        if (!p.w.has(of_w, to.col)) continue;
        if (index != nullptr &&
            index[i * p.index.h + j * p.index.w] != to.row * p.w.sources + to.col)
          continue;
        Real term = Conversions::widen<Real>(grad[i * p.y.h + j * p.y.w]);
        if (!is_max) term = term / static_cast<Real>(p.divisor_of(of_h, of_w));
        sum.add((i - down.begin) * across.count() + j - across.begin, term);
      }
    }
    tile::element<T>(p.x, to) = Conversions::narrow<T>(sum.value());
  }
};

template <template <class> class Pass, class Args>
void run(const Args&, const Problem& problem, const Plan& plan, const Execution& execution) {
  tile::with_type(problem.dtype, [&]<class T>(Type<T>) {
    tile::launch_in_turn(Pass<T>{problem}, plan[0], 0, execution);
  });
}

constexpr Knob kKnobs[] = {threads_knob(kWidest)};

template <template <class> class Pass, class Args>
constexpr Variant<Args, Problem> kVariants[] = {
    {.name = "gather",
     .knobs = kKnobs,
     .choose = [](const Problem&, const Machine&) -> Plan { return {256}; },
     .run = run<Pass, Args>},
};

}  // namespace

std::span<const ForwardVariant> cuda_forward_variants() { return kVariants<Forward, ForwardArgs>; }
std::span<const BackwardVariant> cuda_backward_variants() {
  return kVariants<Backward, BackwardArgs>;
}

}  // namespace isobit::pool2d
