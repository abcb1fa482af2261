// SPDX-License-Identifier: Apache-2.0
// Numbers as their definition says them, one after the other: probabilities in quad, and the number
// below which a normal one lies so often by Newton's steps on the C library's erf and erfc.
#include "isobit/ops/random/reference.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "isobit/core/odd.h"
#include "isobit/core/quad.h"
#include "isobit/norms/reference_rows.h"

namespace isobit::random {
namespace {

using Long = long double;

constexpr Long kRootHalf = 0.707106781186547524400844362104849039L;
constexpr Long kDensity = 0.398942280401432677939946059934381868L;  // 1 / sqrt(2 pi)

// A probability and what it lacks of 1, neither of which loses digits near 0.
struct Probability {
  Long below, above;
};

Long integral(Long x) { return std::erfc(-x * kRootHalf) / 2; }
Long density(Long x) { return kDensity * std::exp(-x * x / 2); }

// The x >= 0 that is exceeded with probability p, where `lacks` is 1/2 - p.
Long exceeded(Long p, Long lacks) {
  Long x = 0;
  for (int step = 0; step < 100; ++step) {
    Long change;
    if (p > 0.25L) {
      change = (lacks - std::erf(x * kRootHalf) / 2) / density(x);
    } else {
      const Long tail = integral(-x);
      change = (std::log(tail) - std::log(p)) * tail / density(x);
    }
    x += change;
    if (std::fabs(change) <= std::fabs(x) * 0x1p-62L) break;
  }
  return x;
}

Long number_below_with(const Probability& p) {
  const Long tail = std::min(p.below, p.above);
  const Long x = exceeded(tail, std::max<Long>(0, (std::max(p.below, p.above) - tail) / 2));
  return p.below < p.above ? -x : x;
}

double rounded(DType dtype, double value) {
  switch (dtype) {
    case DType::f64:  return value;
    case DType::f16:  return to_float(from_float<f16>(round_to_odd(value)));
    case DType::bf16: return to_float(from_float<bf16>(round_to_odd(value)));
    default:          return static_cast<float>(value);
  }
}

// The largest number of the type below this one: the next of double, cut off downwards.
double previous(DType dtype, double value) {
  const double next = std::nextafter(value, -INFINITY);
  if (dtype == DType::f64) return next;
  const int digits = dtype == DType::f16 ? 11 : dtype == DType::bf16 ? 8 : 24;
  const int least = dtype == DType::f16 ? -14 : -126;
  const double step = std::ldexp(1.0, std::max(std::ilogb(next), least) - digits + 1);
  return std::floor(next / step) * step;
}

template <class Real>
class Numbers {
 public:
  Numbers(const Args& args, DType dtype)
      : args_(args),
        wide_(dtype == DType::f64),
        low_(rounded(dtype, args.low)),
        high_(rounded(dtype, args.high)),
        last_(std::max(low_, previous(dtype, high_))),
        left_(integral((static_cast<Long>(args.low) - args.mean) / args.std)),
        right_(integral((static_cast<Long>(args.mean) - args.high) / args.std)),
        between_(between()) {}

  struct Found {
    Real number;
    double scale;
  };
  Found at(std::uint64_t index) const {
    const std::uint64_t place = args_.random_offset + index;
    const std::uint64_t word = word_of(place, 0), more = wide_ ? word_of(place, 1) : 0;
    switch (args_.distribution) {
      case Distribution::uniform: {
        const quad u = static_cast<quad>(word) / 4294967296.0 +
                       static_cast<quad>(more >> 11) / 9007199254740992.0;
        const quad x = static_cast<quad>(low_) + (static_cast<quad>(high_) - low_) * u;
        const quad kept = std::min<quad>(x, last_);
        const double from = std::fabs(low_);
        return {static_cast<Real>(kept), from + std::fabs(static_cast<double>(kept))};
      }
      case Distribution::bernoulli: {
        const bool one = static_cast<double>(word) < std::floor(args_.p * 4294967296.0);
        return {static_cast<Real>(one), 0};
      }
      default: break;
    }
    const quad whole = wide_ ? (static_cast<quad>(word) * 4294967296.0 + static_cast<quad>(more) +
                                static_cast<quad>(0.5)) /
                                   18446744073709551616.0
                             : (static_cast<quad>(word) + static_cast<quad>(0.5)) / 4294967296.0;
    Probability p{static_cast<Long>(whole), static_cast<Long>(1 - whole)};
    if (args_.distribution == Distribution::truncated_normal)
      p = {left_ + p.below * between_, right_ + p.above * between_};
    const Long x = number_below_with(p);
    Long number = args_.mean + args_.std * x;
    if (args_.distribution == Distribution::truncated_normal)
      number = std::clamp<Long>(number, low_, high_);
    return {static_cast<Real>(number),
            static_cast<double>(args_.std * (1 + std::fabs(x))) + std::fabs(args_.mean)};
  }

 private:
  std::uint64_t word_of(std::uint64_t place, std::uint64_t which) const {
    constexpr std::uint64_t kStream = 0x80000000;
    return norms::reference::random_word(args_.random_seed, kStream << 32 | which, place);
  }

  // By the smaller of the probabilities on either side of 0.
  Long between() const {
    const Long first = (static_cast<Long>(args_.low) - args_.mean) / args_.std;
    const Long last = (static_cast<Long>(args_.high) - args_.mean) / args_.std;
    if (first > 0) return integral(-first) - integral(-last);
    if (last < 0) return integral(last) - integral(first);
    return (std::erf(last * kRootHalf) - std::erf(first * kRootHalf)) / 2;
  }

  const Args& args_;
  bool wide_;
  double low_, high_, last_;
  Long left_, right_, between_;
};

template <class Real>
void compute(const Args& exact, const Args& scale, DType dtype) {
  const Numbers<Real> numbers(exact, dtype);
  const std::int64_t count = exact.y.shape[0] * exact.y.shape[1];
  for (std::int64_t i = 0; i < count; ++i) {
    const auto found = numbers.at(static_cast<std::uint64_t>(i));
    static_cast<Real*>(exact.y.data)[i] = found.number;
    if (scale.y.given()) static_cast<Real*>(scale.y.data)[i] = static_cast<Real>(found.scale);
  }
}

}  // namespace

void reference(const Args& exact, const Args& scale, const Rounding& rounding) {
  if (exact.y.dtype == DType::f128)
    compute<quad>(exact, scale, rounding.dtype);
  else
    compute<double>(exact, scale, rounding.dtype);
}

// Nothing stands between the words and the numbers.
void intermediates(const Args& exact, const Rounding& rounding, const EmitArray& emit) {
  reference(exact, {}, rounding);
  const auto* from = static_cast<const double*>(exact.y.data);
  const std::int64_t rows = exact.y.shape[0], cols = exact.y.shape[1];
  emit("y", rows, cols, std::vector<double>(from, from + rows * cols));
}

}  // namespace isobit::random
