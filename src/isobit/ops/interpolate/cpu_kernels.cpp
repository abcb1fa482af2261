// SPDX-License-Identifier: Apache-2.0
// The vector loops of the forward pass, compiled once for each instruction set: results side by
// side, from rows of x that are interpolated once each, or adjacent channels of one result.
#include "isobit/ops/interpolate/cpu_kernels.h"

#include "isobit/ops/interpolate/cpu_vectors.h"

namespace isobit::interpolate::ISOBIT_ISA {
namespace {

// The interpolated rows of x that the latest results were made of, each in the slot of its number.
template <class T>
class Rows {
  using S = VectorsOf<T>;
  using Real = typename S::Real;
  using V = typename S::V;

 public:
  ISOBIT_INLINE explicit Rows(const Part& part)
      : p_(part.problem),
        tables_(part.tables),
        image_(part.image),
        ring_(reinterpret_cast<Real*>(part.scratch)),
        read_(ring_ + kMostTaps * tables_.line) {}

  ISOBIT_INLINE void begin(std::int64_t channel) {
    channel_ = channel;
    for (std::int64_t& each : held_) each = -1;
  }
  ISOBIT_INLINE const Real* row(std::int64_t number) {
    const std::int64_t slot = number % kMostTaps;
    Real* const line = ring_ + slot * tables_.line;
    if (held_[slot] != number) compute(number, line);
    held_[slot] = number;
    return line;
  }

 private:
  ISOBIT_INLINE void compute(std::int64_t number, Real* to) {
    load_line<S>(p_.x.at<const T>(image_, channel_, number, 0), p_.x.w, p_.w.sources, read_);
    read_[p_.w.sources] = 0;
    const auto* const weights = static_cast<const Real*>(tables_.weights);
    const int taps = p_.w.taps();
    for (std::int64_t i = 0; i < tables_.line; i += S::kWidth) {
      V sum = S::mul(S::load(weights + i), gather(i));
      for (int tap = 1; tap < taps; ++tap) {
        const std::int64_t at = tap * tables_.line + i;
        sum = S::fma(S::load(weights + at), gather(at), sum);
      }
      S::store(to + i, sum);
    }
  }
  ISOBIT_INLINE V gather(std::int64_t at) const {
    Real lanes[S::kWidth];
    for (int i = 0; i < S::kWidth; ++i) lanes[i] = read_[tables_.places[at + i]];
    return S::load(lanes);
  }

  const Problem& p_;
  const Tables& tables_;
  std::int64_t image_, channel_ = 0;
  Real *ring_, *read_;
  std::int64_t held_[kMostTaps];
};

template <class T>
void rows(const Part& part) {
  using S = VectorsOf<T>;
  using Real = typename S::Real;
  using V = typename S::V;
  const Problem& p = part.problem;
  Rows<T> held(part);
  for (std::int64_t c = part.channel; c < part.channel + part.channels; ++c) {
    held.begin(c);
    for (std::int64_t row = part.rows.begin; row < part.rows.end; ++row) {
      const Taps<Real>& taps = taps_in<Real>(part.tables.down)[row];
      const Real* lines[kMostTaps];
      for (std::int64_t i = 0; i < taps.count; ++i) lines[i] = held.row(taps.first + i);
      T* const y = p.y.at<T>(part.image, c, row, 0);
      for (std::int64_t i = 0; i < p.w.results; i += S::kWidth) {
        V sum = S::mul(S::all(taps.weight[0]), S::load(lines[0] + i));
        for (std::int64_t tap = 1; tap < taps.count; ++tap)
          sum = S::fma(S::all(taps.weight[tap]), S::load(lines[tap] + i), sum);
        store_lanes<S>(y + i * p.y.w, p.y.w, p.w.results - i, sum);
      }
    }
  }
}

template <class T>
void channels(const Part& part) {
  using S = VectorsOf<T>;
  using Real = typename S::Real;
  using V = typename S::V;
  const Problem& p = part.problem;
  for (std::int64_t row = part.rows.begin; row < part.rows.end; ++row) {
    const Taps<Real>& down = taps_in<Real>(part.tables.down)[row];
    for (std::int64_t col = 0; col < p.w.results; ++col) {
      const Taps<Real>& across = taps_in<Real>(part.tables.across)[col];
      const T* const x = p.x.at<const T>(part.image, part.channel, down.first, across.first);
      T* const y = p.y.at<T>(part.image, part.channel, row, col);
      simd::for_each_vector<S, T>(
          0, part.channels, [&](std::int64_t c, auto... some) ISOBIT_INLINE_LAMBDA {
            V sum = S::zero();
            for (std::int64_t i = 0; i < down.count; ++i) {
              const T* const from = x + i * p.x.h + c;
              V line = S::mul(S::all(across.weight[0]), S::load(from, some...));
              for (std::int64_t j = 1; j < across.count; ++j)
                line = S::fma(S::all(across.weight[j]), S::load(from + j * p.x.w, some...), line);
              const V weight = S::all(down.weight[i]);
              sum = i == 0 ? S::mul(weight, line) : S::fma(weight, line, sum);
            }
            S::store(y + c, sum, some...);
          });
    }
  }
}

}  // namespace

Kernel forward_rows(DType dtype){ISOBIT_INTERPOLATE_KERNEL(dtype, rows)} Kernel
    forward_channels(DType dtype) {
  ISOBIT_INTERPOLATE_KERNEL(dtype, channels)
}

}  // namespace isobit::interpolate::ISOBIT_ISA
