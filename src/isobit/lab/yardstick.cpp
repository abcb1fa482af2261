// SPDX-License-Identifier: Apache-2.0
// C = max(0, |y - r| - h) / (u * scale), as docs/numerics.md defines it.
#include "isobit/lab/yardstick.h"

#include <bit>

namespace isobit::lab {
namespace {

constexpr Distance kNoRounding{kWrong, kWrong, kWrong};

bool canonical_nan(float value) { return std::bit_cast<std::uint32_t>(value) == kNanF32; }
bool canonical_nan(double value) { return std::bit_cast<std::uint64_t>(value) == kNanF64; }
bool canonical_nan(f16 value) { return value.bits == kNanF16; }
bool canonical_nan(bf16 value) { return value.bits == kNanBf16; }

constexpr DType dtype_of(float) { return DType::f32; }
constexpr DType dtype_of(double) { return DType::f64; }
constexpr DType dtype_of(f16) { return DType::f16; }
constexpr DType dtype_of(bf16) { return DType::bf16; }

template <class T>
double widen(T value) {
  if constexpr (sizeof(T) == 2)
    return to_float(value);
  else
    return static_cast<double>(value);
}

}  // namespace

template <class T, class Real>
Distance distance(T actual, Real exact, Real scale, bool any_nan) {
  if constexpr (std::is_integral_v<T>) {
    // The true sum wraps around.
    const auto wrapped = static_cast<T>(static_cast<__int128>(exact));
    return actual == wrapped ? Distance{} : kNoRounding;
  } else {
    constexpr DType kType = dtype_of(T{});
    constexpr Limits kLimits = limits_of(kType);
    constexpr Limits kComputed = limits_of(kType == DType::f64 ? DType::f64 : DType::f32);
    constexpr double kComputedLargest = kComputed.largest();
    constexpr double kUnit = Limits::power(-kComputed.digits);
    constexpr double kLargest = kLimits.largest();

    if (exact != exact)
      return (any_nan ? std::isnan(widen(actual)) : canonical_nan(actual)) ? Distance{}
                                                                           : kNoRounding;
    const double y = widen(actual);
    const Real infinity = static_cast<Real>(std::numeric_limits<double>::infinity());
    if (exact == infinity || exact == -infinity) return Real(y) == exact ? Distance{} : kNoRounding;
    // On the way to such a result numbers may have left the range: any bits, but always the same.
    const bool may_overflow = scale > kComputedLargest;
    const bool overflows = exact > kLargest || exact < -kLargest;
    if (std::isnan(y) || (std::isinf(y) && !overflows)) {
      if (may_overflow) return {};
      if (std::isnan(y)) return kNoRounding;
    }
    if (overflows && (may_overflow || (std::isinf(y) && (y > 0) == (exact > 0)))) return {};
    // Infinity stands for the first number that the type lacks.
    const Real beyond = static_cast<Real>(Limits::power(kLimits.max_exponent)) * 2;
    const Real difference = (std::isinf(y) ? (y > 0 ? beyond : -beyond) : Real(y)) - exact;
    const Real error = difference < 0 ? -difference : difference;
    if (error == 0) return {};

    const double r = std::fabs(static_cast<double>(exact));
    const int exponent =
        std::max(r == 0 ? kLimits.min_exponent : std::ilogb(r), kLimits.min_exponent);
    const double ulp = std::ldexp(1.0, exponent - kLimits.digits + 1);
    // Roundings apart: to 16 bits, and before that of what is subnormal where it is computed.
    const bool subnormal = r < Limits::power(kComputed.min_exponent);
    const Real h = (sizeof(T) == 2 ? Real(ulp) / 2 : Real(0)) +
                   (subnormal ? Real(kComputed.smallest()) / 2 : Real(0));
    const Real excess = error - h;
    const auto capped = [](Real value) { return std::min(static_cast<double>(value), kWrong); };
    const double c = excess <= 0 ? 0 : scale > 0 ? capped(excess / scale / kUnit) : kWrong;
    return {c, capped(error), capped(error / ulp)};
  }
}

void Deviation::merge(const Deviation& other) {
  const double abs = std::max(max_abs, other.max_abs), ulps = std::max(max_ulp, other.max_ulp);
  if (other.c > c) *this = other;
  max_abs = abs;
  max_ulp = ulps;
}

template <class Real>
void measure(const Array& actual, std::int64_t line, std::int64_t first,
             std::span<const Real> exact, std::span<const Real> scale, Deviation& worst,
             bool any_nan) {
  visit_any(actual.form().dtype, [&]<class T>(Type<T>) {
    if constexpr (!std::is_same_v<T, quad>) {
      const T* values = reinterpret_cast<const T*>(actual.line(line)) + first * actual.step();
      for (std::size_t i = 0; i < exact.size(); ++i) {
        const T value = values[static_cast<std::int64_t>(i) * actual.step()];
        const Distance d = distance(value, exact[i], scale[i], any_nan);
        worst.max_abs = std::max(worst.max_abs, d.abs);
        worst.max_ulp = std::max(worst.max_ulp, d.ulp);
        if (d.c <= worst.c) continue;
        worst.c = d.c;
        worst.line = line;
        worst.place = first + static_cast<std::int64_t>(i);
        worst.expected = static_cast<double>(exact[i]);
        worst.actual = widen(value);
        worst.ulp = d.ulp;
      }
    }
  });
}

template void measure(const Array&, std::int64_t, std::int64_t, std::span<const double>,
                      std::span<const double>, Deviation&, bool);
template void measure(const Array&, std::int64_t, std::int64_t, std::span<const quad>,
                      std::span<const quad>, Deviation&, bool);
template Distance distance(float, double, double, bool);
template Distance distance(f16, double, double, bool);
template Distance distance(bf16, double, double, bool);
template Distance distance(double, quad, quad, bool);
template Distance distance(std::int32_t, double, double, bool);

}  // namespace isobit::lab
