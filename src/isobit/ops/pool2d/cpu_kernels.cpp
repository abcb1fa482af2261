// SPDX-License-Identifier: Apache-2.0
// The vector loops of the forward pass, compiled once for each instruction set: windows side by
// side, whose rows are staged by phases of the stride, or adjacent channels of one window.
#include "isobit/ops/pool2d/cpu_kernels.h"

#include "isobit/ops/pool2d/cpu_vectors.h"
#include "isobit/simd/lanes.h"

namespace isobit::pool2d::ISOBIT_ISA {
namespace {

// Where the largest elements of a vector's windows stand, from the numbers of their taps.
template <class S, class WindowOf>
ISOBIT_INLINE void store_index(const Problem& p, std::int64_t* to, std::int64_t stride,
                               std::int64_t count, typename S::V taps, const Window& h,
                               const WindowOf& window_of) {
  typename S::Real lanes[S::kWidth];
  S::store(lanes, taps);
  for (std::int64_t i = 0; i < S::kWidth && i < count; ++i) {
    const Window w = window_of(i);
    const auto tap = static_cast<std::int64_t>(lanes[i]);
    std::int64_t index = -1;
    if (tap >= 0)
      index = (h.first + tap / w.taps * p.h.dilation) * p.w.sources + w.first +
              tap % w.taps * p.w.dilation;
    to[i * stride] = index;
  }
}

// One row of results of a plane after the other.
template <class T, bool kMax>
class Rows {
  using S = VectorsOf<T>;
  using Real = typename S::Real;
  using V = typename S::V;

 public:
  ISOBIT_INLINE explicit Rows(const Part& part)
      : part_(part), p_(part.problem), staging_(part.problem) {
    ring_ = reinterpret_cast<Real*>(part.scratch);
    read_ = ring_ + staging_.slots * staging_.slot();
    of_lanes_ = read_ + (p_.w.sources + kBlock - 1) / kBlock * kBlock;
    places_ = reinterpret_cast<std::int64_t*>(of_lanes_ + staging_.line);
    seen_ = places_ + p_.w.taps;
    nan_ = seen_ + staging_.slots;
    counts_ = nan_ + staging_.slots;
    for (std::int64_t j = 0; j < p_.w.taps; ++j) {
      const std::int64_t reach = j * p_.w.dilation;
      places_[j] = reach % p_.w.stride * staging_.phase + reach / p_.w.stride;
    }
    for (std::int64_t i = 0; i < staging_.line; ++i) {
      const Window window = p_.w.window(i);
      const Range seen = p_.w.seen(window);
      if (kMax) of_lanes_[i] = seen.count() == 0 ? Real(-1) : static_cast<Real>(seen.begin);
      counts_[i] = i < p_.w.results ? p_.w.counted(window, p_.with_padding) : 1;
    }
  }

  ISOBIT_INLINE void run(std::int64_t channel) {
    staged_ = 0;
    for (std::int64_t row = part_.rows.begin; row < part_.rows.end; ++row) {
      const Window h = p_.h.window(row);
      const Range taps = p_.h.seen(h);
      bool nan = false;
      std::int64_t count = 0;
      if (taps.count() > 0) {
        const std::int64_t last = h.first + (taps.end - 1) * p_.h.dilation;
        // From the first row that this window or a later one sees.
        const std::int64_t first = h.first > 0 ? h.first : 0;
        for (std::int64_t at = staged_ > first ? staged_ : first; at <= last; ++at)
          stage(channel, at);
        staged_ = staged_ > last + 1 ? staged_ : last + 1;
      }
      for (std::int64_t tap = taps.begin; tap < taps.end; ++tap, ++count) {
        const std::int64_t slot = (h.first + tap * p_.h.dilation) % staging_.slots;
        seen_[count] = slot * staging_.slot();
        nan = nan || nan_[slot] != 0;
      }
      if constexpr (kMax) {
        if (p_.index.data != nullptr)
          nan ? largest<true, true>(channel, row, h, taps, count)
              : largest<false, true>(channel, row, h, taps, count);
        else
          nan ? largest<true, false>(channel, row, h, taps, count)
              : largest<false, false>(channel, row, h, taps, count);
      } else {
        // Those of a window of bins are its own.
        const bool panels = h.taps * p_.w.taps > kPanel;
        if (panels)
          average<true>(channel, row, h, taps, count);
        else
          average<false>(channel, row, h, taps, count);
      }
    }
  }

