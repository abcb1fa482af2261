// SPDX-License-Identifier: Apache-2.0
// Channels side by side, each with a filter of its own, where they lie. Compiled once for each
// instruction set.
#include <algorithm>

#include "isobit/ops/convolution/cpu_kernels.h"
#include "isobit/simd/row_loops.h"
#include "isobit/simd/vec.h"

namespace isobit::convolution::ISOBIT_ISA {
namespace {

// A vector of channels of kPixels pixels. Where taps slide, a source is read once for all taps of
// a row; a pixel meets them in their order nevertheless.
template <class S, class T, class To, int kPixels, int kTaps, class... Part>
ISOBIT_INLINE void some_pixels(const Pixels& all, std::int64_t first, std::int64_t channel,
                               Part... part) {
  using Real = typename S::Real;
  using V = typename S::V;
  V sums[kPixels];
#pragma GCC unroll 8
  for (int p = 0; p < kPixels; ++p) sums[p] = S::zero();
  const Real* weights = static_cast<const Real*>(all.weights) + channel;
  for (std::int64_t t = 0; t < all.count_of_taps; t += kTaps, weights += kTaps * all.pitch) {
    const std::int64_t step = all.taps[t].step;
    const T* source = reinterpret_cast<const T*>(all.taps[t].source) + first * step + channel;
    V weight[kTaps];
#pragma GCC unroll 8
    for (int v = 0; v < kTaps; ++v) weight[v] = S::load(weights + v * all.pitch, part...);
#pragma GCC unroll 16
    for (int q = 0; q < kPixels + kTaps - 1; ++q, source += step) {
      const V x = S::load(source, part...);
#pragma GCC unroll 8
      for (int v = 0; v < kTaps; ++v)
        if (q >= v && q - v < kPixels) sums[q - v] = S::fma(weight[v], x, sums[q - v]);
    }
  }
  const V bias = S::load(static_cast<const Real*>(all.bias) + channel, part...);
  To* const to = static_cast<To*>(all.to) + first * all.to_step + channel;
#pragma GCC unroll 8
  for (int p = 0; p < kPixels; ++p)
    S::store(to + p * all.to_step, S::add(S::add(sums[p], S::zero()), bias), part...);
}

using simd::VectorsOf;

template <class T, class To, int kPixels, int kTaps>
ISOBIT_INLINE void all_channels(const Pixels& all, std::int64_t first) {
  using S = VectorsOf<T>;
  simd::for_each_vector<S>(all.channels,
                           [&](std::int64_t channel, auto... part) ISOBIT_INLINE_LAMBDA {
                             some_pixels<S, T, To, kPixels, kTaps>(all, first, channel, part...);
                           });
}

// kVectors of channels of one pixel, whose taps may lie anyhow.
template <class S, class T, class To, int kVectors, class... Part>
ISOBIT_INLINE void one_pixel(const Pixels& all, std::int64_t pixel, std::int64_t channel,
                             Part... part) {
  using Real = typename S::Real;
  typename S::V sums[kVectors];
#pragma GCC unroll 4
  for (int i = 0; i < kVectors; ++i) sums[i] = S::zero();
  const Real* weights = static_cast<const Real*>(all.weights) + channel;
  for (std::int64_t t = 0; t < all.count_of_taps; ++t, weights += all.pitch) {
    const T* source =
        reinterpret_cast<const T*>(all.taps[t].source) + pixel * all.taps[t].step + channel;
#pragma GCC unroll 4
    for (int i = 0; i < kVectors; ++i)
      sums[i] = S::fma(S::load(weights + i * S::kWidth, part...),
                       S::load(source + i * S::kWidth, part...), sums[i]);
  }
  const Real* const bias = static_cast<const Real*>(all.bias) + channel;
  To* const to = static_cast<To*>(all.to) + pixel * all.to_step + channel;
#pragma GCC unroll 4
  for (int i = 0; i < kVectors; ++i)
    S::store(to + i * S::kWidth,
             S::add(S::add(sums[i], S::zero()), S::load(bias + i * S::kWidth, part...)), part...);
}

template <class T, class To>
ISOBIT_INLINE void all_channels_of_one(const Pixels& all, std::int64_t pixel) {
  using S = VectorsOf<T>;
  constexpr int kMost = 4;
  std::int64_t channel = 0;
  for (; channel + kMost * S::kWidth <= all.channels; channel += kMost * S::kWidth)
    one_pixel<S, T, To, kMost>(all, pixel, channel);
  for (; channel + S::kWidth <= all.channels; channel += S::kWidth)
    one_pixel<S, T, To, 1>(all, pixel, channel);
  if (channel < all.channels)
    one_pixel<S, T, To, 1>(all, pixel, channel, S::first(all.channels - channel));
}

template <class T, class To, int kTaps>
ISOBIT_INLINE void all_pixels(const Pixels& all) {
  constexpr int kMost = 8;  // chains that hide the latency of one
  std::int64_t p = 0;
  for (; p + kMost <= all.pixels; p += kMost) all_channels<T, To, kMost, kTaps>(all, p);
  if (p + 4 <= all.pixels) all_channels<T, To, 4, kTaps>(all, p), p += 4;
  if (p + 2 <= all.pixels) all_channels<T, To, 2, kTaps>(all, p), p += 2;
  if (p < all.pixels) all_channels_of_one<T, To>(all, p);
}

template <class T, class To>
void pixels_of(const Pixels& all) {
  static_assert(kSliding[0] == 3 && kSliding[1] == 5);
  if (all.sliding == 3)
    all_pixels<T, To, 3>(all);
  else if (all.sliding == 5)
    all_pixels<T, To, 5>(all);
  else
    all_pixels<T, To, 1>(all);
}

// Sums of kTaps taps, from tap `first` on; of pixels from one on. kEven: taps have the same step.
template <class T, int kTaps, bool kEven>
ISOBIT_INLINE void some_weights(const WeightsOfPixels& all, std::int64_t first, std::int64_t begin,
                                std::int64_t pixels) {
  using S = VectorsOf<T>;
  using Real = typename S::Real;
  using V = typename S::V;
  const TapOfPixels* const taps = all.taps + first;
  const bool goes_on = all.goes_on || begin > 0;
  simd::for_each_vector<S>(
      all.channels, [&](std::int64_t channel, auto... part) ISOBIT_INLINE_LAMBDA {
        Real* const to = static_cast<Real*>(all.sums) + first * all.pitch + channel;
        V sums[kTaps];
        const T* sources[kTaps];
#pragma GCC unroll 16
        for (int t = 0; t < kTaps; ++t) {
          sums[t] = goes_on ? S::load(to + t * all.pitch, part...) : S::zero();
          sources[t] = reinterpret_cast<const T*>(taps[t].source) + begin * taps[t].step + channel;
        }
        const T* grads = reinterpret_cast<const T*>(all.grads) + begin * all.grad_step + channel;
        const std::int64_t step = taps[0].step;
        for (std::int64_t p = 0, at = 0; p < pixels; ++p, at += step, grads += all.grad_step) {
          const V grad = S::load(grads, part...);
#pragma GCC unroll 16
          for (int t = 0; t < kTaps; ++t)
            sums[t] = S::fma(grad, S::load(sources[t] + (kEven ? at : p * taps[t].step), part...),
                             sums[t]);
        }
#pragma GCC unroll 16
        for (int t = 0; t < kTaps; ++t)
          S::template store<simd::Stores::cached, simd::Nan::absent>(to + t * all.pitch, sums[t],
                                                                     part...);
      });
}

template <class T, bool kEven>
ISOBIT_INLINE void all_weights(const WeightsOfPixels& all) {
  constexpr std::int64_t kPixels = 32;  // of all channels, before the next: as they lie in memory
  constexpr int kMost = 9;              // 3 x 3
  for (std::int64_t begin = 0; begin < all.pixels; begin += kPixels) {
    const std::int64_t pixels = std::min(kPixels, all.pixels - begin);
    std::int64_t first = 0;
    for (; first + kMost <= all.count_of_taps; first += kMost)
      some_weights<T, kMost, kEven>(all, first, begin, pixels);
    for (; first + 3 <= all.count_of_taps; first += 3)
      some_weights<T, 3, kEven>(all, first, begin, pixels);
    for (; first < all.count_of_taps; ++first) some_weights<T, 1, kEven>(all, first, begin, pixels);
  }
}

template <class T>
void weights_of(const WeightsOfPixels& all) {
  const bool even = std::all_of(all.taps, all.taps + all.count_of_taps,
                                [&](const TapOfPixels& tap) { return tap.step == all.taps->step; });
  if (even)
    all_weights<T, true>(all);
  else
    all_weights<T, false>(all);
}

}  // namespace

WeightsOfPixelsKernel weights_of_pixels_kernel(DType element) {
  switch (element) {
    case DType::f16:  return weights_of<f16>;
    case DType::bf16: return weights_of<bf16>;
    case DType::f64:  return weights_of<double>;
    default:          return weights_of<float>;
  }
}

PixelsKernel pixels_kernel(DType element, DType to) {
  const bool widens = element != to;
  switch (element) {
    case DType::f16:  return widens ? pixels_of<f16, float> : pixels_of<f16, f16>;
    case DType::bf16: return widens ? pixels_of<bf16, float> : pixels_of<bf16, bf16>;
    case DType::f64:  return pixels_of<double, double>;
    default:          return pixels_of<float, float>;
  }
}

}  // namespace isobit::convolution::ISOBIT_ISA
