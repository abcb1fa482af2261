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
Distance distance(T actual, Real exact, Real scale) {
  if constexpr (std::is_same_v<T, std::int32_t>) {
    // The true sum wraps around.
    const auto wrapped = static_cast<std::int32_t>(static_cast<std::int64_t>(exact));
    return actual == wrapped ? Distance{} : kNoRounding;
  } else {
    constexpr DType kType = dtype_of(T{});
    constexpr Limits kLimits = limits_of(kType);
    constexpr Limits kComputed = limits_of(kType == DType::f64 ? DType::f64 : DType::f32);
    constexpr double kUnit = Limits::power(-kComputed.digits);
    constexpr double kLargest = kLimits.largest();

    if (exact != exact) return canonical_nan(actual) ? Distance{} : kNoRounding;
    if (exact > kLargest || exact < -kLargest) return {};  // overflows; not counted
    const double y = widen(actual);
    if (std::isnan(y)) return kNoRounding;
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
void measure(const Array& actual, std::int64_t row, std::int64_t first_col,
             std::span<const Real> exact, std::span<const Real> scale, Deviation& worst) {
  visit(actual.form().dtype, [&]<class T>(Type<T>) {
    if constexpr (!std::is_same_v<T, quad>) {
      const T* values = reinterpret_cast<const T*>(actual.row(row)) + first_col;
      for (std::size_t i = 0; i < exact.size(); ++i) {
        const Distance d = distance(values[i], exact[i], scale[i]);
        worst.max_abs = std::max(worst.max_abs, d.abs);
        worst.max_ulp = std::max(worst.max_ulp, d.ulp);
        if (d.c <= worst.c) continue;
        worst.c = d.c;
        worst.row = row;
        worst.col = first_col + static_cast<std::int64_t>(i);
        worst.expected = static_cast<double>(exact[i]);
        worst.actual = widen(values[i]);
        worst.ulp = d.ulp;
      }
    }
  });
}

template void measure(const Array&, std::int64_t, std::int64_t, std::span<const double>,
                      std::span<const double>, Deviation&);
template void measure(const Array&, std::int64_t, std::int64_t, std::span<const quad>,
                      std::span<const quad>, Deviation&);
template Distance distance(float, double, double);
template Distance distance(f16, double, double);
template Distance distance(bf16, double, double);
template Distance distance(double, quad, quad);
template Distance distance(std::int32_t, double, double);

}  // namespace isobit::lab