 private:
  ISOBIT_INLINE void stage(std::int64_t channel, std::int64_t row) {
    const T* const from = p_.x.at<const T>(part_.image, channel, row, 0);
    load_line<S>(from, p_.x.w, p_.w.sources, read_);
    const std::int64_t number = row % staging_.slots;
    Real* const slot = ring_ + number * staging_.slot();
    const Real padding = kMax ? -kInfinity<S> : Real(0);
    int nan = 0;
    if (kMax)
      for (std::int64_t i = 0; i < p_.w.sources; ++i) nan |= read_[i] != read_[i];
    nan_[number] = nan;
    const std::int64_t stride = p_.w.stride;
    for (std::int64_t phase = 0; phase < staging_.phases; ++phase) {
      Real* const to = slot + phase * staging_.phase;
      // Column place * stride + phase - padding.
      const std::int64_t before = phase < p_.w.padding ? ceil_of(p_.w.padding - phase, stride) : 0;
      const std::int64_t room = p_.w.sources - 1 + p_.w.padding - phase;
      std::int64_t end = room < 0 ? 0 : room / stride + 1;
      end = end < staging_.phase ? end : staging_.phase;
      const std::int64_t begin = before < end ? before : end;
      const Real* const source = read_ + begin * stride + phase - p_.w.padding;
      for (std::int64_t i = 0; i < begin; ++i) to[i] = padding;
      if (stride == 1)
        for (std::int64_t i = begin; i < end; ++i) to[i] = source[i - begin];
      else if (stride == 2)
        for (std::int64_t i = begin; i < end; ++i) to[i] = source[2 * (i - begin)];
      else
        for (std::int64_t i = begin; i < end; ++i) to[i] = source[(i - begin) * stride];
      for (std::int64_t i = end; i < staging_.phase; ++i) to[i] = padding;
    }
  }

  // Calls add(number of a tap, vector) for all taps of the windows from `lane` on.
  template <class Add>
  ISOBIT_INLINE void for_each_tap(std::int64_t lane, const Range& taps, std::int64_t count,
                                  const Add& add) const {
    for (std::int64_t i = 0; i < count; ++i) {
      const Real* const row = ring_ + seen_[i] + lane;
      const std::int64_t number = (taps.begin + i) * p_.w.taps;
      for (std::int64_t j = 0; j < p_.w.taps; ++j) add(number + j, S::load(row + places_[j]));
    }
  }

  template <bool kNan, bool kIndex>
  ISOBIT_INLINE void largest(std::int64_t channel, std::int64_t row, const Window& h,
                             const Range& taps, std::int64_t count) const {
    const Real above = static_cast<Real>(taps.begin * p_.w.taps);
    for (std::int64_t lane = 0; lane < p_.w.results; lane += S::kWidth) {
      Largest<S, kNan, kIndex> found;
      if constexpr (kIndex) {
        const V first = S::load(of_lanes_ + lane), none = S::all(-1);
        found.tap = count == 0
                        ? none
                        : S::choose(S::less(first, S::zero()), none, S::add(first, S::all(above)));
      }
      for_each_tap(lane, taps, count, [&](std::int64_t number, V value) ISOBIT_INLINE_LAMBDA {
        found.add(number, value);
      });
      const std::int64_t left = p_.w.results - lane;
      store_lanes<S>(p_.y.at<T>(part_.image, channel, row, lane), p_.y.w, left, found.value);
      if constexpr (kIndex)
        store_index<S>(p_, p_.index.at<std::int64_t>(part_.image, channel, row, lane), p_.index.w,
                       left, found.tap, h, [&](std::int64_t i) { return p_.w.window(lane + i); });
    }
  }

