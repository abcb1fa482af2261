// SPDX-License-Identifier: Apache-2.0
// What each kind of scan combines, written once for every back end.
//
// A monoid has Values, of which combine(before, after) makes one; lift() makes one of an element,
// and number() an element of one. Carry is what stands for many blocks: a Value with a wider range.
// Those of floats are templates over S, a vector type of simd or tile::Scalar, and all their steps
// are correctly rounded operations of it. The others are exact, so that their order is free.
#pragma once

#include <cstdint>
#include <limits>
#include <type_traits>

#include "isobit/functions/logarithm.h"

namespace isobit::scan {

template <class S, int kCount>
struct Parts {
  using Vectors = S;
  typename S::V part[kCount];
};

// What the kinds whose Carry is a Value share.
template <class Value>
struct PlainCarry {
  using Carry = Value;
  ISOBIT_INLINE static Carry carry(const Value& value) { return value; }
  ISOBIT_INLINE static Value value(const Carry& carry) { return carry; }
};

template <class Vectors>
struct Sum : PlainCarry<Parts<Vectors, 1>> {
  using S = Vectors;
  using V = typename S::V;
  using Real = typename S::Real;
  static constexpr int kParts = 1, kCarryParts = 1;
  using Value = Parts<S, 1>;

  ISOBIT_INLINE static Value neutral() { return {{functions::all<S>(0)}}; }
  ISOBIT_INLINE static Value lift(V x) { return {{x}}; }
  ISOBIT_INLINE static Value combine(const Value& a, const Value& b) {
    return {{S::add(a.part[0], b.part[0])}};
  }
  ISOBIT_INLINE static Value join(const Value& a, const Value& b) { return combine(a, b); }
  ISOBIT_INLINE static V number(const Value& value) { return value.part[0]; }
};

// A number of magnitude 1/4 to 1/2 (or 0, an infinity or NaN) as the sum of two, for every product
// of a tree adds its rounding error to the root's; and a whole exponent, so that none leaves the
// range on the way. In a Carry the exponent is high * 2^20 + low: a float alone would lose the last
// places of one beyond 2^24.
template <class Vectors>
struct Product {
  using S = Vectors;
  using V = typename S::V;
  using Real = typename S::Real;
  static constexpr int kParts = 3, kCarryParts = 4;
  using Value = Parts<S, 3>;  // head, rest, exponent
  using Carry = Parts<S, 4>;  // head, rest, low, high

  ISOBIT_INLINE static Value neutral() {
    return {{functions::all<S>(0.5), functions::all<S>(0), functions::all<S>(1)}};
  }
  ISOBIT_INLINE static Value lift(V x) {
    const auto split = functions::split<S>(x);
    return {{split.value, functions::all<S>(0), split.exponent}};
  }
  ISOBIT_INLINE static Value combine(const Value& a, const Value& b) {
    const Value product = normal(a.part, b.part);
    return {
        {product.part[0], product.part[1], S::add(S::add(a.part[2], b.part[2]), product.part[2])}};
  }
  ISOBIT_INLINE static V number(const Value& value) {
    return functions::number<S>({S::add(value.part[0], value.part[1]), value.part[2]});
  }

  ISOBIT_INLINE static Carry carry(const Value& value) {
    return spread(value, value.part[2], functions::all<S>(0));
  }
  ISOBIT_INLINE static Carry join(const Carry& a, const Carry& b) {
    const Value product = normal(a.part, b.part);
    return spread(product, S::add(S::add(a.part[2], b.part[2]), product.part[2]),
                  S::add(a.part[3], b.part[3]));
  }
  // Beyond 2^22 every number is 0 or infinite, whatever comes after it in a block.
  ISOBIT_INLINE static Value value(const Carry& carry) {
    const V high = functions::at_least<S>(functions::at_most<S>(carry.part[3], 4), -4);
    return {{carry.part[0], carry.part[1], S::fma(high, functions::all<S>(kStep), carry.part[2])}};
  }

