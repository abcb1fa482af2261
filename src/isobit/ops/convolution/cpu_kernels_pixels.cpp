// SPDX-License-Identifier: Apache-2.0
// Channels side by side, each with a filter of its own, where they lie. Compiled once for each
// instruction set.
#include <algorithm>
#include <type_traits>

#include "isobit/ops/convolution/cpu_kernels.h"
#include "isobit/simd/vec.h"

namespace isobit::convolution::ISOBIT_ISA {
namespace {

// A vector of channels of kPixels pixels.
template <class S, class T, int kPixels, class... Part>
ISOBIT_INLINE void some_pixels(const Pixels& all, std::int64_t first, std::int64_t channel,
                               Part... part) {
  using Real = typename S::Real;
  typename S::V sums[kPixels];
#pragma GCC unroll 8
  for (int p = 0; p < kPixels; ++p) sums[p] = S::zero();
  const Real* weights = static_cast<const Real*>(all.weights) + channel;
  for (std::int64_t t = 0; t < all.count_of_taps; ++t, weights += kMostChannels) {
    const TapOfPixels& tap = all.taps[t];
    const T* source = reinterpret_cast<const T*>(tap.source) + first * tap.step + channel;
    const auto weight = S::load(weights);
#pragma GCC unroll 8
    for (int p = 0; p < kPixels; ++p)
      sums[p] = S::fma(weight, S::load(source + p * tap.step, part...), sums[p]);
  }
  Real* const to = static_cast<Real*>(all.sums) + first * kMostChannels + channel;
#pragma GCC unroll 8
  for (int p = 0; p < kPixels; ++p)
    S::template store<simd::Stores::cached, simd::Nan::absent>(to + p * kMostChannels, sums[p]);
}

template <class T>
void pixels_of(const Pixels& pixels) {
  using S = std::conditional_t<std::is_same_v<T, double>, simd::F64, simd::F32>;
  constexpr int kMost = 8;  // chains that hide the latency of one
  const auto for_channel = [&](std::int64_t channel, auto... part) ISOBIT_INLINE_LAMBDA {
    std::int64_t p = 0;
    for (; p + kMost <= pixels.pixels; p += kMost)
      some_pixels<S, T, kMost>(pixels, p, channel, part...);
    for (; p + 3 <= pixels.pixels; p += 3) some_pixels<S, T, 3>(pixels, p, channel, part...);
    for (; p < pixels.pixels; ++p) some_pixels<S, T, 1>(pixels, p, channel, part...);
  };
  std::int64_t channel = 0;
  for (; channel + S::kWidth <= pixels.channels; channel += S::kWidth) for_channel(channel);
  if (channel < pixels.channels) for_channel(channel, S::first(pixels.channels - channel));
}

}  // namespace

PixelsKernel pixels_kernel(DType element) {
  switch (element) {
    case DType::f16:  return pixels_of<f16>;
    case DType::bf16: return pixels_of<bf16>;
    case DType::f64:  return pixels_of<double>;
    default:          return pixels_of<float>;
  }
}

}  // namespace isobit::convolution::ISOBIT_ISA