  template <bool kPanels>
  ISOBIT_INLINE void average(std::int64_t channel, std::int64_t row, const Window& h,
                             const Range& taps, std::int64_t count) const {
    const std::int64_t of_h = p_.h.counted(h, p_.with_padding);
    for (std::int64_t i = 0; i < staging_.line; ++i)
      of_lanes_[i] = static_cast<Real>(p_.divisor != 0 ? p_.divisor : of_h * counts_[i]);
    for (std::int64_t lane = 0; lane < p_.w.results; lane += S::kWidth) {
      Sums<S, kPanels> sums;
      for_each_tap(lane, taps, count, [&](std::int64_t number, V value) ISOBIT_INLINE_LAMBDA {
        sums.add(number, value);
      });
      store_lanes<S>(p_.y.at<T>(part_.image, channel, row, lane), p_.y.w, p_.w.results - lane,
                     S::div(sums.value(), S::load(of_lanes_ + lane)));
    }
  }

  const Part& part_;
  const Problem& p_;
  Staging staging_;
  Real *ring_, *read_, *of_lanes_;  // of lanes: first taps, or divisors
  std::int64_t *places_, *seen_, *nan_, *counts_;
  std::int64_t staged_ = 0;  // rows before are in the ring, or gone
};

template <class T, bool kMax>
void rows(const Part& part) {
  Rows<T, kMax> lines(part);
  for (std::int64_t c = part.channel; c < part.channel + part.channels; ++c) lines.run(c);
}

// Rows of pixels, each of adjacent channels.
template <class From>
struct Pixels {
  const From* data;
  std::int64_t row, col;
  std::int64_t first = 0;  // row that data begins with
};

// A vector of channels of one window. for_each_tap(add) calls add(number of a tap, vector).
template <class T, bool kMax, class ForEachTap>
ISOBIT_INLINE void one_window(const Part& part, std::int64_t row, std::int64_t col, const Window& h,
                              const Window& w, std::int64_t c, const ForEachTap& for_each_tap) {
  using S = VectorsOf<T>;
  using Real = typename S::Real;
  using V = typename S::V;
  const Problem& p = part.problem;
  const std::int64_t left = part.channels - c;
  T* const y = p.y.at<T>(part.image, part.channel + c, row, col);
  if constexpr (kMax) {
    const auto find = [&](auto found) ISOBIT_INLINE_LAMBDA {
      const Range down = p.h.seen(h), across = p.w.seen(w);
      const bool none = down.count() == 0 || across.count() == 0;
      found.tap = S::all(none ? Real(-1) : static_cast<Real>(down.begin * w.taps + across.begin));
      for_each_tap([&](std::int64_t number, V value)
                       ISOBIT_INLINE_LAMBDA { found.add(number, value); });
      store_lanes<S>(y, p.y.c, left, found.value);
      return found.tap;
    };
    if (p.index.data == nullptr) {
      find(Largest<S, true, false>{});
      return;
    }
    store_index<S>(p, p.index.at<std::int64_t>(part.image, part.channel + c, row, col), p.index.c,
                   left, find(Largest<S, true, true>{}), h, [&](std::int64_t) { return w; });
  } else {
    const V divisor = S::all(static_cast<Real>(p.divisor_of(h, w)));
    const auto add_up = [&](auto sums) ISOBIT_INLINE_LAMBDA {
      for_each_tap([&](std::int64_t number, V value)
                       ISOBIT_INLINE_LAMBDA { sums.add(number, value); });
      store_lanes<S>(y, p.y.c, left, S::div(sums.value(), divisor));
    };
    if (h.taps * w.taps > kPanel)
      add_up(Sums<S, true>{});
    else
      add_up(Sums<S, false>{});
  }
}

template <class T, bool kMax, class From>
ISOBIT_INLINE void row_of_windows(const Part& part, const Pixels<From>& pixels, std::int64_t row,
                                  const Window& h) {
  using S = VectorsOf<T>;
  const Problem& p = part.problem;
  const Range down = p.h.seen(h);
  for (std::int64_t col = 0; col < p.w.results; ++col) {
    const Window w = p.w.window(col);
    const Range across = p.w.seen(w);
    const auto window = [&](std::int64_t c, auto... lanes) ISOBIT_INLINE_LAMBDA {
      one_window<T, kMax>(part, row, col, h, w, c, [&](const auto& add) ISOBIT_INLINE_LAMBDA {
        for (std::int64_t i = down.begin; i < down.end; ++i) {
          const From* const line =
              pixels.data + (h.first + i * p.h.dilation - pixels.first) * pixels.row + c;
          for (std::int64_t j = across.begin; j < across.end; ++j)
            add(i * w.taps + j,
                S::load(line + (w.first + j * p.w.dilation) * pixels.col, lanes...));
        }
      });
    };
    std::int64_t c = 0;
    for (; c + S::kWidth <= part.channels; c += S::kWidth) window(c);
    if (c < part.channels) window(c, S::first(part.channels - c));
  }
}

// One window over planes of one row each: pixels count as they are transposed.
template <class T, bool kMax>
ISOBIT_INLINE void whole_planes(const Part& part) {
  using S = VectorsOf<T>;
  const Problem& p = part.problem;
  for (std::int64_t c = 0; c < part.channels; c += S::kWidth)
    one_window<T, kMax>(part, 0, 0, p.h.window(0), p.w.window(0), c,
                        [&](const auto& add) ISOBIT_INLINE_LAMBDA {
                          simd::across<S, 1>(p.x.at<const T>(part.image, part.channel + c, 0, 0),
                                             p.x.c, part.channels - c, p.w.sources,
                                             [&](std::int64_t j, const typename S::V(&pixel)[1])
                                                 ISOBIT_INLINE_LAMBDA { add(j, pixel[0]); });
                        });
}

// A line of pixels of channels that lie apart.
template <class S, class T>
ISOBIT_INLINE void stage_channels(const T* from, const Problem& p, std::int64_t channels,
                                  typename S::Real* to) {
  for (std::int64_t c = 0; c < channels; c += S::kWidth) {
    const T* const first = from + c * p.x.c;
    if (p.x.w == 1) {
      simd::across<S, 1>(first, p.x.c, channels - c, p.w.sources,
                         [&](std::int64_t j, const typename S::V(&pixel)[1]) ISOBIT_INLINE_LAMBDA {
                           S::template store<simd::Stores::cached, simd::Nan::absent>(
                               to + j * kBlock + c, pixel[0]);
                         });
      continue;
    }
    for (std::int64_t i = 0; i < S::kWidth && c + i < channels; ++i)
      for (std::int64_t j = 0; j < p.w.sources; ++j)
        to[j * kBlock + c + i] = widen<typename S::Real>(first[i * p.x.c + j * p.x.w]);
  }
}

template <class T, bool kMax>
void channels(const Part& part) {
  using S = VectorsOf<T>;
  using Real = typename S::Real;
  const Problem& p = part.problem;
  if (p.takes_whole_planes()) return whole_planes<T, kMax>(part);
  Real* const staged = reinterpret_cast<Real*>(part.scratch);
  for (std::int64_t row = part.rows.begin; row < part.rows.end; ++row) {
    const Window h = p.h.window(row);
    if (p.x.c == 1) {
      const Pixels<T> pixels{p.x.at<T>(part.image, part.channel, 0, 0), p.x.h, p.x.w};
      row_of_windows<T, kMax>(part, pixels, row, h);
      continue;
    }
    const Range taps = p.h.seen(h);
    const std::int64_t first = h.first + taps.begin * p.h.dilation;
    const std::int64_t end =
        taps.count() == 0 ? first : h.first + (taps.end - 1) * p.h.dilation + 1;
    for (std::int64_t i = first; i < end; ++i)
      stage_channels<S>(p.x.at<const T>(part.image, part.channel, i, 0), p, part.channels,
                        staged + (i - first) * p.w.sources * kBlock);
    const Pixels<Real> pixels{staged, p.w.sources * kBlock, kBlock, first};
    row_of_windows<T, kMax>(part, pixels, row, h);
  }
}

}  // namespace

Kernel forward_rows(DType dtype,
                    Reduction reduction){ISOBIT_POOL2D_KERNEL(dtype, reduction, rows)} Kernel
    forward_channels(DType dtype, Reduction reduction) {
  ISOBIT_POOL2D_KERNEL(dtype, reduction, channels)
}

}  // namespace isobit::pool2d::ISOBIT_ISA