 private:
  static constexpr double kStep = 1 << 20;

  // The product of two numbers as another, and what its exponent is more than theirs.
  ISOBIT_INLINE static Value normal(const V* a, const V* b) {
    const auto exact =
        functions::product<S>(functions::Two<S>{a[0], a[1]}, functions::Two<S>{b[0], b[1]});
    const auto sum = functions::ordered_sum<S>(exact.head, exact.rest);
    const V size = functions::magnitude<S>(exact.head);
    const auto finite = S::less(size, functions::all<S>(1));
    const auto small = S::less(size, functions::all<S>(0.125));
    const V factor = S::choose(small, functions::all<S>(4), functions::all<S>(2));
    return {{S::mul(S::choose(finite, sum.head, exact.head), factor),
             S::choose(finite, S::mul(sum.rest, factor), functions::all<S>(0)),
             S::choose(small, functions::all<S>(-2), functions::all<S>(-1))}};
  }
  ISOBIT_INLINE static Carry spread(const Value& number, V low, V high) {
    const V rounder = S::all(functions::Format<Real>::kRounder);
    const V steps = S::sub(S::fma(low, functions::all<S>(1 / kStep), rounder), rounder);
    return {{number.part[0], number.part[1], S::minus_product(steps, functions::all<S>(kStep), low),
             S::add(high, steps)}};
  }
};

// sum * 4^half: sum is of powers of e divided by 2 to the largest whole exponent among them, of
// which `half` is the half, so that the largest numbers' fits. -infinity, whose power is 0, and
// what is not there have the least half that there is.
template <class Vectors>
struct LogSumExp : PlainCarry<Parts<Vectors, 2>> {
  using S = Vectors;
  using V = typename S::V;
  using Real = typename S::Real;
  static constexpr int kParts = 2, kCarryParts = 2;
  using Value = Parts<S, 2>;  // sum, half

  ISOBIT_INLINE static Value neutral() { return {{functions::all<S>(0), S::all(-kLargest)}}; }
  ISOBIT_INLINE static Value lift(V x) {
    using L = functions::Logarithms<Real>;
    const V half = S::mul(x, S::all(L::kLog2E / 2));
    const V missed = S::fma(x, S::all(L::kLog2ERest / 2),
                            S::fma(x, S::all(L::kLog2E / 2), functions::negative<S>(half)));
    const V twice = S::add(half, half);
    const V n = whole(twice);
    const V f = S::add(S::sub(twice, n), S::add(missed, missed));
    // Where whole numbers are all that floats can hold, the fraction is below their last place.
    const auto far = S::less(functions::all<S>(kFar), functions::magnitude<S>(twice));
    const V power = functions::exp2_of_fraction<S>(S::choose(far, functions::all<S>(0), f));
    const V halved = S::choose(far, half, S::mul(n, functions::all<S>(0.5)));
    return {{S::choose(S::less(x, S::all(-kLargest)), functions::all<S>(0), power),
             S::min(S::max(halved, S::all(-kLargest)), S::all(kLargest))}};
  }
  ISOBIT_INLINE static Value combine(const Value& a, const Value& b) {
    const V most = S::max(a.part[1], b.part[1]);
    return {{S::add(scaled(a, most), scaled(b, most)), most}};
  }
  ISOBIT_INLINE static Value join(const Value& a, const Value& b) { return combine(a, b); }
  ISOBIT_INLINE static V number(const Value& value) {
    using L = functions::Logarithms<Real>;
    const V fraction =
        S::fma(value.part[1], S::all(2 * L::kLn2Rest), functions::log<S>(value.part[0]));
    return S::fma(value.part[1], S::all(2 * L::kLn2), fraction);
  }

 private:
  static constexpr Real kLargest = std::numeric_limits<Real>::max();
  static constexpr double kFar = functions::kSingle<S> ? 0x1p22 : 0x1p51;
  static constexpr double kLeast = functions::kSingle<S> ? -126 : -1022;

