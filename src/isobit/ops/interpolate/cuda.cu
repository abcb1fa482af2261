// SPDX-License-Identifier: Apache-2.0
// The variants for GPUs: a thread takes a result, or in the backward pass an element of x, whose
// gradient it gathers from the results that it has a part in, in their order. No thread waits for
// another, and none adds to what another writes.
#include <cstdint>

#include "isobit/dispatch/threads.h"
#include "isobit/ops/interpolate/formula.h"
#include "isobit/ops/interpolate/problem.h"
#include "isobit/simt/simt.h"
#include "isobit/tile/images.h"
#include "isobit/tile/in_turn.h"

namespace isobit::interpolate {
namespace {

constexpr int kWidest = 512;  // threads of a block

using tile::Position;
using tile::RealOf;

// An image's channel.
template <class T>
struct Plane {
  const T* data;
  std::int64_t h, w;

  ISOBIT_DEVICE Plane(const Images& images, const Position& of)
      : data(tile::plane<const T>(images, of)), h(images.h), w(images.w) {}
  ISOBIT_DEVICE RealOf<T> operator()(std::int64_t row, std::int64_t col) const {
    return simt::Conversions::widen<RealOf<T>>(data[row * h + col * w]);
  }
};

template <class T>
struct Forward {
  static constexpr int kMostThreads = kWidest;
  Problem p;

  ISOBIT_EITHER std::int64_t count() const { return p.planes() * p.h.results * p.w.results; }
  ISOBIT_DEVICE void operator()() const {
    tile::in_turn(count(), [&](std::int64_t at) {
      const Position to = Position::of(at, p.channels, p.h.results, p.w.results, p.y);
      tile::element<T>(p.y, to) = simt::Conversions::narrow<T>(
          interpolated<RealOf<T>>(p.h, p.w, to.row, to.col, Plane<T>(p.x, to)));
    });
  }
};

template <class T>
struct Backward {
  static constexpr int kMostThreads = kWidest;
  Problem p;

  ISOBIT_EITHER std::int64_t count() const { return p.planes() * p.h.sources * p.w.sources; }
  ISOBIT_DEVICE void operator()() const {
    tile::in_turn(count(), [&](std::int64_t at) {
      const Position to = Position::of(at, p.channels, p.h.sources, p.w.sources, p.x);
      tile::element<T>(p.x, to) = simt::Conversions::narrow<T>(
          gathered<RealOf<T>>(p.h, p.w, to.row, to.col, Plane<T>(p.y, to)));
    });
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

}  // namespace isobit::interpolate
