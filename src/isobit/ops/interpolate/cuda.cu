// SPDX-License-Identifier: Apache-2.0
// The variants for GPUs: a thread takes a result, or in the backward pass an element of x, whose
// gradient it gathers from the results that it has a part in, in their order. No thread waits for
// another, and none adds to what another writes.
#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "isobit/ops/interpolate/formula.h"
#include "isobit/ops/interpolate/problem.h"
#include "isobit/simt/simt.h"
#include "isobit/tile/images.h"

namespace isobit::interpolate {
namespace {

template <class T>
using RealOf = std::conditional_t<sizeof(T) == 8, double, float>;
using Conversions = simt::Conversions;

// An image's channel.
template <class T>
struct Plane {
  const T* data;
  std::int64_t h, w;

  ISOBIT_DEVICE RealOf<T> operator()(std::int64_t row, std::int64_t col) const {
    return Conversions::template widen<RealOf<T>>(data[row * h + col * w]);
  }
};

template <class T>
struct Array {
  T* data;
  std::int64_t n, c, h, w;

  explicit Array(const Images& images)
      : data(reinterpret_cast<T*>(images.data)),
        n(images.n),
        c(images.c),
        h(images.h),
        w(images.w) {}
  ISOBIT_DEVICE bool channels_last() const { return c == 1 && w != 1; }
  ISOBIT_DEVICE Plane<T> plane(const tile::Position& of) const {
    return {data + of.image * n + of.channel * c, h, w};
  }
  ISOBIT_DEVICE void put(const tile::Position& to, RealOf<T> value) const {
    data[to.image * n + to.channel * c + to.row * h + to.col * w] =
        Conversions::template narrow<T>(value);
  }
};

// What both passes have.
template <class T>
struct Call {
  Axis h, w;
  std::int64_t batch, channels;
  Array<T> x, y;

  explicit Call(const Problem& problem)
      : h(problem.h),
        w(problem.w),
        batch(problem.batch),
        channels(problem.channels),
        x(problem.x),
        y(problem.y) {}
};

template <class T>
struct Forward : Call<T> {
  using Call<T>::Call;

  ISOBIT_EITHER std::int64_t count() const {
    return this->batch * this->channels * this->h.results * this->w.results;
  }
  ISOBIT_DEVICE void compute(std::int64_t at) const {
    const Axis &h = this->h, &w = this->w;
    const auto to =
        tile::Position::of(at, this->channels, h.results, w.results, this->y.channels_last());
    this->y.put(to, interpolated<RealOf<T>>(h, w, to.row, to.col, this->x.plane(to)));
  }
};

template <class T>
struct Backward : Call<T> {
  using Call<T>::Call;

  ISOBIT_EITHER std::int64_t count() const {
    return this->batch * this->channels * this->h.sources * this->w.sources;
  }
  ISOBIT_DEVICE void compute(std::int64_t at) const {
    const Axis &h = this->h, &w = this->w;
    const auto to =
        tile::Position::of(at, this->channels, h.sources, w.sources, this->x.channels_last());
    this->x.put(to, gathered<RealOf<T>>(h, w, to.row, to.col, this->y.plane(to)));
  }
};

template <class Pass>
struct Kernel {
  static constexpr int kMostThreads = 256;
  Pass pass;

  ISOBIT_DEVICE void operator()() const {
    for (std::int64_t at = simt::block() * simt::threads() + simt::thread(); at < pass.count();
         at += simt::blocks() * simt::threads())
      pass.compute(at);
  }
};

template <template <class> class Pass, class T>
void launch(const Problem& problem, const Plan& plan, const Execution& execution) {
  const Kernel<Pass<T>> kernel{Pass<T>(problem)};
  const std::int64_t count = kernel.pass.count();
  if (count == 0) return;
  const std::int64_t blocks =
      std::min<std::int64_t>((count + plan[0] - 1) / plan[0], simt::kMostBlocks);
  simt::launch(static_cast<simt::Stream>(execution.stream), {.blocks = blocks, .threads = plan[0]},
               kernel);
}

template <template <class> class Pass, class Args>
void run(const Args&, const Problem& problem, const Plan& plan, const Execution& execution) {
  switch (problem.dtype) {
    case DType::f16:  return launch<Pass, f16>(problem, plan, execution);
    case DType::bf16: return launch<Pass, bf16>(problem, plan, execution);
    case DType::f64:  return launch<Pass, double>(problem, plan, execution);
    default:          return launch<Pass, float>(problem, plan, execution);
  }
}

constexpr int kThreads[] = {64, 128, 256};
constexpr Knob kKnobs[] = {{"threads", kThreads, "threads per block"}};

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