  ISOBIT_INLINE static V whole(V x) {
    const V rounder = S::all(functions::Format<Real>::kRounder);
    return S::sub(S::add(x, rounder), rounder);
  }
  // What is smaller than 2^-126 of the largest is nothing beside it.
  ISOBIT_INLINE static V scaled(const Value& value, V most) {
    const V distance = S::sub(value.part[1], most);
    const V n = functions::at_least<S>(S::add(distance, distance), kLeast);
    const V factor = S::choose(S::less(distance, functions::all<S>(kLeast / 2)),
                               functions::all<S>(0), functions::power<S>(n));
    return S::mul(value.part[0], factor);
  }
};

// Integers, which wrap around.
template <class Integer, bool kProduct>
struct Wrapping {
  using Real = Integer;
  using Word = std::make_unsigned_t<Integer>;
  using Value = Word;

  ISOBIT_INLINE static Value neutral() { return kProduct ? 1 : 0; }
  ISOBIT_INLINE static Value lift(Integer x, std::int64_t) { return static_cast<Word>(x); }
  ISOBIT_INLINE static Value combine(Value a, Value b) { return kProduct ? a * b : a + b; }
  static constexpr bool kOftenIdle = false;  // whether most elements change nothing
  // Combines a value with what comes after it.
  ISOBIT_INLINE static void take(Value& value, Integer x, std::int64_t index) {
    value = combine(value, lift(x, index));
  }
  ISOBIT_INLINE static Integer number(Value value) { return static_cast<Integer>(value); }
  ISOBIT_INLINE static std::int64_t index(Value) { return 0; }

  using Carry = Value;
  ISOBIT_INLINE static Carry carry(Value value) { return value; }
  ISOBIT_INLINE static Value value(Carry carry) { return carry; }
  ISOBIT_INLINE static Carry join(Carry a, Carry b) { return combine(a, b); }
};

// The largest or smallest, and where it stands; the later one of equals. NaN is beyond all numbers.
template <class Number, bool kLargest>
struct Extreme {
  using Real = Number;
  struct Value {
    Number number;
    std::int64_t index;
  };

  ISOBIT_INLINE static Value neutral() {
    using Limits = std::numeric_limits<Number>;
    if constexpr (Limits::has_infinity)
      return {kLargest ? -Limits::infinity() : Limits::infinity(), -1};
    else
      return {kLargest ? Limits::min() : Limits::max(), -1};
  }
  ISOBIT_INLINE static Value lift(Number x, std::int64_t index) { return {x, index}; }
  ISOBIT_INLINE static Value combine(const Value& a, const Value& b) {
    const bool reaches = kLargest ? b.number >= a.number : b.number <= a.number;
    const bool wins = b.number != b.number || (a.number == a.number && reaches);
    return wins && b.index >= 0 ? b : a;  // what is neutral or comes before all wins nothing
  }
  static constexpr bool kOftenIdle = true;
  ISOBIT_INLINE static bool beaten(Number x, Number by) { return kLargest ? x < by : x > by; }
  // Combines a value with what comes after it.
  ISOBIT_INLINE static void take(Value& value, Number x, std::int64_t index) {
    if (beaten(x, value.number)) [[likely]]
      return;
    if (x != x || value.number == value.number) value = {x, index};
  }
  ISOBIT_INLINE static Number number(const Value& value) { return value.number; }
  ISOBIT_INLINE static std::int64_t index(const Value& value) { return value.index; }

  using Carry = Value;
  ISOBIT_INLINE static Carry carry(const Value& value) { return value; }
  ISOBIT_INLINE static Value value(const Carry& carry) { return carry; }
  ISOBIT_INLINE static Carry join(const Carry& a, const Carry& b) { return combine(a, b); }
};

}  // namespace isobit::scan
