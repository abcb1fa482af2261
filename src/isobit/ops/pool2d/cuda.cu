// SPDX-License-Identifier: Apache-2.0
// The variants for GPUs: a thread takes a result, or in the backward pass an element of x, whose
// gradient it gathers from the windows that reach over it, in their order. No thread waits for
// another, and none adds to what another writes.
#include <algorithm>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "isobit/ops/pool2d/formula.h"
#include "isobit/ops/pool2d/problem.h"
#include "isobit/simt/simt.h"
#include "isobit/tile/images.h"

namespace isobit::pool2d {
namespace {

template <class T>
using RealOf = std::conditional_t<sizeof(T) == 8, double, float>;
using Conversions = simt::Conversions;
using tile::Position;

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
  ISOBIT_DEVICE T* plane(std::int64_t image, std::int64_t channel) const {
    return data + image * n + channel * c;
  }
};

// What both passes have.
template <class TOf>
struct Call {
  using T = TOf;
  using Real = RealOf<T>;

  Axis h, w;
  bool is_max, with_padding;
  std::int64_t divisor, batch, channels;
  Array<T> x, y;
  Array<std::int64_t> index;

  explicit Call(const Problem& problem)
      : h(problem.h),
        w(problem.w),
        is_max(problem.reduction == Reduction::max),
        with_padding(problem.with_padding),
        divisor(problem.divisor),
        batch(problem.batch),
        channels(problem.channels),
        x(problem.x),
        y(problem.y),
        index(problem.index) {}

  ISOBIT_DEVICE Real divisor_of(const Window& of_h, const Window& of_w) const {
    const std::int64_t count = h.counted(of_h, with_padding) * w.counted(of_w, with_padding);
    return static_cast<Real>(divisor != 0 ? divisor : count);
  }
};

template <class T>
struct Forward : Call<T> {
  using typename Call<T>::Real;
  using Call<T>::Call;

  ISOBIT_EITHER std::int64_t count() const {
    return this->batch * this->channels * this->h.results * this->w.results;
  }
  ISOBIT_DEVICE void compute(std::int64_t at) const {
    const Axis &h = this->h, &w = this->w;
    const Position to =
        Position::of(at, this->channels, h.results, w.results, this->y.c == 1 && this->y.w != 1);
    const Window of_h = h.window(to.row), of_w = w.window(to.col);
    const Range down = h.seen(of_h), across = w.seen(of_w);
    const T* const plane = this->x.plane(to.image, to.channel);
    Sum<Real> sum;
    Real largest = -std::numeric_limits<Real>::infinity();
    std::int64_t index = -1;
#pragma unroll 1
    for (std::int64_t i = down.begin; i < down.end; ++i) {
      const std::int64_t row = of_h.first + i * h.dilation;
#pragma unroll 1
      for (std::int64_t j = across.begin; j < across.end; ++j) {
        const std::int64_t col = of_w.first + j * w.dilation;
        const Real value =
            Conversions::template widen<Real>(plane[row * this->x.h + col * this->x.w]);
        if (!this->is_max) {
          sum.add(i * of_w.taps + j, value);
        } else if (index < 0 || larger(value, largest)) {
          largest = value;
          index = row * w.sources + col;
        }
      }
    }
    const Real result = this->is_max ? largest : sum.value() / this->divisor_of(of_h, of_w);
    const std::int64_t place = to.row * this->y.h + to.col * this->y.w;
    this->y.plane(to.image, to.channel)[place] = Conversions::template narrow<T>(result);
    if (this->is_max && this->index.data != nullptr)
      this->index.plane(to.image, to.channel)[to.row * this->index.h + to.col * this->index.w] =
          index;
  }
};

template <class T>
struct Backward : Call<T> {
  using typename Call<T>::Real;
  using Call<T>::Call;

  ISOBIT_EITHER std::int64_t count() const {
    return this->batch * this->channels * this->h.sources * this->w.sources;
  }
  ISOBIT_DEVICE void compute(std::int64_t at) const {
    const Axis &h = this->h, &w = this->w;
    const Position to =
        Position::of(at, this->channels, h.sources, w.sources, this->x.c == 1 && this->x.w != 1);
    const Range down = h.reaching(to.row), across = w.reaching(to.col);
    const T* const grad = this->y.plane(to.image, to.channel);
    const std::int64_t* const index =
        this->is_max ? this->index.plane(to.image, to.channel) : nullptr;
    Sum<Real> sum;
#pragma unroll 1
    for (std::int64_t i = down.begin; i < down.end; ++i) {
      const Window of_h = h.window(i);
      if (!h.has(of_h, to.row)) continue;
#pragma unroll 1
      for (std::int64_t j = across.begin; j < across.end; ++j) {
        const Window of_w = w.window(j);
        if (!w.has(of_w, to.col)) continue;
        if (index != nullptr &&
            index[i * this->index.h + j * this->index.w] != to.row * w.sources + to.col)
          continue;
        Real term = Conversions::template widen<Real>(grad[i * this->y.h + j * this->y.w]);
        if (!this->is_max) term = term / this->divisor_of(of_h, of_w);
        sum.add((i - down.begin) * across.count() + j - across.begin, term);
      }
    }
    this->x.plane(to.image, to.channel)[to.row * this->x.h + to.col * this->x.w] =
        Conversions::template narrow<T>(sum.value());
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

}  // namespace isobit::pool2d
