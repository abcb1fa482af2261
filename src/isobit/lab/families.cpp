// SPDX-License-Identifier: Apache-2.0
// The families' formulas. Only exactly rounded arithmetic (and e^z in one of them), so that inputs,
// too, have the same bits everywhere.
#include "isobit/lab/families.h"

#include <xxhash.h>

#include <algorithm>
#include <array>
#include <cfloat>
#include <cmath>
#include <limits>

#include "isobit/lab/limits.h"
#include "isobit/lab/usage.h"

namespace isobit::lab {

struct Family {
  class Stream;
  struct Place;
  std::string_view name;
  double (*value)(Stream& stream, Place at);
  double typical,
      largest;  // a narrower type is given the values times the power of two that it needs
};

// SplitMix64: every row is a stream of its own.
class Family::Stream {
 public:
  Stream(std::uint64_t key, std::int64_t row)
      : state_(mix(key + kStep * static_cast<std::uint64_t>(row))) {}

  std::uint64_t bits() { return mix(state_ += kStep); }

  // Uniform in (-1, 1).
  double symmetric() { return (static_cast<double>(bits() >> 11) + 0.5) * 0x1p-52 - 1; }

  // Eight uniform numbers have nearly the sum of a normal one, and no logarithm; |z| < 4.9.
  double normal() {
    std::uint64_t sum = 0;
    for (int i = 0; i < 4; ++i) {
      const std::uint64_t pair = bits();
      sum += (pair >> 32) + (pair & 0xffffffff);
    }
    constexpr double kInverseDeviation = 1.224744871391589;  // of a sum of eight: sqrt(12 / 8)
    return (static_cast<double>(sum) * 0x1p-32 - 4) * kInverseDeviation;
  }

 private:
  static constexpr std::uint64_t kStep = 0x9e3779b97f4a7c15;
  static std::uint64_t mix(std::uint64_t z) {
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
    z = (z ^ z >> 27) * 0x94d049bb133111eb;
    return z ^ z >> 31;
  }

  std::uint64_t state_;
};

struct Family::Place {
  std::int64_t row, col;
  double limit;  // the largest number of the type

  // The same for negative rows.
  std::int64_t row_modulo(std::int64_t n) const { return (row % n + n) % n; }
};

namespace {

using Stream = Family::Stream;
using Place = Family::Place;

double fitted(double value, double limit) {
  while (value > limit) value /= 2;
  return value;
}

double normal(Stream& stream, Place) { return stream.normal(); }

template <int Mean, int InverseDeviation>
double around(Stream& stream, Place) {
  return Mean + stream.normal() / InverseDeviation;
}

double constant(Stream&, Place at) {
  constexpr double kValues[] = {3.14159265358979323846, 1e4 / 3, 1e30};
  return fitted(kValues[at.row_modulo(3)], at.limit);
}

// One column of a row stands out; which one depends on the row, so that every place is met.
double outlier(Stream& stream, Place at) {
  const double z = stream.normal();
  if (at.col != at.row_modulo(61)) return z;
  return fitted(at.row_modulo(2) == 0 ? 1e6 : 1e20, at.limit);
}

// From -9 to 9: sums and products of a few hundred of them are exact in every type.
double small_integer(Stream& stream, Place) { return static_cast<double>(stream.bits() % 19) - 9; }

constexpr Family kFamilies[] = {
    {"randn", normal, 1, 5},
    {"uniform", [](Stream& s, Place) { return 1 + s.symmetric() / 2; }, 1, 2},
    {"offset100", around<100, 100>, 1, 101},
    {"mean1e4", around<10'000, 1>, 1, 10'010},
    {"mean1e6", around<1'000'000, 1>, 1, 1'000'010},
    {"constant", constant, 1, 1},
    {"outlier", outlier, 1, 5},
    {"ramp", [](Stream&, Place at) { return static_cast<double>(at.col + 1) / 1000; }, 1, 1000},
    {"alternating", [](Stream& s, Place at) { return (at.col % 2 == 0 ? 1e5 : -1e5) + s.normal(); },
     1, 100'010},
    {"lognormal", [](Stream& s, Place) { return std::exp(3 * s.normal()); }, 1, 3e6},
    {"huge1e18", [](Stream& s, Place) { return 1e18 * s.normal(); }, 1e18, 5e18},
    {"huge1e20", [](Stream& s, Place) { return 1e20 * s.normal(); }, 1e20, 5e20},
    {"fltmax", [](Stream& s, Place) { return FLT_MAX * s.symmetric(); }, 1e38, FLT_MAX},
    {"tiny1e-20", [](Stream& s, Place) { return 1e-20 * s.normal(); }, 1e-20, 5e-20},
    {"denormal", [](Stream& s, Place) { return 1e-40 * s.normal(); }, 1e-40, 5e-40},
    {"const_grad", normal, 1, 5},
    {"integers", small_integer, 1, 9},
};

constexpr auto kNames = [] {
  std::array<std::string_view, std::size(kFamilies)> names;
  for (std::size_t i = 0; i < names.size(); ++i) names[i] = kFamilies[i].name;
  return names;
}();

// What the arguments that are not like x look like, whatever the family.
constexpr Family kWeight = {"", [](Stream& s, Place) { return 1 + s.normal() / 2; }, 1, 4};
constexpr Family kConstantGradient = {"", [](Stream&, Place) { return 1.0 / 3; }, 1, 1};

// Below the normal numbers of f32 a value falls as far below those of its own type.
int scale_exponent(const Family& family, DType dtype) {
  const Limits limits = limits_of(dtype), f32 = limits_of(DType::f32);
  const int typical = std::ilogb(family.typical);
  const int wanted = limits.min_exponent + std::min(0, typical - f32.min_exponent);
  if (typical < wanted) return wanted - typical;
  int exponent = 0;
  while (std::ldexp(family.largest, exponent) > limits.largest()) --exponent;
  return exponent;
}

// Any integer of 32 or 64 bits that a double holds, and often those at the ends.
template <class T>
double integer(Stream& stream) {
  constexpr T kEnds[] = {std::numeric_limits<T>::min(), std::numeric_limits<T>::max(), 0, 1};
  const std::uint64_t bits = stream.bits();
  if ((bits >> 32) % 16 != 0) return static_cast<std::int32_t>(bits);
  const T end = kEnds[bits % 4];
  return sizeof(T) == 8 && end > 1 ? 0x1.fffffffffffffp62 : static_cast<double>(end);
}

const Family& family_of(std::string_view family, Drawn drawn) {
  const Family& named = kFamilies[index_of("family", family, kNames)];
  switch (drawn) {
    case Drawn::family:   return named;
    case Drawn::weight:   return kWeight;
    case Drawn::gradient: return family == "const_grad" ? kConstantGradient : kFamilies[0];
    default:              return kFamilies[0];
  }
}

}  // namespace

std::span<const std::string_view> family_names() { return kNames; }

Draw::Draw(std::string_view family, std::uint64_t seed, std::string_view argument, Drawn drawn,
           DType dtype, std::int64_t below)
    : family_(&family_of(family, drawn)),
      drawn_(drawn),
      key_(XXH3_64bits_withSeed(argument.data(), argument.size(), seed)),
      dtype_(dtype),
      scale_(std::ldexp(1.0, scale_exponent(*family_, dtype))),
      below_(below) {}

void Draw::line(std::int64_t line, std::span<double> values) const {
  Stream stream(key_, line);
  const double limit = limits_of(dtype_).largest();
  for (std::size_t i = 0; i < values.size(); ++i) {
    const Place place{line, static_cast<std::int64_t>(i), limit};
    if (drawn_ == Drawn::index)
      values[i] = static_cast<double>(
          stream.bits() % static_cast<std::uint64_t>(std::max<std::int64_t>(below_, 1)));
    else if (drawn_ == Drawn::starts)
      values[i] = static_cast<double>(stream.bits() % (static_cast<std::uint64_t>(below_) + 1));
    else if (drawn_ == Drawn::begin || drawn_ == Drawn::end) {
      const auto before =
          static_cast<double>(stream.bits() % static_cast<std::uint64_t>(below_ / 2 + 1));
      values[i] = drawn_ == Drawn::begin ? before : static_cast<double>(below_) - before;
    } else if (drawn_ == Drawn::mask || dtype_ == DType::boolean)
      values[i] = static_cast<double>(stream.bits() % 2);
    else if (dtype_ == DType::u8)
      values[i] = static_cast<double>(stream.bits() % 256);
    else if (dtype_ == DType::i64)
      values[i] = integer<std::int64_t>(stream);
    else if (dtype_ == DType::i32)
      values[i] = integer<std::int32_t>(stream);
    else
      values[i] = family_->value(stream, place) * scale_;
  }
  if (drawn_ != Drawn::starts || values.empty()) return;
  values[0] = 0;
  std::ranges::sort(values);
}

}  // namespace isobit::lab
